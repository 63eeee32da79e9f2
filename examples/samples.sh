#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# samples.sh FOLDER: makes the files that README.md and docs/tasks.md name, of the caches in testdata/
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
kv=$here/testdata/kv/s260k engines=$here/testdata/engines kvtool=${KVTOOL:-kvtool}
mkdir "$1"
cd "$1"

# a dump with a manifest; the same cache in another layout, of which nothing says what it is;
# on four ranks; one layer of it, [2, 48, 16, 4, 8], as torch 2.15 saves that; and with keys and
# values swapped in one block
"$kvtool" relayout -q --to=nhd -o dump.npy "$kv/paged_bs16/packed_nhd.bf16.npy"
cp "$kv/paged_bs16/packed_hnd.bf16.npy" unknown.npy
cp -R "$kv/tp4" ranks
cp "$here/examples/layer0.pt" layer0.pt
"$kvtool" mutate -q --fault=swap-kv,layer=2,block=17 -o bad.npy dump.npy

# what engines left: a folder of vLLM's disk connector, a tree of its file-system tier, a
# state of llama.cpp with its model, and two caches of transformers, one of them as a
# list of tensors
cp -R "$kv/connector/example_2026_07" connector
cp -R "$engines/vllm/offload_tp1_vec_bs32/root" offload
cp "$engines/llama.cpp/gemma2.fa0_u0.ggsn" state.bin
cp "$here/testdata/config/gemma-2-tiny.gguf" model.gguf
cp "$engines/transformers/5.23.0/dynamic.pt" cache.pt
cp "$engines/transformers/5.23.0/dynamic_list.pt" pairs.pt

# a model, requests, and what two workers report
cp "$here/testdata/config/llama-3.1-70b.json" config.json
printf 't,bytes,tokens\n0,268435456,2048\n500,1073741824,8192\n' >trace.csv
{
	echo '{"workers": 2}'
	echo '{"step": 1, "worker": 0, "finished_recving": ["A"]}'
	echo '{"step": 2, "worker": 1, "finished_recving": ["A"]}'
} >workers.jsonl

# what a connector registered on both sides of a transfer
cp "$here/testdata/regions/nixl_window.json" prefill.json
cp "$here/testdata/regions/nixl_window.json" decode.json

# a digest of two files, by two shards
for i in 0 1; do
	"$kvtool" digest -q --shard=$i/2 --shard-dir=shards dump.npy bad.npy
done
