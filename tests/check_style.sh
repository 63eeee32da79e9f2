#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_style.sh - what no compiler looks at: characters, widths, words
#
# Each rule is also run on a file that breaks it.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

# Everything a person wrote, except texts that must be byte for byte as they are.
written() {
	find . \( -name .git -o -path './build*' -o -path ./dist -o -name testdata -o -name corpus \
		-o -path ./tests/cli/expect -o -name __pycache__ -o -name config.mk -o -name '*.npy' \
		-o -name '*.png' \
		\) -prune \
		-o -type f "$@" -print
}
sources() {
	written \( -name '*.[chS]' -o -name '*.inl' -o -name '*.cu' -o -name '*.hip' \
		-o -name '*.sh' -o -name '*.bats' -o -name '*.bash' -o -name '*.zsh' \
		-o -name '*.py' -o -name '*.pl' -o -name '*.[157]' \
		-o -name Makefile -o -path './.ci/run' \)
}
c_files() { written \( -name '*.[ch]' -o -name '*.inl' -o -name '*.cu' -o -name '*.hip' \); }

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

ascii()  { written | LC_ALL=C xargs -r grep -nH "[^ -~$(printf '\t')]"; true; }
blanks() { written ! -name LICENSE | xargs -r grep -nHE '[[:blank:]]+$'; true; }
ending() { written -size +0 | while read -r f; do [ -z "$(tail -c 1 "$f")" ] || echo "$f"; done; }
licence() { sources | while read -r f; do
		head -n 3 "$f" | grep -q -e "SPDX-License-Identifier: Apache-2.0" -e "^\.so man" || echo "$f"
	done; }
# a message may be longer: split, it could not be searched for
width() { c_files | while read -r f; do
		expand "$f" | awk -v f="$f" 'length > 90 && !/^ *"/ || length > 240 {
			print f ":" NR ": " length " columns" }'
	done; }
