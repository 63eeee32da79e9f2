#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_hardened.sh - what make builds has what the compiler has against mistakes (TAP)
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
. tests/hardened.sh

build=${KVT_BUILD:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

if [ -z "${KVT_HARDCC-all}" ]; then
	echo "1..0 # SKIP built with HARDEN=0"
	exit 0
fi

# A program with none of it.
finds_all() {
	echo 'int main(void) { return 0; }' >"$tmp/bare.c" &&
		${CC:-cc} -O2 -fno-stack-protector -U_FORTIFY_SOURCE -fcf-protection=none \
			-no-pie -fno-pie -Wl,-z,lazy,-z,norelro,-z,execstack \
			-o "$tmp/bare" "$tmp/bare.c" &&
		[ "$(lacks "$tmp/bare" | tr '\n' ' ')" = "$1 " ]
}

# Of each object in it: one that lacks it would be the place to jump to.
marked() {
	readelf -nW "$build/libkvt.a" | grep 'x86 feature: IBT, SHSTK'
}

# What a call that tests/fault_shim.c makes fail is called here must be known there.
unknown_calls() {
	calls=$(grep -o 'X([a-z_]*)' tests/fault_shim.c | tr -d 'X()' | paste -sd '|') &&
		nm -D "$build/kvtool" | grep -oE "__($calls)(64)?_(chk|2)\>" |
		while read -r call; do grep -q ", $call," tests/fault_shim.c || echo "$call"; done
	return 0
}

all='stack-protector _FORTIFY_SOURCE BIND_NOW RELRO noexecstack PIE'
if takes_cet; then
	ok 'finds what is missing' finds_all "$all CET"
	ok 'all of libkvt.a is marked for CET' marked
fi
for file in kvtool libkvt.so.0 plugin/libh5kvtzstd.so; do
	none "$file is hardened" lacks "$build/$file"
done
none 'tests can make the calls of kvtool fail, whatever they are called' unknown_calls
done_testing
