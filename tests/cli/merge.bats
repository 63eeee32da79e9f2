#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# merge.bats - kvtool merge: options, refusals and what is left behind
# (every byte, also of replicas that differ: tests/oracle_slice.py)

load common
load dumps

tp4=$kv/s260k/tp4
ds4=$kv/mamba2g4/tp4_DS

# ranks N ENDING [OPTION...]: rank0 to rank(N-1) of the dump in nhd
ranks() {
	local n=$1 ending=$2 r
	for ((r = 0; r < n; r++)); do
		kvtool slice -q --tp-size "$n" --tp-rank $r "${@:3}" -o rank$r."$ending" "$nhd"
	done
}

@test "merge of the ranks is the whole, in any order" {
	run -0 kvtool merge --verify -o out.npy "$tp4"/rank{2,0,3,1}.packed_hnd.bf16.safetensors
	[[ $output == *"verified equal"* ]]
	same_array out.npy "$hnd"
	same_digest out.npy "$hnd"
}

@test "merge of recurrent states" {
	run -0 kvtool merge -o out.npy "$ds4"/rank{3,2,1,0}.npy
	same_array out.npy "$kv/mamba2g4/tp1_DS/rank0.npy"
	same_digest out.npy "$kv/mamba2g4/tp1_DS/rank0.npy"
}

@test "merge moves tiles undecoded" {
	ranks 4 h5
	shows 0 '40 of 40 tiles copied undecoded' merge -o out.h5 rank?.h5
	run -0 kvtool describe --verify out.h5
	same_digest out.h5 "$nhd"
}

@test "merge of replicas takes each head once" {
	ranks 8 npy
	run -0 kvtool merge --verify -o out.npy rank?.npy
	same_array out.npy "$nhd"
}

@test "merge refuses replicas that differ and names where" {
	ranks 8 npy
	printf '\x55' | dd of=rank5.npy bs=1 seek=30000 conv=notrunc status=none
	run -1 --separate-stderr kvtool merge --trust-manifest -o out.npy rank?.npy
	one_sentence
	said rank4.npy rank5.npy 'head 2' layer block slot dim
	[ ! -e out.npy ]
}

@test "merge refuses a rank that is missing or there twice" {
	ranks 4 h5
	tells 3 'rank 2' merge -o out.h5 rank0.h5 rank1.h5 rank3.h5
	tells 3 'rank 3' merge -o out.h5 rank0.h5 rank1.h5 rank2.h5
	cp rank1.h5 twin.h5
	tells 3 'rank1.h5|twin.h5|rank 1' merge -o out.h5 rank0.h5 rank1.h5 twin.h5 rank2.h5
	tells 3 '' merge -o out.h5 "$nhd" "$hnd"
	only rank{0,1,2,3}.h5 twin.h5
}

# changed WORDS COMMAND...: rank 1 made with COMMAND does not go with rank 0
changed() {
	local IFS=,
	# shellcheck disable=SC2206	# words
	local words=($1)
	shift
	unset IFS
	rm -f rank1.*
	"$@"
	run -3 --separate-stderr kvtool merge -o out.h5 rank0.npy rank1.npy
	one_sentence || { echo "$*: $stderr"; return 1; }
	said rank0.npy rank1.npy "${words[@]}"
	[ ! -e out.h5 ]
}

# edited CODE: rank 1, whose manifest 'o' is changed
edited() {
	kvtool slice -q --tp-size 2 --tp-rank 1 -o rank1.npy "$nhd"
	edit rank1.json "$1"
}

@test "merge refuses ranks of different dumps and names both files" {
	kvtool slice -q --tp-size 2 --tp-rank 0 -o rank0.npy "$nhd"
	part() {
		kvtool slice -q --tp-size 2 --tp-rank 1 "$@" -o rank1.npy "$nhd"
	}
	changed 'layer extent' part --layers 0:4
	changed 'block extent' part --blocks 0:47
	changed 'requests' part --request A --request B
	changed 'layer names' edited 'o["layer_names"][2] = "other"'
	changed 'tokens,421,420' edited 'o["num_tokens"]["A"] = 420'
	changed 'block table' edited 'o["block_table"]["C"][0] = 38'
	changed 'request' edited 'o["block_table"]["E"] = o["block_table"].pop("C"); o["num_tokens"]["E"] = o["num_tokens"].pop("C")'
	changed 'element type' edited 'o["dtype"] = "float16"'
	changed 'null block' edited 'o["null_block"] = 3'
	changed 'model' edited 'o["model"] = "other"'
	changed 'pp size' edited 'o["pp_size"] = 2'
	changed 'window' edited 'o["window"] = 64; o["kind"] = "full_attention"'
	changed 'kind' edited 'o["kind"] = "cross"'
	changed 'live slots' edited 'o["block_valid"][20] = 3'
	changed 'block ids' edited 'o["block_ids"] = list(range(48))'
	changed 'one of 3,one of 2' edited 'o["tp_size"] = 3; o["total_kv_heads"] = 6; o["head_start"] = 2'
}

@test "merge refuses parts of heads" {
	kvtool slice -q --tp-size 2 --tp-rank 0 -o rank0.h5 "$nhd"
	kvtool slice -q --tp-size 2 --tp-rank 1 -o whole1.h5 "$nhd"
	kvtool slice -q --heads 3:4 -o rank1.h5 whole1.h5
	tells 3 'rank1.h5|3 to 3|2 to 3' merge -o out.h5 rank0.h5 rank1.h5
	[ ! -e out.h5 ]
}

@test "merge refuses channels with a gap" {
	cp "$ds4"/rank*.{npy,json} .
	sed -i 's/"global_B": \[272, 288\]/"global_B": [280, 296]/' rank1.json
	tells 3 'rank0.npy|rank1.npy|part B|272|280' merge -o out.npy rank?.npy
}

@test "merge keeps parts that are parts in all ranks" {
	ranks 2 h5 --layers 1:3 --request B
	run -0 kvtool merge --verify -o out.h5 rank?.h5
	run -0 kvtool slice --layers 1:3 --request B -o part.h5 "$nhd"
	same_digest out.h5 part.h5
}

@test "merge --dry-run and --json" {
	shows 0 'and 3 more' merge --dry-run -o out.npy "$tp4"/*.safetensors
	only
	run -0 kvtool merge --json -o out.npy "$tp4"/*.safetensors
	[ "$(json "(o['done'], len(o['inputs']))" <<<"$output")" = '(True, 4)' ]
}

@test "merge does not write over an input" {
	ranks 2 h5
	tells 2 'rank1.h5' merge -f -o rank1.h5 rank0.h5 rank1.h5
}

@test "merge needs files and a place to write" {
	tells 2 '' merge -o out.h5
	tells 2 '-o' merge "$rank1"
	tells 5 'missing.h5' merge -o out.h5 "$rank1" missing.h5
	only
}
