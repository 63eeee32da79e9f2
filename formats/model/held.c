/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held.c - what transformers holds, where vLLM has a pool
 *
 * A tensor for each thing of each layer, of one request of so many tokens: keys and
 * values apart, latents as a rank and a rotated part, an indexer's keys in the cache's
 * type, convolutions with one tap more than they need, states in float32.  In: the
 * groups, with the kinds of layers that each is of.  What a class does in its own way
 * is a row of own[].
 *
 * Facts: transformers 5.24.0, of which each class that generates was run without weights
 * and its cache taken apart (tests/engines).
 */
#include "formats/model/rules.h"

#include <string.h>

/* ---- tensors -------------------------------------------------------------- */

/* A dimension below 0 ends them; the batch is one request. */
static struct kvt_held_tensor *put(struct kvt_held_kind *of, const char *name, int index,
				   int64_t a, int64_t b, int64_t c)
{
	struct kvt_held_tensor *t = &of->tensor[of->ntensors++];
	const int64_t dims[] = { a, b, c };

	*t = (struct kvt_held_tensor){ .name = name, .index = index, .ndims = 1,
				       .shape = { 1 } };
	for (int i = 0; i < 3 && dims[i] >= 0; i++)
		t->shape[t->ndims++] = dims[i];
	return t;
}

/* A window is full one token before its width, as the next one is on its way. */
static int64_t kept(const struct config *c, int64_t window)
{
	int64_t tokens = c->hints->held->tokens + c->more;

	return window > 1 && tokens >= window ? window - 1 : tokens;
}

static void heads(struct kvt_held_kind *of, const struct config *c, int kind,
		  const struct kvt_spec_args *a)
{
	int64_t dim_v = a->head_dim_v ? a->head_dim_v : a->head_dim;

	(void)kind;
	of->window = a->window;
	put(of, "keys", -1, a->heads, kept(c, a->window), a->head_dim);
	put(of, "values", -1, a->heads, kept(c, a->window), dim_v);
}

static void latents(struct kvt_held_kind *of, const struct config *c, int kind,
		    const struct kvt_spec_args *a)
{
	of->window = a->window;
	put(of, "keys", -1, 1, kept(c, a->window), c->rank[kind]);
	put(of, "values", -1, 1, kept(c, a->window), c->rope[kind]);
}

static void indexer(struct kvt_held_kind *of, const struct config *c, int kind,
		    const struct kvt_spec_args *a)
{
	(void)kind;
	(void)a;
	put(of, "indexer_keys", -1, kept(c, 0), 128, -1);
}

/* ---- states --------------------------------------------------------------- */

static void conv(struct kvt_held_kind *of, int64_t channels, int64_t kernel)
{
	put(of, "conv_states", 0, channels, kernel, -1);
}

static void recurrent(struct kvt_held_kind *of, int64_t a, int64_t b, int64_t c)
{
	put(of, "recurrent_states", 0, a, b, c)->wide = true;
}

static void mamba1_conv(struct kvt_held_kind *of, const struct config *c, int kind,
			const struct kvt_spec_args *a)
{
	(void)c;
	(void)kind;
	conv(of, a->inter, a->kernel);
}

static void mamba1_ssm(struct kvt_held_kind *of, const struct config *c, int kind,
		       const struct kvt_spec_args *a)
{
	(void)kind;
	if (c->state_heads)
		recurrent(of, c->state_heads, a->inter / c->state_heads, a->state_size);
	else
		recurrent(of, a->inter, a->state_size, -1);
}

static void mamba2_conv(struct kvt_held_kind *of, const struct config *c, int kind,
			const struct kvt_spec_args *a)
{
	(void)c;
	(void)kind;
	conv(of, a->heads * a->head_dim + 2 * a->groups * a->state_size, a->kernel);
}

static void mamba2_ssm(struct kvt_held_kind *of, const struct config *c, int kind,
		       const struct kvt_spec_args *a)
{
	(void)c;
	(void)kind;
	recurrent(of, a->heads, a->head_dim, a->state_size);
}

static void gdn_conv(struct kvt_held_kind *of, const struct config *c, int kind,
		     const struct kvt_spec_args *a)
{
	(void)c;
	(void)kind;
	conv(of, 2 * a->key_heads * a->key_dim + a->heads * a->head_dim, a->kernel);
}

static void gdn_ssm(struct kvt_held_kind *of, const struct config *c, int kind,
		    const struct kvt_spec_args *a)
{
	(void)c;
	(void)kind;
	recurrent(of, a->heads, a->key_dim, a->head_dim);
}

static void kda_conv(struct kvt_held_kind *of, const struct config *c, int kind,
		     const struct kvt_spec_args *a)
{
	(void)c;
	(void)kind;
	conv(of, 3 * a->heads * a->head_dim, a->kernel);
}

