#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check_examples.sh - what the man pages show is what happens (TAP)
#
# Each literal block of an EXAMPLES section runs in one shell, in a fresh copy of
# testdata/.  A line "$ command" is run; the lines after it are what it prints, on both
# streams.  Without such lines its output is not compared, but it must succeed.
# "$ cat FILE" makes the file that it shows.  check_docs.py runs README.md and others.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/tap.sh
. tests/tap.sh
kvtool=$(realpath "${KVTOOL:-build/kvtool}") || exit 1
PATH=$(dirname "$kvtool"):$PATH

# Blocks of a page, a line "@" before each, without mdoc's escapes.
blocks() {
	awk '/^\.Sh /       { examples = $2 == "EXAMPLES" }
	     /^\.Ed/        { literal = 0 }
	     literal        { print }
	     /^\.Bd -literal/ && examples { literal = 1; print "@" }' "$1" |
		sed -e 's/\\&//g' -e 's/\\-/-/g' -e 's/\\e/\\/g'
}

# One command of the block, with what it should print.
finish_command() {
	local command=$1 expected=$2 printed status
	[ -n "$command" ] || return 0
	# "cat FILE" of what is not there shows what to put into it
	if [[ $command == 'cat '[a-z]* && ! -e ${command#cat } ]]; then
		printf '%s' "$expected" >"${command#cat }"
		return
	fi
	# not in a subshell, or cd would not last
	eval "$command" >"$tmp/printed" 2>&1
	status=$?
	printed=$(cat "$tmp/printed")
	if [ -z "$expected" ]; then
		[ "$status" = 0 ] && return 0
		printf '$ %s\nstatus %s: %s\n' "$command" "$status" "$printed"
		return 1
	fi
	[ "$printed" = "${expected%$'\n'}" ] && return 0
	printf '$ %s\n' "$command"
	diff <(printf '%s' "$expected") <(printf '%s\n' "$printed")
	return 1
}

run_block() (
	local command='' expected='' line
	cd "$tmp/scratch" || exit 1
	while IFS= read -r line; do
		case $line in
		'$ '*)	finish_command "$command" "$expected" || exit 1
			command=${line#\$ } expected='' ;;
		*)	expected+=$line$'\n' ;;
		esac
	done <"$1"
	finish_command "$command" "$expected"
)

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# the tree may be one that cannot be written
cp -R --no-preserve=mode testdata "$tmp/" || exit 1
unwritten() { diff -r testdata "$tmp/testdata"; }

for page in man/*.[157]; do
	rm -f "$tmp"/block.*
	blocks "$page" | awk -v out="$tmp/block." '/^@$/ { n++; next } { print > (out n) }'
	for block in "$tmp"/block.*; do
		[ -e "$block" ] || continue
		grep -q '^\$ ' "$block" || { ok "$page: a block without a command" false; continue; }
		rm -rf "$tmp/scratch"
		mkdir "$tmp/scratch"
		cp -al "$tmp/testdata" "$tmp/scratch/" || exit 1
		ok "$page: $(grep -m1 '^\$ kvtool' "$block")" run_block "$block"
	done
done
# they share its files by links
ok 'no example writes into a file of testdata' unwritten
done_testing
