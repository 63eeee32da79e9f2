#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# manifest.bats - a manifest is used for its own data and for no other

load common
load dumps

# proof FILE [OPTION...]: what describe says of the manifest
proof() {
	kvtool describe --json "${@:2}" "$1" | jq -r '.manifest | .proof // "no manifest"'
}

# refused_as FACT... -- COMMAND...: status 3, one sentence that has each fact
refused_as() {
	local facts=()
	while [ "$1" != -- ]; do
		facts+=("$1")
		shift
	done
	run -3 --separate-stderr "${@:2}"
	one_sentence
	said "${facts[@]}"
}

@test "every writer of arrays writes what proves them" {
	kvtool convert -q "$nhd" a.npy
	kvtool convert -q "$nhd" a.bin
	kvtool relayout -q --to=hnd -o b.npy "$nhd"
	kvtool slice -q --layers=1 -o c.npy "$nhd"
	kvtool reblock -q -b 32 -o d.npy "$nhd"
	kvtool mutate -q --fault=flip-bits -o e.npy "$nhd"
	kvtool copy-blocks -q --blocks=1:2 -o f.npy "$nhd" "$nhd"
	cp "$hnd" g.npy
	kvtool guess --write-manifest=g.json --block-size=16 --heads=4 --head-dim=8 \
		--layers=5 --dtype=bf16 g.npy >/dev/null
	local name
	for name in a.npy a.bin b.npy c.npy d.npy e.npy f.npy g.npy; do
		[ "$(proof $name)" = samples ] || { echo "$name: $(proof $name)"; return 1; }
	done
}

@test "describe says what a manifest proves" {
	[ "$(proof "$nhd")" = none ]
	run -0 kvtool describe "$nhd"
	[[ "$output" == *"manifest  ${nhd%.npy}.json: does not prove that it belongs to the data"* ]]
	kvtool convert -q "$nhd" a.npy
	shows 0 'manifest  a.json: matches size and checksum of the file' describe a.npy
	kvtool convert -q "$nhd" a.safetensors
	[ "$(proof a.safetensors)" = header ]
	[ "$(kvtool describe --json a.safetensors | jq .manifest.file)" = null ]
	kvtool convert -q "$nhd" a.h5
	[ "$(proof a.h5)" = 'no manifest' ]
	jq 'del(.sample_crc32)' a.json >b.json
	cp a.npy b.npy
	shows 0 'manifest  b.json: matches the size of the file' describe b.npy --manifest=b.json
	printf x | dd of=a.npy bs=1 seek=4000 conv=notrunc status=none
	run -0 kvtool describe --trust-manifest a.npy
	[[ "$output" == *'manifest  a.json: of other data, used because of --trust-manifest'* ]]
}

@test "other data under a manifest are refused by every command, with both facts" {
	kvtool convert -q "$nhd" a.npy
	kvtool mutate -q --fault=swap-kv -o b.npy "$nhd"
	cp b.npy a.npy
	local a b
	a=$(jq .sample_crc32 a.json) b=$(jq .sample_crc32 b.json)
	local facts=(a.npy a.json "$a" "$b" --manifest --trust-manifest)
	refused_as "${facts[@]}" -- kvtool describe a.npy
	refused_as "${facts[@]}" -- kvtool convert a.npy out.h5
	refused_as "${facts[@]}" -- kvtool relayout --to=hnd -o out.npy a.npy
	refused_as "${facts[@]}" -- kvtool digest a.npy
	refused_as "${facts[@]}" -- kvtool diff a.npy "$nhd"
	refused_as "${facts[@]}" -- kvtool slice --layers=1 -o out.npy a.npy
	refused_as "${facts[@]}" -- kvtool reblock -b 32 -o out.npy a.npy
	refused_as "${facts[@]}" -- kvtool mutate --fault=flip-bits -o out.npy a.npy
	refused_as "${facts[@]}" -- kvtool where --offset=200 a.npy
	refused_as "${facts[@]}" -- kvtool expect write -o out.kvc a.npy
	refused_as "${facts[@]}" -- kvtool copy-blocks --blocks=1:2 -o out.npy a.npy "$nhd"
	refused_as "${facts[@]}" -- kvtool merge -o out.npy a.npy
	refused_as a.npy a.json -- kvtool transfer-sim exec --dst=tp=1,layout=hnd -o out.npy a.npy
	only a.npy a.json b.npy b.json
	run -1 kvtool fsck a.npy
	[ "${#lines[@]}" = 2 ]
	[[ ${lines[0]} == "a.npy: error: manifest.mismatch: samples have CRC-32 $b, but manifest a.json was written for a.npy with $a;"* ]]
}

@test "--trust-manifest reads them, and what is written then is proven" {
	kvtool convert -q "$nhd" a.npy
	kvtool mutate -q --fault=flip-bits -o b.npy "$nhd"
	cp b.npy a.npy
	[ "$(proof a.npy --trust-manifest)" = failed ]
	run -0 kvtool convert --trust-manifest a.npy new.npy
	[ "$(proof new.npy)" = samples ]
	same_array new.npy b.npy
	same_digest new.npy b.npy
	run -0 kvtool fsck --trust-manifest --fast a.npy
}

