/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caches.c - what attention layers of a config.json cache
 *
 * In: how many layers of each kind there are, and the facts.  Out: groups, each a spec
 * of lib/model with its numbers.
 */
#include "formats/model/rules.h"

#include <stdio.h>

#include "lib/base/print.h"

void kvt_config_add(struct config *c, const char *name, const char *spec, int64_t layers,
		    const struct kvt_spec_args *args)
{
	struct kvt_model *model = &c->out->model;
	struct kvt_model_group *g = &model->group[model->ngroups];

	if (!layers || model->ngroups == KVT_MODEL_GROUPS)
		return;
	*g = (struct kvt_model_group){ .spec = spec, .layers = layers, .args = *args };
	snprintf(g->name, sizeof(g->name), "%s", name);
	model->ngroups++;
}

/* ---- keys and values of heads ------------------------------------------- */

enum kvt_status kvt_config_head_dim(int64_t *out, struct config *c)
{
	int64_t heads = 0, hidden = 0;
	enum kvt_status status;

	if ((status = kvt_config_get(out, c, "head_dim|attention_head_dim")) || *out)
		return status;
	if ((status = kvt_config_need(&heads, c, "num_attention_heads")) ||
	    (status = kvt_config_need(&hidden, c, "hidden_size")))
		return status;
	if (hidden % heads)
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: head_dim is missing, and hidden_size %lld is not a "
				"multiple of num_attention_heads %lld",
				c->in.name, LL(hidden), LL(heads));
	*out = hidden / heads;
	kvt_config_note(c, "head_dim is missing: %lld, hidden_size / num_attention_heads",
			LL(*out));
	return KVT_OK;
}

static enum kvt_status heads_of(struct kvt_spec_args *args, struct config *c)
{
	enum kvt_status status;

	if ((status = kvt_config_get(&args->heads, c, "num_key_value_heads")) ||
	    (status = kvt_config_get(&args->head_dim_v, c, "v_head_dim")))
		return status;
	if (!args->heads) {
		if ((status = kvt_config_need(&args->heads, c, "num_attention_heads")))
			return status;
		kvt_config_note(c,
				"num_key_value_heads is missing: %lld, one for each "
				"query head",
				LL(args->heads));
	}
	return kvt_config_head_dim(&args->head_dim, c);
}

static enum kvt_status check_window(struct config *c)
{
	bool used = true;
	enum kvt_status status = kvt_config_flag(&used, c, "use_sliding_window");

	if (!status && !used)
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: layer_types has sliding_attention, but "
				"use_sliding_window is false",
				c->in.name);
	return status;
}

enum kvt_status kvt_caches_gqa(struct config *c)
{
	int64_t full = c->count[LAYER_FULL] + c->count[LAYER_BOTH];
	struct kvt_spec_args args = { .heads = 0 };
	enum kvt_status status;

	if (!full && !c->count[LAYER_WINDOW] && !c->count[LAYER_CHUNK])
		return KVT_OK;
	if ((status = heads_of(&args, c)))
		return status;
	kvt_config_add(c, "full", "gqa", full, &args);
	if (c->count[LAYER_WINDOW]) {
		if ((status = check_window(c)) ||
		    (status = kvt_config_need(&args.window, c, "sliding_window")))
			return status;
		kvt_config_add(c, "window", "sliding-window", c->count[LAYER_WINDOW],
			       &args);
	}
	if (c->count[LAYER_CHUNK]) {
		if ((status = kvt_config_need(&args.window, c, "attention_chunk_size")))
			return status;
		kvt_config_add(c, "chunk", "chunked-local", c->count[LAYER_CHUNK], &args);
	}
	return KVT_OK;
}

/* ---- latents ------------------------------------------------------------ */

/* The rows of an indexer are those of one head of 128, which a kernel demands. */
static enum kvt_status check_indexer(struct config *c)
{
	enum kvt_status status;
	int64_t dim;

	if ((status = kvt_config_need(&dim, c, "index_head_dim")))
		return status;
	if (dim != 128)
		return kvt_fail(c->in.err, KVT_UNSUPPORTED,
				"%s: index_head_dim is %lld, expected 128", c->in.name,
				LL(dim));
	return KVT_OK;
}

/* num_key_value_heads and head_dim of such a model do not describe its cache. */
enum kvt_status kvt_caches_mla(struct config *c)
{
	int64_t layers = c->count[LAYER_FULL] + c->count[LAYER_SPARSE];
	int64_t rank, rope;
	struct kvt_spec_args args = { .latent = 0 }, none = { .latent = 0 };
	enum kvt_status status;

