#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# transfer_views.bats - transfer-sim sweep, compare, calibrate; refusals of these,
# of emit and of report (what those write: tests/oracle_sim_emit.py, oracle_sim_views.py)

load common
load dumps

measured=$root/testdata/measured

sim() { kvtool transfer-sim "$@"; }

# refused STATUS TEXT ARG...: nothing is printed, and the sentence has TEXT
refused() { tells "$1" "$2" transfer-sim "${@:3}"; }

# ---- sweep -------------------------------------------------------------------

@test "transfer-sim sweep says that different TP breaks nhd and blshc" {
	sim sweep -m llama-3.1-70b --tps=4:8 >out
	grep -q '^bhlsc is fastest: 1,024 operations, most of which end at a block\. Different TP breaks nhd, blshc (a run ends at a slot: 1 of 2 heads of a source rank move)\.$' out
	grep -q '^bhlsc  .* 1024 .* 640 MiB .* 1 \* block$' out
	sim sweep -m llama-3.1-70b --tps=8:4 --link=vllm-nixl-rc >out
	grep -q 'Different TP breaks .*nhd.*(a run ends at a [a-z]*: 1 of 2 heads of a destination rank move)' out
}

@test "transfer-sim sweep says that different block sizes break hnd and bhlsc" {
	sim sweep -m llama-3.1-8b --block-sizes=16:64 --layouts=nhd,hnd,blshc,bhlsc >out
	grep -q '^nhd is fastest: 4,096 operations, .*\. Different block sizes break hnd, bhlsc (a run ends at a head: 16 of 64 slots of a destination block go together)\.$' out
	sim sweep -m llama-3.1-8b --block-sizes=16:64 --tps=1:2 --layouts=nhd,hnd,blshc,bhlsc \
		--link=vllm-nixl-rc | grep -q 'where both differ no layout here keeps its runs whole'
}

@test "transfer-sim sweep says that orders differ, or that nothing does" {
	sim sweep -m llama-3.1-8b --layouts=nhd,hnd --cross >out
	grep -q ' Different orders of axes break nhd to hnd, hnd to nhd' out
	# one head a rank: the layouts are the same
	sim sweep -m llama-3.1-8b --tps=8 --layouts=nhd,hnd | grep -qx 'All are equally fast\.'
}

@test "transfer-sim sweep counts what plan counts, and its time is the closed form" {
	sim sweep -m llama-3.1-8b --block-sizes=16,16:64 --scopes=layer,rfc,max --json >out
	[ "$(jq '.rows | length' out)" = 36 ]
	for layout in nhd lhbsc bhlsc; do
		sim -m llama-3.1-8b --src="layout=$layout" --dst=block-size=64 --json |
			jq -c '.groups[0].scopes | [.layer.ops, .rfc.ops, .max.ops]' >plan
		for scope in layer rfc max; do
			jq ".rows[] | select(.src_layout == \"$layout\" and .scope == \"$scope\"
				and .dst_block_size == 64) | .ops" out
		done | jq -s -c . | diff plan -
	done
	jq -e '.link as $l | all(.rows[]; (.ops * $l.op_ns / 1000) as $o |
		(.bytes / $l.rate_gbps / 1000) as $w |
		($l.setup_us + (($o * $o + $w * $w) | sqrt) - .time_ns / 1000 | fabs) < 0.01)' out
	jq -e '.rows as $r | all($r[]; . as $a | .pareto == (any($r[]; .ops <= $a.ops and
		.time_ns <= $a.time_ns and .copied_bytes <= $a.copied_bytes and
		(.ops < $a.ops or .time_ns < $a.time_ns or .copied_bytes < $a.copied_bytes))
		| not))' out
	jq -e '[.rows[].time_ns] | . == sort' out
}

@test "transfer-sim sweep stages through buffers" {
	sim sweep -m llama-3.1-70b --tps=4:8 --layouts=nhd --stage=4M --copy-rate=1000 \
		--link=vllm-nixl-rc --csv >out
	[ "$(wc -l <out)" = 3 ]
	# 80 MiB a pair in 4 MiB; 640 MiB are copied twice, 160 MiB and 80 MiB by a rank
	grep -q '^nhd,nhd,16,16,4,8,rfc,4194304,160,671088640,1342177280,' out
	wire=$((160 * 1048576 * 1000 / 40900)) copy=$((240 * 1048576 / 1000))
	time=$(awk -F, '/4194304/ { print $12 }' out)
	[ "$time" -ge $((wire + copy)) ]
	[ "$time" -le $((wire + copy + 2 * 20 * 5000)) ]
	refused 2 'a sweep takes --model or --spec, no dumps' sweep "$nhd" "$hnd"
	refused 2 '--tps has more than 32 items' sweep -m llama-3.1-8b \
		--tps="$(printf '2,%.0s' {1..33})"
	refused 2 '--tps is too long' sweep -m llama-3.1-8b --tps="$(printf '%01024d' 0)"
	refused 2 'go together' sweep -m llama-3.1-8b --stage=4M
}

