#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash and run
# transfer_replay.bats - kvtool transfer-sim replay and faults: traces, refusals
# (times and figures: tests/oracle_replay.py)

load common
load dumps

model=('--spec=mla:layers=2,latent=8')

replay() { kvtool transfer-sim replay "${model[@]}" "$@"; }

refused() { tells "$1" "$2" transfer-sim "${@:3}"; }

# bad TEXT LINE...: a trace of these lines is refused, and the sentence has TEXT
bad() {
	local text=$1
	shift
	printf '%s\n' "$@" >trace
	refused 3 "$text" replay "${model[@]}" --trace=trace
}

good='{"timestamp": 7, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}'

@test "replay: what is wrong in a trace has its line" {
	bad 'trace:2: 1 hash_ids, expected 2' "$good" "${good/, 2\]/]}"
	bad 'trace:3: 6 ms is before' "$good" "$good" "${good/: 7/: 6}"
	bad "trace:2: there is no 'timestamp'" "$good" "${good/timestamp/time}"
	bad 'trace:2:' "$good" "${good%?}"
	bad 'trace:1:' "${good/600/-1}"
	bad 'trace:1:' "${good/600/1e3}"
	bad 'trace:1:' "${good/\[1/[-1}"
	bad 'trace:1:' "${good/7/99999999999999}"
	bad 'trace:2:' "$good" ''
	bad 'trace:1: neither a JSON object nor the header' 'a,b,c'
	bad "trace:3: expected 't,bytes,tokens'" t,bytes,tokens 1,2,3 1,2
	bad 'trace:2:' t,bytes,tokens 1,2,-3
	bad 'trace:2:' t,bytes,tokens 1,2,3,4
	bad 'trace:2:' t,bytes,tokens nan,2,3
	bad 'there is no request' t,bytes,tokens
	local event='{"timestamp": "2026-11-20T10:00:00", "event_type": "wait", "data": {}}'
	bad 'there is no request' "$event"
	bad "trace:2: expected an 'event_type'" "$event" "${event/T10/T24}"
	bad "trace:2: expected an 'event_type'" "$event" "${event/event_type/type}"
	bad "trace:2: there is no 'token_ids'" "$event" "${event/wait/request}"
	local get='"request_type": "GET", "request_id": 1, "token_ids": [1, 2], "slot_mapping": [1]'
	get=${event/{\}/{$get\}} get=${get/wait/request}
	bad 'trace:2: slots for 3 tokens' "$get" "${get/: \[1\]/: [1, 2, 3]}"
	bad 'trace:3: 0 ms is before' "$get" "${get/:00\"/:05\"}" "$get"
	bad 'trace:2: a request without tokens' "$get" "${get/: \[1, 2\]/: []}"
	bad "trace:2: request_id is -1" "$get" "${get/: 1,/: -1,}"
	local launch=${event/{\}/'{"task_ids": [1, 2], "slot_mappings": [[]]}'}
	bad 'trace:2: 2 tasks and 1 slot_mappings' "$event" "${launch/wait/launch_tasks}"
	local log='INFO 11-20 10:00:00 KV Transfer metrics: Num successful transfers=4, Avg MB per transfer=2.0'
	bad 'trace:2: no time such as' "$log" "${log/ 10:00:00/}"
	bad 'trace:2: its time is before' "$log" "${log/ 10:/ 09:}"
	bad 'trace:2: transfers without' "$log" "${log/=2.0/=-1}"
	bad 'trace:2: 4 transfers of 1e+300 MB are too many' "$log" "${log/=2.0/=1e300}"
	bad 'trace:2: 1e+18 transfers' "$log" "${log/=4,/=1e18,}"
	bad 'there is no request' "${log/=4/=0}"
	refused 5 'nowhere' replay "${model[@]}" --trace=nowhere
}

