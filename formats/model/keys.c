/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c - no key of a config.json that concerns a cache is left aside
 *
 * A key has no effect on any cache, or some rule understands it, or the file is refused
 * with its name.  Of a file that is read by its own family only keys are refused that
 * no such file has; with --as every key must be known.  Null, false, 0 and nothing
 * between brackets say that a key is not in use.
 */
#include "formats/model/rules.h"

#include <fnmatch.h>
#include <stdint.h>
#include <string.h>

/* ---- without effect ------------------------------------------------------- */

/* Patterns of fnmatch(3): the only table of keys that change no cache. */
static const char *const without_effect[] = {
	/* what the file is, and how it is run */
	"model_type", "architectures", "auto_map", "transformers_version", "_*name*",
	"_attn_implementation*", "dtype", "torch_dtype", "quantization_config",
	"compression_config", "use_cache", "return_dict", "output_*", "is_decoder",
	"mamba_ssm_dtype", "mamba_ssm_cache_dtype", "pretraining_tp", "chunk_size_*",
	"id2label", "label2id", "problem_type", "tokenizer_class",
	"task_specific_params", "pruned_heads", "torchscript", "use_bfloat16",
	"gradient_checkpointing", "seed",
	/* words and positions */
	"vocab_size*", "*_vocab_size", "type_vocab_size", "*_token_id", "*_token_index",
	"tie_*", "max_position_embeddings", "original_max_position_embeddings",
	"max_seq_len", "max_sequence_length", "model_max_length", "seq_length",
	"n_positions", "context_length", "rope_*", "*_rope_theta", "rotary_*",
	"use_rope", "partial_rotary_factor", "use_mrope", "position_embedding_type",
	"original_rope", "yarn_*", "no_rope_layers", "no_rope_layer_interval",
	"attn_temperature_tuning", "floor_scale", "attn_scale", "alibi*", "embedding_*",
	"position_bias_*", "relative_*", "num_buckets", "learned_pos_emb",
	"use_learned_position_embeddings", "max_*_positions", "n_ctx", "segment_types",
	"*suppress_tokens", "num_logits_to_keep", "share_encoder_decoder_embeddings",
	"scale_*", "dim_model_base", "prefix_lm", "padding_idx",
	/* widths that no cache has, norms, biases, training */
	"hidden_size", "num_attention_heads", "intermediate_*", "*_intermediate_size",
	"ffn_*", "*_ffn_dim", "*_ffn_hidden_size", "mlp_*", "num_codebooks",
	"hidden_act*", "*_act", "activation*", "*_norm*", "norm_*", "*norm_eps*",
	"use_qk_norm", "use_rmsnorm", "qk_norm", "qk_layernorm", "post_norm", "pre_norm",
	"norm_type", "*layernorm*", "*_bias", "bias", "use_bias", "no_bias", "*dropout*",
	"*_pdrop", "*layerdrop", "d_rel", "rel_extent", "*_threshold", "log_scaling_*",
	"dff", "dim_ff", "expansion_ratio", "*_eps", "eps", "hc_*", "lambda_std_dev",
	"ngpt_*", "adapter_rank", "num_mem_blocks", "attention_hidden_size",
	"attention_softmax_in_fp32", "attention_value_scale", "*_attention_gate",
	"block_auto_adjust_ff_dim", "block_multiple_of", "o_groups", "classifier_*",
	"word_embed_proj_dim", "num_attention_heads_per_layer", "kda_*", "*_gate_rank",
	"n_layers_per_attn_res_block", "initializer_*", "*_std", "init_*", "*_multiplier",
	"*_multipliers", "*_softcap*", "*_soft_cap", "logit*_scale", "logits_scaling",
	"softmax_scale", "attention_multiplier", "query_pre_attn_scalar", "clip_qkv",
	"swiglu_*", "q_lora_rank", "o_lora_rank", "share_q_dim", "summary_*",
	"qk_nope_head_dim", "parallel_attn", "num_ln_in_parallel_attn",
	"new_decoder_architecture", "attention_sink*", "add_*_attention_sink_bias",
	"swa_num_attention_heads", "*_softcapping", "residual_*",
	"rescale_prenorm_residual", "*_init_scheme", "use_parallel_residual",
	"hidden_dropout*", "attention_out_*", "key_multiplier",
	/* experts, and layers that only draft tokens */
	"moe_*", "n_routed_experts", "n_shared_experts", "num_experts*",
	"num_local_experts", "num_shared_experts", "*_experts", "*_expert_*", "expert_*",
	"experts_*", "router_*", "*_router_*", "topk_*", "n_group", "topk_group",
	"scoring_func", "*_aux_loss*", "aux_loss_*", "z_loss_*", "routed_scaling_factor",
	"first_k_dense_replace", "decoder_sparse_step", "num_dense_layers",
	"interleave_moe_*", "enable_moe_*", "is_moe", "use_moe", "ep_size",
	"route_scale", "score_function", "gating*", "num_nextn_predict_layers", "mtp_*",
	"num_mtp_*", "use_mtp", "ffn_config",
	/* other names of what is asked for where it is missing */
	"num_layers", "n_layer", "n_layers", "n_head", "n_heads", "n_embd", "d_model",
	"num_heads", "attention_heads", "decoder_*", "num_decoder_*",
	/* the rest of recurrent layers and indexers */
	"mamba_chunk_size", "mamba_dt_*", "mamba_hidden_act", "mamba_use_mlp",
	"mamba_rms_norm", "mamba_norm_before_gate", "time_step_*", "use_mamba*",
	"use_conv_bias", "chunk_size", "residual_in_fp32", "use_associative_scan",
	"projectors_bias", "index_topk", "index_n_heads", "indexer_n_heads",
	"index_*rope*", "linear_a_log_*", "linear_dt_*", "linear_allow_neg_eigval",
	"*_alpha_factor", "*_beta_factor",
	/* what of a cache is looked at; what num_hidden_layers counts already */
	"attention_type", "num_random_blocks", "keep_window_size", "block_size", "ngram",
	"H_cycles", "L_cycles", "L_bp_cycles", "num_layers_per_stack",
	/* an encoder, whose layers keep nothing */
	"encoder_*", "num_encoder_*", "mask_feature_*", "mask_time_*",
	"median_filter_width", "num_mel_bins",
	/* pictures and sound */
	"patch_size", "num_channels",
	"vision_*", "image_*", "video_*", "audio_*", "mm_*", "*_projector*",
	"projector_*",
};