@test "a file that is too short or too long is refused with both sizes" {
	kvtool convert -q "$nhd" a.bin
	truncate -s -1024 a.bin
	refused_as a.bin a.bin.json 'has 490496 bytes' 'with 491520 bytes' -- kvtool describe a.bin
	truncate -s 491521 a.bin
	refused_as 'has 491521 bytes' 'with 491520 bytes' -- kvtool describe a.bin
}

@test "a pair may be renamed, and its manifest named" {
	kvtool convert -q "$nhd" a.npy
	mv a.npy b.npy
	mv a.json b.json
	[ "$(proof b.npy)" = samples ]
	mv b.json other.json
	[ "$(proof b.npy --manifest=other.json)" = samples ]
	mkdir folder
	cp b.npy folder/c.npy
	cp other.json folder/c.npy.json
	[ "$(proof folder/c.npy)" = samples ]
	kvtool convert -q "$hnd" d.npy
	refused_as d.npy other.json -- kvtool describe --manifest=other.json d.npy
}

@test "a manifest of the file beside is not taken for this one" {
	kvtool convert -q "$nhd" h.npy
	kvtool relayout -q --to=hnd -o h.bin h.npy
	only h.npy h.json h.bin h.bin.json
	[ "$(kvtool describe --json h.npy | jq -r '.groups[0].layout')" = LBSHC ]
	[ "$(kvtool describe --json h.bin | jq -r '.groups[0].layout')" = LBHSC ]
	same_digest h.npy h.bin
	rm h.bin.json
	refused_as h.bin 'belongs to another file' -- kvtool describe h.bin
	cp h.npy i.npy
	sed 's/"file":"h.npy","file_bytes":[0-9]*,"sample_crc32":[0-9]*/"file":"h.npy"/' h.json >i.json
	refused_as 'belongs to another file' -- kvtool describe i.npy
	# options alone describe it, as if there were no manifest
	run -0 kvtool describe --json --layout=hnd --dtype=bfloat16 --layers=5 --block-size=16 \
		--heads=4 --head-dim=8 h.bin
	[ "$(jq .manifest <<<"$output")" = null ]
	# where the other one is gone, nothing tells whose it is
	mv h.npy elsewhere
	refused_as i.npy i.json h.npy -- kvtool describe i.npy
	[ "$(proof i.npy --trust-manifest)" = none ]
	[ "$(proof i.npy --manifest=i.json)" = none ]
}

@test "old pairs are read, and not overwritten by another file's" {
	small_raw x.bin
	cat >x.json <<-'END'
	{"file": "x.bin", "layout": "nhd", "dtype": "bfloat16", "sizes": {"layers": 2,
	 "num_blocks": 3, "block_size": 16, "num_kv_heads": 2, "head_dim": 8}}
	END
	cp x.json before
	[ "$(proof x.bin)" = none ]
	run -5 --separate-stderr kvtool convert "$nhd" x.npy
	tells 5 'x.json|manifest of x.bin|another name' convert -f "$nhd" x.npy
	cmp x.json before
	only x.bin x.json before
	# written anew it gets a name of its own, which is looked for first
	kvtool convert -q x.bin y.bin
	mv y.bin x.bin
	mv y.bin.json x.bin.json
	[ "$(proof x.bin)" = samples ]
	tells 2 'z.json' convert --format=raw "$nhd" z.json
}

@test "half of a new pair is refused whichever half it is" {
	local ending
	for ending in npy bin; do
		kvtool relayout -q --to=hnd -o old.$ending "$nhd"
		kvtool relayout -q --to=blshc -o new.$ending "$nhd"
		local side=json
		[ $ending = npy ] || side=bin.json
		cp new.$ending mixed.$ending
		sed "s/old.$ending/mixed.$ending/" old.$side >mixed.$side
		refused_as mixed.$ending -- kvtool describe mixed.$ending
		cp old.$ending mixed.$ending
		sed "s/new.$ending/mixed.$ending/" new.$side >mixed.$side
		refused_as mixed.$ending -- kvtool describe mixed.$ending
		sed "s/old.$ending/mixed.$ending/" old.$side >mixed.$side
		run -0 kvtool describe mixed.$ending
	done
}

@test "what a manifest says wrongly of a file is malformed" {
	kvtool convert -q "$nhd" a.npy
	cp a.json good
	local field
	for field in '"file_bytes":-1' '"file_bytes":"491648"' '"file_bytes":1.5' \
		'"sample_crc32":-1' '"sample_crc32":4294967296' '"sample_crc32":"0"'; do
		sed "s/${field%%:*}:[0-9]*/$field/" good >a.json
		refused_as a.json -- kvtool describe a.npy
	done
}