@test "replay: a trace is plain or zstd, JSON or CSV" {
	printf '%s\n' "$good" "${good/: 7/: 8}" >trace
	replay --json --trace=trace >plain
	[ "$(jq -c '[.num_requests, .tokens, .cached_tokens, .bytes]' plain)" = '[2,1200,600,19200]' ]
	/usr/bin/zstd -q trace -o packed
	replay --json --trace=packed | jq 'del(.trace)' | diff - <(jq 'del(.trace)' plain)
	head -c 40 packed >torn
	refused 3 'zstd' replay "${model[@]}" --trace=torn
	printf 't,bytes,tokens\n0,1000000,16\n0.5,0,32\n' >csv
	[ "$(replay --json --trace=csv --requests | jq -c '[.bytes, .requests[1].arrival_ns]')" = '[1000000,500000]' ]
}

@test "replay: a seed is a trace, and a trace is an output" {
	replay --json --synthetic=5,300 --requests >one
	replay --json --synthetic=5,300 --requests >two
	cmp one two
	replay --json --synthetic=6,300 --requests >two
	run ! cmp -s one two
	jq -e '.num_requests == 300 and .cached_tokens > 0 and .done == 300' one
	kvtool transfer-sim faults "${model[@]}" --json --synthetic=5,99 --drop=0.3 --seed=1 >one
	kvtool transfer-sim faults "${model[@]}" --json --synthetic=5,99 --drop=0.3 --seed=1 >two
	cmp one two
	kvtool transfer-sim faults "${model[@]}" --json --synthetic=5,99 --drop=0.3 --seed=2 >two
	run ! cmp -s one two
}

@test "replay: an objective that is missed ends with 1" {
	replay --synthetic=1,20 --slo=1000 >text
	grep -q '100.00 % of them were moved within 1000.000 ms' text
	run -1 --separate-stderr kvtool transfer-sim replay "${model[@]}" --synthetic=1,20 --slo=0.001
	said 'of the requests have a KV part of at most 0.001 ms, expected 99 %'
	replay --synthetic=1,20 --slo=0.001 --slo-percent=0 >text
}

@test "replay: the text has the labels of vLLM, in order" {
	replay --synthetic=1,20 | tr -d '\n' | grep -o '[A-Z][A-Za-z0-9 ]*\( ([a-zA-Z/]*)\)\?=' >labels
	diff labels - <<-'END'
		Num successful transfers=
		Avg xfer time (ms)=
		P90 xfer time (ms)=
		Avg post time (ms)=
		P90 post time (ms)=
		Avg MB per transfer=
		Throughput (MB/s)=
		Avg number of descriptors=
	END
}

@test "replay: long requests are as many blocks as time counts" {
	for tokens in 1 16 47 48 49 1000; do
		printf 't,bytes,tokens\n0,0,%s\n' $tokens >csv
		for how in ids=scatter,block-size=16 ids=contig,block-size=16; do
			local args=(-m gpt-oss-20b-hma --src "$how" --dst block-size=48)
			[ "$(kvtool transfer-sim replay --json "${args[@]}" --trace=csv |
				jq .vllm.avg_num_descriptors)" = \
				"$(kvtool transfer-sim time --json "${args[@]}" -t $tokens |
				jq '.request.num_descriptors + 0.0')" ]
		done
	done
}

@test "replay: a request alone takes what time says, however it is posted" {
	echo '{"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2]}' >one
	local args=(-m llama-3.1-8b --src layout=hnd --dst layout=nhd) how plain took
	# alone HOW...: its nanoseconds
	alone() {
		local ns
		ns=$(kvtool transfer-sim time --json "${args[@]}" -t 1000 "$@" |
			jq .request.transfer_duration_ns)
		[ "$(kvtool transfer-sim replay --json "${args[@]}" --trace=one "$@" |
			jq .kv_ttft_ns.mean)" = "$ns" ] || return 1
		echo "$ns"
	}
	plain=$(alone)
	for how in --sge=4 --threads=4 --rails=2 '--coalesce=full --merge-descending' \
		--slice=64 --op=100 --rate=9 --overlap-power=1; do
		# shellcheck disable=SC2086	# several options
		took=$(alone $how)
		[ "$took" != "$plain" ] || { echo "$how: still $took"; return 1; }
	done
	# a batch a request: its setup is all that this changes
	[ "$(alone --setup=3)" = $((plain - 54800 + 3000)) ]
	# 1000 x 32 x 8 operations, 8 of which are outstanding for 5 us
	[ "$(alone --window=8 --latency=5000)" -ge $((256000 * 5000 / 8)) ]
	# who posts, and how those share that are there together, is the same to one
	[ "$(alone --push)" = "$plain" ]
	[ "$(alone --share=fifo)" = "$plain" ]
}