/* ---- understood ----------------------------------------------------------- */

/* What a rule reads, or knows to mean nothing to its caches; by blanks. */
#define HEADS "num_key_value_heads num_kv_heads n_head_kv num_attention_groups " \
	      "multi_query multi_query_attention multi_query_group_num head_dim " \
	      "attention_head_dim kv_channels dim_head d_kv num_query_groups " \
	      "attn_config v_head_dim per_layer_config "
#define SWA "swa_num_key_value_heads swa_head_dim "
#define LATENTS "kv_lora_rank qk_rope_head_dim index_head_dim num_key_value_heads " \
		"head_dim v_head_dim qk_head_dim "
#define KDA "linear_attn_config linear_num_heads linear_head_dim " \
	    "linear_conv_kernel_dim short_conv_kernel_size "
#define LINEAR "linear_num_value_heads linear_value_head_dim linear_num_key_heads " \
	       "linear_key_head_dim linear_conv_kernel_dim "
#define MAMBA "mamba_n_heads mamba_d_head mamba_d_state mamba_n_groups mamba_d_conv " \
	      "mamba_expand mamba_d_ssm n_mamba_heads mamba_headdim mamba_ngroups "
#define SCONV HEADS "sconv_kernel_size conv_kernel_size number_of_conv_states " \
	      "sliding_window_size swa_v_head_dim " SWA

