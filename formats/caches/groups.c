/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c - groups of layers of a cache of transformers that are alike
 *
 * Layers with a window are groups of their own, and so are keys and values of
 * different widths or types, of which a token of a group has but one.  A latent and its
 * rotary part are one row, as engines keep them.
 */
#include "formats/caches/open.h"

#include <stdlib.h>
#include <string.h>

static const struct cache_half *keys_of(const struct cache_layer *l)
{
	return &l->half[0];
}

static bool is_alike(const struct cache_layer *a, const struct cache_layer *b)
{
	if (cache_is_alone(a) != cache_is_alone(b) || a->part != b->part ||
	    a->held.chunk != b->held.chunk || a->held.id != b->held.id ||
	    a->held.each != b->held.each || (a->held.each && a->count != b->count))
		return false;
	for (int i = 0; i < 2 - cache_is_alone(a); i++)
		if (a->half[i].shape[CACHE_HEADS] != b->half[i].shape[CACHE_HEADS] ||
		    a->half[i].shape[CACHE_DIM] != b->half[i].shape[CACHE_DIM] ||
		    !kvt_content_equal(&a->half[i].content, &b->half[i].content) ||
		    strcmp(a->half[i].tensor->type, b->half[i].tensor->type))
			return false;
	return a->held.sliding == b->held.sliding && a->first == b->first &&
	       a->held.window == b->held.window && a->held.keep == b->held.keep &&
	       (!a->held.keep || keys_of(a)->shape[CACHE_TOKENS] ==
				 keys_of(b)->shape[CACHE_TOKENS]);
}

/* Integers may carry what a container has no name for. */
static enum kvt_status take_type(struct kvt_group *group, const struct cache_opening *o,
				 const struct cache_half *half)
{
	const struct kvt_tensor *t = half->tensor;

	group->content = half->content;
	if (group->content.type) {
		group->dtype = kvt_dtype_find("uint8");
		group->shape.elem = 1;
		return KVT_OK;
	}
	group->dtype = kvt_hint_dtype(t->dtype, o->hints, group->id);
	if (!group->dtype || group->dtype->elem != kvt_tensor_array(t, "").elem)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: elements of %.100s are %s, not of a known type; give --dtype",
				o->reader->leaf.path, t->name, t->type);
	group->shape.elem = group->dtype->elem;
	return KVT_OK;
}

/* The width of a row of one head of one half, or of all that a latent has. */
static int64_t width_of(const struct cache_layer *l, int kv)
{
	if (cache_is_latent(l))
		return l->half[0].shape[CACHE_DIM] + l->half[1].shape[CACHE_DIM];
	return l->half[kv > 0].shape[CACHE_DIM];
}

static const char *kind_name(const struct cache_opening *o, const struct cache_layer *l)
{
	if (o->cross)
		return "cross";
	if (l->held.id)
		return l->held.id;
	return cache_is_alone(l) && !l->held.single ? "indexer" : "g";
}

/* "g0", "g1.k", "cross", "indexer1"; kv as below. */
static void name_group(char id[32], const struct kvt_snapshot *s, const char *kind,
		       int kv)
{
	const char *half = kv < 0 ? "" : kv ? ".v" : ".k";
	size_t n = strlen(kind);
	unsigned number = 0;

	for (int g = 0; g < s->ngroups; g++) {
		const char *rest = s->group[g].id + n;

		if (strncmp(s->group[g].id, kind, n))
			continue;
		rest += strspn(rest, "0123456789");
		number += !*rest || !strcmp(rest, ".k");
	}
	/* of one in two halves the second has the number of the first */
	number -= kv == 1;
	if (number || !strcmp(kind, "g"))
		snprintf(id, 32, "%.20s%u%s", kind, number % 64, half);
	else
		snprintf(id, 32, "%.20s%s", kind, half);
}

/* kv: 0 keys, 1 values, -1 both. */
static enum kvt_status add_group(struct cache_opening *o, struct kvt_snapshot *s,
				 const struct cache_layer *l, int kv)
{
	bool index = cache_is_alone(l), latent = cache_is_latent(l);
	struct kvt_group *group;
	enum kvt_status status;
	int64_t each = l->held.each ? l->held.each : 1;
	char id[32];

	name_group(id, s, kind_name(o, l), kv);
	if ((status = kvt_manifest_add_group(&group, s, id, o->reader->leaf.path,
					     o->err)) ||
	    (status = kvt_layout_parse(&group->layout, index || latent ? "LBSC" :
				       kv < 0 ? "LKBHSD" : "LBHSD", o->err)) ||
	    (status = take_type(group, o, &l->half[kv > 0])) ||
	    (status = kvt_token_block_size(&group->block_size, o->hints, o->err)))
		return status;
	o->first[s->ngroups - 1] = l->first;
	o->end[s->ngroups - 1] = l->held.each ? l->first + l->count : 0;
	/* a block of whole rows, of as many as there would be tokens if need be */
	if (group->block_size % each)
		group->block_size *= each;
	group->kind = o->cross ? KVT_CROSS : l->held.opaque ? KVT_OPAQUE :
		      index || latent ? KVT_MLA :
		      l->held.chunk ? KVT_CHUNKED_LOCAL :
		      l->held.sliding ? KVT_SLIDING_WINDOW : KVT_FULL_ATTENTION;
	group->window = l->held.sliding ? l->held.window : 0;
	group->tokens_per_slot = each;
	group->shape.n[KVT_AXIS_L] = 0;
	group->shape.n[KVT_AXIS_S] = group->block_size / each;
	group->shape.n[KVT_AXIS_H] = keys_of(l)->shape[CACHE_HEADS];
	group->shape.n[KVT_AXIS_K] = kv < 0 && !index && !latent ? 2 : 1;
	group->shape.n[KVT_AXIS_D] = width_of(l, kv);
	if (kv >= 0) {
		strcpy(group->component[0].name, kv ? "v" : "k");
		group->component[0].length = group->shape.n[KVT_AXIS_D];
		group->ncomponents = 1;
	}
	return KVT_OK;
}

