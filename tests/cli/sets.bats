#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Several dumps of one command line, as a shell's * names them.
load common
load dumps

@test "a manifest among operands is read with its data, and is no dump that fails" {
	copy_dump "$nhd" a.npy
	convert="kvtool convert -q --format=raw"
	$convert "$nhd" b.bin
	$convert "$nhd" c
	for command in "describe -j" "fsck -j" digest; do
		# shellcheck disable=SC2086	# words
		run -0 --separate-stderr kvtool $command ./*
		[ -z "$stderr" ]
		both=$output
		# shellcheck disable=SC2086
		run -0 kvtool $command ./a.npy ./b.bin ./c
		[ "$output" = "$both" ]
	done
	# before and behind its data
	run -0 --separate-stderr kvtool digest a.npy a.json
	[ "$output" = "$(kvtool digest a.npy)" ]
}

@test "a manifest whose data is not named, and what is none, are told of as before" {
	copy_dump "$nhd" a.npy
	run -3 --separate-stderr kvtool describe a.json
	run -3 --separate-stderr kvtool describe a.json "$hnd"
	[[ $stderr == "kvtool describe: a.json: "* ]]
	# a snapshot reads no manifest
	kvtool convert -q a.npy s.h5
	cp a.json s.json
	run -3 --separate-stderr kvtool digest s.json s.h5
	[[ $stderr == "kvtool digest: s.json: "* ]]
	# nor is a dump left out for its name
	cp s.h5 a.json
	run -3 --separate-stderr kvtool digest a.npy a.json
	[ "$(kvtool digest a.json)" = "$output" ]
	# a damaged one fails once, with its data
	echo '{' >a.json
	run -3 --separate-stderr kvtool digest a.npy a.json
	one_sentence
}
