#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_gpu_absent.sh - what is said where there is no GPU, or one that fails
#
# The executor takes the place of the driver's library and fails where it is
# told to; nothing here needs a GPU or its compiler.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

build=$(cd "${KVT_BUILD:-build}" && pwd) || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/exec" "$tmp/stub" "$tmp/empty" "$tmp/bad"
ln -s "$build/gpu_executor.so" "$tmp/exec/libcuda.so.1"
ln -s "$build/gpu_executor.so" "$tmp/exec/libamdhip64.so.7"
unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES

skip() { tap_count=$((tap_count + 1)); echo "ok $tap_count - $1 # SKIP $2"; }

# says STATUS TEXT SPEC [NAME=VALUE]...: one line on stderr, and the status.  A
# spec with '!' stands for an image that is there (see check_gpu).
says() {
	status=$1 text=$2 spec=$3
	shift 3
	env "$@" "$build/check_gpu" --open="$spec" >"$tmp/out" 2>"$tmp/all"
	got=$?
	# AddressSanitizer warns of fibers, on which tiles run
	grep -v makecontext/swapcontext "$tmp/all" >"$tmp/err"
	cat "$tmp/out" "$tmp/err"
	[ "$got" = "$status" ] || { echo "status $got"; return 1; }
	[ ! -s "$tmp/out" ] || return 1
	[ "$(cat "$tmp/err")" = "$text" ] || { echo "expected: $text"; return 1; }
}
with="LD_LIBRARY_PATH=$tmp/exec"
# fails WITH-CODE STATUS TEXT [SPEC]
fails() { says "$2" "$3" "${4:-cuda!0}" "$with" "KVT_EXEC_FAIL=$1"; }
archs() { cat "$build/kernels/$1.archs"; }

ok 'the executor opens as CUDA' says 0 '' 'cuda!0' "$with"
ok 'the executor opens as HIP' says 0 '' 'hip!0' "$with"
ok 'a second device opens' says 0 '' 'cuda!1' "$with" KVT_EXEC_DEVICES=2

for code in 35 100 101; do
	ok "init fails with $code" fails "cuInit:$code" 4 'cuda: no device'
done
ok 'init fails with 34' fails cuInit:34 4 'cuda: no device: libcuda.so.1 is the toolkit stub'
ok 'HIP: init fails with 101' fails hipInit:101 4 'hip: no device' 'hip!0'
ok 'no device in the count' says 4 'cuda: no device' 'cuda!0' "$with" KVT_EXEC_DEVICES=0
ok 'an index too large' says 4 'cuda: no device 3 (2 visible)' 'cuda!3' "$with" \
	KVT_EXEC_DEVICES=2
ok 'an index too large, some hidden' says 4 \
	'cuda: no device 3 (2 visible; CUDA_VISIBLE_DEVICES is set)' 'cuda!3' "$with" \
	KVT_EXEC_DEVICES=2 CUDA_VISIBLE_DEVICES=0,1
ok 'HIP: an index too large, some hidden' says 4 \
	'hip: no device 3 (2 visible; ROCR_VISIBLE_DEVICES is set)' 'hip!3' "$with" \
	KVT_EXEC_DEVICES=2 ROCR_VISIBLE_DEVICES=0,1
for code in 36 803 804; do
	ok "the driver does not match: $code" fails "cuInit:$code" 4 \
		'cuda: driver 12.4 cannot run this build'
done
for code in 46 800 802 805 999; do
	ok "the device is not usable: $code" fails "cuDevicePrimaryCtxRetain:$code" 4 \
		"cuda: device 0 not usable: EXECUTOR_ERROR_$code"
done
for code in 200 209 218 222; do
	ok "no code for this GPU: $code" fails "cuModuleLoadData:$code" 4 \
		"cuda: no kernels for compute capability 9.0 (this build has $(archs cuda))"
done
ok 'HIP: no code for this GPU' fails hipModuleLoadData:209 4 \
	"hip: no kernels for executor on the CPU, no GPU (this build has $(archs hip))" 'hip!0'
ok 'an entry point is missing' fails cuModuleGetFunction:500 4 \
	'cuda: device 0 not usable: EXECUTOR_ERROR_500'
ok 'out of memory' says 5 'cuda: out of device memory: asked 16384 bytes, free 4000' \
	'cuda!0' "$with" KVT_EXEC_MEMORY=20384
for code in 2 220 700 701 702 716 719; do
	ok "a launch fails with $code" fails "cuLaunchKernel:$code" 5 \
		"cuda: device failed: EXECUTOR_ERROR_$code"
done
ok 'waiting fails' fails cuStreamSynchronize:700 5 'cuda: device failed: EXECUTOR_ERROR_700'
ok 'HIP: waiting fails' fails hipStreamSynchronize:719 5 \
	'hip: device failed: EXECUTOR_ERROR_719' 'hip!0'

echo 'int cuInit(unsigned); int cuInit(unsigned n) { return (int)n; }' >"$tmp/old.c"
ok 'an old library is built' "${CC:-cc}" -shared -fPIC -o "$tmp/empty/libcuda.so.1" "$tmp/old.c"
ok 'a library that lacks a call' says 4 'cuda: driver too old: no cuDeviceGetCount' 'cuda!0' \
	"LD_LIBRARY_PATH=$tmp/empty"
echo 'no library' >"$tmp/bad/libcuda.so.1"
broken() {
	LD_LIBRARY_PATH=$tmp/bad "$build/check_gpu" --open='cuda!0' 2>"$tmp/err"
	[ $? = 4 ] && grep -q '^cuda: no device: .*libcuda.so.1: ' "$tmp/err"
}
ok 'a library that is none' broken

