#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Numbers are checked by tests/oracle_describe.py; here is what is printed.
load common

@test "describe shows a plain dump" {
	expect 0 describe-nhd describe $data/packed_nhd.bf16.npy
}

@test "describe shows planes, tuples and tables on request" {
	expect 0 describe-aiter describe -v --tuples --names $data/aiter_shuffle.bf16.npy
	expect 0 describe-tables describe -v --tuples --block-tables \
		testdata/kv/gqa64/paged_bs16/packed_hnd.bf16.npy
}

@test "describe shows latent content and its parts" {
	expect 0 describe-mla describe -v testdata/kv/mla144/paged_bs16/mla_lbsc.bf16.npy
}

@test "describe shows the share of a tensor-parallel rank" {
	expect 0 describe-tp4 describe -v \
		testdata/kv/s260k/tp4/rank1.packed_hnd.bf16.safetensors
}

@test "describe shows both groups of a page with recurrent states" {
	expect 0 describe-mamba describe -v testdata/kv/mamba2g4/tp2_SD/rank1.npy
}

@test "describe --stats prints a line per layer, head and component" {
	run -0 kvtool describe --stats testdata/kv/gqa64/paged_bs16/packed_nhd.bf16.npy
	[ "$(grep -c '^ *[0-9]* *[0-9] keys ' <<<"$output")" = 8 ]
	[ "$(grep -c '^ *[0-9]* *[0-9] values ' <<<"$output")" = 8 ]
}

@test "describe --json is one object; several are one a line" {
	kvtool describe --json $data/packed_nhd.bf16.npy >one
	[ "$(head -2 one)" = '{
  "kvtool_json": 2,' ]
	[ "$(json 'o["groups"][0]["layout"]' <one)" = LBSHC ]
	kvtool describe --json $data/packed_nhd.bf16.npy $data/packed_hnd.bf16.npy >two
	[ "$(wc -l <two)" = 2 ]
	[ "$(tail -1 two | json 'o["groups"][0]["layout"]')" = LBHSC ]
}

@test "--expect-layout: held, failed, and by another name" {
	kvtool describe -j --expect-layout=hnd $data/packed_hnd.bf16.npy
	kvtool describe -j --expect-layout=vllm:0,1,2,3,4 $data/packed_hnd.bf16.npy
	kvtool describe -j --expect layout=LBHNC $data/packed_hnd.bf16.npy
	run -1 --separate-stderr kvtool describe --expect-layout=hnd \
		$data/packed_nhd.bf16.npy
	[[ $stderr == "kvtool describe: $data/packed_nhd.bf16.npy: g0: layout is LBSHC "*", expected LBHSC (hnd)" ]]
}

@test "--expect-layout takes what puts every byte in the same place" {
	# one head: where H stands does not matter
	rank=testdata/kv/s260k/tp4/rank1.packed_hnd.bf16.safetensors
	kvtool describe --expect-layout=nhd $rank >/dev/null
	run -1 kvtool describe --expect-layout=blshc $rank
	run -1 kvtool describe --expect-layout=head-halves $rank
}

@test "--expect: fields of the file, of every group, of one group" {
	file=testdata/kv/mamba2g4/tp2_SD/rank1.npy
	kvtool describe --expect model=mamba2g4 --expect parallel.tp_size=2 \
		--expect layers=3 --expect ssm.dtype=float32 \
		--expect conv.dtype=bfloat16 --expect window=null $file >/dev/null
	run -1 --separate-stderr kvtool describe --expect dtype=float32 $file
	[[ $stderr == *": conv: dtype is bfloat16, expected float32" ]]
	run -1 --separate-stderr kvtool describe -j --expect predicates.head_run=yes \
		--expect layers=4 $data/packed_nhd.bf16.npy
	[ "${#stderr_lines[@]}" = 2 ]
}

@test "--expect: what makes no sense" {
	run -2 --separate-stderr kvtool describe --expect colour=red $data/packed_nhd.bf16.npy
	[ "$stderr" = "kvtool describe: --expect colour: there is no such field; see kvtool-json(5)" ]
	run -2 --separate-stderr kvtool describe --expect dtype $data/packed_nhd.bf16.npy
	[ "$stderr" = "kvtool describe: --expect is 'dtype', expected KEY=VALUE" ]
	run -2 kvtool describe --expect-layout=hdn $data/packed_nhd.bf16.npy
	run -3 kvtool describe --expect-layout=0,1,3,2,4 $data/packed_nhd.bf16.npy
}

@test "a hint that contradicts the manifest is refused" {
	run -3 --separate-stderr kvtool describe --layout=hnd $data/packed_nhd.bf16.npy
	[ -z "$output" ]
	run -3 kvtool describe --heads=8 $data/packed_nhd.bf16.npy
	local pages=testdata/kv/mamba2g4/tp2_SD/rank1.npy
	run -3 --separate-stderr kvtool describe --layout=conv-ds $pages
	[[ $stderr == *": --layout is conv-ds (LBDS), but group conv has conv-sd (LBSD)" ]]
	run -3 --separate-stderr kvtool describe --spec=gqa:heads=4,head-dim=8 $pages
	[[ $stderr == *": --spec is gqa:heads=4,head-dim=8, but none of its 2 groups is that" ]]
}

@test "options of one group fill it, or are held against it" {
	local two=testdata/engines/lmcache/fs_meta_2groups
	kvtool digest --heads=4 $two >all
	kvtool digest --of-group=g0:heads=4 --of-group=g1:heads=4,head-dim=8 $two | cmp - all
	kvtool describe --heads=4 --of-group=g1:heads=2 $two >other
	grep -q 'H 2 x D 16' other
	run -3 --separate-stderr kvtool describe --heads=4 --of-group=g1:head-dim=16 $two
	[[ $stderr == *": --head-dim is 16, but group g1 has 8" ]]
	run -3 --separate-stderr kvtool describe --heads=4 --of-group=g2:heads=4 $two
	[[ $stderr == *": --heads is 4, but there is no group g2" ]]
	run -3 --separate-stderr kvtool describe --heads=4 --of-group=g1:content-size=8 $two
	[[ $stderr == *": --content-size is 8, but group g1 has none" ]]
	local said
	for said in g1 g1: :heads=4 g1:heads g1:heads= g1:heads=4,heads=4 g1:heds=4 \
		g1:skip=4 g1:of-group=g1 g1:heads=4, "g1:layout=$(printf %0300d 0)"; do
		run -2 --separate-stderr kvtool describe --heads=4 --of-group="$said" $two
		[[ $stderr == *"--of-group "* || $stderr == *"--heads is ''"* ]]
	done
}

@test "without a manifest nothing is guessed" {
	cp $data/packed_nhd.bf16.npy alone.npy
	run -3 --separate-stderr kvtool describe alone.npy
	[ -z "$output" ]
	kvtool describe --layout=nhd --dtype=bfloat16 alone.npy >/dev/null
}

@test "several files: the others are described, the highest status wins" {
	run -5 --separate-stderr kvtool describe nofile $data/packed_nhd.bf16.npy
	[ "$stderr" = "kvtool describe: nofile: cannot open: No such file or directory" ]
	[[ $output == *LBSHC* ]]
	run -1 kvtool describe --expect-layout=hnd $data/packed_nhd.bf16.npy \
		$data/packed_hnd.bf16.npy
}

@test "a snapshot describes itself as its source does" {
	kvtool convert -q $data/packed_hnd.bf16.npy copy.h5
	fields='[o["groups"][0][k] for k in ("kind", "dtype", "layout", "layers",
		"blocks", "slots", "heads", "kv", "dim", "block_size", "total_heads",
		"data_bytes", "memory", "layer_names", "blocks_used")], o["requests"]'
	kvtool describe -j --block-tables $data/packed_hnd.bf16.npy | json "$fields" >a
	kvtool describe -j --block-tables copy.h5 | json "$fields" >b
	diff a b
	[ "$(kvtool describe -j copy.h5 | json 'o["groups"][0]["content_cells"]')" = True ]
}

