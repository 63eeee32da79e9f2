#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# transfer_time.bats - kvtool transfer-sim time: links, stacks, what others measured
# (lists of operations: tests/oracle_stack.py; times on a card: test_link_sim.c)

load common
load dumps

time_of() { kvtool transfer-sim time --json "$@"; }

# request KEY ARG...: one figure of the whole request
request() { time_of "${@:2}" | jq ".request.$1"; }

# near A B PERCENT: do these figures agree?
near() {
	awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { d = a / b - 1; exit !(d * d <= p * p / 1e4) }'
}

# ratio A B: their quotient
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { print a / b }'; }

refused() { tells "$1" "$2" transfer-sim time "${@:3}"; }

@test "time: posting costs the same, however many descriptors (vLLM 55841)" {
	local many few
	many=$(time_of --batch=23252x2k --link=vllm-nixl-rc)
	near "$(jq .request.post_duration_ns <<<"$many")" 79.6e6 2
	near "$(jq .request.transfer_duration_ns <<<"$many")" 117e6 2
	few=$(time_of --batch=9574x2k --link=vllm-nixl-rc)	# between 8,926 and 10,222
	near "$(jq .request.post_duration_ns <<<"$few")" 32e6 3
	near "$(jq .request.transfer_duration_ns <<<"$few")" 53e6 10
}

@test "time: fewer descriptors of the same bytes (vLLM 53825)" {
	near "$(ratio "$(request transfer_duration_ns --batch=4563x16k --link=vllm-mooncake)" \
		"$(request transfer_duration_ns --batch=70x1068k --link=vllm-mooncake)")" 2.5 5
}

@test "time: 128k tokens in small descriptors (vLLM 53825)" {
	# 1.8 us a descriptor were derived from it, of which 0.4 us are on the wire
	local out
	out=$(time_of --batch=32000x16k --link=vllm-mooncake --op=1400)
	near "$(jq '.request | .bytes_transferred / .transfer_duration_ns' <<<"$out")" 9 5
	near "$(jq '.request | .transfer_duration_ns / .posted_ops' <<<"$out")" 1800 5
}

@test "time: larger blocks of one prompt (vLLM 50913)" {
	# what the two measurements have in common is taken as a fixed cost
	local args=('--spec=gqa:layers=48,heads=1,head-dim=128' -t 5008 --emulate=nixl
		--setup=25000) small large
	small=$(time_of "${args[@]}" --src block-size=16,ids=scatter)
	large=$(time_of "${args[@]}" --src block-size=64,ids=scatter)
	[ "$(jq '.request.bytes_transferred / .request.posted_ops' <<<"$small")" = 8192 ]
	near "$(jq .request.transfer_duration_ns <<<"$small")" 105e6 3
	near "$(jq .request.transfer_duration_ns <<<"$large")" 47e6 3
	near "$(ratio "$(jq .request.transfer_duration_ns <<<"$small")" \
		"$(jq .request.transfer_duration_ns <<<"$large")")" 2.2 3
}

@test "time: one block in 96 ranges, or in one (Dynamo 12750)" {
	local args=(-m qwen3-30b-a3b -t 16)
	[ "$(time_of "${args[@]}" --src layout=BLKSHD --dst layout=LKBSHD --emulate=rfc |
		jq -c '.request | [.posted_ops, .bytes_transferred]')" = '[96,1572864]' ]
	[ "$(request posted_ops "${args[@]}" --src layout=LBKSHD --emulate=nixl)" = 96 ]
	for stack in rfc nixl-packed; do
		[ "$(request posted_ops "${args[@]}" --src layout=BLKSHD --emulate=$stack)" = 1 ]
	done
}

@test "time: batched copies (vLLM 48434)" {
	local many few
	many=$(time_of --batch=8192x8k --link=pcie5-ce-batch)
	few=$(time_of --batch=512x128k --link=pcie5-ce-batch)
	near "$(jq .request.post_duration_ns <<<"$many")" 5.06e6 2
	near "$(ratio "$(jq .request.transfer_duration_ns <<<"$many")" \
		"$(jq .request.transfer_duration_ns <<<"$few")")" 6.7 10
}