@test "transfer-sim sweep posts what time posts" {
	local args=(-m llama-3.1-8b -t 300 --src ids=scatter) row
	sim sweep "${args[@]}" --tps=2,2:4 --layouts=nhd,hnd,blshc --sges=1,4 --json \
		--scopes=rfc,max,nixl,nixl-packed,mooncake --link=vllm-nixl-rc >out
	[ "$(jq '.rows | length' out)" = 60 ]
	jq -r '.rows[] | [.src_layout, .src_tp, .dst_tp, .scope, .sge, .ops, .time_ns,
		.refused // "-"] | @tsv' out >rows
	while IFS=$'\t' read -r layout src dst stack sge ops ns why; do
		row=("${args[@]}" --src "layout=$layout,tp=$src,ids=scatter" --dst "tp=$dst"
			--emulate="$stack" --sge="$sge" --link=vllm-nixl-rc)
		if [ "$why" = - ]; then
			sim time --json "${row[@]}" </dev/null | jq -e ".request.posted_ops == $ops and
				(.request.transfer_duration_ns - $ns | fabs) <= $ns / 100" >/dev/null
		else
			refused 3 "$why" time "${row[@]}" </dev/null
		fi || { echo "${row[@]}: $ops $why"; return 1; }
	done < <(awk 'NR % 3 == 1' rows)
	grep -q 'heads must be contiguous' rows
	# what is refused comes last, and beats nothing
	jq -e '[.rows[] | .refused != null] | . == sort' out
	jq -e '.rows | all(.[]; .refused == null or (.pareto | not))' out
	sim sweep -m llama-3.1-8b --scopes=mooncake --layouts=nhd --tps=1:2 | grep -qx 'All are refused\.'
	refused 2 "--scopes has 'all'" sweep -m llama-3.1-8b --scopes=rfc,all
	refused 2 "--sges has '0'" sweep -m llama-3.1-8b --sges=0
}

@test "transfer-sim compare says what differs" {
	sim sweep -m llama-3.1-8b --tps=4:8 --json >a
	sim sweep -m llama-3.1-8b --tps=4:8 --layouts=hnd,nhd --json --tokens=1024 >b
	run -0 sim compare a a
	[ -z "$output" ]
	run -1 --separate-stderr sim compare a b
	[[ $output == *'tokens: 2048 -> 1024 (0.5 times)'* ]]
	[[ $output == *'rows[nhd nhd 16 16 4 8 rfc 1 0].ops: 524288 -> 262144 (0.5 times)'* ]]
	[[ $output == *'rows[bhlsc bhlsc 16 16 4 8 rfc 1 0]: {'*' -> nothing'* ]]
	n=$(wc -l <<<"$output")
	said "$n values differ"
	run -1 --separate-stderr sim compare --json a b
	[ "$(jq '.differences | length' <<<"$output")" = "$n" ]
	# the order of rows is no difference
	jq '.rows |= reverse' a >c
	run -0 sim compare a c
	# but how many there are is, be they alike
	jq '.rows |= . + [.[0]]' a >c
	for pair in 'a c' 'c a'; do
		# shellcheck disable=SC2086 # two names
		run -1 --separate-stderr sim compare $pair
		[[ $output == 'rows['*nothing* ]]
		said '1 value differs'
	done
	jq '.rows |= . + [.[0] | .ops += 1]' a >c
	jq '.rows |= [.[0] | .ops += 1] + .' a >d
	run -0 sim compare c d
	sim -m llama-3.1-8b --json >plan
	sim -m llama-3.1-8b --src=layout=nhd --dst=layout=hnd --json >plan2
	run -1 --separate-stderr sim compare plan plan2
	[[ $output == *'groups[attn].scopes.rfc.ops: '* ]]
	refused 3 'one is a sweep' compare a plan
	refused 3 'no result of' compare a "$root/testdata/golden/transfer_cases.json"
	refused 2 'two JSON files' compare a
	refused 5 'cannot open' compare a nowhere
}

