/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - are the layers those of a model, and the heads those of a rank?
 *
 * A layer's number in the model is its id, or what its name says.  Numbers ascend in
 * a group, names and ids are unique there, and all groups together leave no number
 * out between the first and the last: sorted lists find what breaks that.
 */
#include "lib/ops/check/check.h"

#include <stdlib.h>
#include <string.h>

#include "lib/kvt/spec.h"

/* Which layer of the model it is; false: not known. */
static bool number_of(int64_t *out, const struct kvt_group *group, int64_t l)
{
	if (!group->layer_ids)
		return kvt_layer_number(out, group->layer_names[l]);
	*out = group->layer_ids[l];
	return true;
}

static struct kvt_find_at at_layer(const struct kvt_group *group, int64_t l)
{
	return kvt_find_at("group=%s,layer=%lld", group->id, LL(l));
}

struct named {
	const char *name;
	int64_t number, layer;
};

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : x->layer < y->layer ? -1 : x->layer > y->layer;
}

static int by_number(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* ---- one group ---------------------------------------------------------- */

static void check_order(struct kvt_findings *r, const struct kvt_group *group)
{
	int64_t last = -1, number, of_name;

	for (int64_t l = 0; l < group->shape.n[KVT_AXIS_L]; l++) {
		const char *name = group->layer_names[l];

		if (!number_of(&number, group, l))
			return;
		if (group->layer_ids && kvt_layer_number(&of_name, name) &&
		    of_name != number)
			kvt_find(r, "layers.name-id", at_layer(group, l),
				 "'%.100s' has id %lld", name, LL(number));
		if (number < last)
			kvt_find(r, "layers.order", at_layer(group, l),
				 "layer %lld of the model comes after layer %lld",
				 LL(number), LL(last));
		last = number;
	}
}

static bool check_twice(struct kvt_findings *r, const struct kvt_group *group)
{
	int64_t n = group->shape.n[KVT_AXIS_L];
	struct named *layer = calloc((size_t)n + 1, sizeof(*layer));

	if (!layer)
		return false;
	for (int64_t l = 0; l < n; l++)
		layer[l] = (struct named){ group->layer_names[l], group->layer_ids ?
					   group->layer_ids[l] : -1 - l, l };
	qsort(layer, (size_t)n, sizeof(*layer), by_name);
	for (int64_t l = 1; l < n; l++)
		if (!strcmp(layer[l].name, layer[l - 1].name))
			kvt_find(r, "layers.duplicate-name",
				 at_layer(group, layer[l].layer),
				 "'%.100s' is also layer %lld", layer[l].name,
				 LL(layer[l - 1].layer));
	qsort(layer, (size_t)n, sizeof(*layer), by_number);
	for (int64_t l = 1; l < n; l++)
		if (layer[l].number == layer[l - 1].number)
			kvt_find(r, "layers.duplicate-id",
				 at_layer(group, layer[l].layer),
				 "id %lld is also that of layer %lld",
				 LL(layer[l].number), LL(layer[l - 1].layer));
	free(layer);
	return true;
}

/* ---- all groups --------------------------------------------------------- */

/* Ids are written by who knows which layers there are; names come with these. */
static bool has_ids(const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++)
		if (!s->group[g].layer_ids)
			return false;
	return true;
}

static void find_gap(struct kvt_findings *r, const char *rule, int64_t first,
		     int64_t last)
{
	if (first == last)
		kvt_find(r, rule, kvt_find_at("%s", ""), "layer %lld is in no group",
			 LL(first));
	else if (first < last)
		kvt_find(r, rule, kvt_find_at("%s", ""),
			 "layers %lld to %lld are in no group", LL(first), LL(last));
}

/* The layers of a hybrid model are dealt to groups: only together they have none. */
static bool check_gaps(struct kvt_findings *r, const struct kvt_snapshot *s)
{
	const char *rule = has_ids(s) ? "layers.chosen" : "layers.gap";
	struct named *layer;
	int64_t n = 0, at = 0;
	bool known = true;

	for (int g = 0; g < s->ngroups; g++)
		n += s->group[g].shape.n[KVT_AXIS_L];
	if (!(layer = calloc((size_t)n + 1, sizeof(*layer))))
		return false;
	for (int g = 0; g < s->ngroups; g++)
		for (int64_t l = 0; known && l < s->group[g].shape.n[KVT_AXIS_L]; l++)
			known = number_of(&layer[at++].number, &s->group[g], l);
	qsort(layer, (size_t)n, sizeof(*layer), by_number);
	for (int64_t i = 1; known && i < n; i++)
		find_gap(r, rule, layer[i - 1].number + 1, layer[i].number - 1);
	free(layer);
	return true;
}

bool kvt_check_layers(struct kvt_findings *r, const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++) {
		check_order(r, &s->group[g]);
		if (!check_twice(r, &s->group[g]))
			return false;
	}
	return check_gaps(r, s);
}

/* ---- contents ----------------------------------------------------------- */

/* What an engine that is set otherwise would take for other numbers, without a word. */
void kvt_check_contents(struct kvt_findings *r, const struct kvt_snapshot *s)
{
	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		struct kvt_packing packing;
		struct kvt_error why;

		if (!group->content.type)
			continue;
		packing = kvt_group_packing(group);
		if (kvt_packing_may_turn(&packing) &&
		    kvt_packing_readable(&packing, &why))
			kvt_find(r, "content.rotation",
				 kvt_find_at("group=%s", group->id), "%.400s", why.text);
	}
}

/* ---- heads -------------------------------------------------------------- */

void kvt_check_heads(struct kvt_findings *r, const struct kvt_snapshot *s)
{
	struct kvt_rank rank = { s->parallel.tp_size, s->parallel.tp_rank };

	for (int g = 0; g < s->ngroups; g++) {
		const struct kvt_group *group = &s->group[g];
		struct kvt_find_at at = kvt_find_at("group=%s", group->id);
		int64_t first = group->head_start;
		int64_t end = first + group->shape.n[KVT_AXIS_H];
		struct kvt_error why = { "" };
		struct kvt_range own;

		/* their parts say how these are dealt out, or nothing does */
		if (group->kind == KVT_MAMBA_CONV || group->kind == KVT_OPAQUE)
			continue;
		if (kvt_owned(&own, group->total_heads, rank, &why))
			kvt_find(r, "tp.heads", at, "%.300s", why.text);
		else if (own.begin != first || own.end != end)
			kvt_find(r, "tp.partial", at,
				 "heads %lld to %lld, but rank %lld of %lld holds %lld to %lld",
				 LL(first), LL(end - 1), LL(rank.index), LL(rank.size),
				 LL(own.begin), LL(own.end - 1));
	}
}