@test "replay: of a chunk moves what is not full" {
	local chunks=(--spec=gqa:layers=1,heads=2,head-dim=8
		--spec=chunked-local:layers=3,heads=2,head-dim=8,window=96)
	moves() {
		kvtool transfer-sim --json "${chunks[@]}" -t "$1" | jq -c '[.groups[].slots]'
	}
	[ "$(moves 95)" = '[95,95]' ]
	[ "$(moves 96)" = '[96,0]' ]
	[ "$(moves 97)" = '[97,1]' ]
	[ "$(moves 8191)" = '[8191,31]' ]
	for tokens in 95 96 97 191 192 193 1000 8191; do
		printf 't,bytes,tokens\n0,0,%s\n' $tokens >csv
		[ "$(kvtool transfer-sim replay --json "${chunks[@]}" --trace=csv |
			jq .vllm.avg_num_descriptors)" = \
			"$(kvtool transfer-sim time --json "${chunks[@]}" -t $tokens |
			jq '.request.num_descriptors + 0.0')" ]
	done
}

@test "transfer-sim: of a window the next token needs all but one" {
	slots() {
		kvtool transfer-sim --json "--spec=$1:layers=1,heads=2,head-dim=8,window=$2" -t "$3" |
			jq .groups[0].slots
	}
	[ "$(slots sliding-window 128 127)" = 127 ]
	[ "$(slots sliding-window 128 128)" = 127 ]
	[ "$(slots sliding-window 128 8193)" = 127 ]
	[ "$(slots sliding-window 1 50)" = 0 ]
	[ "$(slots chunked-local 8192 8192)" = 0 ]
	# after its prompt an R-SWA request has all of it
	[ "$(slots rswa 8 50)" = 50 ]
	# a quantised form of a group is still what the group is
	[ "$(kvtool transfer-sim --json --cache-dtype=int8_per_token_head \
		--spec=chunked-local:layers=1,heads=2,head-dim=8,window=8 -t 15 |
		jq .groups[0].slots)" = 7 ]
}

@test "replay, faults: a wrong command line" {
	refused 2 'expected a trace: TRACE, --trace=FILE or --synthetic' replay -m llama-3.1-8b
	refused 2 'expected SEED,N' replay -m llama-3.1-8b --synthetic=1
	refused 2 'expected layers:G' replay -m llama-3.1-8b --synthetic=1,2 --overlap=4
	refused 2 'needs --push' replay -m llama-3.1-8b --synthetic=1,2 --overlap=layers:4
	refused 2 'contig, scatter or reverse' replay -m llama-3.1-8b --synthetic=1,2 --src ids=aged:3
	refused 2 'RAIL@T+D' faults -m llama-3.1-8b --synthetic=1,2 --nic-down=0@3
	refused 2 'rail below 1' faults -m llama-3.1-8b --synthetic=1,2 --nic-down=1@3+1
	refused 2 'from 0 to 1' faults -m llama-3.1-8b --synthetic=1,2 --drop=2
	refused 3 'one block size' replay -m llama-3.1-8b --synthetic=1,2 --emulate=mooncake --dst block-size=32
	refused 2 'expected one trace, got 2' replay -m llama-3.1-8b --synthetic=1,2 a b
	local own='requests of a trace have pools of their own: no dumps, pool or --cached'
	refused 2 "$own" replay -m llama-3.1-8b --synthetic=1,2 --cached=1
	refused 2 "$own" replay -m llama-3.1-8b --synthetic=1,2 --src=pool=9
	refused 2 "$own" faults -m llama-3.1-8b --synthetic=1,2 --dst=tp=2,pool=9
	refused 2 '--stage is of one transfer' replay -m llama-3.1-8b --synthetic=1,2 \
		--stage=1M --copy-rate=10
}
