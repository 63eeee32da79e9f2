#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# exec.bats - kvtool transfer-sim exec: options and refusals
# (every byte of many transfers: tests/oracle_exec.py)

load common
load dumps

bs32=$kv/s260k/paged_bs32/packed_nhd.bf16.npy
sd=$kv/mamba2g4/tp1_SD/rank0.npy

exec_() { kvtool transfer-sim exec --no-sync -q "$@"; }

# refused STATUS TEXT MODE ARG...: nothing is printed or left, the sentence has TEXT
refused() {
	tells "$1" "$2" transfer-sim "${@:3}"
	only
}

@test "transfer-sim exec reads ranges and writes whole files" {
	kvtool relayout -q --to=blshc -o ranges.h5 "$nhd"
	exec_ --mem-limit=8M --threads=3 --dst=ids=random:4,block-size=24,layout=cpu-vec \
		-o new.h5 ranges.h5
	same_digest "$nhd" new.h5
	kvtool fsck -q new.h5
	# in ranges of its own, whatever the number of threads, or as one array
	for n in 1 3; do
		exec_ --threads=$n --dst=tp=2,ids=random:4 -o "t$n.%r.h5" ranges.h5
	done
	cmp t1.0.h5 t3.0.h5
	cmp t1.1.h5 t3.1.h5
	h5dump -pH -d /groups/g0/data t1.0.h5 | grep -q CHUNKED
	exec_ --uncompressed --dst=ids=random:4 -o one.h5 ranges.h5
	h5dump -pH -d /groups/g0/data one.h5 | grep -q CONTIGUOUS
	rm one.h5
	# a destination in ranges, of which some stay
	exec_ --request=C -o one.h5 "$bs32" ranges.h5
	same_digest ranges.h5 one.h5
}

@test "transfer-sim exec begins and ends inside the tiles of snapshots" {
	# 16 MiB, so that tiles hold some of the blocks, and boxes others
	truncate -s 16M zeros.bin
	local told=(--layout=nhd --dtype=bfloat16 --layers=4 --heads=8 --head-dim=128)
	cat >zeros.json <<-'JSON'
	{"block_table": {"A": [9, 3, 44, 45, 46, 47, 12, 60],
	 "B": [20, 21, 22, 23, 24, 25, 26]}, "num_tokens": {"A": 123, "B": 105}}
	JSON
	kvtool convert -q --tokens-per-block=16 "${told[@]}" zeros.bin src.h5
	kvtool relayout -q --to=bhlsc --tile=100k -o dst.h5 src.h5
	kvtool mutate -q --fault=flip-bits -o noise.h5 src.h5
	local limit from to
	for from in src noise dst; do
		for to in src dst; do
			for limit in 12M 64M; do
				exec_ -f --mem-limit=$limit -o out.h5 $from.h5 $to.h5
			done
		done
	done
	exec_ -f --request=B -o out.h5 noise.h5 dst.h5
}

@test "transfer-sim exec reads ranges that its boxes cut" {
	head -c 4M /dev/urandom >raw.bin
	cat >raw.json <<-END
		{"file": "raw.bin", "layout": "nhd", "dtype": "bfloat16",
		 "sizes": {"layers": 2, "num_blocks": 64, "block_size": 16,
		           "num_kv_heads": 4, "head_dim": 128},
		 "block_table": {"A": [$(seq -s, 0 63)]}, "num_tokens": {"A": 1024}}
	END
	kvtool convert -q --no-sync raw.bin ranges.h5
	for tile in 4k 64k; do
		exec_ --mem-limit=8M --dst=layout=hnd,tp=2,block-size=32,ids=random:1 \
			-o 'rank%r.h5' ranges.h5
		kvtool merge -q --no-sync -o new.h5 rank0.h5 rank1.h5
		same_digest raw.bin new.h5
		# into one that has ranges of another size than what is written
		kvtool relayout -q --no-sync --tile=$tile --to=bhlsc -o old.h5 raw.bin
		exec_ -f --mem-limit=8M -o new.h5 ranges.h5 old.h5
		same_digest raw.bin new.h5
		rm rank?.h5 new.h5 old.h5
	done
}

@test "transfer-sim exec moves one request, a prefix less, or whole blocks" {
	exec_ --dst=ids=reverse -o all.npy "$nhd"
	exec_ --json --request=C -o c.npy "$nhd" all.npy >report
	jq -e '.digest == null and .groups[0].slots == 80' report
	exec_ --json --cached=64 -o rest.npy "$nhd" all.npy >report
	jq -e '.digest == null and .groups[0].slots == 689 - 3 * 64' report
	exec_ --json --partial=whole --request=A -o whole.npy "$nhd" all.npy >report
	jq -e '.groups[0].slots == 432' report
}

