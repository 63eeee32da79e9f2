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

# What the rows need besides; made once.
setup_file() {
	cd "$BATS_FILE_TMPDIR" || return 1
	kvtool convert -q "$nhd" ok.h5
	kvtool relayout -q --to=hnd -o other.h5 "$nhd"
	kvtool expect write --digest -o digest.kvc ok.h5
	kvtool mutate -q --fault=flip-bits -o bad.h5 ok.h5
	kvtool transfer-sim --json -m llama-3.1-8b >plan.json
	kvtool transfer-sim --json -m llama-3.1-8b --tokens=99 >plan2.json
	tail -c +129 "$hnd" >bare.bin
	cp "$root/testdata/measured/nixlbench.log" bench.csv
}

need() {
	cp "$BATS_FILE_TMPDIR"/*.{h5,kvc,json,bin,csv} .
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
		run --separate-stderr timeout 120 "$KVTOOL" "$@"
		[[ $status = 3 || $status = 4 ]] || { echo "$*: $status"; return 1; }
		[[ $stderr == *"$in"* ]] || { echo "$*: $stderr"; return 1; }
	}
	each_row openers odd
	in=/dev/zero
	odd reblock --block-size=32 -o out.h5 $in
	odd diff ok.h5 $in
	odd guess $in
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

full() {
	run --separate-stderr kvtool "$@"
	[ "$status" = 5 ] || { echo "$*: exit $status: $stderr"; return 1; }
	[[ $stderr == *"$out"* ]] && [ "${#stderr_lines[@]}" = 1 ] || { echo "$*: $stderr"; return 1; }
}

@test "a folder that is none, or cannot be written to" {
	need
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

teardown() {
	! mountpoint -q disk || umount disk
}

@test "a read-only file system" {
	need
	small_disk 1M
	mount -o remount,ro disk
	out=disk/out.h5
	each_out writers full
	out=disk/out.txt
	each_out text_writers full
}

@test "a disk that fills up" {
	need
	small_disk 64k
	local ending
	for ending in h5 npy safetensors; do
		out=disk/out.$ending
		each_out writers full
		[ -z "$(ls -A disk)" ] || { ls -A disk; return 1; }
	done
	# of text: nothing is free but the name
	dd if=/dev/zero of=disk/rest bs=4k status=none 2>/dev/null || true
	out=disk/out.txt
	each_out text_writers full
	[ "$(ls -A disk)" = rest ]
}

@test "a disk that fills up leaves the old file" {
	need
	small_disk 64k
	echo mine >disk/old.npy
	old() {
		full "$1" -f "${@:2}"
		[ "$(cat disk/old.npy)" = mine ]
		[ "$(ls -A disk)" = old.npy ] || { ls -A disk; return 1; }
	}
	old_mode() {
		if [ "$1" = transfer-sim ]; then
			full "$1" "$2" -f "${@:3}"
			[[ $(cat disk/old.npy) = mine && $(ls -A disk) = old.npy ]]
		else
			old "$@"
		fi
	}
	out=disk/old.npy
	each_out writers old_mode
}

@test "an output that is there already is kept" {
	need
	echo mine >out.npy
	out=out.npy
	kept() {
		full "$@"
		[ "$(cat out.npy)" = mine ]
	}
	each_out writers kept
	mv out.npy out.svg
	cp out.svg out
	out=out
	kept_text() {
		[ "$1 $2" != "expect check" ] || return 0	# reports are replaced
		full "$@"
		[[ $(cat out) = mine && $(cat out.svg) = mine ]]
	}
	each_out text_writers kept_text
}

@test "the input is never the output" {
	need
	cp ok.h5 in.h5
	cp other.h5 base.h5
	ln in.h5 hard.h5
	ln -s in.h5 symbolic.h5
	never() {
		run --separate-stderr kvtool "$@"
		[ "$status" = 2 ] && one_sentence || { echo "$*: exit $status: $stderr"; return 1; }
		cmp in.h5 ok.h5
		cmp base.h5 other.h5
	}
	local name
	for name in in.h5 ./in.h5 hard.h5 symbolic.h5; do
		never reblock -f --block-size=32 -o $name in.h5
		never mutate -f --fault=flip-bits -o $name in.h5
		never copy-blocks -f --blocks=1:2 -o $name in.h5 base.h5
		never copy-blocks -f --blocks=1:2 -o $name base.h5 in.h5
		never transfer-sim exec -f -o $name in.h5 base.h5
		never transfer-sim exec -f -o $name base.h5 in.h5
		never transfer-sim wire -f -o $name base.h5 in.h5
		never diff -f --heatmap=$name in.h5 base.h5
		never expect write -f -o $name in.h5
		never expect check --report=tap=$name digest.kvc in.h5
		never transfer-sim report -f --html=$name in.h5 base.h5
	done
	cp bare.bin raw.bin
	run --separate-stderr kvtool guess --layers=5 --block-size=16 --heads=4 --head-dim=8 \
		--write-manifest=raw.bin raw.bin
	[ "$status" != 0 ]
	cmp bare.bin raw.bin
	cp digest.kvc contract
	run --separate-stderr kvtool expect check --report=tap=contract contract ok.h5
	[ "$status" = 2 ]
	cmp digest.kvc contract
	cp bench.csv bench
	run --separate-stderr kvtool transfer-sim calibrate -f -o bench bench
	[ "$status" = 2 ]
	cmp bench.csv bench
}

# ---- standard output --------------------------------------------------------

# A row: a command that prints more than a line.
printers() {
	cat <<-'ROWS'
	describe --canonical ok.h5
	diff ok.h5 bad.h5
	diff --json ok.h5 bad.h5
	mutate --json --dry-run --fault=flip-bits -o out.npy ok.h5
	reblock --dry-run --block-size=32 -o out.npy ok.h5
	expect write ok.h5
	expect check digest.kvc ok.h5
	fsck --list
	fsck ok.h5
	doctor ok.h5 bad.h5
	doctor --json ok.h5
	help symptoms
	guess --layers=5 --block-size=16 --heads=4 --head-dim=8 bare.bin
	workers log
	size -m llama-3.1-8b
	size --json -m llama-3.1-8b
	size -m list
	transfer-sim -m llama-3.1-8b
	transfer-sim --ops -m llama-3.1-8b
	transfer-sim time -m llama-3.1-8b
	transfer-sim sweep -m llama-3.1-8b
	transfer-sim emit --format=nixl -m llama-3.1-8b
	transfer-sim compare plan.json plan2.json
	transfer-sim calibrate bench.csv
	transfer-sim exec --dry-run -o out.npy ok.h5 other.h5
	ROWS
}

@test "a full standard output is an error" {
	need
	echo '{"workers": 1}' >log
	in=
	out_full() {
		run --separate-stderr bash -c '"$@" >/dev/full' - "$KVTOOL" "$@"
		# a comparison also says what it found
		[[ $status = 5 && ${stderr_lines[-1]} == *": writing standard output: "* ]] ||
			{ echo "$*: exit $status: $stderr"; return 1; }
	}
	each_row printers out_full
}

@test "a reader that goes away ends it without a word" {
	need
	echo '{"workers": 1}' >log
	in=
	gone() {
		run --separate-stderr no_reader "$KVTOOL" "$@"
		[ "$status" = 141 ] && [ -z "$stderr" ] ||
			{ echo "$*: exit $status: $stderr"; return 1; }
	}
	each_row printers gone
}

# ---- interruption -----------------------------------------------------------

@test "an interrupted run leaves nothing behind and dies by the signal" {
	truncate -s 384M large.bin
	/usr/bin/python3 -c 'import json
print(json.dumps({"layout": "nhd", "dtype": "bfloat16", "num_tokens": {"A": 511 * 16},
    "sizes": {"layers": 12, "block_size": 16, "num_kv_heads": 8, "head_dim": 128},
    "block_table": {"A": list(range(511, 0, -1))}}))' >large.json
	local row
	while read -r row; do
		read -ra words <<<"$row"
		run interrupt SIGINT "$KVTOOL" "${words[@]}"
		[ "$output" = "by signal" ] || { echo "$row: $output"; return 1; }
		only large.bin large.json
	done <<-'ROWS'
	reblock --mem-limit=64M --block-size=32 -o out.npy large.bin
	reblock --mem-limit=64M --block-size=24 --level=19 -o out.h5 large.bin
	copy-blocks --mem-limit=64M --blocks=1:2 -o out.npy large.bin large.bin
	mutate --mem-limit=1G --fault=flip-bits -o out.npy large.bin
	transfer-sim exec --mem-limit=64M --dst=tp=1,layout=hnd -o out.npy large.bin
	transfer-sim wire --mem-limit=64M --dst=tp=1,layout=hnd -o out.npy large.bin
	ROWS
}
