#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# view.bats - what is drawn on a terminal, and files that are written

load common
load dumps

setup() {
	dump=$kv/s260k/paged_bs16/packed_nhd.bf16.npy
	cd "$BATS_TEST_TMPDIR"
}

@test "a pool is drawn block by block, each request with its letter" {
	run -0 "$KVTOOL" view "$dump"
	[[ ${lines[2]} == "  pool      0.....AAAAAAB**AAAAAAAAAAAAAAAAABBBBBBBCCCACBACB" ]]
	[[ ${lines[3]} == *"A A  B B  C C  . unused  * shared" ]]
}

@test "without colours a map is digits, and no escape is printed" {
	run -0 "$KVTOOL" view "$dump"
	[[ $output != *$'\033'* ]]
	[[ ${lines[5]} == "  layer   0 3477" ]]
}

@test "colours are there only if they are wanted" {
	run -0 "$KVTOOL" view --color=always "$dump"
	[[ $output == *$'\033[97;48;5;25mA'* ]]
	run -0 env NO_COLOR=1 "$KVTOOL" view "$dump"
	[[ $output != *$'\033'* ]]
}

@test "a pool without block tables says so, and shows none as unused" {
	run -0 "$KVTOOL" convert -q "$dump" bare.npy
	rm -f bare.json
	run -0 "$KVTOOL" view --layout=nhd --dtype=bf16 bare.npy
	[[ ${lines[2]} == "  pool      ????"* ]]
	[[ $output != *unused* ]]
}

@test "elements that have no values are no failure" {
	head -c 40960 /dev/zero >zeros.bin
	shows 0 'type int8 has no values; give an element type with --dtype' view --layout=nhd \
		--dtype=int8 --layers=2 --block-size=16 --heads=4 --head-dim=8 zeros.bin
}

@test "a page is not replaced without --force, and an input never" {
	run -0 "$KVTOOL" view -o page.html "$dump"
	[[ -z $output ]]
	run -5 "$KVTOOL" view -o page.html "$dump"
	run -0 "$KVTOOL" view -f -o page.html "$dump"
	cp "$dump" mine.npy && cp "${dump%.npy}.json" mine.json
	sed -i 's/packed_nhd.bf16.npy/mine.npy/' mine.json
	run "$KVTOOL" view -f -o mine.npy mine.npy
	[[ $status -ne 0 ]]
	cmp "$dump" mine.npy
}

@test "a page that cannot be written leaves nothing" {
	run -5 "$KVTOOL" view -o nowhere/page.html "$dump"
	[[ ! -e nowhere ]]
	run -5 --separate-stderr "$KVTOOL" view -o /proc/page.html "$dump"
	[[ -z $output && -n $stderr ]]
}

