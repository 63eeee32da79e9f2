#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# plain.bats - thirty tasks as somebody types them who has read kvtool help alone: the
# first try works, or its message says what to type and that works

load common
load dumps

setup_file() {
	export engines=$PWD/testdata/engines
}

# prints TEXT ARG...: it works and the answer has TEXT
prints() {
	run -0 kvtool "${@:2}"
	[[ $output == *"$1"* ]] || { echo "no '$1' in: $output"; return 1; }
}

bare() {
	cp "$nhd" bare.npy
}

@test "1. what is in an .npy that says nothing: all is asked for at once" {
	bare
	tells 3 'array of 2-byte elements, 5 x 48 x 16 x 4 x 2 x 8, no manifest' \
		describe bare.npy
	said 'could be nhd (5 layers, 48 blocks of 16 tokens, 4 heads of 8), hnd (5, 48 of 4, 16 of 8),' 'give --layout and --dtype' 'kvtool guess'
	prints 'heads     4' describe --layout=nhd --dtype=bf16 bare.npy
}

@test "2. whose byte is this" {
	prints 'A token 69' where "$nhd" 330584
	prints 'A token 69' where 330584 "$nhd"
	prints 'A token 69' where "$nhd" 0x50b58
}

@test "3. another layout, proven" {
	prints 'verified equal' relayout --to=hnd --verify "$nhd" out.npy
	cmp out.npy "$hnd"
	tells 2 "did you mean 'hnd'" relayout --to=hdn "$nhd" bad.npy
	tells 4 "did you mean 'hnd'" relayout --to=HDN "$nhd" bad.npy
	tells 2 "did you mean --to" relayout --target-layout=hnd "$nhd" bad.npy
}

@test "4. what rank 1 of 4 holds" {
	kvtool slice --tp=1/4 "$nhd" a.npy
	tells 2 '--tp-size=4 needs --tp-rank, one of 0 to 3' slice --tp=4 "$nhd" b.npy
	kvtool slice --tp-size=4 --tp-rank=1 -o b.npy "$nhd"
	cmp a.npy b.npy
	tells 2 'did you mean --tp?' slice --rank=1/4 "$nhd" c.npy
	tells 2 'expected a rank and how many' slice --tp=1/0 "$nhd" c.npy
	tells 2 '--tp-rank is 4 of 4 ranks, expected less' slice --tp=4/4 "$nhd" c.npy
	tells 2 'expected one of them' slice --tp=1/4 --tp-rank=1 "$nhd" c.npy
	tells 2 'expected one of them' slice --tp=1/4 --tp-size=4 "$nhd" c.npy
}

@test "5. two dumps of other block sizes" {
	prints 'equal, 220480 elements' diff "$nhd" "$kv/s260k/paged_bs32/packed_nhd.bf16.npy"
	tells 2 'kvtool diff A B' diff "$nhd"
}

@test "6. is an offload folder whole" {
	run -3 --separate-stderr kvtool fsck "$engines/vllm/offload_gemma3_bs32"
	[[ $output == *"there is one in $engines/vllm/offload_gemma3_bs32/root"* ]]
	shows 3 'give --layout, --heads, --head-dim' fsck "$engines/vllm/offload_gemma3_bs32/root"
	prints 'kvtool cannot tell if one is missing' fsck --layout=hnd --heads=1 --head-dim=64 \
		"$engines/vllm/offload_gemma3_bs32/root"
}

@test "7. what a model's cache takes" {
	prints 'PER REQUEST: of 32768 tokens' size --tp=4 --tokens=32k \
		"$root/testdata/config/qwen3-next.json"
	[[ $output == *395.2\ MiB* && $output == *'UNIQUE: the same without duplicate'* ]]
	prints llama-3.1-8b size --list
}

