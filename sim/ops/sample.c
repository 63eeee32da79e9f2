/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.c - a request of a model as a dump in memory, where nobody has one
 *
 * Each group has a pool of its own, with a block that the request does not use, and one
 * rank holds all of it.  The bytes are a stream of random words: no two places are alike,
 * so that data that lands in a wrong one is seen.
 */
#include "sim/ops/trial.h"

#include <stdlib.h>
#include <string.h>

static const char *const types[] = { [1] = "uint8", [2] = "bfloat16", [4] = "float32",
				     [8] = "float64" };

/* ---- what it says ---------------------------------------------------------- */

/* Parts of a conv state, and how many groups all but x are dealt out in. */
static void take_parts(struct kvt_group *g, int64_t *groups, const struct kvt_spec *spec)
{
	int64_t at = 0;

	for (int i = 0; i < spec->nparts; i++) {
		const struct kvt_spec_part *part = &spec->part[i];
		struct kvt_component *c = &g->component[g->ncomponents++];

		snprintf(c->name, sizeof(c->name), "%s", part->name);
		c->start = c->global_start = at;
		c->length = part->units * part->rows;
		at += c->length;
		if (strcmp(part->name, "x") && (!*groups || part->units < *groups))
			*groups = part->units;
	}
}

static enum kvt_status make_spec(struct kvt_spec *out,
				 const struct kvt_model_group *model,
				 const char *cache_dtype, struct kvt_error *err)
{
	const struct kvt_rank all = { 1, 0 };
	struct kvt_model_group g = *model;
	enum kvt_status status;

	if (cache_dtype && (status = kvt_model_cached_as(&g, model, cache_dtype, err)))
		return status;
	if (!g.args.block_size)
		g.args.block_size = 16;
	if ((status = kvt_spec_make(out, g.spec, &g.args, all, err)))
		return status;
	if (out->planar || out->tokens_per_slot.den != 1)
		return kvt_fail(err, KVT_UNSUPPORTED, out->planar ?
				"blocks of %s are planes, of which no slot can move" :
				"slots of %s are of less than a token, which no dump has",
				model->spec);
	/* a quantised form of a group is what the group is */
	if (kvt_spec_kind(&out->kind, model->spec))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE, "there is no spec '%s'", model->spec);
}

static enum kvt_status make_group(struct kvt_group *g, int64_t *groups, int64_t *blocks,
				  const struct kvt_model_group *model,
				  const struct kvt_model_transfer *from,
				  struct kvt_error *err)
{
	struct kvt_spec_size size;
	struct kvt_spec spec;
	enum kvt_status status;

	if ((status = make_spec(&spec, model, from->cache_dtype, err)) ||
	    (status = kvt_spec_size(&size, &spec, err)))
		return status;
	*blocks = spec.tokens_per_slot.num < 0 ? 1 :
		  (kvt_spec_slots(&spec, from->tokens) - 1) / size.num_slots + 1;
	*g = (struct kvt_group){
		.kind = spec.kind, .block_size = spec.block_size,
		.tokens_per_slot = spec.tokens_per_slot.num, .null_block = -1,
		.total_heads = spec.total_heads, .replication = 1, .window = spec.window,
		.retained = model->args.retained,
	};
	snprintf(g->id, sizeof(g->id), "%s", model->name);
	if ((status = kvt_spec_shape(&g->shape, &spec, model->layers, *blocks + 1,
				     err)) ||
	    (status = kvt_layout_parse(&g->layout, "hnd", err)))
		return status;
	if (spec.kind == KVT_MAMBA_CONV &&
	    (status = kvt_conv_layout(&g->layout, &g->layout, from->conv, err)))
		return status;
	if (g->shape.elem < (int64_t)(sizeof(types) / sizeof(types[0])))
		g->dtype = types[g->shape.elem] ? kvt_dtype_find(types[g->shape.elem]) :
						  NULL;
	if (!g->dtype)
		return kvt_fail(err, KVT_UNSUPPORTED, "elements of %lld bytes",
				LL(g->shape.elem));
	take_parts(g, groups, &spec);
	return KVT_OK;
}

/* One request in the blocks 0, 1, ... of each group. */
static enum kvt_status make_request(struct kvt_snapshot *s, int64_t tokens,
				    const int64_t nblocks[KVT_MAX_GROUPS],
				    struct kvt_error *err)
{
	struct kvt_request *r = calloc(1, sizeof(*r));

	if (!(s->request = r) || !(r->id = strdup("sample")))
		return kvt_no_memory(err, NULL);
	s->nrequests = 1;
	r->ntokens = r->prompt_tokens = tokens;
	for (int g = 0; g < s->ngroups; g++) {
		r->nblocks[g] = nblocks[g];
		r->blocks[g] = malloc((size_t)nblocks[g] * sizeof(**r->blocks) + 1);
		if (!r->blocks[g])
			return kvt_no_memory(err, NULL);
		for (int64_t b = 0; b < nblocks[g]; b++)
			r->blocks[g][b] = (uint32_t)b;
	}
	return KVT_OK;
}

static enum kvt_status make_snapshot(struct kvt_snapshot *s, int64_t *groups,
				     const struct kvt_model_transfer *from,
				     struct kvt_error *err)
{
	int64_t nblocks[KVT_MAX_GROUPS];
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (from->ngroups > KVT_MAX_GROUPS)
		return kvt_fail(err, KVT_UNSUPPORTED, "%d groups, expected at most %d",
				from->ngroups, KVT_MAX_GROUPS);
	for (int g = 0; g < from->ngroups; g++, s->ngroups++)
		if ((status = make_group(&s->group[g], groups, &nblocks[g],
					 &from->group[g], from, &why)))
			return kvt_fail(err, status, "%s: %.400s", from->group[g].name,
					why.text);
	if ((status = make_request(s, from->tokens, nblocks, err)) ||
	    (status = kvt_snapshot_complete(s, err)))
		return status;
	return kvt_snapshot_check(s, err);
}

/* ---- what it holds --------------------------------------------------------- */

/* A word of splitmix64, of its place in the stream. */
static uint64_t word_at(uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void fill(uint8_t *bytes, int64_t nbytes, uint64_t stream)
{
	for (int64_t i = 0; i < nbytes; i += 8) {
		uint64_t word = word_at(stream << 40 | (uint64_t)i / 8);

		memcpy(bytes + i, &word, (size_t)(nbytes - i < 8 ? nbytes - i : 8));
	}
}

enum kvt_status kvt_ranks_of_model(struct kvt_ranks *out, int64_t *mamba_groups,
				   const struct kvt_model_transfer *from,
				   struct kvt_error *err)
{
	*mamba_groups = 0;
	*out = (struct kvt_ranks){ .n = 1, .made = calloc(1, sizeof(*out->made)) };
	if (!out->made)
		return kvt_no_memory(err, NULL);
	kvt_snapshot_init(out->made);
	return make_snapshot(out->made, mamba_groups, from, err);
}

enum kvt_status kvt_held_sample(struct kvt_held_side *out, const struct kvt_ranks *as,
				int64_t most, struct kvt_error *err)
{
	enum kvt_status status = kvt_held_new(out, as, 0, most, err);

	for (int i = 0; !status && i < as->n * out->ngroups; i++) {
		int r = i / out->ngroups, g = i % out->ngroups;
		int64_t n = 0;

		status = kvt_shape_nbytes(&n, &kvt_ranks_snapshot(as, r)->group[g].shape,
					  err);
		fill(out->bytes[i], n, (uint64_t)i);
	}
	return status ? status : kvt_held_open(out, as, err);
}
