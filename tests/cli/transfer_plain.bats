#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# transfer_plain.bats - transfer-sim as somebody types it who has read nothing: it
# works, or the message names what to type, and that works

load common
load dumps

mooncake='{"timestamp": 7, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}'

sim() { kvtool transfer-sim "$@"; }

# refused STATUS TEXT ARG...: nothing is printed, and the one sentence has TEXT
refused() { tells "$1" "$2" transfer-sim "${@:3}"; }

# named: the command between the last quotes of the sentence, to be run
named() {
	sed -n "s/.*'\(kvtool [^']*\)'.*/\1/p" <<<"$stderr"
}

# works COMMAND: "kvtool ..." as a message has it
works() {
	local words
	read -ra words <<<"$1"
	[ "${words[0]}" = kvtool ] || { echo "no command in: $stderr"; return 1; }
	kvtool "${words[@]:1}" >printed || { echo "$1"; return 1; }
}

@test "plain: 1. how long do 8k tokens take from TP 4 NHD to TP 8 HND over 400G" {
	local args=(time --model=llama-3.1-8b --tokens=8k '--src=tp=4,layout=nhd'
		'--dst=tp=8,layout=hnd')
	refused 2 "no link '400G'; at 400 Gb/s there are cx7-400g-verbs, " "${args[@]}" --link=400G
	said '--link=list prints all; --rate=50 makes one of 50 GB/s'
	sim "${args[@]}" --link=cx7-400g-verbs >a
	grep -q '^llama-3.1-8b, 8192 tokens: 1 GiB' a
	grep -q '^  takes  .* ms' a
	sim "${args[@]}" --rate=50 >b
	sim time --link=list >links
	grep -q '^cx7-400g-verbs ' links
}

@test "plain: 2. the same with bits a second" {
	refused 2 "--rate is '400G', expected 10^9 bytes a second, such as 50 for 400 Gb/s" \
		time -m llama-3.1-8b --rate=400G
	refused 2 'such as 12.5 for 100 Gb/s' time -m llama-3.1-8b --rate=100gb/s
	sim time -m llama-3.1-8b --rate=12.5 >a
}

@test "plain: 3. replay FILE asks for all that is missing, and says how" {
	printf '%s\n' "$mooncake" >trace.jsonl
	refused 2 'expected a model: --model=NAME|config.json or --spec' replay trace.jsonl
	works "$(named)"
	refused 2 'expected a model: ' replay
	said 'and a trace: '
	said 'TRACE'
	sim replay -m llama-3.1-8b trace.jsonl >a
	sim replay -m llama-3.1-8b --trace=trace.jsonl >b
	cmp a b
	grep -q '^trace.jsonl: 1 request' a
	refused 2 'expected one trace, got 2' replay -m llama-3.1-8b trace.jsonl trace.jsonl
	refused 2 'expected one trace, got 2' replay -m llama-3.1-8b trace.jsonl --trace=trace.jsonl
	refused 2 'TRACE and --synthetic exclude each other' replay -m llama-3.1-8b trace.jsonl \
		--synthetic=1,2
}

@test "plain: 4. a mode that is mistyped" {
	refused 2 "there is no mode 'tiem', did you mean 'time'?" tiem -m llama-3.1-8b
	refused 2 "there is no mode 'simulate'" simulate
	said 'plan, exec, wire, time'
	# what is there is a file, and what has a dot or slash would be one
	refused 5 'tiem.h5' tiem.h5 tiem.h5
	command cp -f "$nhd" replai
	refused 2 'expected the dump of a destination' replai
}

