#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# bench.bats - kvtool bench: that it runs and checks; never how fast it is

load common

build=${KVT_BUILD:-$BATS_TEST_DIRNAME/../../build}

on_executor() {
	mkdir -p lib
	ln -sf "$(cd "$build" && pwd)/gpu_executor.so" lib/libcuda.so.1
	LD_LIBRARY_PATH=$PWD/lib "$build/tests/kvtool_standin" bench --device=cuda \
		--size=64k --rounds=1 "$@"
}

@test "all cases on the CPU" {
	kvtool bench --size=64k --rounds=2 --json >json
	[ "$(json 'o["device"], o["driver"], o["rounds"]' <json)" = "('cpu', None, 2)" ]
	[ "$(json 'len(o["cases"])' <json)" = 12 ]
	[ "$(json 'all(abs(c["of_copy"] * c["seconds"] - c["copy_seconds"]) < 1e-6
		for c in o["cases"])' <json)" = True ]
	# runs that follow from the layouts alone
	[ "$(json '[c["run_bytes"] for c in o["cases"]]' <json)" = \
		"[512, 512, 256, 65536, 512, 8192, 2, 64, 73728, 4, 8192, 1024]" ]
	run -0 kvtool bench --size=64k --rounds=1
	[ "${#lines[@]}" = 14 ]
}

@test "all cases on the executor" {
	on_executor --json >json
	[ "$(json 'o["device"], o["device_name"]' <json)" = \
		"('cuda:0', 'executor on the CPU, no GPU')" ]
	[ "$(json '[c["kernel"] for c in o["cases"] if c["case"] in ("rocm", "mla")]' \
		<json)" = "['kvt_tile_16+kvt_tile_2', 'kvt_lanes_16_2']" ]
	[[ $(on_executor --case=mla) == "cuda:0: executor on the CPU, no GPU, driver 12.4; "* ]]
}

@test "wrong bytes, no device, too little memory" {
	KVT_EXEC_FLIP=1 run -5 --separate-stderr on_executor
	[ "$stderr" = "kvtool bench: nhd-hnd: the plainest kernel copied wrong bytes" ]
	KVT_EXEC_DEVICES=0 run -4 --separate-stderr on_executor
	[ "$stderr" = "kvtool bench: cuda: no device" ]
	KVT_EXEC_MEMORY=1000000 run -4 --separate-stderr on_executor
	[ "$stderr" = "kvtool bench: cuda: out of device memory: asked 524288 bytes, free 475712" ]
	KVT_EXEC_FAIL=cuLaunchKernel:719:2 run -5 --separate-stderr on_executor
	[ "$stderr" = "kvtool bench: cuda: device failed: EXECUTOR_ERROR_719" ]
}

@test "cases that are none" {
	run -2 --separate-stderr kvtool bench --case=nhd-hdn
	[ "$stderr" = "kvtool bench: no case 'nhd-hdn', did you mean 'nhd-hnd'?" ]
	run -2 kvtool bench --case=
	run -2 kvtool bench --rounds=1001
	run -2 kvtool bench file
}

@test "rates of files, which size --plan reads" {
	mkdir here
	kvtool bench --files=here --size=1M --rounds=1 --json >rates.json
	[ "$(json 'all(v > 0 for v in o["rates"].values()), len(o["rates"])' <rates.json)" = '(True, 9)' ]
	[ -z "$(ls here)" ]
	run -0 kvtool size --plan=rates.json --time=1000 "$root/testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy"
	[[ $output == *"1 shard of 1 thread"* ]]
	run -1 kvtool size --plan=rates.json --time=1e-9 "$root/testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy"
	run -2 kvtool size --plan=rates.json "$root/testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy"
	tells 5 'nowhere: cannot make a folder there: No such file' bench --files=nowhere
	# not the root folder
	tells 2 "'--files' needs a value: DIR" bench --files= --size=1M --rounds=1
}
