#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# leftovers.bats - what failed leaves nothing, what was killed is named by the next run

load common
load dumps

shim() {
	! nm -D "$KVTOOL" | grep -q __asan_init || skip "a shim cannot be loaded"
	cp "${KVT_BUILD:-$root/build}/fault_shim.so" shim.so
}

# fails CALL NTH EFFECT PATH COMMAND...: with one call that fails; its status is in $status
fails() {
	run --separate-stderr env FAULT_CALL="$1" FAULT_NTH="$2" FAULT_EFFECT="$3" \
		${4:+FAULT_PATH="$4"} LD_PRELOAD=./shim.so "$KVTOOL" "${@:5}"
}

@test "a shard that cannot write job.json leaves no folder" {
	shim
	local call effect n failed=0
	while read -r call effect n; do
		fails "$call" "$n" "$effect" job.json digest --shard=0/1 --shard-dir=new "$nhd"
		if [ "$status" = 0 ]; then
			rm -r new
			continue
		fi
		[ "$status" = 5 ] && [ ! -e new ] || { echo "$call $n $effect"; ls new; return 1; }
		failed=$((failed + 1))
	done < <(for n in 1 2 3; do
		printf '%s\n' "open EMFILE $n" "write ENOSPC $n" "write EIO $n" "write eof $n" \
			"fsync EIO $n" "close EIO $n" "mkdir ENOSPC $n" "rename EIO $n" \
			"rename ENOSPC $n" "rename EXDEV $n" "stat EIO $n"
	done)
	[ "$failed" -gt 7 ] || { echo "$failed failed"; return 1; }
	# one that is there already, with or without results, stays
	mkdir new
	fails write 1 ENOSPC job.json digest --shard=0/1 --shard-dir=new "$nhd"
	[ "$status" = 5 ]
	[ -d new ]
}

# libhdf5 1.10 calls exit() where it has no memory for an id
@test "where HDF5 ends the process no temporary folder stays" {
	shim
	local n ended=0
	kvtool convert -q "$nhd" in.h5
	for ((n = 40; n < 6000; n += 149)); do
		for to in out.h5 out; do
			fails malloc $n ENOMEM "" convert -f \
				--format=$([ $to = out ] && echo vllm-2026-07 || echo hdf5) in.h5 $to
			[[ $stderr != *"out of memory in HDF5"* ]] || ended=$((ended + 1))
			# a signal out of libhdf5 may leave one
			[ "$status" -gt 5 ] || [ -z "$(find . -name '*.tmp-*')" ] ||
				{ echo "$n: $status: $stderr"; ls; return 1; }
			rm -rf out out.h5 ./*.tmp-*
		done
	done
	[ "$ended" -gt 3 ]
}

# in a container the next run often has the same number
@test "a folder of a run with the same number is named" {
	run -0 --separate-stderr bash -c 'mkdir "out.h5.tmp-$$" && exec "$0" convert -q "$1" out.h5' \
		"$KVTOOL" "$nhd"
	one_sentence
	[[ $stderr == *"out.h5.tmp-"*": temporary folder of a kvtool that was killed"* ]]
}

@test "what was left for standard output, a part and a benchmark is named" {
	named() {
		[[ $stderr == *"$1: temporary folder of a kvtool that was killed"* ]]
	}
	mkdir -p "tmp/kvtool-stdout-$(id -u).tmp-4194305" tmp/kvtool-bench.tmp-4194305 \
		parts/part-0-000000.h5.tmp-4194305
	TMPDIR=tmp run -0 --separate-stderr bash -c '"$0" convert --format=npy "$1" - >out.npy' \
		"$KVTOOL" "$nhd"
	named "tmp/kvtool-stdout-$(id -u).tmp-4194305"
	cmp out.npy "$nhd"
	run -0 --separate-stderr kvtool bench --files=tmp --size=1M --rounds=1
	named tmp/kvtool-bench.tmp-4194305
	[ "$(ls tmp)" = "kvtool-bench.tmp-4194305
kvtool-stdout-$(id -u).tmp-4194305" ]
	run -0 --separate-stderr kvtool convert --shard=0/1 --shard-dir=parts "$nhd" out.h5
	named parts/part-0-000000.h5.tmp-4194305
}