@test "8. help how names a command for each question, and each parses" {
	kvtool help how >how
	[ "$(grep -c '^    kvtool\|^    HDF5' how)" -ge 20 ]
	[ "$(grep -vc '^    ' how)" -ge 20 ]
	# no option in it is unknown to its command
	grep -o 'kvtool [a-z].*' how | while read -r _ command rest; do
		known=$(kvtool "$command" --list-options)
		[ "$command" != transfer-sim ] ||
			known=$(kvtool transfer-sim "${rest%% *}" --list-options)
		for word in $rest; do
			[[ $word == --* ]] || continue
			grep -qx -- "${word%%=*}" <<<"$known" || { echo "$command $word"; exit 1; }
		done
	done
}

@test "9. a folder of requests as one file" {
	kvtool import --layout=nhd --block-size=16 "$kv/s260k/connector/example_2026_07" a.h5
	kvtool convert --layout=nhd --block-size=16 -o b.h5 "$kv/s260k/connector/example_2026_07"
	same_digest a.h5 b.h5
	tells 2 'expected an output' import "$kv/s260k/connector/example_2026_07"
}

@test "10. the snapshot in Python, as kvtool help python says" {
	kvtool convert "$nhd" snapshot.h5
	kvtool help python >help
	folder=$(sed -n 's/.*HDF5_PLUGIN_PATH=//p' help)
	[ "$folder" = "$(kvtool --plugin-dir)" ]
	grep -q 'pip install dist/kvtool' help
	sed -n "1,/requests/s/^  >>> //p" help | sed '$s/.*/print(&)/' >module.py
	[ -s module.py ]
	# sanitizers have no libkvt
	if [ -e "$KVT_BUILD/libkvt.so.0" ]; then
		run -0 env PYTHONPATH="$root/python" KVTOOL_LIBRARY="$KVT_BUILD/libkvt.so.0" /usr/bin/python3 module.py
		[[ $output == "LBSHC "*" 421" ]]
	fi
	sed -n "/^Without/,\$s/^  >>> //p" help >program.py
	[ -s program.py ]
	sed -i 's/^\(d\.shape.*\)/print(\1)/' program.py
	run -0 env HDF5_PLUGIN_PATH="$folder" /usr/bin/python3 program.py
	[[ $output == *'(5, 48, 16, 4, 2, 8)'* ]]
}

@test "11. a contract for CI" {
	tells 2 'expected write, check or compare' expect "$nhd"
	kvtool expect write -o kv.kvc "$nhd"
	kvtool expect write "$nhd" same.kvc
	cmp kv.kvc same.kvc
	kvtool expect write "$nhd" - | kvtool expect check - "$nhd"
	run -1 --separate-stderr kvtool expect check kv.kvc "$hnd"
	tells 3 'this is no contract, which kvtool expect write makes' expect check "$nhd" kv.kvc
}

@test "12. what is wrong with a dump, and where" {
	kvtool mutate --fault=swap-kv,layer=2,block=17 "$nhd" bad.npy
	shows 1 'first   layer 2 |where   layers 2; tokens 64-79 of A; blocks 17; all heads, keys and values, dims|swap-kv' \
		diff "$nhd" bad.npy
	kvtool mutate --fault=zero-block,layer=4,block=31 "$nhd" zero.npy
	run -1 kvtool diff --by=blocks "$nhd" zero.npy
	[[ $output == *'where   layers 4; blocks 31; all heads, keys and values, dims'* ]]
}

@test "13. a cache of transformers" {
	prints 'transformers' describe "$engines/transformers/5.23.0/dynamic.pt"
	tells 3 'give --from=transformers' describe "$engines/transformers/5.23.0/dynamic_pairs.pt"
	said 'give --from=transformers --set=axes=BHTD --set=window=8 (window=7 of a static cache) if it is 2 heads of 7 tokens'
	tells 3 'give --set window=8, or 7 if it is a static cache' \
		describe --from=transformers "$engines/transformers/5.23.0/dynamic_pairs.pt"
	kvtool convert --from=transformers --set=window=8 \
		"$engines/transformers/5.23.0/dynamic_pairs.pt" out.h5
	kvtool convert --from=hf "$engines/transformers/5.23.0/dynamic.pt" whole.h5
	same_digest out.h5 whole.h5
}