@test "a dump that is cut is refused in one sentence" {
	head -c 1000 "$dump" >cut.npy
	run -3 "$KVTOOL" view --layout=nhd cut.npy
	[[ ${#lines[@]} -eq 1 ]]
	tells 2 'expected a dump' view
}

@test "of two dumps the page begins with the fault" {
	run -0 "$KVTOOL" mutate -q --fault=swap-kv,layer=2 "$dump" bad.npy
	run -0 "$KVTOOL" view -o bug.html "$dump" bad.npy
	grep -q '"fault":{"name":"swap-kv","summary":"keys and values are exchanged"' bug.html
}

@test "files of different types are compared by a tolerance" {
	fp16=${dump/bf16.npy/fp16.npy}
	[ -e "$fp16" ]
	tells 3 'give --tolerance=auto' view -o types.html "$dump" "$fp16"
	[ ! -e types.html ]
	shows 0 '"result": "within"' view --json --tolerance=auto "$dump" "$fp16"
	shows 0 '"result": "differs"' view --json --exact "$dump" "$fp16"
	run -2 "$KVTOOL" view --exact --tolerance=auto "$dump" "$fp16"
	[[ $output == *"--exact and --tolerance exclude each other"* ]]
	run -2 "$KVTOOL" view --tolerance=atol=x "$dump" "$fp16"
}

@test "two ranks of one model are not compared" {
	shows 0 '"diff": null' view --json "$kv"/mamba2g4/tp2_SD/rank[01].npy
}

@test "a picture in SVG has a title for each cell" {
	run -0 "$KVTOOL" view -o map.svg "$dump"
	grep -q '<title>layer 3, head 2: rms ' map.svg
	grep -q '</svg>' map.svg
	run -0 "$KVTOOL" mutate -q --fault=swap-kv,layer=2 "$dump" bad.npy
	run -0 "$KVTOOL" view -o differs.svg "$dump" bad.npy
	run -1 "$KVTOOL" diff -q --heatmap=same.svg "$dump" bad.npy
	cmp differs.svg same.svg
}

# block LAYOUT: what is drawn of a block in that layout
block() {
	"$KVTOOL" view --block "${dump%/*}/$1.bf16.npy" | sed -n '3,/^  pool/p' | sed '$d'
}

@test "a block is drawn byte by byte, in the order of its layout" {
	block packed_nhd >nhd
	grep -qx '  block     2 KiB of a layer; a character is 16 B of one token and head: which head' nhd
	grep -qx '  both      00112233 00112233' nhd
	grep -qx '            it: 1 run of 2 KiB; a token: 1 run of 128 B; a head: 16 runs of 32 B' nhd
	block packed_hnd >hnd
	grep -qx '  both      0\{32\} 1\{32\}' hnd
	grep -qx '            it: 1 run of 2 KiB; a token: 4 runs of 32 B; a head: 1 run of 512 B' hnd
	block kv_first_hnd >planes
	grep -qx '  values    0\{16\} 1\{16\} 2\{16\} 3\{16\}' planes
	grep -q 'a token: 8 runs of 16 B; a head: 2 runs of 256 B' planes
	# values of a token lie apart where keys do not
	block rocm_x >tiles
	grep -q 'a character is 16 B of keys, 2 B of values, of one token and head' tiles
	[ "$(grep -c '^  keys' tiles)" = 1 ]
	[ "$(grep '^  values' tiles | cut -c 13- | tr -d ' \n' | wc -c)" = 512 ]
	# keys and values of a head by turns
	block cpu_vec >turns
	[ "$(cut -c 3-9 turns | tr -d ' ' | uniq | grep -c 'values')" = 4 ]
	grep -q 'it: 8 runs of 256 B' turns
}

@test "a block of latents is drawn by token, and one of states by row" {
	run -0 "$KVTOOL" view --block "$kv/mla144/paged_bs16/mla_lbsc.bf16.npy"
	[[ $output == *$'which token\n  content   0 1 2 3 4 5 6 7 8 9 a b c d e f\n'* ]]
	run -0 "$KVTOOL" view --block "$kv/mamba2g4/tp2_SD/rank1.npy"
	[[ $output == *'of one row: which row'*'a row: 1 run of 384 B'* ]]
}

@test "a block that is large is cut, and says so" {
	truncate -s 1M big.bin
	run -0 timeout 120 "$KVTOOL" view --block --sample=4k --layout=nhd --dtype=bf16 --layers=1 \
		--heads=2 --head-dim=1 --block-size=131072 big.bin
	[[ $output == *'  block     1 MiB of a layer'*' more'* ]]
	[ ${#lines[@]} -lt 60 ]
}

@test "damaged data, and data that there is no memory for, are not drawn" {
	run -0 "$KVTOOL" convert -q "$dump" flipped.h5
	# somewhere in the tiles, which are most of the file
	/usr/bin/python3 - <<-'END'
	data = bytearray(open("flipped.h5", "rb").read())
	data[len(data) // 2] ^= 1
	open("flipped.h5", "wb").write(data)
	END
	for args in "flipped.h5" "-o page.html flipped.h5" "--json flipped.h5"; do
		# shellcheck disable=SC2086	# words
		run -3 --separate-stderr "$KVTOOL" view $args
		[[ -z $output && $stderr == *"flipped.h5: stored tile is damaged: "* ]]
	done
	run -4 --separate-stderr "$KVTOOL" view --mem-limit=64K "$dump"
	[[ -z $output && $stderr == *"more than --mem-limit allows" ]]
	[[ ! -e page.html ]]
}

@test "two dumps whose requests have other names are compared, as diff does" {
	copy_dump "$dump" other.npy
	edit other.json 'names = {"A": "cmpl-9-x", "B": "req-8-y", "C": "zz-7-z"}
for key, value in o.items():
    if isinstance(value, dict) and set(value) == set(names):
        o[key] = {names[name]: what for name, what in value.items()}'
	shows 0 'request A of A is cmpl-9-x of B: |g0: equal, ' view "$dump" other.npy
	run -0 "$KVTOOL" view -o page.html "$dump" other.npy
	grep -q '"paired":\[{"a":"A","b":"cmpl-9-x","by":"content"' page.html
	shows 0 'request A of A is cmpl-9-x of B: ' doctor "$dump" other.npy
}

@test "what is written follows from the name, and what has no name for it is refused" {
	run -2 "$KVTOOL" view -o page.gif "$dump"
	[[ $output == *"--output is 'page.gif', expected a name that ends in .html or .svg" ]]
	[[ ! -e page.gif ]]
	tells 2 '--map and --json exclude each other' describe --map --json "$dump"
}
