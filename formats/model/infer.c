/* SPDX-License-Identifier: Apache-2.0 */
/*
 * infer.c - rules for a model_type that has no row, by the keys of its file
 *
 * A key that only one rule reads chooses it.  What is chosen then goes through keys.c as
 * with --as: a key that neither the chosen rules nor the table there know is refused, so
 * that what is computed is what all of the file says.  A window alone is such a key: its
 * class knows which layers have it.
 */
#include "formats/model/rules.h"

#include <stdio.h>
#include <string.h>

struct row {
	const char *key;
	config_step *rule;
	const char *with;		/* another key that must be in use, or NULL */
};

/* Which layers cache what, where no list of words says it. */
static const struct row layers[] = {
	{ "hybrid_override_pattern", kvt_layers_letters, NULL },
	{ "attn_type_list", kvt_layers_type_list, NULL },
	{ "full_attn_idxs", kvt_layers_full_indices, NULL },
	{ "attn_layer_indices", kvt_layers_indices, NULL },
	{ "hybrid_layer_ids", kvt_layers_hybrid, NULL },
	{ "attn_layer_period", kvt_layers_period, NULL },
	{ "full_attention_interval", kvt_layers_interval, NULL },
	{ "layer_group_size", kvt_layers_interval, NULL },
	{ "linear_attn_config", kvt_layers_kda, NULL },
	{ "mamba_d_ssm", kvt_layers_both, NULL },
	{ "no_rope_layers", kvt_layers_chunk, "attention_chunk_size" },
	{ "no_rope_layer_interval", kvt_layers_chunk, "attention_chunk_size" },
	{ "sliding_window_pattern", kvt_layers_pattern, "sliding_window" },
	{ "_sliding_window_pattern", kvt_layers_pattern, "sliding_window" },
	{ "global_attn_every_n_layers", kvt_layers_pattern, "sliding_window" },
	{ "attention_types", kvt_layers_local, NULL },
	{ "hybrid_layer_pattern", kvt_layers_full, NULL },
	{ "max_window_layers", kvt_layers_upper_window, "use_sliding_window" },
	{ "index_topk", kvt_layers_sparse, "kv_lora_rank" },
	{ "index_head_dim", kvt_layers_sparse, "kv_lora_rank" },
	{ NULL, kvt_layers_full, NULL },
};

static const struct row attention[] = {
	{ "cca_time0", kvt_caches_cca, "cca_time1" },
	{ "swa_head_dim", kvt_caches_inkling, "conv_kernel_size" },
	{ "swa_head_dim", kvt_caches_inkling, "sconv_kernel_size" },
	{ "kv_lora_rank", kvt_caches_mla, "qk_rope_head_dim" },
	{ NULL, kvt_caches_gqa, NULL },
};

static const struct row states[] = {
	{ "linear_attn_config", kvt_states_kda, NULL },
	{ "linear_num_heads", kvt_states_kda, NULL },
	{ "linear_num_value_heads", kvt_states_gdn, NULL },
	{ "mamba_n_groups", kvt_states_bamba, NULL },
	{ "mamba_ngroups", kvt_states_bamba, NULL },
	{ "mamba_num_heads", kvt_states_nemotron, NULL },
	{ "conv_L_cache", kvt_states_short_conv, NULL },
	{ "mamba_d_state", kvt_states_mamba1, NULL },
	{ "state_size", kvt_states_mamba2, "num_heads" },
	{ "state_size", kvt_states_mamba1, NULL },
	{ NULL, NULL, NULL },
};

static const struct row choice[] = {
	{ "index_topk_pattern", kvt_choose_indexers, "kv_lora_rank" },
	{ "index_topk_freq", kvt_choose_indexers, "kv_lora_rank" },
	{ "indexer_types", kvt_choose_listed, "kv_lora_rank" },
	{ NULL, NULL, NULL },
};

