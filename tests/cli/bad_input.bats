#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# bad_input.bats - wrong files, wrong places to write, interruption: what each command
# makes of each of them, so most tests go through tables of commands
# (damaged bytes, thousands of them: tests/damaged_files.py)

load common
load dumps

# bad STATUS WORDS ARG...: tells so, and leaves no output behind
bad() {
	tells "$@" || { echo "$*"; return 1; }
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

# ---- tables: the words of a command, IN and OUT in them are $in and $out -------

# What reads IN as far as it can, and other dumps as it needs them.
readers() {
	cat <<-'ROWS'
	convert IN out.npy
	relayout --to=hnd -o out.npy IN
	slice -o out.npy IN
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

# And what reads no more of a dump than what describes it.
openers() {
	readers
	cat <<-'ROWS'
	digest IN
	convert IN out.h5
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

# What reads IN, which is no dump.
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

# What writes OUT from ok.h5 and other.h5.
writers() {
	cat <<-'ROWS'
	convert ok.h5 OUT
	relayout --to=hnd -o OUT ok.h5
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

# What prints more than a line.
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

# each TABLE FUNCTION...: FUNCTION for the words of each row; KVT_CASES=4: of each fourth, from
# another one each time
turn=0
each() {
	local row n=0
	turn=$((turn + 1))
	while read -r row; do
		n=$((n + 1))
		[ $(((n + turn + BATS_TEST_NUMBER) % ${KVT_CASES:-1})) = 0 ] || continue
		row=${row//IN/${in-}}
		read -ra words <<<"${row//OUT/${out-}}"
		"${@:2}" "${words[@]}" || return 1
	done < <("$1")
	[ $n -gt 5 ]
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

# named STATUS ARG...: refused with the name of $in
named() {
	bad "$1" "$in" "${@:2}"
}

# full ARG...: OUT cannot be written
full() {
	run --separate-stderr kvtool "$@"
	[ "$status" = 5 ] || { echo "$*: exit $status: $stderr"; return 1; }
	[[ $stderr == *"$out"* ]] && [ "${#stderr_lines[@]}" = 1 ] || { echo "$*: $stderr"; return 1; }
}

# ---- input ------------------------------------------------------------------

@test "a damaged tile is told with the name of its file" {
	need
	cp ok.h5 in.h5
	flip in.h5
	in=in.h5
	each readers bad 3 ': in.h5: stored tile is damaged: Fletcher-32 is '
}

@test "files that are not there, empty, cut short, or something else" {
	need
	in=missing.h5
	each openers named 5
	in=ok.h5/below
	each openers named 5
	in=in.file
	content() {
		case $1 in
		empty) : ;;
		snapshot) head -c 100000 ok.h5 ;;
		safetensors) head -c 4000 "$rank1" ;;
		text) echo 'a line of text' ;;
		esac
	}
	for what in empty snapshot safetensors text; do
		content $what >in.file
		each openers named 3
	done
	rm in.file
	mkdir in.file
	each openers named 3
	mkdir in.file/0123456789abcdef0123456789abcdef
	bad 3 in.file digest in.file
}

@test "a file that is something else, by what it begins with" {
	printf 'GGUF\3\0\0\0' >model.gguf
	bad 3 'the weights of a model' describe model.gguf
	bad 2 '' describe --from=gguf model.gguf
	bad 3 'kvtool size takes it' describe "$root/testdata/config/gemma-2.json"
	: >empty.bin
	bad 3 'is empty' describe empty.bin
	printf '\200\004K\001.' >cache.pkl
	bad 3 torch.save describe cache.pkl
	gzip -c "$nhd" >cache.npy.gz
	bad 3 gzip describe cache.npy.gz
	# and what only looks so is read as it is described
	{ printf 'GGUF'; head -c 252 /dev/zero; } >raw.bin
	kvtool describe --layout=nhd --dtype=int8 --layers=1 --block-size=16 --heads=1 \
		--head-dim=8 raw.bin
}

@test "a header in which a byte is another" {
	need
	in=in.safetensors
	cp "$rank1" in.safetensors
	flip in.safetensors 8
	each openers named 3
	cp "$rank1" in.safetensors
	flip in.safetensors 7		# a header of 2^63 bytes
	each openers named 3
}

@test "fsck says what it cannot read" {
	need
	cp ok.h5 in.h5
	flip in.h5
	run -1 kvtool fsck in.h5
	[[ ${lines[0]} == "in.h5: error: tile.damaged: "* ]]
	for content in '' 'a line of text'; do
		printf '%s' "$content" >in.file
		shows 3 'in.file' fsck in.file
	done
	head -c 100000 ok.h5 >in.file
	shows 3 'in.file' fsck --fast in.file
	shows 5 'missing.h5' fsck missing.h5
}

@test "a FIFO or device does not hang" {
	need
	in=pipe
	mkfifo pipe
	odd() {
		run --separate-stderr timeout 120 "$KVTOOL" "$@"
		[[ $status = 3 || $status = 4 ]] || { echo "$*: $status"; return 1; }
		[[ $stderr == *"$in"* ]] || { echo "$*: $stderr"; return 1; }
		[ -z "$(find . -name 'out*')" ] || { echo "$*"; find .; return 1; }
	}
	each openers odd
	in=/dev/null
	odd digest $in
	in=/dev/zero
	odd convert $in out.npy
	odd reblock --block-size=32 -o out.h5 $in
	odd diff ok.h5 $in
	odd guess $in
}

@test "every way to cut a dump short" {
	local n size
	kvtool convert "$mla" whole.h5 >/dev/null
	kvtool convert "$mla" whole.safetensors >/dev/null
	copy_dump "$mla" whole.npy
	cp "${mla%.npy}.json" cut.json
	for f in h5 safetensors npy; do
		size=$(stat -c %s whole.$f)
		for n in 0 1 7 8 9 100 128 1000 $((size / 2)) $((size - 4096)) $((size - 1)); do
			head -c $n whole.$f >cut.$f
			bad 3 '' convert cut.$f out.npy || { echo "$f cut to $n"; return 1; }
		done
		cat whole.$f <(echo x) >cut.$f
		run kvtool convert cut.$f out.npy
		# HDF5 may have slack at the end, the others say how long they are
		[[ $status = 3 || ( $f = h5 && $status = 0 ) ]]
		rm -f cut.$f out.*
	done
}

@test "a connector folder without a layer, with a short one, with one of another shape" {
	local one=436478e796c7d5a9bb24960c7d0da0ce other=2a3cf51fa70dd631a21aee95bb0133fb
	local layer=model.layers.3.self_attn.attn.safetensors
	lacking() { rm "folder/$one/$layer"; }
	short() { truncate -s 9000 "folder/$one/$layer"; }
	shaped() { cp "folder/$other/$layer" "folder/$one/"; }
	for how in "lacking $one" 'short model.layers.3' 'shaped '; do
		cp -r "$kv/s260k/connector/example_2026_07" folder
		${how% *}
		bad 3 "${how#* }" convert --layout=nhd --block-size=16 folder out.h5
		rm -r folder
	done
}

@test "a manifest of another dump, or none" {
	bad 3 '' digest --manifest "${mla%.npy}.json" "$nhd"
	bad 3 '' digest --manifest "$kv/gqa64/paged_bs16/packed_nhd.bf16.json" "$nhd"
	bad 5 '' digest --manifest missing.json "$nhd"
	bad 3 '' digest --manifest "$nhd" "$nhd"
	# nothing is guessed at
	cp "$nhd" alone.npy
	bad 3 alone.npy convert alone.npy out.h5
}

@test "options that contradict the file, and those that agree" {
	kvtool convert "$nhd" in.h5 >/dev/null
	bad 3 'LBHSC|LBSHC' convert --layout hnd in.h5 out.npy
	bad 3 '' convert --heads 8 in.h5 out.npy
	bad 3 '' convert --dtype float16 in.h5 out.npy
	bad 3 '' convert --layers 4 in.h5 out.npy
	bad 3 '' convert --layout hnd "$nhd" out.npy
	run -0 kvtool convert --layout LBSHC --dtype bf16 --layers 5 --blocks 48 \
		--block-size 16 --heads 4 --head-dim 8 "$nhd" ok.h5
}

@test "sizes that no file can have" {
	need
	small_raw small.bin
	local row most=9223372036854775806 over=9223372036854775808
	local base="--layout=nhd --dtype=bfloat16 --heads=2 --head-dim=8"
	local blocks="--layers=2 --blocks=3 --tokens-per-block=16" wide=4294967296
	local huge="--layers=$wide --blocks=$wide --tokens-per-block=$wide"
	while read -r row; do
		# shellcheck disable=SC2086	# words
		bad ${row//IN/small.bin}
	done <<-ROWS
	3 6144 convert $base $blocks --head-dim=9 IN out.h5
	3 IN convert $base $huge --heads=$wide --head-dim=$wide IN out.h5
	3 IN convert $base $blocks --layers=$most IN out.h5
	2 layers convert $base $blocks --layers=$over IN out.h5
	2 layers convert $base --layers=0 IN out.h5
	2 layers convert $base --layers=-1 IN out.h5
	2 heads convert $base --heads=2x IN out.h5
	3 IN convert $base $blocks --skip=$most IN out.h5
	3 IN convert $base $blocks --skip=1 IN out.h5
	3 IN reblock --block-size=32 -o out.h5 $base $huge IN
	3 IN mutate --fault=flip-bits -o out.h5 $base $huge IN
	3 IN diff $base $huge IN IN
	3 IN expect write -o out.kvc $base $huge IN
	3 IN copy-blocks --blocks=1:2 -o out.h5 $base --layers=$wide --tokens-per-block=$wide IN IN
	3 IN describe --canonical $base $huge IN
	2 block-size reblock --block-size=$most -o out.h5 ok.h5
	2 block-size reblock --block-size=$over -o out.h5 ok.h5
	2 block-size reblock --block-size=0 -o out.h5 ok.h5
	3 block copy-blocks --blocks=4294967295:1 -o out.h5 ok.h5 other.h5
	3 : size --spec gqa:layers=1048577,heads=1048577,head-dim=1048577 --cache-dtype=bfloat16 --tp=1
	3 heads digest --spec gqa:heads=999999999999999999,head-dim=8 IN
	ROWS
	# shellcheck disable=SC2086	# words
	run -3 kvtool fsck $base $huge small.bin
	run --separate-stderr kvtool copy-blocks --blocks=0-9223372036854775807:0 -o out.h5 ok.h5 other.h5
	[[ $status = 2 || $status = 3 ]]
	one_sentence
}

@test "text that is none, or is cut short" {
	need
	in=in.txt
	# what may be the name of a model is none
	missing() {
		case "$1 $2" in
		size*|*' -m') named 2 "$@" ;;
		*) named 5 "$@" ;;
		esac
	}
	each texts missing
	for content in '' '\x00\xff\xfe\x01garbage' '{"groups": [' "$(printf '%*s' 20000 | tr ' ' '[')"; do
		# shellcheck disable=SC2059	# escapes are meant
		printf "$content" >in.txt
		each texts named 3
	done
	rm in.txt
	mkdir in.txt
	unreadable() {
		run --separate-stderr kvtool "$@"
		[[ $status = 3 || $status = 5 ]] || { echo "$*: $status $stderr"; return 1; }
		one_sentence && [[ $stderr == *"$in"* ]] || { echo "$*: $stderr"; return 1; }
	}
	each texts unreadable
}

@test "element types that are none or several, and a bare tuple as a layout" {
	small_raw small.bin
	bad 2 bfloat17 convert "${small[@]}" --dtype bfloat17 small.bin out.h5
	run --separate-stderr kvtool convert "${small[@]}" --dtype auto small.bin out.h5
	[ "$status" = 2 ] || [ "$status" = 3 ]
	one_sentence
	[ ! -e out.h5 ]
	bad 3 'rfc:|vllm:' convert "${small[@]}" --layout 0,1,2,3,4 small.bin out.h5
}

@test "an array of another shape is no array of two planes" {
	/usr/bin/python3 -c '
import numpy as np
x = np.zeros((3, 2, 5, 16, 4, 8), np.float16)
np.save("layers-first.npy", x)
np.save("planes-first.npy", x.transpose(1, 0, 2, 3, 4, 5).copy())'
	local said=(--layers=3 --block-size=16 --heads=4 --head-dim=8 --layout=sglang-pool)
	tells 3 ': shape is 3 x 2 x 5 x 16 x 4 x 8, but layout K:LBSHD V:LBSHD has 2 x 3 x 5 x 16 x 4 x 8$' \
		describe "${said[@]}" layers-first.npy
	shows 0 'K:LBSHD V:LBSHD' describe "${said[@]}" planes-first.npy
}

# ---- output -----------------------------------------------------------------

@test "the input is never the output" {
	need
	cp ok.h5 in.h5
	cp other.h5 base.h5
	ln in.h5 hard.h5
	ln -s in.h5 symbolic.h5
	mkdir folder
	ln -s ../in.h5 folder/far.h5
	never() {
		run --separate-stderr kvtool "$@"
		[ "$status" = 2 ] && one_sentence || { echo "$*: exit $status: $stderr"; return 1; }
		cmp in.h5 ok.h5
		cmp base.h5 other.h5
	}
	local name
	for name in in.h5 ./in.h5 hard.h5 symbolic.h5 folder/far.h5; do
		never relayout -f --to=nhd -o $name in.h5
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

@test "the manifest of the input is never the output" {
	copy_dump "$nhd" in.npy
	cp in.json before
	tells 2 'in.json|belongs to the input' convert -f --format raw in.npy in
	tells 5 'in.json|manifest of in.npy' convert -f --format raw "$hnd" in
	run -2 --separate-stderr kvtool convert -f --format hdf5 in.npy in.json
	cp in.json other.json
	sed -i '/"file":/d' other.json
	tells 2 'other.json' convert -f --manifest other.json in.npy other.npy
	ln -s in.npy symbolic.npy
	tells 2 '' relayout --to hnd -f -o symbolic.npy --manifest in.json symbolic.npy
	cmp in.npy "$nhd"
	cmp in.json before
	# a name of its own is no reason to refuse
	run -0 kvtool convert in.npy in.bin
	only in.npy symbolic.npy in.json in.bin in.bin.json before other.json
}

@test "a layer of a connector folder is never the output" {
	cp -r "$kv/mla144/connector" folder
	local f
	f=$(find folder -name '*layers.1*' | head -n 1)
	cp "$f" before
	tells 2 '' convert -f --block-size=16 folder "$f"
	cmp "$f" before
}

@test "a snapshot needs a seekable file" {
	mkfifo pipe.h5
	run -4 --separate-stderr timeout 120 "$KVTOOL" convert -f "$nhd" pipe.h5
	one_sentence
	tells 4 '' convert -f --format hdf5 "$nhd" /dev/null
	# shellcheck disable=SC2016
	run -4 --separate-stderr bash -c '"$0" convert -f --format hdf5 "$1" /dev/fd/1 | cat; exit "${PIPESTATUS[0]}"' \
		"$KVTOOL" "$nhd"
	only pipe.h5
}

@test "a folder that is none, or cannot be written to" {
	need
	out=missing/out.h5
	each writers full
	each text_writers full
	out=/proc/out.h5
	each writers full
	each text_writers full
	: >file
	out=file/out.h5
	full convert ok.h5 $out
	mkdir folder.h5
	out=folder.h5
	each writers full
	full convert -f ok.h5 $out
	[ -d folder.h5 ]
	[ -z "$(find . -name '*.tmp-*')" ]
}

teardown() {
	! mountpoint -q disk || umount disk
}

@test "a read-only file system" {
	need
	small_disk 1M
	mount -o remount,ro disk
	for ending in h5 npy safetensors bin; do
		out=disk/out.$ending
		full convert ok.h5 $out
	done
	each writers full
	out=disk/out.txt
	each text_writers full
}

@test "a disk that fills up" {
	need
	small_disk 64k
	local ending
	for ending in h5 npy safetensors bin; do
		out=disk/out.$ending
		each writers full
		[ -z "$(ls -A disk)" ] || { ls -A disk; return 1; }
	done
	# of text: nothing is free but the name
	dd if=/dev/zero of=disk/rest bs=4k status=none 2>/dev/null || true
	out=disk/out.txt
	each text_writers full
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
	each writers old_mode
}

@test "an output that is there already is kept" {
	need
	echo mine >out.npy
	out=out.npy
	kept() {
		full "$@"
		[ "$(cat out.npy)" = mine ]
	}
	each writers kept
	mv out.npy out.svg
	cp out.svg out
	out=out
	kept_text() {
		[ "$1 $2" != "expect check" ] || return 0	# reports are replaced
		full "$@"
		[[ $(cat out) = mine && $(cat out.svg) = mine ]]
	}
	each text_writers kept_text
}

@test "a limit on file size" {
	local ending
	for ending in npy safetensors h5; do
		# shellcheck disable=SC2016
		run --separate-stderr bash -c 'trap "" XFSZ; ulimit -f 64; exec "$0" convert "$1" "$2"' \
			"$KVTOOL" "$nhd" out.$ending
		[ "$status" = 5 ]
		only
	done
}

# ---- standard output --------------------------------------------------------

@test "a full standard output is an error" {
	need
	echo '{"workers": 1}' >log
	out_full() {
		run --separate-stderr bash -c '"$@" >/dev/full' - "$KVTOOL" "$@"
		# a comparison also says what it found
		[[ $status = 5 && ${stderr_lines[-1]} == *": writing standard output: "* ]] ||
			{ echo "$*: exit $status: $stderr"; return 1; }
	}
	each printers out_full
}

@test "a reader that goes away ends it without a word" {
	need
	echo '{"workers": 1}' >log
	gone() {
		run --separate-stderr no_reader "$KVTOOL" "$@"
		[ "$status" = 141 ] && [ -z "$stderr" ] ||
			{ echo "$*: exit $status: $stderr"; return 1; }
	}
	each printers gone
}

# ---- interruption -----------------------------------------------------------

@test "an interrupted run leaves nothing behind, or the old file, and dies by the signal" {
	truncate -s 384M large.bin
	/usr/bin/python3 -c 'import json
print(json.dumps({"layout": "nhd", "dtype": "bfloat16", "num_tokens": {"A": 511 * 16},
    "sizes": {"layers": 12, "block_size": 16, "num_kv_heads": 8, "head_dim": 128},
    "block_table": {"A": list(range(511, 0, -1))}}))' >large.json
	echo mine >old.npy
	local row
	while read -r row; do
		read -ra words <<<"$row"
		run interrupt "${words[0]}" "$KVTOOL" "${words[@]:1}"
		[ "$output" = "by signal" ] || { echo "$row: $output"; return 1; }
		[ "$(cat old.npy)" = mine ]
		only large.bin large.json old.npy
	done <<-'ROWS'
	SIGINT relayout --threads=1 --mem-limit=16M --to=bhlsc -o out.npy large.bin
	SIGTERM relayout --threads=1 --mem-limit=16M --to=bhlsc -o out.npy large.bin
	SIGHUP relayout --threads=1 --mem-limit=16M --to=bhlsc -o out.npy large.bin
	SIGINT relayout --threads=1 --mem-limit=16M --to=bhlsc -o out.h5 large.bin
	SIGINT relayout --threads=1 --mem-limit=16M --to=bhlsc -f -o old.npy large.bin
	SIGINT reblock --mem-limit=64M --block-size=32 -o out.npy large.bin
	SIGINT reblock --mem-limit=64M --block-size=24 --level=19 -o out.h5 large.bin
	SIGINT copy-blocks --mem-limit=64M --blocks=1:2 -o out.npy large.bin large.bin
	SIGINT mutate --mem-limit=1G --fault=flip-bits -o out.npy large.bin
	SIGINT transfer-sim exec --mem-limit=64M --dst=tp=1,layout=hnd -o out.npy large.bin
	SIGINT transfer-sim wire --mem-limit=64M --dst=tp=1,layout=hnd -o out.npy large.bin
	ROWS
}
