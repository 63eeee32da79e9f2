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
set -eu

packages='hdf5 libzstd jansson xxhash zlib'
archives='libhdf5 libzstd libjansson libxxhash libz'

die() { printf 'static_libs: %s\n' "$1" >&2; exit 1; }

[ $# = 1 ] || { echo "usage: scripts/static_libs.sh DIR" >&2; exit 2; }
for program in apt-get dpkg-source cmake gpgv dpkg-parsechangelog \
		"${CC:-cc}" make; do
	command -v "${program%% *}" >/dev/null ||
		die "no ${program%% *} here; on Debian 'scripts/deps.sh wheel' installs what is needed"
done
mkdir -p "$1"
final=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
# shellcheck disable=SC2086	# a list of names
(cd "$work/src" && quietly apt source $packages)

# The folder that a source package was unpacked to.
source_of() { set -- "$work/src/$1-"*/; echo "${1%/}"; }

# ---- building ------------------------------------------------------------------

jobs=$(nproc 2>/dev/null || echo 1)
# no path of this machine in messages, no date
flags="-O2 -DNDEBUG -fPIC -fvisibility=hidden -ffile-prefix-map=$work=. ${HARDEN-}"

with_cmake() {
	folder=$1
	shift
	# from there: what HDF5 runs to learn about the compiler writes where cmake was started
	mkdir "$folder/built"
	(cd "$folder/built" && quietly cmake .. -DCMAKE_BUILD_TYPE=None \
		-DCMAKE_C_COMPILER="${CC:-cc}" -DCMAKE_C_FLAGS="$flags" \
		-DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
		-DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF "$@")
	quietly cmake --build "$folder/built" -j "$jobs"
	quietly cmake --install "$folder/built"
}

zlib() {
	(cd "$1" && CFLAGS="$flags -D_LARGEFILE64_SOURCE=1" quietly ./configure --static --prefix="$prefix" &&
		quietly make -j "$jobs" libz.a && quietly make install)
}

libzstd() {
	# without hooks that other libraries of a process might fill in
	quietly make -C "$1/lib" -j "$jobs" CFLAGS="$flags -DZSTD_TRACE=0" PREFIX="$prefix" \
		libzstd.a install-static install-includes
}

# Upstream's archive lacks the choice by processor, which the shared library has.
xxhash() {
	set -- "$1" xxhash
	case $(uname -m) in x86_64 | i?86) set -- "$@" xxh_x86dispatch ;; esac
	(cd "$1" && shift && for unit; do
		# shellcheck disable=SC2086	# flags are meant to be split
		quietly "${CC:-cc}" $flags -c "$unit.c"
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
quietly "${CC:-cc}" -shared -o "$work/all.so" -Wl,-z,defs,-z,text -Wl,--whole-archive "$@" \
	-Wl,--no-whole-archive -lm -ldl -lpthread

rm -rf "$final"
mkdir -p "$final"
cp -R "$prefix/lib" "$prefix/include" "$prefix/licenses" "$final"
# the last one: who finds it finds everything
cp "$prefix/versions" "$final"
echo "static_libs: $(tr '\n' ',' <"$prefix/versions" | sed 's/,$//; s/,/, /g'): $(($(date +%s) - start)) s"
