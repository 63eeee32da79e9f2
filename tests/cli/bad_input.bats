#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# bad_input.bats - wrong files, wrong places to write, interruption
# (damaged bytes, thousands of them: tests/damaged_files.py)

load common
load dumps

# refused STATUS COMMAND...: that status, one sentence, no output left behind
refused() {
	local want=$1
	shift
	run --separate-stderr "$@"
	[ "$status" = "$want" ] || { echo "exit $status, expected $want: $stderr"; return 1; }
	one_sentence || { echo "not one sentence: $stderr"; return 1; }
	[ -z "$(find . -name 'out*')" ] || { find .; return 1; }
}

# ---- input ------------------------------------------------------------------

@test "a file that is not there" {
	refused 5 kvtool digest missing.h5
	said missing.h5
	refused 5 kvtool convert missing.npy out.h5
	refused 5 kvtool digest "$nhd/below"
}

@test "an empty file and one that is nothing" {
	: >empty.h5
	refused 3 kvtool digest empty.h5
	echo hello >text.npy
	refused 3 kvtool digest text.npy
	said text.npy
}

@test "a file that is something else, by what it begins with" {
	printf 'GGUF\3\0\0\0' >model.gguf
	refused 3 kvtool describe model.gguf
	said 'the weights of a model'
	refused 2 kvtool describe --from=gguf model.gguf
	refused 3 kvtool describe "$BATS_TEST_DIRNAME/../../testdata/config/gemma-2.json"
	said 'kvtool size takes it'
	: >empty.bin
	refused 3 kvtool describe empty.bin
	said 'is empty'
	printf '\200\004K\001.' >cache.pkl
	refused 3 kvtool describe cache.pkl
	said torch.save
	gzip -c "$nhd" >cache.npy.gz
	refused 3 kvtool describe cache.npy.gz
	said gzip
	# and what only looks so is read as it is described
	{ printf 'GGUF'; head -c 252 /dev/zero; } >raw.bin
	kvtool describe --layout=nhd --dtype=int8 --layers=1 --block-size=16 --heads=1 \
		--head-dim=8 raw.bin
}

@test "a folder that is nothing" {
	mkdir folder
	refused 3 kvtool digest folder
	mkdir -p folder/0123456789abcdef0123456789abcdef
	refused 3 kvtool digest folder
}

@test "a FIFO or device does not hang" {
	mkfifo pipe
	run timeout 120 "$KVTOOL" digest pipe
	[ "$status" = 3 ] || [ "$status" = 4 ]
	refused 3 kvtool digest /dev/null || refused 4 kvtool digest /dev/null
	run timeout 120 "$KVTOOL" convert /dev/zero out.npy
	[ "$status" = 3 ] || [ "$status" = 4 ]
	only pipe
}

@test "every way to cut a dump short" {
	local n size
	kvtool convert "$mla" whole.h5 >/dev/null
	kvtool convert "$mla" whole.safetensors >/dev/null
	copy_dump "$mla" whole.npy
	cp "${mla%.npy}.json" cut.json
	for f in h5 safetensors npy; do
		size=$(stat -c %s whole.$f)
		for n in 0 1 7 8 9 100 128 1000 $((size / 2)) $((size - 4096)) $((size - 1)); do
			head -c $n whole.$f >cut.$f
			run --separate-stderr kvtool convert cut.$f out.npy
			[ "$status" = 3 ] || { echo "$f cut to $n: exit $status $stderr"; return 1; }
			one_sentence
			[[ ! -e out.npy && ! -e out.json ]]
		done
		cat whole.$f <(echo x) >cut.$f
		run kvtool convert cut.$f out.npy
		# HDF5 may have slack at the end, the others say how long they are
		[[ $status = 3 || ( $f = h5 && $status = 0 ) ]]
		rm -f cut.$f out.*
	done
}

@test "a connector folder without one of its layers" {
	cp -r "$kv/s260k/connector/example_2026_07" folder
	rm folder/436478e796c7d5a9bb24960c7d0da0ce/model.layers.3.self_attn.attn.safetensors
	refused 3 kvtool convert --layout=nhd --block-size=16 folder out.h5
	said 436478e796c7d5a9bb24960c7d0da0ce
}

@test "a connector folder with a short layer" {
	cp -r "$kv/s260k/connector/example_2026_07" folder
	local f=folder/436478e796c7d5a9bb24960c7d0da0ce/model.layers.3.self_attn.attn.safetensors
	truncate -s 9000 "$f"
	refused 3 kvtool convert --layout=nhd --block-size=16 folder out.h5
	said model.layers.3
}

@test "a connector folder with a layer of another shape" {
	cp -r "$kv/s260k/connector/example_2026_07" folder
	cp folder/2a3cf51fa70dd631a21aee95bb0133fb/model.layers.3.self_attn.attn.safetensors \
		folder/436478e796c7d5a9bb24960c7d0da0ce/
	refused 3 kvtool convert --layout=nhd --block-size=16 folder out.h5
}

