#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# where.bats - kvtool where: what it says and what it refuses
# (the addresses themselves: tests/oracle_where.py)

load common
load dumps

mamba=$kv/mamba2g4/tp2_SD/rank1.npy
tp4=$kv/s260k/tp4/rank1.packed_hnd.bf16.safetensors
folder=$kv/s260k/connector/example_2026_07
tokens=(--layout=nhd --block-size=16)
file=436478e796c7d5a9bb24960c7d0da0ce/model.layers.3.self_attn.attn.safetensors

# refused STATUS TEXT ARG...: nothing is printed, and the sentence has TEXT
refused() { tells "$1" "$2" where "${@:3}"; }

@test "where names the element, its token and both offsets" {
	cp "$nhd" "${nhd%.npy}.json" .
	expect 0 where-nhd where --offset=330104 \
		--at=layer=3,block=17,slot=5,head=2,kv=v,dim=4 \
		--at=request=B,token=7,layer=0,head=1,kv=k,dim=7,byte=1 \
		packed_nhd.bf16.npy
}

@test "where names groups, parts and what recurrent states have seen" {
	cp "$mamba" "${mamba%.npy}.json" .
	expect 0 where-mamba where --at=group=ssm,layer=2,request=A,head=5,dim=4 \
		--at=group=conv,layer=2,block=3,slot=2,dim=130 \
		--at=group=conv,layer=0,block=2,slot=0,dim=0 rank1.npy
}

@test "where --json says the same" {
	kvtool where --json --offset=330104 --at=layer=0,block=0,slot=0,head=0,kv=k,dim=0 \
		"$nhd" >answer
	[ "$(json '[o["matches"][0][k] for k in ("option", "query", "region", "offset",
		"memory_offset", "layer", "block", "slot", "head", "kv", "dim", "byte",
		"holds", "requests", "tile")]' <answer)" = "['offset', '330104', 'element', \
330104, 329976, 3, 17, 1, 3, 'v', 4, 0, 'live', [{'id': 'A', 'token': 65, 'tokens': 1, \
'seen': None}], None]" ]
	[ "$(json 'o["kvtool_json"], o["matches"][1]["holds"]' <answer)" = "(2, 'null')" ]
	# the old name of the key
	[ "$(json 'o["places"] == o["matches"] != []' <answer)" = True ]
}

@test "where takes what it printed" {
	for offset in 128 4711 100001 491647; do
		at=$(kvtool where --offset=$offset "$nhd" | sed -n 's/^  at  *//p')
		[ "$(kvtool where --at="$at" "$nhd" | sed -n 's/^  file  *\([0-9]*\) .*/\1/p')" = $offset ]
	done
	at=$(kvtool where "${tokens[@]}" --offset=$file:777 "$folder" | sed -n 's/^  at  *//p')
	kvtool where "${tokens[@]}" --at="$at" "$folder" | grep -q "^  file  *$file:777 "
}

@test "the header of a file, and what is beyond the data" {
	run -0 --separate-stderr kvtool where --offset=127 --offset=128 --offset=0x78080 "$nhd"
	[ "${lines[2]}" = '  is        header of the file: data begins at byte 128' ]
	[ "${lines[4]}" = '  file      128 (0x80)' ]
	[[ ${lines[5]} == '  memory    0 (0x0)' ]]
	[ "${lines[-1]}" = '  is        beyond the data, which ends at byte 491648' ]
	[ -z "$stderr" ]
	run -0 kvtool where --memory --offset=491520 "$nhd"
	[ "${lines[-1]}" = '  is        beyond the data, which ends at byte 491520' ]
}

