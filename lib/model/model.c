/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - the caches of all layers of a model together
 *
 * In: groups of layers, each a spec preset with numbers, and the type of the cache.
 * Out: of each what it takes on a rank and in a block, and the sum.  A type of a cache
 * that is no element type makes another preset of a spec: forms[], wide[] and keys[], as
 * vLLM 0.32 does by --kv-cache-dtype.
 */
#include "lib/kvt/model.h"
#include "lib/base/nearest.h"

#include <stddef.h>
#include <string.h>

/* ---- types of a cache --------------------------------------------------- */

/* Forms that are no element type, and the preset that each makes of another. */
static const struct {
	const char *dtype, *from, *to;
	int64_t elem;
} forms[] = {
	{ "int8_per_token_head", "gqa", "int8-per-token-head", 0 },
	{ "int8_per_token_head", "mla", "mla-per-token-head", 1 },
	{ "fp8_per_token_head", "gqa", "fp8-per-token-head", 0 },
	{ "fp8_per_token_head", "mla", "mla-per-token-head", 1 },
	{ "int4_per_token_head", "gqa", "int4-per-token-head", 0 },
	{ "nvfp4", "gqa", "nvfp4", 0 },
	{ "turboquant_k8v4", "gqa", "turboquant-k8v4", 0 },
	{ "turboquant_4bit_nc", "gqa", "turboquant-4bit-nc", 0 },
	{ "turboquant_k3v4_nc", "gqa", "turboquant-k3v4-nc", 0 },
	{ "turboquant_3bit_nc", "gqa", "turboquant-3bit-nc", 0 },
	{ "fp8_ds_mla", "mla", "fp8-ds-mla", 0 },
	{ "nvfp4_ds_mla", "mla", "nvfp4-ds-mla", 0 },
	{ "fp8_ds_mla", "dsv4-c4a", "dsv4-c4a", 0 },
	{ "fp8_ds_mla", "dsv4-c128a", "dsv4-c128a", 0 },
	{ "fp8_ds_mla", "dsv4-swa", "dsv4-swa", 0 },
	/* of SM100, and of all others */
	{ "fp8_ds_mla_528", "dsv41-main", "dsv41-main", 0 },
	{ "fp8_ds_mla_528", "dsv41-swa", "dsv41-swa", 0 },
	{ "fp8_ds_mla_584", "dsv41-main", "dsv41-main-v4", 0 },
	{ "fp8_ds_mla_584", "dsv41-swa", "dsv41-swa-v4", 0 },
	{ "fp8_ds_mla_584", "dsv41-indexer", "dsv41-indexer-v4", 0 },
	{ "nvfp4_ds_mla", "dsv41-main", "dsv41-main-fp4", 0 },
	{ "nvfp4_ds_mla", "dsv41-swa", "dsv41-swa", 0 },
};
enum { NFORMS = sizeof(forms) / sizeof(forms[0]) };

/* Rows of DeepSeek V4 are of 16 or 8 bits, or of a form. */
static const struct {
	const char *from, *of[3];	/* by the bytes of an element */
} wide[] = {
	{ "dsv4-c4a", { NULL, "dsv4-c4a-fp8", "dsv4-c4a-bf16" } },
	{ "dsv4-c128a", { NULL, "dsv4-c128a-fp8", "dsv4-c128a-bf16" } },
	{ "dsv4-swa", { NULL, "dsv4-swa-fp8", "dsv4-swa-bf16" } },
	{ "dsv41-main", { NULL, "dsv41-main-fp8", "dsv41-main-bf16" } },
	{ "dsv41-swa", { NULL, "dsv41-swa-fp8", "dsv41-swa-bf16" } },
};

/* Types of an indexer's keys. */
static const struct {
	const char *dtype, *from, *to;
	int64_t elem;
} keys[] = {
	{ "mxfp4", "indexer", "indexer-mxfp4", 0 },
	{ "mxfp4", "dsv4-indexer", "dsv4-indexer-mxfp4", 0 },
	{ "mxfp4", "dsv41-indexer", "dsv41-indexer-mxfp4", 0 },
	{ "fp8", "indexer", "indexer", 0 },
	{ "fp8", "kpool-indexer", "kpool-indexer", 0 },
	{ "fp8", "dsv4-indexer", "dsv4-indexer", 0 },
	{ "fp8", "dsv41-indexer", "dsv41-indexer", 0 },
	{ "fp8", "dsv41-indexer-v4", "dsv41-indexer-v4", 0 },
	{ "fp8", "index-key", "index-key", 1 },
	{ "bfloat16", "index-key", "index-key", 2 },
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (!strcmp(name, *names))
			return true;
	return false;
}