@test "14. a picture of the differences" {
	kvtool mutate --fault=swap-kv "$nhd" bad.npy
	run -1 kvtool diff --heatmap=where.svg "$nhd" bad.npy
	grep -q '<svg' where.svg
	tells 2 'ends in .svg' diff --heatmap=where.png "$nhd" bad.npy
	tells 2 'kvtool view -o page.html A B' diff --html "$nhd" bad.npy
}

@test "14b. a part of a dump" {
	tells 3 '--layers is 2, but group g0 has 5; it describes the input; kvtool slice' \
		convert --layers=2 "$nhd" out.npy
	tells 3 'has 4; it describes the input; kvtool slice' relayout --to=hnd --heads=1 "$nhd"
	tells 3 'but group g0 has 5' convert --layers=7 "$nhd" out.npy
	[[ $stderr != *slice* ]]
	tells 2 '--component=k takes keys alone' slice --layers=2 --kv=k "$nhd" out.npy
	kvtool slice -q --layers=2 --component=k "$nhd" out.npy
	cp "$nhd" bare.npy
	bare=(--layout=nhd --dtype=bf16)
	tells 3 "no request 'A': the dump has none; --blocks-of=A=5,2,9:40 says" \
		slice --request=A "${bare[@]}" bare.npy a.npy
	kvtool slice -q --request=A "${bare[@]}" --blocks-of=A=5,2,9:40 bare.npy a.npy
}

@test "15. a trace" {
	touch t.jsonl
	tells 2 'kvtool transfer-sim replay --model=llama-3.1-8b t.jsonl' transfer-sim t.jsonl
	tells 2 'kvtool transfer-sim time has --link=LINK, such as cx7-400g-verbs' transfer-sim --network=400G
	tells 2 'kvtool transfer-sim replay has --trace=FILE' transfer-sim --trace=t.jsonl
	local time=(transfer-sim time --model=llama-3.1-8b --tokens=8k --link=cx7-400g-verbs)
	kvtool "${time[@]}" --src=tp4:nhd --dst=tp8,hnd,bs32 >a
	kvtool "${time[@]}" --src=tp=4,layout=nhd --dst=tp=8,layout=hnd,block-size=32 >b
	cmp a b
	tells 2 'tp is given twice' "${time[@]}" --src=tp4,tp=4
	tells 2 "'tpx', expected KEY=VALUE" "${time[@]}" --src=tpx
	tells 2 'did you mean --dst' transfer-sim time --model=llama-3.1-8b --to=tp=4
	tells 2 "a model's sides are --src=tp=4" transfer-sim time --model=llama-3.1-8b --from=tp=4
	echo '{"timestamp": 7, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}' >t.jsonl
	prints 'requests: 1 done' transfer-sim replay --model=llama-3.1-8b t.jsonl
}

@test "16. a state file of llama.cpp" {
	tells 3 'describe the input with --head-dim or --spec' slice --heads=0:2 \
		"$engines/llama.cpp/gemma2.fa0_u0.s1.ggsq" out.h5
	tells 3 'give --heads or --head-dim' describe "$engines/llama.cpp/gemma2.fa0_u0.ggsn"
	prints llama describe --head-dim=64 "$engines/llama.cpp/gemma2.fa0_u0.ggsn"
}

@test "17. the layouts there are" {
	prints LBHSC help layouts
	prints LBHSC help layout || tells 2 "did you mean 'layouts'?" help layout
}