@test "transfer-sim exec puts conv states by channel or by tap, as it is told" {
	local from to
	for from in DS SD; do
		for to in ds sd; do
			exec_ -f --all-states --mamba-groups=4 --dst=tp=1 --conv=$to -o new.h5 \
				"$kv/mamba2g4/tp1_$from/rank0.npy"
			same_digest "$sd" new.h5
			[ "$(kvtool describe --json new.h5 | jq -r '.groups[0] | .id, .layout' |
				xargs)" = "conv LB${to^^}" ]
		done
	done
	# without a word as in the source
	exec_ -f --all-states --mamba-groups=4 --dst=tp=1 -o new.h5 "$sd"
	[ "$(kvtool describe --json new.h5 | jq -r '.groups[0].layout')" = LBSD ]
}

@test "transfer-sim exec moves what a cut request still has" {
	kvtool slice -q --request=A --tokens=37:300 -o cut.h5 "$nhd"
	exec_ --json --dst=block-size=24,ids=scatter --fill=90 -o moved.h5 cut.h5 >report
	jq -e '.groups[0].slots == 263 and .digest != null' report
	same_digest cut.h5 moved.h5
	refused_slots=$(kvtool describe --json moved.h5 | jq '.groups[0].block_size')
	[ "$refused_slots" = 24 ]
}

@test "transfer-sim exec gives blocks of a new pool no names of the source's" {
	head -c 384 /dev/urandom >named.bin
	cat >named.bin.json <<-'END'
		{"layout": "nhd", "dtype": "bf16", "block_names": ["a", "b", "c"],
		 "sizes": {"layers": 1, "num_blocks": 3, "block_size": 4,
		           "num_kv_heads": 2, "head_dim": 4},
		 "block_table": {"A": [2, 0]}, "num_tokens": {"A": 8}}
	END
	for pool in 2 3 64; do
		exec_ -f --dst=pool=$pool -o new.h5 named.bin
		same_digest named.bin new.h5
		kvtool describe --json --block-tables new.h5 >report
		jq -e '.groups[0] | .blocks == '$pool' and .block_names == null' report
	done
}

@test "transfer-sim exec --dry-run writes nothing" {
	run -0 --separate-stderr kvtool transfer-sim exec -n -o new.h5 --dst=tp=1 "$nhd"
	[[ $output == *"nothing was written"* ]]
	only
}

