#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a person sees on a terminal: lines as wide as it is, and colours.
load common

# screen COLUMNS ARG...: what kvtool prints on a terminal that is so wide; 0: it does not say
screen() {
	# Python would change the locale that kvtool sees
	PYTHONCOERCECLOCALE=0 PYTHONUTF8=1 python3 - "$KVTOOL" "$@" <<'END'
import fcntl, os, pty, struct, subprocess, sys, termios
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[2]), 0, 0))
p = subprocess.Popen(sys.argv[1:2] + sys.argv[3:], stdout=theirs, stdin=subprocess.DEVNULL)
os.close(theirs)
said = b""
try:
    while piece := os.read(ours, 65536):
        said += piece
except OSError:
    pass
sys.stdout.write(said.decode().replace("\r\n", "\n"))
sys.exit(p.wait())
END
}

# Columns of the widest line.
widest() {
	LC_ALL=C.UTF-8 wc -L
}

words() {
	tr -d ' \n'
}

# The same without what a terminal has alone, which depends on its width.
plain_words() {
	words | sed -E 's/health.*//; s/[#=.0]+#ofonerequest(=shared)?(\.unused)?(0null)?//g; s/#+//g'
}

@test "describe begins with a sentence, in one line of a pipe" {
	run -0 kvtool describe $data/packed_nhd.bf16.npy
	[ "${lines[1]}" = '  bf16 K and V of 5 layers, 4 heads of 8, blocks of 16 tokens; NHD; 3 requests, 689 tokens; 480 KiB' ]
	COLUMNS=50 kvtool describe $data/packed_nhd.bf16.npy >narrow
	[ "$output" = "$(cat narrow)" ]
}

@test "the sentence says what there is of each kind of group" {
	kvtool slice -q --component=v -o v.h5 $data/packed_nhd.bf16.npy
	kvtool slice -q --layers=2 --request=C -o one.h5 $data/packed_hnd.bf16.npy
	said() { kvtool describe "$1" | sed -n 2p; }
	[[ $(said v.h5) == '  bf16 V of 5 layers, 4 heads of 8, '* || $(said v.h5) == '  bf16 V of 5 layers, '* ]]
	[[ $(said one.h5) == *'K and V of 1 layer, 4 heads of 8, '*'; HND; 1 request, 80 tokens; '* ]]
	[[ $(said testdata/kv/mla144/paged_bs16/mla_lbsc.bf16.npy) == '  bf16 latents of 3 layers, rows of 144, '* ]]
	[[ $(said testdata/kv/mamba2g4/tp2_SD/rank1.npy) == '  bf16 conv states of 3 layers (conv), fp32 SSM states of 3 layers (ssm); '* ]]
	[[ $(said $data/aiter_shuffle.bf16.npy) == *'; aiter-shuffle; '* ]]
	[[ $(said testdata/kv/s260k/tp4/rank1.packed_hnd.bf16.safetensors) == *', 1 of 4 heads of 8, '* ]]
}

@test "lines are folded at the width of the terminal, and nothing is lost" {
	local columns file long
	printf -v long '%0120d' 0
	kvtool relayout -q --to=nhd -o "$long.npy" $data/packed_nhd.bf16.npy
	for file in $data/packed_nhd.bf16.npy testdata/kv/mamba2g4/tp2_SD/rank1.npy "$long.npy"; do
		for columns in 24 31 50 80 200; do
			screen $columns describe -v --block-tables "$file" >folded
			[ "$(widest <folded)" -le $columns ]
			kvtool describe -v --block-tables "$file" | plain_words >want
			plain_words <folded | cmp - want
		done
	done
	# in as many lines, but those of a terminal
	screen 300 describe -v $data/packed_nhd.bf16.npy >wide
	kvtool describe -v $data/packed_nhd.bf16.npy | sed '/requests/,/ C: /d' >want
	sed '/requests/,/ C: /d; /^ *#/d; /^$/N; /\n  health/,$d' wide | cmp - want
}

@test "COLUMNS says the width, 80 is that of a terminal that does not say" {
	COLUMNS=50 screen 200 describe $data/packed_nhd.bf16.npy >said
	[ "$(widest <said)" -le 50 ]
	screen 0 describe $data/packed_nhd.bf16.npy >unknown
	screen 80 describe $data/packed_nhd.bf16.npy | cmp - unknown
}