@test "time: contiguous ids are one descriptor a region (vLLM 55434)" {
	for tokens in 10300 41100; do
		[ "$(request num_descriptors --spec=mla:layers=101,latent=576 \
			-t $tokens --emulate=nixl)" = 101 ]
	done
	# reordered lists do not merge, descending ones if told
	local args=('--spec=mla:layers=101,latent=576' -t 10300 --emulate=nixl
		--src ids=reverse)
	[ "$(request num_descriptors "${args[@]}")" = $((101 * 644)) ]
	[ "$(request num_descriptors "${args[@]}" --merge-descending)" = 101 ]
}

@test "time: alone, the simulation is the closed form on every link" {
	kvtool transfer-sim time --link=list | awk 'NR > 1 && !/calibrate-on-site:/ { print $1 }' >links
	[ "$(wc -l <links)" -gt 15 ]
	while read -r link; do
		time_of -m llama-3.1-8b -t 700 --emulate=nixl --src tp=2,ids=scatter \
			--link="$link" </dev/null >out
		jq -e '.request.contention == false and all(.rank_pairs[];
			(.end_ns - .closed_form_ns) | fabs <= 1)' out
	done <links
}

@test "time: ranks that share a card share its rate" {
	local args=(-m llama-3.1-70b --src tp=4 --link=infinite --rate=10)
	# 640 MiB leave through 4 cards, two batches each
	near "$(request transfer_duration_ns "${args[@]}" --dst tp=8)" 16777216 1
	near "$(request transfer_duration_ns "${args[@]}" --dst tp=8 --share=fifo)" 16777216 1
	near "$(request transfer_duration_ns "${args[@]}" --dst tp=8 --share=none)" 8388608 1
	near "$(request transfer_duration_ns "${args[@]}" --dst tp=8 --rails=2)" 8388608 1
	[ "$(time_of "${args[@]}" --dst tp=8 --share=fifo | jq '[.rank_pairs[].end_ns] | unique | length')" = 2 ]
}

@test "time: who posts does it in turn; threads and windows" {
	local args=(-m llama-3.1-70b --src tp=8,ids=scatter --dst tp=4 --emulate=nixl)
	near "$(request post_duration_ns "${args[@]}")" $((2 * 10240 * 3400)) 1
	near "$(request post_duration_ns "${args[@]}" --push)" $((10240 * 3400)) 1
	near "$(request post_duration_ns "${args[@]}" --threads=4)" $((2 * 10240 * 850)) 1
	# one at a time, each waits for its completion
	near "$(request transfer_duration_ns --batch=1000x1k --link=infinite \
		--window=1 --latency=2000)" 2000000 1
	near "$(request transfer_duration_ns --batch=1000x1k --link=infinite \
		--window=4 --latency=2000)" 500000 1
	refused 2 'needs --latency' -m llama-3.1-8b --window=4
}

@test "time: a buffer saves operations and costs copies" {
	local args=(-m llama-3.1-8b --src layout=nhd --dst layout=hnd)
	time_of "${args[@]}" --link=infinite --stage=64M --copy-rate=100 >out
	jq -e '.request | .posted_ops == 4 and .descriptors_listed == 524288 and
		.copied_bytes == 2 * .bytes_transferred and
		.transfer_duration_ns == .closed_form_ns' out
	near "$(jq .request.transfer_duration_ns out)" $((2 * 268435456 / 100)) 1
	refused 2 'not between the buffers of --stage' -m llama-3.1-8b --csv --stage=1M \
		--copy-rate=10
	refused 2 "--overlap-power is '3', expected 1, 2, 4 or inf" -m llama-3.1-8b \
		--overlap-power=3
	refused 2 '9000000000 rails are too many' -m llama-3.1-8b --rails=9000000000
	refused 2 'need each other' -m llama-3.1-8b --stage=1M
}

