#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# verify.bats - what verifies finds a bit that is wrong, and says where it is
# (tests/fault_shim.c makes one wrong, or puts another file in the place of one)

load common
load dumps

shim=${KVT_BUILD:-$root/build}/fault_shim.so
gqa=$kv/gqa64/paged_bs16/packed_nhd.bf16.npy
sd=$kv/mamba2g4/tp1_SD/rank0.npy
bs32=$kv/s260k/paged_bs32/packed_nhd.bf16.npy
fp16=$kv/s260k/paged_bs16/packed_nhd.fp16.npy
rank0=$kv/s260k/tp2/rank0.packed_nhd.bf16.safetensors

# with_shim ARG...: kvtool with the shim before it
with_shim() {
	# the loader takes a blank in a name for its end
	[ -e shim.so ] || cp "$shim" shim.so || { echo "no $shim: make it"; return 99; }
	LD_PRELOAD=./shim.so kvtool "$@"
}

no_sanitizer() {
	[[ ${KVT_CFLAGS:-} != *-fsanitize* ]] ||
		skip "a sanitizer lets no other library be loaded before it"
}

# calls CALL PART ARG...: how many such calls kvtool ARG... makes on a file that has
# PART in its path, or at its end (PART$)
calls() {
	FAULT_PATH=$2 FAULT_REPORT=$PWD/calls with_shim "${@:3}" >/dev/null || return
	sed -n "s/^$1 //p" calls
	rm calls
}

# flip NTH CALL PART ARG...: the same, with one bit of the NTH of them wrong
flip() {
	FAULT_CALL=$2 FAULT_NTH=$1 FAULT_EFFECT=flip FAULT_PATH=$3 with_shim "${@:4}"
}

# matches REGEX: standard error is one sentence with it, and nothing else was said
matches() {
	echo "expected '$1' in: $output $stderr"
	one_sentence
	[ -z "$output" ]
	[[ $stderr =~ $1 ]]
}

# finds_write PART REGEX ARG...: a wrong bit in any write ends with a status that
# says so, and one in the last is a difference
finds_write() {
	local n
	n=$(calls pwrite "$1" "${@:3}")
	echo "$n writes: ${*:3}"
	[ "$n" -ge 2 ]
	for nth in $(seq "$n"); do
		run --separate-stderr flip "$nth" pwrite "$1" "${@:3}"
		[[ $status == [13] ]] || { echo "write $nth: status $status"; return 1; }
		matches ''
	done
	[ "$status" = 1 ]
	matches "$2"
}

# finds_read PART REGEX ARG...: so is one in the last that is read of it again
finds_read() {
	local n
	n=$(calls pread "$1" "${@:3}")
	echo "$n reads: ${*:3}"
	[ "$n" -ge 2 ]
	run -1 --separate-stderr flip "$n" pread "$1" "${@:3}"
	matches "$2"
}

finds() {
	finds_write "$@"
	finds_read "$@"
}

# finds_other FILE REGEX ARG...: new.h5 is what FILE is once it is read again
finds_other() {
	rm -f new.h5
	FAULT_CALL=open FAULT_ON=1 FAULT_EFFECT=other FAULT_PATH='/new.h5$' FAULT_OTHER=$1 \
		run -1 --separate-stderr with_shim "${@:3}"
	matches "$2"
}

values='is 0x[0-9a-f]+, expected 0x[0-9a-f]+'
place='block [0-9]+ slot [0-9]+ layer [0-9] head [0-9] kv [01] dim [0-9]+'
element="g0: (request [ABC] token [0-9]+, )?$place $values"

