#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# guess.bats - kvtool guess: what it prints, writes and refuses
# (how often it is right: tests/oracle_guess.py)

load common
load dumps

sizes=(--layers=5 --block-size=16 --heads=4 --head-dim=8)

# raw NAME: the bytes of a dump of s260k, and nothing that describes them
raw() {
	array "$kv/s260k/paged_bs16/$1.npy" >dump.bin
}

@test "a layout that the data speaks for, and what to type next" {
	raw packed_hnd.bf16
	run -0 --separate-stderr kvtool guess "${sizes[@]}" dump.bin
	[[ ${lines[0]} == 'dump.bin: looks like LBHSC (hnd, '*'), bfloat16' ]]
	[ "${lines[-1]}" = "  use        --layout=hnd --dtype=bfloat16 ${sizes[*]}" ]
	[ -z "$stderr" ]
	run -0 kvtool describe --layout=hnd --dtype=bfloat16 "${sizes[@]}" dump.bin
}

@test "what a dump is, in each of its words" {
	raw packed_hnd.bf16
	printf 'a header' | cat - dump.bin >behind.bin
	for word in block-size page-size tokens-per-block; do
		run -0 kvtool guess --from=raw --skip=8 --layers=5 --blocks=48 --$word=16 --heads=4 \
			--head-dim=8 behind.bin
		[[ ${lines[0]} == 'behind.bin: looks like LBHSC (hnd, '*'), bfloat16' ]]
	done
	tells 3 '491528' guess --from=raw --layers=5 --blocks=48 --block-size=16 --heads=4 \
		--head-dim=8 behind.bin
	# a manifest that has all but the layout
	echo '{"dtype": "bf16", "sizes": {"layers": 5, "block_size": 16, "num_kv_heads": 4,
		"head_dim": 8}}' >sizes.json
	run -0 kvtool guess --manifest=sizes.json dump.bin
	[[ ${lines[0]} == 'dump.bin: looks like LBHSC (hnd, '*'), bfloat16' ]]
}