@test "plain: 5. one dump, and the destination in words" {
	sim "$nhd" --dst=tp=2 >a
	grep -q 'destination  .*2 ranks' a
	for mode in time "report --html=page.html" emit; do
		# shellcheck disable=SC2086	# an option
		sim $mode "$nhd" --dst=tp=2,layout=hnd,block-size=32 >a
	done
	[ -s page.html ]
	# the same as a dump that is so
	sim exec -q --dst=tp=2,layout=hnd,block-size=32 -o 'r%r.h5' "$nhd"
	sim --ops "$nhd" r1.h5 >one
	sim --ops "$nhd" --dst=tp=2,layout=hnd,block-size=32 | cmp one -
	# several ranks need each other
	refused 3 'r0.h5 is one of 2 ranks, and --dst needs all of them, got 1' r0.h5 --dst=tp=1
	sim r0.h5 r1.h5 --dst=tp=4 >a
	refused 2 'expected the dump of a destination, or --dst' r1.h5
	said '--dst=tp=2'
	copy_dump "$nhd" whole.npy	# a name without blanks, as words are cut at them
	refused 2 'expected the dump of a destination, or --dst' whole.npy
	works "$(named)"
	refused 2 'expected -o: where to write, and the dumps of the source' exec
	refused 2 'one dump of each side is enough' "$nhd" "$nhd" "$nhd"
}

@test "plain: 6. a model that is not in the list" {
	refused 2 'a model is given as --model=llama-3.1-8b' time llama-3.1-8b
	refused 2 'a model is given as --model=llama-3.1-8b' time llama-3.1-8b --dst=tp=2
	refused 2 "there is no model 'qwen3-32b'; --model=list prints the " time -m qwen3-32b
	said 'that are known; for any other give its config.json: --model=FILE'
	refused 2 "did you mean 'llama-3.1-8b'?" time -m unsloth/Llama-3.1-8B
	refused 2 "did you mean 'llama-3.1-8b'?" time -m llama-3.1-8
	for mode in plan time replay sweep report emit faults; do
		sim $mode --model=list >list
		grep -q '^llama-3.1-8b ' list
	done
	[ "$(cut -d' ' -f1 list | sort -u | wc -l)" = \
		"$(sim time -m qwen3-32b 2>&1 | sed 's/.* the \([0-9]*\) that.*/\1/')" ]
}

@test "plain: 7. a key that is mistyped" {
	refused 2 "there is no key 'layouts', did you mean 'layout'?" -m llama-3.1-8b --src=layouts=nhd
	refused 2 'layout, tp, block-size, pool, dcp, interleave, ids' -m llama-3.1-8b --src=colour=red
	sim -m llama-3.1-8b --src=layout=nhd,block_size=32 >a
	grep -q 'source .* 32 slots a block' a
	sim -m llama-3.1-8b --src=pool=1k >a
	grep -q 'pool of 1024' a
	refused 2 "expected KEY=VALUE, such as layout=hnd" -m llama-3.1-8b --src=hndx
}

@test "plain: 8. a cache in words, with keys as Python has them" {
	sim --spec=gqa:layers=4,heads=8,head_dim=128 >a
	sim --spec=gqa:layers=4,heads=8,head-dim=128 | cmp a -
	sim --spec=sliding_window:layers=4,heads=8,head_dim=128,window=128 >a
	refused 2 "gqa: there is no key 'head-dims', did you mean 'head-dim'?" --spec=gqa:head-dims=8
	refused 2 "there is no kind 'gpa', did you mean 'gqa'?" --spec=gpa:layers=4
	works "$(named)"
	refused 2 'after the kind' --spec=gqa,layers=4
	refused 3 'gqa needs heads, head_dim' --spec=gqa:layers=2
	refused 2 "there is no cache type 'bfloat17', did you mean 'bfloat16'?" -m llama-3.1-8b \
		--cache-dtype=bfloat17
}

@test "plain: 9. a config.json, however it is given" {
	cp "$root/models/llama-3.1-8b.json" config.json
	mkdir Llama && cp config.json Llama
	sim time -m config.json >a
	for given in --config=config.json --model=Llama --config=./Llama/ config.json; do
		sim time "$given" >b
		diff <(sed 1d a) <(sed 1d b)
	done
	kvtool size config.json >a
	for given in --config=config.json --model=config.json --config=Llama; do
		# the second line has the name
		diff <(sed 2d a) <(kvtool size "$given" | sed 2d)
	done
	kvtool size --config=llama-3.1-8b | diff <(kvtool size llama-3.1-8b) -
	sim time --config=- <config.json >b
	refused 2 '--model and --config are one option' time -m llama-3.1-8b --config=config.json
}

