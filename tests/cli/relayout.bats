#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# relayout.bats - kvtool relayout: options, refusals and what is left behind
# (every byte of every layout: tests/oracle_relayout.py)

load common
load dumps

@test "relayout writes the bytes of the dump made the other way" {
	run -0 kvtool relayout --to hnd -o out.npy "$nhd"
	same_array out.npy "$hnd"
}

@test "relayout with a file of the layout asked for copies it" {
	run -0 kvtool relayout --to nhd -o out.npy "$nhd"
	same_array out.npy "$nhd"
}

@test "relayout reads a preset in any case, an axis string and tagged tuples" {
	local to n=0
	for to in HND Hnd LBHSC "L B H S C" "L B H N C" rfc:0,1,3,2,4 vllm:0,1,2,3,4; do
		n=$((n + 1))
		run -0 kvtool relayout --to "$to" -o $n.npy "$nhd"
		same_array $n.npy "$hnd"
	done
}

@test "relayout tells an order from its inverse" {
	local bhlsc=$kv/s260k/paged_bs16/packed_bhlsc.bf16.npy
	run -0 kvtool relayout --to rfc:1,3,0,2,4 -o rfc.npy "$nhd"
	same_array rfc.npy "$bhlsc"
	run -0 kvtool relayout --to vllm:1,2,0,3,4 -o vllm.npy "$nhd"
	same_array vllm.npy "$bhlsc"
	run -0 kvtool relayout --to rfc:2,0,3,1,4 -o inverse.npy "$nhd"
	run ! same_array inverse.npy "$bhlsc"
}

@test "relayout refuses a bare tuple and shows both readings" {
	tells 3 'rfc:|LBHSC|vllm:|LBSHC' relayout --to 0,1,3,2,4 -o out.npy "$nhd"
	only
}

@test "relayout suggests the layout that was meant" {
	tells 2 'block-first-nhd|blocks-first-nhd' relayout --to block-first-nhd -o out.npy "$nhd"
	tells 2 'rocm-paged' relayout --to rocm-pagd -o out.npy "$nhd"
	only
}

@test "relayout refuses what is no order" {
	local to
	for to in "" LBSH LBSHCC LBSHKC XYZ rfc:0,1,2,3,3 rfc:0,1,2,3,5 rfc: vllm:a \
		"K:L B S H D" "L B H D/0 S D%0" "L B H D/8 S D%4 K"; do
		tells 2 '' relayout --to "$to" -o out.npy "$nhd"
	done
	only
}

@test "relayout refuses a tuple that belongs to one backend and version" {
	tells 3 '' relayout --to rfc:0,1,2,3 -o out.npy "$nhd"
	only
}

@test "relayout does not drop the values of keys and values" {
	run --separate-stderr kvtool relayout --to "L B S H D" -o out.npy "$nhd"
	[ "$status" = 3 ] || [ "$status" = 4 ]
	one_sentence
	only
}

@test "relayout refuses names that projects use differently" {
	tells 3 '' relayout --to page_first -o out.npy "$nhd"
	only
}

@test "relayout needs --to and one file" {
	tells 2 '--to' relayout -o out.npy "$nhd"
	run -2 --separate-stderr kvtool relayout --to hnd -o out.npy
	run -2 --separate-stderr kvtool relayout --to hnd -o out.npy "$nhd" "$hnd"
	only
	copy_dump "$nhd" in.npy
	run -2 --separate-stderr kvtool relayout --to 'L B S/2 H S%2 C' in.npy
	said "no file name can be made of layout 'L B S/2 H S%2 C'"
	only in.npy in.json
}

@test "relayout refuses a split that does not divide its axis" {
	run --separate-stderr kvtool relayout --to cpu-amx -o out.npy "$nhd"
	[ "$status" = 3 ] || [ "$status" = 4 ]
	one_sentence
	said 8 16
	only
}

@test "relayout refuses to split a latent slot into keys and values" {
	run --separate-stderr kvtool relayout --to rocm-paged -o out.npy "$mla"
	[ "$status" = 3 ] || [ "$status" = 4 ]
	one_sentence
	only
}

