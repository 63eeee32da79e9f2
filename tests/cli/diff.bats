#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# diff.bats - kvtool diff: statuses, refusals and what is printed
# (every figure: tests/oracle_diff.py)

load common
load dumps

bs32=$kv/s260k/paged_bs32/packed_nhd.bf16.npy
fp16=$kv/s260k/paged_bs16/packed_nhd.fp16.npy
gqa=$kv/gqa64/paged_bs16/packed_nhd.bf16.npy

# damaged [OPTION...]: nhd with keys and values of one block exchanged
damaged() {
	kvtool mutate -q --fault=swap-kv,layer=2,block=17 -o "${1:-bad.npy}" "$nhd"
}

@test "equal dumps: 0, and a line for each group" {
	run -0 kvtool diff "$nhd" "$rocm"
	[ "${#lines[@]}" = 1 ]
	[[ $output == "g0: equal, 220480 elements: 5 layers x 689 tokens x 4 heads x 16" ]]
	run -0 kvtool diff -q "$nhd" "$hnd"
	[ -z "$output" ]
}

@test "different ones: 1, with the first place and the fault" {
	damaged
	expect 1 diff-fault diff --top=1 --map "$(basename_of "$nhd")" bad.npy
	run -1 kvtool diff -q "$nhd" bad.npy
	[ -z "$output" ]
	run -1 kvtool diff --no-diagnosis --top=0 "$nhd" bad.npy
	[[ $output != *fault* && $output != *worst* ]]
}

# a name that is the same wherever the tree lies
basename_of() {
	cp "$1" "${1%.npy}.json" .
	echo "${1##*/}"
}

@test "a channel by its number in the model, and by that in each dump" {
	rank1=$kv/mamba2g4/tp4_DS/rank1.npy
	kvtool mutate -q --fault=flip-bits -o bad.npy "$rank1"
	run -1 kvtool diff --top=0 "$rank1" bad.npy
	[[ $output == *"request A entry 2, block 1 slot 1, channel 273 (dim 65)"* ]]
	shows 1 'channel 273 (dim 273 in A, 65 in B)' diff --top=0 \
		"$kv/mamba2g4/tp1_DS/rank0.npy" : bad.npy "$kv"/mamba2g4/tp4_DS/rank[023].npy
	kvtool where --at=group=conv,layer=0,block=1,slot=1,dim=65 bad.npy |
		grep -q 'B 1, 273 in the model'
}

@test "a request that is matched is not compared again by its name" {
	# of A and of B the first 188 tokens, and C; not B with B as well
	shows 1 'only in A: request B in g0|only in B: request A in g0|5 layers x 268 tokens' \
		diff --match=A=B --common --top=0 "$nhd" "$nhd"
	shows 1 '5 layers x 456 tokens' diff --match=A=B --match=B=A --common --top=0 "$nhd" "$nhd"
	tells 2 'A=B|C=B' diff --match=A=B --match=C=B "$nhd" "$nhd"
	run -2 --separate-stderr kvtool diff --match=A=B --match=A=C "$nhd" "$nhd"
}

@test "two types that only rounding keeps apart need no fault" {
	run -1 kvtool diff --exact --top=0 "$nhd" "${nhd/bf16/fp16}"
	[[ $output == *"fault   none: rounding alone"*"(0 elements;"* ]]
	[[ $output != *"explains"* ]]
}

@test "requests that nobody has are not matched" {
	tells 3 "'A=Z'|'A'" diff --match=A=Z "$nhd" "$nhd"
	tells 3 "'Z=A'" diff --match=Z=A "$nhd" "$nhd"
	run -0 kvtool diff --match=A=A "$nhd" "$hnd"
}

@test "two sides, not three" {
	tells 2 'or ranks: kvtool diff whole.npy : rank' diff "$nhd" : "$nhd" : "$nhd"
}

@test "beside zeros a cosine is undefined, not -nan" {
	kvtool mutate -q --fault=zero-tail,offset=0 -o zero.npy "$nhd"
	shows 1 'rel-l2 1, cosine undefined, PCC undefined' diff --top=0 "$nhd" zero.npy
	shows 1 'rel-l2 undefined, cosine undefined' diff --top=0 zero.npy "$nhd"
	kvtool diff --json zero.npy "$nhd" | json 'o["groups"][0]["metrics"]["rel_l2"]' | grep -q None
}

