#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# slice.bats - kvtool slice: options, refusals and what is left behind
# (every byte of many parts: tests/oracle_slice.py)

load common
load dumps

mamba=$kv/mamba2g4/tp1_DS/rank0.npy

@test "slice without a choice copies the dump" {
	run -0 kvtool slice -o out.npy "$nhd"
	same_array out.npy "$nhd"
	same_digest out.npy "$nhd"
}

@test "slice of a rank is that rank's dump" {
	shows 0 'verified equal' slice --verify --tp-size 2 --tp-rank 1 -o out.safetensors "$nhd"
	cmp <(tail -c 245760 out.safetensors) <(tail -c 245760 "$rank1")
	run -0 kvtool describe --json out.safetensors
	[ "$(json "[o['groups'][0][k] for k in ('heads', 'head_start', 'total_heads', 'replication')]" <<<"$output")" = '[2, 2, 4, 1]' ]
	[ "$(json "[o['parallel'][k] for k in ('tp_size', 'tp_rank')]" <<<"$output")" = '[2, 1]' ]
}

@test "slice keeps the ids of layers and blocks" {
	run -0 kvtool slice --layers 1,3:5 --blocks 13:20,45 -o out.h5 "$nhd"
	run -0 kvtool describe --json --block-tables out.h5
	[ "$(json "o['groups'][0]['layer_ids']" <<<"$output")" = '[1, 3, 4]' ]
	[ "$(json "o['groups'][0]['block_ids']" <<<"$output")" = '[13, 14, 15, 16, 17, 18, 19, 45]' ]
	[ "$(json "o['null_block']" <<<"$output")" = None ]
}

@test "slice ends a request where its first block is left out" {
	# A: 13 to 31, 42, 45, ...; B: 13, 14, 12, ...; C: 39, 40, ...
	run -0 kvtool slice --blocks 13:20,40,45 -o out.h5 "$nhd"
	run -0 kvtool describe --json --block-tables out.h5
	[ "$(json "[(r['id'], r['tokens'], r['block_tables']) for r in o['requests']]" <<<"$output")" = \
		"[('A', 112, [[13, 14, 15, 16, 17, 18, 19]]), ('B', 32, [[13, 14]])]" ]
}

@test "slice of a request has its digest and no other's" {
	run -0 kvtool slice --request C -o out.h5 "$rocm"
	run -0 kvtool digest --scope tokens --by request out.h5
	[ "${#lines[@]}" = 1 ]
	local part=${lines[0]%% *}
	shows 0 "$part  request=C" digest --scope tokens --by request "$rocm"
}

@test "slice of a slice is named as in the whole" {
	run -0 kvtool slice --layers 1:4 --heads 1:4 -o once.h5 "$nhd"
	run -0 kvtool slice --layers 2 --heads 2:3 -o twice.npy once.h5
	run -0 kvtool slice --layers 2 --heads 2:3 -o direct.npy "$nhd"
	same_array twice.npy direct.npy
	tells 3 'layer 0|from 1 to 3' slice --layers 0 -o out.h5 once.h5
	tells 3 'heads 0 to 1|1 to 3' slice --heads 0:2 -o out.h5 once.h5
	[ ! -e out.h5 ]
}

@test "slice by layers moves tiles undecoded" {
	run -0 kvtool convert "$nhd" in.h5
	shows 0 '16 of 16 tiles copied undecoded' slice --layers 1,4 -o out.h5 in.h5
	shows 0 'stored tiles are copied undecoded' slice --dry-run --heads 1:2 -o heads.h5 in.h5
	[ ! -e heads.h5 ]
}

@test "slice of a block range decodes where tiles would be cut" {
	run -0 kvtool convert --tile 512 "$nhd" in.h5
	shows 0 'copied undecoded' slice --blocks 4:8 -o moved.h5 in.h5
	run -0 kvtool slice --blocks 5:9 --verify -o cut.h5 in.h5
	[[ $output != *"copied undecoded"* ]]
	run -0 kvtool describe --verify cut.h5
}

@test "slice of an MLA cache for a rank is all of it" {
	run -0 kvtool slice --tp-size 4 --tp-rank 3 -o out.npy "$mla"
	same_array out.npy "$mla"
	run -0 kvtool describe --json out.npy
	[ "$(json "o['groups'][0]['replication']" <<<"$output")" = 4 ]
}

