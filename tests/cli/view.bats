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
	run -0 "$KVTOOL" view --layout=nhd --dtype=int8 --layers=2 --block-size=16 --heads=4 \
		--head-dim=8 zeros.bin
	[[ $output == *"type int8 has no values; give one with --dtype"* ]]
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
	mkdir locked && chmod 500 locked
	[[ $(id -u) -eq 0 ]] || run -5 "$KVTOOL" view -o locked/page.html "$dump"
	[[ -z $(ls -A locked) ]]
}

@test "a dump that is cut is refused in one sentence" {
	head -c 1000 "$dump" >cut.npy
	run -3 "$KVTOOL" view --layout=nhd cut.npy
	[[ ${#lines[@]} -eq 1 ]]
	run -2 "$KVTOOL" view
	[[ $output == *"expected a dump"* ]]
}

@test "of two dumps the page begins with the fault" {
	run -0 "$KVTOOL" mutate -q --fault=swap-kv,layer=2 "$dump" bad.npy
	run -0 "$KVTOOL" view -o bug.html "$dump" bad.npy
	grep -q '"fault":{"name":"swap-kv","summary":"keys and values are exchanged"' bug.html
}

@test "files of different types are compared by a tolerance" {
	fp16=${dump/bf16.npy/fp16.npy}
	[ -e "$fp16" ]
	run -3 "$KVTOOL" view -o types.html "$dump" "$fp16"
	[[ $output == *"give --tolerance=auto"* ]]
	[ ! -e types.html ]
	run -0 "$KVTOOL" view --json --tolerance=auto "$dump" "$fp16"
	[[ $output == *'"result": "within"'* ]]
	run -0 "$KVTOOL" view --json --exact "$dump" "$fp16"
	[[ $output == *'"result": "differs"'* ]]
	run -2 "$KVTOOL" view --exact --tolerance=auto "$dump" "$fp16"
	[[ $output == *"--exact and --tolerance exclude each other"* ]]
	run -2 "$KVTOOL" view --tolerance=atol=x "$dump" "$fp16"
}

@test "two ranks of one model are not compared" {
	run -0 "$KVTOOL" view --json "$kv"/mamba2g4/tp2_SD/rank[01].npy
	[[ $output == *'"diff": null'* ]]
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
