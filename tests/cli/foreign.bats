#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# foreign.bats - files of torch, numpy and llama.cpp on the command line
# (what is in them: tests/oracle_foreign.py, tests/oracle_llama.py)

load common
load dumps

# make CODE: runs Python with the writers of foreign_files.py at hand
make() {
	PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/tests /usr/bin/python3 -c "
import numpy as np
from foreign_files import *
def save(name, data):
    open(name, 'wb').write(data)
$1"
}

@test "a pickle is not run" {
	make "save('evil.pt', zip_bytes({'a/data.pkl':
b'\x80\x02cposix\nsystem\nX\x0a\x00\x00\x00touch ownedq\x00\x85R.'}, late=True))"
	warns 4 'posix.system' describe evil.pt
	[ ! -e owned ]
	make "import pickle; save('plain.pt', pickle.dumps({'a': 1}, 2))"
	warns 3 '' describe plain.pt
}

@test "what numpy compressed, what torch wrote long ago" {
	/usr/bin/python3 -c "
import numpy; numpy.savez_compressed('c.npz', a=numpy.zeros(4))
numpy.savez('o.npz', a=numpy.array([{}], dtype=object))
open('old.pt', 'wb').write(bytes.fromhex('80028a0a6cfc9c46f9206aa8501971'))"
	warns 4 'savez' describe c.npz
	warns 4 '' describe o.npz
	warns 4 '1.6' describe old.pt
	printf 'PK\5\6%018d' 0 | tr 0 '\0' >empty.zip
	warns 4 '' describe empty.zip
}

@test "keys and values of one sequence, without an axis of it; a cache as one array" {
	make "
for name, shape in ('few', (2, 23, 16)), ('pool', (1024, 2, 16)):
    save(name + '.npz', npz_bytes({f'layer_{l}_{kv}': np.zeros(shape, 'f4')
                                   for l in range(3) for kv in ('key', 'value')}))
one = np.zeros((3, 2, 2, 23, 16), 'f4')
save('one.npy', npy_bytes(one))
save('one.npz', npz_bytes({'arr_0': one}))"
	warns 3 'give --from=transformers --set=axes=HTD if it is 2 heads of 23 tokens, --from=transformers --set=axes=THD if 2 tokens of 23 heads|which could be sglang-pool (3 layers, 2 tokens, 23 heads of 16)' describe few.npz
	run -0 kvtool describe --from=transformers --set=axes=HTD few.npz
	[[ $output == *'3 layers, 2 heads of 16, blocks of 16 tokens;'*'1 request, 23 tokens'* ]]
	# no model has so many heads: slots of a pool
	warns 3 'it could be sglang-pool (3 layers, 1024 tokens, 2 heads of 16)' describe pool.npz
	# what the sentence says to type
	warns 4 'LKHSD is layers, keys and values, heads, tokens, elements of a head' describe --from=transformers --set=axes=LKHTD one.npy
	run -0 kvtool describe --layout=LKHSD one.npy
	[[ $output == *'3 layers, 2 heads of 16, blocks of 23 tokens;'* ]]
	warns 3 'give --layout, or --manifest (kvtool guess may help), or --from=transformers --set=axes=LKHTD (THD: tokens first) if it is no blocks; it could be blocks-first-nhd' describe one.npz
	warns 3 'or --layout=LKHSD (SHD: tokens first) if it is no blocks; it could be blocks-first-nhd' describe one.npy
	warns 3 '--set=axes=LKHTD' describe --from=transformers one.npz
	run -0 kvtool describe --from=transformers --set=axes=LKHTD one.npz
	[[ $output == *'3 layers, 2 heads of 16,'*'1 request, 23 tokens'* ]]
}