static const struct {
	config_step *rule;
	const char *keys;
} understood[] = {
	{ kvt_layers_window, "sliding_window" },
	{ kvt_layers_upper_window, "sliding_window use_sliding_window "
				   "max_window_layers" },
	{ kvt_layers_alternate, "sliding_window" },
	{ kvt_layers_pattern, "sliding_window sliding_window_pattern "
			      "_sliding_window_pattern global_attn_every_n_layers "
			      "num_kv_shared_layers" },
	{ kvt_layers_chunk, "attention_chunk_size" },
	{ kvt_layers_interval, "full_attention_interval layer_group_size" },
	{ kvt_layers_hybrid, "hybrid_layer_ids" },
	{ kvt_layers_local, "attention_types attention_layers window_size" },
	{ kvt_layers_period, "attn_layer_period attn_layer_offset" },
	{ kvt_layers_indices, "attn_layer_indices" },
	{ kvt_layers_letters, "hybrid_override_pattern" },
	{ kvt_layers_full_indices, "full_attn_idxs" },
	{ kvt_layers_type_list, "attn_type_list" },
	{ kvt_layers_kda, KDA }, { kvt_layers_glm5, KDA },
	{ kvt_layers_ratios, "compress_ratios" },
	{ kvt_layers_dsv41, "compress_ratios kv_source_layer_ids "
			    "index_source_layer_ids" },
	{ kvt_layers_freq, "sparse_attention_config" },
	{ kvt_layers_inkling, "local_layer_ids" },
	{ kvt_choose_indexers, "index_topk_pattern index_topk_freq "
			       "index_skip_topk_offset indexer_types" },
	{ kvt_choose_listed, "indexer_types" },
	{ kvt_caches_gqa, HEADS "use_cla cla_share_factor cross_attention_layers "
			  "block_configs hybrid_layer_pattern swa_v_head_dim "
			  "attn_type_list " SWA },
	{ kvt_caches_gemma4, HEADS "global_head_dim num_global_key_value_heads "
			     "attention_k_eq_v "
			     "use_bidirectional_attention" },
	{ kvt_caches_mla, LATENTS }, { kvt_caches_glm5, LATENTS "index_kpool" },
	{ kvt_caches_dots3, LATENTS "swa_kv_lora_rank swa_qk_rope_head_dim "
			    "sliding_window_size sliding_window swa_v_head_dim "
			    "per_layer_config " SWA },
	{ kvt_caches_v4, LATENTS "sliding_window compress_rates compress_rate_csa "
			 "compress_rate_hca" },
	{ kvt_caches_dsv41, LATENTS "sliding_window" },
	{ kvt_caches_qwen4, HEADS "indexer_head_dim indexer_kv_heads "
			    "indexer_compress_ratio" },
	{ kvt_caches_minimax_m3, HEADS },
	{ kvt_caches_inkling, SCONV }, { kvt_caches_cca, HEADS "cca_time0 cca_time1" },
	{ kvt_states_mamba1, "n_mamba_heads mamba_d_state state_size mamba_d_conv "
			     "conv_kernel mamba_expand expand" },
	{ kvt_states_mamba2, "num_heads head_dim state_size n_groups conv_kernel "
			     "expand" },
	{ kvt_states_nemotron, "mamba_num_heads mamba_head_dim ssm_state_size "
			       "mamba_d_state n_groups mamba_n_groups conv_kernel "
			       "mamba_d_conv expand mamba_expand" },
	{ kvt_states_bamba, MAMBA },
	{ kvt_states_gdn, LINEAR },
	{ kvt_states_qwen4, LINEAR "ple_layer_ids hc_count ple_conv_kernel_size "
			    "ngram_size" },
	{ kvt_states_kda, KDA },
	{ kvt_states_short_conv, "conv_dim conv_L_cache" },
	{ kvt_states_lightning, "head_dim" },
};

/* Whatever the family. */
static const char of_all[] =
	"num_hidden_layers num_kv_shared_layers decoder_layers num_decoder_layers "
	"is_encoder_decoder add_cross_attention loop_layer_index_start "
	"loop_layer_index_end loop_num_passes n_input_layers n_output_layers "
	"n_recurrent_layers n_recurrent_loops recurrent_kv_cache_mode prompt_types "
	"prompt_length prompt_mid_dim";

/* 0 and 1, which all families of heads understand. */
static const char pattern[] = "hybrid_layer_pattern";