@test "plain: 10. nothing said, and what was assumed" {
	refused 2 'expected a model: --model=NAME|config.json or --spec; or the dumps of both sides'
	works "$(named)"
	for mode in plan time sweep report emit; do
		refused 2 'expected a model: ' $mode
		works "$(named)"
	done
	sim time -m llama-3.1-8b >a
	grep -q '  link  *cx7-400g-verbs (default for --emulate=rfc)' a
	grep -q '  stack  *rfc (default)' a
	sim time -m llama-3.1-8b --emulate=nixl --link=hdr200 >a
	run ! grep default a
	sim time -m llama-3.1-8b --emulate=nixl >a
	grep -q 'vllm-nixl-rc (default for --emulate=nixl)' a
	sim replay -m llama-3.1-8b --synthetic=1,5 >a
	grep -q 'cx7-400g-verbs (default for --emulate=rfc' a
	sim sweep -m llama-3.1-8b --layouts=hnd >a
	grep -q 'cx7-400g-verbs (default' a
	[ "$(sim time -m llama-3.1-8b -j | jq -c .assumed)" = '["emulate","link"]' ]
	[ "$(sim time -m llama-3.1-8b -j --link=hdr200 | jq -c .assumed)" = '["emulate"]' ]
	[ "$(sim replay -m llama-3.1-8b --synthetic=1,5 -j --emulate=nixl | jq -c .assumed)" = '["link"]' ]
	[ "$(sim sweep -m llama-3.1-8b --layouts=hnd -j | jq -c .assumed)" = '["link"]' ]
	sim time --emulate=list >a
	grep -q '^nixl  .*vllm-nixl-rc' a
}

@test "plain: 11. words of lists have the nearest one" {
	refused 2 "did you mean 'nixl'?" time -m llama-3.1-8b --emulate=nixxl
	refused 2 "did you mean 'layer'?" -m llama-3.1-8b --scope=layers
	refused 2 "did you mean 'fair'?" time -m llama-3.1-8b --share=fare
	refused 2 "did you mean 'jsonl'?" emit -m llama-3.1-8b --format=json
	refused 2 "did you mean 'nixl'?" sweep -m llama-3.1-8b --scopes=nxil
	refused 2 "did you mean 'contig'?" -m llama-3.1-8b --src=ids=config
	refused 2 '--src=layout=nhd' -m llama-3.1-8b --layout=nhd
	refused 2 '--src=block-size=32' time -m llama-3.1-8b --block-size=32
}

@test "plain: 12. standard input and output" {
	printf '%s\n' "$mooncake" >trace
	sim replay -m llama-3.1-8b -j trace >a
	sim replay -m llama-3.1-8b -j - <trace >b
	diff <(jq 'del(.trace)' a) <(jq 'del(.trace)' b)
	jq -e '.trace == "standard input"' b
	sim replay -m llama-3.1-8b -j --trace=- <trace | cmp b -
	/usr/bin/zstd -qc trace | sim replay -m llama-3.1-8b -j - | cmp b -
	sim emit -m llama-3.1-8b >a
	sim emit -m llama-3.1-8b -o emitted
	cmp a emitted
	refused 5 'emitted: exists; --force replaces it' emit -m llama-3.1-8b -o emitted
	sim emit -m llama-3.1-8b --dst=tp=2 -f -o emitted
	run ! cmp -s a emitted
	sim emit -m llama-3.1-8b -o /dev/null
	refused 5 '/dev/full: cannot write: No space left on device' emit -m llama-3.1-8b -o /dev/full
	(ulimit -f 10; run -5 --separate-stderr kvtool transfer-sim emit -m llama-3.1-8b \
		--src=layout=nhd --dst=tp=2 -o limited; said 'limited: cannot write: File too large')
	[ ! -e limited ]
	sim emit -m llama-3.1-8b -o - | cmp a -
	sim report -m llama-3.1-8b --html=page.html
	sim report -m llama-3.1-8b -o two.html && cmp page.html two.html
	sim report -m llama-3.1-8b -o - | cmp page.html -
	sim report -m llama-3.1-8b --svg=p.svg && sim report -m llama-3.1-8b -o q.svg && cmp p.svg q.svg
	sim report -m llama-3.1-8b -o t.json && jq -e .traceEvents t.json >a
	refused 2 'expected a name that ends with .html, .svg or .json' report -m llama-3.1-8b -o page
	sim calibrate "$root/testdata/measured/fd-a.csv" -o link.json >a
	sim calibrate - -o - <"$root/testdata/measured/fd-a.csv" >b
	diff <(jq 'del(.source)' link.json) <(jq 'del(.source)' b)
	sim time -m llama-3.1-8b --link=- <link.json >a
	grep -q calibrated a
	printf '%s\n' '{"workers": 1}' '{"step": 1, "worker": 0, "finished_recving": ["A"]}' |
		kvtool workers - >a
	grep -q '^standard input: 1 worker' a
}