# ---- calibrate ---------------------------------------------------------------

# refits TABLE OVERLAP MEAN MOST MEAN MOST: errors of the fit and of the hold-out,
# in tenths of a percent, are no larger than those
refits() {
	sim calibrate "$measured/$1.csv" --overlap="$2" --json >out
	jq -e --argjson want "[$3, $4, $5, $6]" '[.error.mean, .error.most, .hold_out.mean,
		.hold_out.most] | map(. * 1000) | . as $got |
		all(range(4); $got[.] < $want[.] + 0.5 and $got[.] > $want[.] * 0.8 - 0.5)' out
	sim calibrate "$measured/$1.csv" >out
	[ "$(grep -c 'no link' out)" = 0 ]
}

@test "transfer-sim calibrate writes where its figures are from" {
	sim calibrate "$measured/fd-a.csv" --source='a shelf, in May' --name=shelf \
		--output=shelf.json
	[ "$(jq -r '.name, .source' shelf.json)" = "shelf
a shelf, in May" ]
	run -5 --separate-stderr sim calibrate "$measured/fd-a.csv" --output=shelf.json
	said shelf.json
	sim calibrate "$measured/fd-a.csv" --force --output=shelf.json
	[ "$(jq -r .source shelf.json)" != 'a shelf, in May' ]
}

@test "transfer-sim calibrate refits the five published tables" {
	refits fd-a 2 16 54 24 81
	refits lm-a inf 0.4 1.2 2 3
	refits ef-w inf 13 26 29 43
	refits nv2 4 4 7 5 10
	refits vm 4 35 64 53 97
}

# link OVERLAP SETUP OP RATE: the figures that 'out' has
figures() {
	jq -e --argjson want "[$2, $3, $4]" --arg k "$1" '.link | (.overlap | tostring) == $k and
		([.setup_us, .op_ns, .rate_gbps] | [., $want] | transpose |
		all(.[]; .[0] / .[1] - 1 | fabs < 0.001))' out
}

@test "transfer-sim calibrate finds the figures of the presets" {
	sim calibrate "$measured/fd-a.csv" --json >out
	figures 2 54.77 59.97 45.68
	sim calibrate "$measured/lm-a.csv" --json >out
	figures inf 45.82 91.99 12.26
	sim calibrate "$measured/nv2.csv" --json >out
	figures 4 1.613 700.2 24.17
}

@test "transfer-sim calibrate reads what benchmarks print" {
	# all made from one link: 50 us, 1 us an operation, 20 GB/s
	for tool in nixlbench tebench ib_write_bw ib_write_lat ucx_perftest vllm; do
		sim calibrate "$measured/$tool.log" --overlap=inf --json >out
		jq -e '.error.most < 0.0005' out
		jq -e '.link | (.rate_gbps / 20 - 1 | fabs) < 0.001' out
	done
	jq -e '.format == "vLLM" and (.rows | length) == 5' out
	# what vLLM says of posting is kept
	jq -e '.link | (.post_ns / 700 - 1 | fabs) < 0.001 and
		(.op_ns / 1000 - 1 | fabs) < 0.001' out
	sim calibrate "$measured/tebench.log" --json | jq -e '[.rows[].ops] | unique == [1, 128]'
	sim calibrate "$measured/tebench.log" --threads=4 --json --tolerance=100 |
		jq -e '[.rows[].ops] | unique == [4, 512]'
}

@test "transfer-sim calibrate writes a link that --link reads" {
	sim calibrate "$measured/fd-a.csv" -o rack.json --name='rack 7' >/dev/null
	sim sweep -m llama-3.1-8b --link=rack.json --json >a
	sim sweep -m llama-3.1-8b --link=cx7-400g-verbs --json >b
	jq -e '.link | .name == "rack 7" and .quality == "given" and .overlap == 2' a
	jq -s -e '.[0].rows[0].time_ns / .[1].rows[0].time_ns - 1 | fabs < 0.002' a b
	run -5 --separate-stderr sim calibrate "$measured/lm-a.csv" -o rack.json
	said 'exists; --force'
	run -1 --separate-stderr sim calibrate "$measured/vm.csv" -o none.json --tolerance=6
	said 'no link was written'
	[ ! -e none.json ]
}

@test "transfer-sim calibrate refuses what it cannot read" {
	echo nothing >f
	refused 3 'not the output of a known' calibrate f
	printf 'n,bytes,us\n1,2,3\n1,x,3\n' >f
	refused 3 'f:3: a column' calibrate f
	printf 'n,bytes,us\n1,2,-3\n' >f
	refused 3 'f:2: operations, bytes and time' calibrate f
	printf 'n,bytes,us\n1,2,inf\n' >f
	refused 3 'f:2: a column' calibrate f
	printf 'n,bytes,us\n1,2,3\n1,3,3\n' >f
	refused 3 '2 measurements' calibrate f
	echo 'Final: 1 2 3 4 5 6 7 8' >f
	refused 3 'the message size is missing' calibrate f
	echo 'Final: 1 2 3' >f
	refused 3 'f:1: a final line of ucx_perftest without its columns' calibrate f
	local line='KV Transfer metrics: Num successful transfers=4, Avg number of descriptors=3'
	echo "INFO 11-20 10:00:00 $line, Avg MB per transfer=2.0" >f
	refused 3 'f:1: a line of KV transfer metrics without time or MB' calibrate f
	{ echo n,bytes,us; seq 4097 | sed 's/$/,4096,9/'; } >f
	refused 3 'f:4098: more than 4096 measurements' calibrate f
	refused 2 'expected 1, 2, 4 or inf' calibrate f --overlap=3
	refused 2 'expected one file' calibrate
}

# ---- links, report, emit -------------------------------------------------------

@test "transfer-sim --link refuses what is no link" {
	local args=(sweep -m llama-3.1-8b)
	refused 2 "did you mean 'vllm-nixl-rc'" "${args[@]}" --link=vllm-nixl-rd
	refused 3 'never measured' "${args[@]}" --link=tcp-25g
	echo '{"overlap": 3, "setup_us": 1, "op_ns": 1, "rate_gbps": 1}' >l
	refused 3 "'overlap' is not" "${args[@]}" --link=l
	echo '{"overlap": 2, "setup_us": 1, "op_ns": 1}' >l
	refused 3 "no 'rate_gbps'" "${args[@]}" --link=l
	echo '{"overlap": 2, "setup_us": 1, "op_ns": -1, "rate_gbps": 1}' >l
	refused 3 "'op_ns' is not a number" "${args[@]}" --link=l
	echo '{"overlap": 2, "setup_us": 1, "op_ns": 1, "post_ns": 2, "rate_gbps": 1}' >l
	refused 3 'longer than the operation' "${args[@]}" --link=l
	echo '{"overlap": 2, "setup_us": 1, "op_ns": 1, "rate_gbps": 1, "quality": "guessed"}' >l
	refused 3 "there is no quality 'guessed'" "${args[@]}" --link=l
	printf '{"name": "%070d", "overlap": 2, "setup_us": 1, "op_ns": 1, "rate_gbps": 1}' 0 >l
	refused 3 "'name' is longer than" "${args[@]}" --link=l
	echo '{"overlap": "inf", "setup_us": 0, "op_ns": 0, "rate_gbps": null}' >l
	sim "${args[@]}" --link=l --json | jq -e '.rows[0].time_ns == 0'
	sim "${args[@]}" --link=list | grep -q '^cx7-400g-verbs .*published: '
}

@test "transfer-sim report and emit refuse what they cannot do" {
	refused 2 'nothing to write' report -m llama-3.1-8b
	refused 2 'needs --trace-out' report -m llama-3.1-8b --svg=a.svg --trace-max=9
	# of a window of 1 the next token needs nothing
	refused 3 'nothing moves' emit --format=nixlbench -t 5 \
		--spec=sliding-window:layers=1,heads=2,head-dim=8,window=1
	refused 2 "expected csv, jsonl" emit -m llama-3.1-8b --format=toml
	refused 2 'not ASCII' emit -m llama-3.1-8b --format=kvbench-yaml --matrix-file='a"b'
	sim report -m llama-3.1-8b --html=a.html
	refused 5 '--force' report -m llama-3.1-8b --html=a.html
	sim report -m llama-3.1-8b --html=a.html --force
	tp4=$kv/s260k/tp4/rank0.packed_hnd.bf16.safetensors
	sim report "$tp4" "$kv/s260k/paged_bs32/packed_nhd.bf16.npy" --html=b.html --trace-out=b.json
	jq -e '.traceEvents | length > 10' b.json
}
