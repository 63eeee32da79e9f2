/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_preset.c - the caches that models and engines have, as specs
 *
 * In: a name and numbers, all that is missing said at once.  Out: a spec: content of a
 * slot, heads, tokens a slot stands for.  A row of recipes[] is a name, a function that
 * makes the content, and what it needs; sizes of fixed contents are those of
 * lib/layout/content_types.c.
 */
#include "lib/kvt/spec.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- what a preset must be told ----------------------------------------- */

enum {
	BLOCK = 1 << 0, HEADS = 1 << 1, DIM = 1 << 2, LATENT = 1 << 3,
	INTER = 1 << 4, GROUPS = 1 << 5, STATE = 1 << 6, KERNEL = 1 << 7,
	KHEADS = 1 << 8, KDIM = 1 << 9, RATIO = 1 << 10, WINDOW = 1 << 11,
	BLOCKS = 1 << 12,
};

#define FIELD(name) { #name, offsetof(struct kvt_spec_args, name) }
static const struct {
	const char *name;
	size_t offset;
} fields[] = {			/* in the order of the bits */
	FIELD(block_size), FIELD(heads), FIELD(head_dim), FIELD(latent),
	FIELD(inter), FIELD(groups), FIELD(state_size), FIELD(kernel),
	FIELD(key_heads), FIELD(key_dim), FIELD(ratio), FIELD(window),
	FIELD(blocks),
	/* never needed, but no number may be negative */
	FIELD(elem), FIELD(head_dim_v), FIELD(spec_tokens),
	FIELD(retained), FIELD(stride), FIELD(leader), FIELD(replay),
};
enum { NFIELDS = sizeof(fields) / sizeof(fields[0]) };

/*
 * A row of the table.  'bytes' is a content of fixed size, of elements of
 * 'elem' bytes; for quantised heads 'bits' are those of keys and of values.
 */
struct recipe {
	struct kvt_spec_preset preset;
	enum kvt_status (*make)(struct kvt_spec *spec, const struct recipe *recipe,
				const struct kvt_spec_args *args,
				struct kvt_error *err);
	enum kvt_kind kind;
	enum kvt_spec_class class;	/* 0: as its kind is */
	unsigned needs;
	int64_t bytes, elem, block_size, ratio, alignment;
	int bits[2];
	bool planar;
	bool counted;			/* that all ranks hold it is in vLLM's spec */
};

/* All that is missing, in one sentence. */
static enum kvt_status check_needs(const struct recipe *recipe,
				   const struct kvt_spec_args *args,
				   struct kvt_error *err)
{
	char missing[256];
	size_t n = 0;

	for (int i = 0; i < NFIELDS; i++) {
		int64_t value;

		memcpy(&value, (const char *)args + fields[i].offset, sizeof(value));
		if (!value && recipe->needs >> i & 1)
			n += (size_t)snprintf(missing + n, sizeof(missing) - n, "%s%s",
					      n ? ", " : "", fields[i].name);
	}
	return n ? kvt_fail(err, KVT_BAD_INPUT, "%s needs %s", recipe->preset.name,
			    missing) : KVT_OK;
}

static enum kvt_status check_args(const struct recipe *recipe,
				  const struct kvt_spec_args *args, struct kvt_error *err)
{
	enum kvt_status status = check_needs(recipe, args, err);

	if (status)
		return status;
	for (int i = 0; i < NFIELDS; i++) {
		int64_t value;

		memcpy(&value, (const char *)args + fields[i].offset, sizeof(value));
		/* small enough that no product of three of them overflows */
		if (value < 0 || value > 1 << 20)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s is %lld, expected at most %d",
					recipe->preset.name, fields[i].name,
					LL(value), 1 << 20);
	}
	return KVT_OK;
}

/* ---- attention ---------------------------------------------------------- */

static enum kvt_status set_content(struct kvt_spec *spec, int64_t elem, int n,
				   int64_t first, int64_t second)
{
	spec->elem = elem;
	spec->ncontent = n;
	spec->content[0] = first;
	spec->content[1] = second;
	spec->content_size = elem * first * (n > 1 ? second : 1);
	return KVT_OK;
}