/* The first layer of a kind makes its group, or two. */
static enum kvt_status add_groups(struct cache_opening *o, struct kvt_snapshot *s)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < o->nlayers; i++) {
		struct cache_layer *l = &o->layer[i];
		int64_t j = 0;

		while (j < i && !is_alike(l, &o->layer[j]))
			j++;
		l->group = j < i ? o->layer[j].group : s->ngroups;
		if (j == i) {
			bool apart = cache_is_apart(l);

			status = add_group(o, s, l, apart ? 0 : -1);
			if (!status && apart)
				status = add_group(o, s, l, 1);
		}
		if (status)
			return status;
		l->place = s->group[l->group].shape.n[KVT_AXIS_L]++;
		if (cache_is_apart(l))
			s->group[l->group + 1].shape.n[KVT_AXIS_L]++;
	}
	return status;
}

/* The layers of a group as its tables. */
static enum kvt_status add_tables(struct cache_opening *o, struct kvt_group *group, int g)
{
	int64_t n = group->shape.n[KVT_AXIS_L];
	struct kvt_layer *layer = calloc((size_t)n + 1, sizeof(*layer));
	enum kvt_status status;

	if (!layer)
		return kvt_no_memory(o->err, o->reader->leaf.path);
	for (int64_t i = 0; i < o->nlayers; i++) {
		const struct cache_layer *l = &o->layer[i];

		if (l->group == g || (cache_is_apart(l) && l->group + 1 == g))
			layer[l->place] = (struct kvt_layer){ l->name, l->number, i };
	}
	for (int64_t i = 0; i < o->nstates; i++) {
		const struct cache_state *state = &o->state[i];

		if (state->group == g)
			layer[state->place] = (struct kvt_layer){ state->tensor->name,
								  state->number, i };
	}
	status = kvt_layers_tables(group, layer, n, o->reader->leaf.path, o->err);
	free(layer);
	return status;
}

enum kvt_status kvt_cache_groups(struct cache_opening *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status = add_groups(o, s);

	kvt_snapshot_hint_content(s, o->hints);
	if (!status)
		status = kvt_cache_state_groups(o);
	for (int g = o->base; !status && g < s->ngroups; g++)
		status = kvt_manifest_finish_group(&s->group[g], &s->parallel,
						   o->reader->leaf.path, o->err);
	for (int g = o->base; !status && !o->stacked && g < s->ngroups; g++)
		status = add_tables(o, &s->group[g], g);
	return status;
}

/* ---- where they are ------------------------------------------------------ */

/* Where a part is in a row: those of both halves of a latent lie side by side. */
static int64_t begin_of(const struct cache_layer *l, int kv, int part)
{
	bool latent = cache_is_latent(l);
	int64_t begin = latent && kv ? l->half[0].part[part].width : 0;

	for (int half = 0; half < 2; half++)
		for (int p = 0; (latent || half == kv) && p < part; p++)
			begin += l->half[half].part[p].width;
	return begin;
}

void kvt_cache_run(struct kvt_token_run *run, int *group, const struct cache_layer *l,
		   int kv, int part, int64_t row)
{
	bool apart = cache_is_apart(l), latent = cache_is_latent(l);
	const struct cache_part *from = &l->half[kv].part[part];
	int k = apart || latent ? 0 : kv;

	*group = l->group + (apart && kv);
	*run = (struct kvt_token_run){ .file = from->file, .kv = { k, k + 1 },
				       .layers = { l->place, l->place + 1 } };
	run->dim[0] = begin_of(l, kv, part);
	run->dim[1] = run->dim[0] + from->width;
	run->stride[KVT_AXIS_S] = from->stride[CACHE_TOKENS];
	run->stride[KVT_AXIS_H] = from->stride[CACHE_HEADS];
	run->stride[KVT_AXIS_D] = from->stride[CACHE_DIM];
	run->offset = from->begin + row * from->stride[CACHE_BATCH];
}
