#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# device.bats - --device, on the executor that stands in for a GPU
#
# It has streams that run as late and in as wrong an order as what is said allows.
# What a device wrote must be what the CPU writes, to the byte.

load common

build=${KVT_BUILD:-$BATS_TEST_DIRNAME/../../build}

setup_file() {
	mkdir "$BATS_FILE_TMPDIR/lib"
	for name in libcuda.so.1 libamdhip64.so.7; do
		ln -s "$(cd "${KVT_BUILD:-build}" && pwd)/gpu_executor.so" \
			"$BATS_FILE_TMPDIR/lib/$name"
	done
	unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
}

# A program whose device code the executor takes, and the executor as its driver.  Who looks
# for leaks stops threads, and now and then dies of those that are on the stack of a fiber;
# check_gpu, which ends its streams first, is looked at.
gpu() {
	LD_LIBRARY_PATH=$BATS_FILE_TMPDIR/lib ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 \
		"$build/tests/kvtool_standin" "$@"
}

# same FORMAT COMMAND ARG...: the device writes what the CPU writes, and does it itself
same() {
	local format=$1 command=$2
	shift 2
	kvtool "$command" -q -f -o "cpu.$format" "$@"
	gpu "$command" --device="${device:-cuda}" --json -f -o "gpu.$format" "$@" >json
	[ "$(json 'o["device_bytes"] > 0 and o["device"]' <json)" = "${device:-cuda}:0" ]
	cmp "cpu.$format" "gpu.$format"
}

# 8 MiB, two boxes and more
big() {
	head -c $((4 * 32 * 16 * 8 * 2 * 128 * 2)) /dev/urandom >big.bin
	dump=(--layout=nhd --dtype=bfloat16 --layers=4 --blocks=32 --block-size=16
		--heads=8 --head-dim=128 big.bin)
}

# $stderr without what AddressSanitizer has to say about fibers, which run tiles
said_alone() { grep -v makecontext/swapcontext <<<"$stderr"; }

# refused STATUS TEXT NAME=VALUE...: one line, and neither output nor scraps of it
refused() {
	local status=$1 text=$2
	shift 2
	export "$@"
	run -"$status" --separate-stderr gpu relayout --device=cuda --to=hnd -o out.npy \
		$data/packed_nhd.bf16.npy
	[ -z "$output" ]
	[ "$(said_alone)" = "kvtool relayout: $text" ]
	[ -z "$(compgen -G '*out*')" ]
}

@test "every layout, both vendors" {
	for layout in hnd blhsc kv-first-nhd rocm-paged aiter-shuffle blocks-first-hnd; do
		same npy relayout --to=$layout $data/packed_nhd.bf16.npy
		device=hip same h5 relayout --to=$layout $data/packed_nhd.bf16.npy
	done
	gpu relayout -q --device=cuda --to=hnd --verify -o hnd.npy $data/rocm_x.bf16.npy
	cmp hnd.npy $data/packed_hnd.bf16.npy
}

@test "stored tiles, into others and into none" {
	kvtool convert -q $data/packed_hnd.bf16.npy hnd.h5
	same h5 relayout --to=rocm-paged hnd.h5
	same npy relayout --to=blshc hnd.h5
	same h5 relayout --to=nhd --uncompressed hnd.h5
	same h5 relayout --to=hnd --uncompressed $data/packed_nhd.bf16.npy
	gpu relayout --device=cuda --json --to=nhd -o moved.h5 hnd.h5 >json
	[ "$(json 'o["device"], o["device_bytes"]' <json)" = "('cuda:0', 0)" ]
}

