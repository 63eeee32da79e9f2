/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halves.c - keys and values of one layer have the same heads
 *
 * They are two groups where they differ in width or type.  Those called NAME.k and
 * NAME.v belong together; of others, those of one kind that share a layer, as layers
 * need not have numbers and then two kinds of cache count from 0 alike.
 */
#include "lib/snapshot/halves.h"

#include <stdlib.h>
#include <string.h>

#include "lib/snapshot/ids.h"

/* The other half by its name; -1: there is none. */
static int namesake(const struct kvt_snapshot *s, const struct kvt_group *group)
{
	static const char letter[] = { 'k', 'v' };
	int half = kvt_group_half(group), other;
	size_t n = strlen(group->id);
	char id[sizeof(group->id)];

	if (n < 2 || group->id[n - 2] != '.' || group->id[n - 1] != letter[half])
		return -1;
	memcpy(id, group->id, n + 1);
	id[n - 1] = letter[!half];
	other = kvt_group_named(s, id);
	return other >= 0 && kvt_group_half(&s->group[other]) == !half ? other : -1;
}

/* Of keys 'k' and values 'v'; *id is a layer of both. */
static enum kvt_status belong(bool *out, uint64_t *id, const struct kvt_snapshot *s,
			      int k, int v, struct kvt_error *err)
{
	const struct kvt_group *keys = &s->group[k], *values = &s->group[v];
	int64_t n = values->shape.n[KVT_AXIS_L];
	struct id_index *list;

	*out = false;
	*id = 0;
	if (namesake(s, keys) >= 0 || namesake(s, values) >= 0) {
		*out = namesake(s, keys) == v;
		*id = keys->shape.n[KVT_AXIS_L] ? kvt_layer_id(keys, 0) : 0;
		return KVT_OK;
	}
	if (keys->kind != values->kind)
		return KVT_OK;
	if (!(list = id_index_of(values, KVT_AXIS_L)))
		return kvt_no_memory(err, NULL);
	for (int64_t l = 0; !*out && l < keys->shape.n[KVT_AXIS_L]; l++) {
		*id = kvt_layer_id(keys, l);
		*out = id_index_find(list, n, *id) != NULL;
	}
	free(list);
	return KVT_OK;
}

/* Rows that are not divided have some heads each. */
static int64_t heads_of(const struct kvt_group *group)
{
	struct kvt_packing packing;

	/* a group whose content is wrong is told elsewhere */
	if (!group->content.type ||
	    kvt_packing_init(&packing, &group->content, &group->shape,
			     group->tokens_per_slot, NULL))
		return group->shape.n[KVT_AXIS_H];
	return group->shape.n[KVT_AXIS_H] * packing.fold;
}

static bool same_heads(const struct kvt_group *a, const struct kvt_group *b)
{
	if (heads_of(a) != a->shape.n[KVT_AXIS_H] ||
	    heads_of(b) != b->shape.n[KVT_AXIS_H])
		return heads_of(a) == heads_of(b);
	return a->shape.n[KVT_AXIS_H] == b->shape.n[KVT_AXIS_H] &&
	       a->total_heads == b->total_heads && a->head_start == b->head_start;
}

static int64_t last_head(const struct kvt_group *group)
{
	return group->head_start + group->shape.n[KVT_AXIS_H] - 1;
}

static enum kvt_status check_pair(const struct kvt_snapshot *s, int k, int v,
				  struct kvt_error *err)
{
	const struct kvt_group *keys = &s->group[k], *values = &s->group[v];
	enum kvt_status status;
	bool pair;
	uint64_t id;

	/* first what is quick */
	if (same_heads(keys, values) || kvt_group_half(keys) != 0 ||
	    kvt_group_half(values) != 1)
		return KVT_OK;
	if ((status = belong(&pair, &id, s, k, v, err)) || !pair)
		return status;
	return kvt_fail(err, KVT_BAD_INPUT,
			"groups %s and %s: keys of layer %llu have heads %lld to %lld of %lld, its values %lld to %lld of %lld; expected the same heads",
			keys->id, values->id, (unsigned long long)id,
			LL(keys->head_start), LL(last_head(keys)), LL(keys->total_heads),
			LL(values->head_start), LL(last_head(values)),
			LL(values->total_heads));
}

enum kvt_status halves_check(const struct kvt_snapshot *snapshot, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int k = 0; !status && k < snapshot->ngroups; k++)
		for (int v = 0; !status && v < snapshot->ngroups; v++)
			status = check_pair(snapshot, k, v, err);
	return status;
}
