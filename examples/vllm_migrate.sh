#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: vllm_migrate.sh MODEL: from an engine with blocks of 32 tokens to one with 64
set -eu
PYTHONPATH=$(dirname "$0")/../contrib; export PYTHONPATH
here=$(dirname "$0") work=$(mktemp -d)
left=$("${PYTHON:-python3}" "$here/vllm_migrate.py" "$1" 32 capture "$work/a" | tail -n 1)
"${KVTOOL:-kvtool}" reblock --block-size=64 --stale=zero --verify -o "$work/b.rank0.safetensors" "$work/a.rank0.safetensors"
entered=$("${PYTHON:-python3}" "$here/vllm_migrate.py" "$1" 64 continue "$work/b" | tail -n 1)
[ "$left" = "$entered" ] && echo "the same 40 tokens: $left"
