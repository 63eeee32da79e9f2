#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of run
# mpi.bats - kvtool-mpi says what kvtool says, with any number of ranks
#
# Only with make MPI=1.  The plain program is the oracle.  Each mpirun takes a second to
# start, so there are few of them.

bats_require_minimum_version 1.5.0
root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
KVTOOL=${KVTOOL:-$root/build/kvtool}
MPITOOL=$(dirname "$KVTOOL")/kvtool-mpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return 1
	cp --no-preserve=mode "$root"/testdata/kv/s260k/tp4/*.safetensors .
	# 128 MiB of zeros are two units; one element of the other is something else
	truncate -s 128M a.bin b.bin
	printf 'x' | dd of=b.bin bs=1 seek=100000000 conv=notrunc 2>/dev/null
	for f in a b; do
		printf '{"file": "%s.bin", "layout": "nhd", "dtype": "bfloat16", "sizes": {%s}}' \
			$f '"layers": 4, "num_blocks": 1024, "block_size": 16, "num_kv_heads": 4, "head_dim": 128' >$f.json
	done
}

setup() {
	cd "$BATS_FILE_TMPDIR" || return 1
}

mpi() {
	local n=$1
	shift
	mpirun -n "$n" "$MPITOOL" "$@"
}

# same N ARG...: output and status; mpirun says more on standard error
same() {
	local n=$1 plain=0 status=0
	shift
	"$KVTOOL" "$@" >plain.out 2>plain.err || plain=$?
	mpi "$n" "$@" >mpi.out 2>mpi.err || status=$?
	cmp plain.out mpi.out
	[ "$status" = "$plain" ]
	# every sentence of the plain one is there
	while read -r line; do grep -qxF "$line" mpi.err; done <plain.err
}

@test "digests of many files, by 1, 2 and 4 ranks" {
	for n in 1 2 4; do
		same $n digest --json --by=request ./*.safetensors a.bin
	done
}

@test "a difference, and the status that says it" {
	same 3 diff --json a.bin b.bin
	same 2 diff a.bin a.bin
}

@test "findings, contracts, sweeps" {
	same 2 fsck --json rank*.safetensors b.bin
	"$KVTOOL" expect write --digest -q -f -o c.kvc a.bin
	same 2 expect check --json c.kvc a.bin b.bin
	same 2 transfer-sim sweep --csv -m llama-3.1-8b --tps=2:4
}

@test "what is not there is said once" {
	run -5 mpi 2 digest nothing.bin a.bin
	[ "$(grep -c nothing.bin <<<"$output")" = 1 ]
	[[ $output == *"rank 0: nothing.bin: cannot open"* ]]
}

@test "a snapshot in parts, which another run takes over" {
	"$KVTOOL" convert -q a.bin plain.h5
	mpi 2 convert --shard-dir=d a.bin out.h5
	rm out.h5
	run -3 mpi 2 convert --shard-dir=d a.bin out.h5
	[[ $output == *"--resume goes on"* ]]
	rm d/000001.unit
	mpi 2 convert --shard-dir=d --resume --one-file a.bin out.h5 2>err
	grep -q '1 of 2 units were done before' err
	cmp out.h5 plain.h5
}

@test "its units are those of --shard, and kvtool reduce joins them" {
	mpi 2 digest --shard-dir=units a.bin b.bin >mpi.out
	"$KVTOOL" reduce units | cmp - mpi.out
	run -0 "$KVTOOL" digest --shard=0/1 --shard-dir=units a.bin b.bin
	[[ $output == *"0 done now, 4 before"* ]]
}

# Those with their names; a temporary folder may hold another.
units_in() { find "$1" -maxdepth 1 -type f -name '*.unit' 2>/dev/null | wc -l; }

@test "a rank that is killed ends all, and the next run does the rest" {
	"$KVTOOL" digest a.bin b.bin >plain.out
	for wanted in 1 2; do
		rm -rf killed
		mpirun -n 2 "$MPITOOL" digest --threads=1 --shard-dir=killed a.bin b.bin \
			>/dev/null 2>killed.err 3>&- &
		pid=$!
		until [ "$(units_in killed)" -ge $wanted ]; do
			kill -0 $pid 2>/dev/null || break
		done
		rank=$(pgrep -P $pid -f kvtool-mpi | tail -n 1)
		[ -z "$rank" ] || kill -9 "$rank" || true
		wait $pid || true
		run grep 'rank [0-9]*: *$' killed.err
		[ "$status" = 1 ]
		before=$(units_in killed)
		mpi 2 digest --threads=1 --shard-dir=killed --resume a.bin b.bin >mpi.out 2>err
		cmp mpi.out plain.out
		grep -q "$before of 4 units were done before" err
	done
}
