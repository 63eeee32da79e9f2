#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_abi.sh - libkvt has the symbols that libkvt.map lists, and no others
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

build=${KVT_BUILD:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C

listed() { sed -n 's/^	\(kvt_[a-z0-9_]*\);/\1/p' lib/kvt/libkvt.map; }
# sanitizers add symbols of their own
shared() { nm -D --defined-only "$build/libkvt.so.0" | awk '$3 ~ /@@KVT_0$/ { sub(/@.*/, "", $3); print $3 }' | sort; }
static() { nm -g --defined-only "$build/libkvt.a" | awk 'NF == 3 { print $3 }' | grep -v '^__\|^_GLOBAL' | sort; }

same() {
	"$1" >"$tmp/is" && "$2" >"$tmp/listed" && [ -s "$tmp/is" ] && diff "$tmp/listed" "$tmp/is"
}
map_is_current() { scripts/abi.sh "$build" >"$tmp/now" && diff lib/kvt/libkvt.map "$tmp/now"; }
foreign() { nm -D --defined-only "$build/libkvt.so.0" | awk '$3 !~ /^(kvt_|KVT_0|__)/ { print $3 }'; }
# what is exported without a header that declares it
undeclared() {
	printf 'KVT_0 {\nglobal:\n\tkvt_not_declared;\n' >"$tmp/map"
	scripts/abi.sh "$build" >"$tmp/now" && ! cmp -s "$tmp/now" "$tmp/map"
}
soname() { readelf -d "$build/libkvt.so.0" | grep -q 'SONAME.*\[libkvt.so.0\]'; }

ok 'libkvt.map lists what the headers promise and the library has' map_is_current
ok 'another list is noticed'                   undeclared
ok 'libkvt.so.0 exports what is listed'        same shared listed
ok 'libkvt.a defines what is listed'           same static listed
none 'libkvt.so.0 exports no other name'       foreign
ok 'its soname is libkvt.so.0'                 soname
done_testing
