#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# transfer_bad.bats - bad input of all modes of transfer-sim: status 3, one sentence
# (traces: transfer_replay.bats; what calibrate reads: transfer_views.bats)

load common
load dumps

golden=$root/testdata/golden
measured=$root/testdata/measured
mla=$kv/mla144/paged_bs16/mla_lbsc.bf16.npy

# What each mode needs beside the transfer.
declare -gA modes=(
	[plan]='' [time]='' [emit]='' [report]=--svg=out.svg [sweep]=--layouts=hnd
	[replay]=--synthetic=1,3 [faults]=--synthetic=1,3
)

# refused TEXT MODE ARG...: nothing is written or printed; a number that is none is 2
refused() {
	local expected=3
	[[ $1 != 'expected a whole number' ]] || expected=2
	run -$expected --separate-stderr kvtool transfer-sim "${@:2}" </dev/null && one_sentence &&
		[[ -z $output && ! -e out.svg ]] && said "$1"
}

# each TEXT MODES ARG...: in these modes, or in all but those behind a '-'
each() {
	local mode n=0
	for mode in "${!modes[@]}"; do
		[[ $2 == all || " $2 " == *" $mode "* ]] || continue
		# shellcheck disable=SC2086	# an option, or none
		refused "$1" "$mode" ${modes[$mode]} "${@:3}" ||
			{ echo "$mode ${*:3}: $status $stderr"; return 1; }
		n=$((n + 1))
	done
	[ $n -gt 3 ]
}

one=(--spec=mla:layers=1,latent=8)
placed='plan time emit report sweep'
dumps='plan time emit report'
linked='time report sweep replay faults'

@test "transfer-sim: sides that contradict each other" {
	each 'neither number divides the other' all -m llama-3.1-8b --src tp=3
	each 'expected 1 to 4096' all -m deepseek-r1 --src tp=2000000000
	each 'the source holds' "$dumps" "$nhd" "$mla"
	each 'several meanings' 'plan time emit report replay faults' -m llama-3.1-8b \
		--src layout=vllm:nhd
	each 'give --conv=sd or --conv=ds' all -m nemotron-h-8b
}

@test "transfer-sim: block ids" {
	each 'outside the pool' "$placed" "${one[@]}" --tokens=16 --src=pool=4,ids=list:4
	each 'is listed twice' "$placed" "${one[@]}" --tokens=32 --dst=ids=list:1:1
	each "'-1' is not a block id" "$placed" "${one[@]}" --tokens=16 --src=ids=list:-1
	each 'the request has 2' "$placed" "${one[@]}" --tokens=32 --src=ids=list:1
	each 'pool 1' "$placed" "${one[@]}" --tokens=32 --src=pool=1
	printf '1 2\nx\n' >ids
	each 'ids' "$placed" "${one[@]}" --tokens=48 --src=ids=file:ids
	printf '1 2 99999999999' >ids
	each 'ids' "$placed" "${one[@]}" --tokens=48 --src=ids=file:ids
}

@test "transfer-sim: sizes that are negative or absurd" {
	each 'expected a whole number' all -m llama-3.1-8b --src tp=-4
	each 'expected a whole number' all -m llama-3.1-8b --dst block-size=0
	each 'expected a whole number' all -m llama-3.1-8b --dst block-size=9223372036854775807
	each 'expected a whole number' "$placed" -m llama-3.1-8b --dst pool=-1
	each '--tokens is 9999999999999' "$placed" -m llama-3.1-8b --tokens=9999999999999
	each 'layers' all --spec=mla:layers=999999999999,latent=8
	each 'heads' all --spec=gqa:layers=1,heads=99999999,head-dim=8
	each '2^63' all --spec=gqa:layers=60000,heads=1048576,head-dim=1048576 \
		--src=block-size=1048576
	each 'at the destination already' "$placed" -m llama-3.1-8b --cached=4000
}

@test "transfer-sim: links and measurements that are damaged" {
	echo '{"overlap": 2, "setup_us": 1, "op_ns": 1e30, "rate_gbps": 1}' >l
	each "'op_ns' is not a number" "$linked" -m llama-3.1-8b --link=l
	echo '{"overlap": 2, "setup_us": 1, "op_ns": 1, "rate_gbps": 1' >l
	each "'}' expected" "$linked" -m llama-3.1-8b --link=l
	refused 'not the output of a known' calibrate "$golden/transfer_counts.csv"
	printf 'n,bytes,us\n1,2,3\n1,-2,3\n' >f
	refused 'f:3: operations' calibrate f
	refused 'no result of' compare "$golden/transfer_cases.json" "$golden/transfer_cases.json"
}