static enum kvt_status dense(struct kvt_spec *spec, const struct recipe *recipe,
			     const struct kvt_spec_args *args, struct kvt_error *err)
{
	int64_t k = args->head_dim, v = args->head_dim_v ? args->head_dim_v : k;
	int64_t elem = args->elem ? args->elem : 2;

	(void)recipe;
	(void)err;
	if (k == v)
		return set_content(spec, elem, 2, 2, k);
	return set_content(spec, elem, 1, k + v, 0);
}

/* A scale, or the scales of groups of 16, beside each head vector. */
static enum kvt_status scaled(struct kvt_spec *spec, const struct recipe *recipe,
			      const struct kvt_spec_args *args, struct kvt_error *err)
{
	int64_t d = args->head_dim;
	int64_t scales = recipe->bytes ? recipe->bytes : d / 16;

	if (d * recipe->bits[0] % 8 || (!recipe->bytes && d % 16))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: head_dim is %lld, which does not fill whole bytes",
				recipe->preset.name, LL(d));
	return set_content(spec, 1, 1, 2 * (d * recipe->bits[0] / 8 + scales), 0);
}

/* One vector of each head: states of a convolution, kept like a window's tokens. */
static enum kvt_status single(struct kvt_spec *spec, const struct recipe *recipe,
			      const struct kvt_spec_args *args, struct kvt_error *err)
{
	(void)recipe;
	(void)err;
	spec->no_replicas = true;
	return set_content(spec, args->elem ? args->elem : 2, 1, args->head_dim, 0);
}

/* A row of packed keys and values; keys of 8 bits carry no scale. */
static enum kvt_status packed_row(struct kvt_spec *spec, const struct recipe *recipe,
				  const struct kvt_spec_args *args, struct kvt_error *err)
{
	int64_t key = (args->head_dim * recipe->bits[0] + 7) / 8;
	int64_t value = (args->head_dim * recipe->bits[1] + 7) / 8 + 4;

	(void)err;
	if (recipe->bits[0] < 8)
		key += 2;
	return set_content(spec, 1, 1, (key + value + 1) / 2 * 2, 0);
}

/* ---- latents and fixed rows: one head that all ranks hold ---------------- */

static enum kvt_status latent(struct kvt_spec *spec, const struct recipe *recipe,
			      const struct kvt_spec_args *args, struct kvt_error *err)
{
	int64_t elem = args->elem ? args->elem : 2;

	(void)err;
	spec->total_heads = 1;
	if (recipe->bytes)	/* scales beside the row */
		return set_content(spec, 1, 1, args->latent * elem + recipe->bytes, 0);
	return set_content(spec, elem, 1, args->latent, 0);
}

static enum kvt_status fixed(struct kvt_spec *spec, const struct recipe *recipe,
			     const struct kvt_spec_args *args, struct kvt_error *err)
{
	(void)args;
	(void)err;
	spec->total_heads = 1;
	return set_content(spec, recipe->elem, 1, recipe->bytes / recipe->elem, 0);
}

/* Vectors side by side; they are no heads, so no rank has fewer of them. */
static enum kvt_status vectors(struct kvt_spec *spec, const struct recipe *recipe,
			       const struct kvt_spec_args *args, struct kvt_error *err)
{
	(void)recipe;
	(void)err;
	spec->total_heads = 1;
	return set_content(spec, args->elem ? args->elem : 2, 1,
			   args->heads * args->head_dim, 0);
}

/* Rows of which only the bytes are known. */
static enum kvt_status bytes(struct kvt_spec *spec, const struct recipe *recipe,
			     const struct kvt_spec_args *args, struct kvt_error *err)
{
	(void)recipe;
	(void)err;
	spec->total_heads = 1;
	return set_content(spec, 1, 1, args->latent, 0);
}

/* ---- recurrent states --------------------------------------------------- */

static int64_t taps(const struct kvt_spec_args *args)
{
	return args->kernel - 1 + args->spec_tokens;
}

static void add_part(struct kvt_spec *spec, const char *name, int64_t units,
		     int64_t rows, bool no_replicas)
{
	spec->part[spec->nparts++] =
		(struct kvt_spec_part){ name, units, rows, no_replicas };
}

