#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_man.sh - the pages and the program say the same (TAP)
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
kvtool=${KVTOOL:-build/kvtool}

modes_and_none() {
	echo
	"$kvtool" "$1" --list-modes 2>/dev/null
}

# What --help has before, or behind, the line that begins the options of inputs.
help_options() {
	modes_and_none "$1" | while read -r mode; do
		# shellcheck disable=SC2086	# no mode is no word
		"$kvtool" "$1" $mode --help | sed "$2" | grep -o -e '^  [ -].[, ] --[a-z-]*' |
			sed 's/.*--/--/'
	done | grep -vx -e --help | sort -u
}

# --help is the same everywhere: kvtool(1) has it; so are the options of inputs.
own_options() {
	help_options "$1" '/^for inputs that/,$d'
}

input_options() {
	help_options "$1" '1,/^for inputs that/d'
}

# With the other names of options, which --help leaves out.
all_options() {
	modes_and_none "$1" | while read -r mode; do
		# shellcheck disable=SC2086	# no mode is no word
		"$kvtool" "$1" $mode --list-options
	done | grep -vx -e --help | sort -u
}

# Long options of a page: "Fl -name" and "Fl n , -name", wherever they stand.
options_of_page() {
	grep -h 'Fl ' "$@" | grep -o ' -[a-z][a-z-]*' | sed 's/ -/--/' | sort -u
}

# The page of a command; a file of one line says which other page has it.
page_of() {
	target=$(sed -n '1s,^\.so man1/,,p' "man/kvtool-$1.1")
	echo "man/${target:-kvtool-$1.1}"
}

# The commands that have the page of this one.
together() {
	for other in $commands; do
		[ "$(page_of "$other")" != "$(page_of "$1")" ] || echo "$other"
	done
}

# Pages of modes that have one of their own.
modes_of() {
	[ "$1" != transfer-sim ] || ls man/kvtool-transfer-sim-*.1
}

# A page may name options of inputs, and says where they all are.
same_options() {
	own_options "$1" >"$tmp/own"
	input_options "$1" >"$tmp/inputs"
	# shellcheck disable=SC2046	# several pages
	options_of_page "$(page_of "$1")" $(modes_of "$1") >"$tmp/page"
	for other in $(together "$1"); do all_options "$other"; done | sort -u >"$tmp/all"
	[ -s "$tmp/own" ] && [ -s "$tmp/all" ] || return 1
	! comm -23 "$tmp/own" "$tmp/page" | grep . && ! comm -13 "$tmp/all" "$tmp/page" | grep . &&
		{ [ ! -s "$tmp/inputs" ] ||
			grep -A1 'options that describe a file are those of$' "$(page_of "$1")" |
			grep -q '^.Xr kvtool 1'; }
}

# The section of kvtool(1) that all pages refer to.
same_inputs() {
	own_options describe >"$tmp/own"
	all_options describe | comm -13 "$tmp/own" - >"$tmp/inputs"
	sed -n '/^.Ss Options that describe a file/,/^.Ss Conventions/p' man/kvtool.1 >"$tmp/section"
	options_of_page "$tmp/section" >"$tmp/page"
	[ -s "$tmp/inputs" ] && diff "$tmp/inputs" "$tmp/page"
}

# Short options of --help ("  -j, --json") against "Fl j" and "Fl jq" of the page.
same_letters() {
	for other in $(together "$1"); do
		modes_and_none "$other" | while read -r mode; do
			# shellcheck disable=SC2086
			"$kvtool" "$other" $mode --help
		done
	done | sed -n 's/^  -\([a-zA-Z]\), .*/\1/p' | grep -vx h | sort -u >"$tmp/command"
	# shellcheck disable=SC2046
	grep -oh 'Fl [a-zA-Z][a-zA-Z]*' "$(page_of "$1")" $(modes_of "$1") | sed 's/Fl //' |
		grep -o . | sort -u >"$tmp/page"
	diff "$tmp/command" "$tmp/page"
}

has_each_line() {
	while read -r name; do
		grep -q -e "^\.[CI][mt] .*$name" -e "Li $name\$" "$1" || echo "$name"
	done >"$tmp/missing"
	[ ! -s "$tmp/missing" ] || { cat "$tmp/missing"; return 1; }
}

layouts_documented() {
	"$kvtool" help layouts | sed -e 1d -e '/^$/,$d' -e 's/ .*//' >"$tmp/names"
	[ -s "$tmp/names" ] && has_each_line man/kvtool-layouts.7 <"$tmp/names"
}

contents_documented() {
	"$kvtool" help contents | sed -e '/^$/,$d' -e 's/ .*//' >"$tmp/names"
	[ -s "$tmp/names" ] && has_each_line man/kvtool-content.7 <"$tmp/names"
}

formats_documented() {
	"$kvtool" help formats | sed -e 1d -e 's/ .*//' >"$tmp/names"
	[ -s "$tmp/names" ] && has_each_line man/kvtool.1 <"$tmp/names"
}

faults_documented() {
	"$kvtool" help faults | sed -e '/^$/,$d' -e 's/^ *\([^ ]*\) .*/\1/' >"$tmp/names"
	[ -s "$tmp/names" ] && has_each_line man/kvtool-mutate.1 <"$tmp/names"
}

# Every key that a put function names stands in kvtool-json(5) or in a page it names.
keys_documented() {
	grep -rho --include='*.c' '\(json_put\(_[a-z]*\)\?\|put_known\)(&\?out, [^,]*, "[a-z0-9_]*"' \
		cli lib/ops | sed 's/.*"\(.*\)"/\1/' | sort -u >"$tmp/names"
	[ "$(wc -l <"$tmp/names")" -gt 50 ] || return 1
	while read -r key; do
		grep -qw "$key" man/kvtool-json.5 man/kvtool-transfer.5 man/kvtool-diff.1 \
			man/kvtool-mutate.1 man/kvtool-content.7 \
			man/kvtool-bench.1 || echo "$key"
	done <"$tmp/names" >"$tmp/missing"
	[ ! -s "$tmp/missing" ] || { cat "$tmp/missing"; return 1; }
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

commands=$("$kvtool" --list-commands) || exit 1
for command in $commands; do
	ok "$command has a page" test -f "man/kvtool-$command.1"
	ok "the page of $command has its name" grep -q "^\.Nm kvtool-$command\( ,\)*$" "$(page_of "$command")"
	ok "kvtool(1) mentions $command" grep -q "^\.It Cm $command" man/kvtool.1
	ok "the page of $command has its options and no others" same_options "$command"
	ok "the page of $command has its short options" same_letters "$command"
done
ok 'kvtool(1) has the options that describe a file and no others' same_inputs
ok 'kvtool-layouts(7) has every preset' layouts_documented
ok 'kvtool-content(7) has every content type' contents_documented
ok 'kvtool(1) has every format' formats_documented
ok 'kvtool-mutate(1) has every fault' faults_documented
ok 'kvtool-json(5) has every key' keys_documented
done_testing
