#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# mutate.bats - kvtool mutate: options, refusals and what is left behind
# (every fault in many dumps: tests/oracle_diagnose.py)

load common
load dumps

data=testdata/kv/s260k/paged_bs16
mamba=$kv/mamba2g4/tp1_DS/rank0.npy

@test "mutate says in one line what it did" {
	ln -s "$root/testdata" testdata
	expect 0 mutate-line mutate --fault=swap-heads,a=1,b=3 -o out.npy "$data/packed_nhd.bf16.npy"
	expect 0 mutate-block mutate --fault=stale-block,block=17,from=45 -n "$data/packed_nhd.bf16.npy"
	expect 0 mutate-scale mutate --fault=scale,kv=1,factor=0.25,layer=2,block=30 -n "$data/packed_nhd.bf16.npy"
}

@test "mutate --json has the arguments and the place" {
	ln -s "$root/testdata" testdata
	expect 0 mutate-json mutate --json -n --fault=wrong-layer,layer=3,from=1 "$data/packed_nhd.bf16.npy"
}

@test "mutate changes nothing but what it says" {
	run -0 kvtool mutate --fault=zero-block,block=45,layer=2 -o out.npy "$nhd"
	# a page is 2048 bytes: layer 2, block 45
	run -1 cmp -l <(tail -c 491520 out.npy) <(tail -c 491520 "$nhd")
	local first=${lines[0]} last=${lines[-1]}
	read -r first _ <<<"$first"
	read -r last _ <<<"$last"
	[ "$first" -gt $((2 * 98304 + 45 * 2048)) ]
	[ "$last" -le $((2 * 98304 + 46 * 2048)) ]
}

@test "mutate chooses by its seed alone" {
	run -0 kvtool mutate -q --fault=flip-bits,count=5 --seed=4 -o one.npy "$rocm"
	run -0 kvtool mutate -q --fault=flip-bits,count=5 --seed=4 --threads=1 -o two.npy "$rocm"
	run -0 kvtool mutate -q --fault=flip-bits,count=5 --seed=5 -o three.npy "$rocm"
	cmp one.npy two.npy
	run -1 cmp -s one.npy three.npy
	[ "$(cmp -l <(array one.npy) <(array "$rocm") | wc -l)" = 5 ]
}

@test "mutate keeps layout, format and tables, and can change the format" {
	run -0 kvtool convert -q "$rocm" whole.h5
	run -0 kvtool mutate -q --fault=swap-kv -o bad.h5 whole.h5
	run -0 kvtool mutate -q --fault=swap-kv -o bad.npy "$rocm"
	run -0 kvtool digest --scope=tokens bad.npy bad.h5
	[ "${lines[0]%% *}" = "${lines[1]%% *}" ]
	run -0 kvtool describe --verify bad.h5
	diff <(kvtool describe bad.h5 | tail -n +2) <(kvtool describe whole.h5 | tail -n +2)
	# and twice is not at all
	run -0 kvtool mutate -q --fault=swap-kv -o good.h5 bad.h5
	same_digest good.h5 whole.h5
}

@test "mutate takes the first group that can have the fault, or the one named" {
	shows 0 'elements of ssm,' mutate -n --fault=swap-heads,a=0,b=1 "$mamba"
	shows 0 'elements of conv,' mutate -n --fault=byte-order "$mamba"
	shows 0 'elements of ssm,' mutate -n --fault=byte-order --group=ssm "$mamba"
	tells 4 'swap-heads needs two heads' mutate -n --fault=swap-heads --group=conv "$mamba"
	tells 2 "no group 'g7'" mutate -n --fault=swap-heads --group=g7 "$mamba"
}

@test "mutate names heads as the model does" {
	shows 0 'swap-heads,a=2,b=3:|heads 2 to 3$' mutate -n --fault=swap-heads,a=2,b=3 "$rank1"
	tells 2 'there is no head 0' mutate -n --fault=swap-heads,a=0,b=1 "$rank1"
}

@test "mutate refuses what cannot be" {
	tells 4 'swap-kv needs keys and values' mutate -n --fault=swap-kv "$mla"
	tells 4 'needs a conv state of several parts' mutate -n --fault=conv-parts "$nhd"
	tells 3 'would not change any live element' mutate -n --fault=zero-block,block=0 "$nhd"
	tells 4 '480 KiB|900 KiB|slice' mutate -n --fault=swap-kv --mem-limit=900k "$nhd"
}

@test "mutate refuses a fault that makes no sense" {
	local fault
	for fault in swap-head 'swap-heads,c=1' 'swap-heads,a' 'swap-heads,a=x' \
		'swap-heads,a=1,b=1' 'swap-heads,a=9' 'scale,factor=0' 'scale,factor=nan' \
		'swap-kv,layer=9' 'swap-kv,block=99' 'stale-block,block=99' 'shift-tokens,by=0' \
		'swap-heads,a=99999999999999999999' '' , 'swap-heads,a=1,b=0,a=2' \
		'swap-kv,layer=1,layer=2' 'scale,factor=2,factor=3'; do
		run -2 --separate-stderr kvtool mutate -n --fault="$fault" "$nhd"
		[ -n "$stderr" ]
	done
	tells 2 "did you mean 'swap-heads'" mutate -n --fault=swap-head "$nhd"
	tells 2 'block is given twice' mutate -n --fault=swap-kv,block=1,block=1 "$nhd"
	tells 2 'expected --fault' mutate -n "$nhd"
	tells 2 '--fault is too long' mutate -n --fault="swap-kv,block=$(printf '%0250d' 1)" "$nhd"
	tells 2 'expected an output' mutate --fault=swap-kv "$nhd"
}

@test "mutate replaces nothing without --force, and never its input" {
	cp "$nhd" "${nhd%.npy}.json" .
	echo old >out.npy
	run -5 --separate-stderr kvtool mutate --fault=swap-kv -o out.npy "$nhd"
	[ "$(cat out.npy)" = old ]
	run -0 kvtool mutate -qf --fault=swap-kv -o out.npy "$nhd"
	run -2 --separate-stderr kvtool mutate -f --fault=swap-kv -o packed_nhd.bf16.npy packed_nhd.bf16.npy
	cmp packed_nhd.bf16.npy "$nhd"
}