@test "time: engines cut, and gather" {
	[ "$(request posted_ops -m llama-3.1-8b --emulate=mooncake --link=cx7-400g-mooncake)" = 4096 ]
	# 80 KiB are one slice of the engine, 81 two
	[ "$(request posted_ops --emulate=mooncake --link=cx7-400g-mooncake --batch=10x80k)" = 10 ]
	[ "$(request posted_ops --emulate=mooncake --link=cx7-400g-mooncake --batch=10x81k)" = 20 ]
	[ "$(request posted_ops --slice=64k --batch=10x80k)" = 20 ]
	# 128 blocks of a layer that are one run there: 9 full lists of 14, and 2 more
	[ "$(request posted_ops -m llama-3.1-8b --src ids=scatter --dst ids=contig --emulate=nixl --sge=14)" = 320 ]
	[ "$(request num_descriptors -m llama-3.1-8b --src ids=contig --coalesce=full)" = \
		"$(request num_descriptors -m llama-3.1-8b --src ids=contig --emulate=max)" ]
	[ "$(request num_descriptors -m llama-3.1-8b --src layout=BLHSC --emulate=nixl)" = 4096 ]
	[ "$(request num_descriptors -m llama-3.1-8b --src layout=BLHSC --emulate=nixl --coalesce=full)" = 1 ]
}

@test "time: stacks refuse what they would refuse" {
	refused 3 'heads must be contiguous' -m llama-3.1-70b --src layout=nhd,tp=4 \
		--dst tp=8 --emulate=nixl
	refused 3 "the reader's must be a multiple" -m llama-3.1-8b --src block-size=64 \
		--dst block-size=16 --emulate=nixl
	refused 3 'one block size' -m llama-3.1-8b --dst block-size=64 --emulate=mooncake
	# fewer ranks read heads that are held twice, or of blocks of another size
	refused 3 '16 ranks hold 8 heads, some twice' -m llama-3.1-8b --src tp=16 --dst tp=8 \
		--emulate=nixl
	refused 3 'must have one size where 1 ranks read from 2' -m llama-3.1-8b --src tp=2 \
		--dst tp=1,block-size=32 --emulate=nixl
	run -0 kvtool transfer-sim time -m llama-3.1-8b --src tp=1 --dst tp=2,block-size=32 \
		--emulate=nixl
	run -0 kvtool transfer-sim time --spec=mla:layers=2,latent=8 --src tp=4 \
		--dst tp=2,block-size=32 --emulate=nixl
	# ranks that do not divide: heads would do, vLLM asserts
	for stack in nixl nixl-packed mooncake; do
		refused 3 'TP size 3 is not a multiple of the remote one, 2' \
			--spec=gqa:layers=2,heads=6,head-dim=8 --src tp=2,layout=BLHSC \
			--dst tp=3 --emulate=$stack
	done
	refused 3 'neither number divides the other' --spec=gqa:layers=2,heads=6,head-dim=8 \
		--src tp=4 --emulate=nixl
	# where the row of a block is one region
	refused 3 'heads must be contiguous: a block is one region of all layers' -m llama-3.1-8b \
		--src layout=bhlsc --dst tp=2 --emulate=nixl
	refused 3 'which blocks of another size do not make' -m llama-3.1-8b \
		--src layout=blshc --dst block-size=32 --emulate=nixl
	refused 3 'both sides must have one layout' -m llama-3.1-8b --src layout=hnd \
		--dst layout=blhsc --emulate=nixl
	[ "$(request num_descriptors -m llama-3.1-8b --src layout=bhlsc,ids=scatter \
		--dst ids=scatter --emulate=nixl)" = 128 ]
	refused 3 'not together' -m llama-3.1-8b --emulate=nixl-packed
	refused 3 'was never measured' -m llama-3.1-8b --link=tcp-25g
	run -0 --separate-stderr kvtool transfer-sim time --json -m llama-3.1-70b \
		--src layout=nhd,tp=4 --dst tp=8 --emulate=nixl --force
	said 'warning: attn: nixl: heads must be contiguous'
	[ "$(jq .request.posted_ops <<<"$output")" = 1310720 ]
	refused 2 'expected one of nixl, nixl-packed' -m llama-3.1-8b --emulate=ucx
	refused 2 'expected COUNTxSIZE' --batch=10
	refused 2 "did you mean 'vllm-nixl-rc'" -m llama-3.1-8b --link=vllm-nixl-rd
	refused 2 'expected a number' -m llama-3.1-8b --rate=fast
}

