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
	#include <kvt/kernels.h>
	#include <kvt/kvt.h>
	#include <kvt/connect.h>
	#include <kvt/device.h>
	#include <kvt/link.h>

	int main(void)
	{
		struct kvt_layout layout;
		struct kvt_device *device;

		if (kvt_layout_parse(&layout, "hnd", NULL) || !kvt_cpu_kernel(0) ||
		    kvt_device_open(&device, "no such", NULL) != KVT_USAGE)
			return 1;
		return puts(kvt_layout_string(&layout).s) < 0;
	}
	C
	# The .pc file names the final place; the sysroot is where it lies now, from
	# here: pkg-config cannot take one with a space.
	# shellcheck disable=SC2046,SC2086	# flags are meant to be split
	(cd "$tmp" && export PKG_CONFIG_PATH=root/opt/kvtool/lib/pkgconfig &&
		${CC:-cc} ${KVT_CFLAGS-} -o program program.c \
			$(PKG_CONFIG_SYSROOT_DIR=root pkg-config --cflags --libs kvt)) &&
		[ "$("$tmp/program")" = LBHSC ]
}

same_version() {
	version=$(sed -n 's/^.define KVT_VERSION "\(.*\)"/\1/p' lib/kvt/kvt.h)
	[ -n "$version" ] &&
		"$usr/bin/kvtool" --version | grep -qF "kvtool $version" &&
		[ "$(PKG_CONFIG_PATH="$usr/lib/pkgconfig" pkg-config --modversion kvt)" = "$version" ]
}

pages() {
	for page in man/*.[157]; do
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
	find "$build/kvtool" "$build/libkvt.a" -newer "$tmp/start"
}

nothing_left() { [ -z "$(find "$root" -type f)" ]; }

: >"$tmp/start"
ok 'installs'                                 run_make install-built
none 'builds nothing for that'                nothing_built
ok 'the installed program tells its version'  same_version
ok 'every page is there'                      pages
ok 'the HDF5 plugin is there'                 test -s "$usr/lib/kvtool/hdf5-plugin/libh5kvtzstd.so"
ok 'the models are there, and are found'       models
ok 'bash finds completion'                    test -s "$usr/share/bash-completion/completions/kvtool"
ok 'zsh finds completion'                     test -s "$usr/share/zsh/site-functions/_kvtool"
ok 'a program builds against kvt.pc'          kvt_program
ok 'uninstalls'                               run_make uninstall
ok 'nothing is left after it'                 nothing_left
done_testing
