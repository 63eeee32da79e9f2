#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh DIR: kvtool on a real dump, every command shown before it runs.  A dump
# of the same cache in the wanted layout lies beside it, so the proof is cmp.
set -eu

kvtool=${KVTOOL:-build/kvtool}
dumps=testdata/kv/s260k/paged_bs16
out=$1

# run COMMAND...: the tool goes by its name, so that lines can be typed again
run() {
	[ "$1" = "$kvtool" ] && shift && set -- kvtool "$@"
	echo
	echo "\$ $*"
	[ "$1" = kvtool ] && shift && set -- "$kvtool" "$@"
	"$@"
}

rm -rf "$out"
mkdir -p "$out"

echo "kvtool is $kvtool"
echo
echo "A KV cache as a server holds it: paged, bf16, token rows first (NHD)."
run "$kvtool" describe $dumps/packed_nhd.bf16.npy

echo
echo "The same cache with heads first (HND), and the proof: another program wrote"
echo "$dumps/packed_hnd.bf16.npy from the same forward pass."
run "$kvtool" relayout --to hnd --verify -o "$out/hnd.npy" $dumps/packed_nhd.bf16.npy
run cmp "$out/hnd.npy" $dumps/packed_hnd.bf16.npy

echo
echo "Into a compressed HDF5 snapshot and back, without loss."
run "$kvtool" convert $dumps/packed_nhd.bf16.npy "$out/snapshot.h5"
run "$kvtool" convert "$out/snapshot.h5" "$out/back.npy"
run cmp "$out/back.npy" $dumps/packed_nhd.bf16.npy

echo
echo "A digest is of the content: the same in every layout and format."
run "$kvtool" digest $dumps/packed_nhd.bf16.npy "$out/hnd.npy" "$out/snapshot.h5" |
	tee "$out/digests"
awk '/^kvd1:/ { n[$1]++; lines++ }
	END { for (d in n) if (n[d] != 3) exit 1; exit !lines }' "$out/digests"

echo
echo "proven: the relayout to HND and the way through HDF5 are equal byte for byte"
