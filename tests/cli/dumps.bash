# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154	# names for and from the others
# dumps.bash - dumps to work on, and what the tests of writers ask again and again
# (loaded after common.bash)

# An empty folder: bats keeps files of its own in the one above.
setup() {
	mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
	unset NO_COLOR COLUMNS
	export LC_ALL=C TERM=dumb
}

nhd=$kv/s260k/paged_bs16/packed_nhd.bf16.npy
hnd=$kv/s260k/paged_bs16/packed_hnd.bf16.npy
rocm=$kv/s260k/paged_bs16/rocm_x.bf16.npy
mla=$kv/mla144/paged_bs16/mla_lbsc.bf16.npy
rank1=$kv/s260k/tp2/rank1.packed_nhd.bf16.safetensors

# small_raw FILE: a dump of 6 KiB without a manifest; $small describes it
small=(--layout nhd --dtype bfloat16 --layers 2 --blocks 3 --block-size 16
	--heads 2 --head-dim 8)
small_raw() {
	/usr/bin/python3 -c '
import random, sys
random.seed(4)
sys.stdout.buffer.write(bytes(random.randrange(256) for _ in range(6144)))' >"$1"
}

# copy_dump FILE.npy NAME.npy: the array and its manifest, which names the copy
copy_dump() {
	cp "$1" "$2" &&
		sed "s|\"file\": \"[^\"]*\"|\"file\": \"${2##*/}\"|" "${1%.npy}.json" >"${2%.npy}.json"
}

# edit FILE CODE ARG...: Python code changes o, what that JSON says
edit() {
	/usr/bin/python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(o, open(sys.argv[1], "w"))' "$@"
}

# with JSON: $nhd with these keys in its manifest, as in.npy
with() {
	copy_dump "$nhd" in.npy
	edit in.json 'o.update(json.loads(sys.argv[3])); o.pop("free_blocks", None)' "$1"
}

# array FILE: the bytes of the one array that a .npy holds
array() {
	/usr/bin/python3 -c '
import sys, numpy
sys.stdout.buffer.write(numpy.load(sys.argv[1]).tobytes())' "$1"
}

same_array() {
	cmp <(array "$1") <(array "$2")
}

# value SCOPE FILE [OPTION...]: the digest alone
value() {
	kvtool digest --scope "$1" "${@:3}" "$2" | cut -d ' ' -f 1
}

same_digest() {
	local a b
	a=$(value tokens "$1") && b=$(value tokens "$2") && [ -n "$a" ] && [ "$a" = "$b" ]
}

# only NAME...: the folder holds these and nothing else, hidden files included
only() {
	[ $# -gt 0 ] || { [ -z "$(find . -mindepth 1 ! -name testdata)" ]; return; }
	diff <(printf '%s\n' "$@" | sort) <(find . -mindepth 1 -maxdepth 1 ! -name testdata -printf '%P\n' | sort)
}

# small_disk SIZE: a file system of that size at ./disk, or the test is skipped
small_disk() {
	mkdir disk
	[ "$(id -u)" = 0 ] || skip "only root may mount a small file system"
	mount -t tmpfs -o "size=$1" kvt-test disk 2>/dev/null ||
		skip "this machine does not let root mount tmpfs"
}
