#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# static_libs.sh DIR: the libraries that STATIC=1 links, as archives of code that may lie in
# a shared library: DIR/lib, DIR/include, DIR/licenses, DIR/versions.
#
# Debian's own archives do not serve: those of zstd and jansson are not position
# independent, and that of HDF5 wants curl, crypto and szip.  So they are built from the
# source packages of this system's release.  apt-get fetches and verifies them with lists
# and a cache of its own: the machine's configuration stays as it is, and nobody needs to
# be root.  HARDEN is what the Makefile hardens its own code with.  HDF5 has zlib and no
# szip, which kvtool refuses in any dump.
#
# Two thirds of the time of 'make wheel' are this, and most of that is HDF5.  So what was
# built is kept in STATIC_CACHE (~/.cache/kvtool/static; empty: nowhere), an entry for each
# set of sources, this recipe, HARDEN and tools.  An entry appears whole, under its name,
# and is copied and held against its checksums before it is used: two of these may run at
# once.  DIR/versions says what DIR was made with; where that still holds, nothing is done.
set -eu

packages='hdf5 libzstd jansson xxhash zlib'
archives='libhdf5 libzstd libjansson libxxhash libz'

die() { printf 'static_libs: %s\n' "$1" >&2; exit 1; }

[ $# = 1 ] || { echo "usage: scripts/static_libs.sh DIR" >&2; exit 2; }
cc=${CC:-cc}		# maybe with a launcher before it
for program in apt-get dpkg-source cmake gpgv dpkg-parsechangelog "${cc%% *}" make; do
	command -v "$program" >/dev/null ||
		die "no $program here; on Debian 'scripts/deps.sh wheel' installs what is needed"
done
# nothing of the make around this one, or of its caller, is in the archives
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR CFLAGS CPPFLAGS LDFLAGS CPATH C_INCLUDE_PATH
export LC_ALL=C

flags="-O2 -DNDEBUG -fPIC -fvisibility=hidden ${HARDEN-}"
# What archives of the same sources follow from: recipe, compiler, tools, C library, flags.
tools=$({
	cat "$0"
	$cc -v 2>&1 | grep -E ' version |^Target: '
	for tool in ld cmake; do $tool --version | head -n 1; done
	getconf GNU_LIBC_VERSION
	echo "$flags"
} | sha256sum | cut -d ' ' -f 1)
! grep -qxF "tools $tools" "$1/versions" 2>/dev/null || exit 0

mkdir -p "$1"
final=$(cd "$1" && pwd)
work=$(mktemp -d) aside=
trap 'rm -rf "$work" ${aside:+"$aside"}' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
start=$(date +%s)
prefix=$work/prefix
mkdir -p "$prefix/lib" "$prefix/include" "$prefix/licenses" "$work/src" \
	"$work/apt/lists/partial" "$work/apt/cache/archives/partial"

# Whatever fails says so by its last lines.
quietly() {
	"$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; die "failed: $1 $2"; }
}

# ---- sources -------------------------------------------------------------------

apt() {
	apt-get -q -y -o Dir::Etc::sourcelist="$work/apt/sources.list" \
		-o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/apt/lists" \
		-o Dir::Cache="$work/apt/cache" -o APT::Sandbox::User="$(id -un)" \
		-o APT::Get::AllowUnauthenticated=false "$@"
}

# Where this machine gets packages of its release, there are their sources.
sources() {
	release=$(. /etc/os-release && echo "$ID ${VERSION_CODENAME-}")
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	signed=
	case $release in
	debian*) [ ! -e $keyring ] || signed="[signed-by=$keyring] " ;;
	esac
	# shellcheck disable=SC2016	# these are names of apt
	apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk -v name="${release#* }" -v signed="$signed" '
			$2 == name || index($2, name "-") == 1 {
				print "deb-src " signed $1 " " $2 " " $3 }' | sort -u
}

sources >"$work/apt/sources.list"
[ -s "$work/apt/sources.list" ] ||
	die "apt-get of this machine knows no packages of its release: apt-get update first"
quietly apt update

# ---- what was built before -------------------------------------------------------

caches=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${STATIC_CACHE-${caches:+$caches/kvtool/static}}
# shellcheck disable=SC2086	# a list of names
quietly apt --print-uris source $packages
files=$(awk "/^'/ { print \$2, \$4 }" "$work/log")	# name and checksum of each
[ -n "$files" ] || die "apt-get does not say what the sources of $packages are"
entry=$cache/$(echo "$tools $files" | sha256sum | cut -c 1-32)

# Takes what the cache has; false if it has nothing that is whole.
cached() {
	[ -n "$cache" ] && [ -d "$entry" ] || return 1
	rm -rf "$prefix"
	cp -R "$entry" "$prefix" 2>/dev/null && (cd "$prefix" &&
		tail -n 1 sums | grep -q ' versions$' && sha256sum --status -c sums) 2>/dev/null && return
	echo "static_libs: $entry is damaged, and made anew" >&2
	rm -rf "$entry" "$prefix"
	mkdir -p "$prefix/lib" "$prefix/include" "$prefix/licenses"
	return 1
}

# Another one may have been faster.
keep() {
	[ -n "$cache" ] || return 0
	mkdir -p "$cache" && aside=$(mktemp -d "$cache/.new.XXXXXX") && cp -R "$prefix/." "$aside" &&
		{ mv -T "$aside" "$entry" || [ -s "$entry/sums" ]; } && return
	echo "static_libs: these could not be kept in $cache"
} 2>/dev/null