@test "a manifest of another dump" {
	refused 3 kvtool digest --manifest "${mla%.npy}.json" "$nhd"
	refused 3 kvtool digest --manifest "$kv/gqa64/paged_bs16/packed_nhd.bf16.json" "$nhd"
	refused 5 kvtool digest --manifest missing.json "$nhd"
	refused 3 kvtool digest --manifest "$nhd" "$nhd"
}

@test "a .npy without a manifest is not guessed at" {
	cp "$nhd" alone.npy
	refused 3 kvtool convert alone.npy out.h5
	said alone.npy
}

@test "a layout that contradicts the file" {
	kvtool convert "$nhd" in.h5 >/dev/null
	refused 3 kvtool convert --layout hnd in.h5 out.npy
	said LBHSC LBSHC
	refused 3 kvtool convert --heads 8 in.h5 out.npy
	refused 3 kvtool convert --dtype float16 in.h5 out.npy
	refused 3 kvtool convert --layers 4 in.h5 out.npy
	rm in.h5
	refused 3 kvtool convert --layout hnd "$nhd" out.npy
}

@test "hints that agree with the file are welcome" {
	run -0 kvtool convert --layout LBSHC --dtype bf16 --layers 5 --blocks 48 \
		--block-size 16 --heads 4 --head-dim 8 "$nhd" ok.h5
}

@test "sizes that no file can have" {
	small_raw small.bin
	local base=(--layout nhd --dtype bfloat16)
	refused 3 kvtool convert "${base[@]}" --layers 2 --blocks 3 --block-size 16 \
		--heads 2 --head-dim 9 small.bin out.h5
	said 6144
	refused 3 kvtool convert "${base[@]}" --layers 4294967296 --blocks 4294967296 \
		--block-size 4294967296 --heads 4294967296 --head-dim 4294967296 small.bin out.h5
	refused 3 kvtool convert "${base[@]}" --layers 9223372036854775806 --blocks 3 \
		--block-size 16 --heads 2 --head-dim 8 small.bin out.h5
	refused 2 kvtool convert "${base[@]}" --layers 9223372036854775808 --blocks 3 \
		--block-size 16 --heads 2 --head-dim 8 small.bin out.h5
	refused 2 kvtool convert "${base[@]}" --layers 0 small.bin out.h5
	refused 2 kvtool convert "${base[@]}" --layers -1 small.bin out.h5
	refused 2 kvtool convert "${base[@]}" --heads 2x small.bin out.h5
	refused 3 kvtool convert "${small[@]}" --skip 9223372036854775806 small.bin out.h5
	refused 3 kvtool convert "${small[@]}" --skip 1 small.bin out.h5
}

@test "element types that are none, or several" {
	small_raw small.bin
	refused 2 kvtool convert "${small[@]}" --dtype bfloat17 small.bin out.h5
	said bfloat17
	run --separate-stderr kvtool convert "${small[@]}" --dtype auto small.bin out.h5
	[ "$status" = 2 ] || [ "$status" = 3 ]
	one_sentence
	[ ! -e out.h5 ]
}

@test "a bare tuple as the layout of the input" {
	small_raw small.bin
	refused 3 kvtool convert "${small[@]}" --layout 0,1,2,3,4 small.bin out.h5
	said rfc: vllm:
}

# ---- output -----------------------------------------------------------------

@test "the input is never the output" {
	copy_dump "$nhd" in.npy
	ln -s in.npy symbolic.npy
	ln in.npy hard.npy
	mkdir folder
	ln -s ../in.npy folder/far.npy
	local name
	for name in in.npy ./in.npy symbolic.npy hard.npy folder/far.npy; do
		run --separate-stderr kvtool relayout --to hnd -f -o $name in.npy
		[ "$status" = 2 ]
		one_sentence
		cmp in.npy "$nhd"
	done
	run kvtool relayout --to hnd -f -o symbolic.npy --manifest in.json symbolic.npy
	[ "$status" = 2 ]
	cmp in.npy "$nhd"
	only in.npy in.json symbolic.npy hard.npy folder
}

@test "the manifest of the input is never the output" {
	copy_dump "$nhd" in.npy
	cp in.json before
	run -2 --separate-stderr kvtool convert -f --format raw in.npy in
	one_sentence
	said in.json 'belongs to the input'
	run -5 --separate-stderr kvtool convert -f --format raw "$hnd" in
	said in.json 'manifest of in.npy'
	run -2 --separate-stderr kvtool convert -f --format hdf5 in.npy in.json
	cp in.json other.json
	sed -i '/"file":/d' other.json
	run -2 --separate-stderr kvtool convert -f --manifest other.json in.npy other.npy
	one_sentence
	said other.json
	cmp in.json before
	# a name of its own is no reason to refuse
	run -0 kvtool convert in.npy in.bin
	only in.npy in.json in.bin in.bin.json before other.json
}