/* The channels follow when the state is dealt to ranks. */
static enum kvt_status conv(struct kvt_spec *spec, const struct recipe *recipe,
			    const struct kvt_spec_args *args, struct kvt_error *err)
{
	if (taps(args) < 1)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: a kernel of %lld has no taps",
				recipe->preset.name, LL(args->kernel));
	spec->total_heads = 1;
	return set_content(spec, args->elem ? args->elem : 2, 2, 1, taps(args));
}

static enum kvt_status conv_x(struct kvt_spec *spec, const struct recipe *recipe,
			      const struct kvt_spec_args *args, struct kvt_error *err)
{
	add_part(spec, "x", args->inter, 1, true);
	return conv(spec, recipe, args, err);
}

/* Every rank has all of x. */
static enum kvt_status conv_whole(struct kvt_spec *spec, const struct recipe *recipe,
				  const struct kvt_spec_args *args, struct kvt_error *err)
{
	add_part(spec, "x", 1, args->inter, false);
	return conv(spec, recipe, args, err);
}

/* x is dealt out by head, so that it stays with the heads of the SSM state. */
static enum kvt_status conv_xbc(struct kvt_spec *spec, const struct recipe *recipe,
				const struct kvt_spec_args *args, struct kvt_error *err)
{
	if (args->inter && args->inter != args->heads * args->head_dim)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: inter is %lld, but %lld heads of %lld are %lld",
				recipe->preset.name, LL(args->inter), LL(args->heads),
				LL(args->head_dim), LL(args->heads * args->head_dim));
	add_part(spec, "x", args->heads, args->head_dim, true);
	add_part(spec, "B", args->groups, args->state_size, false);
	add_part(spec, "C", args->groups, args->state_size, false);
	return conv(spec, recipe, args, err);
}

/* Where an engine keeps q, k and v of KDA as three states, those are conv_x. */
static enum kvt_status conv_qkv(struct kvt_spec *spec, const struct recipe *recipe,
				const struct kvt_spec_args *args, struct kvt_error *err)
{
	int64_t heads = args->key_heads ? args->key_heads : args->heads;
	int64_t dim = args->key_dim ? args->key_dim : args->head_dim;

	add_part(spec, "q", heads, dim, true);
	add_part(spec, "k", heads, dim, true);
	add_part(spec, "v", args->heads, args->head_dim, true);
	return conv(spec, recipe, args, err);
}

/* head_dim rows of whatever the preset needs as the second extent. */
static enum kvt_status matrix(struct kvt_spec *spec, const struct recipe *recipe,
			      const struct kvt_spec_args *args, struct kvt_error *err)
{
	int64_t columns = recipe->needs & STATE ? args->state_size :
			  recipe->needs & KDIM ? args->key_dim : args->head_dim;

	(void)err;
	spec->no_replicas = true;
	return set_content(spec, args->elem ? args->elem : 4, 2, args->head_dim, columns);
}

/* Mamba-1 has no heads; its channels are dealt out like heads. */
static enum kvt_status channels(struct kvt_spec *spec, const struct recipe *recipe,
				const struct kvt_spec_args *args, struct kvt_error *err)
{
	(void)recipe;
	(void)err;
	spec->no_replicas = true;
	spec->total_heads = args->inter;
	return set_content(spec, args->elem ? args->elem : 4, 1, args->state_size, 0);
}

/* ---- table -------------------------------------------------------------- */

#define ATTENTION(f, k, n, r) \
	.make = f, .kind = k, .needs = BLOCK | HEADS | DIM | (n), .ratio = r
#define QUANTISED(f, k, v, n) \
	ATTENTION(f, KVT_FULL_ATTENTION, 0, 1), .bits = { k, v }, .bytes = n
#define LATENTS(n) \
	.make = latent, .kind = KVT_MLA, .needs = BLOCK | LATENT, .ratio = 1, \
	.bytes = n, .counted = true
#define ROWS(k, n, e, block, r, align) \
	.make = fixed, .kind = k, .bytes = n, .elem = e, .block_size = block, \
	.ratio = r, .alignment = align, .counted = (r) != ANY_RATIO
#define RECURRENT(f, k, n) .make = f, .kind = k, .needs = n
#define PLANES(k, n, block, r, align) \
	ROWS(k, n, 1, block, r, align), .planar = true