@test "bars: of the pool, of requests; of what the locale and the terminal can draw" {
	local file=$data/packed_nhd.bf16.npy columns
	local b=$'\342\226\210' s=$'\342\226\223' u=$'\342\226\221' n=$'\302\267'
	printf -v used '%040d' 0
	LC_ALL=C.UTF-8 TERM=xterm screen 80 describe --color=never $file >said
	grep -qxF "            ${used//0/$b}$s$s$u$u$u$u$u$n" said
	grep -qxF "            $b of one request  $s shared  $u unused  $n null" said
	grep -qxF "  requests  A: 421 tokens in 27 blocks  ${used//0/$b}" said
	grep -qxF "            B: 188 tokens in 12 blocks  $b$b$b$b$b$b$b$b$b$b$b$b$b$b$b$b$b$b" said
	grep -qxF "            C: 80 tokens in 5 blocks    $b$b$b$b$b$b$b$b" said
	for how in "LC_ALL=C TERM=xterm" "LC_ALL= LC_CTYPE=POSIX LANG=C.UTF-8 TERM=xterm" \
		"LC_ALL=C.UTF-8 TERM=dumb"; do
		# shellcheck disable=SC2086	# words
		(export $how && screen 80 describe --color=never $file) >said
		grep -qxF "            ${used//0/#}==.....0" said
		grep -qxF '            # of one request  = shared  . unused  0 null' said
		[ -z "$(tr -d '\n -~' <said)" ]
	done
	# narrow: each kind has a cell, and all together as many as there are columns
	for columns in 24 50 63; do
		screen $columns describe $file >said
		bar=$(sed -n 's/^ \{12\}\(#[#=.0]*\)$/\1/p' said | head -n 1)
		[ $((${#bar} + 12)) = $((columns < 60 ? columns : 60)) ]
		[[ $bar =~ ^#+=+\.+0$ ]]
	done
	LC_ALL=C.UTF-8 kvtool describe $file >said
	[ -z "$(tr -d '\n -~' <said)" ]
	[ -z "$(grep '##' said)" ]
	# nothing is known of the pool of a dump without tables
	kvtool convert -q --format=raw $file bare.bin
	rm bare.bin.json
	screen 80 describe --layout=nhd --dtype=bf16 --layers=5 --heads=4 --head-dim=8 \
		--block-size=16 bare.bin >said
	[ -z "$(grep '##\|unused' said)" ]
}

@test "health: what is known without reading the data, on a terminal" {
	health() { screen 200 describe "$@" | sed -n 's/^  health    //p'; }
	kvtool convert -q $data/packed_nhd.bf16.npy a.h5
	kvtool convert -q $data/packed_nhd.bf16.npy a.npy
	[ "$(health a.h5)" = 'data not read; it has checksums' ]
	[ "$(health $data/packed_nhd.bf16.npy)" = 'data not read; it has no checksums; its manifest is not proven' ]
	[ "$(health a.npy)" = 'data not read; it has no checksums' ]
	printf x | dd of=a.npy bs=1 seek=1000 conv=notrunc status=none
	[ "$(health --trust-manifest a.npy)" = 'data not read; it has no checksums; the manifest is of other data' ]
	# a block that cannot be read is not noticed: nothing is read
	size=$(stat -c %s a.h5)
	dd if=/dev/zero of=a.h5 bs=1 seek=$((size / 2)) count=64 conv=notrunc status=none
	[ "$(health a.h5)" = 'data not read; it has checksums' ]
	[ -z "$(health --verify $data/packed_nhd.bf16.npy)" ]
	[ -z "$(health --stats $data/packed_nhd.bf16.npy)" ]
	[ -z "$(kvtool describe a.h5 | grep health)" ]
}

# next_of COLUMNS ARG...: the commands that describe ends with, as a shell reads them
next_of() {
	screen "$1" describe "${@:2}" | sed -n '/^  next/,$p' | sed 's/^  next/      /'
}

@test "next: the commands work as they stand, with the options that describe the file" {
	local out=$BATS_TEST_TMPDIR/bin columns n
	mkdir "$out" && ln -s "$KVTOOL" "$out/kvtool"
	mkdir "a folder" && kvtool convert -q $data/packed_nhd.bf16.npy "a folder/it's.h5"
	kvtool convert -q --format=raw $data/packed_nhd.bf16.npy bare.bin
	rm bare.bin.json
	kvtool convert -q --format=raw $data/packed_nhd.bf16.npy ./-bare.h
	rm ./-bare.h.json
	bare=(--layout=nhd --dtype=bf16 --layers=5 --heads=4 --head-dim=8 --page-size=16
		'--blocks-of=A b=1,2:20')
	mkdir d && for what in npy json; do
		cp $data/packed_nhd.bf16.$what d/packed_nhd.bf16.$what
		cp testdata/kv/mamba2g4/tp2_SD/rank1.$what d/rank1.$what
	done
	for columns in 50 80 200; do
		for what in "a folder/it's.h5" d/packed_nhd.bf16.npy d/rank1.npy bare.bin -bare.h; do
			case $what in *bare*) set -- "${bare[@]}" -- "$what" ;; *) set -- "$what" ;; esac
			next_of $columns "$@" >commands
			[ "$(widest <commands)" -le $columns ]
			[ "$(grep -c '^ *kvtool ' commands)" = 3 ]
			# OTHER is what the reader has
			printf -v other %q "./$what"
			sed -i "s|OTHER\$|${other//\\/\\\\}|" commands
			PATH=$out:$PATH bash -e commands >/dev/null 2>said || { cat commands said; return 1; }
			[ ! -s said ]
		done
	done
	# of many dumps there is none, nor where a name is longer than a line
	[ -z "$(next_of 80 $data/packed_nhd.bf16.npy bare.bin)" ]
	printf -v long '%0120d' 0
	kvtool convert -q bare.bin "${bare[@]}" $long.h5
	[ -z "$(next_of 80 $long.h5)" ]
	[ "$(next_of 200 $long.h5 | wc -l)" = 3 ]
}

@test "--stats fits into 80 columns" {
	kvtool describe --stats $data/packed_nhd.bf16.npy >stats
	[ "$(sed -n '/^ layer/,$p' stats | widest)" -le 80 ]
}

@test "--stats marks what is odd" {
	python3 - <<'END'
import array, itertools, random
random.seed(1)
def number(l, k, h, b, s, d):
    x = random.gauss(0, 100 if (l, k, h) == (1, 0, 1) else 1)
    x = 3 if (l, k, h) == (2, 1, 0) else x
    return float("nan") if (l, k, h, b, s, d) == (3, 0, 1, 2, 5, 4) else x
with open("odd.bin", "wb") as out:
    array.array("f", (number(l, k, h, b, s, d) for l, k, b, s, h, d in itertools.product(
        range(4), range(2), range(6), range(16), range(2), range(8)))).tofile(out)
END
	run -0 kvtool describe --stats --layout=LKBSHD --dtype=fp32 --layers=4 \
		--blocks=6 --block-size=16 --heads=2 --head-dim=8 odd.bin
	[ "$(awk '/^!/ { print $2, $3, $4 }' <<<"$output" | tr '\n' ,)" = \
		'1 1 keys,2 0 values,3 1 keys,' ]
	[[ $output == *'! odd     1 of 16 rows with NaN or infinities
'*'  ! odd     1 of 16 rows of one value alone
'*'1 of 16 rows whose std is 16 times the usual one, or a 16th of it
'*'1 NaN in 1 slot, first at '* ]]
	run -0 kvtool describe --stats $data/packed_nhd.bf16.npy
	[[ $output != *'!'* ]]
}

@test "colours: on a terminal, always, never, NO_COLOR, a dumb one" {
	local esc=$'\e' file=$data/packed_nhd.bf16.npy
	export TERM=xterm
	[[ $(screen 80 describe $file) == "$esc[1m$file$esc[0m: npy"* ]]
	[[ $(kvtool describe $file) != *"$esc"* ]]
	[[ $(kvtool describe --color=always $file) == "$esc[1m"* ]]
	[[ $(kvtool --color=always describe $file) == "$esc[1m"* ]]
	[[ $(NO_COLOR=1 kvtool describe --color=always $file) == "$esc[1m"* ]]
	[[ $(screen 80 describe --color=never $file) != *"$esc"* ]]
	[[ $(NO_COLOR=1 screen 80 describe $file) != *"$esc"* ]]
	[[ $(NO_COLOR='' screen 80 describe $file) == *"$esc"* ]]
	[[ $(TERM=dumb screen 80 describe $file) != *"$esc"* ]]
	[ "$(kvtool describe --json --color=always $file)" = "$(kvtool describe --json $file)" ]
	run -2 --separate-stderr kvtool describe --color=sometimes $file
	[ "$stderr" = "kvtool: --color is 'sometimes', expected auto, always or never" ]
	# behind -- it is a file
	run -5 kvtool describe -- --color=never
}

@test "diff: worst lines fit, and what differs or is missing has a colour" {
	local esc=$'\e' columns
	kvtool mutate -q --fault=swap-kv -o bad.h5 $data/packed_nhd.bf16.npy
	kvtool slice -q --request=A -o two.h5 $data/packed_nhd.bf16.npy
	run -1 kvtool diff --top=5 $data/packed_nhd.bf16.npy bad.h5
	words <<<"$output" >want
	[ "$(widest <<<"$output")" -gt 80 ]
	for columns in 50 80; do
		run -1 screen $columns diff --top=5 $data/packed_nhd.bf16.npy bad.h5
		[ "$(widest <<<"$output")" -le $columns ]
		words <<<"$output" | cmp - want
	done
	run -1 kvtool diff --color=always $data/packed_nhd.bf16.npy bad.h5
	[[ $output == *"$esc[1mg0$esc[0m: $esc[31mdiffers$esc[0m, "* ]]
	run kvtool diff --common --color=always $data/packed_nhd.bf16.npy two.h5
	[[ $output == *"$esc[33monly in A$esc[0m: "* ]]
}

@test "the other commands: no line is wider than the screen, and nothing is lost" {
	local columns
	kvtool convert -q $data/packed_nhd.bf16.npy whole.h5
	head -c 300000 whole.h5 >cut.h5
	python3 -c '
import random
random.seed(1)
open("raw.bin", "wb").write(random.randbytes(1 << 18))'
	shown() { # COLUMNS ARG...: on such a screen the same is printed
		kvtool "${@:2}" >printed 2>errors || true
		screen "$1" "${@:2}" >drawn 2>errors || true
		[ "$(widest <drawn)" -le "$1" ] && words <printed >want && words <drawn | cmp - want
	}
	for columns in 24 50 80 200; do
		shown $columns fsck cut.h5 $data/packed_nhd.bf16.npy
		shown $columns fsck whole.h5 testdata/kv/mamba2g4/tp2_SD/rank1.npy
		shown $columns size --model=qwen3-8b
		shown $columns size --model=gpt-oss-20b --tokens=32k --memory=40G --requests=7
		shown $columns guess --dtype=bf16 --layers=2 --heads=4 --head-dim=64 \
			--block-size=16 raw.bin
	done
	# names by commas are as many as there is room for
	for columns in 50 80 200; do
		screen $columns expect backend whole.h5 >drawn
		[ "$(widest <drawn)" -le $columns ]
		screen $columns expect backend --with=mla --head-dim=576 >drawn
		[ "$(widest <drawn)" -le $columns ]
	done
}

@test "colours of fsck, size, expect and guess are of names, of what differs or is missing" {
	local esc=$'\e' file=$data/packed_nhd.bf16.npy
	kvtool convert -q $file whole.h5
	head -c 300000 whole.h5 >cut.h5
	kvtool expect write -q -o c.kvc $file
	run -3 kvtool fsck --color=always cut.h5
	[[ $output == "$esc[1mcut.h5$esc[0m: $esc[31merror$esc[0m: file.unreadable: "*"$esc[31m1 error$esc[0m" ]]
	shows 0 "^$esc[1m$file$esc[0m: note: stale.slots: | 1 note\$" fsck --color=always $file
	run kvtool fsck --color=always --fast testdata/kv/s260k/tp4/rank[01].*.safetensors
	[[ $output == *"$esc[33merror$esc[0m: ranks.missing: "* ]]
	run -0 kvtool size --color=always --model=qwen3-8b
	[ "${lines[0]}" = "$esc[1m144 KiB a token$esc[0m, on each of 1 rank" ]
	run -0 kvtool expect check --color=always c.kvc $file
	[ "$output" = "$esc[1m$file$esc[0m: matches c.kvc (18 clauses)" ]
	shows 0 "^$esc[1mg0$esc[0m: LBSHC, " expect backend --color=always $file
	# and nowhere where nobody looks
	for what in "fsck $file" "size --model=qwen3-8b" "expect check c.kvc $file" "expect backend $file"; do
		# shellcheck disable=SC2086	# words
		[[ $(NO_COLOR=1 TERM=xterm screen 80 $what) != *"$esc"* ]]
		# shellcheck disable=SC2086
		[[ $(screen 80 $what) != *"$esc"* && $(kvtool $what) != *"$esc"* ]]
	done
}
