#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of run
# size.bats - kvtool size: what it prints and refuses
# (the numbers themselves: tests/oracle_size.py, tests/golden_size.py)

load common

# refused STATUS TEXT JSON ARG...: a config of this text is refused with that one
refused() {
	printf '%s\n' "$3" >config.json
	tells "$1" "$2" size --tp=1 "${@:4}" config.json
}

# with KEY=VALUE...: a small llama with other facts
with() {
	local -A facts=([model_type]='"llama"' [num_hidden_layers]=2 [num_attention_heads]=4
		[num_key_value_heads]=2 [hidden_size]=64 [torch_dtype]='"bfloat16"')
	local order=(model_type num_hidden_layers num_attention_heads num_key_value_heads
		hidden_size torch_dtype) word text=
	for word; do
		[ "${facts[${word%%=*}]-}" ] || order+=("${word%%=*}")
		facts[${word%%=*}]=${word#*=}
	done
	for word in "${order[@]}"; do
		[ "${facts[$word]}" = '"absent"' ] || text+=", \"$word\": ${facts[$word]}"
	done
	printf '{%s}\n' "${text#, }"
}

nemotron=(mamba_num_heads=8 mamba_head_dim=16 ssm_state_size=8 n_groups=1 conv_kernel=4)
gdn=(full_attention_interval=2 linear_num_key_heads=2 linear_num_value_heads=2
	linear_key_head_dim=8 linear_value_head_dim=8 linear_conv_kernel_dim=4 head_dim=16)

@test "a model of one kind of layers" {
	expect 0 size-llama size --memory=40G --config testdata/config/llama-3.1-8b.json
}

@test "blocks of a hybrid are of a release, which is named" {
	hybrid=testdata/config/kimi-linear-48b.json
	shows 0 '--block-size=16 is FLASH_ATTN_MLA|in one pool of vLLM: none: its groups are known of release 0.32 alone|BLOCK: tokens in a block, by vLLM 0.26.' \
		size --tp=2 --cache-dtype=bfloat16 --release=0.26 "$hybrid"
	run -0 kvtool size --tp=2 --cache-dtype=bfloat16 --release=0.22 --block-size=16 "$hybrid"
	[[ "$output" != *"note: blocks grow"* ]]
	tells 2 "'0.25' is no release of vLLM whose facts are known" size --release=0.25 "$hybrid"
	run -0 kvtool size -m jamba-v0.1 --tp=1 --cache-dtype=bfloat16 --release=0.26 --json
	[ "$(jq -c '[.release, .state_chunk, .sizes[0].block_size]' <<<"$output")" = '["0.26",2048,2048]' ]
	run -0 kvtool size --spec=gqa:heads=8,head-dim=128 --spec=mamba1-conv:inter=8192,kernel=4 \
		--tp=1 --cache-dtype=bfloat16 --release=0.26
	[[ "$output" = *"grow by whole chunks in vLLM 0.26"* ]]
}

@test "a hybrid, a window, latents that no rank shares" {
	expect 0 size-hybrid size --tp=1,4 --tokens=100000 testdata/config/qwen3-next.json
	expect 0 size-window size --tp=1 --block-size=32 testdata/config/gpt-oss-20b.json
	expect 0 size-latents size --tp=1,8 --memory=80G --requests=4 \
		testdata/config/deepseek-v3.2.json
}

@test "--json has the same" {
	kvtool size --json --tp=2 --cache-dtype=auto --memory=1G testdata/config/jamba.json >answer
	[ "$(json 'o["family"], o["layers"], o["dtype"], o["memory"]' <answer)" = \
		"('jamba', 32, 'bfloat16', 1073741824)" ]
	[ "$(json '[(g["name"], g["spec"]) for g in o["groups"]]' <answer)" = \
		"[('conv', 'mamba1-conv:layers=28,inter=8192,state-size=16,kernel=4,elem=2'), ('ssm', 'mamba1-ssm:layers=28,inter=8192,state-size=16,kernel=4,elem=2'), ('full', 'gqa:layers=4,heads=8,head-dim=128')]" ]
	[ "$(json '[(r["tp"], r["cache_dtype"], r["block_size"], r["error"]) for r in o["sizes"]]' \
		<answer)" = "[(2, 'bfloat16', 80, None)]" ]
}

@test "every spec that is printed is taken elsewhere" {
	for config in testdata/config/*.json; do
		kvtool size --json --tp=1,2 --block-size=256 --cache-dtype=auto "$config" >answer
		json '"\n".join(g["spec"] for g in o["groups"] + o["sizes"][1]["groups"])' <answer >specs
		[ -s specs ]
		while read -r spec; do
			kvtool size --tp=1 --cache-dtype=bfloat16 --spec "$spec" >/dev/null
			kvtool transfer-sim --conv=ds --partial=whole --tokens=300 --src tp=1,block-size=256 \
				--dst tp=2 --spec "$spec" >/dev/null || { echo "$spec"; return 1; }
		done <specs
	done
}

@test "the sizes of specs are those of the config they come from" {
	config=testdata/config/qwen3-next.json
	args=(--json --tp=4 --cache-dtype=bfloat16 --tokens=5000)
	kvtool size "${args[@]}" $config >whole
	specs=()
	while read -r spec; do specs+=(--spec "$spec"); done < \
		<(json '"\n".join(g["spec"] for g in o["groups"])' <whole)
	[ "${#specs[@]}" = 6 ]
	kvtool size "${args[@]}" "${specs[@]}" >parts
	for key in block_size token_bytes state_bytes request_bytes; do
		[ "$(json "o['sizes'][0]['$key']" <whole)" = "$(json "o['sizes'][0]['$key']" <parts)" ]
	done
}

@test "transfer-sim takes all specs of a model at once, and types of a cache" {
	local args=(--tokens=300 --conv=ds --dst tp=2)
	local specs=(--spec gqa:layers=4,heads=8,head-dim=128
		--spec mamba1-conv:layers=28,inter=8192,kernel=4
		--spec mamba1-ssm:layers=28,inter=8192,state-size=16,elem=2)
	kvtool transfer-sim --json "${args[@]}" -m jamba-v0.1 >model
	kvtool transfer-sim --json "${args[@]}" "${specs[@]}" >specs
	[ "$(json '[g["group"] for g in o["groups"]]' <specs)" = "['g0', 'g1', 'g2']" ]
	cmp <(sed -e '/"model"/d' -e '/"group"/d' model) <(sed -e '/"model"/d' -e '/"group"/d' specs)
	# half the bytes of keys and values, and all of the states
	kvtool transfer-sim --json "${args[@]}" "${specs[@]}" --cache-dtype=fp8 >fp8
	bytes='[g["bytes"] for g in o["groups"]]'
	[ "$(json "(lambda b: [b[0] // 2] + b[1:])($bytes)" <specs)" = "$(json "$bytes" <fp8)" ]
	run -2 kvtool transfer-sim "${args[@]}" "${specs[@]}" --cache-dtype=float7
}

@test "transfer-sim takes a config.json as a model" {
	kvtool transfer-sim --json -m testdata/config/llama-3.1-70b.json --dst tp=8 >config
	kvtool transfer-sim --json -m llama-3.1-70b --dst tp=8 >preset
	sed -e 's/"model": .*/"model": "",/' -e 's/"group": "[a-z]*"/"group": ""/' config >a
	sed -e 's/"model": .*/"model": "",/' -e 's/"group": "[a-z]*"/"group": ""/' preset >b
	cmp a b
	run -5 kvtool transfer-sim -m missing/config.json
}

@test "models by name" {
	run -0 kvtool size -m list
	# every file, and not one that is not there
	diff <(printf '%s\n' "${lines[@]}" | cut -d ' ' -f 1 | sort -u) \
		<(cd "$root/models" && printf '%s\n' *.json | sed 's/\.json$//' | sort)
	[ "${#lines[@]}" -gt 20 ]
	kvtool size --json --tp=4 -m qwen3-next-80b-a3b >named
	kvtool size --json --tp=4 testdata/config/qwen3-next.json >config
	[ "$(json 'o["sizes"][0]["token_bytes"]' <named)" = 12288 ]
	for key in token_bytes state_bytes block_size unique_token_bytes; do
		[ "$(json "o['sizes'][0]['$key']" <named)" = "$(json "o['sizes'][0]['$key']" <config)" ]
	done
	tells 2 "did you mean 'qwen3-next-80b-a3b'?" size -m qwen3-nex-80b-a3b
	run -5 kvtool size -m missing/model.json
	tells 5 'missing: no folder of models is there' size -m llama-3.1-8b --models=missing
	run -2 kvtool size -m llama-3.1-8b testdata/config/llama-3.1-8b.json
	run -2 kvtool size -m llama-3.1-8b --set head_dim=64
}

@test "all requests, on a rank, in all and on disk" {
	local fleet=(-m llama-3.1-70b --tp=8 --requests=500 --tokens=128k)
	run -0 kvtool size "${fleet[@]}"
	# 2500 GiB of bfloat16 on a rank
	[ "${lines[1]}" = "500 requests: 2.44 TiB on each of 8 ranks, 19.5 TiB in all" ]
	run -2 kvtool size -m llama-3.1-70b --requests=500
	[[ $output == *"--requests needs the length of a request, --tokens=N, or the memory"* ]]
	tells 2 '--on-disk needs the length of a request' size -m llama-3.1-70b --on-disk=a.h5
	tells 3 'take more than 2^63 bytes$' size "${fleet[@]}" --requests=99999999999999

	load dumps
	kvtool convert -q "$nhd" whole.h5
	shows 3 '5 blocks that no request uses' size "${fleet[@]}" --on-disk=whole.h5
	PATH=${KVTOOL%/*}:$PATH bash -c "${output##*without them: }"
	kvtool size --json "${fleet[@]}" --on-disk=sample.h5 >answer
	# measured a second time: bytes of the array by those of the file
	local data file
	data=$(kvtool describe --json sample.h5 | json 'o["data_bytes"]')
	file=$(stat -c %s sample.h5)
	[ "$(json "o['sizes'][0]['on_disk_bytes'] - int(20000 * 2**30 / ($data / $file))" <answer)" = 0 ]
	[ "$(json 'o["sizes"][1]["on_disk_bytes"]' <answer)" = None ]	# of fp8
	run -0 kvtool size "${fleet[@]}" --on-disk=sample.h5
	[[ ${lines[1]} == *" in all; 1"*" TiB on disk, compressed as sample.h5 is (ratio 1."* ]]
	run -3 kvtool size "${fleet[@]}" --cache-dtype=fp8 --on-disk=sample.h5
	[[ $output == *"sample.h5 holds bfloat16, which does not tell"* ]]
	tells 3 'is not compressed|kvtool convert' size "${fleet[@]}" --on-disk="$nhd"
	run -4 kvtool size -m qwen3-next-80b-a3b --tokens=9 --on-disk=sample.h5
	[[ $output == *"the model has recurrent states"* ]]
	run -2 kvtool size --tokens=9 --on-disk=sample.h5 "$root/testdata/config/gemma-3-4b.gguf"
	run -5 kvtool size "${fleet[@]}" --on-disk=missing.h5
	# without requests nothing says which blocks are used, and that is said
	kvtool convert -q --layout=nhd --dtype=bfloat16 --block-size=16 --heads=4 --head-dim=8 \
		"$(cp "$nhd" bare.npy && echo bare.npy)" bare.h5
	run -0 kvtool size "${fleet[@]}" --on-disk=bare.h5
	[[ $output == *"note: bare.h5 has no requests: all of its blocks are taken to be in use"* ]]
}

@test "models by their ids on the hub" {
	while read -r id name; do
		cmp <(kvtool size --json -m "$id" | grep -v '"config"') \
			<(kvtool size --json -m "$name" | grep -v '"config"')
	done <<-EOF
		Qwen/Qwen3-8B qwen3-8b
		qwen/qwen3-8b-base qwen3-8b
		Qwen/Qwen3-30B-A3B-Instruct-2507 qwen3-30b-a3b
		meta-llama/Llama-3.1-8B llama-3.1-8b
		meta-llama/Llama-3.1-8B-Instruct llama-3.1-8b
		meta-llama/Meta-Llama-3.1-70B-Instruct llama-3.1-70b
		meta-llama/Llama-3.3-70B-Instruct llama-3.1-70b
		deepseek-ai/DeepSeek-V3.1 deepseek-v3
		deepseek-ai/DeepSeek-V3.2-Exp deepseek-v3.2
		openai/gpt-oss-20b gpt-oss-20b
	EOF
	# every row is of a model that is there, and its first id is understood
	sed -n 's/^\t{ "\([^"]*\)", "\([^"]*\)",.*/\1 \2/p' "$root/cli/model_ids.c" >ids
	[ "$(wc -l <ids)" -gt 25 ]
	while read -r name id; do [ -f "$root/models/$name.json" ] || { echo "$id"; return 1; }; done <ids
	kvtool transfer-sim --json -m Qwen/Qwen3-8B --dst tp=8 | grep -v '"model"' >a
	kvtool transfer-sim --json -m qwen3-8b --dst tp=8 | grep -v '"model"' | cmp a -
	# others of that name may have another cache
	for id in Qwen/Qwen3-8B-FP8 unsloth/Qwen3-8B Qwen/Qwen3-8B-Base-FP8; do
		tells 2 "there is no model '$id', did you mean 'qwen3-8b'?" size -m "$id"
	done
	tells 2 'give its config.json: --model=FILE$' size -m Qwen/Qwen3-32B
	# what lies here under that name is meant
	mkdir -p Qwen/Qwen3-8B && cp "$root/testdata/config/llama-3.1-8b.json" Qwen/Qwen3-8B/config.json
	[ "$(kvtool size --json -m Qwen/Qwen3-8B | json 'o["layers"]')" = 32 ]
}

@test "what --json prints is a model" {
	mkdir mine
	for config in gpt-oss-20b deepseek-v3.2 nemotron-h-8b; do
		kvtool size --json --tp=1,8 --tokens=9999 testdata/config/$config.json >mine/$config.json
		kvtool size --json --tp=1,8 --tokens=9999 -m $config --models=mine >again
		for key in dtype layers block_size groups sizes family; do
			[ "$(json "o['$key']" <again)" = "$(json "o['$key']" <mine/$config.json)" ]
		done
		[ "$(kvtool size -m list --models=mine | grep -c "^$config ")" = \
			"$(json 'len(o["groups"])' <again)" ]
	done
	kvtool transfer-sim --json -m gpt-oss-20b --models=mine >plan
	[ "$(json '[g["group"] for g in o["groups"]]' <plan)" = "['window', 'full']" ]
}

@test "lists of caches that are none" {
	local fine='"name": "a", "spec": "gqa:layers=1,heads=2,head-dim=8"'
	refused 3 'groups has 0 caches' '{"groups": []}'
	refused 3 'groups[0] has 464 layers, the model has 52' \
		'{"layers": 52, "groups": [{"name": "a", "spec": "gqa:layers=464,heads=1,head-dim=8"}]}'
	refused 3 'groups[0] is not an object' '{"groups": ["gqa"]}'
	refused 3 'groups[1] needs a name' "{\"groups\": [{$fine}, {\"name\": \"b\"}]}"
	refused 3 "groups[0]: there is no kind 'gqx'" '{"groups": [{"name": "a", "spec": "gqx"}]}'
	refused 3 "groups[0]: gqa: there is no key 'dim'" '{"groups": [{"name": "a", "spec": "gqa:dim=1"}]}'
	refused 3 "heads is '-1'" '{"groups": [{"name": "a", "spec": "gqa:layers=1,heads=-1"}]}'
	refused 3 "expected KEY=VALUE" '{"groups": [{"name": "a", "spec": "gqa:layers"}]}'
	refused 3 'groups[0] has 0 layers' '{"groups": [{"name": "a", "spec": "gqa:heads=1"}]}'
	refused 3 "dtype is 'float7'" "{\"groups\": [{$fine}], \"dtype\": \"float7\"}"
	refused 3 'groups is a string' '{"groups": "x"}'
	refused 3 'such as --cache-dtype' "{\"groups\": [{$fine}]}"
	refused 2 'not a config.json' "{\"groups\": [{$fine}]}" --as=llama
}

@test "types of a cache" {
	llama=testdata/config/llama-3.1-8b.json
	types=fp8,int8_per_token_head,nvfp4,int4_per_token_head,turboquant_k8v4
	kvtool size --json --tp=1 --cache-dtype=$types $llama >answer
	# 32 layers of 8 heads of 128 elements: 256, 264, 144, 136 and 196 bytes
	[ "$(json '[r["token_bytes"] // 256 for r in o["sizes"]]' <answer)" = \
		'[256, 264, 144, 136, 196]' ]
	run -2 kvtool size --cache-dtype=float7 $llama
	run -3 kvtool size --cache-dtype=fp8_ds_mla $llama
	run -3 kvtool size --cache-dtype=nvfp4 testdata/config/deepseek-v3.json
	run -3 kvtool size --cache-dtype=float32 testdata/config/deepseek-v4.json
	[[ $output == *"swa: a cache of float32 is unknown, expected bfloat16, fp8 or a form"* ]]
	run -3 kvtool size --cache-dtype=fp8_ds_mla -m deepseek-v4.1-flash
	[[ $output == *"is 528 bytes a row on SM100, 584 elsewhere: give fp8_ds_mla_528 or"* ]]
	run -3 kvtool size --cache-dtype=auto --spec gqa:heads=1,head-dim=8
}

@test "sizes over ranks that cannot be are named, and refused if asked for" {
	with num_attention_heads=12 num_key_value_heads=6 head_dim=64 >config.json
	shows 0 '6 cannot be divided evenly among 4 ranks' size config.json
	tells 3 'tp 4' size --tp=2,4 config.json
}

@test "facts by hand" {
	echo '{"model_type": "foo", "torch_dtype": "float16"}' >config.json
	facts=(--as=llama --set num_hidden_layers=3 --set num_key_value_heads=2 --set head_dim=64)
	kvtool size --json --tp=1 "${facts[@]}" config.json >answer
	[ "$(json 'o["sizes"][0]["token_bytes"]' <answer)" = 1536 ]
	kvtool size --json --tp=1 --as=llama --set 'layer_types=["full_attention"]' \
		--set num_key_value_heads=2 --set head_dim=64 config.json >answer
	[ "$(json 'o["layers"]' <answer)" = 1 ]
	refused 2 "expected KEY=VALUE" '{"model_type": "llama"}' --set novalue
	refused 4 "model_type 'foo' is not known" '{"model_type": "foo"}'
	refused 4 "model_type 'bar' is not known" "$(with)" --as=bar
}

# token ARG...: bytes of a token of config.json, with those of windows
token() {
	kvtool size --json --tp=1 --cache-dtype=auto "$@" config.json >answer
	json 'o["sizes"][0]["token_bytes"] + o["sizes"][0]["window_token_bytes"]' <answer
}

@test "--as never drops a key that concerns the cache" {
	local mla=(num_hidden_layers=61 num_key_value_heads=128 num_attention_heads=128
		hidden_size=7168 kv_lora_rank=512 qk_rope_head_dim=64 qk_nope_head_dim=128 v_head_dim=128)
	local no='may concern the cache, and the rules of' file key
	file=$(with 'model_type="mistral4"' "${mla[@]}")
	refused 4 "kv_lora_rank $no llama do not know it: give --as=FAMILY of another, \
--set=kv_lora_rank=null if it does not, or the caches with --spec" "$file" --as=llama
	refused 4 "kv_lora_rank $no qwen3" "$file" --as=qwen3
	[ "$(token --as=deepseek_v3)" = 70272 ]
	[ "$(token --as=llama --set=kv_lora_rank=null --set=qk_rope_head_dim=null)" = \
		$((61 * 128 * (56 + 128) * 2)) ]
	# of its own family, too
	refused 4 "kv_lora_rank $no glm4_moe" "$(with 'model_type="glm4_moe"' kv_lora_rank=512)"
	# the class of another family has no say in what is missing
	refused 3 'kv_lora_rank is missing, which deepseek_v3 needs' \
		"$(with 'model_type="new"')" --as=deepseek_v3
	with 'model_type="new"' >config.json
	[ "$(token --as=qwen3)" = $((2 * 2 * 16 * 2 * 2)) ]
	for key in sliding_window=512 mb_per_layer=2 mamba_d_state=16 heads_of_each=\[1\] \
		layer_group_size=4 global_head_dim=512; do
		refused 4 "${key%%=*} $no llama" "$(with 'model_type="new"' "$key")" --as=llama
	done
	with 'model_type="new"' sliding_window=512 use_sliding_window=false max_window_layers=1 \
		mb_per_layer=null rope_theta=1e6 'architectures=["New"]' moe_layer_freq=1 >config.json
	[ "$(token --as=llama)" = $((2 * 2 * 16 * 2 * 2)) ]
}

@test "keys that say heads, and layers without a cache, are understood" {
	local as=--as=llama half=$((2 * 16 * 2 * 2))
	with 'model_type="falcon"' 'num_key_value_heads="absent"' multi_query=true \
		new_decoder_architecture=false num_kv_heads=4 >config.json
	[ "$(token $as)" = $half ]
	with 'model_type="falcon"' 'num_key_value_heads="absent"' multi_query=true \
		new_decoder_architecture=true num_kv_heads=4 >config.json
	[ "$(token $as)" = $((4 * half)) ]
	refused 3 'multi_query is true, but num_key_value_heads is 2' \
		"$(with 'model_type="falcon"' multi_query=true)" $as
	with 'model_type="step3_text"' 'num_key_value_heads="absent"' num_attention_groups=1 \
		share_q_dim=32 >config.json
	[ "$(token $as)" = $half ]
	with 'model_type="hunyuan"' num_hidden_layers=4 use_cla=true cla_share_factor=2 >config.json
	[ "$(token $as)" = $((2 * half)) ]
	refused 3 'cla_share_factor is missing' "$(with 'model_type="hunyuan"' use_cla=true)" $as
	with 'model_type="mllama_text_model"' num_hidden_layers=4 'cross_attention_layers=[1, 3]' >config.json
	[ "$(token $as)" = $((2 * half)) ]
	[[ $(json 'o["notes"]' <answer) == *"2 layers of cross attention are not counted"* ]]
	refused 3 'cross_attention_layers is 4, expected 0 to 3' "$(with 'model_type="mllama"' \
		num_hidden_layers=4 'cross_attention_layers=[4]')" $as
	local one='{"attention": {"n_heads_in_group": 4}}' none='{"attention": {"no_op": true}}'
	local two='{"attention": {"n_heads_in_group": 2, "no_op": false}, "ffn": {}}'
	with 'model_type="nemotron-nas"' num_hidden_layers=4 'num_key_value_heads="absent"' \
		"block_configs=[$one, $none, $two, $one]" >config.json
	[ "$(token $as)" = $((2 * half)) ]
	[ "$(json '[(g["name"], g["layers"]) for g in o["groups"]]' <answer)" = \
		"[('full-1', 2), ('full-2', 1)]" ]
	refused 4 'block_configs: window_length of layer 1 may concern its cache' \
		"$(with 'model_type="nemotron-nas"' \
			"block_configs=[$one, {\"attention\": {\"n_heads_in_group\": 2, \"window_length\": 8}}]")" $as
	refused 3 'layer 0 has groups of 3 heads, of 4 query heads' "$(with 'model_type="nemotron-nas"' \
		"block_configs=[{\"attention\": {\"n_heads_in_group\": 3}}, $none]")" $as
	refused 3 'block_configs has 1 layers, but num_hidden_layers is 2' \
		"$(with 'model_type="nemotron-nas"' "block_configs=[$one]")" $as
	with 'model_type="mimo_v2_flash"' num_hidden_layers=3 head_dim=24 v_head_dim=16 \
		'hybrid_layer_pattern=[0, 1, 1]' sliding_window=8 swa_num_key_value_heads=4 \
		swa_head_dim=8 swa_v_head_dim=4 swa_num_attention_heads=4 >config.json
	[ "$(token $as)" = $(((2 * (24 + 16) + 2 * 4 * (8 + 4)) * 2)) ]
	refused 3 'layer_types and hybrid_layer_pattern contradict each other at layer 1' \
		"$(with 'model_type="new"' 'hybrid_layer_pattern=[0, 1]' sliding_window=8 \
			'layer_types=["full_attention", "full_attention"]')" $as
	refused 3 '1 recurrent layers, which llama has not' \
		"$(with 'model_type="new"' 'attn_type_list=[1, 0]')" $as
	# layers that draft tokens are in the list of words, and not counted
	with 'model_type="step3p5"' num_nextn_predict_layers=1 sliding_window=8 \
		'layer_types=["full_attention", "sliding_attention", "full_attention"]' >config.json
	[ "$(token $as)" = $((2 * half)) ]
}

@test "what a class has by default, and what null means" {
	with 'model_type="qwen3_moe"' >config.json
	[ "$(token)" = $((2 * 2 * 16 * 2 * 2)) ]
	with 'model_type="qwen3"' >config.json
	[ "$(token)" = $((2 * 2 * 128 * 2 * 2)) ]
	with 'model_type="qwen3"' head_dim=null >config.json
	[ "$(token)" = $((2 * 2 * 16 * 2 * 2)) ]
	with 'model_type="mistral"' 'num_key_value_heads="absent"' num_attention_heads=8 \
		hidden_size=128 >config.json
	[ "$(token)" = $((2 * 8 * 16 * 2 * 2)) ]
	with 'model_type="mistral"' num_key_value_heads=null >config.json
	[ "$(token)" = $((2 * 4 * 16 * 2 * 2)) ]
}

@test "a config that lacks something" {
	refused 3 'model_type is missing' '{}'
	refused 3 'num_hidden_layers is missing' "$(with 'num_hidden_layers="absent"')"
	refused 3 'num_attention_heads is missing' \
		"$(with 'num_key_value_heads="absent"' 'num_attention_heads="absent"')"
	refused 3 'sliding_window is missing' \
		"$(with 'layer_types=["full_attention", "sliding_attention"]')"
	refused 3 'max_window_layers is missing' \
		"$(with 'model_type="qwen2"' use_sliding_window=true)"
	refused 3 'mamba_d_state is missing' "$(with 'model_type="jamba"' attn_layer_period=2 \
		attn_layer_offset=0)"
	refused 3 'attn_layer_offset is missing' "$(with 'model_type="jamba"' attn_layer_period=2)"
	refused 3 'such as --cache-dtype' "$(with 'torch_dtype="auto"')"
	refused 3 'layers_block_type is missing, and hybrid_override_pattern too' \
		"$(with 'model_type="nemotron_h"')"
}

@test "a config that contradicts itself" {
	refused 3 'layer_types has 1 layers, but num_hidden_layers is 2' \
		"$(with 'layer_types=["full_attention"]')"
	refused 3 "layer 1 is 'lightning'" "$(with 'layer_types=["full_attention", "lightning"]')"
	refused 3 '1 recurrent layers, which llama has not' \
		"$(with 'layer_types=["full_attention", "mamba"]')"
	refused 3 'use_sliding_window is false' "$(with 'model_type="qwen3"' sliding_window=8 \
		use_sliding_window=false 'layer_types=["full_attention", "sliding_attention"]')"
	refused 3 'num_hidden_layers is 2, but 3 in text_config' \
		"$(with 'text_config={"model_type": "llama", "num_hidden_layers": 3}')"
	refused 3 'not a multiple of num_attention_heads' \
		"$(with num_attention_heads=3 num_key_value_heads=1)"
	refused 3 'are 512' "$(with 'model_type="mamba2"' num_heads=8 head_dim=64 state_size=8 \
		n_groups=1 conv_kernel=4 expand=2)"
	refused 3 "expected one of M*-E" "$(with 'model_type="nemotron_h"' \
		'hybrid_override_pattern="MX"')"
	refused 3 'contradict each other' "$(with 'model_type="nemotron_h"' \
		'hybrid_override_pattern="M*"' 'layers_block_type=["attention", "mamba"]')"
	refused 3 'no layer caches anything' "$(with 'model_type="nemotron_h"' \
		'hybrid_override_pattern="-E"')"
	refused 3 "torch_dtype is 'float7', which is not an element type" \
		"$(with 'torch_dtype="float7"')"
	refused 3 "mamba_ssm_cache_dtype is 'float7', which is not an element type" \
		"$(with 'model_type="nemotron_h"' 'hybrid_override_pattern="M*"' "${nemotron[@]}" \
			'mamba_ssm_cache_dtype="float7"')"
}

# states ARG...: bytes of an element of the SSM states of config.json, and its notes
states() {
	kvtool size --json --tp=1 "$@" config.json >answer
	json 'next(g["spec"] for g in o["groups"] if g["name"] == "ssm")[-1:]' <answer
	json '"\n".join(n for n in o["notes"] if "ssm" in n or "recurrent" in n)' <answer
}

@test "recurrent states have the type that vLLM gives them" {
	local key
	local mamba=('model_type="mamba2"' num_heads=8 head_dim=16 state_size=8 n_groups=1
		conv_kernel=4 expand=2)
	local own="recurrent states are of the model's type, as vLLM has them of mamba2"
	with "${mamba[@]}" >config.json
	[ "$(states)" = "2
$own; --ssm-dtype gives another" ]
	[ "$(states --ssm-dtype=float32)" = 4 ]
	[ "$(states --ssm-dtype=auto)" = 2 ]
	with "${mamba[@]}" 'torch_dtype="float32"' >config.json
	[ "$(states | head -n 1)" = 2 ]
	# a word of the file counts where the class reads it, and is told where it does not
	for key in mamba_ssm_dtype mamba_ssm_cache_dtype; do
		with "${mamba[@]}" "$key=\"float32\"" >config.json
		[ "$(states | sed -n 1,2p)" = "2
$key is set aside: vLLM does not read it of mamba2; --ssm-dtype gives it" ]
	done
	with 'model_type="nemotron_h"' 'hybrid_override_pattern="M*"' "${nemotron[@]}" >config.json
	[ "$(states)" = "4
mamba_ssm_cache_dtype is missing: float32, vLLM's default for it" ]
	with 'model_type="nemotron_h"' 'hybrid_override_pattern="M*"' "${nemotron[@]}" \
		'mamba_ssm_cache_dtype="auto"' 'mamba_ssm_dtype="float32"' >config.json
	[ "$(states)" = "2
mamba_ssm_dtype is set aside: vLLM does not read it of nemotron_h; --ssm-dtype gives it" ]
	for key in float32:4 bfloat16:2 float16:2; do
		with 'model_type="qwen3_5"' "${gdn[@]}" "mamba_ssm_dtype=\"${key%:*}\"" >config.json
		[ "$(states)" = "${key#*:}" ]
	done
	with 'model_type="qwen3_5"' "${gdn[@]}" >config.json
	[ "$(states | head -n 1)" = 4 ]
	[[ $(states) == *"mamba_ssm_dtype is missing: float32"* ]]
	with 'model_type="qwen3_next"' "${gdn[@]}" >config.json
	[ "$(states | head -n 1)" = 2 ]
	with 'model_type="kimi_linear"' kv_lora_rank=8 qk_rope_head_dim=8 'linear_attn_config={
		"head_dim": 8, "num_heads": 2, "short_conv_kernel_size": 4, "kda_layers": [1]}' >config.json
	[ "$(states)" = 4 ]
	[ "$(states --ssm-dtype=auto)" = 4 ]
	[ "$(states --ssm-dtype=bfloat16)" = 2 ]
	refused 3 'expected auto, float32 or bfloat16 for kimi_linear' "$(<config.json)" \
		--ssm-dtype=float16
}

@test "a plan has the states that size has, and says how they were taken" {
	with 'model_type="qwen3_next"' "${gdn[@]}" >config.json
	run -0 --separate-stderr kvtool transfer-sim --json --conv=ds -m ./config.json --tokens=16
	[ "$(json '[g["bytes"] for g in o["groups"] if g["group"] == "ssm"]' <<<"$output")" = \
		"[$((2 * 8 * 8 * 2))]" ]
	[[ $stderr == *"note: ./config.json: recurrent states are of the model's type"* ]]
}

# quantised OBJECT ARG...: the type that auto is of a small llama, and what is noted
quantised() {
	with "quantization_config=$1" "${@:2}" >config.json
	kvtool size --json --tp=1 --cache-dtype=auto config.json >answer
	json 'o["sizes"][0]["cache_dtype"], o["cache_dtype"] == o["sizes"][0]["cache_dtype"]' <answer
	json '"\n".join(n for n in o["notes"] if "head_dim" not in n)' <answer
}

@test "auto is what vLLM's auto is" {
	local type none='{"quant_method": "fp8"}'
	local by='of quantization_config'
	for type in bfloat16 float16; do
		[ "$(quantised "$none" "torch_dtype=\"$type\"")" = "('$type', True)" ]
	done
	for type in float32 float64; do
		[ "$(quantised "$none" "torch_dtype=\"$type\"")" = "('bfloat16', True)
auto is bfloat16, in which vLLM runs llama of $type" ]
	done
	[ "$(quantised "$none" 'model_type="gemma2"' 'torch_dtype="float16"' sliding_window=4 | \
		head -n 1)" = "('bfloat16', True)" ]
	[ "$(quantised '{"quant_method": "modelopt", "kv_cache_scheme":
		{"dynamic": false, "num_bits": 8, "type": "float"}}')" = "('fp8_e4m3', True)
auto is fp8_e4m3, by kv_cache_scheme $by (ModelOpt)" ]
	[ "$(quantised '{"quant_method": "modelopt_fp4", "quantization":
		{"kv_cache_quant_algo": "NVFP4"}}')" = "('nvfp4', True)
auto is nvfp4, by kv_cache_quant_algo $by (ModelOpt)" ]
	[ "$(quantised '{"quant_method": "modelopt", "kv_cache_scheme": {},
		"kv_cache_quant_algo": "int8"}')" = "('bfloat16', True)
kv_cache_quant_algo of ModelOpt is set aside: vLLM does not know it" ]
	[ "$(quantised '{"quant_method": "modelopt", "kv_cache_scheme":
		{"dynamic": true, "num_bits": 8, "type": "float"}}' | head -n 1)" = "('bfloat16', True)" ]
	[ "$(quantised '{"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}')" = \
		"('bfloat16', True)" ]
	local scheme='{"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true}'
	[ "$(quantised "{\"quant_method\": \"compressed-tensors\", \"kv_cache_scheme\": $scheme}")" = \
		"('fp8', True)
auto is fp8, by kv_cache_scheme $by (compressed-tensors)" ]
	[ "$(quantised "{\"quant_method\": \"compressed-tensors\", \"kv_cache_scheme\": $scheme}" \
		'model_type="deepseek_v3"' kv_lora_rank=64 qk_rope_head_dim=8)" = "('bfloat16', True)
kv_cache_scheme is set aside, as vLLM does with deepseek_v3" ]
	refused 3 'kv_cache_scheme is none of 8 bits and type float, and vLLM refuses it' \
		"$(with 'quantization_config={"quant_method": "compressed-tensors",
			"kv_cache_scheme": {"num_bits": 4, "type": "int"}}')" --cache-dtype=auto
	# the rows without a list are two different ones, and a plan takes the first
	with 'quantization_config={"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}' >config.json
	kvtool size --json --tp=1 config.json >answer
	[ "$(json '[(r["cache_dtype"], r["token_bytes"]) for r in o["sizes"]]' <answer)" = \
		"[('fp8_e4m3', 128), ('bfloat16', 256)]" ]
	[ "$(kvtool transfer-sim --json -m ./config.json --tokens=10 2>note | jq '.groups[0].bytes')" = 1280 ]
	[ "$(kvtool transfer-sim --json -m ./config.json --tokens=10 --cache-dtype=bfloat16 2>note |
		jq '.groups[0].bytes')" = 2560 ]
	# what was printed is a model with the same auto
	cp answer answer.json
	kvtool size --json --tp=1 --cache-dtype=auto answer.json >again
	[ "$(json 'o["sizes"][0]["cache_dtype"]' <again)" = fp8_e4m3 ]
}

@test "auto of DeepSeek V4 is its packed form, and of V4.1 it depends" {
	kvtool size --json --tp=1 -m deepseek-v4-flash >answer
	[ "$(json '[r["cache_dtype"] for r in o["sizes"]]' <answer)" = "['fp8_ds_mla', 'bfloat16']" ]
	run -3 kvtool size --cache-dtype=auto -m deepseek-v4.1-flash
	[[ $output == *"auto of deepseek_v41 is nvfp4_ds_mla or fp8_ds_mla_528 on SM100, fp8_ds_mla_584 elsewhere: give a type"* ]]
	kvtool size --tp=1 -m deepseek-v4.1-flash >/dev/null
}

@test "a plain name is what vLLM allocates, and says what the other is" {
	local size
	for size in 20 120; do
		kvtool size --tp=1 -m gpt-oss-${size}b >plain
		grep -q "note: .* gpt-oss-${size}b-no-hma: without" plain
		grep -q '^  swa128 ' plain
		kvtool size --tp=1 -m gpt-oss-${size}b-no-hma >other
		grep -q "note: .*; gpt-oss-${size}b: with it, vLLM's default" other
		kvtool size --json --tp=1 -m gpt-oss-${size}b-hma >hma
		kvtool size --json --tp=1 -m gpt-oss-${size}b >json
		[ "$(json 'o["groups"]' <hma)" = "$(json 'o["groups"]' <json)" ]
	done
	# as its own config.json: 1.13 GiB for 32k tokens, and not 2.25
	[ "$(json 'o["sizes"][0]["token_bytes"]' <json)" = 36864 ]
}

@test "lists of layers that contradict themselves" {
	local kda='"head_dim": 8, "num_heads": 2, "short_conv_kernel_size": 4'
	refused 3 'layer 2 is listed twice' "$(with 'model_type="kimi_linear"' \
		"linear_attn_config={$kda, \"full_attn_layers\": [2], \"kda_layers\": [1, 2]}")"
	refused 3 'layer 1 is in neither kda_layers nor full_attn_layers' \
		"$(with 'model_type="kimi_linear"' \
		"linear_attn_config={$kda, \"full_attn_layers\": [2], \"kda_layers\": []}")"
	refused 3 'kda_layers is 0, expected 1 to 2' "$(with 'model_type="kimi_linear"' \
		"linear_attn_config={$kda, \"kda_layers\": [0]}")"
	refused 3 'layer 1 is in neither' "$(with 'model_type="kimi_linear"')"
	refused 3 'num_heads is missing' "$(with 'model_type="kimi_linear"' \
		'linear_attn_config={"kda_layers": [1]}')"
	refused 3 'layer 1 is listed twice' "$(with 'model_type="lfm2"' 'full_attn_idxs=[1, 1]')"
	refused 3 'full_attn_idxs is 2, expected 0 to 1' "$(with 'model_type="lfm2"' 'full_attn_idxs=[2]')"
	refused 3 'attn_type_list has 4 layers, but num_hidden_layers is 2' \
		"$(with 'model_type="minimax"' 'attn_type_list=[0, 1, 0, 1]')"
	refused 3 'attn_type_list is 2, expected 0 to 1' "$(with 'model_type="minimax"' 'attn_type_list=[2, 1]')"
	refused 3 'num_kv_shared_layers is 15, of 2 layers' "$(with 'model_type="gemma3n_text"')"
	# the layer that drafts tokens is in the list, but not counted
	with 'model_type="deepseek_v4"' num_key_value_heads=1 head_dim=512 \
		'compress_ratios=[4, 128, 0]' >config.json
	kvtool size --json --tp=1 config.json >answer
	[ "$(json '[g["layers"] for g in o["groups"]]' <answer)" = '[2, 1, 1, 1, 1, 1, 1]' ]
}

@test "numbers that no cache is known for" {
	refused 4 'index_head_dim is 64' "$(with 'model_type="deepseek_v32"' index_head_dim=64)"
	refused 4 'layer 1 has 8' "$(with 'model_type="deepseek_v4"' 'compress_ratios=[4, 8]')"
	refused 4 'compress_rates are 8 and 128' "$(with 'model_type="deepseek_v4"' \
		'compress_rates={"compressed_sparse_attention": 8}')"
	refused 4 'partial_rotary_factor is 0.5' "$(with 'model_type="deepseek_v4"' \
		partial_rotary_factor=0.5)"
	refused 4 'head_dim is 256' "$(with 'model_type="deepseek_v4"' head_dim=256 \
		num_key_value_heads=1 'compress_ratios=[4, 0]')"
}

@test "hostile text" {
	refused 3 'config.json: ' 'hello'
	refused 3 'not an object' '[]'
	refused 3 'num_hidden_layers is a string' "$(with 'num_hidden_layers="2"')"
	refused 3 'num_hidden_layers is 1000000' "$(with num_hidden_layers=1000000)"
	refused 3 'num_hidden_layers is 2.0, expected an integer' "$(with num_hidden_layers=2.0)"
	refused 3 'num_attention_heads is 4.5, expected' "$(with num_attention_heads=4.5)"
	refused 3 'num_key_value_heads is -1' "$(with num_key_value_heads=-1)"
	refused 3 'num_attention_heads is 32, no multiple of the 7 heads of keys and values' \
		"$(with num_attention_heads=32 num_key_value_heads=7)"
	refused 3 'layer_types is an object' "$(with 'layer_types={}')"
	refused 3 'layer_types has 0 layers' "$(with 'layer_types=[]')"
	refused 3 'text_config is a string' "$(with 'text_config="x"')"
	refused 3 'pages of' "$(with num_hidden_layers=4096 num_attention_heads=1048576 \
		num_key_value_heads=1048576 head_dim=1048576)"
	refused 3 'use_sliding_window is not true or false' \
		"$(with 'model_type="qwen2"' use_sliding_window=1)"
	run -5 kvtool size missing.json
	mkdir empty
	run -5 kvtool size empty
}

@test "options that make no sense" {
	config=testdata/config/llama-3.1-8b.json
	run -2 kvtool size
	run -2 kvtool size $config $config
	run -2 kvtool size --config $config $config
	run -2 kvtool size --spec gqa:heads=8,head-dim=128 $config
	run -2 kvtool size --spec nonsense --cache-dtype=bfloat16
	run -2 kvtool size --tp=2,,4 $config
	run -2 kvtool size --tp=0 $config
	run -2 kvtool size --tp=2k $config
	run -2 kvtool size --cache-dtype= $config
	run -2 kvtool size --tokens=9999999999 $config
	local spec=--spec=gqa:layers=1,heads=1,head-dim=8
	run -2 kvtool size $spec --tp="$(printf '1,%.0s' {1..128})"
	[ "$output" = 'kvtool size: --tp is too long' ]
	run -2 kvtool size $spec --tp=1 --cache-dtype="$(printf 'auto,%.0s' {1..103})"
	[ "$output" = 'kvtool size: --cache-dtype is too long' ]
	# shellcheck disable=SC2046	# a word each
	run -2 kvtool size $(printf -- "$spec %.0s" {1..33})
	[ "$output" = 'kvtool size: --spec given more than 32 times' ]
}

@test "what does not fit, and what always does" {
	shows 0 ' none' size --tp=1 --cache-dtype=auto --memory=1k testdata/config/qwen3-next.json
	shows 0 ' any' size --tp=1 --cache-dtype=auto --memory=40G testdata/config/mamba2.json
}

@test "windows of all layers, and chunks of those that have positions" {
	with 'model_type="mistral"' sliding_window=32 >config.json
	shows 0 ' sliding-window:layers=2,heads=2,head-dim=16,window=32' size --tp=1 config.json
	for none in null '"absent"'; do
		with 'model_type="mistral"' sliding_window="$none" >config.json
		shows 0 ' gqa:layers=2,heads=2,head-dim=16' size --tp=1 config.json
	done
	scout=('model_type="llama4_text"' num_hidden_layers=4 head_dim=16 attention_chunk_size=32)
	with "${scout[@]}" 'no_rope_layers=[1,1,0,1]' >config.json
	run -0 kvtool size --tp=1 config.json
	[[ $output == *" chunked-local:layers=3,heads=2,head-dim=16,window=32"*" gqa:layers=1,"* ]]
	refused 3 'no_rope_layers has 3 layers, but num_hidden_layers is 4' \
		"$(with "${scout[@]}" 'no_rope_layers=[1,1,0]')"
	refused 3 'no_rope_layers is 2, expected 0 to 1' \
		"$(with "${scout[@]}" 'no_rope_layers=[1,1,0,2]')"
}

# ---- pools of vLLM, and what models of autumn 2026 are read as -----------------

# groups JSON ARG...: "NAME=LAYERS ..." of a config
groups() {
	printf '%s\n' "$1" >config.json
	kvtool size --json --tp=1 --cache-dtype=bfloat16 "${@:2}" config.json >answer
	json '" ".join("%s=%d" % (g["name"], g["layers"]) for g in o["groups"])' <answer
}

# pool ARG...: the pool of caches in bfloat16
pool() {
	kvtool size --json --tp=1 --cache-dtype=bfloat16 --apart "$@" >answer
	json '[(r["groups"], [(p["name"], p["layers"]) for p in r["parts"]]) for r in o["sizes"][0]["pool"]["runs"]] if not o["sizes"][0]["pool"]["error"] else o["sizes"][0]["pool"]["error"]' <answer
}

@test "groups of one type, of equal pages, of mixed pages" {
	full=gqa:layers=4,heads=8,head-dim=128
	[ "$(pool --spec $full)" = "[(1, [('g0', 4)])]" ]
	[ "$(pool --spec $full --spec gqa:layers=2,heads=4,head-dim=128)" = "[(1, [('g0', 4), ('g1', 2)])]" ]
	# as many groups as the fewest layers allow, and one layer of padding
	window=sliding-window:layers=7,heads=8,head-dim=128,window=64
	[ "$(pool --spec $full --spec $window)" = "[(1, [('g0', 4)]), (1, [('g1', 4)]), (1, [('g1', 3)])]" ]
	# fewer than half as many more: rather padded
	[ "$(pool --spec $full --spec ${window/7/5})" = "[(1, [('g0', 4)]), (1, [('g1', 5)])]" ]
	# two windows of full attention, which free nothing, are not merged
	[ "$(pool --spec $full,window=8 --spec $full,window=9)" = \
		"full attention with windows of 8 and 9 tokens, which vLLM refuses" ]
	ring=ring:layers=4,heads=2,head-dim=128,block-size=4
	[ "$(pool --spec $full --spec $ring --layout=BLHNC)" = "[(1, [('g0', 4)]), (1, [('g1', 4)])]" ]
}

@test "latents beside windows keep all tokens where pages cannot be equal" {
	[ "$(pool --spec mla:layers=4,latent=576 --spec sliding-window:layers=4,heads=8,head-dim=80,window=64)" = \
		"[(1, [('g0', 4), ('g1', 4)])]" ]
}

@test "pools that there are not" {
	mla=mla:layers=4,latent=576,block-size=64
	[[ "$(pool --spec $mla --spec chunked-local:layers=4,heads=8,head-dim=100,window=8,block-size=64)" == \
		"pages of 204800 bytes and others cannot be made equal: give a layout with B"* ]]
	[[ "$(pool --spec hisparse-hot:layers=1,latent=656,blocks=2)" == *"HiSparse"*"not modelled" ]]
	[[ "$(pool --spec dsv4-swa:layers=4,window=128,elem=1 --spec gqa:layers=4,heads=8,head-dim=512)" == \
		"g0: vLLM 0.32 ends at an assertion when its pages shall have"* ]]
	[[ "$(pool --spec gqa:layers=4,heads=8,head-dim=128 --spec gqa:layers=2,heads=4,head-dim=64 --layout=LHBNC)" == \
		"a layout of LHBSC cannot hold pages of several sizes: give one such as BLHNC" ]]
	[[ "$(pool --spec $mla --spec hidden:layers=1,latent=64 --spec sliding-window:layers=4,heads=8,head-dim=72,window=64)" == \
		"g1: activations in pages of attention are not modelled: give a layout with B"* ]]
	run -2 kvtool size --layout=KBSLHD --spec $mla --cache-dtype=bfloat16
	[[ $output == *"--layout is 'KBSLHD', which no pool of vLLM has: expected LBNHC (nhd), LBHNC (hnd)"* ]]
	run -2 kvtool size --indexer-dtype=fp6 --spec indexer:layers=1 --cache-dtype=bfloat16
	[[ $output == *"there is no type 'fp6' of an indexer's keys, expected fp8, mxfp4 or bfloat16"* ]]
	run -3 kvtool size --tp=1 --indexer-dtype=mxfp4 --spec index-key:layers=1,latent=128 --cache-dtype=bfloat16
	[[ $output == *"keys of index-key are never mxfp4"* ]]
}

@test "layers lost by vLLM are not printed as a pool" {
	# a full bucket that is wide, and rings of two sizes that are not as many of each
	[[ "$(pool --layout=BLHNC --spec gqa:layers=1,heads=1,head-dim=64,block-size=16 \
		--spec ring:layers=7,heads=2,head-dim=128,block-size=4,elem=2 \
		--spec ring:layers=3,heads=1,head-dim=128,block-size=4,elem=2)" == \
		"g1: vLLM 0.32 would leave layers without a cache"* ]]
}

@test "--layout takes the names of vLLM and their aliases" {
	for name in LBNHC nhd vllm:LBNHC lbshc; do
		[ "$(kvtool size --json --layout=$name -m llama-3.1-8b --tp=1 | json 'o["sizes"][0]["pool"]["layout"]')" = LBNHC ]
	done
	[ "$(kvtool size --json --layout=hnd -m llama-3.1-8b --tp=1 | json 'o["sizes"][0]["pool"]["layout"]')" = LBHNC ]
	[ "$(kvtool size --json -m deepseek-v4.1-flash --tp=1 | json 'o["layout"]')" = BLHNC ]
	kvtool size --json --tp=1 -m deepseek-v4.1-flash >mine.json
	cmp <(kvtool size --json --tp=1 mine.json | json 'o["sizes"]') <(json 'o["sizes"]' <mine.json)
}

@test "what a request asks for: in flight, context parallel, encoder" {
	ask() { kvtool size --json --tp=1 --cache-dtype=bfloat16 --tokens=1000 "$@" | json '[(g["request_blocks"], g["table_blocks"]) for g in o["sizes"][0]["groups"]]'; }
	window=sliding-window:heads=1,head-dim=64,window=100
	[ "$(ask --spec $window)" = "[(64, 63)]" ]
	[ "$(ask --in-flight=10 --spec $window)" = "[(8, 63)]" ]
	[ "$(ask --tp=2 --dcp=2 --spec $window)" = "[(None, None)]" ]
	[ "$(ask --tp=2 --dcp=2 --spec gqa:heads=1,head-dim=64)" = "[(32, 32)]" ]
	[ "$(ask --encoder-tokens=33 --spec cross:heads=1,head-dim=64)" = "[(3, 63)]" ]
	[ "$(ask --spec encoder-only:heads=1,head-dim=64)" = "[(0, 63)]" ]
}

@test "--dcp: a rank has its part of the tokens, of heads that its neighbours have, too" {
	ask() { kvtool size --json --cache-dtype=bfloat16 --tokens=1000 --memory=256M "$@" | json '[(s["tp"], s["token_bytes"], s["all_ranks_token_bytes"], s["unique_token_bytes"], s["request_bytes"], s["tokens"]) for s in o["sizes"]]'; }
	# 32 layers of 8 heads of 128 in 16 ranks: 8 KiB of a block of a layer, 32 blocks of 500
	[ "$(ask -m llama-3.1-8b --tp=16)" = "[(16, 16384, 262144, 131072, $((63 * 32 * 8192)), 16384)]" ]
	[ "$(ask -m llama-3.1-8b --tp=16 --dcp=2)" = "[(16, 8192, 131072, 131072, $((32 * 32 * 8192)), 32768)]" ]
	# of the usual sizes those that can
	[ "$(ask -m llama-3.1-8b --dcp=2)" = "$(ask -m llama-3.1-8b --tp=16 --dcp=2)" ]
	[[ "$(ask -m deepseek-v3 --dcp=8)" == "[(8, 8784, "*"), (16, 8784, "* ]]
	# states and windows are whole on each
	[ "$(ask --tp=2 --dcp=2 --spec mamba1-ssm:inter=64,state-size=16)" = "$(ask --tp=2 --spec mamba1-ssm:inter=64,state-size=16)" ]
	status=0
	run kvtool size -m deepseek-v3 --tp=16 --dcp=3
	[ "$status" -eq 3 ]
	[[ "$output" == *"dcp 3 does not divide tp 16: give tp 3, or a multiple"* ]]
	run kvtool size -m llama-3.1-8b --tp=8 --dcp=2
	[ "$status" -eq 3 ]
	[[ "$output" == *"hold the same of 8 heads: give tp 16, or a multiple"* ]]
	run kvtool size -m llama-3.1-8b --dcp=4
	[ "$status" -eq 3 ]
	[[ "$output" == *"give tp 32, or a multiple"* ]]
	run kvtool size -m llama-3.1-8b --block-size=1000000000
	[ "$status" -eq 3 ]
	[[ "$output" == *"blocks of 1000000000 tokens: expected 1 to 16 groups, 1048576 of the others at most"* ]]
}

@test "which layers own an indexer" {
	glm='"model_type": "glm_moe_dsa", "num_hidden_layers": 8, "torch_dtype": "bfloat16"'
	[ "$(groups "{$glm}")" = "mla=8 indexer=8" ]
	[ "$(groups "{$glm, \"index_topk_pattern\": \"FFFSSSFS\"}")" = "mla=4 indexer=4 mla-shared=4" ]
	# max(i - 3 + 1, 0) is a multiple of 4 of layers 0, 1, 2 and 6
	[ "$(groups "{$glm, \"index_topk_freq\": 4, \"index_skip_topk_offset\": 3}")" = "mla=4 indexer=4 mla-shared=4" ]
	[ "$(groups "{$glm, \"indexer_types\": [\"full\"]}")" = "mla=8 indexer=8" ]
	[[ "$(json 'o["notes"]' <answer)" == *"indexer_types is set aside: vLLM reads index_topk_pattern and index_topk_freq of glm_moe_dsa"* ]]
	refused 3 "index_topk_pattern is 'FFFSSSFX', expected F or S" "{$glm, \"index_topk_pattern\": \"FFFSSSFX\"}"
	refused 3 "expected F or S for each of 8 layers" "{$glm, \"index_topk_pattern\": \"FFF\"}"
	refused 3 '8 sliding layers, which glm_moe_dsa has not' "{$glm, \"layer_types\": [$(printf '"sliding_attention",%.0s' 1 2 3 4 5 6 7)\"sliding_attention\"]}"
	hy='"model_type": "hy_v4", "num_hidden_layers": 3, "torch_dtype": "bfloat16", "layer_types": ["deepseek_sparse_attention", "sparse", "full_attention"]'
	[ "$(groups "{$hy}")" = "mla=2 indexer=2 mla-shared=1" ]
	[ "$(groups "{$hy, \"indexer_types\": [\"full\", \"shared\", \"full\"]}")" = "mla=1 indexer=1 mla-shared=2" ]
	refused 3 "indexer_types: layer 1 is 'half', expected full or shared" "{$hy, \"indexer_types\": [\"full\", \"half\", \"full\"]}"
	refused 3 'indexer_types has 1 layers, but num_hidden_layers is 3' "{$hy, \"indexer_types\": [\"full\"]}"
}

@test "GLM-5.3, Kimi K3" {
	glm='"model_type": "glm5_next", "torch_dtype": "bfloat16", "num_hidden_layers": 8'
	[ "$(groups "{$glm}")" = "conv=6 ssm=6 mla=2 indexer=2 tail=2" ]
	[ "$(json 'o["groups"][3]["spec"]' <answer)" = kpool-indexer:layers=2,ratio=16 ]
	refused 3 'qk_rope_head_dim is 64, expected 0' "{$glm, \"qk_rope_head_dim\": 64}"
	# its lists count from 0
	lists='"linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "kda_layers": [0, 1, 2, 4, 5, 6], "full_attn_layers": [3, 7]}'
	[ "$(groups "{$glm, $lists}")" = "conv=6 ssm=6 mla=2 indexer=2 tail=2" ]
	# without lists there are several rules, and a head_dim that is none
	kimi='"model_type": "kimi_k3", "torch_dtype": "bfloat16", "num_hidden_layers": 4, "head_dim": 74'
	refused 3 'is in neither kda_layers nor full_attn_layers' "{$kimi, \"linear_attn_config\": {\"num_heads\": 96, \"head_dim\": 128, \"short_conv_kernel_size\": 4}}"
	[ "$(groups "{$kimi, \"linear_attn_config\": {\"num_heads\": 96, \"head_dim\": 128, \"short_conv_kernel_size\": 4, \"full_attn_layers\": [4]}}")" = "conv=3 ssm=3 mla=1" ]
	[ "$(json 'o["groups"][2]["spec"]' <answer)" = mla:layers=1,latent=576 ]
}

@test "Gemma 4" {
	gemma='"model_type": "gemma4_text", "num_hidden_layers": 7, "torch_dtype": "bfloat16"'
	[ "$(groups "{$gemma}")" = "window=5 full=2" ]
	[ "$(json '[g["spec"] for g in o["groups"]]' <answer)" = \
		"['sliding-window:layers=5,heads=4,head-dim=256,window=512', 'gqa:layers=2,heads=4,head-dim=512']" ]
	[ "$(groups "{$gemma, \"num_global_key_value_heads\": 2}")" = "window=5 full=2" ]
	[[ "$(json 'o["groups"][1]["spec"]' <answer)" == *heads=4* ]]
	[ "$(groups "{$gemma, \"num_global_key_value_heads\": 2, \"attention_k_eq_v\": true}")" = "window=5 full=2" ]
	[[ "$(json 'o["groups"][1]["spec"]' <answer)" == *heads=2* ]]
	groups "{$gemma, \"use_bidirectional_attention\": \"all\"}"
	[[ "$(json 'o["groups"][0]["spec"]' <answer)" == *window=257 ]]
	groups "{$gemma, \"use_bidirectional_attention\": \"vision\"}"
	[[ "$(json 'o["groups"][0]["spec"]' <answer)" == *window=512 ]]
	# the last layer is full whatever the list says, unless it reads another's cache
	types='"layer_types": ["full_attention", "sliding_attention"]'
	[ "$(groups "{${gemma/7/2}, $types}")" = "full=2" ]
	[ "$(groups "{${gemma/7/2}, $types, \"num_kv_shared_layers\": 1}")" = "full=1" ]
	# as transformers saves it, where there is no global_head_dim
	listed='"per_layer_config": {"5": {"head_dim": 512, "num_key_value_heads": 2}, "6": {"head_dim": 512, "num_key_value_heads": 2}}'
	[ "$(groups "{$gemma, $listed}")" = "window=5 full=2" ]
	[ "$(json 'o["groups"][1]["spec"]' <answer)" = gqa:layers=2,heads=2,head-dim=512 ]
	refused 4 'per_layer_config: layer 6 differs from layer 5, which is of its kind' "{$gemma, ${listed/\"6\"/\"8\"}}"
	refused 4 'per_layer_config: layer 1 differs from layer 0' "{$gemma, \"per_layer_config\": {\"1\": {\"head_dim\": 64}}}"
}

@test "MiniMax M3, Qwen4, DeepSeek V4.1, dots3, Inkling" {
	m3='"model_type": "minimax_m3_vl", "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "torch_dtype": "bfloat16"'
	[ "$(groups "{$m3, \"sparse_attention_config\": {\"sparse_attention_freq\": [0, 1, 1, 1], \"sparse_num_index_heads\": 4}}")" = "full=4 index-key=3" ]
	refused 3 'without it transformers and vLLM have other defaults' "{$m3}"
	qwen='"model_type": "qwen4_exp", "num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 8, "torch_dtype": "bfloat16"'
	[ "$(groups "{$qwen}")" = "conv=6 ssm=6 full=2" ]
	[[ "$(json 'o["notes"][-1]' <answer)$(json 'o["notes"]' <answer)" == *"full attention without an indexer"* ]]
	[ "$(groups "{$qwen, \"indexer_head_dim\": 128, \"indexer_compress_ratio\": 4, \"ple_layer_ids\": [2]}")" = "conv=6 ssm=6 ple=1 full=2 raw-key=2 key=2" ]
	v41='"model_type": "deepseek_v41", "num_hidden_layers": 4, "torch_dtype": "bfloat16"'
	[ "$(groups "{$v41, \"compress_ratios\": [0, 2, 1, 1], \"kv_source_layer_ids\": [1, 2]}")" = "swa=4 main-2=1 indexer-2=1 ring=1 main-1=1 indexer-1=1" ]
	refused 3 'compress_ratios is 4, expected 0 to 2' "{$v41, \"compress_ratios\": [0, 2, 4, 4], \"kv_source_layer_ids\": [1]}"
	refused 3 'layer 1 has compress_ratios of 2, and kv_source_layer_ids has no layer before it' "{$v41, \"compress_ratios\": [0, 2, 2, 1], \"kv_source_layer_ids\": [2]}"
	refused 3 'compress_ratios has 0 layers, but num_hidden_layers is 4' "{$v41}"
	dots='"model_type": "dots3_note", "num_hidden_layers": 2, "torch_dtype": "bfloat16", "layer_types": ["full_attention", "sliding_attention"], "kv_lora_rank": 512, "qk_rope_head_dim": 64, "swa_qk_rope_head_dim": 64, "sliding_window_size": 512'
	[ "$(groups "{$dots, \"swa_kv_lora_rank\": 1024}")" = "mla=1 indexer=1 window=1" ]
	[[ "$(json 'o["notes"]' <answer)" == *"hold 576 of 1088 elements"* ]]
	refused 3 'latents of 576, expected at most the 128 of the window' "{$dots, \"swa_kv_lora_rank\": 64}"
	ink='"model_type": "inkling_mm_model", "num_hidden_layers": 2, "torch_dtype": "bfloat16", "hidden_size": 6144, "num_key_value_heads": 8, "head_dim": 128'
	refused 3 'local_layer_ids is missing, and layer_types too' "{$ink}"
	refused 3 'swa_num_key_value_heads is missing' "{$ink, \"layer_types\": [\"hybrid\", \"hybrid_sliding\"]}"
	run -3 kvtool size --tp=16 --cache-dtype=bfloat16 "$root/testdata/config/inkling.json"
	[[ $output == *"conv-full: head: 8 cannot be divided evenly among 16 ranks"* ]]
	refused 4 "model_type 'qwen3_8_flash_next' is not known" '{"model_type": "qwen3_8_flash_next"}'
}

# unknown KEY=VALUE...: a small config of a type without rules
unknown() {
	with 'model_type="never_heard_of"' "$@"
}

@test "a type without rules is taken by its keys, and a note says as what" {
	[ "$(groups "$(unknown)")" = "full=2" ]
	[[ "$(json 'o["notes"][0]' <answer)" == \
		"model_type never_heard_of is not known: taken as full attention, from its keys" ]]
	[ "$(groups "$(unknown 'layer_types=["sliding_attention", "full_attention"]' sliding_window=8)")" = \
		"window=1 full=1" ]
	[[ "$(json 'o["notes"][0]' <answer)" == *"taken as full attention and windows, from its keys" ]]
	[ "$(groups "$(unknown kv_lora_rank=32 qk_rope_head_dim=8)")" = "mla=2" ]
	[ "$(groups "$(unknown kv_lora_rank=32 qk_rope_head_dim=8 index_head_dim=128)")" = "mla=2 indexer=2" ]
	[ "$(groups "$(unknown "${gdn[@]}")")" = "conv=1 ssm=1 full=1" ]
	[ "$(groups "$(unknown num_hidden_layers=4 'sliding_window_pattern="LLLG"' sliding_window=8)")" = "window=3 full=1" ]
	[ "$(groups "$(unknown num_hidden_layers=6 global_attn_every_n_layers=3 sliding_window=8)")" = "window=4 full=2" ]
	[ "$(groups "$(unknown is_encoder_decoder=true decoder_layers=3 decoder_attention_heads=2 num_hidden_layers=1)")" = \
		"full=3 cross=3" ]
	[ "$(groups "$(with 'model_type="longcat_flash"' num_hidden_layers='"absent"' num_layers=2 kv_lora_rank=32 qk_rope_head_dim=8)")" = "mla=4" ]
}

@test "a key that a type without rules may not leave aside is named" {
	refused 4 'kv_squeeze may concern the cache, and the rules of never_heard_of do not know it' "$(unknown kv_squeeze=2)"
	refused 4 'sliding_window may concern the cache' "$(unknown sliding_window=8)"
	refused 4 'attention_chunk_size may concern' "$(unknown attention_chunk_size=8)"
	refused 4 'linear_num_value_heads may concern' "$(unknown linear_num_value_heads=2)"
	refused 4 'mamba_d_state may concern' "$(unknown mamba_d_state=2)"
	refused 4 "sliding_window_pattern is 'LLLG'" "$(unknown num_hidden_layers=3 'sliding_window_pattern="LLLG"' sliding_window=8)"
	refused 3 'n_layer is 3, but there are 2 layers by another key' "$(unknown n_layer=3)"
	refused 3 '2 recurrent layers, which never_heard_of has not' "$(unknown 'layer_types=["linear_attention", "mamba"]')"
	refused 3 '1 mixed layers, which never_heard_of has not' "$(unknown 'layer_types=["hybrid", "full_attention"]')"
	refused 4 "model_type 'never_heard_of' is not known, and its keys do not say how many layers" "$(unknown num_hidden_layers='"absent"')"
	refused 4 'cca_time0 says that a layer keeps a convolution' "$(unknown cca_time0=2 cca_time1=2 'layer_types=["hybrid", "hybrid"]')"
	refused 4 'kv_squeeze may concern' "$(unknown 'per_layer_config={"0": {"kv_squeeze": 2}}')"
	refused 4 "recurrent_kv_cache_mode is 'last_loop', expected per_loop" \
		"$(unknown n_input_layers=1 n_recurrent_layers=1 n_recurrent_loops=2 'recurrent_kv_cache_mode="last_loop"')"
	refused 3 'layers 1 to 3, of 2, run 2 times' \
		"$(unknown loop_num_passes=2 loop_layer_index_start=1 loop_layer_index_end=2 n_input_layers=1 n_recurrent_layers=2 n_recurrent_loops=2)"
	run -0 kvtool size --tp=1 --cache-dtype=auto config.json --set kv_squeeze=null --set=n_recurrent_loops=1
}

@test "facts of some layers" {
	two='per_layer_config={"01": {"num_key_value_heads": 1, "head_dim": 32}}'
	[ "$(groups "$(unknown 'layer_types=["sliding_attention", "full_attention"]' sliding_window=8 "$two")")" = "window=1 full=1" ]
	[ "$(json 'o["groups"][0]["spec"]' <answer)" = sliding-window:layers=1,heads=2,head-dim=16,window=8 ]
	[ "$(json 'o["groups"][1]["spec"]' <answer)" = gqa:layers=1,heads=1,head-dim=32 ]
	refused 4 'layer 1 differs from layer 0' "$(unknown "$two")"
	refused 3 'what layer 0 has is not an object' "$(unknown 'per_layer_config={"0": 1, "1": 1}')"
}

@test "what transformers holds" {
	kvtool size --engine=transformers --tokens=40 "$root/testdata/config/gemma-3-4b.json" >answer
	grep -q ': DynamicSlidingWindowLayer, window 1024' answer
	unknown 'layer_types=["sliding_attention", "full_attention"]' sliding_window=8 >config.json
	kvtool size --engine=transformers --tokens=40 --json config.json >answer
	[ "$(json '[t["shape"] for l in o["cache_layers"] for t in l["tensors"]]' <answer)" = \
		"[[1, 2, 7, 16], [1, 2, 7, 16], [1, 2, 40, 16], [1, 2, 40, 16]]" ]
	[ "$(json 'o["request_bytes"], [l["bytes"] for l in o["cache_layers"]]' <answer)" = "(6016, [896, 5120])" ]
	kvtool size --engine=transformers --tokens=4 --cache-dtype=float32 --json config.json >answer
	[ "$(json 'o["request_bytes"]' <answer)" = 2048 ]
	kvtool size --engine=transformers --tokens=4 config.json >answer
	unknown new_decoder_architecture=true >config.json
	kvtool size --engine=transformers --tokens=4 config.json >answer
	grep -q '1 x 4 x 4 x 16$' answer
	[ "$(groups "$(cat config.json)")" = full=2 ]
	[ "$(json 'o["groups"][0]["spec"]' <answer)" = gqa:layers=2,heads=2,head-dim=16 ]
	tells 2 'needs the length of a request: --tokens=N$' size --engine=transformers config.json
	tells 2 "--tp is of vLLM's pool" size --engine=transformers --tokens=4 --tp=2 config.json
	run -2 kvtool size --engine=sglang config.json
	[[ $output == *"--engine is 'sglang', expected vllm or transformers" ]]
	run -4 kvtool size --engine=transformers --tokens=4 --model=llama-3.1-8b
	[[ $output == *"--engine=transformers needs the model's config.json" ]]
	unknown 'block_configs=[{"attention": {"n_heads_in_group": 2}}, {"attention": {"no_op": true}}]' >blocks.json
	run -4 kvtool size --engine=transformers --tokens=4 blocks.json
	[[ $output == *"what transformers holds of never_heard_of, full-2, is not known"* ]]
	kvtool size --engine=vllm --tp=1 --cache-dtype=auto config.json >/dev/null
}

@test "Infinity and NaN, as Python writes them" {
	with 'rope_theta=0' | sed 's/"rope_theta": 0/"rope_theta": Infinity, "x": [NaN, -Infinity, "a NaN \\" Infinity"]/' >config.json
	kvtool size --json --tp=1 --cache-dtype=auto config.json >answer
	[ "$(json 'o["layers"]' <answer)" = 2 ]
	refused 3 'num_hidden_layers is a string, expected an integer' "$(with num_hidden_layers=7 | sed 's/7/Infinity/')"
	refused 3 'line 1' "$(with num_hidden_layers=7 | sed 's/7/Infinit/')"
	refused 3 'line 1' "$(with num_hidden_layers=7 | sed 's/7/-NaN/')"
}

@test "tokens that are drafted, by the model's own layers" {
	echo '{"model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1}' >mtp.json
	run -0 kvtool size --tp=1 --cache-dtype=auto --draft=3 --json mtp.json
	[ "$(json 'o["layers"], o["draft_tokens"], o["groups"][0]["layers"]' <<<"$output")" = '(62, 3, 62)' ]
	run -0 kvtool size --tp=1 --cache-dtype=auto --json mtp.json
	[ "$(json 'o["layers"], o["draft_tokens"]' <<<"$output")" = '(61, None)' ]
	run -0 kvtool size --tp=1 --draft=3 --draft-layers=1 --json -m deepseek-v3.2
	[ "$(json '[g["layers"] for g in o["groups"]]' <<<"$output")" = '[62, 62]' ]
	tells 3 '--draft-layers is 2, mtp.json says 1' size --draft=3 --draft-layers=2 mtp.json
	run -3 kvtool size --draft=3 -m llama-3.1-8b
	[[ $output == *"llama-3.1-8b has no layers that draft: give --draft-layers=N, "* ]]
	sed 's/}/, "mtp_num_hidden_layers": 2}/' mtp.json >two.json
	tells 3 'says two numbers of layers that draft' size --draft=3 two.json
	run -4 kvtool size --draft=1 --draft-layers=1 -m gpt-oss-20b
	[[ $output == *"it is not known what layers that draft keep"* ]]
	run -4 kvtool size --draft=1 --draft-model=none -m glm-5.3-flash
	[[ $output == *"ring, whose size with draft tokens is not known"* ]]
	run -4 kvtool size --draft=1 --draft-model=none -m jamba-v0.1
	[[ $output == *"which vLLM does not keep for draft tokens"* ]]
	run -2 kvtool size --draft-layers=1 -m llama-3.1-8b
	run -2 kvtool size --draft=1 --draft-layers=1 --draft-model=none -m llama-3.1-8b
	run -2 kvtool size --draft=1025 --draft-model=none -m llama-3.1-8b
}

# published for this model: 480 and 448 tokens a block with 15 and 7 drafts
@test "states of drafts: taps, and so many states more" {
	echo '{"model_type": "qwen3_5_text", "num_hidden_layers": 64, "full_attention_interval": 4, "num_key_value_heads": 4, "num_attention_heads": 24, "head_dim": 256, "hidden_size": 5120, "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "dtype": "bfloat16", "mtp_num_hidden_layers": 1}' >gdn.json
	for n in 1 2 3 7 11 15; do
		run -0 kvtool size --ssm-dtype=bf16 --tp=1 --cache-dtype=auto -t 4096 --draft=$n --json gdn.json
		# conv (3 + n) taps of 10240 channels, 48 states of 128 x 128; 4 KiB a token and layer
		state=$(((10240 * (3 + n) + 48 * 128 * 128) * 2))
		block=$(((state + 65535) / 65536 * 16))
		[ "$(json '[(s["block_size"], s["state_page_bytes"], s["state_bytes"], [g["request_blocks"] for g in s["groups"] if g["name"] != "full"]) for s in o["sizes"]]' <<<"$output")" = \
			"[($block, $((block * 4096)), $((48 * block * 4096 * (n + 1))), [$((n + 1)), $((n + 1))])]" ]
		[ "$(json '[g["layers"] for g in o["groups"]]' <<<"$output")" = '[48, 48, 17]' ]
	done
	[ "$block" = 480 ]
}

@test "drafts of an Eagle head, and of no model" {
	echo '{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "draft_vocab_size": 32000, "torch_dtype": "bfloat16"}' >eagle.json
	run -0 kvtool size --tp=1 --draft=2 --draft-model=eagle.json --json -m llama-3.1-8b
	[ "$(json '[(g["name"], g["layers"]) for g in o["groups"]]' <<<"$output")" = "[('attn', 33)]" ]
	run -0 kvtool size --tp=1 --draft=2 --draft-model=eagle.json --json -m gpt-oss-20b
	[ "$(json '[(g["name"], g["layers"]) for g in o["groups"]]' <<<"$output")" = \
		"[('full', 12), ('swa128', 12), ('draft-full', 1)]" ]
	run -0 kvtool size --tp=1 --draft=2 --draft-model=none --json -m gpt-oss-20b
	[ "$(json 'o["layers"]' <<<"$output")" = 24 ]
}

@test "a part of a model's name lists the models that have it" {
	run -2 "$KVTOOL" size --model=qwen3
	[[ $output == *"of that name there are: qwen3-235b-a22b, qwen3-30b-a3b, qwen3-8b, "* ]]
	tells 2 'of that name there are: llama-3.1-70b$' size --model=llama70
	# 32 is not a number of any
	tells 2 '--model=list prints the ' size --model=qwen3-32b
	shows 2 ', ...$' size --model=b
}