#define INDEXES(n, block, r, align) PLANES(KVT_OPAQUE, n, block, r, align)
#define AS(c) .class = KVT_CLASS_ ## c
/* A ratio that is not the row's to say, and one that need not be said. */
enum { SLOTS_A_TOKEN = -1, ANY_RATIO = -2 };

static const struct recipe recipes[] = {
	{ { "gqa", "keys and values of some heads; MHA and MQA, too" },
	  ATTENTION(dense, KVT_FULL_ATTENTION, 0, 1) },
	{ { "sliding-window", "gqa of which the last tokens matter" },
	  ATTENTION(dense, KVT_SLIDING_WINDOW, WINDOW, 1) },
	{ { "chunked-local", "gqa within chunks of tokens" },
	  ATTENTION(dense, KVT_CHUNKED_LOCAL, WINDOW, 1) },
	{ { "rswa", "gqa of which the prompt and the last tokens matter" },
	  ATTENTION(dense, KVT_RSWA, WINDOW, 1) },
	{ { "sink", "gqa beside blocks of sinks that all requests share" },
	  ATTENTION(dense, KVT_FULL_ATTENTION, 0, 1), AS(SINK) },
	{ { "cross", "cross attention; pooled: 'ratio' slots a token" },
	  ATTENTION(dense, KVT_CROSS, 0, SLOTS_A_TOKEN) },
	{ { "pooled", "gqa of 'ratio' slots a token" },
	  ATTENTION(dense, KVT_FULL_ATTENTION, 0, SLOTS_A_TOKEN) },
	{ { "encoder-only", "gqa of an encoder; nothing of it is kept" },
	  ATTENTION(dense, KVT_CROSS, 0, 1), AS(ENCODER) },
	{ { "compressed", "gqa of 'ratio' tokens a slot (the RFC's DeepSeek V4)" },
	  ATTENTION(dense, KVT_FULL_ATTENTION, RATIO, 0) },
	{ { "sconv", "Inkling: what its short convolutions keep of the last tokens" },
	  ATTENTION(single, KVT_SLIDING_WINDOW, WINDOW, 1) },
	{ { "int8-per-token-head", "8 bits and a float32 scale a head vector" },
	  QUANTISED(scaled, 8, 8, 4) },
	{ { "fp8-per-token-head", "fp8 and a float32 scale a head vector" },
	  QUANTISED(scaled, 8, 8, 4) },
	{ { "int4-per-token-head", "4 bits and a float32 scale a head vector" },
	  QUANTISED(scaled, 4, 4, 4) },
	{ { "nvfp4", "4 bits and an fp8 scale for 16 of them; planes in a block" },
	  QUANTISED(scaled, 4, 4, 0), .planar = true },
	{ { "turboquant-k8v4", "rows of fp8 keys, 4-bit values" },
	  QUANTISED(packed_row, 8, 4, 0) },
	{ { "turboquant-4bit-nc", "rows of 4-bit keys and values" },
	  QUANTISED(packed_row, 4, 4, 0) },
	{ { "turboquant-k3v4-nc", "rows of 3-bit keys, 4-bit values" },
	  QUANTISED(packed_row, 3, 4, 0) },
	{ { "turboquant-3bit-nc", "rows of 3-bit keys and values" },
	  QUANTISED(packed_row, 3, 3, 0) },

	{ { "mla", "one latent row" }, LATENTS(0) },
	{ { "mla-per-token-head", "one latent row and two float32 scales" },
	  LATENTS(8) },
	{ { "hidden", "activations of each token, for a connector" },
	  LATENTS(0), AS(HIDDEN) },
	{ { "fp8-ds-mla", "DeepSeek V3.2: 512 fp8, 4 float32 scales, 64 bf16" },
	  ROWS(KVT_MLA, 656, 1, 64, 1, 0) },
	{ { "nvfp4-ds-mla", "DeepSeek V3.2: 512 of 4 bits, 64 fp8, 32 fp8 scales" },
	  ROWS(KVT_MLA, 352, 1, 64, 1, 0) },
	{ { "indexer", "DeepSeek V3.2: 128 fp8 and a float32 scale; planes" },
	  INDEXES(132, 64, 1, 0) },
	{ { "indexer-mxfp4", "128 of 4 bits and 4 scales; planes" },
	  INDEXES(68, 64, 1, 0) },
	{ { "index-key", "keys of an indexer, of one type; 'ratio' tokens a slot" },
	  .make = latent, .kind = KVT_OPAQUE, .needs = BLOCK | LATENT,
	  .ratio = ANY_RATIO },
	{ { "kpool-indexer", "GLM-5.3: indexer rows of 'ratio' pooled tokens; planes" },
	  .make = fixed, .kind = KVT_OPAQUE, .bytes = 132, .elem = 1, .planar = true,
	  .needs = BLOCK | RATIO, .counted = true },
	{ { "ring", "vectors of a request's last tokens, in its only block" },
	  .make = vectors, .kind = KVT_OPAQUE, .needs = BLOCK | HEADS | DIM, .ratio = 1,
	  AS(RING) },
	{ { "hisparse-hot", "HiSparse: rows of 'latent' bytes, 'blocks' a request" },
	  .make = bytes, .kind = KVT_OPAQUE, .needs = BLOCK | LATENT | BLOCKS, .ratio = 1,
	  AS(HOT) },
	{ { "hisparse-resident", "HiSparse: rows of 'latent' bytes that may be dropped" },
	  .make = bytes, .kind = KVT_OPAQUE, .needs = BLOCK | LATENT, .ratio = 1,
	  AS(RESIDENT) },

	{ { "dsv4-c4a", "DeepSeek V4: 4 tokens a latent; planes" },
	  PLANES(KVT_MLA, 584, 256, 4, 576) },
	{ { "dsv4-c128a", "DeepSeek V4: 128 tokens a latent; planes" },
	  PLANES(KVT_MLA, 584, 256, 128, 576) },
	{ { "dsv4-swa", "DeepSeek V4: latents of the sliding window; planes" },
	  PLANES(KVT_MLA, 584, 64, 1, 576), AS(WINDOW_MLA) },
	{ { "dsv4-c4a-bf16", "DeepSeek V4: 4 tokens a latent" },
	  ROWS(KVT_MLA, 1024, 2, 256, 4, 512) },
	{ { "dsv4-c128a-bf16", "DeepSeek V4: 128 tokens a latent" },
	  ROWS(KVT_MLA, 1024, 2, 256, 128, 512) },
	{ { "dsv4-swa-bf16", "DeepSeek V4: latents of the sliding window" },
	  ROWS(KVT_MLA, 1024, 2, 64, 1, 512), AS(WINDOW_MLA) },
	{ { "dsv4-c4a-fp8", "DeepSeek V4 of FlashInfer: 4 tokens a latent" },
	  ROWS(KVT_MLA, 512, 1, 256, 4, 512) },
	{ { "dsv4-c128a-fp8", "DeepSeek V4 of FlashInfer: 128 tokens a latent" },
	  ROWS(KVT_MLA, 512, 1, 256, 128, 512) },
	{ { "dsv4-swa-fp8", "DeepSeek V4 of FlashInfer: latents of the window" },
	  ROWS(KVT_MLA, 512, 1, 64, 1, 512), AS(WINDOW_MLA) },
	{ { "dsv4-indexer", "DeepSeek V4: indexer rows of 4 tokens; planes" },
	  INDEXES(132, 256, 4, 576) },
	{ { "dsv4-indexer-mxfp4", "the same of 4 bits" }, INDEXES(68, 256, 4, 576) },
	{ { "dsv4-compressor-c4", "DeepSeek V4: float32 state of 4 tokens" },
	  ROWS(KVT_OPAQUE, 2 * 2 * 512 * 4, 4, 4, 1, 576), AS(WINDOW_MLA) },
	{ { "dsv4-compressor-c128", "DeepSeek V4: float32 state of 8 tokens" },
	  ROWS(KVT_OPAQUE, 2 * 512 * 4, 4, 8, 1, 576), AS(WINDOW_MLA) },
	{ { "dsv4-indexer-compressor", "DeepSeek V4: float32 state of the indexer" },
	  ROWS(KVT_OPAQUE, 2 * 2 * 128 * 4, 4, 4, 1, 576), AS(WINDOW_MLA) },

	{ { "dsv41-main", "DeepSeek V4.1 on SM100: 512 fp8, 16 scales; planes" },
	  PLANES(KVT_MLA, 528, 128, ANY_RATIO, 512) },
	{ { "dsv41-main-fp4", "DeepSeek V4.1: 512 of 4 bits, 32 scales; planes" },
	  PLANES(KVT_MLA, 288, 128, ANY_RATIO, 512) },
	{ { "dsv41-main-v4", "DeepSeek V4.1 elsewhere: rows of V4; planes" },
	  PLANES(KVT_MLA, 584, 128, ANY_RATIO, 576) },
	{ { "dsv41-main-bf16", "DeepSeek V4.1: plain latents" },
	  ROWS(KVT_MLA, 1024, 2, 128, ANY_RATIO, 512) },
	{ { "dsv41-main-fp8", "DeepSeek V4.1: plain latents of fp8" },
	  ROWS(KVT_MLA, 512, 1, 128, ANY_RATIO, 512) },
	{ { "dsv41-swa", "DeepSeek V4.1 on SM100: latents of the window; planes" },
	  PLANES(KVT_MLA, 528, 32, 1, 512), AS(WINDOW_MLA) },
	{ { "dsv41-swa-v4", "DeepSeek V4.1 elsewhere: rows of V4; planes" },
	  PLANES(KVT_MLA, 584, 32, 1, 576), AS(WINDOW_MLA) },
	{ { "dsv41-swa-bf16", "DeepSeek V4.1: plain latents of the window" },
	  ROWS(KVT_MLA, 1024, 2, 32, 1, 512), AS(WINDOW_MLA) },
	{ { "dsv41-swa-fp8", "DeepSeek V4.1: plain latents of the window, of fp8" },
	  ROWS(KVT_MLA, 512, 1, 32, 1, 512), AS(WINDOW_MLA) },
	{ { "dsv41-indexer", "DeepSeek V4.1: indexer rows; planes" },
	  INDEXES(132, 128, ANY_RATIO, 512) },
	{ { "dsv41-indexer-mxfp4", "the same of 4 bits" },
	  INDEXES(68, 128, ANY_RATIO, 512) },
	{ { "dsv41-indexer-v4", "beside rows of V4; planes" },
	  INDEXES(132, 128, ANY_RATIO, 576) },

	{ { "mamba1-conv", "x" },
	  RECURRENT(conv_x, KVT_MAMBA_CONV, INTER | KERNEL) },
	{ { "mamba1-ssm", "channels of state_size; each is a head here" },
	  RECURRENT(channels, KVT_MAMBA_SSM, INTER | STATE) },
	{ { "mamba2-conv", "x, B and C" },
	  RECURRENT(conv_xbc, KVT_MAMBA_CONV, HEADS | DIM | GROUPS | STATE | KERNEL) },
	{ { "mamba2-ssm", "heads of head_dim x state_size" },
	  RECURRENT(matrix, KVT_MAMBA_SSM, HEADS | DIM | STATE) },
	{ { "gdn-conv", "gated delta net: q, k and v" },
	  RECURRENT(conv_qkv, KVT_MAMBA_CONV, HEADS | DIM | KHEADS | KDIM | KERNEL) },
	{ { "gdn-ssm", "value heads of head_dim x key_dim" },
	  RECURRENT(matrix, KVT_MAMBA_SSM, HEADS | DIM | KDIM) },
	{ { "kda-conv", "Kimi delta attention: q, k and v" },
	  RECURRENT(conv_qkv, KVT_MAMBA_CONV, HEADS | DIM | KERNEL) },
	{ { "kda-ssm", "heads of head_dim x head_dim" },
	  RECURRENT(matrix, KVT_MAMBA_SSM, HEADS | DIM) },
	{ { "short-conv", "x" },
	  RECURRENT(conv_x, KVT_MAMBA_CONV, INTER | KERNEL) },
	{ { "conv-whole", "x, all of it on every rank" },
	  RECURRENT(conv_whole, KVT_MAMBA_CONV, INTER | KERNEL) },
	{ { "linear-attention", "heads of head_dim x head_dim" },
	  RECURRENT(matrix, KVT_MAMBA_SSM, HEADS | DIM) },
};
enum { NRECIPES = sizeof(recipes) / sizeof(recipes[0]) };