@test "two tensors of all layers without names, and one of everything" {
	make "
k = np.arange(4 * 2 * 23 * 16, dtype='f4').reshape(4, 1, 2, 23, 16)
def t(a): return Tensor('FloatStorage', a)
save('named.npz', npz_bytes({'keys': k, 'values': k + 1}))
save('pair.pt', torch_bytes((t(k), t(k + 1))))
save('pair.npz', npz_bytes({'arr_0': k, 'arr_1': k + 1}))
save('flat.npz', npz_bytes({'arr_0': k[:, 0], 'arr_1': k[:, 0] + 1}))
save('one.pt', torch_bytes({'past_key_values': t(np.stack([k, k + 1], 1))}))
save('first.npz', npz_bytes({'arr_0': np.stack([k, k + 1])}))"
	want=$(value tokens named.npz --from=transformers)
	[ -n "$want" ]
	while read -r file axes; do
		warns 3 "or --from=transformers --set=axes=$axes|(THD: tokens first) if it is no blocks; it could be" describe "$file"
		[ "$(value tokens "$file" --from=transformers --set=axes="$axes")" = "$want" ]
	done <<<'pair.pt LBHTD
		pair.npz LBHTD
		flat.npz LHTD
		one.pt LKBHTD
		first.npz KLBHTD'
	warns 3 'two tensors of float32, 4 x 1 x 2 x 23 x 16, no manifest|sglang-pool (4, 1 of 2, 23 of 16), flashinfer-pair-hnd (4, 1 of 23, 2 of 16)' describe pair.pt
}

@test "tensors that are not alike: what differs, and what to save" {
	make "
def t(a, storage='FloatStorage'): return Tensor(storage, np.full(a, 1, {'H': 'u2', 'B': 'u1'}.get(storage[0], 'f4')))
pool, half = (2, 64, 16, 2, 8), (2, 32, 16, 2, 8)
save('list.pt', torch_bytes([t(pool), t(half), t(pool), t(half)]))
save('named.pt', torch_bytes({'full.0': t(pool), 'full.2': t(pool), 'window.1': t(half)}))
save('types.pt', torch_bytes([(t(half[1:]), t(half[1:], 'HalfStorage'))] * 2))
save('codes.pt', torch_bytes([(t(pool, 'ByteStorage'), t(pool[:-1], 'HalfStorage'))] * 2))
save('both.pt', torch_bytes([((t(half, 'ByteStorage'), t(half[:-1] + (1,))),) * 2] * 3))"
	warns 3 'tensors 0 and 1 differ in shape or type, 2 x 64 x 16 x 2 x 8 of float32 and 2 x 32 x 16 x 2 x 8 of float32; save those of one shape and type in a file of their own' describe list.pt
	warns 3 ', or give --set=names=full.{l} to read those like the first' describe --layout=kv-first-nhd named.pt
	shows 0 '2 layers, 2 heads of 8, blocks of 16 tokens; kv-first-nhd' describe --layout=kv-first-nhd '--set=names=full.{l}' named.pt
	warns 3 '0.k and 0.v differ in shape or type, 32 x 16 x 2 x 8 of float32 and 32 x 16 x 2 x 8 of float16; save both as one type' describe --layout=sglang-pool types.pt
	warns 3 'if 16 tokens of 2 heads$' describe types.pt
	shows 0 'g0.k |float32|g0.v |float16' describe --from=transformers --set=axes=BTHD --set=tokens=16 types.pt
	warns 3 'the second may be scales, which are not applied: save the numbers that both make, or give --set=names={l}.k' describe codes.pt
	shows 0 'uint8 K and V of 2 layers' describe --layout=kv-first-nhd '--set=names={l}.k' codes.pt
	# keys and values in a pair each
	warns 3 'give|--set=names={l}.0.k,{l}.1.k or |--set=names={l}.0.v,{l}.1.v' describe both.pt
}

@test "a tensor that is missing is named" {
	make "
a = np.ones((1, 2, 5, 4), 'f4')
for name, gone in ('value', 'layer_1_value'), ('key', 'layer_1_key'), ('last', 'layer_2_value'):
    save(name + '.npz', npz_bytes({n: a for l in range(3) for n in (f'layer_{l}_key', f'layer_{l}_value') if n != gone}))
save('dots.safetensors', safetensors_bytes({f'layers.{l}.{x}': ('F32', a) for l in range(3) for x in 'kv' if (l, x) != (1, 'v')}))"
	for how in '' --from=transformers --layout=sglang-pool; do
		warns 3 'has layer_1_key but no layer_1_value, and other layers have both: the file is not whole; save it again' describe $how value.npz
		warns 3 'has layer_1_value but no layer_1_key,' describe $how key.npz
		warns 3 'has layer_2_key but no layer_2_value,' describe $how last.npz
		warns 3 'has layers.1.k but no layers.1.v,' describe $how dots.safetensors
	done
}

