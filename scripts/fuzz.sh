#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh DIR TARGET...: runs each libFuzzer program DIR/tests/fuzz/TARGET for
# FUZZ_SECONDS, FUZZ_JOBS of them at a time.  What it finds, and what it learned,
# stays under DIR.  With FUZZ_SEED it tries the same inputs each time.
set -u

seconds=${FUZZ_SECONDS:-60}
dir=$1
shift

# one TARGET: prints its closing line; fails if the fuzzer found something
one() {
	name=${1#fuzz_}
	seeds=tests/fuzz/corpus/$name
	log=$dir/$name.log
	[ -d "$seeds" ] || { echo "$1: no corpus in $seeds"; return 1; }
	mkdir -p "$dir/corpus/$name" "$dir/found"
	"$dir/tests/fuzz/$1" -max_total_time="$seconds" -seed="${FUZZ_SEED:-0}" \
		-timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="$dir/found/$name-" \
		"$dir/corpus/$name" "$seeds" >"$log" 2>&1
	status=$?
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	if [ $status != 0 ]; then
		tail -n 40 "$log"
		echo "$1: FAILED (exit status $status) after ${runs:-?} runs; see $log"
		return 1
	fi
	kept=$(find "$dir/corpus/$name" -type f | wc -l)
	echo "$1: ok, $runs runs in $seconds s, $kept inputs kept beside the seeds"
}

if [ "${FUZZ_ONE-}" ]; then
	one "$1"
	exit
fi
[ $# -gt 0 ] || { echo "fuzz: no target" >&2; exit 1; }
lines=$(printf '%s\n' "$@" |
	FUZZ_ONE=1 xargs -P "${FUZZ_JOBS:-1}" -n 1 "$0" "$dir")
printf '%s\n' "$lines"
passed=$(printf '%s\n' "$lines" | grep -c '^fuzz_[a-z0-9_]*: ok')
echo "$passed passed, $(($# - passed)) failed"
[ "$passed" = $# ]