@test "slice of a recurrent state needs the number of groups" {
	tells 3 'conv|--mamba-groups' slice --tp-size 4 --tp-rank 1 -o out.npy "$mamba"
	only
	run -0 kvtool slice --tp-size 4 --tp-rank 1 --mamba-groups 4 -o out.npy "$mamba"
	same_array out.npy "$kv/mamba2g4/tp4_DS/rank1.npy"
	run -0 kvtool slice --tp-size 1 --tp-rank 0 -o whole.npy "$mamba"
	same_array whole.npy "$mamba"
}

@test "slice refuses what no rank holds" {
	local row
	local -a rows=(
		"4 heads,3 ranks|--tp-size 3 --tp-rank 0|$nhd"
		"channels,evenly|--tp-size 3 --tp-rank 0 --mamba-groups 1|$mamba"
		"does not divide|--tp-size 4 --tp-rank 0 --mamba-groups 5|$mamba"
		"rank 0 of 4 holds channels,part x|--tp-size 4 --tp-rank 0 --mamba-groups 4|$kv/mamba2g4/tp2_SD/rank1.npy"
		"rank 0 of 4 holds,2 to 3|--tp-size 4 --tp-rank 0|$rank1"
		"no heads,--tp-size|--heads 0:2|$mamba"
		"heads 2 to 4,0 to 3|--heads 2:5|$nhd"
		"layer 5,from 0 to 4|--layers 3:9|$nhd"
		"block 48,from 0 to 47|--blocks 0,48|$nhd"
		"request 'Z'|--request Z|$nhd"
	)
	for row in "${rows[@]}"; do
		IFS='|' read -r words options file <<<"$row"
		# shellcheck disable=SC2086	# several options
		run -3 --separate-stderr kvtool slice $options -o out.h5 "$file"
		one_sentence || { echo "$row: $stderr"; return 1; }
		IFS=, read -ra words <<<"$words"
		said "${words[@]}"
	done
	only
}

@test "slice refuses a command line that makes no sense" {
	local options
	for options in "--tp-size 2" "--tp-rank 0" "--tp-size 2 --tp-rank 2" \
		"--heads 0:1,2:3" "--heads 0:1 --tp-size 2 --tp-rank 0" "--layers x" \
		"--layers 3:3" "--layers 4:2" "--layers 1," "--layers -1" "--layers :" \
		"--blocks 1:" "--blocks 99999999999999999999" "--heads 1.5" \
		"--mamba-groups 0" "--tp-size 99999999999 --tp-rank 0"; do
		# shellcheck disable=SC2086	# several options
		run -2 --separate-stderr kvtool slice $options -o out.h5 "$nhd"
		one_sentence || { echo "$options: $stderr"; return 1; }
	done
	tells 2 '' slice "--layers=" -o out.h5 "$nhd"
	tells 2 '-o' slice --layers 1 "$nhd"
	run -2 --separate-stderr kvtool slice --layers 1 -o out.h5
	run -2 --separate-stderr kvtool slice --layers 1 -o out.h5 "$nhd" "$hnd"
	only
}

@test "slice refuses a list that is too long" {
	local list
	list=$(seq -s , 0 2 150)
	tells 2 'fewer' slice --blocks "$list" -o out.h5 "$nhd"
	only
}

@test "slice verifies channels that no part has" {
	copy_dump "$kv/mamba2g4/tp4_DS/rank1.npy" in.npy
	edit in.json 'del o["conv"]["B"], o["conv"]["C"]'
	run -0 kvtool slice --layers 0:2 --verify -o out.npy in.npy
	tells 3 '96 channels' slice --tp-size 8 --tp-rank 2 --mamba-groups 4 -o never.npy in.npy
}

@test "slice does not write over its input" {
	copy_dump "$nhd" in.npy
	tells 2 '' slice -f --layers 0 -o in.npy in.npy
	same_array in.npy "$nhd"
	tells 2 'in.json' slice -f --layers 0 --format raw -o in in.npy
}

@test "slice --json says what was done" {
	run -0 kvtool slice --json --verify --layers 0:2 -o out.npy "$nhd"
	[ "$(json "(o['done'], o['verified'], o['inputs'] == [o['input']], o['groups'][0]['data_bytes'])" <<<"$output")" = \
		'(True, True, True, 196608)' ]
}

