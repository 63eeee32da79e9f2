#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# bad_input_new.bats - the same for the commands that came after the first ones
# (bad_input.bats has those)

load common
load dumps

# refused STATUS COMMAND...: that status, one sentence, no output left behind
refused() {
	local want=$1
	shift
	run --separate-stderr "$@"
	[ "$status" = "$want" ] || { echo "$*: exit $status, expected $want: $stderr"; return 1; }
	one_sentence || { echo "$*: not one sentence: $stderr"; return 1; }
	[ -z "$(find . -name 'out*' -o -name '*.tmp-*')" ] || { echo "$*"; find .; return 1; }
}

# flip FILE [PLACE]: the byte there is another; by default the middle one
flip() {
	/usr/bin/python3 - "$@" <<-'PYTHON'
	import os, sys
	with open(sys.argv[1], "r+b") as f:
	    at = int(sys.argv[2]) if len(sys.argv) > 2 else os.path.getsize(sys.argv[1]) // 2
	    f.seek(at)
	    byte = f.read(1)[0]
	    f.seek(at)
	    f.write(bytes([byte ^ 0xff]))
	PYTHON
}

# A row: a command that reads IN as far as it can, and other dumps as it needs them.
readers() {
	cat <<-'ROWS'
	reblock --block-size=32 -o out.h5 IN
	reblock --block-size=24 -o out.npy IN
	diff --deep ok.h5 IN
	diff --deep IN ok.h5
	mutate --fault=flip-bits -o out.h5 IN
	expect write --digest -o out.kvc IN
	expect check digest.kvc IN
	copy-blocks --blocks=1:2 -o out.npy IN ok.h5
	copy-blocks --blocks=1:2 -o out.npy ok.h5 IN
	transfer-sim exec --dst=tp=2,layout=bhlsc -o out%r.npy IN
	transfer-sim exec -o out.npy IN other.h5
	transfer-sim wire -o out.npy IN other.h5
	ROWS
}

# And those that read no more of a dump than what describes it.
openers() {
	readers
	cat <<-'ROWS'
	describe --canonical IN
	guess IN
	transfer-sim IN other.h5
	transfer-sim other.h5 IN
	transfer-sim time IN other.h5
	transfer-sim report --html=out.html IN other.h5
	transfer-sim emit --format=nixl IN other.h5
	transfer-sim exec -o out.npy other.h5 IN
	ROWS
}

# A row: a command that reads IN, which is no dump.
texts() {
	cat <<-'ROWS'
	workers IN
	size IN
	size --config IN
	size -m ./IN
	expect check IN ok.h5
	transfer-sim -m ./IN
	transfer-sim --cases=IN
	transfer-sim --counts=IN
	transfer-sim time -m llama-3.1-8b --link=./IN
	transfer-sim replay -m llama-3.1-8b --trace=IN
	transfer-sim faults -m llama-3.1-8b --trace=IN
	transfer-sim compare IN plan.json
	transfer-sim compare plan.json IN
	transfer-sim calibrate -o out.json IN
	transfer-sim calibrate IN
	ROWS
}

# each_row TABLE FUNCTION...: FUNCTION for the words of each row, IN replaced by $in
each_row() {
	local row n=0
	while read -r row; do
		read -ra words <<<"${row//IN/$in}"
		"${@:2}" "${words[@]}" || return 1
		n=$((n + 1))
	done < <("$1")
	[ $n -gt 11 ]
}

# What the rows need besides.
need() {
	kvtool convert -q "$nhd" ok.h5
	kvtool relayout -q --to=hnd -o other.h5 "$nhd"
	kvtool expect write --digest -o digest.kvc ok.h5
	kvtool transfer-sim --json -m llama-3.1-8b >plan.json
}

# bad STATUS COMMAND...: refused with the name of $in
bad() {
	refused "$1" kvtool "${@:2}"
	[[ $stderr == *"$in"* ]] || { echo "$*: no $in in: $stderr"; return 1; }
}

# ---- input ------------------------------------------------------------------

@test "a damaged tile is told with the name of its file" {
	need
	cp ok.h5 in.h5
	flip in.h5
	in=in.h5
	damaged() {
		refused 3 kvtool "$@"
		[[ $stderr == *": in.h5: stored tile is damaged: Fletcher-32 is "* ]] ||
			{ echo "$*: $stderr"; return 1; }
	}
	each_row readers damaged
}

@test "files that are not there, empty, cut short, or something else" {
	need
	in=missing.h5
	each_row openers bad 5
	in=in.file
	: >in.file
	each_row openers bad 3
	head -c 100000 ok.h5 >in.file
	each_row openers bad 3
	head -c 4000 "$rank1" >in.file
	each_row openers bad 3
	echo 'a line of text' >in.file
	each_row openers bad 3
	rm in.file
	mkdir in.file
	each_row openers bad 3
}

@test "a header in which a byte is another" {
	need
	in=in.safetensors
	cp "$rank1" in.safetensors
	flip in.safetensors 8
	each_row openers bad 3
	cp "$rank1" in.safetensors
	flip in.safetensors 7		# a header of 2^63 bytes
	each_row openers bad 3
}

@test "fsck says what it cannot read" {
	need
	cp ok.h5 in.h5
	flip in.h5
	run -1 kvtool fsck in.h5
	[[ ${lines[0]} == "in.h5: error: tile.damaged: "* ]]
	for content in '' 'a line of text'; do
		printf '%s' "$content" >in.file
		run -3 kvtool fsck in.file
		[[ $output == *"in.file"* ]]
	done
	head -c 100000 ok.h5 >in.file
	run -3 kvtool fsck --fast in.file
	[[ $output == *"in.file"* ]]
	run -5 kvtool fsck missing.h5
	[[ $output == *"missing.h5"* ]]
}

