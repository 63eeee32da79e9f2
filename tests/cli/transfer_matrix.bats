#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# transfer_matrix.bats - kvtool transfer-sim matrix: lists, statuses, refusals
# (what every row says: tests/oracle_matrix.py)

load common
load dumps

matrix() { kvtool transfer-sim matrix "$@"; }
tiny=(--spec=gqa:layers=1,heads=4,head-dim=8)

# pairs ARG...: "pairs equal differ refused"
pairs() { matrix --json "$@" | jq -r '"\(.pairs) \(.equal) \(.differ) \(.refused)"'; }

# tried ARG...: the pairs, as "source>destination"
tried() {
	matrix --json "$@" | jq -r '.rows[] |
		"\(.src_layout)/\(.src_block_size)/\(.src_tp)>\(.dst_layout)/\(.dst_block_size)/\(.dst_tp)"'
}

@test "one command carries out 576 pairs of each kind of cache" {
	local spec=gqa:layers=2,heads=4,head-dim=8
	[ "$(pairs --spec=$spec)" = "576 576 0 0" ]
	[ "$(pairs --spec=mla:layers=2,latent=24)" = "576 576 0 0" ]
	[ "$(pairs --spec=sliding-window:"${spec#*:}",window=70)" = "576 576 0 0" ]
	[ "$(pairs --spec=$spec --spec=sliding-window:"${spec#*:}",window=33 --conv=sd \
		--spec=mamba2-conv:layers=2,heads=8,head-dim=8,groups=4,state-size=8,kernel=4 \
		--spec=mamba2-ssm:layers=2,heads=8,head-dim=8,state-size=8)" = "576 576 0 0" ]
	[ "$(pairs --conv=ds --spec=gdn-ssm:layers=1,heads=8,head-dim=8,key-dim=4 \
		--spec=gdn-conv:layers=1,heads=8,head-dim=8,key-heads=4,key-dim=4,kernel=4)" \
		= "576 576 0 0" ]
}

@test "lists of --src and --dst are every choice of their values" {
	[ "$(tried "${tiny[@]}" --src=tp=1,2)" = "hnd/16/1>hnd/16/1
hnd/16/1>hnd/16/2
hnd/16/2>hnd/16/1
hnd/16/2>hnd/16/2" ]
	# what --dst does not say is that of --src, all of its values
	[ "$(tried "${tiny[@]}" --src=tp=1,2 --dst=layout=nhd)" = "hnd/16/1>nhd/16/1
hnd/16/1>nhd/16/2
hnd/16/2>nhd/16/1
hnd/16/2>nhd/16/2" ]
	[ "$(tried "${tiny[@]}" --dst=bs8,bs24,tp2)" = "hnd/16/1>hnd/8/2
hnd/16/1>hnd/24/2" ]
	# words alone, and layouts with commas of their own
	diff <(tried "${tiny[@]}" --src=tp1,tp2,nhd,bhlsc,bs8) \
		<(tried "${tiny[@]}" --src=block_size=8,layout=nhd,bhlsc,tp=1,2)
	[ "$(tried "${tiny[@]}" --src=layout=rfc:0,1,2,3,4,nhd,tp=2 | wc -l)" = 4 ]
	[ "$(tried "${tiny[@]}" --src=tp=1,2,ids=reverse --dst=pool=99,ids=random:3 | wc -l)" = 4 ]
}

@test "a dump is carried out whole, as it is or made anew" {
	[ "$(pairs --dst=tp=1,2,4,hnd,bs24 "$nhd")" = "3 3 0 0" ]
	[ "$(tried --dst=tp=2 "$nhd")" = "nhd/16/1>nhd/16/2" ]
	[ "$(pairs --src=tp=1,2,bs12,bs32 "$kv"/s260k/tp2/rank[01].packed_nhd.bf16.safetensors)" \
		= "16 16 0 0" ]
	[ "$(pairs --request=A --cached=30 --dst=tp=2,bs24 "$nhd")" = "1 1 0 0" ]
	matrix --json --dst=tp=1,2,bhlsc "$nhd" | jq -e --arg d "$(value tokens "$nhd")" \
		'all(.rows[]; .digest == $d) and .tried_layers == null'
	tells 3 "is one of 2 ranks, expected all of them, got 1 file" \
		transfer-sim matrix "$rank1"
	tells 2 "--tokens is what dumps say themselves" transfer-sim matrix -t 4 "$nhd"
	tells 2 "--try-layers is of models" transfer-sim matrix --try-layers=1 "$nhd"
}

@test "a wrong byte in a pair ends with status 1 and is in its line" {
	run -1 --separate-stderr kvtool transfer-sim matrix --corrupt-op=0 "${tiny[@]}" \
		--src=tp=1,2
	[ "$(grep -c 'differs: g0: rank .* expected 0x' <<<"$output")" = 4 ]
	grep -q '^4 pairs: 0 equal, 4 differ, 0 refused$' <<<"$output"
	one_sentence
	said '4 of 4 pairs differ; the first is hnd,bs16,tp1 to hnd,bs16,tp1: g0: rank 0'
	run -1 --separate-stderr kvtool transfer-sim matrix -q --corrupt-op=0 "$nhd"
	[ -z "$output" ]
}

@test "what is refused is a line with its reason" {
	run -0 kvtool transfer-sim matrix "${tiny[@]}" --src=tp=2,3
	[ "$(grep -c 'refused: tp=3: g0: 4 heads cannot be divided' <<<"$output")" = 3 ]
	grep -q '^4 pairs: 1 equal, 0 differ, 3 refused$' <<<"$output"
	matrix --json "${tiny[@]}" --src=tp=2,3 | jq -e '.rows[1] |
		.verdict == "refused" and .ops == 0 and .digest == null and (.why | startswith("tp=3"))'
	# status 0 means that something was tried
	shows 3 '1 of 1 pairs are refused' transfer-sim matrix "${tiny[@]}" --src=tp=3
	shows 3 'raise --mem-limit' transfer-sim matrix "${tiny[@]}" --mem-limit=8M --dst=pool=99999
	tells 4 'blocks of nvfp4 are planes' transfer-sim matrix \
		--spec=nvfp4:layers=1,heads=4,head-dim=64
}

@test "lists that are none are refused before anything is tried" {
	tells 2 '--src says tp twice: several values go between commas, as in tp=1,2' \
		transfer-sim matrix "${tiny[@]}" --src=tp=1,tp=2
	tells 2 "expected KEY=VALUE" transfer-sim matrix "${tiny[@]}" --src=tp=1,wrong
	tells 2 '--dst' transfer-sim matrix "${tiny[@]}" --dst=layers=3
	tells 2 '--src: tp' transfer-sim matrix "${tiny[@]}" --src=tp=1,0
	tells 2 'pairs, expected at most 65536' transfer-sim matrix "${tiny[@]}" \
		--src=bs"$(seq -s,bs 1 32)",tp"$(seq -s,tp 1 9)"
	tells 2 'more than 32 values of tp' transfer-sim matrix "${tiny[@]}" \
		--src=tp="$(seq -s, 1 33)"
	tells 2 'expected a model' transfer-sim matrix
}

@test "compare tells what changed between two matrices" {
	matrix --json "${tiny[@]}" --src=tp=1,2 >a.json
	kvtool transfer-sim compare a.json a.json
	run -1 --separate-stderr kvtool transfer-sim matrix --json --corrupt-op=0 \
		"${tiny[@]}" --src=tp=1,2
	echo "$output" >b.json
	run -1 --separate-stderr kvtool transfer-sim compare a.json b.json
	grep -q '"equal" -> "differs"' <<<"$output"
}

@test "results do not depend on the number of threads" {
	diff <(matrix --threads=1 "${tiny[@]}") <(matrix --threads=3 "${tiny[@]}")
}