const struct kvt_spec_preset *kvt_spec_preset_at(int i)
{
	return i >= 0 && i < NRECIPES ? &recipes[i].preset : NULL;
}

static const struct recipe *recipe_of(const char *preset)
{
	for (int i = 0; i < NRECIPES; i++)
		if (!strcmp(recipes[i].preset.name, preset))
			return &recipes[i];
	return NULL;
}

bool kvt_spec_kind(enum kvt_kind *out, const char *preset)
{
	const struct recipe *recipe = recipe_of(preset);

	if (recipe)
		*out = recipe->kind;
	return recipe != NULL;
}

enum kvt_spec_class kvt_spec_class_of(const char *preset,
				     const struct kvt_spec_args *args)
{
	static const enum kvt_spec_class of[KVT_NKINDS] = {
		[KVT_FULL_ATTENTION] = KVT_CLASS_FULL, [KVT_RSWA] = KVT_CLASS_RSWA,
		[KVT_SLIDING_WINDOW] = KVT_CLASS_WINDOW, [KVT_MLA] = KVT_CLASS_MLA,
		[KVT_CHUNKED_LOCAL] = KVT_CLASS_CHUNK, [KVT_CROSS] = KVT_CLASS_CROSS,
		[KVT_MAMBA_CONV] = KVT_CLASS_STATE, [KVT_MAMBA_SSM] = KVT_CLASS_STATE,
		[KVT_OPAQUE] = KVT_CLASS_MLA,
	};
	const struct recipe *recipe = recipe_of(preset);
	enum kvt_spec_class c;

	if (!recipe)
		return KVT_CLASS_FULL;
	c = recipe->class ? recipe->class : of[recipe->kind];
	return c == KVT_CLASS_MLA && args->window ? KVT_CLASS_WINDOW_MLA : c;
}