@test "plain: 13. which dumps are needed, and dumps that do not describe themselves" {
	local ggsn=$root/testdata/engines/llama.cpp/gemma2.fa0_u0.ggsn
	refused 3 'give --heads or --head-dim' "$ggsn" --dst=tp=2
	# values that are transposed cannot be dealt out by head
	refused 4 'kvtool relayout --to=nhd -o OUT IN' "$ggsn" --dst=tp=2 --head-dim=64
	kvtool relayout --to=nhd --head-dim=64 -o out.h5 "$ggsn"
	sim out.h5 --dst=tp=2 >a
	sim exec -q out.h5 --dst=tp=2 -o 'r%r.h5'
	refused 3 'for plan and emit one of each side is enough' exec r0.h5 --dst=tp=1 -o x.h5
	sim r1.h5 out.h5 >a
	# an array without a manifest beside it, and the words for it
	kvtool relayout -q --to=hnd -o told.npy "$nhd"
	mkdir bare
	mv told.npy bare/a.npy
	mv told.json bare/m
	refused 3 'have no request in common: the first has no requests' bare/a.npy --dst=tp=2 --layout=hnd \
		--dtype=bfloat16
	sim --ops bare/a.npy --dst=tp=2 --manifest=bare/m >a
	sim exec -q --manifest=bare/m bare/a.npy --dst=tp=2 -o 's%r.h5'
	# the other one describes itself
	sim --ops bare/a.npy s0.h5 --manifest=bare/m >b
	head -n 1 a | cmp - <(head -n 1 b)
	refused 3 '--heads is 3, but group g0 has 4' bare/a.npy s0.h5 --manifest=bare/m --heads=3
}

@test "plain: 14. kvtool help specs: each example is one that works" {
	kvtool help specs >topic
	grep '^ *[a-z0-9-]*:layers=4' topic | sed 's/^ *//' >examples
	[ "$(wc -l <examples)" -gt 25 ]
	while read -r spec; do
		kvtool size "--spec=$spec" --cache-dtype=bfloat16 --tp=1 >a ||
			{ echo "$spec"; return 1; }
	done <examples
	for key in layers heads head-dim head-dim-v latent ratio window inter groups \
		state-size key-heads key-dim kernel spec-tokens elem block-size retained blocks stride leader replay; do
		grep -q "^  $key  " topic || { echo "$key"; return 1; }
	done
	# each kind is of one class, and each class of vLLM is there
	[ "$(sed -n '/^classes/,/^A model/p' topic | grep -c '^  [A-Z]')" = 14 ]
	[ "$(sed -n '/^classes/,/^A model/p' topic | grep '^   ' | wc -w)" = "$(wc -l <examples)" ]
	grep -A 1 '^  CircularBufferSpec .*whole; never found again; no slot mapping' topic | grep -q ' ring$'
}
