/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caches.c - what attention layers of a config.json cache
 *
 * In: how many layers of each kind there are, and the facts.  Out: groups, each a spec
 * of lib/model with its numbers.
 */
#include "formats/model/rules.h"

#include <stdio.h>
#include <string.h>

/* Groups stand in the order in which layers come to them. */
static void add(struct config *c, const char *name, const char *spec, unsigned kinds,
		int64_t layers, int64_t first, const struct kvt_spec_args *args)
{
	struct kvt_model *model = &c->out->model;
	int at = model->ngroups;

	if (!layers || at == KVT_MODEL_GROUPS)
		return;
	for (; at && c->begins[at - 1] > first; at--) {
		model->group[at] = model->group[at - 1];
		c->begins[at] = c->begins[at - 1];
		c->kinds[at] = c->kinds[at - 1];
	}
	model->group[at] = (struct kvt_model_group){ .spec = spec, .layers = layers,
						     .args = *args };
	snprintf(model->group[at].name, sizeof(model->group[at].name), "%s", name);
	c->begins[at] = first;
	c->kinds[at] = kinds;
	model->ngroups++;
}

void kvt_config_add_some(struct config *c, const char *name, const char *spec,
			 int64_t layers, int64_t first, const struct kvt_spec_args *args)
{
	add(c, name, spec, 0, layers, first, args);
}

void kvt_config_add(struct config *c, const char *name, const char *spec, unsigned kinds,
		    const struct kvt_spec_args *args)
{
	int64_t layers = 0, first = CONFIG_LAYERS;

	for (int k = 0; k < LAYER_KINDS; k++) {
		if (!(kinds & KIND(k)) || !c->count[k])
			continue;
		layers += c->count[k];
		first = c->first[k] < first ? c->first[k] : first;
	}
	add(c, name, spec, kinds, layers, first, args);
}

/* ---- keys and values of heads ------------------------------------------- */

static enum kvt_status check_window(struct config *c)
{
	bool used = true;
	enum kvt_status status = kvt_config_flag(&used, c, "use_sliding_window");

	if (!status && !used)
		return kvt_json_bad(&c->in,
				    "layer_types has sliding_attention, but use_sliding_window is false");
	return status;
}

/* block_configs: a group for each number of heads. */
static enum kvt_status blocks(bool *found, struct config *c)
{
	struct kvt_spec_args args = { .heads = 0 };
	int64_t heads[CONFIG_LAYERS];
	enum kvt_status status = kvt_config_block_heads(heads, found, c);

	if (!status && *found && c->count[LAYER_FULL] != c->nlayers)
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "block_configs, and %lld of %lld layers are of full attention: give the caches with --spec",
				       LL(c->count[LAYER_FULL]), LL(c->nlayers));
	if (status || !*found || (status = kvt_config_head_dim(&args.head_dim, c)))
		return status;
	for (int64_t i = 0; i < c->nlayers; i++) {
		int64_t layers = 0, before = 0;
		char name[32];

		for (int64_t k = 0; k < c->nlayers; k++) {
			before += k < i && heads[k] == heads[i];
			layers += heads[k] == heads[i];
		}
		if (!heads[i] || before)
			continue;
		if (c->out->model.ngroups == KVT_MODEL_GROUPS)
			return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
					       "block_configs has more than %d numbers of heads",
					       KVT_MODEL_GROUPS);
		snprintf(name, sizeof(name), "full-%lld", LL(heads[i]));
		args.heads = heads[i];
		kvt_config_add_some(c, name, "gqa", layers, i, &args);
	}
	return KVT_OK;
}

/* A decoder's layers keep the tokens of an encoder, too. */
static enum kvt_status add_cross(struct config *c, const struct kvt_spec_args *args)
{
	static const char *const keys[] = { "is_encoder_decoder", "add_cross_attention" };
	bool crosses = false;
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < 2 && !status && !crosses && c->unknown; i++)
		status = kvt_config_flag(&crosses, c, keys[i]);
	if (status || !crosses)
		return status;
	if (!c->hints->held)
		kvt_config_add(c, "cross", "cross", KIND(LAYER_FULL), args);
	kvt_config_note(c, c->hints->held ?
			"the tokens of an encoder are not counted: this is the decoder's own cache" :
			"keys and values of an encoder's tokens are kept, too: --encoder-tokens");
	return KVT_OK;
}

