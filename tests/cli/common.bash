# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# common.bash - what every command line test begins with
bats_require_minimum_version 1.5.0

root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
KVTOOL=${KVTOOL:-$root/build/kvtool}
case $KVTOOL in /*) ;; *) KVTOOL=$root/$KVTOOL ;; esac
# shellcheck disable=SC2034 # the tests use it
kv=${KVT_DATA:-$root/testdata/kv}
case $kv in /*) ;; *) kv=$root/$kv ;; esac

# Run from a folder of its own, where the data is at hand by its short name.
setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	ln -s "$root/testdata" testdata
	# shellcheck disable=SC2034 # the tests use it
	data=testdata/kv/s260k/paged_bs16
	# nothing of the caller's terminal or settings
	unset NO_COLOR COLUMNS
	export LC_ALL=C TERM=dumb
}

# WRAPPER: valgrind, or nothing.
kvtool() {
	${WRAPPER:-} "$KVTOOL" "$@"
}

# expect STATUS NAME ARG...: the exit status, and stdout and stderr as the files
# of that name in expect/ have them; without a file, nothing may be printed.
# BLESS=1 writes the files anew.
expect() {
	local wanted=$1 name=$2 stream file
	shift 2
	run -"$wanted" --separate-stderr kvtool "$@"
	printf '%s' "${output:+$output$'\n'}" >out
	# shellcheck disable=SC2154 # bats sets it
	printf '%s' "${stderr:+$stderr$'\n'}" >err
	for stream in out err; do
		file=$BATS_TEST_DIRNAME/expect/$name.$stream
		if [ -n "${BLESS:-}" ]; then
			rm -f "$file"
			[ ! -s $stream ] || cp $stream "$file"
		fi
		[ -e "$file" ] || file=/dev/null
		diff -u "$file" $stream
	done
}

# json FILTER: the value that a Python expression over the object 'o' has.
json() {
	/usr/bin/python3 -c 'import json, sys
o = json.load(sys.stdin)
print(eval(sys.argv[1]))' "$1"
}
