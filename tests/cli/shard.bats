#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# shard.bats - which share a process takes, from the command line and from schedulers
# (that shards together are the command: tests/oracle_shards.py)

load common
load dumps

# auto VARIABLE=VALUE...: a digest in that environment
auto() {
	run --separate-stderr env "$@" "$KVTOOL" digest --shard=auto --shard-dir=d "$nhd" "$hnd"
}

@test "a share is I/N, from 0" {
	for bad in 1 2/2 -1/2 a/b 1/ /2 1/2/3 ''; do
		tells 2 'expected I/N' digest "--shard=$bad" --shard-dir=d "$nhd"
	done
	tells 2 '--shard-dir=DIR' digest --shard=0/1 "$nhd"
	tells 2 '--shard=I/N' digest --shard-dir=d "$nhd"
	tells 2 '--shard' describe --shard=0/1 "$nhd"
	tells 2 'option of check' expect write --shard=0/1 --shard-dir=d "$nhd"
	run -2 --separate-stderr kvtool digest --shard=0/1 --shard-dir=d - <"$nhd"
	[[ $stderr == *"files, which all of them can read"* ]]
	[ ! -e d ]
}

@test "more words than a shard can have are refused, and not done by all" {
	: >empty
	mapfile -t many < <(yes empty | head -n 5000)
	tells 4 'a command in shards has 4096 at most' digest --shard=0/2 --shard-dir=d "${many[@]}"
	[ ! -e d ]
	# without shards there is no such limit
	run -3 --separate-stderr kvtool digest "${many[@]}"
	[ "$(wc -l <<<"$stderr")" = 5000 ]
}

@test "Slurm arrays say it, whatever number they begin with" {
	auto SLURM_ARRAY_TASK_ID=6 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_STEP=2 \
		SLURM_ARRAY_TASK_COUNT=2
	[ "$status" = 0 ]
	[[ $output == "d: shard 1/2: 1 of 2 units, 1 done now, 0 before" ]]
	auto SLURM_ARRAY_TASK_ID=4 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_COUNT=2
	[[ $output == "d: shard 0/2: "* ]]
	for wrong in "ID=5 MIN=4 STEP=2 COUNT=2" "ID=8 MIN=4 STEP=1 COUNT=2" \
		"ID=3 MIN=4 COUNT=2" "ID=x MIN=0 COUNT=2" "ID=0 MIN=0" "ID=0 COUNT=2"; do
		# shellcheck disable=SC2046,SC2086 # words
		auto $(printf 'SLURM_ARRAY_TASK_%s ' $wrong)
		[ "$status" = 2 ]
		one_sentence
		[ -z "$output" ]
	done
}

@test "Kubernetes' indexed jobs, if the job says of how many" {
	auto JOB_COMPLETION_INDEX=1 JOB_COMPLETIONS=2
	[[ $output == "d: shard 1/2: "* ]]
	auto JOB_COMPLETION_INDEX=1
	[ "$status" = 2 ]
	[[ $stderr == *"JOB_COMPLETIONS is not set; set it in the job's env"* ]]
}

@test "Open MPI, and no two at once" {
	auto OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3
	[[ $output == "d: shard 0/3: "* ]]
	auto OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 JOB_COMPLETION_INDEX=0 \
		JOB_COMPLETIONS=3
	[ "$status" = 2 ]
	[[ $stderr == *"both JOB_COMPLETION_INDEX and OMPI_COMM_WORLD_RANK"* ]]
	auto NOTHING=1
	[ "$status" = 2 ]
	[[ $stderr == *"none of SLURM_ARRAY_TASK_ID"* ]]
}

@test "a name that JSON cannot have is refused before anything is done" {
	cp "$nhd" $'a\xff.npy'
	tells 3 'a word of the command is not UTF-8' digest --layout=nhd --dtype=bf16 \
		--shard=0/1 --shard-dir=d "$nhd" $'a\xff.npy'
	[ ! -e d/job.json ]
}

@test "a shard as JSON" {
	kvtool digest --json --shard=1/2 --shard-dir=d "$nhd" "$hnd" >json
	[ "$(json 'o["shard"], o["shards"], o["units"], o["done_units"]' <json)" = '(1, 2, 2, 1)' ]
	kvtool digest --json --shard=1/2 --shard-dir=d "$nhd" "$hnd" >json
	[ "$(json 'o["own_units"], o["done_units"], o["skipped_units"]' <json)" = '(1, 0, 1)' ]
}

@test "its letters may stand together" {
	run -0 kvtool convert -fq --shard=0/1 --shard-dir=d "$nhd" out.h5
	[ -z "$output" ]
	run -0 kvtool convert -fjo json.h5 --shard=0/1 --shard-dir=e "$nhd"
	[ "$(json 'o["own_units"]' <<<"$output")" = 1 ]
	shows 0 '^f: shard 0/1: ' convert -oqj.h5 --shard=0/1 --shard-dir=f "$nhd"
}

@test "what is not written by all is not written at all" {
	tells 2 '--dry-run and --shard' convert --dry-run --shard=0/1 --shard-dir=d "$nhd" out.h5
	kvtool convert -q --shard=0/1 --shard-dir=e "$nhd" out.npy
	tells 2 '--one-file' reduce e
	[ ! -e out.npy ]
	kvtool reduce --one-file e
	same_digest out.npy "$nhd"
}