/* Of keys and values: a window's layers may have heads of their own. */
static enum kvt_status add_heads(struct config *c, const char *name, const char *spec,
				 int kind, const char *window)
{
	struct kvt_spec_args args = { .heads = 0 };
	bool slides = kind == LAYER_WINDOW || kind == LAYER_BOTH_WINDOW;
	enum kvt_status status;

	if (!c->count[kind])
		return KVT_OK;
	if ((status = kvt_config_enter_kind(c, kind)) ||
	    (status = kvt_config_heads(&args, c)) ||
	    (slides && ((status = check_window(c)) ||
			(status = kvt_config_window_heads(&args, c)))) ||
	    (window && (status = kvt_config_need(&args.window, c, window))))
		return status;
	kvt_config_leave_kind(c);
	kvt_config_add(c, name, spec, KIND(kind), &args);
	return kind == LAYER_FULL ? add_cross(c, &args) : KVT_OK;
}

enum kvt_status kvt_caches_gqa(struct config *c)
{
	static const struct {
		int kind;
		const char *name, *spec, *window;
	} rows[] = {
		{ LAYER_FULL, "full", "gqa", NULL },
		{ LAYER_BOTH, "full", "gqa", NULL },
		{ LAYER_WINDOW, "window", "sliding-window", "sliding_window" },
		{ LAYER_BOTH_WINDOW, "window", "sliding-window", "sliding_window" },
		{ LAYER_CHUNK, "chunk", "chunked-local", "attention_chunk_size" },
	};
	enum kvt_status status;
	bool done;

	if (!c->count[LAYER_FULL] && !c->count[LAYER_BOTH] && !c->count[LAYER_WINDOW] &&
	    !c->count[LAYER_BOTH_WINDOW] && !c->count[LAYER_CHUNK])
		return KVT_OK;
	status = blocks(&done, c);
	for (size_t i = 0; !status && !done && i < sizeof(rows) / sizeof(rows[0]); i++)
		status = add_heads(c, rows[i].name, rows[i].spec, rows[i].kind,
				   rows[i].window);
	return status;
}

/* Convolutions of what keys and values are made of, which no engine else has. */
enum kvt_status kvt_caches_cca(struct config *c)
{
	if (!c->hints->held)
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "cca_time0 says that a layer keeps a convolution beside its keys and values, and what vLLM makes of it is not known: --engine=transformers has it, or give the caches with --spec");
	return kvt_caches_gqa(c);
}

/* ---- Gemma 4 ------------------------------------------------------------ */

/* Layers of full attention have a width and heads of their own. */
static enum kvt_status global_heads(struct kvt_spec_args *args, struct config *c)
{
	bool same = false;
	int64_t heads = 0;
	enum kvt_status status;

	if (json_is_object(json_object_get(c->in.object, "per_layer_config"))) {
		*args = (struct kvt_spec_args){ .heads = 0 };
		return kvt_config_heads(args, c);
	}
	if ((status = kvt_config_flag(&same, c, "attention_k_eq_v")) ||
	    (status = kvt_config_get(&heads, c, "num_global_key_value_heads")) ||
	    (status = kvt_config_need(&args->head_dim, c, "global_head_dim")))
		return status;
	if (heads && same)
		args->heads = heads;
	return KVT_OK;
}

/* Attention to both sides halves the window. */
static enum kvt_status gemma4_window(int64_t *out, struct config *c)
{
	const char *sides = NULL;
	const char key[] = "use_bidirectional_attention";
	enum kvt_status status = KVT_OK;

	if (json_is_string(json_object_get(c->in.object, key)))
		status = kvt_json_string(&sides, &c->in, key);
	if (status || (status = kvt_config_need(out, c, "sliding_window")))
		return status;
	if (sides && !strcmp(sides, "all"))
		*out = *out / 2 + 1;
	return KVT_OK;
}

enum kvt_status kvt_caches_gemma4(struct config *c)
{
	struct kvt_spec_args args = { .heads = 0 }, full;
	enum kvt_status status;

	if ((status = kvt_config_enter_kind(c, LAYER_WINDOW)) ||
	    (status = kvt_config_heads(&args, c)) ||
	    (status = gemma4_window(&args.window, c)))
		return status;
	kvt_config_leave_kind(c);
	full = args;
	full.window = 0;
	if ((status = kvt_config_enter_kind(c, LAYER_FULL)) ||
	    (status = global_heads(&full, c)))
		return status;
	kvt_config_leave_kind(c);
	kvt_config_add(c, "window", "sliding-window", KIND(LAYER_WINDOW), &args);
	kvt_config_add(c, "full", "gqa", KIND(LAYER_FULL), &full);
	return KVT_OK;
}

/* ---- Inkling ------------------------------------------------------------ */

/*
 * Four convolutions of a layer, of its keys, its values and what it adds to the stream
 * twice, are kept side by side in a window as long as their kernel.
 */
static void add_convs(struct config *c, const char *name, enum layer_kind kind,
		      const struct kvt_spec_args *of, int64_t hidden, int64_t kernel)
{
	int64_t width = 2 * of->head_dim + 2 * (hidden / of->heads);
	struct kvt_spec_args args = { .block_size = kernel, .heads = of->heads,
				      .head_dim = 1, .window = kernel, .elem = 2 };

	while (args.head_dim < width)
		args.head_dim *= 2;
	kvt_config_add(c, name, "sconv", KIND(kind), &args);
}

