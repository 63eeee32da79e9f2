#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hdf5_libs.sh auto|archive|opened DIR: what a program has HDF5 from
#
# DIR/hdf5.name is the shared library, as a linker notes it.
# To stdout: what links a program with the archive; nothing, if it is to be opened.
#
# Debian's shared library needs curl, for files in S3, and with it 35 others.  In the
# archive that is a member which nobody here calls, and szip is small.
set -eu

[ $# = 2 ] || { echo "usage: scripts/hdf5_libs.sh auto|archive|opened DIR" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat >"$tmp/uses.c" <<'TEXT'
#include <hdf5.h>
int main(void)
{
	return H5Fopen("", 0, H5P_DEFAULT) < 0 && H5FDregister(0) < 0 && H5Zregister(0) < 0 &&
	       H5Dread_chunk(0, 0, 0, 0, 0) < 0;
}
TEXT

shared=$(pkg-config --libs hdf5-serial)
# shellcheck disable=SC2046,SC2086	# flags are meant to be split
links() {
	${CC:-cc} $(pkg-config --cflags hdf5-serial) -o "$tmp/uses" "$tmp/uses.c" "$@" 2>"$tmp/log"
}

# shellcheck disable=SC2086
links $shared || { cat "$tmp/log" >&2; exit 1; }
readelf -d "$tmp/uses" | sed -n 's/.*(NEEDED).*\[\(libhdf5.*\)\]/\1/p' >"$2/hdf5.name"
[ -s "$2/hdf5.name" ] || { echo "hdf5_libs: '$shared' is no shared library of HDF5" >&2; exit 1; }

archive=
if [ "$1" != opened ]; then
	for szip in '' '-l:libsz.a -l:libaec.a'; do
		archive="$(echo "$shared" | sed 's/-lhdf5/-l:libhdf5.a/') $szip"
		# shellcheck disable=SC2086
		links $archive -lz -ldl -lm && break
		archive=
	done
	[ "$1$archive" != archive ] || { cat "$tmp/log" >&2; exit 1; }
fi
# Nobody else is to see its names: the process may have an HDF5 of its own.  Those of a
# sanitizer's archive must be seen, or libc would not find its malloc().
[ -z "$archive" ] || echo "-Wl,--exclude-libs,libhdf5.a:libsz.a:libaec.a $archive"
