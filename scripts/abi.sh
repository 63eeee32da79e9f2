#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# abi.sh BUILD - the version script of libkvt, from what its public headers promise
#
# Prints it: every function that a header of lib/kvt/ marks with KVT_API and that the
# objects of BUILD define.  lib/kvt/libkvt.map is that text; tests/check_abi.sh compares.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
perl -0777 -ne 'print "$1\n" while /^KVT_API\b[^;]*?\b(kvt_\w+)\s*\(/gm' lib/kvt/*.h |
	sort -u >"$tmp/declared"
find "$1/formats" -name '*.o' ! -name plugin.o -print0 |
	xargs -0 nm -g --defined-only "$1/core.a" "$1/engine.a" |
	awk 'NF == 3 { print $3 }' | sort -u >"$tmp/defined"
printf 'KVT_0 {\nglobal:\n'
comm -12 "$tmp/declared" "$tmp/defined" | sed 's/.*/\t&;/'
printf 'local:\n\t*;\n};\n'
