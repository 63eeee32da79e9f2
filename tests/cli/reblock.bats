#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# reblock.bats - kvtool reblock: options, refusals and what is left behind
# (every byte of many pools: tests/oracle_reblock.py)

load common
load dumps

mamba=$kv/mamba2g4/tp1_DS/rank0.npy
gqa=$kv/gqa64/paged_bs16/packed_nhd.bf16.npy
bs32=$kv/s260k/paged_bs32/packed_nhd.bf16.npy

@test "reblock cuts blocks where they lie, and back" {
	run -0 kvtool reblock --block-size 4 --verify -o small.npy "$nhd"
	[[ $output == *"verified equal"*"48 blocks of 16 regrouped as 192 of 4"* ]]
	same_array small.npy "$nhd"
	run -0 kvtool reblock --block-size 16 -o back.npy small.npy
	same_array back.npy "$nhd"
	same_digest back.npy "$nhd"
	[ "$(value blocks back.npy)" = "$(value blocks "$nhd")" ]
}

@test "reblock to a sibling's size gives the sibling's tokens" {
	run -0 kvtool reblock --block-size 32 -o out.h5 "$hnd"
	same_digest out.h5 "$bs32"
	run -0 kvtool reblock --block-size 16 --verify -o out.npy "$bs32"
	same_digest out.npy "$nhd"
}

@test "reblock writes beside the input if nobody says where" {
	copy_dump "$nhd" in.npy
	sed -i 's/packed_nhd.bf16.npy/in.npy/' in.json
	run -0 kvtool reblock -q -b 24 in.npy
	[ -z "$output" ]
	only in.npy in.json in.bs24.npy in.bs24.json
}

@test "reblock says which blocks it leaves out and copies" {
	run -0 kvtool reblock --json -b 24 -o out.npy "$nhd"
	[ "$(json "[o['groups'][0][k] for k in ('how', 'from_block_size', 'to_block_size', 'from_blocks', 'to_blocks', 'unused_blocks_dropped', 'shared_slots_copied', 'stale_slots', 'stale_slots_kept')]" <<<"$output")" = \
		"['gathered', 16, 24, 48, 30, 5, 8, 95, 0]" ]
	[ "$(json "o['groups'][0]['why']" <<<"$output")" = "neither of 16 and 24 divides the other" ]
	run -0 kvtool reblock --json -b 8 -f -o out.npy "$nhd"
	[ "$(json "[o['groups'][0][k] for k in ('how', 'why', 'stale_slots_kept')]" <<<"$output")" = \
		"['regrouped', None, 95]" ]
}

@test "reblock --dry-run writes nothing" {
	shows 0 'nothing was written|gathered as 13 of 64, 5 unused left out, 32 shared slots copied|entry 0 of request A is block 13, not a multiple of 4$' \
		reblock --dry-run -b 64 -o out.h5 "$nhd"
	only
}

@test "reblock shares what fills whole blocks" {
	# A and B share 32 tokens
	run -0 kvtool reblock -b 8 --compact -o out.h5 "$nhd"
	run -0 kvtool describe --json --block-tables out.h5
	[ "$(json "[r['block_tables'][0][:5] for r in o['requests']][:2]" <<<"$output")" = \
		'[[1, 2, 3, 4, 5], [1, 2, 3, 4, 54]]' ]
	run -0 kvtool reblock -b 24 --compact -f -o out.h5 "$nhd"
	run -0 kvtool describe --json --block-tables out.h5
	[ "$(json "[r['block_tables'][0][:3] for r in o['requests']][:2]" <<<"$output")" = \
		'[[1, 2, 3], [1, 19, 20]]' ]
}

@test "reblock joins blocks that the tables have in a row" {
	with '{"block_table": {"A": [4, 5, 6, 7, 8, 9]}, "num_tokens": {"A": 90}}'
	run -0 kvtool reblock -b 64 --verify -o out.npy in.npy
	[[ $output == *"48 blocks of 16 regrouped as 12 of 64, 662 stale slots kept" ]]
	same_array out.npy "$nhd"
	run -0 kvtool describe --json --block-tables out.npy
	[ "$(json "(o['requests'][0]['block_tables'], o['null_block'])" <<<"$output")" = '([[1, 2]], 0)' ]
}