@test "transfer-sim exec finds a corrupted op" {
	run -1 --separate-stderr kvtool transfer-sim exec --no-sync --corrupt-op=0 \
		--dst=tp=2,layout=hnd -o 'r%r.h5' "$nhd"
	said 'request' 'layer 0' 'head' 'expected 0x'
	run -1 --separate-stderr kvtool transfer-sim exec --no-sync --corrupt-op=5 \
		--mamba-groups=4 -o 'm%r.npy' "$sd" "$kv"/mamba2g4/tp2_SD/*.npy
	said 'conv' 'tap' 'channel'
	only		# what is wrong gets no name
	refused 3 'there are' exec --corrupt-op=999999 --dst=tp=1 -o new.h5 "$nhd"
}

@test "transfer-sim exec finds slots that did not arrive" {
	KVTOOL=${KVT_BUILD:-$root/build}/tests/kvtool_lossy
	for to in tp=1 tp=2,layout=hnd block-size=24,ids=random:1; do
		refused 1 'request' exec --dst=$to -o 'new%r.h5' "$nhd"
		said 'rank 0' 'token' 'block' 'layer' ' is 0x0000, expected 0x'
	done
}

@test "transfer-sim exec leaves nothing behind when it cannot" {
	refused 3 'expected all of them' exec -o new.h5 "$rank1" --dst=tp=1
	refused 2 'expected %r' exec -o new.h5 --dst=tp=2 "$nhd"
	refused 2 'expected -o' exec "$nhd" "$hnd"
	refused 2 'or --dst' exec -o new.h5 "$nhd"
	refused 2 'one already' exec -o new.h5 --dst=tp=2 "$nhd" "$hnd"
	refused 2 'expected a byte' exec -o new.h5 --fill=256 --dst=tp=1 "$nhd"
	refused 3 'float16' exec -o new.h5 "$nhd" "$kv/s260k/paged_bs16/packed_nhd.fp16.npy"
	refused 3 "no group" exec -o new.h5 "$nhd" "$sd"
	refused 3 'neither number divides' exec -o 'new%r.h5' --dst=tp=3 "$nhd"
	rank0=$kv/s260k/tp2/rank0.packed_nhd.bf16.safetensors
	kvtool relayout -q --to=hnd -o ../hnd1.safetensors "$rank1"
	refused 3 'rank 1 is' exec -o new.h5 --dst=tp=1 "$rank0" ../hnd1.safetensors
	refused 3 'outside the pool' exec -o new.h5 --dst=pool=45,ids=scatter "$nhd"
	refused 4 'cannot be' exec -o new.h5 --dst=layout=aiter-shuffle,block-size=3 "$nhd"
	refused 4 'more than --mem-limit' exec -o new.h5 --mem-limit=1k --dst=tp=1 "$nhd"
	refused 5 'nowhere' exec -o new.h5 nowhere "$nhd"
	# of several outputs all or none
	touch r1.h5
	tells 5 '' transfer-sim exec -o 'r%r.h5' --dst=tp=2 "$nhd"
	only r1.h5
}

# sides STATUS TEXT ARG...: exec and wire end with one sentence, and leave nothing
sides() {
	local expected=$1
	shift
	for mode in exec wire; do
		run "-$expected" --separate-stderr kvtool transfer-sim $mode -o 'new%r.npy' "${@:2}"
		[ -z "$output" ]
		one_sentence
		said "$1"
		only
	done
}

@test "transfer-sim exec and wire refuse a new side that cannot be" {
	for tp in 0 -1 1.5 9223372036854775808; do
		sides 2 'expected a whole number' --dst=tp=$tp "$nhd"
	done
	sides 3 'at most 4096' --dst=tp=99999999 "$nhd"
	sides 3 'neither number divides' --dst=tp=3 "$nhd"
	sides 2 'expected a whole number' --dst=block-size=-16 "$nhd"
	sides 3 'cannot hold' --dst=block-size=99999999999 "$nhd"
	sides 2 'expected a whole number' --dst=pool=-1 "$nhd"
	sides 3 'expected at most' --dst=pool=999999999999 "$nhd"
	sides 3 'has 44 blocks, the pool 43' --dst=pool=43 "$nhd"
	sides 3 'is not a block id' --dst=ids=list:-1 "$nhd"
	sides 3 'there are 2 block ids' --dst=ids=list:1:2 "$nhd"
	sides 3 'is listed twice' --dst="ids=list:$(seq -s: 0 42):7" "$nhd"
	sides 3 'outside the pool of 44' --dst="pool=44,ids=list:$(seq -s: 1 44)" "$nhd"
	sides 3 'outside any pool' --dst="ids=list:$(seq -s: 0 42):4294967295" "$nhd"
	sides 3 "request 'Z'" --dst=tp=1 --request=Z "$nhd"
}

@test "transfer-sim exec and wire move no layer into another's place" {
	kvtool slice -q --layers=0:2 -o ../low.h5 "$nhd"
	kvtool slice -q --layers=1:3 -o ../high.h5 "$nhd"
	sides 3 'the source has layer 0 where the destination has layer 1' \
		../low.h5 ../high.h5
	sides 3 'the source has layer 1 where the destination has layer 0' \
		../high.h5 ../low.h5
}

# table NAME=VALUE...: ../m.npy is $nhd with these in the manifest
table() {
	cp "$nhd" ../m.npy
	/usr/bin/python3 - "${nhd%.npy}.json" "$@" >../m.json <<-'END'
		import json, sys
		m = json.load(open(sys.argv[1]))
		m["file"] = "m.npy"
		for change in sys.argv[2:]:
		    exec(f"m{change}")
		print(json.dumps(m))
	END
}

@test "transfer-sim exec and wire refuse tables and sides that contradict" {
	local A="['block_table']['A']" swapped
	for swapped in '' yes; do
		local both=("$bs32" ../m.npy)
		[ -z "$swapped" ] || both=(../m.npy "$bs32")
		table "$A[3] = 48"
		sides 3 'block table entry 3 is position 48' "${both[@]}"
		table "$A[3] = m$A[2]"
		sides 3 'is listed twice' "${both[@]}"
		table "$A[3] = -1"
		sides 3 'A is -1' "${both[@]}"
		table "$A[3] = 2**40"
		sides 3 'expected 0 to 4294967295' "${both[@]}"
		table "$A[26:] = []"
		sides 3 '421 tokens do not fit' "${both[@]}"
		table "['num_tokens']['A'] = 2**50"
		sides 3 'do not fit 27 blocks' "${both[@]}"
		table "['num_tokens']['A'] = -5"
		sides 3 'A is -5' "${both[@]}"
		table "['num_tokens']['A'] = 420"
		sides 3 'tokens in the source and' "${both[@]}"
		table ".pop('block_table')" ".pop('num_tokens')"
		sides 3 'no request in common' "${both[@]}"
		table "['sizes']['num_blocks'] = 10**12"
		sides 3 'for the block extent' "${both[@]}"
	done
	sides 3 'the source holds full_attention' "$nhd" "$mla"
	sides 3 'is one of 1 rank, expected so many dumps of its side, got 2' "$nhd" "$hnd" "$hnd"
	sides 3 'none of the files is rank 1' "$nhd" "$kv"/s260k/tp2/rank0*.safetensors
}