/* Windows and chunks are a matter of which tokens are kept. */
static bool is_gqa(const char *spec)
{
	static const char *const names[] = { "gqa", "sliding-window", "chunked-local",
					     "rswa", "cross", "compressed", "sink",
					     "pooled", "encoder-only", NULL };

	return is_one_of(spec, names);
}

/* What no cache type changes: it has no form of any. */
static bool is_as_it_is(const struct kvt_model_group *group)
{
	for (int i = 0; i < NFORMS; i++)
		if (!strcmp(group->spec, forms[i].from))
			return false;
	return !is_gqa(group->spec);
}

/* An indexer has a type of its own, but may follow the rows beside it. */
static bool is_beside(const char *spec)
{
	enum kvt_kind kind;

	return kvt_spec_kind(&kind, spec) && kind == KVT_OPAQUE;
}

static const struct kvt_dtype *element(const char *name)
{
	/* which of the fp8 types it is does not matter for sizes */
	return kvt_dtype_find(!strcmp(name, "fp8") ? "fp8_e4m3" : name);
}

static enum kvt_status take_element(struct kvt_model_group *out,
				    const struct kvt_dtype *dtype, struct kvt_error *err)
{
	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
		if (strcmp(out->spec, wide[i].from))
			continue;
		if (dtype->elem > 2)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a cache of %s is unknown, expected bfloat16, fp8 or a form such as fp8_ds_mla",
					out->name, dtype->name);
		out->spec = wide[i].of[dtype->elem];
		return KVT_OK;
	}
	out->args.elem = dtype->elem;
	return KVT_OK;
}

static enum kvt_status no_type(const char *name, struct kvt_error *err)
{
	const struct kvt_dtype *dtype;
	struct kvt_nearest near = kvt_nearest_start(name);

	for (int i = 0; i < NFORMS; i++)
		kvt_nearest_offer(&near, forms[i].dtype);
	for (int i = 0; (dtype = kvt_dtype_at(i)); i++)
		kvt_nearest_offer(&near, dtype->name);
	if (kvt_nearest_found(&near))
		return kvt_fail(err, KVT_USAGE, "there is no cache type '%.40s'%s", name,
				kvt_nearest_hint(&near, "").s);
	return kvt_fail(err, KVT_USAGE,
			"there is no cache type '%.40s'; 'kvtool help dtypes' prints the element types, others are such as %s",
			name, forms[0].dtype);
}

static enum kvt_status never(const struct kvt_model_group *in, const char *cache_dtype,
			     struct kvt_error *err)
{
	if (!strcmp(cache_dtype, "fp8_ds_mla") && !strncmp(in->spec, "dsv41", 5))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: fp8_ds_mla is 528 bytes a row on SM100, 584 elsewhere: give fp8_ds_mla_528 or fp8_ds_mla_584",
				in->name);
	return kvt_fail(err, KVT_BAD_INPUT, "%s: a cache of %s is never %s", in->name,
			in->spec, cache_dtype);
}

/* Rows of these forms hold 512 values, and 64 of rope but in GLM-5.3 with fp8. */
static bool has_no_form(const struct kvt_model_group *in, const char *cache_dtype)
{
	return !strcmp(in->spec, "mla") && in->args.latent != 576 &&
	       ((!strcmp(cache_dtype, "fp8_ds_mla") && in->args.latent != 512) ||
		!strcmp(cache_dtype, "nvfp4_ds_mla"));
}

enum kvt_status kvt_model_cached_as(struct kvt_model_group *out,
				    const struct kvt_model_group *in,
				    const char *cache_dtype, struct kvt_error *err)
{
	const struct kvt_dtype *dtype = element(cache_dtype);
	const char *from = is_gqa(in->spec) ? "gqa" : in->spec;
	struct kvt_model_group group = *in;
	enum kvt_status status = KVT_OK;
	bool known = dtype;
	int found = -1;

	for (int i = 0; i < NFORMS; i++) {
		if (strcmp(cache_dtype, forms[i].dtype))
			continue;
		known = true;
		if (!strcmp(from, forms[i].from))
			found = i;
	}
	if (!known)
		return no_type(cache_dtype, err);
	if (is_as_it_is(in) || in->args.elem || (found < 0 && is_beside(in->spec))) {
		*out = group;
		return KVT_OK;
	}
	if (dtype) {
		status = take_element(&group, dtype, err);
	} else if (found < 0 || has_no_form(in, cache_dtype)) {
		status = never(in, cache_dtype, err);
	} else {
		group.spec = forms[found].to;
		group.args.elem = forms[found].elem;
	}
	if (!status)
		*out = group;
	return status;
}

static enum kvt_status index_as(struct kvt_model_group *group, const char *dtype,
				struct kvt_error *err)
{
	bool known = false, is_key = false;

