#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_headers.sh - headers compile alone, and the core keeps to the name space kvt_
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

build=${KVT_BUILD:-build}
warn='-Wall -Wextra -Wpedantic -Wundef -Werror'
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# alone COMPILER SUFFIX HEADER FLAGS: a file that includes nothing else compiles
alone() {
	printf '#include "%s"\n#include "%s"\nint unused;\n' "$3" "$3" >"$tmp/alone.$2"
	# shellcheck disable=SC2086	# flags are meant to be split
	$1 $4 $warn -I. -fsyntax-only "$tmp/alone.$2"
}

# The names of other projects must not clash with those of a static library.
foreign_names() {
	nm -g --defined-only "$1" >"$tmp/names" && grep -q ' T ' "$tmp/names" &&
		awk 'NF == 3 && $3 !~ /^(kvt_|__odr_asan|__[at]san)/ { print $3 }' "$tmp/names"
}
finds_foreign_name() {
	echo 'int parse(void); int parse(void) { return 0; }' >"$tmp/a.c" &&
		${CC:-cc} -c -o "$tmp/a.o" "$tmp/a.c" &&
		[ "$(foreign_names "$tmp/a.o")" = parse ]
}

c='-std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE'
libs=$(pkg-config --cflags hdf5-serial libzstd jansson libxxhash zlib)
for header in $(find lib kernels formats print sim cli -name '*.h' | sort); do
	ok "$header compiles alone" alone "${CC:-cc}" c "$header" "$c $libs"
done
for header in lib/kvt/*.h; do
	ok "$header compiles as C++" alone "${CXX:-c++}" cc "$header" -std=c++11
done
none 'every symbol of core.a begins with kvt_' foreign_names "$build/core.a"
ok 'finds a symbol that does not' finds_foreign_name
done_testing
