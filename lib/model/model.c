/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - the caches of all layers of a model together */
#include "lib/kvt/model.h"
#include "lib/base/nearest.h"
#include "lib/base/print.h"

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
	{ "fp8_ds_mla", "dsv4-c4a", "dsv4-c4a", 0 },
	{ "fp8_ds_mla", "dsv4-c128a", "dsv4-c128a", 0 },
	{ "fp8_ds_mla", "dsv4-swa", "dsv4-swa", 0 },
};
enum { NFORMS = sizeof(forms) / sizeof(forms[0]) };

/* Rows of DeepSeek V4 are of 16-bit elements or fp8_ds_mla, nothing else. */
static const char *const wide[][2] = {
	{ "dsv4-c4a", "dsv4-c4a-bf16" }, { "dsv4-c128a", "dsv4-c128a-bf16" },
	{ "dsv4-swa", "dsv4-swa-bf16" },
};

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
					     "rswa", "cross", "compressed", NULL };

	return is_one_of(spec, names);
}

/* What no cache type changes. */
static bool is_as_it_is(const struct kvt_model_group *group)
{
	return !is_gqa(group->spec) && strcmp(group->spec, "mla") &&
	       strcmp(group->spec, "dsv4-c4a") && strcmp(group->spec, "dsv4-c128a") &&
	       strcmp(group->spec, "dsv4-swa");
}

static const struct kvt_dtype *element(const char *name)
{
	/* which of the fp8 types it is does not matter for sizes */
	return kvt_dtype_find(!strcmp(name, "fp8") ? "fp8_e4m3" : name);
}

static enum kvt_status take_element(struct kvt_model_group *out,
				    const struct kvt_dtype *dtype,
				    struct kvt_error *err)
{
	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
		if (strcmp(out->spec, wide[i][0]))
			continue;
		if (dtype->elem != 2)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a cache of %s is unknown, expected "
					"bfloat16 or fp8_ds_mla", out->name, dtype->name);
		out->spec = wide[i][1];
		return KVT_OK;
	}
	out->args.elem = dtype->elem;
	return KVT_OK;
}

static enum kvt_status no_type(const char *name, struct kvt_error *err)
{
	const struct kvt_dtype *dtype;
	struct kvt_nearest near;

	kvt_nearest_start(&near, name);
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
	if (is_as_it_is(in) || in->args.elem) {
		*out = group;
		return KVT_OK;
	}
	if (dtype) {
		status = take_element(&group, dtype, err);
	} else if (found < 0 || (!strcmp(cache_dtype, "fp8_ds_mla") &&
				 !strcmp(from, "mla") && in->args.latent != 576)) {
		status = kvt_fail(err, KVT_BAD_INPUT, "%s: a cache of %s is never %s",
				  in->name, in->spec, cache_dtype);
	} else {
		group.spec = forms[found].to;
		group.args.elem = forms[found].elem;
	}
	if (!status)
		*out = group;
	return status;
}

/* ---- pages -------------------------------------------------------------- */

/* 'group' is the model's: a form of its cache has lost what a chunk is. */
static int64_t window_blocks(const struct kvt_model_group *group, int64_t block_size)
{
	struct kvt_retention keep = { .window = group->args.window };

	return kvt_spec_kind(&keep.kind, group->spec) ?
	       kvt_most_blocks(&keep, block_size) : 0;
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

static enum kvt_status size_group(struct kvt_group_size *out,
				  const struct kvt_model_group *group,
				  const struct kvt_deployment *d, int64_t block_size,
				  struct kvt_error *err)
{
	struct kvt_group_size g = { .block_size = 0 };
	struct kvt_spec_args args;
	struct kvt_spec_size size;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = kvt_model_cached_as(&g.group, group, d->cache_dtype, err)))
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
	if (!kvt_is_recurrent(g.spec.kind)) {
		g.block_size = args.block_size;
		g.most_blocks = window_blocks(group, args.block_size);
	}
	*out = g;
	return check_room(&g, err);
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
		if (!status && kvt_is_recurrent(g->spec.kind))
			out->state_page += g->page;
	}
	return status;
}

/* Bytes of a token in a layer, of the group whose pages are the smallest. */
static int64_t token_bytes(const struct kvt_model_size *size)
{
	int64_t least = 0;

	for (int i = 0; i < size->ngroups; i++) {
		const struct kvt_group_size *g = &size->group[i];
		int64_t n = g->block_size ? g->page / g->block_size : 0;

		if (n && (!least || n < least))
			least = n;
	}
	return least;
}

/* Kernels want blocks of a multiple of 16 tokens; those of latents, of 64. */
static int64_t block_step(const struct kvt_model_size *size)
{
	for (int i = 0; i < size->ngroups; i++)
		if (size->group[i].spec.kind == KVT_MLA)
			return 64;
	return 16;
}

/* The padding of a state layer belongs to its last state. */
static void pad_states(struct kvt_model_size *size)
{
	struct kvt_group_size *last = NULL;
	int64_t page = 0;

	for (int i = 0; i < size->ngroups; i++) {
		struct kvt_group_size *g = &size->group[i];

		if (kvt_is_recurrent(g->spec.kind))
			last = g;
		else if (g->page > page)
			page = g->page;
	}
	size->state_padded = size->state_page;
	if (last && page > size->state_page) {
		last->page += page - size->state_page;
		size->state_padded = page;
	}
}

enum kvt_status kvt_model_size(struct kvt_model_size *out, const struct kvt_model *model,
			       const struct kvt_deployment *d, struct kvt_error *err)
{
	struct kvt_model_size size;
	enum kvt_status status;
	int64_t token, tokens, step;

	if (model->ngroups < 1 || model->ngroups > KVT_MODEL_GROUPS || d->tp < 1 ||
	    d->tp > 1 << 20 || d->block_size < 1 || d->block_size > 1 << 20)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%d groups, %lld ranks, blocks of %lld tokens",
				model->ngroups, LL(d->tp), LL(d->block_size));
	if ((status = size_groups(&size, model, d, d->block_size, err)))
		return status;
	token = token_bytes(&size);
	if (!d->apart && size.state_page && token) {
		step = block_step(&size);
		tokens = (size.state_page + token * step - 1) / (token * step) * step;
		if (tokens > d->block_size &&
		    (status = size_groups(&size, model, d, tokens, err)))
			return status;
		pad_states(&size);
	} else {
		size.state_padded = size.state_page;
	}
	*out = size;
	return KVT_OK;
}