@test "a FIFO or device does not hang" {
	need
	in=pipe
	mkfifo pipe
	odd() {
		run --separate-stderr timeout 20 "$KVTOOL" "$@"
		[[ $status = 3 || $status = 4 ]] || { echo "$*: $status"; return 1; }
		[[ $stderr == *"$in"* ]] || { echo "$*: $stderr"; return 1; }
	}
	each_row openers odd
	in=/dev/zero
	each_row openers odd
}

@test "sizes that no file can have" {
	need
	small_raw small.bin
	local base=(--layout=nhd --dtype=bfloat16 --heads=2 --head-dim=8)
	local huge=(--layers=4294967296 --blocks=4294967296 --tokens-per-block=4294967296)
	in=small.bin
	bad 3 reblock --block-size=32 -o out.h5 "${base[@]}" "${huge[@]}" small.bin
	bad 3 mutate --fault=flip-bits -o out.h5 "${base[@]}" "${huge[@]}" small.bin
	bad 3 diff "${base[@]}" "${huge[@]}" small.bin small.bin
	bad 3 expect write -o out.kvc "${base[@]}" "${huge[@]}" small.bin
	bad 3 copy-blocks --blocks=1:2 -o out.h5 "${base[@]}" --layers=4294967296 \
		--tokens-per-block=4294967296 small.bin small.bin
	bad 3 describe --canonical "${base[@]}" "${huge[@]}" small.bin
	run -3 kvtool fsck "${base[@]}" "${huge[@]}" small.bin
	refused 2 kvtool reblock --block-size=9223372036854775806 -o out.h5 ok.h5
	refused 2 kvtool reblock --block-size=9223372036854775808 -o out.h5 ok.h5
	refused 2 kvtool reblock --block-size=0 -o out.h5 ok.h5
	refused 3 kvtool copy-blocks --blocks=4294967295:1 -o out.h5 ok.h5 other.h5
	run --separate-stderr kvtool copy-blocks --blocks=0-9223372036854775807:0 -o out.h5 ok.h5 other.h5
	[[ $status = 2 || $status = 3 ]]
	one_sentence
	refused 3 kvtool size --spec gqa:layers=1048577,heads=1048577,head-dim=1048577 \
		--cache-dtype=bfloat16 --tp=1
	refused 3 kvtool digest --spec gqa:heads=999999999999999999,head-dim=8 small.bin
}

@test "text that is none, or is cut short" {
	need
	in=in.txt
	each_row texts bad 5
	: >in.txt
	each_row texts bad 3
	printf '\x00\xff\xfe\x01garbage' >in.txt
	each_row texts bad 3
	printf '{"groups": [' >in.txt
	each_row texts bad 3
	printf '%*s' 20000 | tr ' ' '[' >in.txt
	each_row texts bad 3
	rm in.txt
	mkdir in.txt
	unreadable() {
		run --separate-stderr kvtool "$@"
		[[ $status = 3 || $status = 5 ]] || { echo "$*: $status $stderr"; return 1; }
		one_sentence && [[ $stderr == *"$in"* ]] || { echo "$*: $stderr"; return 1; }
	}
	each_row texts unreadable
}

# ---- output -----------------------------------------------------------------

# A row: a command that writes OUT from ok.h5 and other.h5.
writers() {
	cat <<-'ROWS'
	reblock --block-size=32 -o OUT ok.h5
	reblock --block-size=24 --compact -o OUT ok.h5
	mutate --fault=flip-bits -o OUT ok.h5
	copy-blocks --blocks=1:2 -o OUT ok.h5 other.h5
	transfer-sim exec -o OUT ok.h5 other.h5
	transfer-sim wire -o OUT ok.h5 other.h5
	ROWS
}

# And of text.
text_writers() {
	cat <<-'ROWS'
	expect write -o OUT ok.h5
	diff --heatmap=OUT.svg ok.h5 bad.h5
	expect check --report=junit=OUT digest.kvc ok.h5
	guess --layers=5 --block-size=16 --heads=4 --head-dim=8 --write-manifest=OUT bare.bin
	transfer-sim report -m llama-3.1-8b --html=OUT
	transfer-sim calibrate -o OUT bench.csv
	ROWS
}

# each_out TABLE FUNCTION...: the same with OUT replaced by $out
each_out() {
	local row n=0
	while read -r row; do
		read -ra words <<<"${row//OUT/$out}"
		"${@:2}" "${words[@]}" || return 1
		n=$((n + 1))
	done < <("$1")
	[ $n -gt 5 ]
}

need_more() {
	need
	kvtool mutate -q --fault=flip-bits -o bad.h5 ok.h5
	tail -c +129 "$hnd" >bare.bin
	cp "$root/testdata/measured/nixlbench.log" bench.csv
}

full() {
	run --separate-stderr kvtool "$@"
	[ "$status" = 5 ] || { echo "$*: exit $status: $stderr"; return 1; }
	[[ $stderr == *"$out"* ]] && [ "${#stderr_lines[@]}" = 1 ] || { echo "$*: $stderr"; return 1; }
}

@test "a folder that is none, or cannot be written to" {
	need_more
	out=missing/out.h5
	each_out writers full
	each_out text_writers full
	out=/proc/out.h5
	each_out writers full
	each_out text_writers full
	mkdir folder.h5
	out=folder.h5
	each_out writers full
	[ -z "$(find . -name '*.tmp-*')" ]
}