@test "relayout refuses to put two buffers into a file of one array" {
	local ending
	for ending in npy bin; do
		tells 4 'safetensors' relayout --to sglang-pool -o out.$ending "$nhd"
	done
	only
}

@test "relayout --dry-run says what it would do and writes nothing" {
	run -0 --separate-stderr kvtool relayout -n --to hnd -o out.npy "$nhd"
	[ -n "$output" ]
	[[ $output == *LBHSC* ]]
	only
}

@test "relayout --dry-run finds what would be refused" {
	run -3 kvtool relayout -n --to 0,1,3,2,4 -o out.npy "$nhd"
	run kvtool relayout -n --to cpu-amx -o out.npy "$nhd"
	[ "$status" = 3 ] || [ "$status" = 4 ]
}

@test "relayout --verify agrees" {
	run -0 kvtool relayout --verify --to rocm-paged -o out.h5 "$nhd"
	run -0 kvtool relayout --verify --to cpu-vec -o out.npy out.h5
}

@test "relayout writes the same file with any number of threads" {
	local ending n
	for ending in npy h5 safetensors; do
		for n in 1 2 7; do
			run -0 kvtool relayout --threads $n --to bhlsc -o $n.$ending "$rocm"
		done
		cmp 1.$ending 2.$ending
		cmp 1.$ending 7.$ending
	done
}

# peak ARG...: peak memory of a relayout in KiB
peak() {
	/usr/bin/python3 -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' \
		"$KVTOOL" relayout --layout nhd --dtype bf16 --block-size 16 --heads 8 \
		--head-dim 128 --to rocm-paged "$@"
}

@test "relayout keeps within little memory and writes the same" {
	local little big
	/usr/bin/python3 -c '
import random, sys
sys.stdout.buffer.write(random.Random(5).randbytes(32 << 20))' >big.bin
	head -c 65536 big.bin >one.bin
	# what the program itself takes, which is more under a sanitizer
	little=$(peak --layers 1 --mem-limit 4M -o one.npy one.bin)
	big=$(peak --layers 4 --mem-limit 4M -o little.npy big.bin)
	[ "$big" -lt $((little + 8192)) ] || { echo "$little and $big KiB"; return 1; }
	peak --layers 4 -o much.npy big.bin
	cmp much.npy little.npy
}

@test "relayout says when the memory limit is too small" {
	run --separate-stderr kvtool relayout --mem-limit 1 --to hnd -o out.npy "$nhd"
	[[ $status != 0 && $status -le 5 ]]
	one_sentence
	only
}

@test "relayout refuses bad numbers" {
	local option
	for option in --threads=0 --threads=-1 --threads=x --mem-limit=0 --mem-limit=1Q \
		--mem-limit=99999999999999999999 --level=99 --tile=0 --tile=x; do
		tells 2 '' relayout "$option" --to hnd -o out.h5 "$nhd"
	done
	only
}

@test "relayout between snapshots: level and tile size do not change values" {
	run -0 kvtool convert "$nhd" in.h5
	run -0 kvtool relayout --to blhsc -o a.h5 in.h5
	run -0 kvtool relayout --to blhsc --level 19 -o b.h5 in.h5
	run -0 kvtool relayout --to blhsc --tile 64K -o c.h5 in.h5
	run -0 kvtool relayout --to blhsc --uncompressed -o d.h5 in.h5
	local f
	for f in a b c d; do
		same_digest "$nhd" $f.h5
		run -0 kvtool convert $f.h5 $f.npy
		same_array a.npy $f.npy
	done
}

@test "relayout keeps what the dump says about itself" {
	run -0 kvtool relayout --to hnd -o out.safetensors "$rank1"
	run -0 kvtool relayout --to nhd -o back.h5 out.safetensors
	same_digest "$rank1" back.h5
	shows 0 'layer=0 head=2' digest --scope tokens --by head back.h5
	[[ $output != *"layer=0 head=0"* ]]
}

@test "a layout is not proposed to who gave it" {
	tells 4 'can have layout LBSHC: all are recurrent states$' relayout --to=nhd -o out.h5 \
		"$kv/mamba2g4/tp1_SD/rank0.npy"
}
