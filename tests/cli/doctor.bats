#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash and run
# doctor.bats - kvtool doctor: its verdicts, what they rest on, and the command it names
# (what is strange: tests/oracle_odd.py; from symptoms: symptoms.bats)

load common

sizes=(--layers=5 --block-size=16 --heads=4 --head-dim=8)

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return 1
	/usr/bin/python3 "$BATS_TEST_DIRNAME/../planted.py" .
}

# files NAME...: what was planted, here
files() {
	for name; do
		command cp "$BATS_FILE_TMPDIR/$name".* .
	done
}

# The command that the answer names, as a shell reads it.
follow() {
	next=${output##*next: }
	[[ $next = kvtool\ * ]]
	eval "run $next"
	((status < 2))
}

# verdict NAME: as a program reads it
verdict() {
	jq -r .verdict <<<"$output"
}

@test "a dump that is right, alone and beside itself" {
	files good
	run -0 --separate-stderr kvtool doctor good.npy
	[[ ${lines[0]} = 'good.npy: nothing wrong was found; a dump to compare with would show more' ]]
	[[ ${lines[2]} = '  bf16 K and V of 5 layers, 4 heads of 8, blocks of 16 tokens; NHD;'* ]]
	[ -z "$stderr" ]
	[[ $output != *'next: '* ]]
	kvtool relayout -q --to=hnd good.npy hnd.h5
	run -0 kvtool doctor good.npy hnd.h5
	[ "${lines[0]}" = 'good.npy and hnd.h5 hold the same, and nothing wrong was found' ]
}

@test "the verdict of one dump says where it is wrong, and the next command shows it" {
	files swapped scaled twice zeros rank1-bad nan fp8
	while read -r name said; do
		run -1 kvtool doctor "$name.npy"
		[[ ${lines[0]} = "$name.npy: something is wrong"*"$said"* ]]
		follow
	done <<-'END'
		swapped keys and values of layer 2 are exchanged
		fp8 numbers too large for float8_e4m3fn were cut off
		scaled keys of layer 2 are
		twice blocks 15 (entry 2 of request A) and 34 (entry 5 of request B) hold the same
		zeros zeros in every live slot of layers 3 to 4
		rank1-bad heads 2 to 3: zeros
		nan 8 NaN, the first here
	END
}

@test "of two, a fault with a name comes first, then what is wrong with one alone" {
	files good swapped shifted stale nan
	run -1 kvtool doctor good.npy swapped.npy
	[ "${lines[0]}" = 'swapped.npy differs from good.npy in layer 2: swap-kv: keys and values are exchanged' ]
	[[ $output = *'g0: differs, '* ]]
	follow
	run -1 kvtool doctor good.npy shifted.npy
	[ "${lines[0]}" = 'shifted.npy differs from good.npy in layers 0-4: shift-blocks by=1,of=1: blocks are stored where a neighbour should be' ]
	run -1 kvtool doctor good.npy nan.npy
	[ "${lines[0]}" = 'nan.npy differs from good.npy in head 1 of layer 3: nan: values became NaN or infinite' ]
	run -1 kvtool doctor good.npy stale.npy
	[ "${lines[0]}" = 'stale.npy differs from good.npy in layers 0-4: no known fault explains it; the first is token 48 of request B' ]
	follow
}

@test "what lies where is said with the fault" {
	files good
	kvtool mutate -q --fault=swap-blocks,a=17,b=21 -o moved.h5 good.npy
	run -1 kvtool doctor good.npy moved.h5
	[[ ${lines[0]} = 'moved.h5 differs from good.npy in layers 0-4: swap-blocks a=17,b=21: two blocks are exchanged'* ]]
	[[ $output = *'block 17 of B is block 21 of A, 21 is 17 in 5 of 5 layers: two blocks are exchanged, as two entries of a block table would be'* ]]
}

@test "other types may differ by rounding; more is a difference" {
	files good fp16 fp8
	shows 0 'within tolerance' doctor good.npy fp16.npy
	run -1 kvtool doctor good.npy fp8.npy
}

@test "the layout that nothing says is the one for which the data speaks" {
	files unknown
	run -0 kvtool doctor "${sizes[@]}" unknown.npy
	[[ $output = *'nothing says it: by its data it is --layout=nhd --dtype=bfloat16'* ]]
	run -1 kvtool doctor "${sizes[@]}" --dtype=bf16 --layout=hnd unknown.npy
	[[ ${lines[0]} = *'the layout is not what was said: by its data it is --layout=nhd'* ]]
	follow
	[[ $output = *LBSHC* ]]
	run -0 kvtool doctor "${sizes[@]}" --dtype=bf16 --layout=nhd unknown.npy
}

@test "a layout that a manifest, a header or a snapshot says, and the data contradicts" {
	files good
	for name in right.npy right.safetensors right.h5; do
		kvtool relayout -q --to=hnd good.npy $name
		run -0 kvtool doctor $name
		wrong=${name/right/wrong}
		kvtool mutate -q --fault=swap-heads-slots,way=0 $name "$wrong"
		run -1 kvtool doctor "$wrong"
		[ "${lines[0]}" = "$wrong: the layout is not what it is said to be, hnd (LBHSC): by its data it is nhd (LBSHC), [S,H] rows under a shape of [H,S]" ]
		[[ ${lines[3]} = '  layout    is said to be hnd (LBHSC); by its data it is nhd (LBSHC): '* ]]
		follow
		run -0 kvtool diff $name "mended.${name#*.}"
	done
	run -1 kvtool doctor --json wrong.h5
	jq -e '.verdict == "wrong" and (.files[0] | .layout_contradicted and
		.pages.fault == "swap-heads-slots" and .pages.layout == "LBSHC")' <<<"$output"
	jq -e '.files[0].pages == null' <<<"$(kvtool doctor --json right.h5)"
	# of an order that is no layout
	kvtool mutate -q --fault=swap-heads-slots,way=1 right.h5 turned.h5
	run -1 kvtool doctor turned.h5
	[[ ${lines[0]} = *'is said to be, hnd (LBHSC): by its data it is [H,S] rows under a shape of [S,H]' ]]
	# told with --layout, and by the shape alone
	command cp wrong.npy a.npy
	run -1 kvtool doctor --layout=hnd --dtype=bf16 "${sizes[@]}" a.npy
	[[ ${lines[0]} = *'by its data it is nhd (LBSHC), [S,H] rows under a shape of [H,S]' ]]
	run -3 kvtool doctor "${sizes[@]}" a.npy
	[[ ${lines[0]} = 'a.npy cannot be read: its shape says hnd (LBHSC), but its data has the order of nhd (LBSHC): '* ]]
	[[ ${lines[-1]} = 'next: kvtool guess '* ]]
}

