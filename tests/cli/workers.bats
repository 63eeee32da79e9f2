#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of run
# workers.bats - kvtool workers: what it prints and refuses
# (the counts themselves: tests/oracle_workers.py)

load common

# refused STATUS TEXT LINE...: a log of these lines is refused with this text
refused() {
	printf '%s\n' "${@:3}" >log
	warns "$1" "$2" workers log
}

two='{"workers": 2}'

@test "requests that all have finished with" {
	printf '%s\n' "$two" '{"step": 1, "worker": 0, "finished_recving": ["a"]}' '' \
		'{"step": 2, "worker": 1, "finished_recving": ["a"], "invalid_block_ids": [7, 3]}' >log
	expect 0 workers-sound workers log
	printf '%s' "$(cat log)" >open_end
	run -0 kvtool workers open_end
}

@test "every problem is named, and the status is 1" {
	printf '%s\n' "$two" \
		'{"step": 1, "worker": 0, "finished_sending": ["late", "twice", "twice"]}' \
		'{"step": 2, "output": false}' \
		'{"step": 2, "worker": 1, "finished_sending": ["late"], "invalid_block_ids": [5]}' \
		'{"step": 3, "worker": 1, "finished_sending": ["twice"], "invalid_block_ids": [6]}' \
		'{"step": 3, "aggregated": {"finished_recving": ["ghost"], "invalid_block_ids": [9]}}' >log
	expect 1 workers-problems workers log
	kvtool workers --json log >answer 2>/dev/null || true
	[ "$(json '[p["problem"] for p in o["problems"]]' <answer)" = \
		"['repeated', 'lost', 'lost', 'exceeded', 'invented', 'invented', 'lost', 'incomplete', 'incomplete']" ]
	[ "$(json 'o["workers"], o["steps"], len(o["finished"])' <answer)" = '(2, 3, 1)' ]
}

@test "a malformed line is named by its number" {
	refused 3 'line 2: ' "$two" '{"step": 1, '
	refused 3 "line 2: unknown key 'finished_sendng'" "$two" \
		'{"step": 1, "worker": 0, "finished_sendng": ["a"]}'
	refused 3 'line 3: step is missing' "$two" '' '{"worker": 0}'
	refused 3 'worker is 2, expected less than 2' "$two" '{"step": 1, "worker": 2}'
	refused 3 'has an empty id' "$two" '{"step": 1, "worker": 0, "finished_sending": [""]}'
	refused 3 'invalid_block_ids is -1' "$two" \
		'{"step": 1, "worker": 0, "invalid_block_ids": [-1]}'
	refused 3 'output is not false' "$two" '{"step": 1, "output": true}'
	refused 3 'expected a worker' "$two" '{"step": 1}'
}

@test "lines in an order that could not have been" {
	refused 3 'expected the number of workers first' '{"step": 1, "worker": 0}'
	refused 3 'the number of workers is missing' ''
	refused 3 'given twice' "$two" "$two"
	refused 3 'line 3: steps are not' "$two" '{"step": 2, "worker": 0}' '{"step": 1, "worker": 0}'
	refused 3 'line 3: workers of a step' "$two" '{"step": 1, "worker": 1}' '{"step": 1, "worker": 0}'
	refused 3 'line 3: the line with output' "$two" '{"step": 1, "worker": 0}' '{"step": 1, "output": false}'
	refused 3 'line 3: a step continues' "$two" '{"step": 1, "aggregated": {}}' '{"step": 1, "worker": 0}'
}

@test "the rank whose output is used" {
	said='{"step": 1, "worker": 0, "output": false}'
	other='{"step": 1, "worker": 1, "finished_recving": ["A"]}'
	printf '%s\n' "$two" "$said" "$other" >log
	run -1 --separate-stderr kvtool workers log
	[[ $stderr == *"worker 1 reports it in a step without output"* ]]
	[[ $stderr == *"output_rank is not in the first line"* ]]
	printf '%s\n' '{"workers": 2, "output_rank": 0}' "$said" "$other" >log
	run -1 --separate-stderr kvtool workers --json log
	[[ $stderr == *"in a step without output"* && $stderr != *output_rank* ]]
	[ "$(json 'o["output_rank"], [p["problem"] for p in o["problems"]]' <<<"$output")" = \
		"(0, ['lost'])" ]
	printf '%s\n' '{"workers": 2, "output_rank": 1}' "$said" "$other" >log
	run -1 --separate-stderr kvtool workers log
	[[ $stderr == *"AssertionError: a worker has no output"* ]]
	refused 3 'output_rank is 2' '{"workers": 2, "output_rank": 2}'
	# lines that wait for that rank have their own numbers
	refused 3 'line 2: worker is 3' '{"workers": 2}' '{"step": 1, "worker": 3}'
	refused 3 'line 3: workers of a step' '{"workers": 3, "output_rank": 2}' \
		'{"step": 1, "worker": 1}' '{"step": 1, "worker": 0}' '{"step": 2, "worker": 2}'
}

@test "a request that no worker ever names" {
	printf '%s\n' "$two" '{"step": 1, "scheduler_output": {"scheduled_new_reqs": [{"req_id": "x", "block_ids": [[1]]}, {"req_id": "y", "block_ids": [[2]]}], "scheduled_cached_reqs": {"req_ids": [], "new_block_ids": [], "resumed_req_ids": []}}}' \
		'{"step": 1, "worker": 0}' '{"step": 2, "worker": 0, "finished_recving": ["y"]}' \
		'{"step": 2, "worker": 1, "finished_recving": ["y"]}' >log
	shows 0 'log: no worker names 1 of 2 new requests: ' workers log
	run -1 --separate-stderr kvtool workers --await=finished_recving log
	[[ $stderr == *"finished_recving of 'x': awaited since step 1, and no report"* ]]
	[[ $stderr != *"'y'"* ]]
	run -1 --separate-stderr kvtool workers --json --await=finished_sending log
	[ "$(json '[(p["problem"], p["request"]) for p in o["problems"]], o["unnamed"]' <<<"$output")" = \
		"([('none', 'x'), ('none', 'y')], [{'step': 1, 'request': 'x'}])" ]
	run -2 kvtool workers --await=sending log
	refused 3 "unknown key 'finished_sendng'" "$two" '{"step": 1, "awaited": {"finished_sendng": ["a"]}}'
}

@test "a request that finished sending and receiving in one step" {
	both='"finished_sending": ["a"], "finished_recving": ["a"]'
	printf '%s\n' "$two" "{\"step\": 1, \"worker\": 0, $both}" "{\"step\": 1, \"worker\": 1, $both}" >log
	run -1 --separate-stderr kvtool workers log
	[[ $stderr == *"step 1: 'a' has finished sending and receiving in one step"* ]]
	printf '%s\n' "$two" "{\"step\": 1, \"worker\": 0, $both}" \
		'{"step": 2, "worker": 1, "finished_sending": ["a"]}' \
		'{"step": 3, "worker": 1, "finished_recving": ["a"]}' >log
	run -0 kvtool workers log
}

@test "logs that cannot be read" {
	run -5 kvtool workers missing
	run -5 kvtool workers .
	run -2 kvtool workers
	(echo "$two"; head -c 17000000 /dev/zero | tr '\0' ' ') >long
	tells 3 'line 2: is longer than 16 MiB' workers long
}
