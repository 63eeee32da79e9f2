# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# tap.sh - sourced by the test scripts: one test a call, TAP on stdout

tap_count=0
tap_failed=0

# ok NAME COMMAND...: the test holds if the command succeeds.  What the command
# printed is shown where it does not.
ok() {
	tap_name=$1
	shift
	tap_count=$((tap_count + 1))
	if tap_output=$("$@" 2>&1); then
		echo "ok $tap_count - $tap_name"
	else
		tap_failed=1
		echo "not ok $tap_count - $tap_name"
		printf '%s\n' "$tap_output" | sed 's/^/#   /' >&2
	fi
}

# none NAME COMMAND...: the test holds if the command succeeds and prints nothing.
none() {
	tap_rule=$1
	shift
	ok "$tap_rule" prints_nothing "$@"
}

prints_nothing() {
	found=$("$@") || return 1
	[ -z "$found" ] || { printf '%s\n' "$found"; return 1; }
}

done_testing() {
	echo "1..$tap_count"
	exit "$tap_failed"
}
