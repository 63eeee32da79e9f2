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

proven_page() {
	python3 tests/engines/suite.py page | diff - man/kvtool-engines.7
}

# Examples come before the options, and so before the exit status: mdoc has that order
# the other way round, and readers look for the examples.
page_lint() {
	! grep -q '^\.so ' "$1" || return 0
	mandoc -T lint -W warning "$1" |
		grep -v -x '.*: WARNING: sections out of conventional order: Sh \(EXIT STATUS\|FILES\|ENVIRONMENT\)'
	:
}

for page in man/*.[1357] "${KVT_BUILD:-build}"/man3/*.3; do
	none "mandoc has nothing to say about $page" page_lint "$page"
done
ok 'shellcheck agrees with the scripts' scripts
ok 'kvtool-engines(7) is what the engine suite wrote' proven_page
ok 'words that are out are not used' python3 scripts/check_words.py
ok 'mypy agrees with the Python module' mypy --strict --cache-dir=/dev/null python/kvtool
ok 'bash reads the completion' bash -n cli/completion.bash
ok 'the release recipe of CONTRIBUTING.md runs' scripts/rehearse_release.sh
done_testing