@test "the padding of a page" {
	/usr/bin/python3 -c '
import json, numpy, sys
side = json.load(open(sys.argv[1][:-3] + "json"))
pages = numpy.load(sys.argv[1]).reshape(side["file_shape"])
numpy.save("p.npy", numpy.pad(pages, [(0, 0)] * 4 + [(0, 56)]))
side["file_shape"][4] = side["page_bytes"] = 9400
side["file"] = "p.npy"
json.dump(side, open("p.json", "w"))' "$mamba"
	run -0 kvtool where --offset=$((128 + 7 * 9400 + 9344)) p.npy
	[ "${lines[2]}" = '  is        padding of a page: layer 1, block 1, byte 9344 of 9400' ]
	run -0 kvtool where --offset=$((128 + 7 * 9400 + 9343)) p.npy
	[ "${lines[3]}" = '  at        group=ssm,layer=1,block=1,head=7,dim=511,byte=3' ]
	kvtool where --json --memory --offset=9399 p.npy >answer
	[ "$(json '[o["matches"][0][k] for k in ("region", "layer", "block", "page_byte",
		"memory_offset", "offset")]' <answer)" = "['padding', 0, 0, 9399, 9399, None]" ]
	# a snapshot keeps no padding, but knows where it was
	kvtool convert -q p.npy p.h5
	run -0 kvtool where --memory --offset=$((7 * 9400 + 9344)) p.h5
	[ "${lines[2]}" = '  is        padding of a page: layer 1, block 1, byte 9344 of 9400' ]
}

@test "a gap between groups that are separate" {
	kvtool convert -q --uncompressed "$mamba" plain.h5
	conv=$(kvtool where --json --at=group=conv,layer=2,block=5,slot=2,dim=191 plain.h5 |
		json 'o["matches"][0]["offset"]')
	ssm=$(kvtool where --json --at=group=ssm,layer=0,block=0,head=4,dim=0 plain.h5 |
		json 'o["matches"][0]["offset"]')
	[ "$ssm" -gt $((conv + 2)) ]
	run -0 kvtool where --offset=$((conv + 2)) --offset=$((ssm - 1)) --offset="$ssm" plain.h5
	[ "${lines[2]}" = '  is        a gap between the data of the file' ]
	[ "${lines[5]}" = '  is        a gap between the data of the file' ]
	[[ ${lines[8]} == '  memory '* ]]
}

@test "a compressed snapshot: tiles, and offsets in memory only" {
	kvtool convert -q "$nhd" nhd.h5
	expect 0 where-tiles where --memory --offset=330457 \
		--at=layer=3,block=17,slot=5,head=2,kv=v,dim=4 nhd.h5
	refused 4 'stored in compressed tiles' --offset=5000 nhd.h5
	said 'use --memory'
}

@test "heads are those of the model; local_head is that of the rank" {
	run -0 kvtool where --at=layer=0,block=1,slot=0,head=1,kv=k,dim=0 "$tp4"
	a=${lines[1]}
	run -0 kvtool where --at=layer=0,block=1,slot=0,local_head=0,kv=k,dim=0 "$tp4"
	[ "${lines[1]}" = "$a" ]
	[[ $output == *'head      0 on this rank'* ]]
	# the only one of the rank need not be said
	run -0 kvtool where --at=layer=0,block=1,slot=0,kv=k,dim=0 "$tp4"
	[ "${lines[1]}" = "$a" ]
	refused 2 'head is 0, expected 1 to 1' \
		--at=layer=0,block=1,slot=0,head=0,kv=k,dim=0 "$tp4"
	refused 2 'expected one' --at=layer=0,block=1,slot=0,head=1,local_head=0,kv=k,dim=0 "$tp4"
}

@test "folders: the file is part of the offset" {
	run -0 kvtool where "${tokens[@]}" --offset=$file:1000 "$folder"
	[ "${lines[1]}" = "  file      $file:1000 (0x3e8)" ]
	[[ $output == *'layer     model.layers.3.self_attn.attn'* ]]
	[[ $output == *"holds     live: ${file%/*} token "* ]]
	shows 0 'header of the file' where "${tokens[@]}" --offset=$file:3 "$folder"
	refused 2 'several files' "${tokens[@]}" --offset=1000 "$folder"
	refused 2 "has no file 'layout.json'" "${tokens[@]}" --offset=layout.json:0 "$folder"
}

