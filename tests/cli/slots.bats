#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# slots.bats - what was called a state before it had a name of its own: old words hold

load common
load dumps

# renamed OLD=NEW...: the JSON in answer has both, in the same objects, with one value
renamed() {
	/usr/bin/python3 - "$@" <<'END'
import json, sys
def objects(x):
    if isinstance(x, dict):
        yield x
    for y in x.values() if isinstance(x, dict) else x if isinstance(x, list) else ():
        yield from objects(y)
every = list(objects(json.load(open("answer"))))
for words in sys.argv[1:]:
    old, new = words.split("=")
    have = [o for o in every if old in o or new in o]
    assert have, words
    assert all(old in o and new in o and o[old] == o[new] for o in have), words
END
}

@test "JSON has the fields of slots under their old names, too" {
	kvtool describe --json "$nhd" >answer
	renamed states=slots tokens_per_state=tokens_per_slot valid_states=valid_slots
	kvtool describe --json --peek=layer=1,block=2 "$nhd" >answer
	renamed state=slot
	kvtool where --json --offset=330104 "$nhd" >answer
	renamed state=slot
	tail -c +129 "$nhd" >bare.bin
	kvtool guess --json --layers=5 --block-size=16 --heads=4 --head-dim=8 --dtype=bf16 \
		bare.bin >answer
	renamed live_states=live_slots
	kvtool transfer-sim --json "$nhd" "$hnd" >answer
	renamed states=slots block_states=block_slots
	kvtool reblock --json -n -b 64 -o out.npy "$nhd" >answer
	renamed stale_states=stale_slots stale_states_kept=stale_slots_kept \
		shared_states_copied=shared_slots_copied
	kvtool mutate --json -n --fault=swap-heads "$nhd" >answer
	renamed state=slot states=slots
	kvtool mutate -q --fault=swap-heads -o bad.npy "$nhd"
	kvtool diff --json "$nhd" bad.npy >answer || [ $? -eq 1 ]
	renamed state=slot
	kvtool transfer-sim exec --json --dst=layout=hnd -o new.npy "$nhd" >answer
	renamed states=slots
}

@test "what was called a state before it was a slot is still understood" {
	for key in slot state; do
		kvtool where --at=layer=3,block=17,$key=5,head=2,kv=v,dim=4 "$nhd" |
			sed 1d >"$key"
		kvtool describe --peek=layer=3,block=17,$key=5,head=2,kv=v "$nhd" >"$key.peek"
		kvtool mutate -n --fault=swap-heads-${key}s,way=1 "$nhd" >"$key.fault"
	done
	cmp slot state
	grep -q 'slot=5' state
	cmp slot.peek state.peek
	cmp slot.fault state.fault
	grep -q ': swap-heads-slots,way=1: ' state.fault

	printf 'kvtool-contract 1\ngroup g0\nstates = 16\ntokens_per_state = 1\n' >old.kvc
	run -0 kvtool expect check old.kvc "$nhd"
	[ "$output" = "$nhd: matches old.kvc (2 clauses)" ]
	printf 'kvtool-contract 1\ngroup g0\nstates = 16\nslots = 16\n' >both.kvc
	tells 3 'slots is given twice' expect check both.kvc "$nhd"
	printf 'kvtool-contract 1\ngroup g0\nstates = 32\n' >wrong.kvc
	run -1 kvtool expect check wrong.kvc "$nhd"
	run -0 kvtool describe --expect states=16 --expect tokens_per_state=1 \
		--expect slots=16 "$nhd"
}