/* Where layers are listed by words, or by that, others of these are set aside. */
static const char with_list[] =
	"layer_types layers_block_type sliding_window use_sliding_window "
	"max_window_layers sliding_window_pattern _sliding_window_pattern "
	"attention_chunk_size full_attention_interval global_attn_every_n_layers "
	"full_attn_idxs attn_layer_period attn_layer_offset attn_layer_indices "
	"attn_type_list compress_ratios hybrid_override_pattern hybrid_layer_ids "
	"layer_group_size local_attention prefix_dense_sliding_window_pattern";

static bool has_word(const char *words, const char *word)
{
	return kvt_config_word(words, word, strlen(word)) != NULL;
}

static bool is_understood(const struct config *c, const char *key)
{
	const struct config_family *f = c->family;
	const char *types = f->types_key ? f->types_key : "layer_types";

	bool listed = json_is_array(json_object_get(c->in.object, types)) ||
		      (f->attention == kvt_caches_gqa &&
		       json_is_array(json_object_get(c->in.object, pattern)));

	if (has_word(of_all, key) || (listed && has_word(with_list, key)))
		return true;
	if (has_word("sliding_window max_window_layers", key) &&
	    json_is_false(json_object_get(c->in.object, "use_sliding_window")))
		return true;
	/* only with that word does it read the window */
	if (f->layers == kvt_layers_upper_window && !strcmp(key, "sliding_window"))
		return json_object_get(c->in.object, "use_sliding_window") != NULL;
	for (size_t i = 0; i < sizeof(understood) / sizeof(understood[0]); i++) {
		config_step *rule = understood[i].rule;

		if ((rule == f->layers || rule == f->choose || rule == f->attention ||
		     rule == f->state) && has_word(understood[i].keys, key))
			return true;
	}
	return false;
}

/* ---- files ---------------------------------------------------------------- */

/* What changes a cache wherever it stands. */
static const char everywhere[] =
	"kv_lora_rank num_attention_groups multi_query use_cla cross_attention_layers "
	"block_configs hybrid_layer_pattern swa_num_key_value_heads swa_head_dim "
	"swa_v_head_dim linear_attn_config compress_ratios mb_per_layer "
	"sparse_attention_config kv_source_layer_ids";

static bool has_no_effect(const char *key)
{
	const size_t n = sizeof(without_effect) / sizeof(without_effect[0]);

	for (size_t i = 0; i < n; i++)
		if (!fnmatch(without_effect[i], key, 0))
			return true;
	return false;
}

static enum kvt_status check_key(const struct config *c, const char *key, bool strict)
{
	if (is_understood(c, key))
		return KVT_OK;
	if (strict ? has_no_effect(key) : !has_word(everywhere, key))
		return KVT_OK;
	return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
			       "%.60s may concern the cache, and the rules of %s do not know it: give --as=FAMILY of another, --set=%.60s=null if it does not, or the caches with --spec",
			       key, c->type, key);
}

/* What per_layer_config has of a layer is known, or refused, whatever the family. */
static enum kvt_status check_layers(const struct config *c)
{
	const json_t *all = json_object_get(c->in.object, "per_layer_config");
	enum kvt_status status = KVT_OK;
	const char *layer, *key;
	json_t *facts, *value;

	json_object_foreach((json_t *)(uintptr_t)all, layer, facts)
		json_object_foreach(facts, key, value)
			if (!status && !kvt_config_is_off(value))
				status = check_key(c, key, true);
	return status;
}

enum kvt_status kvt_config_check_keys(const struct config *c,
				      const struct kvt_json *outer)
{
	const json_t *in[] = { c->in.object, outer->object };
	enum kvt_status status = check_layers(c);
	bool strict = c->told || c->unknown;
	const char *key;
	json_t *value;

	for (int i = 0; i < (in[0] == in[1] ? 1 : 2); i++)
		json_object_foreach((json_t *)(uintptr_t)in[i], key, value)
			if (!status && !kvt_config_is_off(value))
				status = check_key(c, key, strict && i == 0);
	return status;
}
