#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh [DUMP...] - dumps of this revision against the contract beside it
#
# For any CI: status 0 if all keep it, 1 if one does not; kvtool-report.xml is for what
# shows tests (JUnit).  Of a dump that breaks it the contract that it would keep is written
# to found.kvc, and the difference is said in words.
set -u
here=$(dirname "$0")
kvtool=${KVTOOL:-kvtool}
[ $# -gt 0 ] || set -- "$here/dump.npy"

"$kvtool" expect check -f --report=junit=kvtool-report.xml "$here/kv.kvc" "$@" && exit 0
status=$?
[ $status = 1 ] || exit $status
for dump; do
	"$kvtool" expect check -q "$here/kv.kvc" "$dump" 2>/dev/null && continue
	"$kvtool" expect write -f -o found.kvc "$dump" || exit
	echo
	"$kvtool" expect compare "$here/kv.kvc" found.kvc
	echo "If that is meant: kvtool expect write -f -o $here/kv.kvc $dump"
done
exit 1
