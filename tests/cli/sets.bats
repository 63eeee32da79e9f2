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

@test "a manifest is passed over by merge, diff and expect, too" {
	mkdir ab ranks
	copy_dump "$nhd" ab/a.npy && copy_dump "$hnd" ab/b.npy
	cp "$kv"/s260k/tp4/*.packed_hnd.* ranks
	run -0 --separate-stderr kvtool merge -o whole.h5 ranks/*
	[ -z "$stderr" ]
	run -0 --separate-stderr kvtool diff whole.h5 : ranks/*
	[ -z "$stderr" ]
	shows 0 '^g0: equal' diff ab/*
	# of two operands each is meant
	run -0 kvtool diff ab/a.npy ab/a.json
	run -2 --separate-stderr kvtool diff ab/a.npy ab/a.json : ab/b.npy ab/b.json x : y
	run -0 kvtool diff ab/a.* : ab/b.*
	run -0 --separate-stderr kvtool expect write -o a.kvc ab/a.*
	run -0 kvtool expect write ab/a.*
	[ "$output" = "$(cat a.kvc)" ]
	# what is named as an output is no manifest to pass over
	tells 2 'ab/a.json' expect write -f ab/a.npy ab/a.json
	run -0 --separate-stderr kvtool expect check a.kvc ab/a.*
	[ "${#lines[@]}" = 1 ]
	[ -z "$stderr" ]
}

@test "a manifest named alone is read with the data that it says, or is named for" {
	copy_dump "$nhd" a.npy
	copy_dump "$hnd" b.npy
	want=$(kvtool digest a.npy | cut -d ' ' -f 1)
	same() { [ "$(kvtool digest "$1" | cut -d ' ' -f 1)" = "$want" ]; }
	same a.json
	# by the file that it says, whatever its own name
	mv a.json other.json
	same other.json
	same "$PWD/other.json"
	mkdir d && mv a.npy other.json d
	same d/other.json
	# by its name: of whatever ending, of its whole name
	for out in c.bin c.safetensors; do
		kvtool convert -q --manifest=d/other.json d/a.npy $out
	done
	kvtool convert -q --format=raw --manifest=d/other.json d/a.npy e
	for out in c.bin.json e.json; do
		edit $out 'del o["file"], o["sample_crc32"], o["file_bytes"]'
	done
	same c.bin.json
	same e.json
	mv c.bin f.x && mv c.bin.json f.json
	same f.json
	run -0 kvtool describe f.json
	[[ ${lines[0]} == "f.json: raw, "* ]]
	[[ $output == *$'\n  data      f.x\n'* ]]
	# a sidecar that says the layout alone
	/usr/bin/python3 -c '
import numpy
numpy.save("s.npy", numpy.zeros((2, 8, 2, 16, 4, 8), "f2"))'
	echo '{"layout": "LBKSHD"}' >s.json
	[ "$(kvtool describe --json s.json | json 'o["groups"][0]["layout"]')" = LBKSHD ]
	[ "$(kvtool diff -q s.json s.npy; echo $?)" = 0 ]
	# a pair that was renamed, if the data proves it
	kvtool convert -q b.npy p.npy
	mv p.npy q.npy && mv p.json q.json
	: >q.log
	[ "$(kvtool describe -j q.json | json 'o["manifest"]["proof"]')" = samples ]
}

@test "a manifest whose data is not there, or is not sure, is told of in a sentence" {
	copy_dump "$nhd" a.npy
	mkdir d && cp a.json d
	tells 3 'd/a.json: is the manifest of a.npy, which is not beside it; name the data, with --manifest=d/a.json' describe d/a.json
	echo '{"layout": "nhd"}' >d/l.json
	tells 3 'd/l.json: is a manifest and does not say of which file; name the data, with --manifest=d/l.json' digest d/l.json
	: >d/l.bin && : >d/l.x
	tells 3 'd/l.json: is the manifest of d/l.| or d/l.|, by its name; name the one that is meant$' \
		digest d/l.json
	# the name of another file proves nothing
	cp a.npy d/m.npy && cp a.json d/m.json
	tells 3 'd/m.json: is the manifest of a.npy, which is not beside it' digest d/m.json
	# nor does it when the data is not what was written
	kvtool convert -q a.npy d/n.npy
	mv d/n.npy d/o.npy && mv d/n.json d/o.json
	printf 'x' | dd of=d/o.npy bs=1 seek=1000 conv=notrunc status=none
	tells 3 'd/o.npy: samples have CRC-32' digest d/o.json
	# a snapshot reads no manifest
	kvtool convert -q a.npy s.h5
	sed 's/a.npy/gone.npy/' a.json >s.json
	tells 3 's.json: is the manifest of gone.npy' digest s.json
	warns 3 '^kvtool digest: s.json: ' digest s.json s.h5
	# nor is a dump left out for its name
	cp s.h5 a.json
	run -3 --separate-stderr kvtool digest a.npy a.json
	[ "$(kvtool digest a.json)" = "$output" ]
	# a damaged one fails once, with its data; what is none is no manifest
	echo '{' >a.json
	tells 3 '' digest a.npy a.json
	echo '{"model_type": "llama"}' >d/config.json
	run -3 --separate-stderr kvtool describe d/config.json
	[[ $stderr != *"is a manifest"* && $stderr != *"is the manifest"* ]]
	# bytes that are data are read as such
	small_raw x.json
	kvtool convert -q "${small[@]}" x.json y.bin
	[ "$(kvtool digest y.bin | cut -d ' ' -f 1)" = "$(kvtool digest "${small[@]}" x.json | cut -d ' ' -f 1)" ]
	mv y.bin.json x.json.json
	[ "$(kvtool digest x.json --trust-manifest | cut -d ' ' -f 1)" = "$(kvtool digest y.bin "${small[@]}" | cut -d ' ' -f 1)" ]
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
	tells 2 '' convert -f --level=30 --out-dir=out a.npy d.npy
}

@test "--out-dir: one progress over all of them" {
	/usr/bin/python3 - "$KVTOOL" >said <<-'END'
	import os, pty, random, re, subprocess, sys
	random.seed(1)
	words = [random.randbytes(random.randrange(3, 9)) for _ in range(5000)]
	for i, blocks in enumerate((1024, 8192, 1024)):
	    text = b"".join(random.choices(words, k=blocks * 512))
	    open(f"r{i}.bin", "wb").write(text[:blocks * 2048])
	ours, theirs = pty.openpty()
	p = subprocess.Popen([sys.argv[1], "convert", "--verify", "--threads=1", "--level=19",
	    "--mem-limit=8M", "--tile=32K", "--layout=nhd", "--dtype=bfloat16", "--layers=16", "--heads=4",
	    "--block-size=16", "--head-dim=8", "--out-dir=out"] + [f"r{i}.bin" for i in range(3)],
	    stderr=theirs, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
	os.close(theirs)
	said = b""
	try:
	    while piece := os.read(ours, 65536):
	        said += piece
	except OSError:
	    pass
	assert p.wait() == 0
	lines = re.findall(r"(\d) of 3, \w+ +(\d+)%  \d+ MB/s  \d+:\d\d left", said.decode())
	parts = [int(part) for _, part in lines]
	print(len(parts) > 1 and parts == sorted(parts))
	# the second is eight tenths of all
	print(all(10 <= part <= 90 for i, part in map(lambda x: (int(x[0]), int(x[1])), lines)
	          if i == 2))
	END
	[ "$(cat said)" = $'True\nTrue' ]
}

@test "--out-dir: two inputs of one name, and what has none, are refused at once" {
	mkdir x y && copy_dump "$nhd" x/a.npy && copy_dump "$hnd" y/a.npy
	copy_dump "$hnd" b.npy
	warns 2 'x/a.npy and y/a.npy would both become out/a.h5' convert --out-dir=out b.npy \
		x/a.npy y/a.npy
	[ ! -e out ]
	kvtool convert -q --format=raw b.npy b.bin
	warns 2 '' relayout --to=nhd --format=npy --out-dir=out b.npy b.bin
	warns 2 '' convert --out-dir=out - <b.npy
	warns 2 '' convert --out-dir=out .
	warns 2 '' convert --out-dir=out -o c.h5 b.npy
	warns 2 '' convert --shard=0/1 --shard-dir=parts --out-dir=out b.npy
	rm -rf parts
	: >file
	warns 5 '' convert --out-dir=file b.npy
	warns 5 '' convert --out-dir=no/folder b.npy
	tells 2 ': --out-dir=DIR$' convert b.npy x/a.npy y/a.npy
	tells 2 ': --out-dir=y$' convert b.npy x/a.npy y
	[ "$(echo y/*)" = "y/a.json y/a.npy" ]
	warns 2 '' mutate b.npy x/a.npy y/a.npy
	[[ $stderr != *--out-dir* ]]
}

@test "a last operand or -o that ends with a / is --out-dir" {
	mkdir in && copy_dump "$nhd" in/a.npy && copy_dump "$hnd" in/c.npy
	run -0 --separate-stderr kvtool convert in/* out/
	[ "${#lines[@]}" = 2 ]
	[ "$(echo out/*)" = "out/a.h5 out/c.h5" ]
	kvtool relayout -q --to=nhd in/*.npy -o r/
	[ "$(echo r/*)" = "r/a.json r/a.npy r/c.json r/c.npy" ]
	kvtool slice -q --layers=0 in/a.npy s/
	[ "$(echo s/*)" = "s/a.json s/a.npy" ]
	kvtool reblock -q --block-size=32 in/*.npy out/b/
	[ "$(echo out/b/*.npy)" = "out/b/a.npy out/b/c.npy" ]
	# a format of folders has one as its output
	kvtool convert -q --format=vllm-2026-07 in/a.npy one/
	[ ! -e one/a ]
	[ -n "$(echo one/*/*.safetensors)" ]
	# what a shell names by */ is no output, what is not there yet is
	mkdir y z
	kvtool convert -q --format=raw in/a.npy y/d
	warns 2 '' convert y/ in/ z/
	[ "$(echo z/*)" = "z/*" ]
	kvtool convert -q --from=raw --manifest=y/d.json y/d new/
	[ -f new/d.h5 ]
	run -3 --separate-stderr kvtool convert y/ new2/
	[[ $stderr != *"new2/"* ]]
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