int64_t kvt_spec_copies(const char *preset, int64_t tp, int64_t dcp)
{
	const struct recipe *recipe = recipe_of(preset);

	return recipe && recipe->counted && dcp < 2 ? tp : 1;
}

bool kvt_spec_preset_needs(const char *preset, const char *member)
{
	const struct recipe *recipe = recipe_of(preset);

	for (int i = 0; recipe && i < NFIELDS; i++)
		if (!strcmp(fields[i].name, member))
			return recipe->needs >> i & 1;
	return false;
}

int64_t kvt_spec_preset_block_size(const char *preset)
{
	const struct recipe *recipe = recipe_of(preset);

	return recipe ? recipe->block_size : 0;
}

static struct kvt_ratio slots_of(const struct recipe *recipe,
				 const struct kvt_spec_args *args)
{
	if (kvt_is_recurrent(recipe->kind))
		return (struct kvt_ratio){ -1, 1 };
	if (recipe->ratio == SLOTS_A_TOKEN)
		return (struct kvt_ratio){ 1, args->ratio ? args->ratio : 1 };
	if (recipe->ratio == ANY_RATIO)
		return (struct kvt_ratio){ args->ratio ? args->ratio : 1, 1 };
	return (struct kvt_ratio){ recipe->ratio ? recipe->ratio : args->ratio, 1 };
}

enum kvt_status kvt_spec_make(struct kvt_spec *out, const char *preset,
			      const struct kvt_spec_args *args,
			      struct kvt_rank rank, struct kvt_error *err)
{
	const struct recipe *recipe = recipe_of(preset);
	struct kvt_spec spec;
	enum kvt_status status;

	if (!recipe)
		return kvt_fail(err, KVT_USAGE, "there is no spec '%s'", preset);
	if ((status = check_args(recipe, args, err)))
		return status;
	spec = (struct kvt_spec){
		.kind = recipe->kind, .total_heads = args->heads,
		.block_size = args->block_size ? args->block_size : recipe->block_size,
		.tokens_per_slot = slots_of(recipe, args), .planar = recipe->planar,
		.alignment = recipe->alignment, .window = args->window,
	};
	if ((status = recipe->make(&spec, recipe, args, err)) ||
	    (status = kvt_spec_share(&spec, &spec, rank, err)) ||
	    (status = kvt_spec_check(&spec, rank, err)))
		return status;
	*out = spec;
	return KVT_OK;
}