@test "data without order contradicts no layout" {
	# below 1/16, so that none is NaN
	head -c 491520 /dev/urandom | tr '\000-\377' '\000-\053' >noise.bin
	head -c 491520 /dev/zero >zero.bin
	for name in noise zero; do
		kvtool doctor --json --layout=nhd --dtype=fp16 "${sizes[@]}" $name.bin >out || true
		jq -e '.files[0].pages == null and .verdict != "unreadable"' out
	done
}

@test "what cannot be read or compared is status 3, with a command that goes on" {
	files good unknown
	run -3 --separate-stderr kvtool doctor unknown.npy
	[[ ${lines[0]} = 'unknown.npy cannot be read: '* ]]
	[ "${lines[-1]}" = 'next: kvtool guess unknown.npy' ]
	head -c 1000 good.npy >cut.npy
	sed 's/good.npy/cut.npy/' good.json >cut.json
	run -3 kvtool doctor cut.npy
	[ "${lines[-1]}" = 'next: kvtool fsck cut.npy' ]
	run -3 kvtool doctor good.npy cut.npy
	[[ ${lines[0]} = 'cut.npy cannot be read: '* ]]
	run -3 kvtool doctor good.npy testdata/kv/gqa64/paged_bs16/packed_nhd.bf16.npy
	[[ ${lines[0]} = *'cannot be compared'* ]]
	follow
}

@test "what only one has is told, and the rest compared" {
	files good
	kvtool slice -q --layers=0:3 good.npy part.h5
	run -1 kvtool doctor good.npy part.h5
	[[ ${lines[0]} = 'what both have is the same, but only good.npy has layers 3-4 of g0'* ]]
	follow
}