finish() {
	rm -rf "$final"
	mkdir -p "$final"
	cp -R "$prefix/lib" "$prefix/include" "$prefix/licenses" "$final"
	# the last one: who finds it finds everything
	cp "$prefix/versions" "$final"
	echo "static_libs: $(sed '/^tools /d' "$prefix/versions" | paste -sd , | sed 's/,/, /g'): $(($(date +%s) - start)) s${1-}"
	exit 0
}

! cached || finish ", of $entry"

# ---- building ------------------------------------------------------------------

# shellcheck disable=SC2086	# a list of names
(cd "$work/src" && quietly apt source $packages)

# The folder that a source package was unpacked to.
source_of() { set -- "$work/src/$1-"*/; echo "${1%/}"; }

jobs=$(nproc 2>/dev/null || echo 1)
# no path of this machine in messages, no date
flags="$flags -ffile-prefix-map=$work=."

with_cmake() {
	folder=$1
	shift
	# from there: what HDF5 runs to learn about the compiler writes where cmake was started
	mkdir "$folder/built"
	(cd "$folder/built" && CC=$cc quietly cmake .. -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="$flags" \
		-DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
		-DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF "$@")
	quietly cmake --build "$folder/built" -j "$jobs"
	quietly cmake --install "$folder/built"
}

zlib() {
	(cd "$1" && CC=$cc CFLAGS="$flags -D_LARGEFILE64_SOURCE=1" quietly ./configure --static --prefix="$prefix" &&
		quietly make -j "$jobs" libz.a && quietly make install)
}

libzstd() {
	# without hooks that other libraries of a process might fill in, and what nothing calls;
	# its target install-static would compile all of it once more
	quietly make -C "$1/lib" -j "$jobs" CC="$cc" CFLAGS="$flags -DZSTD_TRACE=0" \
		ZSTD_LEGACY_SUPPORT=0 ZSTD_LIB_DICTBUILDER=0 ZSTD_LIB_DEPRECATED=0 libzstd.a
	cp "$1/lib/libzstd.a" "$prefix/lib"
	cp "$1"/lib/zstd*.h "$prefix/include"
}

# Upstream's archive lacks the choice by processor, which the shared library has.
xxhash() {
	set -- "$1" xxhash
	case $(uname -m) in x86_64 | i?86) set -- "$@" xxh_x86dispatch ;; esac
	(cd "$1" && shift && for unit; do
		# shellcheck disable=SC2086	# flags are meant to be split
		quietly $cc $flags -c "$unit.c"
		quietly ar rcs "$prefix/lib/libxxhash.a" "$unit.o"
	done)
	cp "$1"/xxh*.h "$prefix/include"
}

jansson() {
	with_cmake "$1" -DJANSSON_BUILD_DOCS=OFF -DJANSSON_WITHOUT_TESTS=ON \
		-DJANSSON_EXAMPLES=OFF -DJANSSON_BUILD_SHARED_LIBS=OFF
}

# As Debian configures it, but for what kvtool has no use for.
hdf5() {
	with_cmake "$1" -DHDF5_BUILD_TOOLS=OFF -DHDF5_BUILD_EXAMPLES=OFF -DHDF5_BUILD_HL_LIB=OFF \
		-DHDF5_BUILD_CPP_LIB=OFF -DHDF5_BUILD_FORTRAN=OFF -DHDF5_BUILD_JAVA=OFF \
		-DHDF5_ENABLE_PARALLEL=OFF -DHDF5_ENABLE_SZIP_SUPPORT=OFF \
		-DHDF5_ENABLE_Z_LIB_SUPPORT=ON -DZLIB_INCLUDE_DIR="$prefix/include" \
		-DZLIB_LIBRARY="$prefix/lib/libz.a" -DZLIB_USE_EXTERNAL=OFF \
		-DDEFAULT_API_VERSION=v18 -DHDF5_ENABLE_EMBEDDED_LIBINFO=OFF -DHDF5_GENERATE_HEADERS=OFF
}

for name in zlib libzstd xxhash jansson hdf5; do
	folder=$(source_of $name)
	echo "static_libs: building ${folder##*/}"
	$name "$folder"
	cp "$folder/debian/copyright" "$prefix/licenses/$name"
	(cd "$folder" && printf '%s %s\n' "$name" "$(dpkg-parsechangelog -S Version)") \
		>>"$prefix/versions"
done

# ---- what must hold ------------------------------------------------------------

# All of each archive goes into one shared library: so all of it is position independent,
# and nothing is missing but the C library.
for name in $archives; do
	[ -s "$prefix/lib/$name.a" ] || die "$name.a was not built"
	case ${HARDEN-} in *-fstack-protector*)
		nm "$prefix/lib/$name.a" 2>/dev/null | grep -q ' U __stack_chk_fail$' ||
			die "$name.a was built without $HARDEN" ;;
	esac
	set -- "$@" "$prefix/lib/$name.a"
done
shift
# shellcheck disable=SC2086	# a compiler may have a launcher
quietly $cc -shared -o "$work/all.so" -Wl,-z,defs,-z,text -Wl,--whole-archive "$@" \
	-Wl,--no-whole-archive -lm -ldl -lpthread

# What else was installed goes, some of it tells where; checksums of the rest come.
(cd "$prefix" && rm -rf bin share lib/*[!a])
echo "tools $tools" >>"$prefix/versions"
(cd "$prefix" && find lib include licenses -type f | sort | xargs sha256sum >sums &&
	sha256sum versions >>sums)
keep
finish
