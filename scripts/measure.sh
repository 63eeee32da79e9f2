#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# measure.sh [COMMIT [LOG]]: figures of the source at a commit, to compare two commits by
#
# A figure is a function of folders: a row has it of each room that is in the program, and of
# all.  Lines of code, functions and complexity are lizard's (pip install lizard; LIZARD names
# it where PATH does not), which is told that headers, too, are C++.  LOG is what .ci/run
# printed, for its time.  Nothing is built, and no test compares a figure with a limit.
set -euo pipefail
cd "$(dirname "$0")/.."

git log -1 --format='%h %cs %s' "${1:-HEAD}"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git archive "${1:-HEAD}" | tar -xf - -C "$tree"
log=${2:+$(realpath "$2")}
cd "$tree"

rooms=(lib formats cli print sim kernels)
row() {
	printf '%-33s' "$1"
	shift
	printf ' %9s' "$@"
	echo
}
# NAME FUNCTION
figure() {
	local values=() room

	for room in "${rooms[@]}"; do values+=("$("$2" "$room")"); done
	row "$1" "${values[@]}" "$("$2" "${rooms[@]}")"
}

sources() { find "$@" -name '*.[ch]' -print0; }
lines() { sources "$@" | xargs -0 cat | wc -l; }
files() { sources "$@" | tr -cd '\0' | wc -c; }
largest() { find "$@" -name '*.[ch]' -printf '%h\n' | sort | uniq -c | sort -rn | awk '
	NR == 1 { print $1 }'; }
longest() { find "$@" -name '*.[ch]' -exec wc -l {} + | awk '
	$2 != "total" && $1 > most { most = $1 } END { print most }'; }
includes() { sources "$@" | xargs -0 grep -h '^#include "' | wc -l; }
comments() { sources "$@" | xargs -0 cat | awk '
	/^[ \t]*\/\*/ { inside = 1 } inside { n++ } /\*\// { inside = 0 }
	END { printf "%.1f\n", 100 * n / NR }'; }

# One line a function: lines without comments, complexity, tokens, parameters, all lines.
functions() { "$lizard" -l cpp --csv "$@" 2>/dev/null || true; }
share() { local what=$1; shift; functions "$@" | awk -F, "
	$what { n++ } END { printf \"%.1f\\n\", 100 * n / NR }"; }
nloc() { { "$lizard" -l cpp "$@" 2>/dev/null || true; } | awk '
	/^Total nloc/ { getline; getline; print $1 }'; }
how_many() { functions "$@" | wc -l; }
long() { share '$5 > 40' "$@"; }
complex() { share '$2 > 15' "$@"; }
wide() { share '$4 > 6' "$@"; }

row '' "${rooms[@]}" all
figure 'lines' lines
figure 'of these comment, %' comments
figure 'files' files
figure 'files in the largest folder' largest
figure 'lines of the longest file' longest
figure 'includes of own headers' includes
if lizard=$(command -v "${LIZARD:-lizard}"); then
	figure 'lines of code (nloc)' nloc
	figure 'functions' how_many
	figure 'over 40 lines, %' long
	figure 'complexity over 15, %' complex
	figure 'over 6 parameters, %' wide
else
	echo 'functions and complexity: no lizard here'
fi

rendered() { for page in man/*.[157]; do mandoc -T ascii -O width=78 "$page"; done | wc -l; }
options() { grep -c '^\.It Fl' man/kvtool*.1 | sort -t: -k2n | sed 's/^man\///; s/\.1:/ /'; }
row 'tests, lines' "$(find tests -name corpus -prune -o -type f \
	-name '*.*' ! -name '*.tsv' ! -name '*.txt' -print0 | xargs -0 cat | wc -l)"
row 'commands' "$(grep -c '&cmd_' cli/main.c)"
row 'options: all, the most, the page' "$(options | awk '{ n += $2 } END { print n }')" \
	"$(options | awk 'END { print $2 }')" "$(options | awk 'END { print $1 }')"
row 'pages of the manual' "$(find man -name '*.[157]' | wc -l)"
row 'lines of these' "$(if command -v mandoc >/dev/null; then rendered; else echo -; fi)"
row 'lines of README.md' "$(wc -l <README.md)"
[ -z "$log" ] || sed -n '/^==== all jobs/,$p' "$log"