static bool in_use(const struct config *c, const char *key)
{
	return !kvt_config_is_off(json_object_get(c->in.object, key));
}

static config_step *rule_of(const struct config *c, const struct row *row)
{
	while (row->key && !(in_use(c, row->key) && (!row->with || in_use(c, row->with))))
		row++;
	return row->rule;
}

/* Without any head of attention there are states in every layer. */
static bool has_heads(const struct config *c)
{
	static const char *const keys[] = { "num_attention_heads", "n_head", "n_heads",
					    "num_key_value_heads", "attention_heads",
					    "decoder_attention_heads",
					    "num_decoder_attention_heads" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (in_use(c, keys[i]))
			return true;
	return !in_use(c, "state_size");
}

void kvt_config_infer(struct config *c)
{
	static const char *const lists[] = { "layer_types", "layers_block_type" };
	struct config_family *f = &c->made;
	bool listed = false;

	f->types = c->type;
	for (int i = 0; i < 2 && !listed; i++)
		if (json_is_array(json_object_get(c->in.object, lists[i]))) {
			f->types_key = lists[i];
			listed = true;
		}
	f->layers = has_heads(c) ? rule_of(c, layers) : kvt_layers_state;
	f->attention = has_heads(c) ? rule_of(c, attention) : NULL;
	f->choose = rule_of(c, choice);
	if (listed || (f->layers != kvt_layers_full &&
		       f->layers != kvt_layers_upper_window))
		f->state = rule_of(c, states);
	if (f->state == kvt_states_kda)
		f->state_type = "float32";
	else if (in_use(c, "mamba_ssm_dtype"))
		f->state_key = "mamba_ssm_dtype";
	else if (in_use(c, "mamba_ssm_cache_dtype"))
		f->state_key = "mamba_ssm_cache_dtype";
	c->family = f;
	c->unknown = true;
}

/* "full attention and windows" */
void kvt_config_note_inferred(struct config *c)
{
	static const struct {
		unsigned kinds;
		const char *what;
	} rows[] = {
		{ KIND(LAYER_FULL) | KIND(LAYER_BOTH), "full attention" },
		{ KIND(LAYER_SPARSE) | KIND(LAYER_SHARED), "sparse attention" },
		{ KIND(LAYER_WINDOW) | KIND(LAYER_BOTH_WINDOW), "windows" },
		{ KIND(LAYER_CHUNK), "chunks" },
		{ KIND(LAYER_STATE) | KIND(LAYER_BOTH) | KIND(LAYER_BOTH_WINDOW),
		  "states" },
	};
	char text[128] = "";

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t n = strlen(text);
		bool there = false;

		for (int k = 0; k < LAYER_KINDS; k++)
			there |= c->count[k] && (rows[i].kinds & KIND(k));
		if (there)
			snprintf(text + n, sizeof(text) - n, "%s%s%s", n ? " and " : "",
				 i < 2 && c->family->attention == kvt_caches_mla ?
				 "latents of " : "", rows[i].what);
	}
	kvt_config_note(c, "model_type %.40s is not known: taken as %s, from its keys",
			c->type, text);
}

/* ---- the text model of several ------------------------------------------- */

enum kvt_status kvt_config_text(struct kvt_json *out, const struct kvt_json *outer)
{
	static const char *const names[] = {
		"text_config", "llm_config", "language_config", "language_model_config",
		"lm_config", "text_model_config", "thinker_config", "decoder",
		"decoder_config",
	};
	struct kvt_json in;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if ((i && json_object_get(outer->object, "num_hidden_layers")) ||
		    !json_is_object(json_object_get(outer->object, names[i])))
			continue;
		in = kvt_json_of(outer, json_object_get(outer->object, names[i]));
		if (!strcmp(names[i], "thinker_config"))
			return kvt_config_text(out, &in);
		*out = in;
		return KVT_OK;
	}
	*out = *outer;
	/* it is none, but may be something else */
	return kvt_json_object(&in, outer, names[0]);
}
