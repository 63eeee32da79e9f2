#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# copy_blocks.bats - kvtool copy-blocks: options, refusals and what is left behind
# (every byte of many copies: tests/oracle_copy_blocks.py)

load common
load dumps

mamba=$kv/mamba2g4
bs32=$kv/s260k/paged_bs32/packed_nhd.bf16.npy
fp16=$kv/s260k/paged_bs16/packed_nhd.fp16.npy

# refused STATUS WORDS ARG...: copy-blocks tells so, and leaves nothing
refused() {
	tells "$1" "$2" copy-blocks -o out.npy "${@:3}"
	[ -z "$(find . -name 'out*')" ]
}

@test "copy-blocks says how many blocks came from where" {
	run -0 kvtool copy-blocks --blocks 5:7,13-19:40-46 --verify -o out.npy "$rocm" "$nhd"
	[[ $output == *"verified equal"*"g0: 8 of 48 blocks from "*rocm_x.bf16.npy ]]
	only out.npy out.json
	run -0 kvtool copy-blocks --json --blocks 5:7,13-19:40-46 -f -o out.npy "$rocm" "$nhd"
	[ "$(json "[o['groups'][0][k] for k in ('blocks', 'blocks_copied')]" <<<"$output")" = '[48, 8]' ]
	[ "$(json "[i.split('/')[-1] for i in o['inputs']]" <<<"$output")" = \
		"['rocm_x.bf16.npy', 'packed_nhd.bf16.npy']" ]
}

@test "copy-blocks of blocks to themselves changes nothing" {
	run -0 kvtool copy-blocks --blocks 0-47:0-47 -o out.npy "$hnd" "$nhd"
	same_array out.npy "$nhd"
	[ "$(value blocks out.npy)" = "$(value blocks "$nhd")" ]
}

@test "copy-blocks puts a request right again" {
	kvtool mutate -q --fault=swap-kv,layer=2,block=17 -o bad.h5 "$nhd"
	run -1 kvtool diff -q bad.h5 "$nhd"
	run -0 kvtool copy-blocks --request B --verify -o b.h5 "$rocm" bad.h5
	run -1 kvtool diff -q b.h5 "$nhd"
	run -0 kvtool copy-blocks --request A --verify -o a.h5 "$rocm" bad.h5
	run -0 kvtool diff -q a.h5 "$nhd"
	same_digest a.h5 "$nhd"
	run -0 kvtool describe --verify a.h5
	# A and B share two blocks, which are copied once
	run -0 kvtool copy-blocks --request A --request B --dry-run -o out.h5 "$rocm" bad.h5
	[[ $output == *"nothing was written"*"g0: 37 of 48 blocks from "* ]]
	only bad.h5 a.h5 b.h5
}

@test "copy-blocks keeps the requests of the base" {
	with '{"block_table": {"Z": [7, 9]}, "num_tokens": {"Z": 20}}'
	run -0 kvtool copy-blocks --blocks 1:7 -o out.h5 "$nhd" in.npy
	run -0 kvtool describe --json --block-tables out.h5
	[ "$(json "[(r['id'], r['tokens'], r['block_tables']) for r in o['requests']]" <<<"$output")" = \
		"[('Z', 20, [[7, 9]])]" ]
}

@test "copy-blocks takes ranks, MLA and Mamba of either order" {
	run -0 kvtool copy-blocks --verify --blocks 1-5:2-6 -o r.safetensors "$rank1" "$rank1"
	run -0 kvtool copy-blocks --verify --blocks 1-5:2-6 -o m.h5 "$mla" "$mla"
	shows 0 'conv: 2 of 6 blocks|ssm: 2 of 6 blocks' copy-blocks --verify --blocks 1:4,3:0 \
		-o s.npy "$mamba/tp1_DS/rank0.npy" "$mamba/tp1_SD/rank0.npy"
	refused 3 'first head|2|0' --blocks 1:1 "$rank1" "$nhd"
	refused 3 'conv|channel' --blocks 1:1 "$mamba/tp2_SD/rank0.npy" "$mamba/tp2_SD/rank1.npy"
}

@test "copy-blocks moves stored ranges" {
	kvtool convert -q --tile 64 "$nhd" base.h5
	kvtool mutate -q --fault=flip-bits -o from.h5 base.h5
	run -0 kvtool copy-blocks --verify --blocks 13-20:1-8 -o out.h5 from.h5 base.h5
	[[ $output == *"1920 of 1920 tiles copied undecoded, verified equal"* ]]
	run -0 kvtool describe --verify out.h5
	# one file may be both; what it held before is what is copied
	run -0 kvtool copy-blocks --verify --blocks 13:14,14:13 -o swap.h5 base.h5 base.h5
	run -0 kvtool copy-blocks --blocks 13:14,14:13 -o back.h5 swap.h5 swap.h5
	[ "$(value blocks back.h5)" = "$(value blocks base.h5)" ]
	[ "$(value blocks swap.h5)" != "$(value blocks base.h5)" ]
}

@test "copy-blocks does not depend on threads" {
	kvtool convert -q --tile 256 "$nhd" base.h5
	for n in 1 4; do
		kvtool copy-blocks -q --threads $n --blocks 1-9:21-29 -o "$n.h5" "$rocm" base.h5
	done
	cmp 1.h5 4.h5
}