@test "18. four files of ranks that do not say so, as one" {
	for r in 0 1 2 3; do
		cp "$kv/s260k/tp4/rank$r.packed_hnd.bf16.safetensors" .
	done
	tells 3 'in the order of the ranks, add --in-order' merge --layout=hnd -o whole.npy ./rank*
	tells 3 'give --total-heads, which is 4 if each rank has its own' merge --in-order \
		--layout=hnd -o whole.npy ./rank*
	prints 'verified equal' merge --in-order --total-heads=4 --layout=hnd --verify \
		-o whole.npy ./rank*
	cmp whole.npy "$hnd"
	# all is asked for at once
	tells 3 'give --layout, --in-order and --total-heads, or --manifest' \
		merge -o other.npy ./rank*
	tells 2 'expected -o OUT; for example: ' merge ./rank*
	said 'give --layout, --in-order and --total-heads, or --manifest'
	tells 2 'expected -o before other.npy; for example: ' merge ./none other.npy
	said './none: cannot open'
	tells 2 'expected -o before out.h5; for example: ' merge ./rank* out.h5
	said 'give --layout, --in-order and --total-heads, or --manifest'
	tells 2 'expected -o before out.h5; for example: ' merge --in-order --total-heads=4 \
		--layout=hnd ./rank* out.h5
	[[ $stderr != *"cannot open"* ]]
	# a shell sorts rank10 before rank2
	tells 2 'rank1.packed_hnd.bf16.safetensors comes before ./rank0' merge --in-order \
		--total-heads=4 --layout=hnd -o other.npy ./rank1* ./rank0* ./rank2* ./rank3*
	cp rank2.packed_hnd.bf16.safetensors a10.safetensors
	cp rank1.packed_hnd.bf16.safetensors a9.safetensors
	tells 2 './a10.safetensors comes before ./a9.safetensors' merge --in-order --total-heads=2 \
		--layout=hnd -o other.npy ./a*
	# other names: the order counts, another one is another cache
	cp rank0.packed_hnd.bf16.safetensors z.safetensors
	kvtool merge --in-order --total-heads=4 --layout=hnd -o other.npy ./rank1* ./z.safetensors \
		./rank2* ./rank3*
	run -1 cmp other.npy "$hnd"
	# and a rank that says which it is, is believed
	sed 's/rank0.packed_hnd.bf16/z/' "$kv/s260k/tp4/rank0.packed_hnd.bf16.json" >z.json
	tells 3 'says that it is rank 0 of 4, but it is given as rank 1 of 4' merge \
		--in-order --total-heads=4 --layout=hnd -o third.npy ./rank1*.safetensors \
		./z.safetensors ./rank2*.safetensors ./rank3*.safetensors
}

@test "19. the first tokens of a request" {
	kvtool slice --request=A --tokens=0:100 "$nhd" a.npy
	prints 'A: 100 tokens' describe a.npy
	kvtool slice --request=A --tokens=:100 "$nhd" b.npy
	cmp a.npy b.npy
	# a length elsewhere, a position here: asked, not guessed
	tells 2 'expected A:B: 0:100 are the first 100 tokens' slice --tokens=100 "$nhd" c.npy
}

@test "20. the numbers of a token" {
	prints 'layer 3, block 17, slot 5, head 2, keys' describe --peek=request=A,token=69,layer=3,head=2,kv=k "$nhd"
	tells 2 "did you mean 'describe'" peek "$nhd"
	kvtool help | grep -q 'describe .*--peek'
}

@test "21. another element type: said that and why not" {
	tells 2 'kvtool convert, relayout and reblock have --cache-dtype=TYPE' convert --to-dtype=fp16 "$nhd" a.npy
	tells 3 '--dtype is fp16, but group g0 has bfloat16; it describes the input, and --cache-dtype of convert makes another type of it' \
		convert --dtype=fp16 "$nhd" a.npy
}

@test "22. a shell script fails on another layout, and prints nothing else" {
	run -0 kvtool describe -q --expect-layout=nhd "$nhd"
	[ -z "$output" ]
	tells 1 'expected LBHSC' describe -q --expect-layout=hnd "$nhd"
}

