#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of run
# regions.bats - tables of registered regions: what is refused, and the statuses
# (what is found in them: tests/oracle_regions.py)

load common

# table REGIONS [LAYERS [MORE]]: writes t.json
table() {
	printf '{"kvtool_regions": 1, %s"layers": [%s], "regions": [%s]}\n' \
		"${3-}" "${2-}" "$1" >t.json
}

# refused STATUS TEXT: by each command that takes a table
refused() {
	warns "$1" "^kvtool describe: t.json: |$2" describe t.json
	run -"$1" kvtool diff t.json t.json
	shows "$1" "error: file.unreadable: |$2" fsck t.json
}

rows='"stride": 64, "blocks": 4, "block_len": 64'
region="{\"base\": 4096, $rows, \"layers\": [\"a\"]}"
layer="{\"name\": \"a\", \"base\": 4096, $rows}"

@test "a table that is sound, in text and in JSON" {
	table "$region" "$layer" '"memory": [{"base": "0x1000", "length": 256}], '
	shows 0 '^t.json: looked at|not at the data|t.json: clean$' fsck t.json
	run -0 kvtool diff t.json t.json
	[ "$output" = 't.json -> t.json: 1 of 1 tensor would arrive whole' ]
	kvtool describe --json t.json >answer
	[ "$(json 'o["format"], o["layers"], o["regions"][0]["layers"]' <answer)" = \
		"('regions', 1, ['a'])" ]
	kvtool diff --json t.json t.json >answer
	[ "$(json 'o["tensors"], o["tensors_whole"], o["a"][0]["errors"]' <answer)" = '(1, 1, 0)' ]
	run -0 kvtool diff --quiet t.json t.json
	[ -z "$output" ]
}

@test "a fault is status 1, whichever side has it" {
	table "$region" "$layer"
	mv t.json sound.json
	table "{\"base\": 4096, \"stride\": 32, \"blocks\": 4, \"block_len\": 32, \"layers\": [\"a\"]}" "$layer"
	run -1 kvtool fsck t.json
	run -1 kvtool diff t.json sound.json
	run -1 kvtool diff sound.json t.json
	run -1 kvtool fsck sound.json t.json
}

@test "malformed tables" {
	printf '{"kvtool_regions": 1' >t.json
	refused 3 "'}' expected"
	table '' "$layer"
	refused 3 'has no regions'
	table "$region" "$layer" '"enigne": "x", '
	refused 3 "unknown key 'enigne'"
	table "{\"base\": 1, $rows, \"layer\": \"a\"}" "$layer"
	refused 3 "regions[0]: unknown key 'layer'"
	table "{\"base\": 1, $rows, \"layers\": [\"b\"]}" "$layer"
	refused 3 "regions[0]: 'b' is none of the table's layers"
	table "{\"base\": 1, $rows, \"layers\": [\"a\", \"a\"]}" "$layer"
	refused 3 "regions[0]: names 'a' twice"
	table "{\"base\": 1, $rows, \"part\": \"q\"}" "$layer"
	refused 3 "part is 'q'"
	table "{\"base\": \"4096\", $rows}" "$layer"
	refused 3 "base is '4096', expected a number or a string such as 0x"
	table "{\"base\": 1, \"stride\": 0, \"blocks\": 1, \"block_len\": 1}"
	refused 3 'stride is 0'
	table "{\"base\": 1, \"stride\": 4, \"blocks\": 1}"
	refused 3 'block_len is missing'
	table "$region" "$layer, 7"
	refused 3 'layers[1] is not an object'
	printf '{"kvtool_regions": 2, "regions": []}' >t.json
	refused 4 'is of version 2, this kvtool reads version 1'
}

@test "numbers that would overflow, and blocks that cannot be" {
	table '{"base": 1, "stride": 1152921504606846976, "blocks": 2, "block_len": 1}'
	refused 3 'end beyond 2^60'
	table '{"base": 1, "stride": 9, "blocks": 1152921504606846976, "block_len": 1}'
	refused 3 'end beyond 2^60'
	table '{"base": 9223372036854775807, "stride": 1, "blocks": 1, "block_len": 1}'
	refused 3 'base is 9223372036854775807'
	table "$region" '{"name": "a", "base": 0, "stride": 64, "blocks": 4, "block_len": 65}'
	refused 3 'block_len is 65, expected at most the stride, which is 64'
	table "$region" "$layer" '"groups": [{"id": 0, "block_size": 9, "kernel_block_size": 2}], '
	refused 3 'block_size is 9, expected a multiple of kernel_block_size, which is 2'
	table "$region" "$layer" '"groups": [{"id": 0, "block_size": 16, "kernel_block_size": 2}], '
	refused 3 'expected at least the 8 of one block of the manager'
}

@test "what cannot be known is asked" {
	table "$region" "$layer" '"groups": [{"id": 0, "block_size": 8, "kernel_block_size": 4}], '
	refused 3 'ids is missing: do the ids of its blocks count kernel blocks'
	table "$region" "{\"name\": \"a\", \"base\": 4096, \"heads\": 2, $rows}" '"tp_size": 2, '
	refused 3 'first_head is missing'
	table "$region"
	sed -i 's/, "layers": ."a".//' t.json
	shows 0 'note: region.no-layers' fsck t.json
	tells 3 'has no layers' diff t.json t.json
}

@test "tables that cannot be compared" {
	table "$region" "$layer" '"groups": [{"id": 0, "block_size": 16}], '
	mv t.json a.json
	table "$region" "$layer" '"groups": [{"id": 0, "block_size": 32}], '
	tells 3 'compare tables with equal block sizes' diff a.json t.json
	table "$region" "$layer" '"pairing": "layer", '
	tells 3 'one side pairs regions by layer' diff a.json t.json
	heads="{\"name\": \"a\", \"base\": 4096, \"heads\": 2, \"first_head\": 2, $rows}"
	table "$region" "$heads" '"tp_size": 2, "tp_rank": 1, '
	mv t.json a.json
	table "$region" "${heads/first_head\": 2/first_head\": 0}" '"tp_size": 2, '
	tells 3 'compare ranks of which one holds all heads of the other' diff a.json t.json
	# a table and a dump are no pair
	run -3 kvtool diff t.json "$DATA/s260k/paged_bs16/packed_hnd.bf16.npy"
}
