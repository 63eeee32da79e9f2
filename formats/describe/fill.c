/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.c - what the user says of a dump fills what nothing else says
 *
 * An extent of -1 is one that nothing has said; only those are written, so hints never
 * override.  formats/describe/hints.c holds them against what came of it.
 *
 * A spec, or the model that --model names, is first taken apart into numbers, if the
 * dump has one group.  Numbers with --group are that group's alone: kvt_hints_of() has
 * chosen.
 */
#include "formats/describe/describe.h"

/* ---- what formats ask for themselves ------------------------------------- */

enum kvt_status kvt_hint_heads(int64_t *out, int64_t width, const struct kvt_hints *hints,
			       const char *path, struct kvt_error *err)
{
	struct kvt_hints told = hints ? *hints : (struct kvt_hints){ .manifest = NULL };
	enum kvt_status status;
	int64_t heads, dim;

	if (!told.heads && !told.head_dim && told.of_model && !told.spec)
		return kvt_hints_model_heads(out, width, &told, path, err);
	if (!told.heads && !told.head_dim &&
	    (status = kvt_hints_take_spec(&told, NULL, err)))
		return status;
	heads = told.heads;
	dim = told.head_dim;
	if (!heads && !dim)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tokens have %lld elements in an unknown number of heads; give --heads or --head-dim",
				path, LL(width));
	if (width % (heads ? heads : dim))
		return kvt_hint_denied(err, KVT_BAD_INPUT, path,
				       heads ? "heads" : "head-dim", &told,
				       "tokens have %lld elements, which is not a multiple of it",
				       LL(width));
	*out = heads ? heads : width / dim;
	return KVT_OK;
}

const struct kvt_dtype *kvt_hint_dtype(const struct kvt_dtype *own,
				       const struct kvt_hints *hints, const char *group)
{
	const char *text = kvt_hints_of(hints, group).dtype;
	const struct kvt_dtype *said = text ? kvt_dtype_find(text) : NULL;

	return said && (!own || (!own->is_float && own->elem == said->elem)) ? said : own;
}

enum kvt_status kvt_hint_content(const struct kvt_hints *said, struct kvt_error *err)
{
	if (!said->head_dim || !said->content)
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"content is a key and a value of --head-dim elements, or opaque with --content-size, not both");
}

/* ---- all of a manifest ---------------------------------------------------- */

static void fill(int64_t *extent, int64_t n)
{
	if (*extent < 0 && n)
		*extent = n;
}

static enum kvt_status fill_layout(struct kvt_manifest *out, struct kvt_group *group,
				   const struct kvt_hints *said, struct kvt_error *err)
{
	enum kvt_status status;

	if (!said->layout || group->layout.nplanes)
		return KVT_OK;
	if ((status = kvt_layout_parse(&group->layout, said->layout, err)))
		return status;
	out->has_layout = true;
	return KVT_OK;
}

void kvt_manifest_fill_dtype(struct kvt_group *group, const struct kvt_hints *hints,
			     const struct kvt_dtype *own)
{
	const char *said = kvt_hints_of(hints, group->id).dtype;

	if (!said || group->dtype || (own && own->is_float))
		return;
	group->dtype = kvt_dtype_find(said);
	group->shape.elem = group->dtype->elem;
}

enum kvt_status kvt_manifest_fill(struct kvt_manifest *manifest, int g, const char *name,
				  struct kvt_error *err)
{
	struct kvt_group *group = &manifest->snapshot.group[g];
	struct kvt_hints said = kvt_hints_of(manifest->hints, group->id);
	const struct kvt_parallel *parallel = &manifest->snapshot.parallel;
	bool spec = said.spec && manifest->snapshot.ngroups == 1;
	int64_t *n = group->shape.n;
	enum kvt_status status;

	if (said.of_model && !said.spec && manifest->snapshot.ngroups == 1 &&
	    (status = kvt_hints_take_model(&said, parallel, err)))
		return status;
	if (spec && ((status = kvt_hints_take_spec(&said, parallel, err)) ||
		     (status = kvt_manifest_spec(group, &said, parallel, name, err))))
		return status;
	if (n[KVT_AXIS_D] < 0 && (status = kvt_hint_content(&said, err)))
		return status;
	fill(&n[KVT_AXIS_L], said.layers);
	fill(&n[KVT_AXIS_B], said.blocks);
	fill(&n[KVT_AXIS_H], said.heads);
	/* unless it follows from the slots: only of content a row may be any number */
	if (n[KVT_AXIS_S] < 0 || group->content.type || group->tokens_per_slot > 1)
		fill(&group->block_size, said.block_size);
	fill(&n[KVT_AXIS_D], said.content ? said.content : said.head_dim);
	fill(&n[KVT_AXIS_K], said.content ? 1 : said.head_dim ? 2 : 0);
	return KVT_OK;
}

/* Which rank it is, where the file does not say. */
static enum kvt_status hint_rank(struct kvt_manifest *out, const struct kvt_hints *hints,
				 const char *name, struct kvt_error *err)
{
	struct kvt_parallel *p = &out->snapshot.parallel;

	if (p->tp_size > 1 && (p->tp_size != hints->tp_size ||
			       p->tp_rank != hints->tp_rank))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: says that it is rank %lld of %lld, but it is given as rank %lld of %lld",
				name, LL(p->tp_rank), LL(p->tp_size),
				LL(hints->tp_rank), LL(hints->tp_size));
	p->tp_size = hints->tp_size;
	p->tp_rank = hints->tp_rank;
	for (int g = 0; g < out->snapshot.ngroups; g++)
		if (out->snapshot.group[g].total_heads < 0 && hints->total_heads)
			out->snapshot.group[g].total_heads = hints->total_heads;
	return KVT_OK;
}

enum kvt_status kvt_manifest_hints(struct kvt_manifest *out,
				   const struct kvt_hints *hints, const char *name,
				   struct kvt_error *err)
{
	struct kvt_snapshot *s = &out->snapshot;
	enum kvt_status status = KVT_OK;

	if (!hints)
		return KVT_OK;
	out->hints = hints;
	if (!out->skip)
		out->skip = hints->skip;
	if (hints->tp_size && (status = hint_rank(out, hints, name, err)))
		return status;
	out->lacks_rank = hints->one_of_several && s->parallel.tp_size <= 1;
	kvt_snapshot_hint_content(s, hints);
	for (int g = 0; !status && g < s->ngroups; g++) {
		const struct kvt_hints said = kvt_hints_of(hints, s->group[g].id);

		status = fill_layout(out, &s->group[g], &said, err);
	}
	return status;
}