# a sentence that a reader may look for, in two parts; after a line's end it may be
broken() { c_files | xargs -r perl -0777 -ne '
		my $text = $_;
		$text =~ s{/\*.*?\*/}{$& =~ tr/\n//cdr}gse;
		while ($text =~ m/\b(?:kvt_fail\w*|kvt_find(?:_at)?|kvt_run_warn|kvt_config_note|kvt_hint_denied|kvt_h5_(?:bad|refuse)|complain|refuse\w*)\s*
				(\((?:[^()"\x27]++|"(?:\\.|[^"\\])*+"|\x27(?:\\.|[^\x27\\])++\x27|(?1))*+\))/gx) {
			my ($call, $before) = ($1, substr($text, 0, $-[0]));
			print "$ARGV:", ($before =~ tr/\n//) + 1, ": a sentence in two parts\n"
				if $call =~ m/(?<!\\n)"\s*\n\s*"/;
		}'; }
marks()  { sources | xargs -r grep -nHwE 'TO[D]O|FIX[M]E|X[X]X'; true; }
paths()  { written | xargs -r grep -nHE '/(wor[k]|roo[t]|hom[e])/'; true; }
modes()  { find tests scripts .ci \( -name 'check_*.sh' -o -name '*.bats' -o -path '.ci/run' -o \
		-name 'oracle_*.py' -o -name 'damaged_*.py' -o -name 'golden_*.py' \) \
		-type f ! -perm -u+x; }

# 'a && b' and '! a' end no test where a, or all of it, is false
masked() { written -name '*.bats' | xargs -r grep -nHE \
		'^[[:space:]]+(\[ |one_sentence|cmp |grep |diff |said |only |same_)[^|]* && [^|]*$|^[[:space:]]+! [^|]*$'; true; }

# files that the two pages for newcomers name and that are not there; NAME is any
named() {
	grep -oshE '`(lib|kernels|formats|print|sim|cli|tests|scripts|man|bench)/[A-Za-z0-9_./*-]*`' \
		CONTRIBUTING.md README.md | tr -d '`' | grep -v NAME | sort -u |
		while read -r path; do
			# shellcheck disable=SC2086	# may be a pattern
			ls -d $path >/dev/null 2>&1 || echo "$path"
		done
}

# the same in comments, by a path or by its end; of others: "Mooncake's a.h", cuda.h
stale() {
	written | sed 's|^\./|/|' >"$tmp/there"
	{ c_files | xargs -r grep -hE '^[[:space:]]*\*|/\*' | sed 's/[^ ]*\.py//g'
		written -name '*.py' -path './python/*' | xargs -r cat
	} | sed "s/[A-Z][a-z]*'s [^ ]*//g" |
		grep -oE '[A-Za-z0-9_<>/.-]*[A-Za-z0-9_>]\.(c|h|inl|py|sh)\b' | sort -u |
		while read -r name; do
			case $name in
			*NAME*|*'<'*|*'>'*|/*|cuda.h) ;;
			*) grep -q -e "/$name\$" "$tmp/there" || echo "$name" ;;
			esac
		done
}

# sanitizers make no libkvt: who loads it is left out there, or asks python_module()
loads() {
	grep -lE '^(import kvtool|from kvtool)\b' tests/*.py 2>/dev/null |
		while read -r path; do
			grep -qs "$path" Makefile || echo "$path"
		done
}

# planted RULE FILE TEXT: the rule must object to a tree that holds just this
planted() {
	tree=$(mktemp -d) || return 1
	(
		cd "$tree" || exit 1
		mkdir lib cli tests scripts .ci
		# shellcheck disable=SC2059	# the texts hold escapes
		printf "$3" >"$2"
		cp "$2" cli/
		[ -n "$("$1")" ]
	)
	result=$?
	rm -rf "$tree"
	return "$result"
}

none 'ASCII only'                                    ascii
none 'no trailing blanks'                            blanks
none 'the last line ends'                            ending
none 'each source names its licence'                 licence
none 'C has at most 90 columns'                      width
none 'messages are not broken over lines'            broken
none 'nothing is left to do'                         marks
none 'no paths of the machine it was written on'     paths
none 'test scripts can be run'                       modes
none 'no test passes over what fails in it'          masked
none 'README and CONTRIBUTING name what is there'    named
none 'comments name what is there'                   stale
none 'who loads libkvt in Python is in SOURCES'      loads

ok 'finds a Cyrillic letter'     planted ascii   lib/a.c 'int \320\260;\n'
ok 'finds a carriage return'     planted ascii   lib/a.c 'int a;\r\n'
ok 'finds trailing blanks'       planted blanks  lib/a.h 'int a; \n'
ok 'finds an unfinished line'    planted ending  lib/a.c 'int a;'
ok 'finds a missing licence'     planted licence lib/a.c 'int a;\n'
ok 'finds a wide line'           planted width   lib/a.c "$(printf '\t%086d' 0)\\n"
ok 'finds a broken sentence'     planted broken  lib/a.c 'x = kvt_fail(err, 3, "a (b) "\n\t"c", d(1));\n'
ok 'finds something left to do'  planted marks   lib/a.c '/* TO''DO */\n'
ok 'finds a path'                planted paths   lib/a.c '"/wo''rk/a"\n'
ok 'finds a script without x'    planted modes   tests/check_a.sh 'true\n'
ok 'finds a masked failure'      planted masked  tests/a.bats '\t[ a = b ] && cmp c d\n'
ok 'finds a negated command'     planted masked  tests/a.bats '\t! grep -q a b\n'
ok 'finds a file that is not there' planted named CONTRIBUTING.md 'see `lib/none.c`\n'
ok 'finds a test that loads libkvt' planted loads   tests/a.py 'import kvtool as kv\n'
ok 'finds a file of old in a comment' planted stale lib/a.c '/* b.c - what was a.c */\n'
done_testing
