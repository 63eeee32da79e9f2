#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# convert.bats - kvtool convert: formats, what they keep, how a file appears

load common
load dumps

@test "convert chooses the format by the name's ending" {
	run -0 kvtool convert "$nhd" a.h5
	[ "$(head -c 8 a.h5)" = "$(printf '\x89HDF\r\n\x1a\n')" ]
	run -0 kvtool convert "$nhd" a.safetensors
	[ "$(head -c 9 a.safetensors | tail -c 1)" = "{" ]
	run -0 kvtool convert "$nhd" a.npy
	[ "$(head -c 6 a.npy | tail -c 5)" = NUMPY ]
	run -0 kvtool convert "$nhd" b.bin
	[ "$(stat -c %s b.bin)" = 491520 ]
}

@test "convert --format decides against the ending" {
	run -0 kvtool convert --format safetensors "$nhd" a.dat
	[ "$(head -c 9 a.dat | tail -c 1)" = "{" ]
	run -0 kvtool convert --format hdf5 "$nhd" a.npy
	[ "$(head -c 4 a.npy | tail -c 3)" = HDF ]
}

@test "convert cannot tell a format from nothing" {
	tells 2 '--format' convert "$nhd" out
	tells 2 '--format' convert "$nhd" out.gguf
	tells 2 'hdf' convert --format hdf "$nhd" out
	only
}

@test "convert through every format and back keeps bytes, requests and layout" {
	local from=$rocm to
	for to in 1.h5 2.safetensors 3.npy 4.bin 5.h5 6.npy 7.safetensors 8.raw 9.npy; do
		run -0 kvtool convert "$from" $to
		same_digest "$rocm" $to
		from=$to
	done
	same_array "$rocm" 9.npy
}

@test "convert keeps a snapshot's values uncompressed too" {
	run -0 kvtool convert --uncompressed "$nhd" a.h5
	run -0 kvtool convert a.h5 b.h5
	run -0 kvtool convert b.h5 c.npy
	same_array "$nhd" c.npy
	[ "$(stat -c %s b.h5)" -lt "$(stat -c %s a.h5)" ]
}

@test "convert writes a manifest beside raw bytes and .npy" {
	run -0 kvtool convert "$rocm" a.npy
	run -0 kvtool convert "$rocm" b.bin
	only a.npy a.json b.bin b.bin.json
	/usr/bin/python3 -c '
import json
for name in "a.json", "b.bin.json":
    assert isinstance(json.load(open(name)), dict)'
	cmp <(array a.npy) b.bin
}

@test "convert reads raw bytes by options alone" {
	small_raw small.bin
	run -0 kvtool convert "${small[@]}" small.bin a.h5
	run -0 kvtool convert a.h5 a.npy
	cmp small.bin <(array a.npy)
	{ head -c 100 /dev/zero; cat small.bin; } >skip.bin
	run -0 kvtool convert --skip 100 "${small[@]}" skip.bin b.npy
	same_array a.npy b.npy
}

@test "convert reads a manifest of another name" {
	cp "$nhd" moved.npy
	run -0 kvtool convert --manifest "${nhd%.npy}.json" moved.npy a.h5
	same_digest "$nhd" a.h5
}

@test "convert --from names a format that content does not show" {
	small_raw small.bin
	run -0 kvtool convert --from raw "${small[@]}" small.bin a.npy
	run -3 --separate-stderr kvtool convert --from npy "${small[@]}" small.bin b.npy
	tells 2 'nonsense' convert --from nonsense "${small[@]}" small.bin b.npy
}