@test "relayout, convert and import --verify find a wrong bit" {
	no_sanitizer
	finds '/new.npy$' "relayout: new.npy: $element" \
		relayout -f --no-sync --to=hnd --verify -o new.npy "$nhd"
	finds '/new.npy$' "$element" relayout -f --no-sync --to=rocm-paged --verify \
		-o new.npy "$nhd"
	kvtool convert -q "$mla" mla.h5
	finds '/new.npy$' "$element" convert -f --no-sync --verify mla.h5 new.npy
	finds '/new.safetensors$' "$element" convert -f --no-sync --verify "$nhd" \
		new.safetensors
	# a snapshot finds it by itself, even without tiles and hashes
	convert=(convert -f --no-sync --verify --uncompressed --no-digest "$nhd" new.h5)
	run -3 --separate-stderr flip "$(calls pread '/new.h5$' "${convert[@]}")" pread \
		'/new.h5$' "${convert[@]}"
	matches 'convert: new.h5: .*data is damaged between bytes [0-9]+ and [0-9]+'
	finds '/new.npy$' "$element" import -f --no-sync --to=hnd --verify -o new.npy "$nhd"
}

@test "--cache-dtype --verify finds a wrong bit of a code or a scale" {
	no_sanitizer
	for type in nvfp4-plain q4_0/plain; do
		finds '/new.npy$' "convert: new.npy: " convert -f --no-sync --verify \
			--cache-dtype=$type "$gqa" new.npy
	done
}

@test "slice and merge --verify find a wrong bit" {
	no_sanitizer
	finds '/new.npy$' "slice: new.npy: $element" slice -f --no-sync --request=A \
		--tokens=37:300 --verify -o new.npy "$nhd"
	# each input is held against the part of the output that it gave
	finds_write '/new.npy$' "merge: new.npy: $element" merge -f --no-sync --verify \
		-o new.npy "$rank0" "$rank1"
	run -1 --separate-stderr flip 2 pwrite '/new.npy$' merge -f --no-sync --verify \
		-o new.npy "$kv"/mamba2g4/tp2_SD/rank?.npy
	matches "merge: new.npy: conv: block . tap . layer . channel [0-9]+ $values"
}

@test "reblock and copy-blocks --verify find a wrong bit" {
	no_sanitizer
	finds '/new.npy$' "reblock: new.npy: g0: request [ABC] token [0-9]+, $place $values" \
		reblock -f --no-sync -b 24 --verify -o new.npy "$nhd"
	# all of a pool that was only regrouped, blocks of nobody and the null block too
	finds_read '/new.npy$' "reblock: new.npy: g0: block 0 slot 0 layer 2 head 0 kv 0 dim 0 $values" \
		reblock -f --no-sync -b 8 --verify -o new.npy "$gqa"
	finds_write '/new.npy$' "$element" reblock -f --no-sync -b 8 --verify -o new.npy "$gqa"
	finds '/new.npy$' "copy-blocks: new.npy: $element in .*npy" \
		copy-blocks -f --no-sync --request=A --verify -o new.npy "$hnd" "$nhd"
}

@test "transfer-sim exec finds a wrong bit in what it wrote, moved or not" {
	no_sanitizer
	exec=(transfer-sim exec -f --no-sync -o new.npy)
	finds_write '/new.npy$' "g0: rank 0: request C token [0-9]+, $place $values" \
		"${exec[@]}" --dst=ids=random:4 "$nhd"
	# what is hashed is what was compared
	finds_read '/new.npy$' "g0: rank 0: request [ABC] token [0-9]+, $place $values" \
		"${exec[@]}" --dst=ids=random:4 "$nhd"
	# request A of a pool that keeps what it has of others
	run -1 --separate-stderr flip 2 pwrite '/new.npy$' "${exec[@]}" --request=A "$nhd" "$hnd"
	matches "g0: rank 0: (request B token [0-9]+, )?$place $values as before"
	finds '/new.npy$' 'rank 0: request A token [0-9]' "${exec[@]}" --request=A "$nhd" "$hnd"
	# new memory is filled with one byte
	run -1 --separate-stderr flip 3 pwrite '/new.npy$' "${exec[@]}" --request=A \
		--fill=90 --dst=pool=200 "$nhd"
	matches 'expected 0x5a5a as before'
	run -1 --separate-stderr flip 2 pwrite '/new.npy$' "${exec[@]}" --mamba-groups=4 \
		--dst=ids=random:1 "$sd"
	matches 'conv: rank 0: block 0 tap 1 layer 0 channel [0-9]+ is 0x0010, expected 0x0000 as before'
}

