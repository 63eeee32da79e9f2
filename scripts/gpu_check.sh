#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_check.sh DIR: everything that only a machine with an NVIDIA GPU can tell
#
# Needs make, gcc, g++ and nvcc.  Builds here, for a binary of another machine
# may not start.  A stage that fails does not stop the next; logs, a table and
# JSON go to DIR.  Clocks, power and modes of the card are left as they are.
# Exit status: 0, 1 if a stage failed, 4 if there is no device (make itself then
# ends with 2).
#
# For the script's own test: GPU_CHECK_BUILD=DIR takes what is built there,
# GPU_CHECK_CASES and GPU_CHECK_BYTES make the work small.
set -u
out=${1:?usage: gpu_check.sh DIR}
cd "$(dirname "$0")/.." || exit 5
mkdir -p "$out" || exit 5
out=$(cd "$out" && pwd)
build=${GPU_CHECK_BUILD:-$out/build}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cases=${GPU_CHECK_CASES:-2304}
bytes=${GPU_CHECK_BYTES:-2147483648}
gencode=${CUDA_GENCODE:--gencode arch=compute_80,code=sm_80
	-gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90}
summary=$out/summary.txt
failed=0
: >"$summary"

note() { printf '%-28s %s\n' "$1" "$2" | tee -a "$summary"; }

# stage NAME LOG COMMAND...: its verdict; the log has what it printed
stage() {
	name=$1 log=$out/$2
	shift 2
	start=$(date +%s)
	"$@" >"$log" 2>&1
	status=$?
	seconds="$(($(date +%s) - start)) s"
	case $status in
	0) note "$name" "ok, $seconds" ;;
	4) note "$name" "no device: $(tail -n 1 "$log")" ;;
	*) note "$name" "FAILED, status $status, $seconds: see ${log##*/}"; failed=1 ;;
	esac
	return "$status"
}

facts() {
	"$nvcc" --version
	if command -v nvidia-smi; then
		nvidia-smi
		nvidia-smi -q -d CLOCK,ECC,POWER
	fi
	uname -a
	"${CC:-cc}" --version
}
compile() {
	[ -n "${GPU_CHECK_BUILD-}" ] || make -j"$(nproc)" --no-print-directory DEPS=: FPKG= \
		CMOCKA= B="$build" CUDA=1 NVCC="$nvcc" HIP=0 WERROR=1 \
		"$build/check_gpu" "$build/check_kernels"
}
spills() { ! grep -iE 'spill|warning' "$out/build.log"; }
hip_image() {
	# shellcheck disable=SC2086	# the words of gencode are meant to be split
	"$nvcc" -O3 -std=c++17 -x cu -include tests/hip_on_cuda.h -I. -Werror all-warnings \
		$gencode -fatbin -o "$out/hip.image" kernels/hip/hip_kernels.hip
}
check() { "$build/check_gpu" --device=cuda --cases="$cases" "$@"; }
sanitizer() {
	compute-sanitizer --tool "$1" --error-exitcode 9 --report-api-errors no \
		"$build/check_gpu" --device=cuda --small --cases=40
}

stage 'facts' facts.log facts
stage 'build' build.log compile || { note 'the rest' 'needs the build'; exit 1; }
stage 'no warning, no spill' spills.log spills
stage 'kernels on the executor' executor.log \
	"$build/check_gpu" --executor="$build/gpu_executor.so" --cases="$cases"
rm -f "$out/hip.image"
stage 'HIP source built for CUDA' hip_build.log hip_image || rm -f "$out/hip.image"
stage 'a device opens' open.log "$build/check_gpu" --open=cuda
device=$?

if [ $device = 0 ]; then
	stage 'CUDA against definitions' cuda.log check
	for tool in memcheck racecheck initcheck synccheck; do
		if command -v compute-sanitizer >/dev/null; then
			stage "compute-sanitizer $tool" "$tool.log" sanitizer $tool
		else
			note "compute-sanitizer $tool" 'skipped: not here'
		fi
	done
	[ ! -s "$out/hip.image" ] ||
		stage 'HIP source on CUDA*' hip.log check --small --image="$out/hip.image"
	stage 'bandwidth' bench.txt "$build/check_gpu" --device=cuda --bench \
		--bytes="$bytes" --json="$out/bench.json"
else
	for name in 'CUDA against definitions' 'compute-sanitizer' 'HIP source on CUDA*' \
		'bandwidth'; do
		note "$name" 'not run: no device'
	done
fi
if [ -n "${GPU_CHECK_BUILD-}" ]; then
	note 'code of the kernels' 'skipped: nothing was built'
else
	stage 'code of the kernels' code.log env KVT_NVCC="$nvcc" KVT_HIPCC= tests/check_gpu_code.sh
fi

echo
echo '* not an AMD result: it shows that the HIP file copies the right bytes'
[ ! -s "$out/bench.txt" ] || cat "$out/bench.txt"
[ $device != 4 ] || [ $failed != 0 ] || exit 4
exit $failed