@test "reblock gathers what does not stand in a row" {
	local table reason
	while IFS='|' read -r table reason; do
		with "{\"block_table\": {\"A\": $table}, \"num_tokens\": {\"A\": 60}}"
		run -0 kvtool reblock -b 64 --verify -f -o out.npy in.npy
		[[ $output == *"gathered as 2 of 64"*"$reason" ]] || { echo "$output"; return 1; }
		same_digest out.npy in.npy
	done <<-'END'
		[5, 6, 7, 8]|entry 0 of request A is block 5, not a multiple of 4
		[4, 5, 7, 6]|entry 2 of request A is block 7, not the one after block 5
		[1, 2, 3, 4]|request A has block 1, which would be joined with the null block
	END
}

@test "reblock keeps null blocks null" {
	with '{"block_table": {"A": [0, 0, 0, 0, 20, 21]}, "num_tokens": {"A": 90}}'
	run -0 kvtool reblock -b 32 --verify -o out.npy in.npy
	run -0 kvtool describe --json --block-tables out.npy
	[ "$(json "(o['requests'][0]['block_tables'], o['null_block'])" <<<"$output")" = '([[0, 0, 1]], 0)' ]
	same_digest out.npy in.npy
}

@test "reblock refuses a block that a request has twice" {
	with '{"block_table": {"A": [4, 5, 4]}, "num_tokens": {"A": 40}}'
	tells 3 'request A|block 4|twice' reblock -b 8 -o out.npy in.npy
	# but not behind the last token
	with '{"block_table": {"A": [4, 5, 4]}, "num_tokens": {"A": 30}}'
	run -0 kvtool reblock -b 24 -o out.npy in.npy
}

@test "reblock refuses tables that are not in the pool or too short" {
	with '{"block_table": {"A": [4, 48]}, "num_tokens": {"A": 20}}'
	tells 3 '' reblock -b 8 -o out.npy in.npy
	with '{"block_table": {"A": [4]}, "num_tokens": {"A": 20}}'
	tells 3 '' reblock -b 8 -o out.npy in.npy
	only in.npy in.json
}

@test "reblock cuts a window, and does nothing else with it" {
	with '{"kind": "sliding_window", "window": 32, "block_table": {"A": [4, 7, 9]}, "num_tokens": {"A": 400}}'
	run -0 kvtool reblock -b 8 --verify -o out.npy in.npy
	same_digest out.npy in.npy
	tells 3 '3 of its 25 blocks|window' reblock -b 24 -f -o out.npy in.npy
}

@test "reblock of a pool without tables needs sizes that divide" {
	small_raw in.bin
	local described=(--layout nhd --dtype bfloat16 --layers 2 --blocks 3
		--page-size 16 --heads 2 --head-dim 8)
	run -0 kvtool reblock "${described[@]}" -b 8 --verify -o out.h5 in.bin
	[[ $output == *"3 blocks of 16 regrouped as 6 of 8" ]]
	run -0 kvtool reblock -b 48 --verify -o out.npy out.h5
	cmp <(array out.npy) in.bin
	tells 3 'only with block tables|neither of 8 and 20' reblock -b 20 -o no.npy out.h5
	tells 3 '6 blocks are not a multiple of 4' reblock -b 32 -o no.npy out.h5
	tells 3 'no request has a block table' reblock -b 8 --compact -o no.npy out.h5
	tells 3 'no request has a block table' reblock -b 4 --stale zero -o no.npy out.h5
	[ ! -e no.npy ]
}

@test "reblock needs blocks of tokens" {
	tells 3 'all groups are recurrent' reblock -b 16 -o out.npy "$mamba"
	only
}

@test "reblock into a layout that can hold the blocks" {
	tells 4 '4 slots|--to' reblock -b 4 -o out.npy "$kv/s260k/paged_bs16/aiter_shuffle.bf16.npy"
	run -0 kvtool reblock -b 4 --to nhd --verify -o out.npy "$kv/s260k/paged_bs16/aiter_shuffle.bf16.npy"
	same_array out.npy "$nhd"
	run -0 kvtool reblock -b 24 --to rocm-paged --verify -f -o out.npy "$nhd"
	same_digest out.npy "$nhd"
	# from slots in sixteens to slots in eights
	run -0 kvtool relayout --to cpu-amx -o amx.npy "$gqa"
	run -0 kvtool reblock -b 24 --to aiter-shuffle --verify -f -o out.npy amx.npy
	same_digest out.npy "$gqa"
}