static void kda_ssm(struct kvt_held_kind *of, const struct config *c, int kind,
		    const struct kvt_spec_args *a)
{
	(void)c;
	(void)kind;
	recurrent(of, a->heads, a->head_dim, a->head_dim);
}

/* ---- groups --------------------------------------------------------------- */

static const struct {
	const char *spec;
	void (*hold)(struct kvt_held_kind *of, const struct config *c, int kind,
		     const struct kvt_spec_args *args);
} specs[] = {
	{ "gqa", heads }, { "sliding-window", heads }, { "chunked-local", heads },
	{ "mla", latents }, { "indexer", indexer },
	{ "mamba1-conv", mamba1_conv }, { "mamba1-ssm", mamba1_ssm },
	{ "mamba2-conv", mamba2_conv }, { "mamba2-ssm", mamba2_ssm },
	{ "gdn-conv", gdn_conv }, { "gdn-ssm", gdn_ssm },
	{ "kda-conv", kda_conv }, { "kda-ssm", kda_ssm }, { "short-conv", mamba1_conv },
};

static enum kvt_status hold_group(struct config *c, int g)
{
	const struct kvt_model_group *group = &c->out->model.group[g];
	size_t i = 0;

	while (i < sizeof(specs) / sizeof(specs[0]) && strcmp(specs[i].spec, group->spec))
		i++;
	if (i == sizeof(specs) / sizeof(specs[0]) || !c->kinds[g])
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "what transformers holds of %s, %s, is not known: without --engine it is what vLLM has",
				       c->type, group->name);
	for (int kind = 0; kind < LAYER_KINDS; kind++)
		if (c->count[kind] && (c->kinds[g] & KIND(kind)))
			specs[i].hold(&c->hints->held->of[kind], c, kind, &group->args);
	return KVT_OK;
}

static enum kvt_status hold_groups(struct config *c)
{
	enum kvt_status status = KVT_OK;

	for (int g = 0; g < c->out->model.ngroups && !status; g++)
		status = hold_group(c, g);
	return status;
}

/* ---- classes that do it in their own way ----------------------------------- */

/* Convolutions in float32 of keys, of values, and of what is added to the stream. */
static enum kvt_status hold_inkling(struct config *c)
{
	int64_t hidden = 0, kernel = 0;
	enum kvt_status status;

	if ((status = kvt_config_need(&hidden, c, KEYS_HIDDEN)) ||
	    (status = kvt_config_need(&kernel, c, KEYS_SCONV)))
		return status;
	for (int g = 0; g < c->out->model.ngroups; g++)
		for (int kind = 0; kind < LAYER_KINDS; kind++) {
			const struct kvt_spec_args *a = &c->out->model.group[g].args;
			struct kvt_held_kind *of = &c->hints->held->of[kind];
			int64_t width = a->heads * a->head_dim;

			if (!strcmp(c->out->model.group[g].spec, "sconv") ||
			    !c->count[kind] || !(c->kinds[g] & KIND(kind)))
				continue;
			heads(of, c, kind, a);
			for (int i = 0; i < 4; i++)
				put(of, "conv_states", i, i < 2 ? width : hidden, kernel,
				    -1)->wide = true;
			of->type = kind == LAYER_WINDOW ?
				   "LinearAttentionAndSlidingWindowAttentionLayer" :
				   "LinearAttentionAndFullAttentionLayer";
		}
	return KVT_OK;
}

/* Convolutions of queries and keys one after the other, and half of the last values. */
static enum kvt_status hold_cca(struct config *c)
{
	int64_t first = 0, second = 0, queries = 0;
	struct kvt_spec_args args = { .heads = 0 };
	enum kvt_status status = hold_groups(c);

	if (status || (status = kvt_config_need(&first, c, "cca_time0")) ||
	    (status = kvt_config_need(&second, c, "cca_time1")) ||
	    (status = kvt_config_queries(&queries, c)) ||
	    (status = kvt_config_heads(&args, c)))
		return status;
	for (int kind = LAYER_BOTH; kind < LAYER_KINDS;
	     kind += LAYER_BOTH_WINDOW - LAYER_BOTH) {
		struct kvt_held_kind *of = &c->hints->held->of[kind];

		if (!c->count[kind])
			continue;
		conv(of, (queries + args.heads) * args.head_dim, first + second - 2);
		put(of, "recurrent_states", 0, args.heads * args.head_dim / 2, -1, -1);
	}
	return KVT_OK;
}

/* The indexer's keys are normalised in float32, and stay so. */
static enum kvt_status hold_dots3(struct config *c)
{
	struct kvt_held_kind *of = &c->hints->held->of[LAYER_SPARSE];
	enum kvt_status status = hold_groups(c);

	for (int i = 0; !status && i < of->ntensors; i++)
		of->tensor[i].wide = !strcmp(of->tensor[i].name, "indexer_keys");
	return status;
}