@test "what cannot be compared: 3, and never 0" {
	tells 3 'g0|8 elements a head in A and 64 in B' diff "$nhd" "$gqa"
	tells 3 'nothing in common|full_attention|mla' diff "$nhd" "$mla"
	tells 3 'nothing in common' diff "$nhd" "$kv/mamba2g4/tp1_DS/rank0.npy"
	tells 3 'bfloat16|float16|--tolerance=auto|--exact' diff "$nhd" "$fp16"
	tells 3 '16 slots|32' diff --by=blocks "$nhd" "$bs32"
	tells 3 'ulp needs the same type' diff --tolerance=ulp=1 "$nhd" "$fp16"
}

@test "parts that one side lacks: 3, or what is common" {
	kvtool slice -q --layers=1:4 -o layers.npy "$nhd"
	tells 3 'only A has layers 0, 4 of g0|--common' diff "$nhd" layers.npy
	tells 3 'only B has layers 0, 4 of g0' diff layers.npy "$nhd"
	run -0 kvtool diff --common layers.npy "$nhd"
	[[ ${lines[0]} == "only in B: layers 0, 4 of g0 (full_attention)" ]]
	[[ ${lines[1]} == "g0: equal, 132288 elements: 3 layers "* ]]
	kvtool slice -q --request=B -o request.npy "$nhd"
	tells 3 'only B has request A' diff request.npy "$nhd"
	shows 0 '5 layers x 188 tokens' diff --common request.npy "$nhd"
	kvtool slice -q --layers=0:1 -o first.npy "$nhd"
	tells 3 'nothing in common|layer 0|layer 1' diff --common first.npy layers.npy
	kvtool slice -q --heads=0:2 -o low.npy "$nhd"
	kvtool slice -q --heads=2:4 -o high.npy "$nhd"
	tells 3 'heads 0 to 1|heads 2 to 3|none in common' diff --common low.npy high.npy
}

@test "keys alone, values alone" {
	kvtool slice -q --component=k -o k.npy "$nhd"
	kvtool slice -q --component=v -o v.npy "$nhd"
	tells 3 'keys alone|values alone' diff k.npy v.npy
	tells 3 'only A has values of g0' diff "$rocm" k.npy
	run -0 kvtool diff --common "$rocm" k.npy
	run -0 kvtool diff --common v.npy "$rocm"
	[[ $output == *"g0: equal, 110240 elements: 5 layers x 689 tokens x 4 heads x 8" ]]
	kvtool mutate -q --fault=scale,kv=1,factor=2 -o twice.npy "$nhd"
	run -0 kvtool diff --common twice.npy k.npy
	run -1 kvtool diff --json --common twice.npy v.npy
	[ "$(json 'o["groups"][0]["first"]["kv"]' <<<"$output")" = 1 ]
	run -0 kvtool diff --common --scale-b=1,2 twice.npy v.npy
	run -1 kvtool diff -q --common --scale-b=2,1 twice.npy v.npy
}

@test "some tokens of a request" {
	damaged
	kvtool slice -q --request=A --tokens=50:200 -o some.npy bad.npy
	tells 3 'only A has tokens 0 to 49 of request A|3 more' diff "$bs32" some.npy
	run -1 kvtool diff --json --common "$bs32" some.npy
	[ "$(json 'o["groups"][0]["elements"]' <<<"$output")" = 48000 ]
	[ "$(json 'o["groups"][0]["first"]["token"]' <<<"$output")" = 64 ]
	[ "$(json 'o["groups"][0]["diagnosis"]["decided"]' <<<"$output")" = swap-kv ]
	kvtool slice -q --request=A --tokens=0:40 -o none.npy "$nhd"
	tells 3 'no token' diff --common some.npy none.npy
}

