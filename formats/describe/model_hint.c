/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_hint.c - --model of a dump: what its layers have, and whether the dump is of it
 *
 * A model may have layers of several kinds, and a dump some of them.  What all kinds
 * have in common fills what nothing else says; a row of keys of a known width is of the
 * kind that has such rows.  In the end each group with keys and values, or latents, must
 * be of one of the kinds, on its rank.
 */
#include "formats/describe/describe.h"
#include "lib/kvt/model.h"

#include <string.h>

/* What a rank has of layers of one kind. */
struct kind {
	int64_t layers, heads;
	int64_t dim, dim_v;		/* dim 0: a latent of dim_v */
};

/* False: layers that keep no tokens of their own, or a share that no one knows. */
static bool take_kind(struct kind *out, const struct kvt_model_group *g,
		      const struct kvt_parallel *parallel)
{
	const bool alone = !parallel || !parallel->tp_size;
	const struct kvt_rank rank = { alone ? 1 : parallel->tp_size,
				       alone ? 0 : parallel->tp_rank };
	struct kvt_spec_args args = g->args;
	struct kvt_spec spec;

	args.block_size = args.block_size ? args.block_size : 16;
	if (kvt_spec_make(&spec, g->spec, &args, rank, NULL) ||
	    kvt_is_recurrent(spec.kind) || spec.kind == KVT_OPAQUE)
		return false;
	*out = (struct kind){ .layers = g->layers, .heads = spec.num_heads };
	if (args.latent) {
		out->dim_v = args.latent;
	} else {
		out->dim = args.head_dim;
		out->dim_v = args.head_dim_v ? args.head_dim_v : args.head_dim;
	}
	return out->dim_v > 0;
}

/* -1: kinds differ in it. */
static void join(int64_t *out, int64_t n)
{
	*out = !*out || *out == n ? n : -1;
}

static void fill(int64_t *hint, int64_t n)
{
	if (!*hint && n > 0)
		*hint = n;
}

enum kvt_status kvt_hints_take_model(struct kvt_hints *hints,
				     const struct kvt_parallel *parallel,
				     struct kvt_error *err)
{
	struct kind all = { 0 }, k;
	int n = 0;

	(void)err;
	for (int i = 0; hints->of_model && i < hints->of_model->ngroups; i++) {
		if (!take_kind(&k, &hints->of_model->group[i], parallel))
			continue;
		n++;
		join(&all.heads, k.heads);
		join(&all.dim, k.dim ? k.dim : -1);
		join(&all.dim_v, k.dim == k.dim_v ? k.dim : k.dim ? -1 : k.dim_v);
		all.layers = k.layers;
	}
	if (n == 1)
		fill(&hints->layers, all.layers);
	if (!hints->content && !hints->content_type && all.dim > 0 &&
	    all.dim == all.dim_v)
		fill(&hints->head_dim, all.dim);
	else if (!hints->head_dim && !hints->content_type && all.dim < 0)
		fill(&hints->content, all.dim_v);
	if (all.dim > 0 || !hints->head_dim)
		fill(&hints->heads, all.heads);
	return KVT_OK;
}

void kvt_hints_model_window(int64_t *out, const struct kvt_hints *hints)
{
	int64_t window = 0;

	for (int i = 0; i < hints->of_model->ngroups; i++)
		if (!strcmp(hints->of_model->group[i].spec, "sliding-window"))
			join(&window, hints->of_model->group[i].args.window);
	if (window > 0)
		*out = window;
}

void kvt_hints_model_layers(int64_t *all, int64_t *windowed,
			    const struct kvt_hints *hints)
{
	struct kind k;

	*all = *windowed = 0;
	for (int i = 0; i < hints->of_model->ngroups; i++)
		if (take_kind(&k, &hints->of_model->group[i], NULL))
			*(hints->of_model->group[i].args.window ? windowed : all) +=
				k.layers;
}

/* "8 heads of 128, 4 heads of 256": of a model, for a message. */
static struct kvt_text kinds_text(const struct kvt_model *model,
				  const struct kvt_parallel *parallel)
{
	struct kvt_text out = { "" };
	size_t n = 0;
	struct kind k;

	for (int i = 0; i < model->ngroups && n < sizeof(out.s) - 80; i++) {
		char one[64];

		if (!take_kind(&k, &model->group[i], parallel))
			continue;
		snprintf(one, sizeof(one), k.dim ? "%lld heads of %lld" :
			 "%lld latents of %lld", LL(k.heads), LL(k.dim ? k.dim : k.dim_v));
		if (!strstr(out.s, one))
			n += (size_t)snprintf(out.s + n, sizeof(out.s) - n, "%s%s",
					      n ? ", or " : "", one);
	}
	if (!n)
		snprintf(out.s, sizeof(out.s), "no tokens");
	return out;
}