stub=
for nvcc in ${KVT_NVCC:+"$KVT_NVCC"} /usr/local/cuda/bin/nvcc; do
	file=${nvcc%/bin/nvcc}/lib64/stubs/libcuda.so
	[ -e "$file" ] && stub=$file
done
if [ -n "$stub" ]; then
	ln -s "$stub" "$tmp/stub/libcuda.so.1"
	ok "the toolkit's stub as the library" says 4 \
		'cuda: no device: libcuda.so.1 is the toolkit stub' 'cuda!0' \
		"LD_LIBRARY_PATH=$tmp/stub"
else
	skip "the toolkit's stub as the library" 'this needs the stub library of the CUDA toolkit'
fi
if "$build/check_gpu" --open='cuda!0' 2>/dev/null; then
	skip 'no library' 'there is an NVIDIA driver here'
elif ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1 '; then
	skip 'no library' 'there is a libcuda.so.1 here'
else
	ok 'no library' says 4 'cuda: no device: libcuda.so.1 not found (no NVIDIA driver)' 'cuda!0'
fi
for vendor in cuda:nvcc hip:hipcc; do
	name=${vendor%:*}
	if [ -s "$build/kernels/$name.image" ]; then
		ok "$name: with its kernels" says 0 '' "$name" "$with"
	else
		ok "$name: without its kernels" says 4 \
			"$name: not in this build (built without ${vendor#*:})" "$name" "$with"
	fi
done
ok 'a device that is none' says 2 \
	"device 'gpu': expected cuda, hip, either with :N, or auto" gpu

# ---- the program --------------------------------------------------------------

kvtool=${KVTOOL:-$build/kvtool}
# tells NAME NODE: what --version says of a driver
tells() {
	"$kvtool" --version >"$tmp/out" || return 1
	cat "$tmp/out"
	if [ ! -s "$build/kernels/$1.image" ]; then
		grep -qx "$1: not in this build" "$tmp/out"
	elif [ -e "$2" ]; then
		grep -qxF "$1: $(archs "$1"), $2 is here" "$tmp/out"
	else
		grep -qE "^$1: $(archs "$1"), (/dev/.* is|no device) here\$" "$tmp/out"
	fi
}
ok '--version: CUDA' tells cuda /dev/nvidiactl
ok '--version: HIP' tells hip /dev/kfd
# A library that says so when it is loaded: AMD's alone takes longer than all the rest.
cat >"$tmp/loud.c" <<'C'
#include <unistd.h>
__attribute__((constructor)) static void say(void) { (void)!write(2, "loaded\n", 7); }
C
loads_nothing() {
	for name in libcuda.so.1 libamdhip64.so.7; do
		"${CC:-cc}" -shared -fPIC -o "$tmp/bad/$name" "$tmp/loud.c" || return 1
	done
	LD_LIBRARY_PATH=$tmp/bad "$kvtool" --version 2>"$tmp/err"
	[ ! -s "$tmp/err" ] || return 1
	LD_LIBRARY_PATH=$tmp/bad "$build/check_gpu" --open='cuda!0' 2>"$tmp/err"
	grep -q '^loaded$' "$tmp/err"
}
ok '--version loads no library of a vendor' loads_nothing

bench() {
	"$build/check_gpu" --bench --json="$tmp/bench.json" >"$tmp/bench.txt" &&
		grep -q '^# 0 rows with bad bytes' "$tmp/bench.txt" &&
		grep -q '"kernel": "kvt_list"' "$tmp/bench.json"
}
# The script that needs a GPU: all of it on the executor, and without a device.
# On the executor the HIP stage compiles and the sanitizer is left out.
gpu_check() {
	env GPU_CHECK_BUILD="$build" GPU_CHECK_CASES=12 GPU_CHECK_BYTES=262144 \
		CUDA_GENCODE=-arch=sm_90 "$@" \
		scripts/gpu_check.sh "$tmp/check" >"$tmp/text" 2>&1
}
on_executor() {
	gpu_check "$with" || { cat "$tmp/text"; return 1; }
	grep -q '^CUDA against definitions  *ok, ' "$tmp/check/summary.txt" &&
		grep -q '^HIP source on CUDA\*  *ok, ' "$tmp/check/summary.txt" &&
		grep -q ' kvt_list .* 0$' "$tmp/check/bench.txt" &&
		grep -q '"kernel": "kvt_list"' "$tmp/check/bench.json"
}
wrong_bytes() {
	gpu_check "$with" KVT_EXEC_FAULT=2
	[ $? = 1 ] || { cat "$tmp/text"; return 1; }
	grep -q '^CUDA against definitions  *FAILED' "$tmp/check/summary.txt"
}
no_device() {
	gpu_check "$with" KVT_EXEC_DEVICES=0
	[ $? = 4 ] || { cat "$tmp/text"; return 1; }
	grep -q '^a device opens  *no device: cuda: no device$' "$tmp/check/summary.txt" &&
		grep -q '^bandwidth  *not run: no device$' "$tmp/check/summary.txt"
}
if [ -s "$build/kernels/cuda.image" ] && [ -n "${KVT_NVCC-}" ]; then
	ok 'gpu-check: all stages, on the executor' on_executor
	ok 'gpu-check: a kernel with a fault fails' wrong_bytes
	ok 'gpu-check: says that there is no device' no_device
else
	skip 'gpu-check' 'this needs nvcc of the CUDA toolkit, and not CUDA=0'
fi
ok 'the benchmark runs on the executor, and its bytes are right' bench
done_testing
