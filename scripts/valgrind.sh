#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# valgrind.sh - the unit tests that are built, and the main commands of kvtool,
# under valgrind's memory checker (TAP).  A leak counts if nothing points to it.
# Of many cases alike, KVT_CASES leaves every eighth: all of them run elsewhere.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

kvtool=${KVTOOL:-build/kvtool}
dump=testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export KVT_CASES="${KVT_CASES:-8}"

# ends STATUS COMMAND...: it ends so, and valgrind has nothing to say
ends() {
	wanted=$1
	shift
	valgrind -q --suppressions=tests/valgrind.supp --error-exitcode=99 --leak-check=full \
		--errors-for-leak-kinds=definite "$@"
	status=$?
	[ "$status" = "$wanted" ] || { echo "exit status $status"; return 1; }
}

# Python loses memory of its own at its end; what counts is what libkvt has a part in.
library=${KVT_BUILD:-build}/libkvt.so.0
lost() {
	KVTOOL_LIBRARY=$library PYTHONDONTWRITEBYTECODE=1 PYTHONMALLOC=malloc valgrind -q \
		--leak-check=full --show-leak-kinds=definite,indirect --xml=yes \
		--xml-file="$tmp/python.xml" /usr/bin/python3 tests/python/leaks.py "$tmp" "$@" >&2 ||
		return 1
	python3 - "$tmp/python.xml" <<-'PY'
	import sys
	from xml.etree import ElementTree
	for error in ElementTree.parse(sys.argv[1]).iter("error"):
	    if any("libkvt" in (o.text or "") for o in error.iter("obj")):
	        print(ElementTree.tostring(error, encoding="unicode"))
	PY
}
# one processor is its own for half a minute, so it begins first; each good and bad file, with
# each use, comes once in 350
lost 350 >"$tmp/lost" &
python=$!

# The unit tests run side by side, and are reported in order.
programs=$(find "${KVT_BUILD:-build}/tests/unit" -name 'test_*' -perm -u+x | sort)
# shellcheck disable=SC2016	# the inner shell expands them
printf '%s\n' "$programs" | xargs -P "${JOBS:-$(nproc)}" -I {} sh -c '
	valgrind -q --suppressions=tests/valgrind.supp --error-exitcode=99 --leak-check=full \
		--errors-for-leak-kinds=definite "$1" >"$2/${1##*/}.log" 2>&1
	echo $? >"$2/${1##*/}.status"' - {} "$tmp"

passed() {
	[ "$(cat "$tmp/$1.status")" = 0 ] || { cat "$tmp/$1.log"; return 1; }
}
for program in $programs; do
	ok "$program" passed "${program##*/}"
done
printf 'no dump' >"$tmp/bad.npy"
head -c 3000 $dump >"$tmp/short.npy"
ok 'describe'            ends 0 "$kvtool" describe $dump
ok 'describe --json'     ends 0 "$kvtool" describe --json $dump
ok 'relayout'            ends 0 "$kvtool" relayout --to hnd --verify -o "$tmp/hnd.npy" $dump
ok 'convert to HDF5'     ends 0 "$kvtool" convert $dump "$tmp/a.h5"
ok 'relayout of HDF5'    ends 0 "$kvtool" relayout --to cross-hnd -o "$tmp/b.h5" "$tmp/a.h5"
ok 'convert from HDF5'   ends 0 "$kvtool" convert "$tmp/b.h5" "$tmp/c.safetensors"
ok 'digest'              ends 0 "$kvtool" digest "$tmp/b.h5" "$tmp/c.safetensors"
ok 'a file of no format' ends 3 "$kvtool" describe "$tmp/bad.npy"
ok 'a truncated file'    ends 3 "$kvtool" describe "$tmp/short.npy"
ok 'a missing file'      ends 5 "$kvtool" describe "$tmp/none.h5"
loses() { [ -n "$(lost 5 lose)" ]; }
wait $python
finished=$?
lost_nothing() { [ "$finished" = 0 ] && cat "$tmp/lost"; }
none 'Python: 350 files, good and bad, are opened and used' lost_nothing
ok 'and a text that is lost is noticed'  loses
done_testing