enum kvt_status kvt_hints_model_heads(int64_t *out, int64_t width,
				      const struct kvt_hints *hints, const char *path,
				      struct kvt_error *err)
{
	const struct kvt_model *model = hints->of_model;
	struct kind k;

	*out = 0;
	for (int i = 0; i < model->ngroups; i++)
		if (take_kind(&k, &model->group[i], NULL) &&
		    k.heads * (k.dim ? k.dim : k.dim_v) == width)
			join(out, k.heads);
	if (*out > 0)
		return KVT_OK;
	if (*out)
		return kvt_hint_denied(err, KVT_BAD_INPUT, path, "model", hints,
				       "keys of %lld elements may be of %s there: give --heads",
				       LL(width), kinds_text(model, NULL).s);
	return kvt_hint_denied(err, KVT_BAD_INPUT, path, "model", hints,
			       "keys have %lld elements, and the layers of the model have %s",
			       LL(width), kinds_text(model, NULL).s);
}

/* ---- afterwards ------------------------------------------------------------ */

static bool is_of(const struct kvt_group *group, const struct kind *k)
{
	const int64_t *n = group->shape.n;
	int64_t d = n[KVT_AXIS_D], coded;
	int half = kvt_group_half(group);

	/* heads that blocks of a type do not divide into are one row */
	if (group->content.type && group->content.n && n[KVT_AXIS_H] == 1 && k->dim)
		return group->content.n == (half == 1 ? k->dim_v : k->dim) &&
		       kvt_content_row_of(&group->content, k->heads *
					  group->content.n) == d;
	if (n[KVT_AXIS_H] != k->heads)
		return false;
	if (!k->dim || (half < 0 && n[KVT_AXIS_K] == 1))
		return n[KVT_AXIS_K] * d == (k->dim ? k->dim + k->dim_v : k->dim_v);
	coded = half == 1 ? k->dim_v : k->dim;
	return d == coded || (group->content.type &&
			      kvt_content_row_of(&group->content, coded) == d);
}

/* Keys of an indexer, which are latents of their own. */
static bool is_indexer(const struct kvt_group *group, const struct kvt_model_group *g)
{
	int64_t d = group->shape.n[KVT_AXIS_D];

	return !strcmp(g->spec, "index-key") && group->kind == KVT_MLA &&
	       (d == g->args.latent ||
		(group->content.type &&
		 kvt_content_row_of(&group->content, g->args.latent) == d));
}

/* Rows of bytes, or of what an engine packs, are not told by their numbers. */
static bool can_tell(const struct kvt_group *group)
{
	bool keys = group->shape.n[KVT_AXIS_K] == 2 || kvt_group_half(group) >= 0;

	return !kvt_is_recurrent(group->kind) && group->kind != KVT_OPAQUE &&
	       (keys || !group->content.type) && !(group->kind == KVT_MLA &&
						   group->dtype->elem == 1);
}

enum kvt_status kvt_model_check_dump(const struct kvt_snapshot *s,
				     const struct kvt_hints *hints, const char *path,
				     struct kvt_error *err)
{
	const struct kvt_model *model = hints ? hints->of_model : NULL;
	int64_t layers = 0;
	struct kind k;

	for (int i = 0; model && i < model->ngroups; i++)
		if (take_kind(&k, &model->group[i], &s->parallel))
			layers += k.layers;
	for (int g = 0; model && g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		const int64_t *n = group->shape.n;
		bool found = !can_tell(group);

		for (int i = 0; !found && i < model->ngroups; i++)
			found = is_indexer(group, &model->group[i]) ||
				(take_kind(&k, &model->group[i], &s->parallel) &&
				 is_of(group, &k));
		if (!found)
			return kvt_hint_denied(err, KVT_BAD_INPUT, path, "model", hints,
					       "group %s has %lld heads of %lld, and the layers of the model have %s",
					       group->id, LL(n[KVT_AXIS_H]),
					       LL(n[KVT_AXIS_D]),
					       kinds_text(model, &s->parallel).s);
		if (can_tell(group) && n[KVT_AXIS_L] > layers)
			return kvt_hint_denied(err, KVT_BAD_INPUT, path, "model", hints,
					       "group %s has %lld layers, and %lld of the model keep tokens",
					       group->id, LL(n[KVT_AXIS_L]), LL(layers));
	}
	return KVT_OK;
}
