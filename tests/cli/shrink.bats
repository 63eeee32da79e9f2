#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# shrink.bats - kvtool shrink: the folder, commands that fail, what is left behind
# (whether a case is right, and the smallest: tests/oracle_shrink.py)

load common
load dumps

# commands of --while and of README.md find the program by its name
PATH=${KVTOOL%/*}:$PATH

bad() {
	kvtool mutate -q --fault="${1-swap-heads,a=0,b=2,layer=3}" -o bad.h5 "$nhd"
}

# nothing_left: no folder, and none that was begun
nothing_left() {
	run -1 compgen -G 'case*'
}

# shows: what README.md shows, run in the folder, prints what stands there
shows() {
	awk '/^```/ { on = $0 ~ /console/; next } on' README.md >block
	sed -n 's/^\$ //p' block >script
	run bash script
	[ "$output" = "$(grep -v '^\$ ' block)" ]
}

@test "two dumps that differ: a folder that shows it" {
	bad
	run -0 kvtool shrink -o case/ "$nhd" bad.h5
	[[ ${lines[0]} == 'case: 1 of 5 layers, 3 of 4 heads,'*'; swap-heads,a=0,b=2' ]]
	[ "$(ls case | tr '\n' ' ')" = 'README.md a.h5 b.h5 ' ]
	cd case
	shows
	[ "$status" = 1 ]
	[[ $output == *'swap-heads a=0,b=2'* ]]
}

@test "options of diff are in what the folder shows" {
	kvtool mutate -q --fault=scale,factor=1.01 -o bad.h5 "$nhd"
	tells 3 'hold the same values' shrink -o case --tolerance=atol=9 "$nhd" bad.h5
	kvtool mutate -q -f --fault=scale,factor=2 -o bad.h5 "$nhd"
	run -0 kvtool shrink -q -o case --tolerance=atol=0.5 --rtol=0.01 "$nhd" bad.h5
	grep -q '^\$ kvtool diff --tolerance=atol=0.5,rtol=0.01 a.h5 b.h5$' case/README.md
	cd case
	shows
	[ "$status" = 1 ]
}

@test "a command that fails, by its status" {
	bad
	run -0 kvtool shrink -q -o case --while='kvtool diff -q "$A" "$B" || exit 42' "$nhd" bad.h5
	grep -q 'status 42' case/README.md
	cd case
	shows
	[ "$status" = 42 ]
}

@test "and by what it prints" {
	kvtool mutate -q --fault=zero-block,block=17,layer=2 -o zero.h5 "$nhd"
	run -0 kvtool shrink -j -o case --while='kvtool fsck "$A"' --text='all zeros' zero.h5
	[ "$(json 'd["after"]["layers"], d["status"], d["b"]')" = '1 None None' ]
	[ "$(ls case | tr '\n' ' ')" = 'README.md a.h5 ' ]
	kvtool fsck case/a.h5 | grep -q 'all zeros'
}

json() {
	/usr/bin/python3 -c "import json, sys; d = json.load(sys.stdin); print($(printf '%s' "$1" |
		sed 's/\$//g'))" <<<"$output"
}

@test "a command gets no input, and the current folder" {
	bad
	echo 'cat; exit 3' >own.sh
	run -0 timeout 120 kvtool shrink -q -o case --while='sh own.sh' bad.h5
}

@test "what cannot be shown is said, and leaves nothing" {
	bad
	tells 3 'there is nothing to show' shrink -o case "$nhd" "$hnd"
	tells 3 '--while succeeds' shrink -o case --while=true bad.h5
	tells 3 'no such command' shrink -o case --while=no-such-command bad.h5
	tells 3 "does not print 'x y'" shrink -o case --while=false --text='x y' bad.h5
	tells 3 'it looks at the format, or at names' shrink -o case --while='case $A in *.npy) false; esac' "$nhd"
	kvtool slice -q --layers=0:2 -o part.h5 "$nhd"
	tells 3 'only A has layers 2-4 of g0' shrink -o case "$nhd" part.h5
	nothing_left
}

@test "a command that fails now and then is noticed" {
	bad
	cat >moody.sh <<-'END'
		n=$(($(cat count) + 1))
		echo $n >count
		# fails for everything until the last part, which is asked about twice
		[ "$n" -gt "$(cat most)" ]
	END
	echo 0 >count && echo 9999 >most
	kvtool shrink -q -o first --while='sh moody.sh' bad.h5
	echo $(($(cat count) - 1)) >most && echo 0 >count
	tells 3 'fails now and then' shrink -o case --while='sh moody.sh' bad.h5
	nothing_left
}

@test "wrong command lines" {
	tells 2 'another dump, or --while=COMMAND' shrink -o case a.h5
	tells 2 'a dump and --output=DIR' shrink
	tells 2 'expected one dump, or two' shrink -o case a.h5 b.h5 c.h5
	tells 2 '--text expects --while' shrink -o case --text=x a.h5 b.h5
	tells 2 '--while says what counts' shrink -o case --while=false --exact a.h5
	tells 2 'exclude each other' shrink -o case --exact --atol=1 a.h5 b.h5
}

@test "a folder with something in it is never replaced" {
	bad
	mkdir case && echo mine >case/mine
	tells 5 'case: exists' shrink -o case "$nhd" bad.h5
	tells 5 'not empty' shrink -f -o case "$nhd" bad.h5
	[ "$(cat case/mine)" = mine ]
	rm case/mine
	run -0 kvtool shrink -q -f -o case "$nhd" bad.h5
	[ -e case/a.h5 ]
}

@test "a signal leaves nothing, and ends the command" {
	bad
	cat >slow.sh <<-'END'
		echo $$ >pid
		sleep 60
		exit 3
	END
	"$KVTOOL" shrink -o case --while='exec sh slow.sh' bad.h5 3>&- &
	local pid=$!
	until [ -s pid ]; do
		sleep 0.1
	done
	kill -TERM "$pid"
	status=0
	wait "$pid" || status=$?
	[ "$status" = 143 ]
	nothing_left
	run -1 kill -0 "$(cat pid)"
}

@test "a disk that is full leaves nothing" {
	bad
	run -5 --separate-stderr bash -c 'ulimit -f 4; exec kvtool shrink -o case "$1" bad.h5' - "$nhd"
	one_sentence
	nothing_left
}
