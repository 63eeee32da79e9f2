#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of run
# size.bats - kvtool size: what it prints and refuses
# (the numbers themselves: tests/oracle_size.py)

load common

# refused STATUS TEXT JSON ARG...: a config of this text is refused with that one
refused() {
	printf '%s\n' "$3" >config.json
	run -"$1" --separate-stderr kvtool size --tp=1 "${@:4}" config.json
	[ "${#stderr_lines[@]}" = 1 ] || { echo "not one sentence: $stderr"; return 1; }
	[ -z "$output" ]
	[[ $stderr == *"$2"* ]] || { echo "missing '$2' in: $stderr"; return 1; }
}

# with KEY=VALUE...: a small llama with other facts
with() {
	/usr/bin/python3 -c 'import json, sys
c = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
     "num_key_value_heads": 2, "hidden_size": 64, "torch_dtype": "bfloat16"}
for word in sys.argv[1:]:
    key, value = word.split("=", 1)
    c[key] = json.loads(value)
print(json.dumps({k: v for k, v in c.items() if v != "absent"}))' "$@"
}

@test "a model of one kind of layers" {
	expect 0 size-llama size --memory=40G --config testdata/config/llama-3.1-8b.json
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
		"[('conv', 'mamba1-conv:layers=28,inter=8192,state-size=16,kernel=4,elem=2'), ('ssm', 'mamba1-ssm:layers=28,inter=8192,state-size=16,kernel=4,elem=4'), ('full', 'gqa:layers=4,heads=8,head-dim=128')]" ]
	[ "$(json '[(r["tp"], r["cache_dtype"], r["block_size"], r["error"]) for r in o["sizes"]]' \
		<answer)" = "[(2, 'bfloat16', 144, None)]" ]
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
		--spec mamba1-ssm:layers=28,inter=8192,state-size=16)
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
	run -2 kvtool size -m qwen3-nex-80b-a3b
	[[ $output == *"did you mean 'qwen3-next-80b-a3b'?"* ]]
	run -5 kvtool size -m missing/model.json
	run -5 kvtool size -m llama-3.1-8b --models=missing
	[[ $output == *"missing: no folder of models is there"* ]]
	run -2 kvtool size -m llama-3.1-8b testdata/config/llama-3.1-8b.json
	run -2 kvtool size -m llama-3.1-8b --set head_dim=64
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
	refused 3 "groups[0]: gqa has no key 'dim'" '{"groups": [{"name": "a", "spec": "gqa:dim=1"}]}'
	refused 3 "heads is '-1'" '{"groups": [{"name": "a", "spec": "gqa:layers=1,heads=-1"}]}'
	refused 3 "expected KEY=N" '{"groups": [{"name": "a", "spec": "gqa:layers"}]}'
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
	with num_key_value_heads=6 head_dim=64 >config.json
	run -0 kvtool size config.json
	[[ $output == *"6 cannot be divided evenly among 4 ranks"* ]]
	run -3 kvtool size --tp=2,4 config.json
	[[ $output == *"tp 4"* ]]
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
	refused 3 'not a multiple of num_attention_heads' "$(with num_attention_heads=3)"
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
	local mamba=('model_type="mamba2"' num_heads=8 head_dim=16 state_size=8 n_groups=1
		conv_kernel=4 expand=2)
	refused 3 "mamba_ssm_cache_dtype is 'float7', which is not an element type" \
		"$(with "${mamba[@]}" 'mamba_ssm_cache_dtype="float7"')"
	refused 3 'mamba_ssm_cache_dtype is float32, but mamba_ssm_dtype is bfloat16' \
		"$(with "${mamba[@]}" 'mamba_ssm_cache_dtype="float32"' \
			'mamba_ssm_dtype="bfloat16"')"
	refused 3 'mamba_ssm_cache_dtype is auto, and no type of the model is given' \
		"$(with "${mamba[@]}" 'mamba_ssm_cache_dtype="auto"' 'torch_dtype="auto"')"
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
	refused 3 'num_key_value_heads is -1' "$(with num_key_value_heads=-1)"
	refused 3 'layer_types is an object' "$(with 'layer_types={}')"
	refused 3 'layer_types has 0 layers' "$(with 'layer_types=[]')"
	refused 3 'text_config is a string' "$(with 'text_config="x"')"
	refused 3 'pages of' "$(with num_hidden_layers=4096 num_key_value_heads=1048576 \
		head_dim=1048576)"
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
	run -0 kvtool size --tp=1 --cache-dtype=auto --memory=1k testdata/config/qwen3-next.json
	[[ $output == *' none'* ]]
	run -0 kvtool size --tp=1 --cache-dtype=auto --memory=40G testdata/config/mamba2.json
	[[ $output == *' any'* ]]
}

@test "windows of all layers, and chunks of those that have positions" {
	with 'model_type="mistral"' sliding_window=32 >config.json
	run -0 kvtool size --tp=1 config.json
	[[ $output == *" sliding-window:layers=2,heads=2,head-dim=16,window=32"* ]]
	for none in null '"absent"'; do
		with 'model_type="mistral"' sliding_window="$none" >config.json
		run -0 kvtool size --tp=1 config.json
		[[ $output == *" gqa:layers=2,heads=2,head-dim=16"* ]]
	done
	scout=('model_type="llama4_text"' num_hidden_layers=4 attention_chunk_size=32)
	with "${scout[@]}" 'no_rope_layers=[1,1,0,1]' >config.json
	run -0 kvtool size --tp=1 config.json
	[[ $output == *" chunked-local:layers=3,heads=2,head-dim=16,window=32"*" gqa:layers=1,"* ]]
	refused 3 'no_rope_layers has 3 layers, but num_hidden_layers is 4' \
		"$(with "${scout[@]}" 'no_rope_layers=[1,1,0]')"
	refused 3 'no_rope_layers is 2, expected 0 to 1' \
		"$(with "${scout[@]}" 'no_rope_layers=[1,1,0,2]')"
}
