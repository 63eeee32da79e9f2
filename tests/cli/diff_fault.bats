#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# diff_fault.bats - the line of kvtool diff that names a fault, and its limits
# (every fault that can be told: tests/oracle_diagnose.py)

load common
load dumps

# change CODE: bad.npy is hnd after what Python does to a[layer, block, head, slot, kv, dim]
change() {
	/usr/bin/python3 -c 'import sys, numpy as np
a = np.load(sys.argv[1])
b = a.copy()
exec(sys.argv[2])
np.save("bad.npy", b)' "$hnd" "$1"
	sed 's/packed_hnd.bf16.npy/bad.npy/' "${hnd%.npy}.json" >bad.json
}

# says TEXT: diff has this in the line of the fault
says() {
	shows 1 "  fault   $1" diff --top=0 "$hnd" bad.npy
}

@test "a fault of one rank's heads is named, and whose they are" {
	change 'b[:, :, 2:] = a[:, :, 2:].swapaxes(2, 3).reshape(a[:, :, 2:].shape)'
	says "swap-heads-slots way=0 in heads 2-3 (those of rank 1 of 2): pages of "
	change 'b[:, :, 0] = 0'
	says "zero-block in head 0 (that of rank 0 of 4): blocks are all zeros (100 % of "
	change 'b[..., 1, :] = 0'
	says "zero-kv kv=1 in values only: "
}

@test "what lies where is said of blocks, layers and heads" {
	change 'b[:, 17], b[:, 21] = a[:, 21], a[:, 17]'
	says "swap-blocks a=17,b=21"
	[[ $output == *": block 17 of B is block 21 of A, 21 is 17 in 5 of 5 layers: two blocks"* ]]
	change 'b[2:4, 17], b[2:4, 21] = a[2:4, 21], a[2:4, 17]'
	says "swap-blocks a=17,b=21 in layers 2-3"
	change 'b = np.roll(a, 1, 2)'
	says "rotate-heads by=1: head 0 of B is head 3 of A, 1 is 0, 2 is 1, ... in 5 of 5"
	change 'b = a[[0, 3, 1, 2, 4]]'
	says "permute-layers count=3 in layers 1-3: layer 1 of B is layer 3 of A, 2 is 1, 3 is 2: "
	change 'b = a[:, :, [2, 3, 2, 3]]'
	says "copy-rank tp=2,to=0,from=1 in heads 0-1 (those of rank 0 of 2)"
}

@test "tokens that are late from one on" {
	kvtool mutate -q --fault=shift-tokens,by=-3,from=64 -o bad.npy "$hnd"
	says "shift-tokens by=-3,from=64"
	kvtool mutate -q --fault=shift-tokens,by=21,from=70 -o bad.npy -f "$hnd"
	says "shift-tokens by=21,from=70"
}

@test "of two faults the larger is named, with what it explains" {
	change 'b = np.roll(a, 1, 2); b[3, 17] = 0'
	says "rotate-heads by=1"
	[[ $output == *"(99.5 % of "*" elements, more differs; 5 layers x 48 blocks examined)" ]]
	shows 1 '"decided": "rotate-heads"|"share": 0.99' diff --json --top=0 "$hnd" bad.npy
	# of nothing but noise no part is as any fault predicts
	change 'b = a ^ (np.arange(a.size).reshape(a.shape) * 2654435761 >> 9 & 5).astype(a.dtype)'
	says "none: no known fault explains them (kvtool help faults); they are everywhere, see --table=token ("
}

@test "where no fault explains it the next step is said" {
	change 'b[2, :, 1] = a[2, ::-1, 1] ^ 77'
	says "none: no known fault explains them (kvtool help faults); they are in layer 2, head 1 (that of rank 1 of 4), see --table=layer ("
	change 'b[..., 4:] = a[..., 4:] ^ a[..., 3:4] // 3'
	says "none: no known fault explains them (kvtool help faults); they are in some dims, see --table=dim ("
	change 'b[2, :, 1] = a[2, ::-1, 1] ^ 77'
	shows 1 '"only": {|"layers": [|2|"heads": [|1' diff --json --top=0 "$hnd" bad.npy
}

@test "where some tokens differ the table of tokens is named" {
	change 'n = a[:, :, :, 3]; b[:, :, :, 3] = n ^ (np.arange(n.size).reshape(n.shape) * 2654435761 >> 9 & 5).astype(a.dtype)'
	says "none: no known fault explains them (kvtool help faults); they are in some tokens, see --table=token ("
}