@test "what a folder does not store reads as zeros" {
	# one slot of the second block
	cp -R --no-preserve=mode "$folder/${file%/*}" one
	/usr/bin/python3 -c '
import glob, json, struct
for path in glob.glob("one/*.safetensors"):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    name = next(k for k in head if k != "__metadata__")
    shape = head[name]["shape"]
    shape[0] = 17
    size = 2 * 17 * shape[1] * shape[2]
    head[name]["data_offsets"] = [0, size]
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text +
                           raw[8 + n:8 + n + size])'
	run -0 kvtool where "${tokens[@]}" --at=layer=0,block=1,slot=0,head=0,kv=k,dim=0 \
		--at=layer=0,block=1,slot=1,head=0,kv=k,dim=0 one
	[[ ${lines[1]} == '  file      model.layers.0.self_attn.attn.safetensors:'* ]]
	[ "${lines[5]}" = '  layer     model.layers.0.self_attn.attn' ]
	[ "${lines[6]}" = '  holds     live: one token 16' ]
	[ "${lines[8]}" = '  file      in no file: reads as zeros' ]
	[ "${lines[-1]}" = '  holds     stale: no live token' ]
}

@test "keys and values in buffers of their own" {
	kvtool relayout -q --to=sglang-pool -o pool.safetensors "$nhd"
	at=layer=3,block=17,slot=5,head=2,kv=v,dim=4
	kvtool where --json --at=$at --memory --offset=$((245760 + 165228)) pool.safetensors >answer
	# the values begin behind all keys: ((3*48+17)*16+5)*4+2)*8+4 elements in
	[ "$(json 'o["matches"][1]["memory_offset"]' <answer)" = $((245760 + 2 * ((((3 * 48 + 17) * 16 + 5) * 4 + 2) * 8 + 4))) ]
	offset=$(json 'o["matches"][1]["offset"]' <answer)
	kvtool where --offset="$offset" pool.safetensors | grep -q "^  at  *$at\$"
}

@test "coordinates that are wrong" {
	all=layer=0,block=1,slot=0,head=0,kv=k,dim=0
	refused 2 "there is no key 'layr', did you mean 'layer'?" --at=layr=0 "$nhd"
	refused 2 "there is no key 'x'" --at=x=0 "$nhd"
	refused 2 "'layer', expected KEY=VALUE" --at=layer "$nhd"
	refused 2 "dim is '', expected a value" --at=layer=0,dim= "$nhd"
	refused 2 "'', expected KEY=VALUE" --at= "$nhd"
	refused 2 'layer is given twice' --at=layer=0,layer=1 "$nhd"
	refused 2 "layer is 'one', expected a whole number" --at=layer=one "$nhd"
	refused 2 "layer is '-1', expected a whole number" --at=layer=-1 "$nhd"
	refused 2 'layer is 5, expected 0 to 4' --at=layer=5,block=0 "$nhd"
	refused 2 "layer is '99999999999999999999'" --at=layer=99999999999999999999 "$nhd"
	refused 2 'expected slot, too, such as layer=0,block=1,head=0,kv=k,dim=0,slot=0' --at=layer=0,block=1,head=0,kv=k,dim=0 "$nhd"
	refused 2 'expected kv, too, such as' --at=layer=0,block=1,slot=0,head=0,dim=0 "$nhd"
	refused 2 "kv is 'x', expected k or v" --at=${all/kv=k/kv=x} "$nhd"
	refused 2 'byte is 2, expected 0 to 1' --at=$all,byte=2 "$nhd"
	refused 2 "there is no group 'g1'" --at=$all,group=g1 "$nhd"
	refused 2 'group is missing' --at=$all "$mamba"
	refused 2 'kv is given' --at=layer=0,block=1,slot=0,kv=k,dim=0 "$mla"
	refused 2 'block_id is 48, expected 0 to 47' --at=layer=0,block_id=48,slot=0 "$nhd"
	refused 2 'too long' --at="$all,group=$(printf '%0600d' 0)" "$nhd"
}

@test "requests and tokens that are wrong" {
	rest=layer=0,head=0,kv=k,dim=0
	refused 2 "there is no request 'Z'" --at=request=Z,token=0,$rest "$nhd"
	refused 2 'token is 421, expected 0 to 420' --at=request=A,token=421,$rest "$nhd"
	refused 2 'token is missing, expected 0 to 420' --at=request=A,$rest "$nhd"
	refused 2 'without its request' --at=token=4,block=0,$rest "$nhd"
	refused 2 'expected one of block' --at=request=A,token=4,block=13,$rest "$nhd"
	refused 2 'slot and token' --at=request=A,token=4,slot=4,$rest "$nhd"
}