@test "convert makes a snapshot of a connector folder" {
	local top want layout
	for top in "$kv"/s260k/connector/*; do
		layout=()
		[[ $top != *2026_07 ]] || layout=(--layout=nhd)
		run -0 kvtool convert --heads 4 --block-size=16 "${layout[@]}" "$top" out.h5
		want=${want:-$(value tokens out.h5)}
		[ -n "$want" ]
		[ "$(value tokens out.h5)" = "$want" ]
		rm out.h5
	done
}

@test "convert asks for heads where a connector folder does not show them" {
	tells 3 '--heads' convert --block-size=16 "$kv/s260k/connector/shared_storage_2025" out.h5
	tells 3 '64 x 2 x 128|--from|--heads' convert "$kv/gqa64/connector/example_2026_07" out.h5
	tells 3 '--layout=nhd, or cpu-vec' convert --heads 2 \
		"$kv/gqa64/connector/example_2026_07" out.h5
	tells 3 '--block-size' convert --heads 2 --layout=nhd \
		"$kv/gqa64/connector/example_2026_07" out.h5
	run -0 kvtool convert --heads 2 --layout=nhd --block-size=16 \
		"$kv/gqa64/connector/example_2026_07" out.h5
}

@test "convert keeps the rank of a dump" {
	run -0 kvtool convert "$rank1" a.h5
	run -0 kvtool convert a.h5 b.npy
	run -0 kvtool convert b.npy c.safetensors
	same_digest "$rank1" c.safetensors
}

@test "convert keeps Mamba pages" {
	local page=$kv/mamba2g4/tp1_DS/rank0.npy
	run -0 kvtool convert "$page" a.h5
	[ "$(value tokens "$page")" = "$(value tokens a.h5)" ]
	[ "$(value blocks "$page")" = "$(value blocks a.h5)" ]
}

@test "convert to null writes nothing" {
	run -2 --separate-stderr kvtool convert --format null --verify "$nhd" nowhere
	said '--verify needs a format that can be read, not null'
	run -0 kvtool convert --format null "$nhd" nowhere
	only
}

@test "convert is reproducible" {
	local ending
	for ending in h5 safetensors npy bin; do
		mkdir 1 2
		run -0 kvtool convert --threads 1 "$nhd" 1/out.$ending
		run -0 kvtool convert --threads 4 "$nhd" 2/out.$ending
		diff -r 1 2
		rm -r 1 2
	done
}

@test "convert leaves an existing file alone without --force" {
	local ending
	for ending in h5 safetensors npy bin; do
		echo mine >out.$ending
		tells 5 "out.$ending|force" convert "$nhd" out.$ending
		[ "$(cat out.$ending)" = mine ]
		only out.$ending
		run -0 kvtool convert -f "$nhd" out.$ending
		same_digest "$nhd" out.$ending
		rm out.*
	done
}

@test "convert leaves an existing manifest alone without --force" {
	echo '{"mine": 1}' >out.json
	tells 5 '' convert "$nhd" out.npy
	[ "$(cat out.json)" = '{"mine": 1}' ]
	only out.json
}

@test "convert --dry-run creates nothing and replaces nothing" {
	run -0 kvtool convert -n "$nhd" out.h5
	only
	echo mine >out.npy
	run -0 kvtool convert -n -f "$nhd" out.npy
	[ "$(cat out.npy)" = mine ]
	only out.npy
}

@test "convert --json says what was done" {
	run -0 --separate-stderr kvtool convert --json "$nhd" out.h5
	/usr/bin/python3 -c '
import json, sys
said = json.loads(sys.argv[1])
assert said["kvtool_json"] == 2, said' "$output"
}

@test "convert replaces a file at once: readers see the old or the new" {
	run -0 kvtool convert "$nhd" out.npy
	cp out.npy before.npy
	exec 7<out.npy
	run -0 kvtool convert -f "$hnd" out.npy
	cmp before.npy - <&7
	exec 7<&-
	same_array out.npy "$hnd"
}

@test "convert reads an npy of pages that one group does not fill" {
	/usr/bin/python3 -c '
import json, numpy, sys
src = sys.argv[1]
m = json.load(open(src[:-4] + ".json"))
a = numpy.load(src)
numpy.save("in.npy", a.view("u1"))
h, d, n = m["ssm"]["shape"]
json.dump({"file": "in.npy", "groups": [{"id": "ssm", "kind": "mamba_ssm",
    "layout": "ssm", "dtype": "float32", "tokens_per_slot": -1,
    "total_kv_heads": h, "page_bytes": m["page_bytes"],
    "page_offset": m["ssm"]["byte_offset"],
    "sizes": {"layers": m["sizes"]["layers"], "num_blocks": m["sizes"]["num_blocks"],
              "block_size": 64, "slots": 1, "num_kv_heads": h, "content": d * n}}]},
    open("in.json", "w"))' "$kv/mamba2g4/tp1_DS/rank0.npy"
	run -0 kvtool convert --verify in.npy out.npy
	run -0 kvtool slice --component ssm -o ssm.npy "$kv/mamba2g4/tp1_DS/rank0.npy"
	[ "$(value blocks out.npy)" = "$(value blocks ssm.npy)" ]
}

@test "a snapshot of more ranges than HDF5 keeps metadata for" {
	# what falls out of HDF5's cache meanwhile is written, not taken for a range
	head -c 120000 /dev/urandom >many.bin
	kvtool convert -q --no-sync --verify --tile=1 --layout=nhd --dtype=bfloat16 \
		--layers=1 --blocks=30000 --block-size=1 --heads=1 --head-dim=1 \
		many.bin many.h5
	kvtool convert -q --no-sync many.h5 again.bin
	cmp many.bin again.bin
	kvtool fsck -q many.h5
}

@test "convert --tile asks for no more than the dump holds" {
	run -0 kvtool convert -q --no-sync --verify --tile=1G --mem-limit=64M "$nhd" small.h5
	shows 0 ', 32 KiB, shuffle' describe -v small.h5
	same_digest "$nhd" small.h5
	head -c 2097152 /dev/zero >big.bin
	run -0 kvtool convert -q --no-sync --tile=1G --mem-limit=64M --layout=nhd \
		--dtype=bfloat16 --layers=1 --block-size=16 --heads=1 --head-dim=64 \
		big.bin big.h5
	shows 0 'B 512 x S 16 x H 1 x K 1 x D 64, 1 MiB, shuffle' describe -v big.h5
	run -0 kvtool convert -q --no-sync --tile=256k big.h5 less.h5
	shows 0 ', 256 KiB, shuffle' describe -v less.h5
}

@test "what all writers take, each of them takes" {
	small_raw in.bin
	kvtool convert -q "${small[@]}" in.bin in.h5
	kvtool slice -q --tp-size=2 --tp-rank=0 -o r0.h5 in.h5
	kvtool slice -q --tp-size=2 --tp-rank=1 -o r1.h5 in.h5
	whole=$(value blocks in.h5)
	for command in 'merge -o out.h5 r0.h5 r1.h5' 'import -o out.h5 in.h5' \
		'slice --blocks=0:3 -o out.h5 in.h5' 'relayout --to=nhd -o out.h5 in.h5' \
		'reblock -b 16 -o out.h5 in.h5' 'copy-blocks --blocks=0:0 -o out.h5 in.h5 in.h5' \
		'convert in.h5 out.h5'; do
		read -ra command <<<"$command"
		# shows OPTION FILTER: with it the output is the same cache, and FILTER holds
		shows() {
			run -0 kvtool "${command[@]}" --no-sync -f "$1"
			[ "$(value blocks out.h5)" = "$whole" ]
			kvtool describe --json out.h5 | jq -e "$2" >/dev/null
		}
		shows --level=19 '.groups[0].tiling.zstd'
		shows --uncompressed '.groups[0].tiling == null'
		shows --no-digest '.groups[0].content_cells == false'
		shows --tile=1k '.groups[0].content_cells'
		shows --threads=3 '.groups[0].content_cells'
		shows --mem-limit=64M '.groups[0].content_cells'
		shows --device=cpu '.groups[0].content_cells'
		shows --quiet '.groups[0].content_cells'
		[ -z "$output" ]
		shows --format=npy '.format == "npy"'
		shows --format=hdf5 '.format == "hdf5"'
		tells 5 'out.h5: exists; --force replaces it' "${command[@]}"
		tells 2 '--level is 20, expected 1 to 19' "${command[@]}" -f --level=20
		tells 4 'more than --mem-limit allows' "${command[@]}" -f --mem-limit=1k
		[ "$(value blocks out.h5)" = "$whole" ]
	done
}

@test "what says what the input is, each reader takes" {
	small_raw in.bin
	printf 'a header' | cat - in.bin >behind.bin
	kvtool convert -q "${small[@]}" in.bin in.h5
	whole=$(value blocks in.h5)
	for size in block-size page-size tokens-per-block; do
		told=(--skip=8 --from=raw --layout=nhd --dtype=bf16 --layers=2 --blocks=3
			"--$size=16" --heads=2 --head-dim=8)
		[ "$(value blocks behind.bin "${told[@]}")" = "$whole" ]
		shows 0 ' 8 (0x8)' where "${told[@]}" \
			--at=layer=0,block=0,slot=0,head=0,kv=k,dim=0 behind.bin
		kvtool mutate -q --no-sync --format=npy --fault=swap-kv "${told[@]}" -f \
			-o bad.npy behind.bin
		run -1 kvtool diff -q "${told[@]}" behind.bin bad.npy
	done
	run -0 kvtool where --spec=gqa:layers=2,heads=2,head-dim=8 --layout=nhd --block-size=16 \
		--skip=8 --dtype=bf16 --offset=8 behind.bin
	[[ $output == *"layer=0,block=0,slot=0,head=0,kv=k,dim=0"* ]]
	tells 2 '' where "${told[@]}" --set=rank=0_1 --offset=8 behind.bin
}

# takes COMMAND FILE WORD...: the command reads it, described so, as ref.h5
takes() {
	local command=$1 file=$2 \
		shows='.groups[0] | [.layout, .dtype, .blocks, .block_size, .data_bytes]'
	local word words=() change
	for word in "${@:3}"; do
		case $command,$word in
		# these say something else of that command, or nothing that is missing
		slice,--layers=* | slice,--heads=* | slice,--blocks=* | copy-blocks,--blocks=*) ;;
		*) words+=("$word") ;;
		esac
	done
	[ "$command" != slice ] || words+=("${whole[@]}")
	rm -f out.h5
	case $command in
	describe)
		kvtool describe --json "${words[@]}" "$file" | jq -c "$shows" |
			diff - <(kvtool describe --json ref.h5 | jq -c "$shows") ;;
	digest) [ "$(value blocks "$file" "${words[@]}")" = "$(value blocks ref.h5)" ] ;;
	where) kvtool where "${words[@]}" --memory --offset=0 "$file" | grep -q 'at .*block=0' ;;
	fsck) kvtool fsck "${words[@]}" "$file" ;;
	diff) kvtool diff --by=blocks "${words[@]}" "$file" ref.h5 >/dev/null ;;
	expect)
		kvtool expect write -f -o ref.kvc ref.h5 &&
			kvtool expect check "${words[@]}" ref.kvc "$file" >/dev/null ;;
	mutate)
		change=(mutate -q --no-sync -f --fault=zero-block --seed=1)
		kvtool "${change[@]}" -o want.h5 ref.h5 &&
			kvtool "${change[@]}" "${words[@]}" -o out.h5 "$file" &&
			[ "$(value blocks out.h5)" = "$(value blocks want.h5)" ] ;;
	*)
		case $command in
		convert) kvtool convert -q --no-sync -f "${words[@]}" "$file" out.h5 ;;
		copy-blocks) kvtool copy-blocks -q --no-sync -f --blocks=0:0 "${words[@]}" \
			-o out.h5 "$file" "$file" ;;
		relayout) kvtool relayout -q --no-sync -f --to="$to" "${words[@]}" -o out.h5 "$file" ;;
		reblock) kvtool reblock -q --no-sync -f -b "$slots" "${words[@]}" -o out.h5 "$file" ;;
		*) kvtool "$command" -q --no-sync -f "${words[@]}" -o out.h5 "$file" ;;
		esac && [ "$(value blocks out.h5)" = "$(value blocks ref.h5)" ] ;;
	esac || { echo "$command ${words[*]} $file"; return 1; }
}

@test "every command takes every word about its input" {
	local all whole to slots command word
	all='describe relayout convert digest where slice merge reblock copy-blocks diff
		expect fsck import mutate'
	small_raw in.bin
	printf 'a header' | cat - in.bin >behind.bin
	kvtool convert -q "${small[@]}" in.bin ref.h5
	to=nhd slots=16 whole=(--spec=gqa:layers=2,heads=2,head-dim=8)
	for command in $all; do
		for word in page-size tokens-per-block; do
			takes "$command" behind.bin --skip=8 --from=raw --layout=nhd --dtype=bf16 \
				--layers=2 --blocks=3 --$word=16 --heads=2 --head-dim=8
		done
	done
	# 512 fp8 numbers, 4 float32 scales, 64 bfloat16 numbers are 656 bytes
	small_raw in.bin
	head -c 3936 in.bin >ds.bin
	to=mla slots=1 whole=(--spec=mla:layers=2,latent=656 --dtype=uint8)
	kvtool convert -q -f --layout=mla --content-type=fp8-ds-mla --layers=2 --block-size=1 \
		ds.bin ref.h5
	for command in $all; do
		takes "$command" ds.bin --layout=mla --content-type=fp8-ds-mla --layers=2 \
			--page-size=1
	done
	# pages of slots that are one: 2 layers, 3 blocks of 4, 32 numbers
	head -c 1536 in.bin >mla.bin
	to=mla slots=4 whole=(--spec=mla:layers=2,latent=32)
	kvtool convert -q -f --layout=mla --dtype=bf16 --content=32 --layers=2 --block-size=4 \
		mla.bin ref.h5
	for command in $all; do
		takes "$command" mla.bin --layout=mla --dtype=bf16 --content=32 --layers=2 \
			--page-size=4
	done
}

@test "every command takes a manifest by name, trusts it if told, and takes --set" {
	local all whole=() to=nhd slots=16 command
	all='describe relayout convert digest where slice merge reblock copy-blocks diff expect
		fsck import mutate'
	kvtool convert -q "$nhd" d.npy
	mv d.json other.json
	kvtool convert -q -f --manifest=other.json d.npy ref.h5
	[ "$(value blocks ref.h5)" = "$(value blocks "$nhd")" ]
	for command in $all; do
		takes "$command" d.npy --manifest=other.json
		run ! takes "$command" d.npy
	done
	# a byte of the data is another than the manifest proves
	printf '\x55' | dd of=d.npy bs=1 seek=100000 conv=notrunc status=none
	kvtool convert -q -f --manifest=other.json --trust-manifest d.npy ref.h5
	[ "$(value blocks ref.h5)" != "$(value blocks "$nhd")" ]
	for command in $all; do
		takes "$command" d.npy --manifest=other.json --trust-manifest
		run ! takes "$command" d.npy --manifest=other.json
		[[ $output == *'was written for d.npy with'* ]]
	done
	# the files do not say of how many ranks they are
	local tree=$root/testdata/engines/vllm/offload_tp1_vec_bs32/root
	slots=32 whole=(--spec=gqa:layers=3,heads=4,head-dim=32)
	kvtool convert -q -f --layout=cpu-vec --heads=4 --head-dim=32 --set=tp-size=1 "$tree" \
		ref.h5
	for command in $all; do
		takes "$command" "$tree" --from=offload --layout=cpu-vec --heads=4 --head-dim=32 \
			--set=tp-size=1
		run ! takes "$command" "$tree" --layout=cpu-vec --heads=4 --head-dim=32
		[[ $output == *'--set tp-size=N'* ]]
	done
}

@test "scales of fp8 are not lost without a word" {
	kvtool convert -q --cache-dtype=fp8 --scale=auto "$nhd" fp8.h5
	for format in transformers mlx; do
		run -3 kvtool convert --format=$format --request=A fp8.h5 out
		[[ $output == *"$format keeps no scales"*--cache-dtype=bfloat16* ]]
		[ ! -e out ]
	done
	kvtool convert --cache-dtype=bfloat16 --format=transformers --request=A fp8.h5 out
	kvtool convert --format=vllm-2026-07 fp8.h5 folder 2>err
	grep 'g0: folder keeps no scales' err
	for format in npy raw safetensors; do
		kvtool convert -q -f --format=$format fp8.h5 kept 2>err
		[ ! -s err ]
		kvtool diff -q fp8.h5 kept
	done
}
