#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of run
# size_pools.bats - kvtool size: pools of vLLM, and what models of autumn 2026 are read as
# (the numbers themselves: tests/golden_size.py)

load common

# refused STATUS TEXT JSON ARG...: a config of this text is refused with that sentence
refused() {
	printf '%s\n' "$3" >config.json
	run -"$1" --separate-stderr kvtool size --tp=1 "${@:4}" config.json
	[ "${#stderr_lines[@]}" = 1 ] || { echo "not one sentence: $stderr"; return 1; }
	[ -z "$output" ]
	[[ $stderr == *"$2"* ]] || { echo "missing '$2' in: $stderr"; return 1; }
}

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
	[ "$(ask --dcp=2 --spec $window)" = "[(None, None)]" ]
	[ "$(ask --dcp=2 --spec gqa:heads=1,head-dim=64)" = "[(32, 32)]" ]
	[ "$(ask --encoder-tokens=33 --spec cross:heads=1,head-dim=64)" = "[(3, 63)]" ]
	[ "$(ask --spec encoder-only:heads=1,head-dim=64)" = "[(0, 63)]" ]
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
	refused 4 'layer 6 has 4 heads of 256, expected 2 of 512 as others of its kind' "{$gemma, ${listed/\"6\"/\"8\"}}"
	refused 4 'layer 1 has 4 heads of 64, expected 4 of 256' "{$gemma, \"per_layer_config\": {\"1\": {\"head_dim\": 64}}}"
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
