#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Several dumps of one command line, as a shell's * names them.
load common
load dumps

# refused STATUS ARGUMENT...: that status, and one sentence
refused() {
	run -"$1" --separate-stderr "${@:2}"
	one_sentence
}

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

@test "--out-dir: each input under its own name, with the format's ending" {
	mkdir in && copy_dump "$nhd" in/a.b.npy && copy_dump "$hnd" in/c.npy
	run -0 --separate-stderr kvtool convert --verify --out-dir=out in/*
	[ "${#lines[@]}" = 2 ]
	[ "$(echo out/*)" = "out/a.b.h5 out/c.h5" ]
	same_digest in/a.b.npy out/a.b.h5
	same_digest in/c.npy out/c.h5
	kvtool convert -q --out-dir=out/ --format=safetensors in/*.npy
	[ "$(echo out/*.safetensors)" = "out/a.b.safetensors out/c.safetensors" ]
	# the others keep the format, where it can be written
	kvtool relayout -q --to=hnd --out-dir=r in/a.b.npy out/c.h5
	[ "$(echo r/*)" = "r/a.b.json r/a.b.npy r/c.h5" ]
	same_array r/a.b.npy in/c.npy
	kvtool slice -q --layers=0 --out-dir=s in/*
	kvtool slice -q --layers=0 in/c.npy one.npy
	same_array s/c.npy one.npy
	kvtool reblock -q --block-size=32 --out-dir=b in/*
	kvtool reblock -q --block-size=32 in/c.npy b32.npy
	same_array b/c.npy b32.npy
}

@test "--out-dir: JSON is a line an input, a dry run leaves no folder" {
	copy_dump "$nhd" a.npy && copy_dump "$hnd" b.npy
	run -0 kvtool convert -j -n --out-dir=out a.npy b.npy
	[ "${#lines[@]}" = 2 ]
	[ "$(json 'o["output"]' <<<"${lines[1]}")" = out/b.h5 ]
	[ ! -e out ]
	run -0 kvtool convert -j --out-dir=out a.npy
	[ "$(json 'o["done"]' <<<"$output")" = True ]
}

@test "--out-dir: what fails ends nothing else, and the highest status counts" {
	copy_dump "$nhd" a.npy && copy_dump "$hnd" d.npy
	head -c 1000 a.npy >b.npy
	cp a.json b.json
	mkdir out && echo there >out/a.h5
	run -5 --separate-stderr kvtool convert --out-dir=out a.npy b.npy c.npy d.npy
	[ "${#stderr_lines[@]}" = 3 ]
	[ "$(cat out/a.h5)" = there ]
	[ "$(echo out/*)" = "out/a.h5 out/d.h5" ]
	same_digest d.npy out/d.h5
	run -3 --separate-stderr kvtool convert -f --out-dir=out b.npy d.npy
	# an option that is wrong is told of once
	run -2 --separate-stderr kvtool convert -f --level=30 --out-dir=out a.npy d.npy
	one_sentence
}

@test "--out-dir: two inputs of one name, and what has none, are refused at once" {
	mkdir x y && copy_dump "$nhd" x/a.npy && copy_dump "$hnd" y/a.npy
	copy_dump "$hnd" b.npy
	refused 2 kvtool convert --out-dir=out b.npy x/a.npy y/a.npy
	[[ $stderr == *"x/a.npy and y/a.npy would both become out/a.h5"* ]]
	[ ! -e out ]
	kvtool convert -q --format=raw b.npy b.bin
	refused 2 kvtool relayout --to=nhd --format=npy --out-dir=out b.npy b.bin
	refused 2 kvtool convert --out-dir=out - <b.npy
	refused 2 kvtool convert --out-dir=out .
	refused 2 kvtool convert --out-dir=out -o c.h5 b.npy
	refused 2 kvtool convert --shard=0/1 --shard-dir=parts --out-dir=out b.npy
	rm -rf parts
	: >file
	refused 5 kvtool convert --out-dir=file b.npy
	refused 5 kvtool convert --out-dir=no/folder b.npy
	run -2 --separate-stderr kvtool convert b.npy x/a.npy y/a.npy
	[[ $stderr == *"; --out-dir=DIR takes several inputs" ]]
}

# ---- to a pipe ----------------------------------------------------------------

# piped ARGUMENT...: standard output of kvtool is a pipe, and becomes file 'got'
piped() {
	# shellcheck disable=SC2016
	bash -c '"$@" | cat >got; exit "${PIPESTATUS[0]}"' - "$KVTOOL" "$@"
}

@test "a dump to a pipe is npy where nothing says another format" {
	kvtool convert -q "$nhd" in.h5
	kvtool convert -q in.h5 want.npy
	kvtool convert -q in.h5 want.safetensors
	for out in - /dev/stdout "-o -" "--format=npy -" "--verify -"; do
		# shellcheck disable=SC2086	# words
		piped convert in.h5 $out
		cmp got want.npy
	done
	piped convert --format=safetensors in.h5 /dev/stdout
	cmp got want.safetensors
	piped relayout --to=hnd -o - in.h5
	same_array got "$hnd"
	# what a program makes of it
	kvtool convert in.h5 - | /usr/bin/python3 -c '
import io, sys, numpy
print(numpy.load(io.BytesIO(sys.stdin.buffer.read())).shape)' >shape
	[ "$(cat shape)" = "(5, 48, 16, 4, 2, 8)" ]
	# to a file, as > does it
	kvtool convert in.h5 /dev/stdout >got
	cmp got want.npy
	[ -z "$(find . -name 'got.json' -o -name 'kvtool-*')" ]
}

@test "what cannot be an array goes to no pipe half" {
	two=$kv/mamba2g4/tp2_SD/rank1.npy
	run -2 --separate-stderr piped convert "$two" -
	[ ! -s got ]
	one_sentence
	[[ $stderr == *"has 2 groups, "*" --format=hdf5" ]]
	piped convert --format=hdf5 "$two" -
	same_digest got "$two"
	run -2 --separate-stderr piped convert --json "$nhd" -
	[ ! -s got ]
}