enum kvt_status kvt_caches_inkling(struct config *c)
{
	struct kvt_spec_args full = { .heads = 0 }, local = { .heads = 0 };
	int64_t hidden, kernel;
	enum kvt_status status;

	if ((status = kvt_config_heads(&full, c)) ||
	    (status = kvt_config_need(&hidden, c, "hidden_size")) ||
	    (status = kvt_config_need(&kernel, c, KEYS_SCONV)) ||
	    (status = kvt_config_need(&local.heads, c, "swa_num_key_value_heads")) ||
	    (status = kvt_config_need(&local.head_dim, c, "swa_head_dim")) ||
	    (status = kvt_config_need(&local.window, c, "sliding_window_size")))
		return status;
	full.head_dim_v = 0;
	kvt_config_add(c, "full", "gqa", KIND(LAYER_FULL), &full);
	add_convs(c, "conv-full", LAYER_FULL, &full, hidden, kernel);
	kvt_config_add(c, "window", "sliding-window", KIND(LAYER_WINDOW), &local);
	add_convs(c, "conv-window", LAYER_WINDOW, &local, hidden, kernel);
	return KVT_OK;
}

/* ---- latents ------------------------------------------------------------ */

enum kvt_status kvt_config_indexer(struct config *c)
{
	enum kvt_status status;
	int64_t dim;

	if ((status = kvt_config_need(&dim, c, "index_head_dim")))
		return status;
	if (dim != 128)
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "index_head_dim is %lld, expected 128", LL(dim));
	return KVT_OK;
}

/*
 * num_key_value_heads and head_dim of such a model do not describe its cache.  Layers
 * that own an indexer are specs of their own where others share its choice.
 */
enum kvt_status kvt_caches_mla(struct config *c)
{
	int64_t rank, rope;
	struct kvt_spec_args args = { .latent = 0 }, none = { .latent = 0 };
	enum kvt_status status;

	if ((status = kvt_config_need(&rank, c, "kv_lora_rank")) ||
	    (status = kvt_config_need(&rope, c, "qk_rope_head_dim")) ||
	    (c->count[LAYER_SPARSE] && (status = kvt_config_indexer(c))))
		return status;
	args.latent = rank + rope;
	for (int k = 0; k < LAYER_KINDS; k++) {
		c->rank[k] = rank;
		c->rope[k] = rope;
	}
	args.leader = c->count[LAYER_SHARED] || (c->count[LAYER_FULL] &&
						 c->count[LAYER_SPARSE]);
	kvt_config_add(c, "mla", "mla", KIND(LAYER_SPARSE), &args);
	kvt_config_add(c, "indexer", "indexer", KIND(LAYER_SPARSE), &none);
	args.leader = 0;
	kvt_config_add(c, c->count[LAYER_SPARSE] ? "mla-shared" : "mla", "mla",
		       KIND(LAYER_FULL) | KIND(LAYER_SHARED), &args);
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
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "compress_rates are %lld and %lld, expected 4 and 128",
				       LL(four), LL(heavy));
	if (json_is_number(rotated) && json_number_value(rotated) * 512 != 64)
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "partial_rotary_factor is %g, expected 0.125",
				       json_number_value(rotated));
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
			return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
					       "%s is %lld, expected %lld", facts[i].key,
					       LL(n), LL(facts[i].value));
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
	const unsigned c4 = KIND(LAYER_C4), c128 = KIND(LAYER_C128);
	struct kvt_spec_args window = { .block_size = 64 };
	struct kvt_spec_args wide = { .block_size = 256 };
	struct kvt_spec_args four = { .block_size = 4, .window = 8 };
	struct kvt_spec_args eight = { .block_size = 8, .window = 128 };
	enum kvt_status status;

	if ((status = check_v4(c)) ||
	    (status = kvt_config_need(&window.window, c, "sliding_window")))
		return status;
	kvt_config_add(c, "swa", "dsv4-swa", KIND(LAYER_WINDOW) | c4 | c128, &window);
	kvt_config_add(c, "c4a", "dsv4-c4a", c4, &wide);
	kvt_config_add(c, "c128a", "dsv4-c128a", c128, &wide);
	kvt_config_add(c, "compressor-c4", "dsv4-compressor-c4", c4, &four);
	kvt_config_add(c, "compressor-c128", "dsv4-compressor-c128", c128, &eight);
	kvt_config_add(c, "indexer", "dsv4-indexer", c4, &wide);
	kvt_config_add(c, "indexer-compressor", "dsv4-indexer-compressor", c4, &four);
	c->out->block_size = 256;
	return KVT_OK;
}