	if (!dtype || group->args.elem)
		return KVT_OK;
	for (int i = 0; i < NKEYS; i++) {
		bool same = !strcmp(keys[i].dtype, dtype);
		bool from = !strcmp(keys[i].from, group->spec);

		known |= same;
		is_key |= from;
		if (!same || !from)
			continue;
		group->spec = keys[i].to;
		group->args.elem = keys[i].elem;
		return KVT_OK;
	}
	if (!known)
		return kvt_fail(err, KVT_USAGE,
				"there is no type '%.40s' of an indexer's keys, expected fp8, mxfp4 or bfloat16", dtype);
	return is_key ? kvt_fail(err, KVT_BAD_INPUT, "%s: keys of %s are never %s",
				 group->name, group->spec, dtype) : KVT_OK;
}

/* ---- pages -------------------------------------------------------------- */

/* 'group' is the model's: a form of its cache has lost what a chunk is. */
static int64_t window_blocks(const struct kvt_model_group *group, int64_t block_size)
{
	struct kvt_retention keep = { .window = group->args.window,
				      .retained = group->args.retained };

	return kvt_spec_kind(&keep.kind, group->spec) ?
	       kvt_most_blocks(&keep, block_size) : 0;
}

/* A request has one of them, however long it is. */
static bool is_once(const struct kvt_group_size *g)
{
	return kvt_is_recurrent(g->spec.kind) ||
	       kvt_spec_class_of(g->keeps, &g->group.args) == KVT_CLASS_RING;
}

/* Sums over all groups, and a page made longer, must fit as well. */
static enum kvt_status check_room(const struct kvt_group_size *g, struct kvt_error *err)
{
	int64_t n = g->most_blocks ? g->most_blocks : 1;

	if (g->group.layers < 1 || __builtin_mul_overflow(n, g->page, &n) ||
	    __builtin_mul_overflow(n, g->group.layers, &n) || n > INT64_MAX >> 8)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld layers with pages of %lld bytes",
				g->group.name, LL(g->group.layers), LL(g->page));
	return KVT_OK;
}

/* Context parallel ranks have the same heads; windows and states they do not deal out. */
static enum kvt_status deal_tokens(struct kvt_group_size *g,
				   const struct kvt_deployment *d, struct kvt_error *err)
{
	enum kvt_spec_class c = kvt_spec_class_of(g->keeps, &g->group.args);
	int64_t heads = g->spec.total_heads;

	g->dealt = 1;
	if (d->dcp < 2 || kvt_class_rule(c)->base != KVT_CLASS_FULL)
		return KVT_OK;
	if (heads > 1 && d->tp % (heads * d->dcp))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: dcp %lld ranks that share tokens hold the same of %lld heads: give tp %lld, or a multiple",
				g->group.name, LL(d->dcp), LL(heads), LL(heads * d->dcp));
	g->dealt = d->dcp;
	return KVT_OK;
}

static enum kvt_status size_group(struct kvt_group_size *out,
				  const struct kvt_model_group *group,
				  const struct kvt_deployment *d, int64_t block_size,
				  struct kvt_error *err)
{
	struct kvt_group_size g = { .keeps = group->spec };
	struct kvt_spec_args args;
	struct kvt_spec_size size;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = kvt_model_cached_as(&g.group, group, d->cache_dtype, err)) ||
	    (status = index_as(&g.group, d->indexer_dtype, err)))
		return status;
	args = g.group.args;
	if (!args.block_size)
		args.block_size = block_size;
	if ((status = kvt_spec_make(&g.spec, g.group.spec, &args,
				    (struct kvt_rank){ d->tp, 0 }, &why)) ||
	    (status = kvt_spec_size(&size, &g.spec, &why)))
		return kvt_fail(err, status, "%s: %.400s", group->name, why.text);
	g.unpadded = size.unpadded;
	g.page = size.page;
	if (!is_once(&g)) {
		g.block_size = args.block_size;
		g.most_blocks = window_blocks(group, args.block_size);
	}
	if ((status = deal_tokens(&g, d, err)))
		return status;
	*out = g;
	return check_room(&g, err);
}

int kvt_state_groups(const struct kvt_model_size *size, int i)
{
	const struct kvt_group_size *g = &size->group[i];

	if (!kvt_is_recurrent(g->spec.kind))
		return 0;
	return 1 + (i + 1 < size->ngroups && g->spec.kind == KVT_MAMBA_CONV &&
		    g[1].spec.kind == KVT_MAMBA_SSM &&
		    g[1].group.layers == g->group.layers);
}

static int64_t state_bytes(const struct kvt_model_size *size, int i)
{
	int n = kvt_state_groups(size, i);

	return n ? size->group[i].page + (n > 1 ? size->group[i + 1].page : 0) : 0;
}