@test "arrays of an engine: what joins a block, what no axes have" {
	make "
a = np.arange(3 * 2 * 12 * 2048, dtype='u2').view('f2').reshape(3, 2, 12, 2048)
save('all.npy', npy_bytes(a))
save('one.npy', npy_bytes(a[0]))
save('layers.npz', npz_bytes({f'layers.{l}': a[l] for l in range(3)}))
save('axes.npy', npy_bytes(a.reshape(3, 12, 2, 2, 16, 64)))
save('number.npy', npy_bytes(np.array(3.5)))
save('number.npz', npz_bytes({'x': np.array(3.5)}))"
	sizes=(--layout=rocm-paged --block-size=16 --heads=2 --head-dim=64)
	# as ROCm's backends declare it: (2, blocks, all of a block)
	shows 0 '1 layer, 2 heads of 64, blocks of 16 tokens; rocm-paged|B 12' describe "${sizes[@]}" one.npy
	shows 0 '3 layers,|B 12' describe "${sizes[@]}" all.npy
	[ "$(value blocks all.npy "${sizes[@]}")" = "$(value blocks layers.npz "${sizes[@]}")" ]
	warns 3 'give another --layout, or other sizes' describe "${sizes[@]}" --heads=3 one.npy
	# no engine has such a tensor of pages that are packed
	warns 3 'shape is 3 x 12 x 2 x 2 x 16 x 64, but layout' describe "${sizes[@]}" --layers=3 axes.npy
	for how in '' --layout=kv-first-nhd; do
		warns 3 'is a single number, an array without axes; expected one with axes for layers, tokens and heads' describe $how number.npy
		warns 3 'is a single number' describe $how number.npz
	done
}

@test "numpy's own npz" {
	/usr/bin/python3 -c "
import numpy, sys
a = numpy.load(sys.argv[1])
numpy.savez('l.npz', **{f'layers.{i}': a[i] for i in range(len(a))})" "$nhd"
	run -0 kvtool digest --scope=blocks --layout=nhd --dtype=bf16 --block-size=16 \
		--heads=4 --head-dim=8 l.npz
	[ "${output%% *}" = "$(value blocks "$nhd")" ]
	warns 3 '' digest l.npz
	warns 3 '--dtype' digest --layout=nhd --block-size=16 --heads=4 --head-dim=8 l.npz
}

@test "names of tensors" {
	make "a = np.zeros((1, 2, 5, 4), np.float32)
save('n.safetensors', safetensors_bytes({f'a{l}{x}': ('F32', a) for l in (0, 1) for x in 'pq'}))"
	warns 3 'layer|a0p' describe --from transformers n.safetensors
	kvtool describe --from transformers --set 'names=a{l}p,a{l}q' n.safetensors
	warns 3 '' describe --from transformers --set 'names=a{l}p,a{l}r' n.safetensors
	warns 3 '' describe --from transformers --set 'names=b{l}p,b{l}q' n.safetensors
	warns 3 '' describe --from transformers --set 'names=a{l}p' n.safetensors
	warns 2 '' describe --from transformers --set 'names=a{l}{l}' n.safetensors
	warns 2 '' describe --from transformers --set 'names=a' n.safetensors
	warns 2 '' describe --from transformers --set 'names=a{l},b{l},c{l}' n.safetensors
	warns 2 '' describe --from transformers --set 'padding=up' --set 'names=a{l}p,a{l}q' \
		n.safetensors
	warns 2 '' describe --from transformers --set 'nams=x' n.safetensors
}

@test "a state of llama.cpp becomes a snapshot" {
	make "rows = [[bytes(range(16))] * 20] * 2
save('slot.bin', ggsq_bytes(memory_bytes([Cells([(t, [0]) for t in range(20)], rows, rows)])))"
	warns 3 '--heads' convert slot.bin slot.h5
	warns 2 '--block-size is 1073741825, at most 1073741824 is supported' describe --heads=2 \
		--block-size=1073741825 slot.bin
	[ ! -e slot.h5 ]
	kvtool convert --verify --heads=2 slot.bin slot.h5
	[ "$(value tokens slot.h5)" = "$(value tokens slot.bin --heads=2)" ]
	shows 0 '20 tokens in 2 blocks' describe slot.h5
	head -c 100 slot.bin >cut.bin
	warns 3 '' describe --heads=2 cut.bin
}