@test "a layer of a connector folder is never the output" {
	cp -r "$kv/mla144/connector" folder
	local f
	f=$(find folder -name '*layers.1*' | head -n 1)
	cp "$f" before
	run --separate-stderr kvtool convert -f --block-size=16 folder "$f"
	[ "$status" = 2 ]
	one_sentence
	cmp "$f" before
}

@test "a snapshot needs a seekable file" {
	mkfifo pipe.h5
	run -4 --separate-stderr timeout 120 "$KVTOOL" convert -f "$nhd" pipe.h5
	one_sentence
	run -4 --separate-stderr kvtool convert -f --format hdf5 "$nhd" /dev/null
	one_sentence
	# shellcheck disable=SC2016
	run -4 --separate-stderr bash -c '"$0" convert -f --format hdf5 "$1" /dev/fd/1 | cat; exit "${PIPESTATUS[0]}"' \
		"$KVTOOL" "$nhd"
	only pipe.h5
}

@test "a folder cannot be written to" {
	refused 5 kvtool convert "$nhd" missing/out.h5
	: >file
	refused 5 kvtool convert "$nhd" file/out.h5
	mkdir folder.h5
	refused 5 kvtool convert "$nhd" folder.h5
	refused 5 kvtool convert -f "$nhd" folder.h5
	[ -d folder.h5 ]
	refused 5 kvtool convert "$nhd" /proc/out.h5
}

teardown() {
	! mountpoint -q disk || umount disk
}

@test "a read-only file system" {
	small_disk 1M
	mount -o remount,ro disk
	local ending
	for ending in h5 npy safetensors bin; do
		refused 5 kvtool convert "$nhd" disk/out.$ending
	done
}

@test "a disk that fills up" {
	small_disk 128k
	local ending
	for ending in h5 npy safetensors bin; do
		refused 5 kvtool convert "$nhd" disk/out.$ending
		said disk/out.$ending
		[ -z "$(ls -A disk)" ]
	done
}

@test "a disk that fills up leaves the old file" {
	small_disk 128k
	echo mine >disk/old.npy
	run -5 kvtool convert -f "$nhd" disk/old.npy
	[ "$(cat disk/old.npy)" = mine ]
	[ "$(ls -A disk)" = old.npy ]
}

@test "a limit on file size" {
	local ending
	for ending in npy safetensors h5; do
		# shellcheck disable=SC2016
		run --separate-stderr bash -c 'trap "" XFSZ; ulimit -f 64; exec "$0" convert "$1" "$2"' \
			"$KVTOOL" "$nhd" out.$ending
		[ "$status" = 5 ]
		only
	done
}

# ---- interruption -----------------------------------------------------------

# 768 MiB of zeros that take no room
large=(--layout nhd --dtype bfloat16 --layers 24 --block-size 16 --heads 8
	--head-dim 128 --threads 1 --mem-limit 16M)

@test "an interrupted run leaves nothing behind and dies by the signal" {
	truncate -s 768M large.bin
	local signal
	for signal in SIGINT SIGTERM SIGHUP; do
		run -0 interrupt $signal "$KVTOOL" relayout "${large[@]}" --to bhlsc -o out.npy large.bin
		[ "$output" = "by signal" ] || { echo "$signal: $output"; return 1; }
		only large.bin
	done
	run -0 interrupt SIGINT "$KVTOOL" relayout "${large[@]}" --to bhlsc -o out.h5 large.bin
	[ "$output" = "by signal" ]
	only large.bin
}

@test "an interrupted run leaves the old file" {
	truncate -s 768M large.bin
	echo mine >out.npy
	run -0 interrupt SIGINT "$KVTOOL" relayout -f "${large[@]}" --to bhlsc -o out.npy large.bin
	[ "$output" = "by signal" ]
	[ "$(cat out.npy)" = mine ]
	only large.bin out.npy
}

# K and V first is what two planes are in one array
@test "an array of another shape is no array of two planes" {
	/usr/bin/python3 -c '
import numpy as np
x = np.zeros((3, 2, 5, 16, 4, 8), np.float16)
np.save("layers-first.npy", x)
np.save("planes-first.npy", x.transpose(1, 0, 2, 3, 4, 5).copy())'
	local said=(--layers=3 --block-size=16 --heads=4 --head-dim=8 --layout=sglang-pool)
	run -3 --separate-stderr kvtool describe "${said[@]}" layers-first.npy
	one_sentence
	[[ $stderr == *": shape is 3 x 2 x 5 x 16 x 4 x 8, but layout K:LBSHD V:LBSHD has 2 x 3 x 5 x 16 x 4 x 8" ]]
	run -0 kvtool describe "${said[@]}" planes-first.npy
	[[ $output == *"K:LBSHD V:LBSHD"* ]]
}