@test "slice writes the same file with any number of threads and little memory" {
	local n
	run -0 kvtool convert --tile 512 "$nhd" in.h5
	for n in 1 3 7; do
		run -0 kvtool slice --threads $n --blocks 3:30,40 --heads 1:3 -o $n.h5 in.h5
	done
	run -0 kvtool slice --mem-limit 4M --blocks 3:30,40 --heads 1:3 -o little.h5 in.h5
	cmp 1.h5 3.h5
	cmp 1.h5 7.h5
	same_digest 1.h5 little.h5
}

@test "slice by tokens keeps their positions" {
	run -0 kvtool slice --request A --tokens 100:200 -o out.h5 "$nhd"
	shows 0 'A: 100 tokens from token 100 on in 7 blocks' describe out.h5
	run -0 kvtool where --at request=A,token=100,layer=0,head=0,kv=k,dim=0 out.h5
	[[ $output == *"block=19,slot=4"*"position 0 in the dump"* ]]
	tells 2 '100 to 199' where --at request=A,token=99,layer=0,head=0,kv=k,dim=0 out.h5
	run -0 kvtool convert --verify out.h5 out.npy
	same_digest out.h5 out.npy
}

@test "slice of tokens is no folder, which begins with the first" {
	run -0 kvtool slice --tokens 16:32 -o out.h5 "$nhd"
	tells 4 'token 16' convert --format vllm-2026-07 out.h5 folder
	[ ! -e folder ]
}

@test "slice of a component says what it holds" {
	run -0 kvtool convert "$nhd" in.h5
	shows 0 '20 of 20 tiles copied undecoded' slice --component v -o out.h5 in.h5
	shows 0 'holds     values alone' describe --verify out.h5
	run -0 kvtool where --json --at layer=1,block=2,slot=3,head=1,dim=4 out.h5
	[ "$(json "o['places'][0]['kv']" <<<"$output")" = v ]
	run -0 kvtool slice --component ssm -o ssm.npy "$mamba"
	run -0 kvtool describe --json ssm.npy
	[ "$(json "[g['id'] for g in o['groups']]" <<<"$output")" = "['ssm']" ]
}

# transfer SRC_TP SRC_RANK DST_TP DST_RANK
transfer() {
	echo --for-transfer --src-tp "$1" --src-rank "$2" --dst-tp "$3" --dst-rank "$4"
}

@test "slice for a transfer is what one rank sends to another" {
	run -0 kvtool convert "$nhd" in.h5
	# shellcheck disable=SC2046	# several options
	run -0 kvtool slice $(transfer 4 2 2 1) --verify -o out.h5 in.h5
	[[ $output == *"10 of 10 tiles copied undecoded, verified equal" ]]
	run -0 kvtool describe --json out.h5
	[ "$(json "[o['groups'][0][k] for k in ('heads', 'head_start')] + [o['parallel'][k] for k in ('tp_size', 'tp_rank')]" <<<"$output")" = '[1, 2, 4, 2]' ]
	echo mine >keep.h5
	# shellcheck disable=SC2046	# several options
	run -5 --separate-stderr kvtool slice $(transfer 4 2 2 0) -f -o keep.h5 in.h5
	said 'sends nothing to rank 0 of 2, but there is an old keep.h5; remove it'
	# shellcheck disable=SC2046	# several options
	run -0 kvtool slice $(transfer 4 2 2 0) -o none.h5 in.h5
	[ "$output" = 'in.h5: rank 2 of 4 sends nothing to rank 0 of 2' ]
	# shellcheck disable=SC2046	# several options
	run -0 kvtool slice $(transfer 8 1 4 0) --json -o never.h5 in.h5
	[ "$(json "(o['done'], o['sends'], o['output'])" <<<"$output")" = '(False, False, None)' ]
	[ "$(cat keep.h5)" = mine ]
	[ ! -e never.h5 ]
}