# ---- one description of many ----------------------------------------------------

@test "describe of ranks: the first in full, then what differs, a line a file" {
	mkdir ranks && cp "$kv"/s260k/tp4/*.packed_hnd.* ranks
	run -0 --separate-stderr kvtool describe ranks/*
	[ -z "$stderr" ]
	first=$(kvtool describe ranks/rank0*.safetensors)
	[ "$output" = "$first

and 3 more like it, but for:
  ranks/rank1.packed_hnd.bf16.safetensors  rank tp 1 of 4; heads 1 of 4, from head 1
  ranks/rank2.packed_hnd.bf16.safetensors  rank tp 2 of 4; heads 1 of 4, from head 2
  ranks/rank3.packed_hnd.bf16.safetensors  rank tp 3 of 4; heads 1 of 4, from head 3" ]
	# what is of one dump alone is asked of each
	for option in -v --names --tuples --block-tables --stats --verify --canonical; do
		run -0 kvtool describe $option ranks/*
		[ "$(grep -c ': safetensors, ' <<<"$output")" = 4 ]
	done
	run -0 kvtool describe --json ranks/*
	for i in 0 1 2 3; do
		[ "$(json o <<<"${lines[i]}")" = "$(kvtool describe --json ranks/rank$i*.safetensors | json o)" ]
	done
	run -0 kvtool describe -q ranks/*
	[ -z "$output" ]
}

@test "describe of many: groups by their names, parts that differ, block tables" {
	two=$kv/mamba2g4/tp2_SD
	run -0 kvtool describe "$two"/rank0.npy "$two"/rank1.npy
	[ "${lines[-1]}" = "  $two/rank1.npy  rank tp 1 of 2; conv: parts x: 128 from 0, 128 in the model, B: 32 from 128, 288 in the model, C: 32 from 160, 352 in the model; ssm: heads 4 of 8, from head 4" ]
	# the same, but not in the same blocks; without requests; of other layers
	copy_dump "$nhd" a.npy && copy_dump "$nhd" b.npy && copy_dump "$nhd" d.npy
	edit b.json 'r = o["block_table"]["C"]; r[0], r[1] = r[1], r[0]'
	edit d.json 'del o["block_table"], o["num_tokens"], o["free_blocks"]
o["layer_names"] = [f"model.layers.{i}.attn" for i in range(4, 9)]'
	run -0 kvtool describe a.npy b.npy d.npy
	[ "${lines[-2]}" = '  b.npy  other block tables' ]
	[[ ${lines[-1]} == '  d.npy  requests 0, 0 tokens; layers model.layers.4.attn to model.layers.8.attn; blocks 48 of 16 tokens'*'; valid not said; other block tables' ]]
	kvtool slice -q --layers=1:3 a.npy l1.h5
	kvtool slice -q --layers=0,3 a.npy l2.h5
	run -0 kvtool describe l1.h5 l2.h5
	[[ ${lines[-1]} == '  l2.h5  file hdf5, '*', ratio '*'; layers 0, 3' ]]
}

@test "describe of many: nothing differs, other models, and what cannot be read" {
	copy_dump "$nhd" a.npy && copy_dump "$nhd" b.npy && copy_dump "$mla" m.npy
	copy_dump "$mla" n.npy && copy_dump "$hnd" h.npy && : >bad.npy
	run -0 kvtool describe a.npy b.npy
	[ "$output" = "$(kvtool describe a.npy)

and 1 more, of which the same is said:
  b.npy" ]
	warns 3 '' describe a.npy m.npy bad.npy b.npy n.npy h.npy
	[ "$output" = "$(kvtool describe a.npy)

and 1 more, of which the same is said:
  b.npy

$(kvtool describe m.npy)

and 1 more, of which the same is said:
  n.npy

$(kvtool describe h.npy)" ]
	# the first fails: the next is in full
	run -3 --separate-stderr kvtool describe bad.npy a.npy b.npy
	[ "${lines[0]}" = "$(kvtool describe a.npy | head -n 1)" ]
	[ "${lines[-1]}" = "  b.npy" ]
	# names with what a terminal would take as its own
	cp a.npy $'x\e[31m\n.npy' && cp a.json $'x\e[31m\n.json'
	edit $'x\e[31m\n.json' 'del o["file"]'
	run -0 kvtool describe a.npy $'x\e[31m\n.npy'
	[[ $output != *$'\e'* ]]
	[ "${lines[-1]}" = "$(printf '  x\\x1b[31m\\n.npy')" ]
	# an expectation fails before anything is printed
	run -1 kvtool describe --expect heads=3 a.npy b.npy
	[[ ${lines[0]} == "kvtool describe: a.npy: g0: heads is 4, expected 3" ]]
	[[ ${lines[1]} == "kvtool describe: b.npy: g0: heads is 4, expected 3" ]]
}

@test "describe of a hundred: as many lines, whatever the order" {
	copy_dump "$nhd" a.npy
	/usr/bin/python3 -c '
import json, os
o = json.load(open("a.json"))
for i in range(99):
    os.link("a.npy", f"r{i:02}.npy")
    o |= {"file": f"r{i:02}.npy", "dp_size": 99, "dp_rank": i}
    json.dump(o, open(f"r{i:02}.json", "w"))'
	run -0 --separate-stderr kvtool describe ./*
	[ -z "$stderr" ]
	[ "$(grep -c '^  \./r..\.npy  rank tp 0 of 1, dp [0-9]* of 99$' <<<"$output")" = 99 ]
	[[ $output == *$'\nand 99 more like it, but for:\n'* ]]
}