@test "describe --verify counts tiles and cells" {
	kvtool convert -q $data/packed_hnd.bf16.npy copy.h5
	run -0 --separate-stderr kvtool describe --verify copy.h5
	[[ $output =~ verified\ +[0-9]+\ tiles,\ 0\ damaged\;\ 1920\ content\ cells,\ 0\ differ ]]
	[ -z "$stderr" ]
}

@test "describe never needs a writable folder" {
	cp -RL $data ro
	chmod -R a-w ro
	kvtool describe --stats --verify ro/packed_nhd.bf16.npy >/dev/null
	chmod -R u+w ro
}

@test "--canonical: the tensor that all layers share, or why not" {
	expect 0 describe-canonical describe --canonical-layout=bhlsc \
		testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy
	run -0 kvtool describe --canonical testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy
	[ "${lines[-1]}" = '  canonical does not apply: blocks_not_outermost' ]
	run -0 kvtool describe --canonical testdata/kv/mamba2g4/tp1_SD/rank0.npy
	[[ ${lines[-1]} == *'does not apply: non_attention_group, '* ]]
	run -0 kvtool describe --canonical --json --expect canonical.applies=true \
		testdata/kv/s260k/paged_bs16/packed_blshc.bf16.npy
	run -2 kvtool describe --canonical-layout=nonsense testdata/kv/s260k/paged_bs16/packed_nhd.bf16.npy
	run -0 kvtool describe testdata/kv/s260k/paged_bs16/packed_blshc.bf16.npy
	[[ $output != *canonical* ]]
}

@test "an expectation that fails comes before the description" {
	run -1 kvtool describe --expect-layout=hnd --expect=heads=3 $data/packed_nhd.bf16.npy
	[[ ${lines[0]} == "kvtool describe: "*": g0: layout is LBSHC "*", expected LBHSC (hnd)" ]]
	[[ ${lines[1]} == *": g0: heads is 4, expected 3" ]]
	[ "${lines[2]}" = "$(kvtool describe $data/packed_nhd.bf16.npy | head -n 1)" ]
	# of one that is wrong there is nothing else
	run -2 --separate-stderr kvtool describe --expect=head=4 $data/packed_nhd.bf16.npy
	[ -z "$output" ]
}

@test "--fit: what another type would lose, and what is not possible" {
	gqa=$kv/gqa64/paged_bs16/packed_nhd.bf16.npy
	shows 0 'fit       fp8: holds; g0: scales 0.0119 to 0.0282, rel-l2 0.0263|q4_0/plain: holds;|became 0; worst layer 2 head 1 0.10' \
		describe --fit=fp8,q4_0/plain "$gqa"
	run -0 kvtool describe --fit=fp8=0.02 "$gqa"
	[[ $output == *"does not hold"*"above 0.02: 8 of 8 keys and values of layers"* ]]
	run -0 kvtool describe --fit=q8_0/plain "$kv/s260k/paged_bs16/packed_nhd.bf16.npy"
	[[ $output == *"q8_0/plain: not of this cache: g0: head vectors of 8 numbers"* ]]
	run -2 kvtool describe --fit=fp9 "$gqa"
	kvtool describe --json --fit=fp8 "$gqa" | jq -e '.fit[0].groups[0].heads[0].holds'
}
