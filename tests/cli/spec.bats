#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# spec.bats - the words of kvtool size, said of a dump to every other command

load common
load dumps

spec=gqa:layers=5,heads=4,head-dim=8
told=(--spec $spec --layout=nhd --dtype=bfloat16 --block-size=16)

# What packed_nhd holds, without a word of what it is.
bare() {
	tail -c +129 "$nhd" >bare.bin
}

@test "every command that reads dumps takes --spec" {
	local command without=
	[ "$(kvtool --list-commands | wc -l)" -gt 16 ]
	for command in $(kvtool --list-commands); do
		kvtool "$command" --list-options >options
		grep -qx -e --spec options || without+=" $command"
	done
	[ "$(tr " " "\n" <<<"$without" | sort | xargs)" = "bench prefix reduce why workers" ]
}

@test "a spec stands for layers, heads and content" {
	bare
	kvtool describe --json "${told[@]}" bare.bin >spec
	kvtool describe --json --layers=5 --heads=4 --head-dim=8 --layout=nhd --dtype=bfloat16 \
		--block-size=16 bare.bin >numbers
	cmp spec numbers
	# the block size may stand in it, too
	kvtool describe --json --spec $spec,block-size=16 --layout=nhd --dtype=bfloat16 bare.bin >spec
	cmp spec numbers
}

@test "each command does its work from a spec" {
	bare
	local data
	data=$(array "$nhd" | sha256sum)
	run -0 kvtool digest --scope=blocks "${told[@]}" bare.bin
	[[ $output == kvd1:blocks:2fa29c9119798910a820130433af43cf* ]]
	kvtool convert -q "${told[@]}" bare.bin out.npy
	[ "$(array out.npy | sha256sum)" = "$data" ]
	kvtool relayout -q --to=hnd "${told[@]}" -o hnd.npy bare.bin
	same_array hnd.npy "$hnd"
	shows 0 'layer=0,block=0,slot=0,head=0,kv=k,dim=0' where --offset=0 "${told[@]}" bare.bin
	run -0 kvtool slice --heads=1 -o part.npy --spec $spec --layout=nhd --dtype=bfloat16 \
		--block-size=16 bare.bin
	run -0 kvtool reblock --block-size=32 -o big.h5 --spec $spec --layout=nhd \
		--dtype=bfloat16 --tokens-per-block=16 bare.bin
	run -0 kvtool merge -o one.h5 "${told[@]}" bare.bin
	run -0 kvtool copy-blocks --blocks=1:2 -o copy.npy "${told[@]}" bare.bin bare.bin
	run -0 kvtool mutate --fault=flip-bits -o bad.npy "${told[@]}" bare.bin
	run -1 kvtool diff --by=blocks "${told[@]}" bare.bin bad.npy
	run -0 kvtool fsck "${told[@]}" bare.bin
	run -0 kvtool expect write -o bare.kvc "${told[@]}" bare.bin
	run -0 kvtool expect check "${told[@]}" bare.kvc bare.bin
	shows 0 'looks like LBSHC' guess --spec $spec --dtype=bfloat16 --block-size=16 bare.bin
}