@test "time: a link from a file, every field of which may be overridden" {
	printf '{"name": "here", "overlap": 1, "setup_us": 10, "op_ns": 1000, "rate_gbps": 1}' >here.json
	[ "$(request transfer_duration_ns --batch=100x1000 --link=here.json)" = 210000 ]
	[ "$(request transfer_duration_ns --batch=100x1000 --link=here.json --setup=0)" = 200000 ]
	[ "$(request transfer_duration_ns --batch=100x1000 --link=here.json --op=3000)" = 410000 ]
	[ "$(request transfer_duration_ns --batch=100x1000 --link=here.json --rate=2)" = 160000 ]
	[ "$(request transfer_duration_ns --batch=100x1000 --link=here.json --overlap-power=inf)" = 110000 ]
	[ "$(request post_duration_ns --batch=100x1000 --link=here.json --post=70)" = 7000 ]
	refused 3 "'overlap' is not 1, 2, 4" --batch=1x1 --link=<(echo '{"overlap": 3, "setup_us": 1, "op_ns": 1, "rate_gbps": 1}')
}

@test "time: one transfer, one output" {
	local args=(-m nemotron-h-8b --conv=ds -t 100 --src ids=random:3,tp=2 --dst ids=aged:4)
	time_of "${args[@]}" >one
	time_of "${args[@]}" >two
	cmp one two
	kvtool transfer-sim time --csv "${args[@]}" >ops
	[ "$(wc -l <ops)" = $(($(jq .request.posted_ops one) + 1)) ]
	[ "$(awk -F, 'NR > 1 { n += $14 } END { print n }' ops)" = "$(jq .request.bytes_transferred one)" ]
	cut -d, -f4,5 ops | sort -u | tail -n +1 >slices
	for part in attn,head conv,x conv,B conv,C ssm,head; do grep -qx "$part" slices; done
}

@test "time: dumps, too" {
	[ "$(request num_descriptors "$hnd" "$hnd" --emulate=nixl)" -gt 0 ]
}

@test "a connector is of a release, which decides what regions there are" {
	ask=(transfer-sim time --spec=gqa:layers=2,heads=8,head-dim=128
		--cache-dtype=bf16 -t64 --src=layout=kv-first-hnd,tp=2 --emulate=nixl)
	shows 0 'vLLM   release 0.24; such regions are registered by 0.22, 0.24' "${ask[@]}"
	run -0 kvtool "${ask[@]}" --release=0.22 -j
	[ "$(json 'o["release"]' <<<"$output")" = 0.22 ]
	tells 3 "nixl of release 0.32 registers no such regions; expected release 0.22, 0.24" \
		"${ask[@]}" --release=0.32
	run -0 kvtool "${ask[@]}" --release=0.32 --force
	tells 2 "--release is for --emulate=nixl, nixl-packed or mooncake" transfer-sim time \
		-m llama-3.1-8b --release=0.32
}

@test "is_kv_layout_blocks_first and split_k_and_v, where there were such" {
	ask=(transfer-sim topology -j --remote=tp=8)
	for row in "0.22 FLASH_ATTN False True" "0.24 FLASH_ATTN True False" \
		"0.22 FLASHINFER True False" "0.26 FLASH_ATTN None None"; do
		# shellcheck disable=SC2086	# words
		set -- $row
		run -0 kvtool "${ask[@]}" --release="$1" --local="tp=4,heads=4,backend=$2"
		[ "$(json '[o[k] for k in ("release", "is_kv_layout_blocks_first",
			"split_k_and_v")] + [o["remotes"][0]["is_kv_replicated"]]' \
			<<<"$output")" = "['$1', $3, $4, True]" ]
	done
	run -0 kvtool "${ask[@]}" --release=0.24 --local=tp=4,heads=4,backend=FLASH_ATTN,cross-layer
	[ "$(json 'o["split_k_and_v"]' <<<"$output")" = False ]
	tells 2 "release 0.22 has no backend B12X" transfer-sim topology --release=0.22 \
		--local=tp=4,heads=4,backend=B12X --remote=tp=2
	tells 2 "backend is 'FLASH', which is no backend of vLLM" transfer-sim topology \
		--local=tp=4,heads=4,backend=FLASH --remote=tp=2
}
