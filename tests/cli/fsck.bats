#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# fsck.bats - kvtool fsck: the command line and what it prints
# (each finding, planted: tests/oracle_fsck.py)

load common
load dumps

# dump NAME: a copy of the small Llama's cache with its manifest
dump() {
	cp "$nhd" "$1.npy"
	sed "s/packed_nhd.bf16.npy/$1.npy/" "${nhd%.npy}.json" >"$1.json"
}

@test "fsck: a line for each finding, and a last one with the totals" {
	dump a
	sed -i 's/"C": \[39, 40/"C": [39, 20/' a.json
	expect 1 fsck-shared fsck a.npy
}

@test "fsck --list: names, severities, meanings" {
	run -0 kvtool fsck --list
	[ "${#lines[@]}" -gt 50 ]
	[[ ${lines[0]} == 'file.unreadable '*' error '* ]]
}

@test "fsck goes on behind a file that cannot be read" {
	printf 'no dump' >junk
	run -3 --separate-stderr kvtool fsck junk "$mla"
	[[ ${lines[0]} == 'junk: error: file.unreadable: in no format '* ]]
	[ "${lines[-1]}" = "$mla: clean" ]
	[ -z "$stderr" ]
	run -5 --separate-stderr kvtool fsck none "$mla"
	[[ ${lines[0]} == 'none: error: file.unreadable: cannot open: '* ]]
	[ "${lines[-1]}" = "$mla: clean" ]
}

@test "fsck shows 16 findings of a name and counts the others" {
	dump a
	edit a.json 'o["block_table"]["A"] = [b + 100 for b in o["block_table"]["A"]]'
	run -1 --separate-stderr kvtool fsck a.npy
	[ "$(grep -c 'table.out-of-pool: request A' <<<"$output")" = 16 ]
	[ "${lines[0]}" = 'a.npy: error: table.out-of-pool: 27 in all, of which 16 follow' ]
	[ "${lines[-1]}" = 'a.npy: 27 errors' ]
	kvtool fsck --json a.npy >o || [ $? = 1 ]
	[ "$(json '[(f["errors"], f["counts"], f["format"]) for f in o["files"]]' <o)" = \
		"[(27, {'table.out-of-pool': 27}, None)]" ]
}

@test "fsck: too little memory is no finding" {
	shows 4 '--mem-limit' fsck --mem-limit=1k "$nhd"
	[[ $output != *error* ]]
}

@test "fsck: one thread finds what many do" {
	kvtool convert -q "$nhd" a.h5
	cmp <(kvtool fsck --threads=1 a.h5) <(kvtool fsck --threads=8 a.h5)
}

@test "fsck: mistakes on the command line" {
	tells 2 '' fsck
	tells 2 'did you mean --fast' fsck --fats "$nhd"
}

@test "what was not looked at to the end is not clean" {
	run -4 --separate-stderr kvtool fsck --mem-limit=1M "$nhd"
	[[ $output == *"; not at all of the data"*": not looked at to the end" ]]
	[[ $output != *clean* && $output != *"all data:"* ]]
	[[ $stderr == *"more than --mem-limit allows" ]]
}
