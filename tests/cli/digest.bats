#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# digest.bats - kvtool digest: what it prints and when it refuses
# (the values themselves: tests/oracle_digest.py)

load common
load dumps

@test "digest prints a line for each scope, with two blanks before the name" {
	run -0 --separate-stderr kvtool digest "$nhd"
	[ "${#lines[@]}" = 2 ]
	[[ ${lines[0]} =~ ^kvd1:tokens:[0-9a-f]{32}\ \ /.*packed_nhd.bf16.npy$ ]]
	[[ ${lines[1]} =~ ^kvd1:blocks:[0-9a-f]{32}\ \ /.*packed_nhd.bf16.npy$ ]]
	[ -z "$stderr" ]
}

@test "digest is the same for two layouts and another for another dump" {
	same_digest "$nhd" "$hnd"
	same_digest "$nhd" "$rocm"
	run ! same_digest "$nhd" "$mla"
}

@test "digest --scope prints one of them" {
	run -0 kvtool digest --scope tokens "$nhd"
	[ "${#lines[@]}" = 1 ]
	[[ ${lines[0]} == kvd1:tokens:* ]]
	run -0 kvtool digest --scope blocks "$nhd"
	[ "${#lines[@]}" = 1 ]
	[[ ${lines[0]} == kvd1:blocks:* ]]
}

@test "digest --by labels its lines" {
	run -0 kvtool digest --scope tokens --by request "$nhd"
	[ "${#lines[@]}" = 3 ]
	[[ ${lines[0]} == *"  request=A  $nhd" ]]
	[[ ${lines[2]} == *"  request=C  $nhd" ]]
	run -0 kvtool digest --scope tokens --by layer "$nhd"
	[ "${#lines[@]}" = 5 ]
	[[ ${lines[3]} == *"  layer=3  $nhd" ]]
	run -0 kvtool digest --scope blocks --by head "$nhd"
	[ "${#lines[@]}" = 20 ]
	[[ ${lines[14]} == *"  layer=3 head=2  $nhd" ]]
	run -0 kvtool digest --scope blocks --by block "$nhd"
	[ "${#lines[@]}" = 48 ]
	[[ ${lines[17]} == *"  block=17  $nhd" ]]
}

# relabelled TYPE: the same bytes, and a manifest that calls them so
relabelled() {
	cp "$nhd" "$1.npy"
	jq --arg t "$1" '.dtype = $t | .file = $t + ".npy" | del(.sample_crc32)' \
		"${nhd%.npy}.json" >"$1.json"
}

@test "digest covers no type: --types prints it, --expect-dtype checks it" {
	local type want
	want=$(kvtool digest --scope blocks "$nhd")
	for type in bfloat16 float16 uint16 int16; do
		relabelled $type
		run -0 kvtool digest --scope blocks $type.npy
		[ "${output%%  *}" = "${want%%  *}" ]
		run -0 kvtool digest --scope blocks --types $type.npy
		[ "$output" = "${want%%  *}  dtype=$type  $type.npy" ]
		run -0 kvtool digest --json $type.npy
		[ "$(jq -c '[.digests[].dtypes]' <<<"$output")" = "[[\"$type\"],[\"$type\"]]" ]
		run -0 kvtool digest --expect-dtype=$type $type.npy
	done
	run -1 --separate-stderr kvtool digest --expect-dtype=bfloat16 float16.npy
	[ -z "$output" ]
	one_sentence
	said 'elements of group g0 are float16, expected bfloat16'
	run -1 --separate-stderr kvtool digest --expect-dtype=bf16 int16.npy "$nhd"
	[ "${#lines[@]}" = 2 ]
	tells 2 'brainfloat' digest --expect-dtype=brainfloat "$nhd"
	run -0 kvtool digest --types --by layer --scope tokens "$nhd"
	[[ ${lines[3]} == *"  layer=3  dtype=bfloat16  $nhd" ]]
}

@test "digest --types names types of groups once, and content types" {
	local mamba=$kv/mamba2g4/tp1_SD/rank0.npy
	run -0 kvtool digest --types "$mamba"
	[[ ${lines[0]} == *"  dtype=bfloat16,float32  $mamba" ]]
	head -c $((2 * 3 * 4 * 656)) /dev/zero >packed.bin
	run -0 kvtool digest --types --from=raw --content-type=fp8-ds-mla --layers=2 \
		--blocks=3 --block-size=4 --layout=mla packed.bin
	[[ $output == *"  dtype=fp8-ds-mla  packed.bin" ]]
	run -0 kvtool digest --expect-dtype=fp8-ds-mla --from=raw --content-type=fp8-ds-mla \
		--layers=2 --blocks=3 --block-size=4 --layout=mla packed.bin
	run -1 kvtool digest --expect-dtype=uint8 --from=raw --content-type=fp8-ds-mla \
		--layers=2 --blocks=3 --block-size=4 --layout=mla packed.bin
}

@test "digest of a dump without requests has the blocks alone" {
	small_raw small.bin
	run -0 kvtool digest "${small[@]}" small.bin
	[ "${#lines[@]}" = 1 ]
	[[ ${lines[0]} == kvd1:blocks:* ]]
}

@test "digest --scope tokens says that there are no requests" {
	small_raw small.bin
	run --separate-stderr kvtool digest --scope tokens "${small[@]}" small.bin
	[ "$status" = 3 ] || [ "$status" = 4 ]
	one_sentence
}

@test "digest takes several files" {
	run -0 kvtool digest "$nhd" "$hnd" "$mla"
	[ "${#lines[@]}" = 6 ]
	[ "${lines[0]%%  *}" = "${lines[2]%%  *}" ]
}

@test "digest goes on after a file it cannot read and ends with the worst status" {
	echo nothing >bad.npy
	run -5 --separate-stderr kvtool digest "$nhd" missing.npy bad.npy "$hnd"
	[ "${#lines[@]}" = 4 ]
	said missing.npy bad.npy
	run -3 --separate-stderr kvtool digest bad.npy "$nhd"
	[ "${#lines[@]}" = 2 ]
}

@test "digest --json is JSON for one and for several files" {
	run -0 kvtool digest --json --by request "$nhd"
	/usr/bin/python3 -c '
import json, sys
said = json.loads(sys.argv[1])
assert said["kvtool_json"] == 2 and said["file"] == sys.argv[2], said
assert [d["request"] for d in said["digests"] if d["by"] == "request"
        and d["scope"] == "tokens"] == ["A", "B", "C"], said' "$output" "$nhd"
}

@test "digest refuses unknown scopes and parts" {
	tells 2 'token|tokens' digest --scope token "$nhd"
	tells 2 '--kvd is 3, expected 1 or 2' digest --kvd=3 "$nhd"
	tells 2 'heads|head' digest --by heads "$nhd"
	run -2 kvtool digest
}

@test "digest does not call a full disk success" {
	# shellcheck disable=SC2016
	run -5 --separate-stderr bash -c '"$0" digest "$1" >/dev/full' "$KVTOOL" "$nhd"
	said "standard output"
}

@test "digest gives one value with any number of threads and little memory" {
	local want n
	want=$(kvtool digest --by head "$nhd")
	for n in 1 2 5; do
		[ "$(kvtool digest --threads $n --by head "$nhd")" = "$want" ]
	done
	[ "$(kvtool digest --mem-limit 4M --by head "$nhd")" = "$want" ]
}

@test "digest refuses parts that a scope does not have" {
	tells 2 'blocks|request' digest --scope blocks --by request "$nhd"
}
