#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lint.sh - pages and scripts, by the programs that know them (TAP)
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

# SC2317 and SC2016: functions called by name, and programs in single quotes.
scripts() {
	shellcheck -x -e SC2317,SC2016 .ci/run scripts/*.sh bench/*.sh tests/*.sh
}
c_code() {
	cppcheck -q --std=c11 --enable=warning,portability --inline-suppr \
		--suppress=missingIncludeSystem --error-exitcode=1 -I. \
		lib kernels formats cli
}

for page in man/*.[157]; do
	none "mandoc has nothing to say about $page" mandoc -T lint -W warning "$page"
done
ok 'shellcheck agrees with the scripts' scripts
ok 'bash reads the completion' bash -n cli/completion.bash
if command -v cppcheck >/dev/null; then
	ok 'cppcheck finds nothing' c_code
else
	tap_count=$((tap_count + 1))
	echo "ok $tap_count # SKIP cppcheck is not installed"
fi
done_testing
