#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench_replay.sh - seconds to replay a whole trace of requests
#
# KVT_TRACE names one; that of the Mooncake paper is conversation_trace.jsonl of
# kvcache-ai/Mooncake, FAST25-release/traces.  Traces are not shipped.
set -eu
kvtool=${KVTOOL:-build/kvtool}

# row NAME ARG...: wall time, and whether a second run prints the same
row() {
	name=$1
	shift
	out=$(mktemp -d)
	start=$(date +%s%N)
	"$kvtool" transfer-sim replay --json "$@" >"$out/one"
	end=$(date +%s%N)
	"$kvtool" transfer-sim replay --json "$@" >"$out/two"
	same=differs
	cmp -s "$out/one" "$out/two" && same=identical
	requests=$(sed -n 's/^ *"num_requests": \([0-9]*\).*/\1/p' "$out/one")
	rm -r "$out"
	echo "$name: $requests requests in $(((end - start) / 1000000)) ms, again: $same"
}

row 'synthetic, llama-3.1-8b' -m llama-3.1-8b --emulate=nixl --synthetic=1,12000
if [ -z "${KVT_TRACE:-}" ]; then
	echo 'a real trace: skipped, KVT_TRACE names none'
	exit 0
fi
row 'trace, llama-3.1-8b, nixl' -m llama-3.1-8b --emulate=nixl --src=ids=scatter --trace="$KVT_TRACE"
row 'trace, llama-3.1-70b 4->8, rfc' -m llama-3.1-70b --src=layout=nhd,tp=4 --dst=tp=8 --trace="$KVT_TRACE"
