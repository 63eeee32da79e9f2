#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of run
# why.bats - kvtool why: what it refuses, and says then
# (what it finds: tests/oracle_why.py)

load common

# refused STATUS TEXT ARG...: refused with this text, in one line
refused() { tells "$1" "$2" why "${@:3}"; }

stored='{"type": "BlockStored", "block_hashes": [7], "parent_block_hash": null, "token_ids": [1, 2], "block_size": 2, "medium": "GPU"}'

@test "what cannot be known is asked" {
	refused 2 'expected two prompts'
	refused 2 'expected two prompts' --engine=vllm --prompt=1,2
	refused 2 'who names blocks must be said' --prompt=1,2 --prompt=1,2
	refused 2 '--block-size is needed' --engine=vllm --prompt=1,2 --prompt=1,2
	refused 2 "--other is 'x'" --engine=vllm --block-size=1 --prompt=1,2 --other=x
	refused 3 'give --seed' --engine=vllm-0.28 --block-size=1 --prompt=1 --prompt=1
	mkdir tree
	refused 2 'which prompt?' tree
	refused 3 'none of 0 files is named by a hash' --engine=vllm --block-size=1 --prompt=1 tree
}

@test "what is no recording is refused with its place" {
	: >empty
	refused 3 'empty: no recording of cache events' empty
	echo 'nothing' >text
	refused 3 'text: no recording of cache events' text
	echo "[1, [$stored]]" >one
	printf '[1, [{"type": "BlockMoved"}]]\n' | cat one - >unknown
	refused 3 "line 2: event 2 is 'BlockMoved', expected BlockStored" unknown
	echo '[1, [["BlockStored", [7]]]]' >short
	refused 3 'line 1: event 1: token_ids is missing' short
	echo "[1, [$stored]" >broken
	refused 3 'broken: line 1: ' broken
	printf '\x92\xcb\x40\x00\x00\x00\x00\x00\x00\x00\x91\x92\xa3abc' >shorn
	refused 3 'ends in the middle of a value' shorn
	echo '[1, [["BlockRemoved", ["xyz"]]]]' >wrong
	refused 3 'block_hashes is missing, or is not what' wrong
}

@test "old and new shapes, with numbers and without, say the same" {
	echo "[0, [1.5, [$stored]]]" >new
	echo '[0, "t", [1.5, [["BlockStored", [7], null, [1, 2], 2, null, "GPU"]], 0]]' >old
	echo "{\"ts\": 1.5, \"events\": [$stored]}" >plain
	for file in new old plain; do
		shows 0 '1 event of 1 block|0 problems$' why "$file"
	done
	echo '[1.5, [["BlockStored", [18446744073709551615], null, [1, 2], 2, null, "GPU"]]]' >large
	echo '[2.5, [["BlockRemoved", [-1], "GPU"]]]' >>large
	run -0 kvtool why large
	run -0 kvtool why - <new
}

@test "a recording that begins late, or has a gap, is not accused of what is not there" {
	echo '[5, [1.5, [["BlockRemoved", [7], "GPU"]]]]' >late
	shows 0 'not judged: 1' why late
	printf '[0, [1, []]]\n[2, [2, [["BlockRemoved", [7], "GPU"]]]]\n' >gap
	shows 1 '1 batch is missing before number 2|1 problem: 1 batch-lost$' why gap
}

@test "token ids are printed where they are asked for" {
	run -1 kvtool why --engine=vllm --block-size=1 --prompt=1,77777 --prompt=1,88888
	[[ $output == *'token 1'* && $output != *77777* ]]
	run -1 kvtool why --engine=vllm --block-size=1 --show-tokens --prompt=1,77777 --prompt=1,88888
	[[ $output == *'token 1: 77777, 88888'* ]]
}

@test "a prompt may come from standard input" {
	run -0 kvtool why --engine=vllm --block-size=2 --prompt=- --prompt=1,2,3 <<<'[1, 2, 4]'
	[[ $output == *'block 0: the same names'* ]]
}