/* States lie beside the layers; a layer is there once something is put in it. */
static enum kvt_status hold_minimax(struct config *c)
{
	struct kvt_held *held = c->hints->held;
	enum kvt_status status = KVT_OK;

	for (int g = 0; g < c->out->model.ngroups && !status; g++)
		if (!(c->kinds[g] & KIND(LAYER_STATE)))
			status = hold_group(c, g);
	held->cache = "MiniMaxCache";
	held->of[LAYER_STATE].type = "DynamicLayer";
	while (held->layers > 1 && c->kind[held->layers - 1] == LAYER_STATE)
		held->layers--;
	kvt_config_note(c,
		"states of linear attention are not counted: MiniMaxCache keeps them beside the layers");
	return status;
}

/* What is compressed, and what waits to be: tokens that do not fill a ratio yet. */
static void compressor(struct kvt_held_kind *of, int64_t tokens, int64_t ratio,
		       const int64_t *width, int n)
{
	const int64_t waits = tokens % ratio, sides = n > 1 ? 2 : 1;

	for (int i = 0; i < n; i++)
		put(of, "buffer_kv", i, waits, sides * width[i], -1);
	for (int i = 0; i < n; i++)
		put(of, "buffer_gate", i, waits, sides * width[i], -1);
	for (int i = 0; i < n; i++)
		put(of, "compressed_kv", i, tokens / ratio, width[i], -1);
	if (n < 2 || tokens < ratio)
		return;
	for (int i = 0; i < n; i++)
		put(of, "overlap_kv", i, ratio, width[i], -1);
	for (int i = 0; i < n; i++)
		put(of, "overlap_gate", i, ratio, width[i], -1)->wide = true;
}

/* A window of keys that are values, too, and what the compressors have. */
static enum kvt_status hold_v4(struct config *c)
{
	static const int64_t width[] = { 512, 128 };
	static const int kinds[] = { LAYER_WINDOW, LAYER_C4, LAYER_C128 };
	static const char *const types[] = { "DynamicSlidingWindowLayer",
					     "DeepseekV4CSACache", "DeepseekV4HCACache" };
	const int64_t tokens = kept(c, 0);
	struct kvt_spec_args a = { .heads = 1, .head_dim = 512 };
	enum kvt_status status = kvt_config_need(&a.window, c, "sliding_window");

	for (int i = 0; i < 3 && !status; i++) {
		struct kvt_held_kind *of = &c->hints->held->of[kinds[i]];

		heads(of, c, kinds[i], &a);
		of->type = types[i];
		if (i)
			compressor(of, tokens, i == 1 ? 4 : 128, width, i == 1 ? 2 : 1);
	}
	return status;
}

static const struct {
	config_step *rule, *hold;	/* of attention, or of states */
} own[] = {
	{ kvt_caches_inkling, hold_inkling }, { kvt_caches_cca, hold_cca },
	{ kvt_caches_dots3, hold_dots3 }, { kvt_states_lightning, hold_minimax },
	{ kvt_caches_v4, hold_v4 },
};

/* ---- all of it ------------------------------------------------------------ */

static const char *const types[LAYER_KINDS] = {
	[LAYER_NONE] = "DummyLayer", [LAYER_CROSS] = "DynamicLayer",
	[LAYER_FULL] = "DynamicLayer", [LAYER_WINDOW] = "DynamicSlidingWindowLayer",
	[LAYER_CHUNK] = "DynamicSlidingWindowLayer",
	[LAYER_STATE] = "LinearAttentionLayer",
	[LAYER_BOTH] = "LinearAttentionAndFullAttentionLayer",
	[LAYER_BOTH_WINDOW] = "LinearAttentionAndSlidingWindowAttentionLayer",
	[LAYER_SPARSE] = "DynamicIndexedLayer", [LAYER_SHARED] = "DynamicIndexedLayer",
};

/* Tokens of a prompt that the model has learned stand before those of a request. */
static enum kvt_status prompt(struct config *c)
{
	if (!json_object_get(c->in.object, "prompt_types"))
		return KVT_OK;
	return kvt_config_get(&c->more, c, "prompt_length");
}

enum kvt_status kvt_config_hold(struct config *c)
{
	struct kvt_held *held = c->hints->held;
	config_step *hold = hold_groups;
	enum kvt_status status = prompt(c);

	held->dtype = c->out->dtype;
	held->cache = "DynamicCache";
	held->layers = c->nlayers;
	memcpy(held->kind, c->kind, sizeof(held->kind));
	for (int k = 0; k < LAYER_KINDS; k++)
		held->of[k] = (struct kvt_held_kind){ .type = types[k] };
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (own[i].rule == c->family->attention ||
		    own[i].rule == c->family->state)
			hold = own[i].hold;
	return status ? status : hold(c);
}
