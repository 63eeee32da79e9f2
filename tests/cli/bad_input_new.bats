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

# A row: a command that reads IN as far as it can, other dumps as it needs them.
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
	ROWS
}

# Those that read no more of a dump than what describes it.
openers() {
	readers
	cat <<-'ROWS'
	describe --canonical IN
	fsck --fast IN
	guess IN
	transfer-sim IN ok.h5
	transfer-sim ok.h5 IN
	transfer-sim time IN ok.h5
	transfer-sim report -o out.html IN ok.h5
	transfer-sim emit IN ok.h5
	ROWS
}

# each_row TABLE FUNCTION ARG...: FUNCTION for the words of each row, IN replaced
each_row() {
	local row n=0
	while read -r row; do
		read -ra words <<<"${row//IN/$in}"
		"${@:2}" "${words[@]}" || return 1
		n=$((n + 1))
	done < <("$1")
	[ $n -gt 9 ]
}

@test "a damaged tile is told with the name of its file" {
	kvtool convert -q "$nhd" ok.h5
	kvtool expect write --digest -o digest.kvc ok.h5
	cp ok.h5 bad.h5
	flip bad.h5
	in=bad.h5
	damaged() {
		refused 3 kvtool "$@"
		[[ $stderr == *": bad.h5: stored tile is damaged: Fletcher-32 is "* ]] ||
			{ echo "$stderr"; return 1; }
	}
	each_row readers damaged
}