@test "23. plain bytes and back" {
	kvtool convert "$nhd" plain.bin
	kvtool convert plain.bin back.npy
	cmp back.npy "$nhd"
	rm plain.json plain.bin.json 2>/dev/null || true
	tells 3 'raw bytes need --layout, --dtype and all but one of' describe plain.bin
	said '; kvtool guess finds a layout'
}

@test "23b. layers beside something else: all that is missing is asked for at once" {
	/usr/bin/python3 -c '
import json, struct
shape, size, head = [2, 6, 16, 4, 8], 2 * 6 * 16 * 4 * 8 * 2, {}
for i in range(3):
    head[f"kv.{i}"] = {"dtype": "BF16", "shape": shape, "data_offsets": [i * size, (i + 1) * size]}
head["rows"] = {"dtype": "I32", "shape": [2, 3], "data_offsets": [3 * size, 3 * size + 24]}
text = json.dumps(head).encode()
with open("kv.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + bytes(3 * size + 24))'
	tells 3 'give --set=names=kv.{l} with a --layout' describe kv.safetensors
	prints '3 layers, 4 heads of 8' describe --set=names=kv.{l} --layout=kv-first-nhd kv.safetensors
}

@test "24. a dump from a pipe" {
	kvtool describe --layout=nhd --dtype=bf16 - <"$nhd" >file
	# shellcheck disable=SC2002	# a pipe it shall be
	cat "$nhd" | kvtool describe --layout=nhd --dtype=bf16 - >pipe
	cmp file pipe
	grep -q 'heads     4' pipe
	# shellcheck disable=SC2002
	run -2 --separate-stderr sh -c 'cat "$0" | "$1" describe' "$nhd" "$KVTOOL"
	said "'-' is standard input"
}

@test "25. ranks beside the whole" {
	prints 'equal' diff "$nhd" : "$kv"/s260k/tp4/*.safetensors
	for r in 0 1 2 3; do
		cp "$kv/s260k/tp4/rank$r.packed_hnd.bf16.safetensors" .
	done
	prints 'equal' diff --in-order --total-heads=4 --layout=hnd "$hnd" : ./rank*
	mv rank0* z.safetensors
	run -1 kvtool diff --in-order --total-heads=4 --layout=hnd "$hnd" : ./rank1* ./z* \
		./rank2* ./rank3*
}

@test "25b. two layouts, and heads of ranks that have several" {
	kvtool relayout -q --to=hnd "$nhd" h.npy
	cp "$nhd" n.npy
	rm h.json
	# what each could be, and how each is told, at once
	run -3 --separate-stderr kvtool diff n.npy h.npy
	[[ $stderr == "kvtool diff: n.npy: "*" 5 x 48 x 16 x 4 x 2 x 8,"*$'\n'"kvtool diff: h.npy: "* ]]
	said '(for each its own: --a=layout=LAYOUT --b=layout=LAYOUT), or --manifest'
	[ "$(grep -c 'it could be .*nhd' <<<"$stderr")" = 2 ]
	cp n.npy n2.npy
	tells 3 'for each its own: --a=layout=LAYOUT' diff n.npy n2.npy
	tells 3 'for each its own: --a=layout=LAYOUT' shrink -o case n.npy n2.npy
	shows 3 'for each its own: --a=layout=LAYOUT' doctor n.npy n2.npy
	for alone in describe doctor; do
		run -3 kvtool $alone n.npy
		[[ $output == *"could be"* && $output != *--a=* ]]
	done
	tells 3 '--a=layout=LAYOUT --b=layout=LAYOUT' diff --layout=kv-first-nhd --dtype=bf16 n.npy n2.npy
	prints 'g0: equal' diff --dtype=bf16 --a=layout=nhd --b=layout=hnd n.npy h.npy
	tells 3 '--layout is hnd (LBHSC), but' diff --a=layout=hnd --b=layout=hnd,dtype=bf16 "$nhd" h.npy
	prints 'g0: equal' diff --a=layout=nhd,dtype=bf16 --b=dtype=bf16,layout=hnd \
		--a=blocks-of=X=5,2:20,blocks-of=Y=9 --b=blocks-of=X=5,2:20 --b=blocks-of=Y=9 \
		--by=tokens n.npy h.npy
	tells 2 "--a has 'hedas', which is no option of an input, did you mean 'heads'?" \
		diff --a=layout=nhd,hedas=4 n.npy h.npy
	tells 2 '--b has layout without a value' diff --b=layout n.npy h.npy
	tells 2 '--b has layout twice' diff --b=layout=nhd,layout=hnd n.npy h.npy
	tells 2 '--b has trust-manifest with a value' diff --b=trust-manifest=1 n.npy h.npy
	tells 3 '--heads is 5, but group g0 has 4' diff --b=heads=5 "$nhd" "$nhd"
	for r in 0 1; do
		cp "$kv/s260k/tp2/rank$r.packed_nhd.bf16.safetensors" r$r.safetensors
	done
	prints 'verified equal' merge --in-order --layout=nhd --verify -o whole.npy ./r*
	cmp whole.npy n.npy
	prints 'equal' diff --in-order --layout=nhd "$nhd" : ./r*
}

@test "26. bytes of a token with fp8" {
	prints '64 KiB' size --model=llama-3.1-8b --cache-dtype=fp8 --tp=1
}

@test "27. blocks of another size" {
	kvtool reblock --block-size=64 --verify "$nhd" out.npy
	same_digest "$nhd" out.npy
	tells 2 'expected --block-size=N; for example: kvtool reblock' reblock "$nhd" x.npy
}

@test "28. where a token begins" {
	tells 2 'expected head, kv, dim, too, such as request=A,token=69,layer=3,head=0,kv=k,dim=0' \
		where "$nhd" request=A,token=69,layer=3
	prints '330496' where "$nhd" request=A,token=69,layer=3,head=0,kv=k,dim=0
	tells 2 'kvtool where FILE request=A,token=69,' where "$nhd" --request A --token 69
	prints '330496' where "$nhd" request=A token=69 layer=3 head=0 kv=k dim=0
	# a key that comes again begins another question
	run -0 kvtool where "$nhd" layer=3,block=1,slot=0,head=0,kv=k,dim=0 \
		layer=2,block=1,slot=0,head=0,kv=k,dim=0
	[ "$(grep -c ': at ' <<<"$output")" = 2 ]
}

@test "29. a tolerance" {
	run -0 kvtool diff --atol=0.1 "$nhd" "${nhd/bf16/fp16}"
	kvtool diff --tolerance=atol=0.1 "$nhd" "${nhd/bf16/fp16}" >a
	[ "$output" = "$(cat a)" ]
	run -1 kvtool diff --atol=0.0001 --rtol=0 "$nhd" "${nhd/bf16/fp16}"
	tells 2 '--tolerance: atol is given twice' diff --tolerance=atol=1 --atol=1 "$nhd" "$nhd"
}

@test "30. an unknown layout" {
	tail -c +129 "$hnd" >unknown.bin
	prints 'use        --layout=hnd' guess --layers=5 --block-size=16 --heads=4 --head-dim=8 \
		unknown.bin
	bare
	tells 3 'can be read in several ways; give --layers, --block-size, --heads and --head-dim' guess bare.npy
}

# ---- streams, abbreviations, words of other tools -------------------------------

@test "a dump goes to a pipe only when it is complete, and leaves nothing behind" {
	export TMPDIR=$PWD/tmp
	mkdir tmp
	kvtool convert --format=npy --verify "$nhd" - >out.npy 2>err
	cmp out.npy "$nhd"
	[ ! -s err ]
	kvtool relayout --to=hnd --format=npy - - <"$nhd" --layout=nhd --dtype=bf16 >out.npy
	cmp out.npy "$hnd"
	kvtool convert --format=hdf5 "$nhd" - | kvtool digest --scope=tokens - >a
	grep -q "$(value tokens "$nhd")" a
	kvtool convert "$nhd" - >npy && same_array npy "$nhd" && rm npy
	tells 2 '--json and the dump cannot both' convert --json --format=npy "$nhd" -
	tells 2 'a folder of files cannot go to standard output' \
		convert --layout=nhd --block-size=16 --format=vllm-2026-07 \
		"$kv/s260k/connector/example_2026_07" -
	tells 2 "'-' is given 2 times" diff - -
	# a reader that goes away, and a disk that is full
	for n in 1 100 70000 300000; do
		kvtool convert --format=npy "$nhd" - | head -c "$n" >/dev/null
	done
	run -5 --separate-stderr sh -c '"$1" convert --format=npy "$0" - >/dev/full' \
		"$nhd" "$KVTOOL"
	one_sentence
	said 'writing standard output: No space left'
	rmdir tmp		# nothing was left in it
}

@test "a pipe that cannot be kept is an error, and so is a terminal" {
	# shellcheck disable=SC2002
	run -5 --separate-stderr env TMPDIR=/nonexistent sh -c 'cat "$0" | "$1" digest -' "$nhd" "$KVTOOL"
	one_sentence
	said 'cannot be kept in /nonexistent' 'TMPDIR names another folder'
	small_disk 64k
	# shellcheck disable=SC2002
	run -5 --separate-stderr env TMPDIR="$PWD/disk" sh -c 'cat "$0" | "$1" digest -' "$nhd" "$KVTOOL"
	umount disk
	one_sentence
	said 'No space left'
}

@test "no output is made up for standard input" {
	tells 2 'expected an output' relayout --to=hnd --layout=nhd --dtype=bf16 - <"$nhd"
}

@test "options are not abbreviated, and what is meant is named" {
	tells 2 'did you mean --layout or --layers?' describe --lay=nhd "$nhd"
	tells 2 'did you mean --verify?' describe --verif "$nhd"
	tells 2 'did you mean --block-size?' describe --block_size=16 "$nhd"
	tells 2 'did you mean --heads?' describe --num-kv-heads=4 "$nhd"
	tells 2 "there is no format 'npyy', did you mean 'npy'?" describe --from=npyy "$nhd"
	tells 2 "did you mean 'bf16'?" describe --dtype=bf61 "$nhd"
	tells 2 'ambiguous: fp8_e4m3' describe --dtype=fp8 "$nhd"
	tells 2 'did you mean --help?' describe --hel
}

@test "several mistakes are told at once" {
	tells 2 "unknown option '--to=tp=8', did you mean --dst?; unknown option '--network=400G'" \
		transfer-sim --to=tp=8 --network=400G --model=llama-3.1-8b
	tells 2 "--layers is 'five', expected a whole number" describe --layers=five --lay=nhd "$nhd"
	said 'did you mean --layout or --layers?'
}

@test "words of other tools lead to the command" {
	tells 2 "did you mean 'describe'" info "$nhd"
	tells 2 "did you mean 'diff'" cmp "$nhd" "$nhd"
	tells 2 'is a file, not a command; to see what it is: kvtool describe' "$nhd"
	[ "$(kvtool version)" = "$(kvtool --version)" ]
}

@test "kvtool help is one screen" {
	[ "$(kvtool help | wc -l)" -le 24 ]
	[ "$(kvtool help | wc -L)" -le 84 ]
}

@test "slice leaves no old part under the name of an empty one" {
	kvtool slice -q --for-transfer --src-tp=4 --src-rank=0 --dst-tp=2 --dst-rank=0 "$nhd" p.npy
	cp p.npy before
	tells 5 'sends nothing to rank 1 of 2, but there is an old p.npy; remove it' slice -f \
		--for-transfer --src-tp=4 --src-rank=0 --dst-tp=2 --dst-rank=1 "$nhd" p.npy
	cmp p.npy before
	rm p.npy
	prints 'sends nothing' slice --for-transfer --src-tp=4 --src-rank=0 --dst-tp=2 \
		--dst-rank=1 "$nhd" p.npy
}