# last_reads FILE COMMAND...: what kvtool COMMAND FILE says, on both streams, and its
# status, for a wrong bit in each of the last reads: those are of data and hashes
last_reads() {
	local last nth
	last=$(calls pread "$1" "${@:2}" "$1")
	for nth in $(seq $((last - 45)) "$last"); do
		run flip "$nth" pread "$1" "${@:2}" "$1"
		printf '%s\nstatus %d\n' "$output" "$status"
	done
}

@test "describe --verify and fsck find a wrong bit of what they read" {
	no_sanitizer
	kvtool convert -q "$nhd" tiles.h5
	kvtool convert -q --uncompressed "$nhd" flat.h5
	last_reads tiles.h5 describe --verify >said
	grep -q '40 tiles, 0 damaged; 1920 content cells, 1 differ' said
	grep -A1 'tiles.h5: g0: layer 2 block 24 head 0 keys: content cell differs' said |
		grep -qx 'status 1'
	grep -q '40 tiles, 1 damaged; 1872 content cells, 0 differ' said
	grep -A1 'tiles.h5: g0: layer 4 block 0 head 3 values: stored tile is damaged' said |
		grep -qx 'status 3'
	last_reads flat.h5 describe --verify >said
	grep -A1 'flat.h5: g0: layer 2 block 24 head 0 keys: content cell differs' said |
		grep -qx 'status 1'
	grep -qx 'status 3' said
	last_reads tiles.h5 fsck >said
	grep -q 'error: tile.damaged: group=g0,layer=4,block=0,head=3,kv=v' said
	last_reads flat.h5 fsck >said
	grep -q 'error: digest.cell: group=g0,layer=2,block=24,head=0,kv=k' said
	grep -q 'error: file.unreadable: group g0: content_digest is damaged' said
}

@test "--verify is of what was asked for, not of what the file says" {
	no_sanitizer
	kvtool convert -q "$bs32" bs32.h5
	kvtool convert -q "$sd" two.h5
	kvtool convert -q "$fp16" fp16.h5
	kvtool slice -q --layers=2:4 -o layers.h5 "$nhd"
	kvtool slice -q --heads=2:4 -o heads.h5 "$nhd"
	kvtool slice -q --request=A -o a.h5 "$nhd"

	relayout=(relayout --no-sync --to=hnd --verify -o new.h5 "$nhd")
	finds_other two.h5 'relayout: new.h5: 1 groups became 2' "${relayout[@]}"
	finds_other bs32.h5 'relayout: new.h5: g0: shapes differ' "${relayout[@]}"
	finds_other fp16.h5 'g0: dtype is float16, expected bfloat16' "${relayout[@]}"

	slice=(slice --no-sync --verify -o new.h5 "$nhd")
	finds_other two.h5 'slice: new.h5: 1 groups became 2' "${slice[@]}" --layers=0:2
	finds_other bs32.h5 'g0: shapes differ' "${slice[@]}" --layers=0:2
	finds_other layers.h5 'g0: layer is 2, expected 0' "${slice[@]}" --layers=0:2
	finds_other heads.h5 'g0: head is 2, expected 0' "${slice[@]}" --heads=0:2

	reblock=(reblock --no-sync -b 8 --verify -o new.h5 "$nhd")
	finds_other two.h5 'reblock: new.h5: 1 groups became 2' "${reblock[@]}"
	finds_other fp16.h5 'g0: shapes differ' "${reblock[@]}"
	finds_other a.h5 'request B: 188 tokens became 0' "${reblock[@]}"

	copy=(copy-blocks --no-sync --request=A --verify -o new.h5 "$hnd" "$nhd")
	finds_other two.h5 'copy-blocks: new.h5: 1 groups became 2' "${copy[@]}"
	finds_other bs32.h5 'g0: shapes differ' "${copy[@]}"
}

