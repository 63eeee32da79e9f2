#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash and run
# symptoms.bats - kvtool help symptoms: what its commands show, and the page of the same

load common

# The files that the commands name, each with the fault of its row.
plant() {
	/usr/bin/python3 "$root/tests/planted.py" .
	cp -R "$kv/s260k/tp4" ranks
	cp -R "$kv/s260k/connector/example_2026_07" connector
	cp testdata/regions/nixl_window.json prefill.json
	cp testdata/regions/nixl_window.json decode.json
	kvtool reblock -q --block-size=32 good.npy bs32.npy
	kvtool relayout -q --to=nhd good.npy nhd.npy
}

# What the command of a row must say, and its status.
shows() {
	case $1 in
	*'doctor good.npy bad.npy') echo '1 in layer 2: swap-kv' ;;
	*'doctor bad.npy' | *'doctor swapped.npy') echo '1 keys and values of layer 2 are exchanged' ;;
	*unknown.npy) echo '0 by its data it is --layout=nhd' ;;
	*bs32.npy) echo '0 equal' ;;
	*'turned.npy') echo '1 turned.npy differs from good.npy in layers 0-4: swap-heads-slots way=1: ' ;;
	*ranks/*) echo '0 equal' ;;
	*'rank1-bad.npy') echo '1 heads 2-3' ;;
	*'nan.npy') echo '1 live.nonfinite' ;;
	*'doctor good.npy shifted.npy') echo '1 shifted.npy differs from good.npy in layers 0-4: shift-blocks by=1,of=1: ' ;;
	*'--map good.npy shifted.npy') echo '1 differs' ;;
	*'--top=1 good.npy shifted.npy') echo '1 differs' ;;
	*--block-tables*) echo '0 requests' ;;
	*twice.npy) echo '1 hold the same in all layers, and their requests do not begin alike' ;;
	*stale.npy) echo '1 stale.npy differs from good.npy in layers 0-4: no known fault explains it; the first is token 48 of request B' ;;
	*where*) echo '0 layer' ;;
	*fp8.npy) echo '0 numbers too large for float8_e4m3fn were cut off' ;;
	*scaled.npy) echo '1 keys of layer 2 are' ;;
	*zeros.npy) echo '0 zeros in every live slot of layers 3 to 4' ;;
	*'good.npy swapped.npy') echo '1 in layer 2: swap-kv' ;;
	*fp16.npy) echo '0 within tolerance' ;;
	*--match*) echo '1 differs' ;;
	*decode.json) echo '0 ' ;;
	*'fsck good.npy') echo '0 1 note' ;;
	*connector) echo '0 request' ;;
	*digest*) echo '0 kvd1:tokens:' ;;
	why*) echo '1 token 2' ;;
	*size*) echo '0 llama' ;;
	*) echo '9 no row of this test is of this command' ;;
	esac
}

@test "every command of the table shows what its row says" {
	plant
	kvtool help symptoms | sed -n 's/^    \$ kvtool //p' >commands
	[ "$(wc -l <commands)" -ge 20 ]
	while read -r line; do
		read -r status text <<<"$(shows "$line")"
		# shellcheck disable=SC2086	# words, and a pattern
		run "-$status" kvtool $line
		[[ $output = *"$text"* ]] || { echo "$line: $output"; false; }
	done <commands
}

@test "the page has the rows of the table, and no other" {
	kvtool help symptoms | sed -n '5,$p' >table
	perl -ne '
		s/\\-/-/g;
		if (/^\.Ss (.*)/) { print "$1\n\n" }
		elsif (/^\.It "(.*)"$/) { print "$1\n"; $in = 1 }
		elsif (/^\.Dl "(.*)"$/) { print "    \$ $1\n\n"; $in = 0 }
		elsif ($in) { print "    $_" }' "$root/man/kvtool-symptoms.7" >page
	diff <(grep -v '^$' table) <(grep -v '^$' page)
}

@test "the table of docs/nonsense.md has rows of this one" {
	kvtool help symptoms >table
	perl -ne 'if (/^\| (.*?) \| (.*?)(?: \(status 1\))? \| `kvtool/) { print "$1\n    $2\n" }' \
		"$root/docs/nonsense.md" >story
	[ "$(wc -l <story)" -ge 16 ]
	perl -e '
		my ($table, $story) = map { local (@ARGV, $/) = $_; <> } @ARGV;
		for ($story =~ /(.*\n    .*\n)/g) { index($table, "\n$_") >= 0 or die "no row is\n$_" }
		' table story
}
