/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families.c - what the keys of a file do not say
 *
 * A row of families[] has a rule for their layers, one for attention and one for
 * recurrent states, what vLLM runs them in, and the defaults of their class in
 * transformers, which a config.json may leave out.  A type without a row is taken by its
 * keys (infer.c).
 *
 * Facts: configuration classes of transformers, of which the tests have the caches of
 * every default config; 'layout', 'auto_type' and what else vLLM decides, vLLM 0.32.0.
 */
#include "formats/model/rules.h"

#include <string.h>

/* What most have: keys and values of grouped heads, in layers by this rule. */
#define GQA(rule) .layers = kvt_layers_ ## rule, .attention = kvt_caches_gqa
#define MLA(rule) .layers = kvt_layers_ ## rule, .attention = kvt_caches_mla

#define LATENT "kv_lora_rank 512 qk_rope_head_dim 64 index_head_dim 128 "

/* vLLM takes the model's type without it; but no file was published so. */
#define STATES_OF_QWEN .state_key = "mamba_ssm_dtype", \
	.state_type = "float32", \
	.state_why = "as published files have it; vLLM takes the model's type without it"

static const struct config_family families[] = {
	{ .types = "llama granite", GQA(full) },
	{ .types = "mimo_v2_flash", GQA(full), .twice_window = true },
	{ .types = "mistral mixtral ministral phimoe", GQA(window),
	  .defaults = "num_key_value_heads 8" },
	{ .types = "phi3", GQA(window) },
	{ .types = "starcoder2", GQA(window), .defaults = "num_key_value_heads 2" },
	{ .types = "glm4_moe", GQA(full), .defaults = "num_key_value_heads 8" },
	{ .types = "qwen2", GQA(upper_window), .defaults = "num_key_value_heads 32" },
	{ .types = "qwen2_moe", GQA(upper_window), .defaults = "num_key_value_heads 16" },
	{ .types = "qwen3", GQA(upper_window),
	  .defaults = "num_key_value_heads 32 head_dim 128" },
	{ .types = "qwen3_moe", GQA(upper_window), .defaults = "num_key_value_heads 4" },
	{ .types = "gemma2", GQA(alternate), .no_float16 = true,
	  .defaults = "head_dim 256 num_key_value_heads 4 sliding_window 4096" },
	{ .types = "gemma3", GQA(pattern), .no_float16 = true,
	  .defaults = "head_dim 256 num_key_value_heads 4 sliding_window_pattern 6 "
		      "sliding_window 4096" },
	{ .types = "gemma3n", GQA(pattern),
	  .defaults = "head_dim 256 num_key_value_heads 2 sliding_window_pattern 5 "
		      "sliding_window 512 num_kv_shared_layers 15" },
	{ .types = "gemma4 gemma4_unified", .layers = kvt_layers_pattern,
	  .attention = kvt_caches_gemma4, .choose = kvt_choose_last_full,
	  .defaults = "head_dim 256 num_key_value_heads 4 global_head_dim 512 "
		      "sliding_window_pattern 6 sliding_window 512" },
	{ .types = "cohere2 olmo3", GQA(pattern),
	  .defaults = "sliding_window_pattern 4 sliding_window 4096" },
	{ .types = "gpt_oss", GQA(alternate),
	  .defaults = "head_dim 64 num_key_value_heads 8 sliding_window 128" },
	{ .types = "llama4", GQA(chunk),
	  .defaults = "no_rope_layer_interval 4 head_dim 128 num_key_value_heads 8" },
	{ .types = "deepseek_v2 deepseek_v3 kimi_k2", MLA(full), .defaults = LATENT },
	{ .types = "longcat_flash", MLA(pairs), .defaults = LATENT },
	{ .types = "deepseek_v32 glm_moe_dsa", MLA(sparse),
	  .choose = kvt_choose_indexers, .defaults = LATENT },
	{ .types = "hy_v4", MLA(full), .choose = kvt_choose_listed, .defaults = LATENT },
	{ .types = "dots3_note", .layers = kvt_layers_full,
	  .attention = kvt_caches_dots3, .choose = kvt_choose_indexers,
	  .layout = "BLHNC", .defaults = "index_head_dim 128" },
	{ .types = "glm5_next", .layers = kvt_layers_glm5, .attention = kvt_caches_glm5,
	  .state = kvt_states_kda, .choose = kvt_choose_sparse, .layout = "BLHNC",
	  .state_type = "float32",
	  .defaults = "kv_lora_rank 512 index_kpool 16 index_head_dim 128 "
		      "linear_num_heads 64 linear_head_dim 128 "
		      "linear_conv_kernel_dim 4" },
	{ .types = "qwen4_exp", .layers = kvt_layers_interval,
	  .attention = kvt_caches_qwen4, .choose = kvt_choose_sparse, .layout = "BLNHC",
	  .state = kvt_states_qwen4, STATES_OF_QWEN,
	  .defaults = "head_dim 256 num_key_value_heads 2 full_attention_interval 4 "
		      "linear_num_key_heads 16 linear_num_value_heads 32 "
		      "linear_key_head_dim 128 linear_value_head_dim 128 "
		      "linear_conv_kernel_dim 4 hc_count 4 ple_conv_kernel_size 4 "
		      "ngram_size 3" },
	{ .types = "minimax_m3_vl minimax_m3_text", .layers = kvt_layers_freq,
	  .attention = kvt_caches_minimax_m3 },
	{ .types = "kimi_linear kimi_k3", MLA(kda), .state = kvt_states_kda,
	  .state_type = "float32", .defaults = LATENT },
	{ .types = "inkling_mm_model inkling_model inkling_text",
	  .layers = kvt_layers_inkling, .attention = kvt_caches_inkling,
	  .defaults = "sconv_kernel_size 4" },
	{ .types = "deepseek_v41", .layers = kvt_layers_dsv41,
	  .attention = kvt_caches_dsv41, .layout = "BLHNC",
	  .auto_depends = "nvfp4_ds_mla or fp8_ds_mla_528 on SM100, fp8_ds_mla_584 "
			  "elsewhere",
	  .defaults = "head_dim 512 sliding_window 128 index_head_dim 128" },
	{ .types = "deepseek_v4", .layers = kvt_layers_ratios, .attention = kvt_caches_v4,
	  .layout = "BLHNC", .auto_type = "fp8_ds_mla",
	  .defaults = "head_dim 512 num_key_value_heads 1 sliding_window 128 "
		      "index_head_dim 128" },
	{ .types = "mamba", .layers = kvt_layers_state, .state = kvt_states_mamba1 },
	{ .types = "mamba2", .layers = kvt_layers_state, .state = kvt_states_mamba2 },
	{ .types = "jamba", GQA(period), .state = kvt_states_mamba1, .chunk = 2048,
	  .types_key = "layers_block_type", .defaults = "num_key_value_heads 8" },
	{ .types = "nemotron_h", GQA(letters), .state = kvt_states_nemotron, .chunk = 256,
	  .types_key = "layers_block_type", .list_rules = true,
	  .state_key = "mamba_ssm_cache_dtype", .state_type = "float32",
	  .state_why = "vLLM's default for it",
	  .defaults = "head_dim 128 num_key_value_heads 8" },
	{ .types = "bamba", GQA(indices), .state = kvt_states_bamba,
	  .defaults = "num_key_value_heads 8" },
	{ .types = "granitemoehybrid", GQA(state), .state = kvt_states_bamba,
	  .chunk = 256 },
	{ .types = "falcon_h1", GQA(both), .state = kvt_states_bamba, .chunk = 256,
	  .defaults = "num_key_value_heads 8" },
	{ .types = "qwen3_next", GQA(interval), .state = kvt_states_gdn,
	  .defaults = "head_dim 256 num_key_value_heads 2 full_attention_interval 4" },
	{ .types = "qwen3_5", GQA(interval), .state = kvt_states_gdn,
	  STATES_OF_QWEN,
	  .defaults = "head_dim 256 num_key_value_heads 4 full_attention_interval 4" },
	{ .types = "qwen3_5_moe", GQA(interval), .state = kvt_states_gdn,
	  STATES_OF_QWEN,
	  .defaults = "head_dim 256 num_key_value_heads 2 full_attention_interval 4" },
	{ .types = "lfm2 lfm2_moe", GQA(full_indices), .state = kvt_states_short_conv,
	  .defaults = "num_key_value_heads 8 conv_L_cache 3" },
	{ .types = "minimax minimax_text_01", GQA(type_list),
	  .state = kvt_states_lightning, .defaults = "num_key_value_heads 8" },
};

static const struct config_family *row_of(const char *type, size_t n)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		if (kvt_config_word(families[i].types, type, n))
			return &families[i];
	return NULL;
}

/* The text model of several has the rules of all of it: "gemma3_text". */
const struct config_family *kvt_config_family(const char *type)
{
	static const char suffix[] = "_text";
	size_t n = strlen(type), m = sizeof(suffix) - 1;
	const struct config_family *row = row_of(type, n);

	return row || n <= m || strcmp(type + n - m, suffix) ? row : row_of(type, n - m);
}