@test "a side of several ranks" {
	run -0 kvtool diff "$nhd" : "$kv"/s260k/tp4/*.safetensors
	run -0 kvtool diff "$kv"/s260k/tp2/*.safetensors : "$kv"/s260k/tp4/*.safetensors
	tells 3 'rank 2' diff "$nhd" : "$kv"/s260k/tp4/rank[013]*.safetensors
	tells 2 'or ranks: kvtool diff whole.npy : rank' diff "$nhd" "$nhd" "$nhd"
	run -2 --separate-stderr kvtool diff "$nhd" :
	run -2 --separate-stderr kvtool diff : "$nhd"
	run -2 --separate-stderr kvtool diff "$nhd"
	run -2 --separate-stderr kvtool diff
}

@test "a fault in one rank is found through all of them" {
	local ranks=("$kv"/s260k/tp2/*.safetensors)
	kvtool mutate -q --fault=zero-block,layer=3,block=20 -o rank1.npy "${ranks[1]}"
	run -1 kvtool diff --json "$nhd" : "${ranks[0]}" rank1.npy
	[ "$(json 'o["groups"][0]["first"]["head"]' <<<"$output")" = 2 ]
	[ "$(json 'o["groups"][0]["first"]["layer"]' <<<"$output")" = 3 ]
	[ "$(json 'o["groups"][0]["first"]["b"]["block"]' <<<"$output")" = 20 ]
	[ "$(json 'o["groups"][0]["first"]["b"]["file"]' <<<"$output")" = rank1.npy ]
}

@test "digests and checksums answer without decoding, and say so" {
	kvtool convert -q "$nhd" a.h5
	kvtool relayout -q --to=hnd -o b.h5 a.h5
	shows 0 'by digest and checksum (--deep decodes the data)$' diff a.h5 b.h5
	run -0 kvtool diff --deep a.h5 b.h5
	[[ $output != *digest* ]]
	damaged bad.h5
	shows 1 'at memory offset |fault   swap-kv' diff --top=0 a.h5 bad.h5
}

@test "a digest is not believed of data that is damaged since" {
	local option
	for option in "" --uncompressed; do
		kvtool convert -q -f $option "$nhd" a.h5
		cp a.h5 b.h5
		printf 'XXXXXXXXXXXXXXXX' | dd of=b.h5 bs=1 seek=200000 conv=notrunc status=none
		tells 3 'b.h5|damaged' diff a.h5 b.h5
	done
}

@test "tolerances are read strictly" {
	local bad
	for bad in x atol atol= atol=x atol=-1 "atol=1,atol=2" cosine=2 "rtol= 1" \
		"" "auto," nan=1 rtol=nan rtol=inf; do
		tells 2 '--tolerance' diff --tolerance="$bad" "$nhd" "$fp16"
	done
	run -0 kvtool diff --tolerance=auto "$nhd" "$fp16"
	run -0 kvtool diff --tolerance=atol=0.1,cosine=0.99,pcc=0.99,rel-l2=0.01 "$nhd" "$fp16"
	shows 1 'broken  rel-l2' diff --tolerance=atol=0.1,rel-l2=0.001 "$nhd" "$fp16"
	run -1 kvtool diff --exact --top=0 "$nhd" "$fp16"
	tells 2 '--exact|--tolerance' diff --exact --tolerance=auto "$nhd" "$fp16"
}

@test "other options that are wrong" {
	tells 2 'tokens|blocks' diff --by=heads "$nhd" "$hnd"
	tells 2 '100' diff --top=101 "$nhd" "$hnd"
	tells 2 '' diff --match=A "$nhd" "$hnd"
	for bad in 0 -1 x 1, 1,2,3 inf; do
		tells 2 '--scale-a' diff --scale-a="$bad" "$nhd" "$fp16"
	done
	tells 2 '.svg' diff --heatmap=map.png "$nhd" "$hnd"
	small_raw a.bin
	tells 3 'block tables' diff --by=tokens "${small[@]}" a.bin a.bin
	shows 0 '2 layers x 48 slots' diff "${small[@]}" a.bin a.bin
	tells 5 'nothing.npy' diff "$nhd" nothing.npy
}

@test "scales make up for a factor" {
	kvtool mutate -q --fault=scale,kv=2,factor=2 -o twice.npy "$nhd"
	run -1 kvtool diff -q "$nhd" twice.npy
	run -0 kvtool diff --exact --scale-b=0.5 "$nhd" twice.npy
	kvtool mutate -q --fault=scale,kv=1,factor=2 -f -o twice.npy "$nhd"
	run -0 kvtool diff --scale-a=1,2 "$nhd" twice.npy
	run -1 kvtool diff -q --scale-a=2 "$nhd" twice.npy
}

@test "files of maps are whole or not there" {
	damaged
	touch map.svg
	tells 5 'map.svg|--force' diff --heatmap=map.svg "$nhd" bad.npy
	[[ -z $output && ! -s map.svg ]]
	run -1 kvtool diff -q -f --heatmap=map.svg "$nhd" bad.npy
	grep -q '</svg>' map.svg
	warns 5 'no/map.csv' diff --heatmap=no/map.csv "$nhd" bad.npy
	run -0 kvtool diff --heatmap=equal.svg "$nhd" "$hnd"
	grep -q 'nothing differs' equal.svg
	only bad.json bad.npy map.svg equal.svg
}

@test "names in a picture are text, whatever they are" {
	damaged
	mv bad.npy '<b>&"x.npy'
	mv bad.json '<b>&"x.json'
	run -1 kvtool diff -q --heatmap=map.svg "$nhd" '<b>&"x.npy'
	/usr/bin/python3 -c 'import xml.etree.ElementTree as e
t = e.parse("map.svg").getroot()[0].text
assert t.endswith("<b>&\"x.npy"), t'
}

@test "findings do not depend on threads or memory" {
	kvtool mutate -q --fault=rope-pairs -o bad.npy "$nhd"
	kvtool diff --json --threads=1 "$bs32" bad.npy >one || [ $? = 1 ]
	kvtool diff --json --threads=7 "$bs32" bad.npy >seven || [ $? = 1 ]
	cmp one seven
	kvtool diff --json --mem-limit=4M "$bs32" bad.npy >little || [ $? = 1 ]
	[ "$(json 'o["groups"][0]["metrics"]["different"]' <one)" = \
		"$(json 'o["groups"][0]["metrics"]["different"]' <little)" ]
}

@test "a damaged tile is reported with its file" {
	kvtool convert -q "$nhd" a.h5
	cp a.h5 b.h5
	# in the middle of the data
	printf 'XXXXXXXXXXXXXXXX' | dd of=b.h5 bs=1 seek=200000 conv=notrunc status=none
	tells 3 'b.h5' diff --deep a.h5 b.h5
}

@test "diff of nothing with nothing is no difference" {
	dump() {	# name, blocks, tables
		head -c $(($2 * 16)) /dev/urandom >"$1.bin"
		cat >"$1.bin.json" <<-END
			{"layout": "nhd", "dtype": "uint8", $3
			 "sizes": {"layers": 1, "num_blocks": $2, "block_size": 4,
			           "num_kv_heads": 1, "head_dim": 2}}
		END
	}
	dump none 0 ''
	dump idle 2 '"block_table": {"A": []}, "num_tokens": {"A": 0},'
	dump busy 2 '"block_table": {"A": [1]}, "num_tokens": {"A": 3},'
	shows 0 '^g0: equal, 0 elements' diff none.bin none.bin
	shows 0 '^g0: equal, 0 elements' diff --by=tokens idle.bin idle.bin
	# blocks that no request has are something
	shows 0 '^g0: equal, 32 elements' diff idle.bin idle.bin
	run -3 kvtool diff idle.bin busy.bin
	run -3 kvtool diff none.bin busy.bin
}

@test "diff of equal dumps has an empty heat map of text" {
	kvtool convert -q --no-sync "$kv/s260k/paged_bs16/packed_nhd.bf16.npy" a.h5
	for kind in txt csv json svg; do
		kvtool diff -q --heatmap="map.$kind" a.h5 a.h5
		[ -e "map.$kind" ]
	done
}

@test "diff takes what --set says for each side whose format knows it" {
	local chunks=$root/testdata/engines/lmcache/fs_meta_mla

	echo "A 20b01bccd391499a -5bb1487eac7d7b74" >order
	kvtool convert -q --no-sync --set=order=order "$chunks" a.h5
	run -0 kvtool diff --set=order=order a.h5 "$chunks"
	run -0 kvtool diff --set=order=order "$chunks" a.h5
	# the requests of a store without an order are others
	run -3 kvtool diff --by=tokens a.h5 "$chunks"
	run -5 kvtool diff --set=order=nowhere a.h5 "$chunks"
}

@test "what is said of inputs is true of one of them" {
	local hnd=$kv/s260k/paged_bs16/packed_hnd.bf16.npy
	kvtool diff --layout=hnd "$nhd" "$hnd"
	run -3 --separate-stderr kvtool diff --layers=77 "$nhd" "$hnd"
	[[ $stderr == *"packed_hnd.bf16.npy: --layers is 77, but group g0 has 5" ]]
	tells 3 ': --layers is 77, but group g0 has 5$' copy-blocks --layers=77 --blocks=1:1 -o \
		x.h5 "$nhd" "$hnd"
	tells 3 ': --layers is 77, but group g0 has 5$' transfer-sim --layers=77 "$nhd" "$hnd"
}

@test "where: every axis that tells something, exactly" {
	/usr/bin/python3 - "$nhd" <<-'EOF'
	import json, sys
	import numpy as np
	a = np.load(sys.argv[1])
	side = json.load(open(sys.argv[1][:-3] + "json"))
	spots = side["block_table"]["A"]
	for token in (16, 17, 18, 40):			# values of heads 0 and 3
	    block, slot = spots[token // 16], token % 16
	    a[1::2, block, slot, 0, 1, 1] ^= 1
	    a[1::2, block, slot, 3, 1, 1:3] ^= 1
	np.save("spots.npy", a)
	json.dump(dict(side, file="spots.npy"), open("spots.json", "w"))
	for token in range(0, 40, 2):
	    a[:, spots[token // 16], token % 16] ^= 1
	np.save("many.npy", a)
	json.dump(dict(side, file="many.npy"), open("many.json", "w"))
	EOF
	run -1 kvtool diff --top=0 "$nhd" spots.npy
	[[ $output == *'  where   layers 1, 3; heads 0, 3; tokens 16-18, 40 of A, 16-18 of B; blocks 14-15; values; dims 1-2'$'\n'* ]]
	run -1 kvtool diff --top=0 "$nhd" many.npy
	[[ $output == *'  where   tokens 0, 2, 4, 6, 8, 10, 12, 14 of A, ... (39 of 689); '* ]]
}

@test "--table: the worst rows first, and how many more there are" {
	kvtool mutate --fault=swap-kv,layer=2,block=17 "$nhd" bad.npy
	run -1 kvtool diff --top=2 --table=layer,kv --table=token "$nhd" bad.npy
	[[ $output == *$'  by layer  cosine '*$'\n    2       0.975167802 '*'(1024 of 44096)'$'\n    and 4 that are equal'$'\n'* ]]
	[[ $output == *$'  by token '*$'\n    A 77 '*' 0.741997972 '*$'\n    A 78 '*$'\n    and 14 more that differ (--top=16)\n    and 673 that are equal\n'* ]]
	[[ $output == *$'  by kv   '*$'\n    values '*$'\n    keys '* ]]
	run -0 kvtool diff --table=layer,token "$nhd" "$hnd"
	[[ $output == "g0: equal, 220480 elements"* && $output != *"by layer"* ]]
	run -1 kvtool diff --top=0 --by=blocks --table=token,request "$nhd" bad.npy
	[[ $output == *'block 17 slot 13 '* && $output == *'by request: g0 has none'* ]]
	tells 2 "'layer,rows'|layer, head, token" diff --table=layer,rows "$nhd" bad.npy
}

@test "--table: what does not fit into memory is refused" {
	/usr/bin/python3 - <<-'EOF'
	import numpy as np
	a = np.zeros([1, 2000, 16, 1, 2, 8], np.float32)
	np.save("a.npy", a)
	a[0, 1999, 15] = 1
	np.save("b.npy", a)
	EOF
	local like=(--layout="L B S H K D" a.npy b.npy)

	tells 4 '32000 tokens|--mem-limit' diff --table=token --mem-limit=8M "${like[@]}"
	run -1 kvtool diff --table=layer --mem-limit=8M "${like[@]}"
	run -1 kvtool diff --top=0 --table=token --mem-limit=64M "${like[@]}"
	[[ $output == *"block 1999 slot 15  undefined    undefined    1 "*"and 31999 that are equal"* ]]
}

@test "requests of other names: paired by what they hold, said, or asked" {
	local json=${nhd%npy}json

	cp "$nhd" b.npy
	sed -e 's/"A"/"run-7f3a"/g; s/"C"/"run-001c"/g; s/packed_nhd.bf16/b/' "$json" >b.json
	shows 0 '^request A of A is run-7f3a of B: | tokens that were read are alike|request C of A is run-001c of B: |g0: equal, 220480 elements' \
		diff "$nhd" b.npy
	run -0 kvtool diff --json --match=A=run-7f3a "$nhd" b.npy
	[[ $(jq -c '[.paired[] | .a, .b, .by]' <<<"$output") == '["C","run-001c","content"]' ]]
	# zeros say nothing
	/usr/bin/python3 -c 'import numpy as np; np.save("b.npy", np.load("b.npy") * 0)'
	tells 3 '--match=A=run-7f3a --match=C=run-001c' diff "$nhd" b.npy
	run -1 kvtool diff -q --match=A=run-7f3a --match=C=run-001c "$nhd" b.npy
}

@test "pages of stores are compared by key, not by number" {
	/usr/bin/python3 - <<-'EOF'
	import os
	import numpy as np
	def store(folder, pages):
	    os.mkdir(folder)
	    for key, x in pages.items():
	        x.tofile(f"{folder}/{key * 32}_tiny_0_1.bin")
	r = np.random.default_rng(1)
	pages = {k: r.standard_normal((2, 4, 3, 2, 8), "f4") for k in ("aa", "bb", "cc", "dd")}
	store("old", pages)
	pages["cc"] = pages["cc"].copy()
	pages["cc"][:, 1] += 1
	store("same", {k: pages[k] for k in ("bb", "dd")})
	store("new", {k: pages[k] for k in ("bb", "cc", "dd")} | {"99": pages["aa"]})
	store("none", {"ee": pages["aa"]})
	EOF
	local like=(--from=hicache-page-first --dtype=float32 --layers=3 --heads=2
		    --head-dim=8 --block-size=4)
	local c; c=$(printf 'cc%.0s' {1..32})

	run -0 kvtool diff --common "${like[@]}" old same
	[[ $output == "only in A: 2 pages of g0 (aaaa"*", ...)"$'\n'"g0: equal, "* ]]
	tells 3 'only A has 1 page of g0 (aaaa' diff "${like[@]}" old new
	run -1 kvtool diff --common --top=1 --table=block,token "${like[@]}" old new
	[[ $output == *", page $c slot 1, head 0, key, dim 0"$'\n'* ]]
	[[ $output == *"  where   pages cccccccccccccccc...; all layers, heads, "* ]]
	[[ $output == *"  by block "*"    $c "*"    and 2 that are equal"* ]]
	[[ $output == *"    $c slot 1 "* ]]
	run -1 kvtool diff --json --common --table=block "${like[@]}" old new
	[[ $(jq -r '.groups[0] | .first.page, .where.pages[], .tables.block[].page' \
		<<<"$output") == "$c"$'\n'"$c"$'\n'"$c" ]]
	tells 3 'no page of one key in common' diff --common "${like[@]}" old none
}

@test "two arrays of unlike shapes are asked for layouts, and for blocks, at once" {
	/usr/bin/python3 - <<-'END'
	import numpy as np
	a = np.arange(2 * 2 * 8 * 4 * 2 * 8, dtype=np.float16).reshape(2, 2, 8, 4, 2, 8)
	np.save("fine.npy", a)
	np.save("coarse.npy", a.reshape(2, 2, 4, 8, 2, 8))
	END
	run -3 --separate-stderr kvtool diff coarse.npy fine.npy
	[[ $stderr == *"--a=layout="*"kvtool reblock brings both to one; or --by=tokens, with --blocks-of="* ]]
	run -0 kvtool diff --layout=kv-first-nhd --by=tokens --blocks-of=A=0-3:16 coarse.npy fine.npy
	run -3 --separate-stderr kvtool diff fine.npy fine.npy
	[[ $stderr != *reblock* ]]
}
