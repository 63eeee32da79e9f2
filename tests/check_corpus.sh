#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_corpus.sh - every seed of every fuzzer, without a fuzzer: none may crash
# or hang the code that reads it (TAP)
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

programs=${KVT_BUILD:-build}/tests/fuzz

some_seeds() { [ "$(find "$1" -type f | wc -l)" -gt 0 ]; }
takes() { find "$2" -type f -exec timeout 600 "$1" {} +; }

for source in tests/fuzz/fuzz_*.c; do
	name=$(basename "$source" .c)
	seeds=tests/fuzz/corpus/${name#fuzz_}
	ok "$name has seeds" some_seeds "$seeds"
	ok "$name takes them" takes "$programs/$name" "$seeds"
done
done_testing