@test "transfer-sim exec is of what was asked for, not of what the files say" {
	no_sanitizer
	exec=(transfer-sim exec --no-sync -o new.h5 "$nhd" "$hnd")
	kvtool convert -q "$sd" two.h5
	kvtool convert -q "$bs32" bs32.h5
	kvtool convert -q "$nhd" less.npy
	sed -i 's/"A":/"Z":/g' less.json
	kvtool convert -q less.npy less.h5
	finds_other two.h5 'transfer-sim: rank 0: 1 groups became 2' "${exec[@]}"
	finds_other bs32.h5 'rank 0: g0: shapes differ' "${exec[@]}"
	finds_other less.h5 'rank 0: request A: 421 tokens from 0 became 0 from 0' "${exec[@]}"
}

# edits EXPR: wrong.h5 is right.h5 with another description, by a line of Python
edits() {
	rm -f wrong.*
	kvtool convert -q right.h5 wrong.npy
	python3 - "$1" <<-'END'
	import json, sys
	d = json.load(open("wrong.json"))
	table, tokens = d["block_table"], d["num_tokens"]
	exec(sys.argv[1])
	json.dump(d, open("wrong.json", "w"))
	END
	kvtool convert -q --trust-manifest wrong.npy wrong.h5
}

# planted COMMAND...: each fault in what the command wrote is found, and named
planted() {
	local fault=(flip-bits,count=1 swap-heads,a=0,b=1 "stale-block,block=$1,from=$2"
		wrong-layer,layer=1,from=0)
	shift 2
	rm -f new.h5
	kvtool -q "$@" >/dev/null 2>&1 || kvtool "$@" >/dev/null
	mv new.h5 right.h5
	for fault in "${fault[@]}"; do
		kvtool mutate -q -f --fault="$fault" -o wrong.h5 right.h5 >/dev/null
		echo "$fault"
		finds_other wrong.h5 "g0: (rank 0: )?(request [ABC] token [0-9]+, )?$place $values" "$@"
	done
	# one block of a request is another one's; a token is not there
	edits 'table["A"][1] = table["B"][-1]'
	finds_other wrong.h5 'request A: entry 1 of its table is block [0-9]+, expected [0-9]+|request A token' "$@"
	edits 'tokens["B"] -= 1'
	finds_other wrong.h5 'request B: [0-9]+ tokens (from 0 )?became [0-9]+' "$@"
}

@test "--verify names a flipped bit, a swapped head, a stale block, a wrong layer, a wrong table, a token too few" {
	no_sanitizer
	planted 13 14 relayout --no-sync --to=hnd --verify -o new.h5 "$nhd"
	planted 13 14 convert --no-sync --verify "$nhd" new.h5
	planted 13 14 import --no-sync --verify -o new.h5 "$nhd"
	planted 13 14 slice --no-sync --layers=0:3 --verify -o new.h5 "$nhd"
	planted 13 14 merge --no-sync --verify -o new.h5 "$rank0" "$rank1"
	planted 3 4 reblock --no-sync -b 24 --verify -o new.h5 "$nhd"
	planted 26 28 reblock --no-sync -b 8 --verify -o new.h5 "$nhd"
	planted 13 14 copy-blocks --no-sync --request=A --verify -o new.h5 "$hnd" "$nhd"
	planted 13 14 transfer-sim exec --no-sync --dst=ids=random:4 -o new.h5 "$nhd"
	planted 13 14 transfer-sim exec --no-sync --request=A -o new.h5 "$nhd" "$hnd"
}
