#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nonsense.sh FOLDER: the files of docs/nonsense.md, which says at its end what was done here
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
kv=$here/testdata/kv/s260k kvtool=${KVTOOL:-kvtool}
mkdir "$1"
cd "$1"

# what the old backend had; the same bytes, where the new one takes its blocks for HND
"$kvtool" relayout -q --to=nhd -o before.safetensors "$kv/paged_bs16/packed_nhd.bf16.npy"
"$kvtool" relayout -q --to=hnd -o right.safetensors before.safetensors
"$kvtool" mutate -q --fault=swap-heads-slots,way=0 -o after.safetensors right.safetensors

# blocks of 32 tokens, found half a block apart
"$kvtool" mutate -q --fault=kernel-stride,ratio=2 -o bs32.safetensors "$kv/paged_bs32/packed_nhd.bf16.npy"
rm right.safetensors
