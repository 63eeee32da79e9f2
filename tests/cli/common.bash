# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# common.bash - what the tests of the command line share
#
# Each test runs in an empty folder of its own.

bats_require_minimum_version 1.5.0

root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
KVTOOL=${KVTOOL:-$root/build/kvtool}
case $KVTOOL in /*) ;; *) KVTOOL=$root/$KVTOOL ;; esac
data=${KVT_DATA:-$root/testdata/kv}
case $data in /*) ;; *) data=$root/$data ;; esac

# WRAPPER='valgrind -q --error-exitcode=99' runs all of it under valgrind
kvtool() {
	# shellcheck disable=SC2086	# a command and its options
	${WRAPPER:-} "$KVTOOL" "$@"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
}

teardown() {
	:
}

# expect NAME TEXT: TEXT is what tests/cli/expect/NAME holds
expect() {
	diff -u "$BATS_TEST_DIRNAME/expect/$1" <(printf '%s\n' "$2")
}
