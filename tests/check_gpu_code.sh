#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_gpu_code.sh - what the compilers make of the GPU kernels
#
# 16-byte accesses where there should be some, no division, no memory for what
# should be in registers.  NVIDIA's is read as PTX and from the report of ptxas,
# AMD's from the object.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
wide='spread_16_2 spread_16_4 spread_16_6 lanes_16_2 lanes_16_4 lanes_16_6
	blocks_16_6 tile_16 tile_8 tile_4 tile_2 tile_1 list cast_2_2 cast_4_4'

skip() { tap_count=$((tap_count + 1)); echo "ok $tap_count - $1 # SKIP $2"; }

# bodies FILE: each line of a kernel, behind its name
bodies() {
	awk '/\.entry kvt_|^[0-9a-f]+ <kvt_/ {
		match($0, /kvt_[a-z0-9_]+/); name = substr($0, RSTART + 4, RLENGTH - 4) }
		name { print name, $0 }' "$1"
}

# each_has FILE PATTERN: every kernel for wide accesses has it
each_has() {
	bodies "$1" >"$tmp/bodies"
	for name in $wide; do
		grep -qE "^$name .*($2)" "$tmp/bodies" || { echo "$name: no $2"; return 1; }
	done
}
# none_has FILE PATTERN: no kernel but the naive has it; a cast divides numbers, as engines do
none_has() { bodies "$1" | grep -vE '^naive|^cast.*[[:space:]]div\.rn\.f32' | grep -E "$2"; true; }

# ---- NVIDIA -------------------------------------------------------------------

nvidia() { "$KVT_NVCC" -O3 -std=c++17 -arch=sm_90 -I. "$@" kernels/cuda/cuda_kernels.cu; }
machine_code() { nvidia -Xptxas -v,-warn-spills -cubin -o "$tmp/k.cubin" 2>"$tmp/report"; }
registers() { sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$tmp/report" | sort -n; }
few_registers() { [ -n "$(registers)" ] && [ "$(registers | tail -n 1)" -le 64 ]; }
memory() { grep -E 'stack frame|spill' "$tmp/report" | grep -vE '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads$'; true; }
sass() { cuobjdump --dump-sass "$tmp/k.cubin" >"$tmp/sass" && grep -q 'LDG.E.128' "$tmp/sass" &&
	grep -q 'STG.E.128' "$tmp/sass" && ! grep -qE '\b(LDL|STL)\b' "$tmp/sass"; }

if [ -n "${KVT_NVCC-}" ]; then
	ok 'nvcc makes PTX' nvidia -ptx -o "$tmp/k.ptx"
	ok 'PTX: loads of 16 bytes' each_has "$tmp/k.ptx" 'ld\.global(\.[a-z]+)*\.v4'
	ok 'PTX: stores of 16 bytes' each_has "$tmp/k.ptx" 'st\.global(\.[a-z]+)*\.v4'
	none 'PTX: no division' none_has "$tmp/k.ptx" '[[:space:]](div|rem)\.'
	none 'PTX: no local memory' none_has "$tmp/k.ptx" '\.local'
	none 'PTX: each address is of a known space' none_has "$tmp/k.ptx" \
		'[[:space:]](ld|st)\.(v[24]\.)?[bus][0-9]+[[:space:]]'
	ok 'ptxas makes machine code' machine_code
	none 'ptxas: no stack, no spills' memory
	ok 'ptxas: at most 64 registers' few_registers
	if command -v cuobjdump >/dev/null; then
		ok 'SASS: 16-byte accesses, nothing local' sass
	else
		skip 'SASS: 16-byte accesses, nothing local' 'this needs cuobjdump of the CUDA toolkit'
	fi
else
	skip 'code for NVIDIA' 'this needs nvcc of the CUDA toolkit, and not CUDA=0'
fi

# ---- AMD ----------------------------------------------------------------------

# The oldest first: what follows was made for these.
tool() { for version in -15 -16 -19 ''; do command -v "$1$version" && return; done; }
readelf=$(tool llvm-readelf)
objdump=$(tool llvm-objdump)

amd() {
	case $KVT_HIPCC in
	*hipcc*) only=--genco ;;
	*) only=--offload-device-only ;;
	esac
	# it leaves temporary files
	TMPDIR=$tmp "$KVT_HIPCC" -O3 -std=c++17 -I. -nogpuinc -nogpulib -nostdinc++ "$only" \
		--no-gpu-bundle-output --offload-arch="$1" -o "$tmp/$1.o" \
		-x hip kernels/hip/hip_kernels.hip &&
		"$readelf" -n "$tmp/$1.o" >"$tmp/$1.notes" &&
		"$objdump" -d "$tmp/$1.o" >"$tmp/$1.s"
}
# Counts that are not 0; the file must have them.
counted() {
	grep -q "$2" "$1" || { echo "no $2 in it"; return 0; }
	grep -E "$2" "$1" | grep -vE ': *0$'
	true
}

# what the build found that the compiler can make
archs=$(cat "${KVT_BUILD:-build}/kernels/hip.archs" 2>/dev/null)
if [ -n "${KVT_HIPCC-}" ] && [ -n "$archs" ] && [ -n "$readelf" ] && [ -n "$objdump" ]; then
	for arch in $archs; do
		ok "$arch: compiles" amd "$arch"
		# what clang 19 spills of scalars on gfx90a goes to lanes of vectors, not memory
		none "$arch: no vector register is spilled" counted "$tmp/$arch.notes" 'vgpr_spill_count'
		none "$arch: no private memory" counted "$tmp/$arch.notes" private_segment_fixed_size
		ok "$arch: loads of 16 bytes" each_has "$tmp/$arch.s" 'global_load_(dwordx4|b128)'
		ok "$arch: stores of 16 bytes" each_has "$tmp/$arch.s" 'global_store_(dwordx4|b128)'
	done
else
	skip 'code for AMD' 'this needs a compiler for AMD, such as the package hipcc, and not HIP=0'
fi
done_testing
