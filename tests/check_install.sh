#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_install.sh - what 'make install' puts where, and that it can be used there
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root
usr=$root/opt/kvtool
# from here: make takes no name with a space, and the tree may lie in a folder that has one
build=${KVT_BUILD:-build}
build=${build#"$(pwd -P)"/}

# Nothing is built here: other tests run what was.  Variables of the make that runs
# this count here, too, but not its job server.
MAKEFLAGS=$(printf '%s' "${MAKEFLAGS-}" | sed 's/--jobserver-[^ ]*//g; s/ -j[0-9]*//g')
export MAKEFLAGS
run_make() {
	"${MAKE:-make}" -s "$1" B="$build" DESTDIR="$root" PREFIX=/opt/kvtool
}

kvt_program() {
	cat >"$tmp/program.c" <<-'C'
	#include <stdio.h>
	#include <kvt/device.h>
	#include <kvt/kvt.h>

	int main(void)
	{
		struct kvt_layout layout;
		struct kvt_device *device;

		if (kvt_layout_parse(&layout, "hnd", NULL) ||
		    kvt_device_open(&device, "no such", NULL) != KVT_USAGE)
			return 1;
		return puts(kvt_layout_string(&layout).s) < 0;
	}
	C
	builds "$tmp/program.c" program && [ "$("$tmp/program")" = LBHSC ] &&
		builds "$tmp/program.c" program --static && [ "$("$tmp/program")" = LBHSC ]
}

# A program that uses HDF5 itself and, as its code lies at a fixed place, has copies of its
# ids, creates a snapshot beside that.
hdf5_program() {
	cat >"$tmp/own.c" <<-'C'
	#include <hdf5.h>
	#include <kvt/write.h>

	int main(int argc, char **argv)
	{
		const hid_t text = H5Tcopy(H5T_C_S1);
		struct kvt_writer *writer;
		struct kvt_dump *dump;

		if (argc != 3 || text < 0 || kvt_open(&dump, argv[1], NULL, NULL) ||
		    kvt_create(&writer, argv[2], NULL, kvt_dump_snapshot(dump), NULL))
			return 1;
		kvt_close_writer(writer);
		kvt_dump_close(dump);
		return H5Tclose(text) < 0;
	}
	C
	# shellcheck disable=SC2046	# flags are words
	(cd "$tmp" && ${CC:-cc} -fno-pie -no-pie -o own own.c -Iroot/opt/kvtool/include \
			-Lroot/opt/kvtool/lib -lkvt $(pkg-config --cflags --libs hdf5-serial)) &&
		"$tmp/own" testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy "$tmp/own.h5"
}

# What is installed can be linked: each header compiles alone, as C and C++, and all of
# them together declare what libkvt exports.
headers() {
	for header in "$usr"/include/kvt/*.h; do
		for as in 'cc -std=c11 -xc' 'c++ -std=c++11 -xc++'; do
			# shellcheck disable=SC2086	# flags are meant to be split
			${as%% *} ${as#* } -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
				-include "$header" /dev/null || return 1
		done
	done
	cat "$usr"/include/kvt/*.h | perl -0777 -ne 's{/\*.*?\*/}{}gs;
		s{static\s+inline.*?\n\}}{}gs; s{^#.*?(?<!\\)$}{}gm;
		print "$1\n" while /\b(kvt_\w+)\s*\(/g' | sort -u >"$tmp/declared"
	sed -n 's/^	\(kvt_[a-z0-9_]*\);/\1/p' lib/kvt/libkvt.map | diff "$tmp/declared" -
}

# builds FILE NAME [--static]: with what the .pc file says; --static takes libkvt.a, and
# what it needs from the system.  The file names the final place; the sysroot is where it
# lies now, from here: pkg-config cannot take one with a space.
export LD_LIBRARY_PATH="$usr/lib"
builds() {
	# shellcheck disable=SC2046,SC2086	# flags are meant to be split
	(cd "$tmp" && cp "$1" "$2.c" 2>/dev/null
	PKG_CONFIG_PATH=root/opt/kvtool/lib/pkgconfig:$(pkg-config --variable pc_path pkg-config)
	export PKG_CONFIG_PATH
	flags=$(PKG_CONFIG_SYSROOT_DIR=root pkg-config --cflags --libs kvt)
	if [ "${3-}" ]; then
		flags="$(PKG_CONFIG_SYSROOT_DIR=root pkg-config --cflags kvt)
			root/opt/kvtool/lib/libkvt.a $(pkg-config --libs $(sed -n \
			's/^Requires.private: //p' root/opt/kvtool/lib/pkgconfig/kvt.pc)) \
			-lpthread -ldl -lm"
	fi
	${CC:-cc} ${KVT_CFLAGS-} -Wall -Wextra -Wpedantic -Werror -o "$2" "$2.c" $flags)
}

# The programs of examples/c: each says what the program says of the same dumps.
examples() {
	here=$PWD
	for e in read_keys rewrite compare; do
		builds "$here/examples/c/$e.c" "$e" || return 1
		[ "$(wc -l <"$here/examples/c/$e.c")" -lt 60 ] || return 1
	done
	kv=testdata/kv/s260k/paged_bs16
	"$tmp/read_keys" "$kv"/packed_nhd.bf16.npy A 3 >"$tmp/keys" &&
		"$usr/bin/kvtool" describe --peek=layer=3,request=A,token=64,head=0,kv=k \
			"$kv"/packed_nhd.bf16.npy >"$tmp/peek" &&
		grep -q '^token 64, head 0: 1.09375 -1.25 -1.8125 ' "$tmp/keys" &&
		grep -q 'bfloat16 from 0: 1.09375 -1.25 -1.8125 ' "$tmp/peek" || return 1
	"$tmp/rewrite" "$kv"/packed_nhd.bf16.npy hnd "$tmp/part.h5" &&
		"$usr/bin/kvtool" slice --layers=1:3 "$kv"/packed_nhd.bf16.npy "$tmp/part.npy" &&
		"$usr/bin/kvtool" diff "$tmp/part.h5" "$tmp/part.npy" || return 1
	"$usr/bin/kvtool" mutate --fault=swap-kv,layer=2,block=17 "$kv"/packed_nhd.bf16.npy \
		"$tmp/bad.npy" || return 1
	"$tmp/compare" "$kv"/packed_nhd.bf16.npy "$tmp/bad.npy" >"$tmp/differs"
	[ $? = 1 ] && grep -q '^  layer 2, token 7. of A, head' "$tmp/differs" &&
		"$tmp/compare" "$kv"/packed_nhd.bf16.npy "$tmp/bad.npy" | grep -q '; keys'
}

same_version() {
	version=$(sed -n 's/^.define KVT_VERSION "\(.*\)"/\1/p' lib/kvt/kvt.h)
	[ -n "$version" ] &&
		"$usr/bin/kvtool" --version | grep -qF "kvtool $version" &&
		[ "$(PKG_CONFIG_PATH="$usr/lib/pkgconfig" pkg-config --modversion kvt)" = "$version" ]
}

pages() {
	for page in man/*.[1357]; do
		section=${page##*.}
		cmp "$page" "$usr/share/man/man$section/${page##*/}" || return 1
	done
}