@test "copy-blocks refuses lists that are none" {
	local list
	for list in '' 5 5: :5 5:7, ,5:7 5:7:9 a:b 5-:7 5-3:7-9 5.5:7 -1:2 ' 5:7' \
		99999999999999999999:1; do
		refused 2 '--blocks|SRC:DST' --blocks "$list" "$rocm" "$nhd"
	done
	refused 2 "'3-9:40-45'|7 blocks|6" --blocks 1:2,3-9:40-45,5:6 "$rocm" "$nhd"
	refused 2 '--blocks|--request' "$rocm" "$nhd"
	refused 2 '--blocks|--request' --blocks 1:2 --request A "$rocm" "$nhd"
	refused 2 'two dumps' --blocks 1:2 "$nhd"
	tells 2 '-o' copy-blocks --blocks 1:2 "$rocm" "$nhd"
}

@test "copy-blocks refuses what is not there or comes twice" {
	refused 3 'rocm_x|no block 48' --blocks 1:2,48:1 "$rocm" "$nhd"
	refused 3 'packed_nhd|no block 48' --blocks 40-48:40-48 "$nhd" "$nhd"
	refused 3 'no block 48' --blocks 0-8999999999999999999:0-8999999999999999999 "$rocm" "$nhd"
	refused 3 'packed_nhd|block id 7|twice' --blocks 5:7,6:7 "$rocm" "$nhd"
	refused 3 'block id 7|twice' --blocks 5:7,5:7 "$rocm" "$nhd"
	refused 3 'twice' --blocks 0-47:0-47,0-47:0-47,0-47:0-47 "$rocm" "$nhd"
	refused 3 "no request 'Z'" --request Z "$rocm" "$nhd"
	refused 5 'missing.npy' --blocks 1:2 missing.npy "$nhd"
	refused 5 'missing.npy' --blocks 1:2 "$nhd" missing.npy
}

@test "copy-blocks refuses dumps of other blocks" {
	refused 3 'tokens a block|16|32|reblock' --blocks 1:1 "$nhd" "$bs32"
	refused 3 'dtype|float16|bfloat16' --blocks 1:1 "$fp16" "$nhd"
	refused 3 'full_attention' --blocks 1:1 "$mla" "$nhd"
	refused 3 'groups' --blocks 1:1 "$mamba/tp1_DS/rank0.npy" "$nhd"
	kvtool slice -q --layers 0:3 -o three.npy "$nhd"
	refused 3 'layers|3|5' --blocks 1:1 three.npy "$nhd"
	kvtool slice -q --layers 2:5 -o last.npy "$nhd"
	refused 3 'no layer 3' --blocks 1:1 three.npy last.npy
	kvtool slice -q --component v -o v.npy "$nhd"
	kvtool slice -q --component k -o k.npy "$nhd"
	refused 3 'keys and values' --blocks 1:1 v.npy "$nhd"
	refused 3 'another shape' --blocks 1:1 v.npy k.npy
}

@test "copy-blocks refuses tables that do not fit each other" {
	with '{"block_table": {"C": [1, 2, 3, 4]}, "num_tokens": {"C": 60}}'
	refused 3 'request C has 5 blocks|and 4' --request C "$rocm" in.npy
	kvtool slice -q --request C --tokens 16:80 -o late.npy "$nhd"
	refused 3 'request C|block 1 on' --request C late.npy in.npy
	with '{"block_table": {"C": [0, 40, 41, 43, 46]}, "num_tokens": {"C": 80}}'
	refused 3 'request C|entry 0|null block|in.npy' --request C in.npy "$rocm"
	refused 3 'request C|entry 0|null block|in.npy' --request C "$rocm" in.npy
	shows 0 'g0: 4 of 48 blocks' copy-blocks --request C -o same.npy in.npy in.npy
	with '{"block_table": {"C": [1, 2, 3, 4, 1]}, "num_tokens": {"C": 80}}'
	rm -f same.*
	refused 3 'block id 1|twice' --request C "$rocm" in.npy
}

@test "copy-blocks does not write into what it reads" {
	kvtool convert -q "$nhd" base.h5
	kvtool convert -q "$nhd" from.h5
	for f in base.h5 from.h5; do
		tells 2 "$f|input" copy-blocks -f --blocks 1:2 -o $f from.h5 base.h5
	done
	tells 5 'exists' copy-blocks --blocks 1:2 -o out.h5 -o base.h5 "$nhd" "$hnd"
}

@test "copy-blocks reads files that do not describe themselves" {
	small_raw raw.bin
	local about=(--layout nhd --dtype bfloat16 --layers 2 --block-size 16 --heads 2 --head-dim 8)
	kvtool relayout -q --to hnd "${small[@]}" -o told.h5 raw.bin
	run -0 kvtool copy-blocks --verify --blocks 0:2,2:0 "${about[@]}" -o out.h5 raw.bin told.h5
	run -0 kvtool copy-blocks --verify --blocks 0:2,2:0 "${about[@]}" -o out.npy out.h5 raw.bin
	cmp <(array out.npy) raw.bin
}