@test "names with blanks and options are typed again as a shell takes them" {
	files good
	command cp good.npy "it's a dump.npy"
	sed "s/good.npy/it's a dump.npy/" good.json >"it's a dump.json"
	run -0 kvtool doctor "it's a dump.npy"
	files swapped
	command cp swapped.npy 'a b.npy'
	run -1 kvtool doctor --layout=nhd --dtype bf16 "${sizes[@]}" 'a b.npy'
	[[ $output = *"next: kvtool describe --stats --layout=nhd --dtype bf16 ${sizes[*]} 'a b.npy'" ]]
	follow
}

@test "options of one side alone" {
	files unknown
	command cp testdata/kv/s260k/paged_bs16/packed_hnd.bf16.npy other.npy
	said=dtype=bf16,layers=5,block-size=16,heads=4,head-dim=8
	run -0 kvtool doctor --a=layout=nhd,$said --b=layout=hnd,$said unknown.npy other.npy
	[[ ${lines[0]} = 'unknown.npy and other.npy hold the same'* ]]
}

@test "JSON has the verdict, the sentence, the next command and the evidence" {
	files good swapped unknown
	run -1 kvtool doctor --json good.npy swapped.npy
	[ "$(verdict)" = differs ]
	jq -e '.files | length == 2' <<<"$output"
	jq -e '.files[1].strange[0] | .name == "swapped-kv" and .sure == "certain" and
		.at == "group=g0,layer=2"' <<<"$output"
	jq -e '.diff.result == "differs"' <<<"$output"
	jq -e '.next == "kvtool diff --map good.npy swapped.npy"' <<<"$output"
	run -1 kvtool doctor --json swapped.npy
	[ "$(verdict)" = wrong ]
	jq -e '.diff == null' <<<"$output"
	run -0 kvtool doctor --json good.npy
	[ "$(verdict)" = sound ]
	run -0 kvtool doctor --json good.npy good.npy
	[ "$(verdict)" = same ]
	run -3 kvtool doctor --json unknown.npy
	[ "$(verdict)" = unreadable ]
	jq -e '.files[0].refused | test("give --layout")' <<<"$output"
	run -3 kvtool doctor --json good.npy testdata/kv/gqa64/paged_bs16/packed_nhd.bf16.npy
	[ "$(verdict)" = incomparable ]
}

@test "standard input is read once, so no command is named for it" {
	files swapped good
	kvtool convert -q swapped.npy swapped.h5
	run -1 kvtool doctor - <swapped.h5
	[[ ${lines[0]} = '/dev/stdin: something is wrong: '* ]]
	[[ $output != *'next: '* ]]
	run -1 kvtool doctor good.npy - <swapped.h5
	[[ $output != *'next: '* ]]
}

@test "files that are no dump" {
	: >empty.npy
	head -c 3000 /dev/zero | tr '\0' x >x.bin
	for file in empty.npy x.bin /dev/zero /dev/null testdata/README.md; do
		run -3 --separate-stderr timeout 120 "$KVTOOL" doctor $file
		[[ ${lines[0]} = "$file cannot be read: "* ]]
	done
}

@test "an interrupted run says nothing and dies by the signal" {
	truncate -s 4G large.bin
	run -130 timeout --preserve-status -s INT 0.5 "$KVTOOL" doctor --threads=1 --layout=nhd \
		--dtype=bf16 --layers=32 --block-size=16 --heads=8 --head-dim=128 large.bin
	[ -z "$output" ]
}

@test "usage" {
	tells 2 'a dump' doctor
	shows 2 'expected one dump or two, got 3' doctor a b c
	run -2 kvtool doctor --layuot=nhd a
	run -5 kvtool doctor not-there.npy
	run -5 kvtool doctor testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy not-there.npy
}

@test "the answer is the same with one thread and little memory" {
	files good swapped
	kvtool doctor good.npy swapped.npy >wanted || true
	run -1 kvtool doctor --threads=1 --mem-limit=4M good.npy swapped.npy
	diff <(sed 's/ *$//' wanted | grep -v '^next') <(grep -v '^next' <<<"$output")
	run -1 kvtool doctor --threads=3 good.npy swapped.npy
	diff <(grep -v '^next' wanted) <(grep -v '^next' <<<"$output")
}
