#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# attention.bats - kvtool diff --attention: statuses, refusals and what is printed
# (every figure: tests/oracle_attention.py)

load common
load dumps

fp32=$kv/s260k/paged_bs16/packed_nhd.fp32.npy

@test "the same, but for rounding: what it does to the outputs, and a bound for them" {
	run -0 kvtool diff --attention --tolerance=auto "$fp32" "$hnd"
	[[ $output == *"attention of g0: proxy, 192 keys of A stand in"*"top key another"* ]]
	run -0 kvtool diff --attention --tolerance=attention=0.05 "$fp32" "$hnd"
	run -1 kvtool diff --attention --tolerance=attention=0.04 "$fp32" "$hnd"
	[[ $output == *"broken  attention"*"worst   layer 2 head 1: 0.0433"* ]]
	run -1 kvtool diff -q --attention --tolerance=auto,attention=0.04 "$fp32" "$hnd"
	[ -z "$output" ]
}

@test "what is equal attends alike" {
	shows 0 'equal   nothing changes$' diff --attention "$nhd" "$rocm"
	kvtool diff --json "$nhd" "$rocm" | jq -e '.attention == null'
	kvtool diff --json --attention "$nhd" "$rocm" |
		jq -e '.attention.proxy and .attention.groups[0].rel_l2 == 0'
}

@test "figures are the same for any number of threads, and in little memory" {
	for options in --threads=1 --threads=3 --mem-limit=4M; do
		kvtool diff --json "$options" --attention --tolerance=auto "$fp32" "$hnd" |
			jq .attention >"now$options"
	done
	cmp now--threads=1 now--threads=3
	cmp now--threads=1 now--mem-limit=4M
}

@test "tables by layer, and by layer and head" {
	shows 1 'by layer        output rel-l2|and 3 more|by layer, head|2, 1          0.043|and 18 more (--top=20)' \
		diff --attention --exact --table=layer,head --top=2 "$fp32" "$hnd"
}

@test "what has no queries, or does not say which token is which, is refused" {
	tells 2 '--attention=QUERIES' diff --tolerance=attention=0.1 "$fp32" "$hnd"
	run -2 kvtool diff --attend=scale=1 "$fp32" "$hnd"
	run -2 kvtool diff --attention --attend=scale=-1 "$fp32" "$hnd"
	run -2 kvtool diff --attention --attend=scales=1 "$fp32" "$hnd"
	tells 3 'attention needs requests' diff --attention --exact --by=blocks "$fp32" "$hnd"
	tells 3 'no group of it is of queries' diff --attention="$fp32" --exact "$fp32" "$hnd"
	run -5 kvtool diff --attention=nothing --exact "$fp32" "$hnd"
	run -2 kvtool shrink --tolerance=attention=0.1 "$fp32" "$hnd"
}

@test "a number that is none is lost, and no tolerance forgives it" {
	cp "$nhd" bad.npy
	cp "${nhd%.npy}.json" bad.json
	sed -i "s/${nhd##*/}/bad.npy/" bad.json
	printf '\377\177' | dd of=bad.npy bs=1 seek=231552 conv=notrunc status=none
	run -1 kvtool diff --attention --tolerance=attention=100 "$nhd" bad.npy
	[[ $output == *"outputs are NaN or infinite on one side"* ]]
}