static enum kvt_status size_groups(struct kvt_model_size *out,
				   const struct kvt_model *model,
				   const struct kvt_deployment *d, int64_t block_size,
				   struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_model_size){ .tp = d->tp, .block_size = block_size,
					.ngroups = model->ngroups };
	for (int i = 0; !status && i < model->ngroups; i++) {
		struct kvt_group_size *g = &out->group[i];

		status = size_group(g, &model->group[i], d, block_size, err);
	}
	for (int i = 0; !status && i < model->ngroups; i++)
		if (state_bytes(out, i) > out->state_page)
			out->state_page = state_bytes(out, i);
	return status;
}

/*
 * Bytes of a token in a layer of attention, of the group where they are the fewest.
 * vLLM counts an element of a latent as a byte here where rows have a form of their
 * own, whatever a row takes.
 */
static int64_t token_bytes(const struct kvt_model_size *size)
{
	int64_t least = 0;

	for (int i = 0; i < size->ngroups; i++) {
		const struct kvt_group_size *g = &size->group[i];
		int64_t n = g->block_size ? g->page / g->block_size : 0;

		if (g->spec.kind == KVT_OPAQUE)
			continue;
		if (n && g->group.args.latent && g->group.spec != g->keeps)
			n = g->group.args.latent;
		if (n && (!least || n < least))
			least = n;
	}
	return least;
}

/* Kernels want blocks of a multiple of 16 tokens; those of latents, in time, of 128. */
static int64_t block_step(const struct kvt_model_size *size, enum kvt_release release)
{
	for (int i = 0; release >= KVT_VLLM_0_32 && i < size->ngroups; i++)
		if (size->group[i].spec.kind == KVT_MLA)
			return 128;
	return 16;
}

/* Pooled keys have pages of 32 rows. */
static int64_t pooled_step(const struct kvt_model_size *size, int64_t step)
{
	for (int i = 0; i < size->ngroups; i++) {
		const struct kvt_model_group *g = &size->group[i].group;
		int64_t tokens = 32 * g->args.ratio;

		if (!strcmp(g->spec, "kpool-indexer"))
			step = step / kvt_gcd(step, tokens) * tokens;
	}
	return step;
}

static int64_t round_up(int64_t n, int64_t by)
{
	return kvt_ceil_div(n, by) * by;
}

/* Tokens of a block whose page holds a state. */
static int64_t tokens_of(const struct kvt_model_size *size, int64_t token,
			 const struct kvt_model *model, const struct kvt_deployment *d)
{
	int64_t step = block_step(size, d->release);
	int64_t least = step > d->block_size ? step : d->block_size;

	/* the one release that caches prefixes of hybrids, a state at each chunk's end */
	if (d->release == KVT_VLLM_0_26 && model->state_chunk)
		least = least / kvt_gcd(least, model->state_chunk) * model->state_chunk;
	return round_up(round_up(kvt_ceil_div(size->state_page, token), least),
			pooled_step(size, step));
}

/* The padding of a state layer belongs to its last state. */
static void pad_states(struct kvt_model_size *size, int64_t page)
{
	size->state_padded = page > size->state_page ? page : size->state_page;
	for (int i = 0; i < size->ngroups; i++) {
		int n = kvt_state_groups(size, i);

		if (n && page > state_bytes(size, i))
			size->group[i + n - 1].page += page - state_bytes(size, i);
		i += n > 1;
	}
}

enum { MOST = 1 << 20 };	/* ranks, and tokens of a block */

enum kvt_status kvt_model_size(struct kvt_model_size *out, const struct kvt_model *model,
			       const struct kvt_deployment *d, struct kvt_error *err)
{
	struct kvt_model_size size;
	enum kvt_status status;
	int64_t token, tokens;

	if (model->ngroups < 1 || model->ngroups > KVT_MODEL_GROUPS || d->tp < 1 ||
	    d->tp > MOST || d->block_size < 1 || d->block_size > MOST || d->dcp > MOST)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%d groups, %lld ranks, dcp %lld, blocks of %lld tokens: expected 1 to %d groups, %d of the others at most",
				model->ngroups, LL(d->tp), LL(d->dcp), LL(d->block_size),
				KVT_MODEL_GROUPS, MOST);
	if (d->dcp > 1 && d->tp % d->dcp)
		return kvt_fail(err, KVT_BAD_INPUT,
				"dcp %lld does not divide tp %lld: give tp %lld, or a multiple",
				LL(d->dcp), LL(d->tp), LL(d->dcp));
	if ((status = size_groups(&size, model, d, d->block_size, err)))
		return status;
	token = token_bytes(&size);
	if (!d->apart && size.state_page && token) {
		tokens = tokens_of(&size, token, model, d);
		if (tokens > d->block_size &&
		    (status = size_groups(&size, model, d, tokens, err)))
			return status;
		pad_states(&size, token * size.block_size);
	} else {
		size.state_padded = size.state_page;
	}
	*out = size;
	return KVT_OK;
}