@test "offsets that are wrong" {
	refused 2 "--offset is '-1'" --offset=-1 "$nhd"
	refused 2 "--offset is '1kk'" --offset=1kk "$nhd"
	refused 2 "--offset is '0x'" --offset=0x "$nhd"
	refused 2 "--offset is '9223372036854775808'" --offset=9223372036854775808 "$nhd"
	refused 2 '--offset: the name is too long' --offset="$(printf '%04096d' 0):1" "$nhd"
	refused 2 "has no file 'other'" --offset=other:1 "$nhd"
	refused 2 "has no group 'g7'" --memory --offset=g7:1 "$nhd"
	shows 0 'beyond' where --memory --offset=g0:1 --offset=9223372036854775807 "$nhd"
}

@test "command lines that are wrong" {
	refused 2 'expected an offset or KEY=VALUE,...' "$nhd"
	refused 2 'is neither an offset nor KEY=VALUE' --offset=1 "$nhd" "$nhd"
	refused 2 'expected a file' --offset=1
	refused 5 'cannot open' --offset=1 nofile
	refused 3 '' --offset=1 "$kv/../README.md"
	# one wrong question and none is answered
	refused 2 'layer is 9' --offset=1 --at=layer=9 "$nhd"
}

@test "where reads no data: 64 GiB of it change nothing" {
	truncate -s 64G r.bin
	small[7]=33554432	# blocks
	run -0 timeout 120 "$KVTOOL" where "${small[@]}" --offset=68719476735 \
		--offset=$((1 << 35)) r.bin
	[ "${lines[3]}" = '  at        layer=1,block=33554431,slot=15,head=1,kv=v,dim=7,byte=1' ]
	[ "${lines[5]}" = '  layer     layers.1' ]
	[ "${lines[6]}" = '  holds     unknown: no block table says which request has it' ]
	[ "${lines[10]}" = '  at        layer=1,block=0,slot=0,head=0,kv=k,dim=0' ]
}

@test "where finds a block by its id, and says which field a byte is of" {
	kvtool slice -q --no-sync --blocks=39:41 -o part.h5 "$nhd"
	run -0 kvtool where --at=block_id=40,layer=0,slot=0,head=0,kv=k,dim=0 part.h5
	[[ $output == *"layer=0,block=40,slot=0"*"position 1 in the dump"*"C token 16"* ]]
	run -0 kvtool where --at=block=40,layer=0,slot=0,head=0,kv=k,dim=0 part.h5
	[[ $output == *"position 1 in the dump"* ]]
	run -0 kvtool where --at=position=1,layer=0,slot=0,head=0,kv=k,dim=0 part.h5
	[[ $output == *"layer=0,block=40,slot=0"* ]]
	refused 2 "no block of group g0 has id 1" \
		--at=block=1,layer=0,slot=0,head=0,kv=k,dim=0 part.h5
	refused 2 'position is 2, expected 0 to 1' \
		--at=position=2,layer=0,slot=0,head=0,kv=k,dim=0 part.h5
	refused 2 'expected one of block, position and request' \
		--at=position=1,block=40,layer=0,slot=0,head=0,kv=k,dim=0 part.h5
	refused 2 "no block of group g0 has id 1" \
		--at=block_id=1,layer=0,slot=0,head=0,kv=k,dim=0 part.h5
	# 512 fp8 numbers, 4 float32 scales, 64 bfloat16 numbers
	head -c $((2 * 3 * 64 * 656)) /dev/zero >ds.bin
	for row in '511 nope 511' '520 scales 2' '655 rope 63'; do
		read -r dim part number <<<"$row"
		kvtool where --json --layout=LBSC --content-type=fp8-ds-mla --layers=2 \
			--blocks=3 --block-size=64 --at=layer=1,block=2,slot=3,dim="$dim" ds.bin >answer
		[ "$(jq -c '.matches[0] | [.part, .part_dim, .row]' answer)" = \
			"[\"$part\",$number,0]" ]
	done
}