@test "a shape that the data contradicts is no result, and both are named" {
	kvtool mutate -q --fault=swap-heads-slots,way=0 "$kv/s260k/paged_bs16/packed_hnd.bf16.npy" \
		wrong.npy
	rm wrong.json
	warns 3 'its shape says hnd (LBHSC), but its data has the order of nhd (LBSHC): [S,H] rows under a shape of [H,S]' \
		guess "${sizes[@]}" wrong.npy
	[[ ${lines[0]} == 'wrong.npy: not sure: best match LBHSC '* && $output != *'  use '* ]]
	undo=${lines[-1]#*undo }
	[[ $undo == *'kvtool mutate --fault=swap-heads-slots,way=1 --layout=hnd '*' wrong.npy mended.npy' ]]
	eval "$undo" >out
	cmp <(array mended.npy) <(array "$kv/s260k/paged_bs16/packed_hnd.bf16.npy")
	run -3 --separate-stderr kvtool guess --json "${sizes[@]}" wrong.npy
	[ "$(json '[o["pages"][k] for k in ("fault", "arguments", "said", "layout")]' \
		<<<"$output")" = "['swap-heads-slots', 'way=0', 'LBHSC', 'LBSHC']" ]
	run -3 kvtool guess --write-manifest=wrong.json "${sizes[@]}" wrong.npy
	[ ! -e wrong.json ]
	raw packed_hnd.bf16
	[ "$(kvtool guess --json "${sizes[@]}" dump.bin | json 'o["pages"]')" = None ]
}

@test "data that does not tell: candidates, and status 3" {
	raw packed_bhlsc.bf16
	run -3 --separate-stderr kvtool guess "${sizes[@]}" dump.bin
	[[ ${lines[0]} == 'dump.bin: not sure: best match BHLSC '* ]]
	[[ $output == *BLHSC* && $output != *'  use '* ]]
	one_sentence
	said 'does not distinguish the first of these layouts'
}

@test "noise, zeros and too little speak for nothing" {
	head -c 491520 /dev/urandom >dump.bin
	warns 3 '' guess --dtype=bfloat16 "${sizes[@]}" dump.bin
	head -c 491520 /dev/zero >dump.bin
	warns 3 'all elements that were read are 0' guess "${sizes[@]}" dump.bin
	raw packed_nhd.bf16
	head -c $((5 * 2 * 2048)) dump.bin >few.bin
	warns 3 'fewer than 4 blocks' guess "${sizes[@]}" few.bin
}

@test "bytes in the other order are seen" {
	raw packed_nhd.bf16
	dd if=dump.bin of=big.bin conv=swab status=none
	warns 3 'big-endian' guess "${sizes[@]}" big.bin
}

@test "a manifest that was written describes its file, bytes before the data too" {
	raw packed_nhd.bf16
	{ head -c 100 /dev/zero; cat dump.bin; } >later.bin
	kvtool guess "${sizes[@]}" --dtype=bfloat16 --write-manifest=dump.bin.json dump.bin >out
	kvtool guess "${sizes[@]}" --dtype=bfloat16 --skip=100 --write-manifest=later.json \
		later.bin >out
	run -0 kvtool diff dump.bin later.bin
	[ "$(kvtool describe --json later.bin | jq -r .manifest.proof)" = samples ]
}

@test "without sizes nothing is guessed" {
	raw packed_nhd.bf16
	tells 3 'give --' guess dump.bin
	cp "$nhd" bare.npy
	tells 3 'its axes can be read in several ways; give --layers' guess bare.npy
}

@test "a dump that says its layout, and --layout, are refused" {
	tells 3 'its layout is known: LBSHC' guess "$nhd"
	raw packed_nhd.bf16
	tells 2 'what guess is to find' guess --layout=nhd "${sizes[@]}" dump.bin
	run -2 kvtool guess
	run -2 kvtool guess --dtype=nonsense "${sizes[@]}" dump.bin
	run -4 kvtool guess --dtype=int16 "${sizes[@]}" dump.bin
	run -5 kvtool guess "${sizes[@]}" missing.bin
}

@test "--write-manifest says what was found, once, and nothing else does" {
	raw packed_nhd.bf16
	run -0 kvtool guess --write-manifest=dump.json "${sizes[@]}" dump.bin
	run -0 kvtool describe --expect-layout=nhd --expect heads=4 dump.bin
	cp dump.json before.json
	rm dump.bin
	raw packed_hnd.bf16
	mv dump.bin other.bin
	run -5 kvtool guess --write-manifest=dump.json "${sizes[@]}" other.bin
	cmp dump.json before.json
	rm dump.json
	raw packed_bhlsc.bf16
	run -3 kvtool guess --write-manifest=dump.json "${sizes[@]}" dump.bin
	[ ! -e dump.json ]
	run -3 kvtool describe dump.bin
}

@test "--json has the ranking" {
	raw packed_nhd.bf16
	kvtool guess --json "${sizes[@]}" dump.bin >answer
	[ "$(json '[o[k] for k in ("told", "dtype", "why_not", "better", "elements_read",
		"live_slots")]' <answer)" = "[True, 'bfloat16', None, None, 245760, 748]" ]
	[ "$(json 'o["candidates"][0]["layout"], o["candidates"][1]["layout"]' <answer)" = \
		"('LBSHC', 'LBSKHD')" ]
	[ "$(json 'o["confidence"] >= 1 and o["types"][0]["bits"] < o["types"][1]["bits"]' \
		<answer)" = True ]
	run -3 --separate-stderr kvtool guess --json "${sizes[@]}" <(cat dump.bin)
}

@test "a few elements tell nothing" {
	raw packed_hnd.bf16
	local n
	for n in 1 2 4 8 63; do
		head -c $((2 * n)) dump.bin >few.bin
		warns 3 'few.bin' guess --layers=1 --block-size=1 --heads=1 --content=1 few.bin
		[[ $stderr != *swapped* && $stderr != *"give --dtype"* ]]
		warns 3 'few.bin: fewer than 64 elements were read' guess --layers=1 \
			--block-size=1 --heads=1 --content=1 --dtype=bfloat16 few.bin
	done
}

@test "an empty file tells nothing" {
	: >empty.bin
	tells 3 'there is no data' guess "${sizes[@]}" empty.bin
}

@test "a sample is bounded, and may be too small" {
	raw packed_nhd.bf16
	shows 0 'sample     81920 of 245760 elements' guess --sample=160k "${sizes[@]}" dump.bin
	tells 3 'give a --sample of' guess --sample=4k "${sizes[@]}" dump.bin
	run -2 kvtool guess --sample=5G "${sizes[@]}" dump.bin
}