	if ((status = kvt_config_need(&rank, c, "kv_lora_rank")) ||
	    (status = kvt_config_need(&rope, c, "qk_rope_head_dim")) ||
	    (c->count[LAYER_SPARSE] && (status = check_indexer(c))))
		return status;
	args.latent = rank + rope;
	kvt_config_add(c, "mla", "mla", layers, &args);
	kvt_config_add(c, "indexer", "indexer", c->count[LAYER_SPARSE], &none);
	c->out->block_size = 64;
	return KVT_OK;
}

/* ---- DeepSeek V4 -------------------------------------------------------- */

/* compress_rates, and the part of a head that is rotated. */
static enum kvt_status check_v4_rates(struct config *c)
{
	const json_t *rotated = json_object_get(c->in.object, "partial_rotary_factor");
	struct kvt_json rates;
	int64_t four = 4, heavy = 128;
	enum kvt_status status;

	if ((status = kvt_json_object(&rates, &c->in, "compress_rates")) ||
	    (status = kvt_json_int(&four, &rates, "compressed_sparse_attention", 1,
				   1 << 20)) ||
	    (status = kvt_json_int(&heavy, &rates, "heavily_compressed_attention", 1,
				   1 << 20)))
		return status;
	if (four != 4 || heavy != 128)
		return kvt_fail(c->in.err, KVT_UNSUPPORTED,
				"%s: compress_rates are %lld and %lld, expected 4 and "
				"128",
				c->in.name, LL(four), LL(heavy));
	if (json_is_number(rotated) && json_number_value(rotated) * 512 != 64)
		return kvt_fail(c->in.err, KVT_UNSUPPORTED,
				"%s: partial_rotary_factor is %g, expected 0.125",
				c->in.name, json_number_value(rotated));
	return KVT_OK;
}

static enum kvt_status check_v4(struct config *c)
{
	static const struct {
		const char *key;
		int64_t value;
		bool needed;
	} facts[] = {
		{ "head_dim", 512, true }, { "num_key_value_heads", 1, true },
		{ "index_head_dim", 128, true }, { "qk_rope_head_dim", 64, false },
		{ "compress_rate_csa", 4, false }, { "compress_rate_hca", 128, false },
	};
	enum kvt_status status = check_v4_rates(c);

	for (size_t i = 0; !status && i < sizeof(facts) / sizeof(facts[0]); i++) {
		int64_t n = facts[i].value;

		if ((status = facts[i].needed ? kvt_config_need(&n, c, facts[i].key) :
						kvt_config_get(&n, c, facts[i].key)))
			return status;
		if (n != facts[i].value)
			return kvt_fail(c->in.err, KVT_UNSUPPORTED,
					"%s: %s is %lld, expected %lld", c->in.name,
					facts[i].key, LL(n), LL(facts[i].value));
	}
	return status;
}

/*
 * Every layer has a window.  A compressed one also has its latents and the state
 * of what compresses them, of 2 * 4 or 128 tokens; of 4 it has an indexer, too,
 * with a compressor of its own.  Blocks are of the kernels' sizes.
 */
enum kvt_status kvt_caches_v4(struct config *c)
{
	int64_t c4 = c->count[LAYER_C4], c128 = c->count[LAYER_C128];
	struct kvt_spec_args window = { .block_size = 64 };
	struct kvt_spec_args wide = { .block_size = 256 };
	struct kvt_spec_args four = { .block_size = 4, .window = 8 };
	struct kvt_spec_args eight = { .block_size = 8, .window = 128 };
	enum kvt_status status;

	if ((status = check_v4(c)) ||
	    (status = kvt_config_need(&window.window, c, "sliding_window")))
		return status;
	kvt_config_add(c, "swa", "dsv4-swa", c->count[LAYER_WINDOW] + c4 + c128, &window);
	kvt_config_add(c, "c4a", "dsv4-c4a", c4, &wide);
	kvt_config_add(c, "c128a", "dsv4-c128a", c128, &wide);
	kvt_config_add(c, "compressor-c4", "dsv4-compressor-c4", c4, &four);
	kvt_config_add(c, "compressor-c128", "dsv4-compressor-c128", c128, &eight);
	kvt_config_add(c, "indexer", "dsv4-indexer", c4, &wide);
	kvt_config_add(c, "indexer-compressor", "dsv4-indexer-compressor", c4, &four);
	c->out->block_size = 256;
	return KVT_OK;
}