# From an empty folder: nothing of the source is near.
models() {
	for model in models/*.json; do
		cmp "$model" "$usr/share/kvtool/$model" || return 1
	done
	(cd "$tmp" && "$usr/bin/kvtool" size -m llama-3.1-70b --tp=1 >/dev/null)
}

# Others run the program that was built meanwhile.
nothing_built() {
	find "$build/kvtool" "$build/libkvt.a" "$build/libkvt.so.0" -newer "$tmp/start"
}

nothing_left() { [ -z "$(find "$root" ! -type d)" ]; }

: >"$tmp/start"
ok 'installs'                                 run_make install-built
none 'builds nothing for that'                nothing_built
ok 'the installed program tells its version'  same_version
ok 'every page is there'                      pages
ok 'the HDF5 plugin is there'                 test -s "$usr/lib/kvtool/hdf5-plugin/libh5kvtzstd.so"
ok 'the models are there, and are found'       models
ok 'bash finds completion'                    test -s "$usr/share/bash-completion/completions/kvtool"
ok 'zsh finds completion'                     test -s "$usr/share/zsh/site-functions/_kvtool"
ok 'its headers declare what the library exports, no more' headers
ok 'a program builds against kvt.pc'          kvt_program
ok 'the examples in C build against it and run' examples
ok 'a program that uses HDF5 itself creates a snapshot' hdf5_program
ok 'uninstalls'                               run_make uninstall
ok 'nothing is left after it'                 nothing_left
done_testing