@test "convert, slice, merge, reblock, copy-blocks" {
	kvtool convert -q $data/packed_hnd.bf16.npy cpu.h5
	gpu convert -q --device=cuda $data/packed_hnd.bf16.npy gpu.h5
	cmp cpu.h5 gpu.h5
	same npy slice --for-transfer --src-tp=1 --dst-tp=4 --dst-rank=2 --src-rank=0 \
		$data/packed_hnd.bf16.npy
	same h5 slice --tp-size=4 --tp-rank=1 $data/packed_nhd.bf16.npy
	same h5 slice --component=C testdata/kv/mamba2g4/tp1_SD/rank0.npy
	same npy slice --request=C --layers=1:3 $data/packed_nhd.bf16.npy
	same npy merge testdata/kv/s260k/tp4/*.safetensors
	for size in 8 24 64; do
		same h5 reblock --block-size=$size $data/packed_nhd.bf16.npy
	done
	same npy reblock --block-size=16 --to=hnd testdata/kv/s260k/paged_bs32/packed_nhd.bf16.npy
	same npy copy-blocks --blocks=39-41:1-3 $data/rocm_x.bf16.npy \
		$data/packed_nhd.bf16.npy
}

@test "other types: of a tensor, of heads, in several layouts, back" {
	for scale in 1 auto auto-heads; do
		for layout in nhd hnd kv-first-nhd blhsc; do
			same h5 relayout --to=$layout --cache-dtype=fp8 --scale=$scale \
				$data/packed_nhd.bf16.npy
		done
	done
	[ "$(json 'o["device_bytes"]' <json)" = 491520 ]	# cast, and put into tiles
	mv cpu.h5 heads.h5
	same h5 convert --cache-dtype=float32 $data/rocm_x.bf16.npy
	same h5 convert --cache-dtype=float32 heads.h5
	mv cpu.h5 numbers.h5
	device=hip same h5 convert --cache-dtype=fp8_e5m2 --scale=0.3,0.7 numbers.h5
	same h5 reblock --block-size=24 --cache-dtype=fp8_e4m3fnuz --scale=auto-heads \
		$data/packed_nhd.bf16.npy
	gpu relayout --device=cuda --verify --to=hnd --cache-dtype=float16 -o verified.h5 \
		$data/packed_nhd.bf16.npy
}

@test "rows of contents are the CPU's, and that is said" {
	big
	run -0 --separate-stderr gpu convert --device=cuda --json -o q.h5 \
		--cache-dtype=int8-per-token-head "${dump[@]}"
	[ "$(json 'o["device"], o["device_bytes"]' <<<"$output")" = "('cuda:0', 4325376)" ]
	[ "$(said_alone)" = "kvtool: --device: g0: the CPU makes int8-per-token-head of bfloat16, as cuda:0 does not" ]
	kvtool convert -q -o cpu.h5 --cache-dtype=int8-per-token-head "${dump[@]}"
	cmp cpu.h5 q.h5
}

@test "several threads, several boxes, another type" {
	big
	kvtool relayout -q --to=hnd --cache-dtype=fp8 --scale=0.5,3 -o cpu.h5 "${dump[@]}"
	gpu relayout -q --threads=4 --device=cuda --to=hnd --cache-dtype=fp8 \
		--scale=0.5,3 -o gpu.h5 "${dump[@]}"
	cmp cpu.h5 gpu.h5
}

@test "several threads, several boxes" {
	big
	kvtool relayout -q --to=hnd -o cpu.npy "${dump[@]}"
	kvtool convert -q "${dump[@]}" nhd.h5
	kvtool relayout -q --to=hnd -o cpu.h5 nhd.h5
	gpu relayout -q --threads=4 --device=cuda --to=hnd -o gpu.npy "${dump[@]}"
	gpu relayout -q --threads=4 --device=cuda --to=hnd -o gpu.h5 nhd.h5
	cmp cpu.npy gpu.npy
	cmp cpu.h5 gpu.h5
}

@test "memory of the device for fewer than all threads" {
	big
	kvtool relayout -q --to=hnd -o cpu.npy "${dump[@]}"
	export KVT_EXEC_MEMORY=$((15 << 20))
	gpu relayout -q --threads=2 --device=cuda --to=hnd -o gpu.npy "${dump[@]}"
	cmp cpu.npy gpu.npy
}

@test "digest and diff" {
	digest=$(kvtool digest $data/rocm_x.bf16.npy)
	[ "$(gpu digest --device=cuda $data/rocm_x.bf16.npy)" = "$digest" ]
	gpu digest --json --device=hip $data/rocm_x.bf16.npy >json
	[ "$(json 'o["device"], o["device_bytes"]' <json)" = "('hip:0', 491520)" ]
	gpu diff --json --device=cuda $data/rocm_x.bf16.npy $data/packed_hnd.bf16.npy >json
	[ "$(json 'o["result"], o["device"], o["device_bytes"] > 0' <json)" = \
		"('equal', 'cuda:0', True)" ]
	kvtool mutate -q --fault=swap-kv,layer=2,block=17 -o bad.npy $data/packed_nhd.bf16.npy
	run -1 --separate-stderr kvtool diff $data/rocm_x.bf16.npy bad.npy
	expected=$output
	run -1 --separate-stderr gpu diff --device=cuda $data/rocm_x.bf16.npy bad.npy
	[ "$output" = "$expected" ]
}

@test "transfer-sim exec, into new files and into old ones" {
	kvtool transfer-sim exec -q --dst=tp=2,layout=hnd,block-size=32 -o 'cpu%r.h5' \
		$data/packed_nhd.bf16.npy
	gpu transfer-sim exec --json --device=cuda --dst=tp=2,layout=hnd,block-size=32 \
		-o 'gpu%r.h5' $data/packed_nhd.bf16.npy >json
	[ "$(json 'o["device"], o["device_bytes"] >= o["bytes"]' <json)" = "('cuda:0', True)" ]
	for rank in 0 1; do
		cmp cpu$rank.h5 gpu$rank.h5
	done
	kvtool mutate -q --fault=swap-kv,layer=2,block=17 -o old.npy $data/rocm_x.bf16.npy
	kvtool transfer-sim exec -q -o cpu.npy testdata/kv/s260k/tp4/*.safetensors old.npy
	gpu transfer-sim exec -q --device=cuda -o gpu.npy testdata/kv/s260k/tp4/*.safetensors \
		old.npy
	cmp cpu.npy gpu.npy
}

@test "the CPU, unless something else is asked for" {
	for option in --quiet --device=cpu; do
		gpu relayout $option --json -f --to=hnd -o out.npy $data/packed_nhd.bf16.npy >json
		[ "$(json 'o["device"], o["device_bytes"]' <json)" = "('cpu', 0)" ]
	done
}

@test "auto takes what is there, and says if that is the CPU" {
	gpu relayout --device=auto --json --to=hnd -o out.npy $data/packed_nhd.bf16.npy >json
	[ "$(json 'o["device"]' <json)" = cuda:0 ]
	export KVT_EXEC_FAIL=cuInit:100
	gpu relayout --device=auto --json -f --to=hnd -o out.npy $data/packed_nhd.bf16.npy >json
	[ "$(json 'o["device"]' <json)" = hip:0 ]
	export KVT_EXEC_DEVICES=0
	run -0 --separate-stderr gpu relayout --device=auto --json -f --to=hnd -o out.npy \
		$data/packed_nhd.bf16.npy
	[ "$(json 'o["device"]' <<<"$output")" = cpu ]
	[ "$stderr" = "kvtool: --device=auto: the CPU is used, because there is no GPU (cuda: no device; hip: no device)" ]
	cmp out.npy $data/packed_hnd.bf16.npy
}

@test "auto goes on with the CPU where the device is too small" {
	for limit in KVT_EXEC_MEMORY=500000 KVT_EXEC_PINNED=500000 \
		KVT_EXEC_FAIL=cuStreamCreate:2; do
		run -0 --separate-stderr env $limit LD_LIBRARY_PATH="$BATS_FILE_TMPDIR/lib" \
			"$build/tests/kvtool_standin" relayout --device=auto --json -f --to=hnd \
			-o out.npy $data/packed_nhd.bf16.npy
		[ "$(json 'o["device"], o["device_bytes"]' <<<"$output")" = "('cpu', 0)" ]
		[[ $stderr == "kvtool: --device=auto: the CPU is used, because there is no GPU (cuda: "* ]]
		cmp out.npy $data/packed_hnd.bf16.npy
	done
}

@test "no device" {
	refused 4 'cuda: no device' KVT_EXEC_DEVICES=0
}

@test "no driver" {
	! ldconfig -p | grep -q 'libcuda\.so\.1 ' || skip 'there is a libcuda.so.1 here'
	run -4 --separate-stderr "$build/tests/kvtool_standin" relayout --device=cuda \
		--to=hnd -o out.npy $data/packed_nhd.bf16.npy
	[ "$stderr" = "kvtool relayout: cuda: no device: libcuda.so.1 not found (no NVIDIA driver)" ]
	[ ! -e out.npy ]
}

@test "no code for this device" {
	refused 4 'cuda: no kernels for compute capability 9.0 (this build has executor)' \
		KVT_EXEC_FAIL=cuModuleLoadData:209
}

@test "a device that is too small" {
	refused 4 'cuda: out of device memory: asked 491520 bytes, free 8480' \
		KVT_EXEC_MEMORY=500000
}

@test "a host that may pin too little" {
	refused 4 'cuda: out of pinned memory: asked 491520 bytes' KVT_EXEC_PINNED=500000
}

@test "a stream that cannot be made" {
	refused 4 'cuda: device failed: EXECUTOR_ERROR_999' KVT_EXEC_FAIL=cuStreamCreate:999:1
}

@test "a launch that fails" {
	refused 5 'cuda: device failed: EXECUTOR_ERROR_700' KVT_EXEC_FAIL=cuLaunchKernel:700
}

@test "an upload, a download, an event that fails" {
	refused 5 'cuda: device failed: EXECUTOR_ERROR_719' KVT_EXEC_FAIL=cuMemcpyHtoDAsync_v2:719
	refused 5 'cuda: device failed: EXECUTOR_ERROR_719' KVT_EXEC_FAIL=cuMemcpyDtoHAsync_v2:719
	refused 5 'cuda: device failed: EXECUTOR_ERROR_719' KVT_EXEC_FAIL=cuEventSynchronize:719
}

@test "a device that dies on the way" {
	big
	export KVT_EXEC_FAIL=cuLaunchKernel:700:1
	run -5 --separate-stderr gpu relayout --threads=2 --device=cuda --to=hnd -o out.npy \
		"${dump[@]}"
	[ "$stderr" = "kvtool relayout: cuda: device failed: EXECUTOR_ERROR_700" ]
	[ -z "$(compgen -G '*out*')" ]
	run -5 gpu transfer-sim exec -q --device=cuda --dst=layout=hnd,block-size=32 -o out.h5 \
		$data/packed_nhd.bf16.npy
	[ -z "$(compgen -G '*out*')" ]
	# in their own order these need no device: read as they are
	gpu digest --device=cuda --json "${dump[@]}" >json
	[ "$(json 'o["device_bytes"]' <json)" = 0 ]
	run -5 gpu digest --device=cuda "${dump[@]/nhd/hnd}"
}

@test "kernels that copy wrong bytes are not forgiven" {
	KVT_EXEC_FAULT=1 run -5 --separate-stderr gpu relayout --device=cuda \
		--to=rocm-paged -o out.h5 $data/packed_nhd.bf16.npy
	[ "$(said_alone)" = "kvtool relayout: cuda: device failed: EXECUTOR_ERROR_719" ]
	[ -z "$(compgen -G '*out*')" ]
	KVT_EXEC_FLIP=1 run -1 --separate-stderr gpu relayout --device=cuda \
		--verify --to=hnd -o out.npy $data/packed_nhd.bf16.npy
	[[ $(said_alone) == "kvtool relayout: out.npy: "* ]]
}

@test "a device that is none" {
	run -2 --separate-stderr gpu relayout --device=gpu --to=hnd -o out.npy \
		$data/packed_nhd.bf16.npy
	[ "$stderr" = "kvtool relayout: --device is 'gpu', expected cpu, cuda, cuda:N, hip, hip:N or auto" ]
	[ ! -e out.npy ]
}