@test "virtual datasets are read, but not of files elsewhere" {
	kvtool convert -q --shard=0/1 --shard-dir=d "$nhd" out.h5
	kvtool reduce d
	same_digest out.h5 "$nhd"
	run -0 kvtool describe out.h5
	# with as many descriptors as there may be, not as there are
	run -0 bash -c 'for i in {3..20}; do eval "exec $i>&-"; done
		ulimit -Sn 6 && exec "$0" describe out.h5' "$KVTOOL"
	mkdir below
	kvtool convert -q --shard=0/1 --shard-dir=e "$nhd" below/out.h5
	kvtool reduce e
	tells 4 "which is not in its file's folder|kvtool reduce --one-file" describe below/out.h5
}

# Lustre says the size of a stripe there, NFS what goes over the wire at once
@test "writes are as large as the file system likes them, and begin where its units do" {
	shim=${KVT_BUILD:-$root/build}/fault_shim.so
	! nm -D "$KVTOOL" | grep -q __asan_init || skip "a shim cannot be loaded"
	cp "$shim" shim.so
	head -c $((8 << 20)) /dev/urandom >big.bin
	big=(--layout=nhd --dtype=bfloat16 --layers=4 --blocks=64 --block-size=16 --heads=8
		--head-dim=64 big.bin)
	writes() {
		FAULT_REPORT=report FAULT_BLKSIZE=$1 LD_PRELOAD=./shim.so kvtool relayout -q -f \
			--verify --to=hnd -o "$2" "${big[@]}"
		cmp "$2" "$3"
		read -r _ n < <(grep ^pwrite\  report)
		read -r _ crossed < <(grep ^crossed report)
	}
	for format in npy bin safetensors; do
		kvtool relayout -q --to=hnd -o "plain.$format" "${big[@]}"
		writes 4096 "out.$format" "plain.$format"
		few=$n
		[ "$crossed" -gt 0 ]
		writes $((1 << 20)) "out.$format" "plain.$format"
		[ "$crossed" = 0 ]
		[ "$n" -lt "$few" ]
	done
}

# NFS and Lustre have no exchange of names and maybe no locks; others no second names
@test "on a file system without links, locks, maps of files and O_TMPFILE" {
	shim=${KVT_BUILD:-$root/build}/fault_shim.so
	# sanitizers want to be loaded first
	! nm -D "$KVTOOL" | grep -q __asan_init || skip "a shim cannot be loaded"
	cp "$shim" shim.so
	lacking() {
		FAULT_LACKS=link,renameat2,flock,filelock,filemap,tmpfile \
			LD_PRELOAD=./shim.so kvtool "$@"
	}
	kvtool convert -q "$nhd" plain.h5
	for i in 0 1; do
		lacking convert -q --verify --shard=$i/2 --shard-dir=d "$nhd" out.h5
		lacking digest -q --shard=$i/2 --shard-dir=e "$nhd" plain.h5
	done
	lacking reduce --one-file d
	cmp out.h5 plain.h5
	lacking convert -q --force plain.h5 out.npy
	lacking convert -q --force plain.h5 out.npy
	lacking reduce e >digests
	kvtool digest "$nhd" plain.h5 | cmp - digests
	# the shim does refuse them
	FAULT_LACKS=flock,filemap LD_PRELOAD=./shim.so /usr/bin/python3 - <<-'END'
		import fcntl, mmap
		f = open("plain.h5", "rb")
		for call in (lambda: fcntl.flock(f, fcntl.LOCK_SH),
		             lambda: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)):
		    try:
		        call()
		    except OSError:
		        continue
		    raise SystemExit("it is not refused")
	END
}

@test "a share judges no clause: what it says is what went wrong" {
	kvtool expect write --digest -o c.kvc "$nhd"
	: >empty.npy
	for i in 0 1; do
		run -3 --separate-stderr kvtool expect check --shard=$i/2 --shard-dir=d c.kvc \
			"$nhd" "$nhd" empty.npy
		one_sentence
		[ -z "$output" ]
		[[ $stderr == *"empty.npy: "* ]]
	done
}

@test "a job.json with other words is found, and made again when it is gone" {
	mine=(digest --shard=0/1 --shard-dir=d "$nhd" "$hnd")
	kvtool "${mine[@]}"
	kvtool reduce d >good
	cp d/job.json job
	for change in 's/"digest"/"difest"/' "s,$nhd,$hnd," "s,$nhd,-Q," "s,$nhd,--scope=x," \
		's/{/[/'; do
		sed "$change" job >d/job.json
		run -3 --separate-stderr kvtool "${mine[@]}"
		one_sentence
		[ -z "$output" ]
		[[ $stderr == *"d/job.json"*"remove it"* ]]
		run -3 --separate-stderr kvtool reduce d
		one_sentence
		[ -z "$output" ]
	done
	rm d/job.json
	run -0 kvtool "${mine[@]}"
	[[ $output == *"0 done now, 2 before" ]]
	kvtool reduce d | cmp - good
}

# also when results are there already: a scheduler tells this from a failure
@test "a signal ends a shard as it ends the command" {
	! nm -D "$KVTOOL" | grep -q __asan_init || skip "a shim cannot be loaded"
	cp "${KVT_BUILD:-$root/build}/fault_shim.so" shim.so
	for at in packed_hnd.bf16.npy:3 000001.unit:1; do
		run -143 --separate-stderr env FAULT_CALL=open FAULT_EFFECT=TERM \
			FAULT_PATH=${at%:*} FAULT_NTH=${at#*:} LD_PRELOAD=./shim.so \
			"$KVTOOL" digest --shard=0/1 --shard-dir=d "$nhd" "$hnd"
		[ -z "$output$stderr" ]
		[ -e d/000000.unit ]
		[ ! -e d/000001.unit ]
	done
}