@test "reblock into folders of vLLM's connectors, and out of them" {
	run -0 kvtool reblock -b 16 --compact --verify --format vllm-2026-07 -o out "$nhd"
	kvtool import -q --layout=nhd --block-size=16 -o in.h5 out
	same_digest in.h5 "$nhd"
	run -0 kvtool reblock -b 24 --verify -o back.h5 in.h5
	same_digest back.h5 "$nhd"
}

@test "reblock refuses a command line that makes no sense" {
	local options
	for options in "" "-b 0" "-b -1" "-b x" "-b 99999999999" "-b 1.5" "-b 8 --stale" \
		"-b 8 --stale some" "-b 8 --to no-layout"; do
		# shellcheck disable=SC2086	# several options
		run -2 --separate-stderr kvtool reblock $options -o out.h5 "$nhd"
		one_sentence || { echo "$options: $stderr"; return 1; }
	done
	run -2 --separate-stderr kvtool reblock -b 8 -o out.h5 "$nhd" "$hnd"
	run -2 --separate-stderr kvtool reblock -b 8 -o out.h5
	only
}

@test "reblock reads no tile that moves if no digest is wanted" {
	kvtool convert -q --tile=2048 "$nhd" in.h5
	shows 0 '240 of 240 tiles copied undecoded' reblock -b 8 --no-digest -o out.h5 in.h5
	same_digest out.h5 "$nhd"
	run -0 kvtool describe --verify out.h5
	[[ $output != *cells* ]]
	# the next rewrite makes one again
	run -0 kvtool relayout --to hnd -o again.h5 out.h5
	shows 0 '3840 content cells, 0 differ' describe --verify again.h5
	# the checksum of what moves is looked at all the same
	/usr/bin/python3 -c '
import h5py
with h5py.File("in.h5") as f:
    at = f["groups/g0/data"].id.get_chunk_info(7).byte_offset
with open("in.h5", "r+b") as f:
    f.seek(at + 40)
    byte = f.read(1)[0]
    f.seek(at + 40)
    f.write(bytes([byte ^ 1]))'
	tells 3 '' reblock -b 8 --no-digest -o bad.h5 in.h5
	[ ! -e bad.h5 ]
}

@test "reblock wants requests that are whole" {
	kvtool slice --request=A --tokens=20:90 -o window.h5 "$nhd"
	tells 4 'begins at token 20' reblock -b 8 -o out.h5 window.h5
	rm window.h5
	only
}

@test "reblock bounds its memory and does not overwrite its input" {
	tells 4 'mem-limit' reblock -b 2000000000 -o out.npy "$nhd"
	only
	copy_dump "$nhd" in.npy
	tells 2 '' reblock -f -b 8 -o in.npy in.npy
	same_array in.npy "$nhd"
}

@test "reblock writes the same file with any number of threads and little memory" {
	local n
	run -0 kvtool convert --tile 512 "$nhd" in.h5
	for n in 1 3 7; do
		run -0 kvtool reblock --threads $n -b 24 -o $n.h5 in.h5
	done
	run -0 kvtool reblock --mem-limit 4M -b 24 -o little.h5 in.h5
	cmp 1.h5 3.h5
	cmp 1.h5 7.h5
	same_digest 1.h5 little.h5
}

@test "reblock cuts the ids of a part's blocks as it cuts the blocks" {
	kvtool slice -q --no-sync --blocks=39:41 -o part.h5 "$nhd"
	run -0 kvtool reblock --no-sync -b 8 --verify -o small.h5 part.h5
	[[ $output == *"2 blocks of 16 regrouped as 4 of 8"* ]]
	for id in 78 79 80 81; do
		kvtool where --json --at=layer=0,block_id=$id,slot=0,head=0,kv=k,dim=0 small.h5 |
			grep -q "\"position\": $((id - 78)),"
	done
	# back again they are one block each, and 39 and 40 no block of 32
	kvtool reblock -q --no-sync -b 16 --verify -o back.h5 small.h5
	run -0 kvtool where --at=layer=0,block_id=40,slot=0,head=0,kv=k,dim=0 back.h5
	[[ $output == *"block=40,"*"position 1 in"* ]]
	run -0 kvtool reblock --no-sync -b 32 --verify -o large.h5 part.h5
	[[ $output == *"gathered as 1 of 32: expected block 38, found 39"* ]]
}