@test "slice refuses tokens, components and transfers that are not there" {
	local row
	local -a rows=(
		"no token 421,0 to 420|--tokens 400:422|$nhd"
		"no token 80,the request has,0 to 79|--request C --tokens 80:81|$nhd"
		"one state stands for all tokens,conv,--component|--tokens 0:10|$mamba"
		"component 'B',has k, v|--component B|$nhd"
		"component 'k',x, B, C, ssm|--component k|$mamba"
		"has no components|--component k|$mla"
		"neither number divides|$(transfer 3 0 2 0)|$nhd"
		"is that of rank 1 of 2,not of rank 0|$(transfer 2 0 4 0)|$rank1"
		"rank 0 of 4 holds,2 to 3|$(transfer 4 0 2 0)|$rank1"
		"conv,--mamba-groups|$(transfer 4 0 2 0)|$mamba"
	)
	for row in "${rows[@]}"; do
		IFS='|' read -r words options file <<<"$row"
		# shellcheck disable=SC2086	# several options
		run -3 --separate-stderr kvtool slice $options -o out.h5 "$file"
		one_sentence || { echo "$row: $stderr"; return 1; }
		IFS=, read -ra words <<<"$words"
		said "${words[@]}"
	done
	# shellcheck disable=SC2046	# several options
	tells 4 'at most 1024' slice $(transfer 2048 0 4 0) -o out.h5 "$nhd"
	for row in "--tokens 1:2,4" "--tokens 3:3" "--for-transfer" "--src-tp 2 --src-rank 0" \
		"$(transfer 2 2 4 0)" "$(transfer 2 0 4 4)" "--heads 0:1 $(transfer 2 0 4 0)" \
		"--tp-size 2 --tp-rank 0 $(transfer 2 0 4 0)" \
		"--for-transfer --src-tp 2 --src-rank 0 --dst-tp 2"; do
		# shellcheck disable=SC2086	# several options
		run -2 --separate-stderr kvtool slice $row -o out.h5 "$nhd"
		one_sentence || { echo "$row: $stderr"; return 1; }
	done
	only
}

@test "slice --for-transfer hands opaque content to the same rank, or not at all" {
	head -c 6144 /dev/urandom >page.bin
	cat >page.json <<-END
		{"kind": "opaque", "layout": "LBSHC", "dtype": "uint8", "tp_size": 2, "tp_rank": 0,
		 "total_kv_heads": 2, "sizes": {"layers": 2, "num_blocks": 3, "block_size": 1,
		                                "num_kv_heads": 1, "content": 1024}}
	END
	for_rank() {
		kvtool slice -q --no-sync --for-transfer --src-tp=2 --src-rank=0 "$@" page.bin
	}
	for_rank --dst-tp=2 --dst-rank=0 -o same.bin
	cmp page.bin same.bin
	for_rank --dst-tp=2 --dst-rank=1 -o other.bin
	[ ! -s other.bin ]
	run -4 --separate-stderr for_rank --dst-tp=4 --dst-rank=1 -o third.bin
	said 'it is not known how opaque content is divided among ranks'
	[ ! -e third.bin ]
}

@test "slice --for-transfer of a rank that was cut: what it has, or nothing" {
	kvtool slice -q --heads=2:4 -o cut.npy "$nhd"
	tells 3 'rank 0 of 1 sends heads 0 to 0, and the dump has only 2 to 3' slice \
		--for-transfer --src-tp=1 --src-rank=0 --dst-tp=4 --dst-rank=0 -o out.npy \
		cut.npy
	[ ! -e out.npy ]
	for rank in 2 3; do
		kvtool slice -q --for-transfer --src-tp=1 --src-rank=0 --dst-tp=4 \
			--dst-rank=$rank -o cut$rank.npy cut.npy
		kvtool slice -q --for-transfer --src-tp=1 --src-rank=0 --dst-tp=4 \
			--dst-rank=$rank -o all$rank.npy "$nhd"
		cmp cut$rank.npy all$rank.npy
	done
}

@test "a request of an array without a layout is asked for both at once" {
	/usr/bin/python3 - <<-'END'
	import numpy as np
	np.save("bare.npy", np.zeros((4, 2, 9, 16, 2, 8), np.float16))
	END
	tells 3 "and which blocks the request has, such as --blocks-of=A=5,2,9:40" \
		slice --request=A bare.npy x.h5
	run -0 kvtool slice --request=A --layout=kv-first-nhd --blocks-of=A=5,2,8:40 bare.npy x.h5
}