@test "every spec that size prints describes bytes of that size" {
	local config page layers words n=0
	for config in "$root"/testdata/config/*.json; do
		kvtool size --json --apart --tp=1 --block-size=256 "$config" >answer
		json '"\n".join("%d %d %s" % (h["unpadded_bytes"] if "dsv4" not in h["spec"] else
			h["page_bytes"], g["layers"], h["spec"]) for r in o["sizes"] if not r["error"]
			for g, h in zip(o["groups"], r["groups"]))' <answer
	done | sort -u >specs
	[ "$(wc -l <specs)" -gt 60 ]
	while read -r page layers words; do
		rm -f pages.bin
		truncate -s $((page * layers * 3)) pages.bin
		case $words in
		*-conv*) args=(--layout=conv-sd) ;;
		*-ssm* | linear-attention*) args=(--layout=ssm) ;;
		mla* | *mla* | dsv4* | indexer*) args=(--layout=mla) ;;
		*) args=(--layout=nhd) ;;
		esac
		case $words in
		*ssm*elem=2*) args+=(--dtype=bfloat16) ;;
		*elem=4* | *ssm* | dsv4-*compressor*) args+=(--dtype=float32) ;;
		*elem=1* | fp8-ds* | indexer* | dsv4-indexer*) args+=(--dtype=uint8) ;;
		dsv4*bf16*) args+=(--dtype=bfloat16) ;;
		dsv4*) args+=(--dtype=uint8) ;;
		*) args+=(--dtype=bfloat16) ;;
		esac
		[[ $words == *block-size* || $words == *-conv* || $words == *ssm* ||
			$words == linear* ]] || args+=(--block-size=256)
		run -0 kvtool describe --spec "$words" "${args[@]}" pages.bin
		[[ $output == *"memory    L $layers "*" B 3 "* ]] || { echo "$words: $output"; return 1; }
		n=$((n + 1))
	done <specs
	[ $n -gt 60 ]
}

@test "parts of states, planes and padding follow from a spec" {
	truncate -s $((64 * 3 * 2)) conv.bin
	kvtool describe --json --layout=conv-sd --dtype=bfloat16 conv.bin \
		--spec mamba2-conv:layers=1,heads=4,head-dim=8,groups=1,state-size=16,kernel=4 >answer
	[ "$(json '[(c["name"], c["start"], c["length"]) for c in o["groups"][0]["components"]]' \
		<answer)" = "[('x', 0, 32), ('B', 32, 16), ('C', 48, 16)]" ]
	# planes cannot be cut: a block is one slot
	truncate -s 8448 rows.bin
	tells 3 'give --block-size' describe --spec nvfp4:layers=1,heads=2,head-dim=128 \
		--layout=mla --dtype=uint8 rows.bin
	kvtool describe --json --spec indexer:layers=1 --layout=mla --dtype=uint8 rows.bin >answer
	[ "$(json 'o["groups"][0]["slots"], o["groups"][0]["block_size"]' <answer)" = \
		"(1, 64)" ]
	truncate -s 32832 pages.bin
	kvtool describe --json --spec dsv4-compressor-c4:layers=1 --layout=mla --dtype=float32 \
		pages.bin >answer
	[ "$(json 'o["groups"][0]["page_bytes"]' <answer)" = 32832 ]
}

@test "a dump that is not what the spec says" {
	bare
	kvtool convert -q "$nhd" in.h5
	run -0 kvtool digest --spec $spec in.h5
	tells 3 'in.h5|heads are 4, expected 2' digest --spec gqa:heads=2,head-dim=8 in.h5
	tells 3 'elements of a slot are 16, expected 32' digest --spec gqa:heads=4,head-dim=16 in.h5
	tells 3 'layers are 5, expected 4' digest --spec gqa:layers=4,heads=4,head-dim=8 in.h5
	tells 3 'tokens of a block are 16, expected 32' digest --spec $spec,block-size=32 in.h5
	tells 3 'bytes of an element are 2, expected 1' digest --spec $spec,elem=1 in.h5
	tells 3 'heads are 4, expected 2' digest --spec gqa:heads=2,head-dim=8 "$nhd"
	tells 3 'heads are 2, expected 4' digest --heads=2 "${told[@]}" bare.bin
	tells 2 "there is no kind 'gqx'" digest --spec gqx "$nhd"
	tells 3 'gqa needs head_dim' digest --spec gqa:heads=4 "$nhd"
}

@test "a rank is held to its share" {
	run -0 kvtool digest --spec $spec "$rank1"
	kvtool convert -q "$rank1" in.h5
	run -0 kvtool digest --spec $spec in.h5
	tells 3 'heads are 2, expected 4' digest --spec gqa:heads=8,head-dim=8 in.h5
}

@test "a spec tells a connector folder how many heads it has" {
	local folder=$kv/s260k/connector/shared_storage_2025
	tells 3 'give --heads or --head-dim' digest --from=vllm-2025 --block-size=16 "$folder"
	kvtool digest --from=vllm-2025 --block-size=16 --heads=4 "$folder" >heads
	kvtool digest --from=vllm-2025 --block-size=16 --spec $spec "$folder" >spec
	cmp heads spec
	# slice has another use for --heads
	tells 3 '--spec' slice --heads=1 --block-size=16 -o part.npy "$folder"
	run -0 kvtool slice --heads=1 --block-size=16 -o part.npy --spec $spec "$folder"
}
