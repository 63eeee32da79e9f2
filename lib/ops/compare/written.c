/* SPDX-License-Identifier: Apache-2.0 */
/*
 * written.c - is what was written what its leaves have?
 *
 * For relayout, convert, import, slice, merge: whatever keeps the ids of layers and
 * blocks and the places of slots in them.  First what it says of itself: shapes, types,
 * ids and tables.  Then elements, with each leaf on its own: every layer and block of a
 * group must be in each leaf that has a part of it, and every head and channel in one of
 * them.  A store without tables pairs blocks by their names.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/ops.h"
#include "lib/ops/compare/compare.h"
#include "lib/base/order.h"

static const enum kvt_axis axes[] = {
	KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H, KVT_AXIS_D,
};
enum { NAXES = sizeof(axes) / sizeof(axes[0]) };

/* ---- what it says of itself ---------------------------------------------- */

/*
 * A store without tables calls blocks by name, and where they stand in it says nothing:
 * they are found by their names then.
 */
static bool by_names(const struct kvt_snapshot *written, const struct kvt_group *group,
		     const struct kvt_group *wanted)
{
	return !written->nrequests && group->block_names && !group->block_ids &&
	       wanted->block_names;
}

/* What is in its place is what was to be written there, not other layers of it. */
static enum kvt_status check_places(const struct kvt_group *group,
				    const struct kvt_group *wanted, bool blocks,
				    struct kvt_error *err)
{
	for (int i = 0; i < NAXES; i++)
		for (int64_t j = 0; j < group->shape.n[axes[i]]; j++) {
			if (axes[i] == KVT_AXIS_B && !blocks)
				break;
			uint64_t is = element_id(group, axes[i], j);
			uint64_t should = element_id(wanted, axes[i], j);

			if (is != should)
				return kvt_fail(err, KVT_MISMATCH,
						"%s: %s is %lld, expected %lld",
						group->id, kvt_axis_name(axes[i]),
						LL(is), LL(should));
		}
	return KVT_OK;
}

static enum kvt_status check_all(const struct kvt_snapshot *written,
				 const struct kvt_snapshot *wanted, bool names,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (written->ngroups != wanted->ngroups)
		return kvt_fail(err, KVT_MISMATCH, "%d groups became %d",
				wanted->ngroups, written->ngroups);
	for (int g = 0; !status && g < written->ngroups; g++) {
		const struct kvt_group *a = &written->group[g], *b = &wanted->group[g];

		if (memcmp(&a->shape, &b->shape, sizeof(a->shape)))
			return kvt_fail(err, KVT_MISMATCH, "%s: shapes differ", a->id);
		if (a->dtype != b->dtype)
			return kvt_fail(err, KVT_MISMATCH, "%s: dtype is %s, expected %s",
					a->id, a->dtype->name, b->dtype->name);
		status = check_places(a, b, !names || !by_names(written, a, b), err);
	}
	return status;
}

enum kvt_status check_groups(const struct kvt_snapshot *written,
			     const struct kvt_snapshot *wanted, struct kvt_error *err)
{
	return check_all(written, wanted, false, err);
}

/* ---- blocks with names --------------------------------------------------- */

struct named {
	const char *name;
	int64_t at;
};

/* 'map' pairs blocks by id: those that are called otherwise there get their own. */
static enum kvt_status pair_names(int64_t *map, const struct kvt_group *leaf,
				  const struct kvt_group *group, struct kvt_error *err)
{
	size_t n = (size_t)leaf->shape.n[KVT_AXIS_B];
	struct named *list = malloc((n ? n : 1) * sizeof(*list));

	if (!list)
		return kvt_no_memory(err, NULL);
	for (size_t i = 0; i < n; i++)
		list[i] = (struct named){ leaf->block_names[i], (int64_t)i };
	qsort(list, n, sizeof(*list), kvt_by_name);
	for (int64_t j = 0; j < group->shape.n[KVT_AXIS_B]; j++) {
		const struct named key = { group->block_names[j], 0 }, *found;

		if (map[j] >= 0 && !strcmp(leaf->block_names[map[j]], key.name))
			continue;
		found = bsearch(&key, list, n, sizeof(*list), kvt_by_name);
		map[j] = found ? found->at : -1;
	}
	free(list);
	return KVT_OK;
}

/* ---- a group and all leaves ---------------------------------------------- */

/* The pairs with one leaf. */
struct leaf_pairs {
	struct slot_pairs slots;
	struct head_pairs heads;
};

/* Every layer and block of a group must be in each leaf that has a part of it. */
static enum kvt_status check_slots(const struct leaf_pairs *p,
				   const struct kvt_group *group, struct kvt_error *err)
{
	for (int i = 0; i < 2; i++) {
		const int64_t *map = i ? p->slots.block : p->slots.layer;

		for (int64_t j = 0; j < group->shape.n[axes[i]]; j++)
			if (map[j] < 0)
				return kvt_fail(err, KVT_MISMATCH,
						"%s: %s %lld is not in the input",
						group->id, kvt_axis_name(axes[i]),
						LL(element_id(group, axes[i], j)));
	}
	return KVT_OK;
}

/* Every head and channel must be in one of them. */
static enum kvt_status check_heads(const struct leaf_pairs *pairs, int n,
				   const struct kvt_group *group, struct kvt_error *err)
{
	for (int i = 2; i < NAXES; i++)
		for (int64_t j = 0; j < group->shape.n[axes[i]]; j++) {
			bool seen = false;

			for (int l = 0; l < n; l++)
				seen |= (i == 2 ? pairs[l].heads.head :
						  pairs[l].heads.channel)[j] >= 0;
			if (!seen)
				return kvt_fail(err, KVT_MISMATCH,
						"%s: %s %lld is in none of the inputs",
						group->id, kvt_axis_name(axes[i]),
						LL(element_id(group, axes[i], j)));
		}
	return KVT_OK;
}

/*
 * The null block, where it is a row of one tensor that other groups have, too: what was
 * in it is nobody's content, and not kept.
 */
static int64_t shared_null(const struct kvt_dump *written, int g)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(written);
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(written);
	int64_t null = kvt_null_block(s, g), other;

	if (!leaf || !leaf->rows || null < 0)
		return -1;
	for (int i = 0; i < s->ngroups; i++)
		if (i != g && (other = kvt_null_block(s, i)) >= 0 &&
		    kvt_block_id(&s->group[i], other) == kvt_block_id(&s->group[g], null))
			return null;
	return -1;
}

static enum kvt_status pair_leaf(struct leaf_pairs *out, struct comparison *c,
				 struct kvt_error *err)
{
	const struct kvt_snapshot *leaf = kvt_dump_snapshot(c->a);
	const struct kvt_snapshot *written = kvt_dump_snapshot(c->b);
	const struct pairs_side a = { leaf, c->group_a }, b = { written, c->group_b };
	int64_t null = shared_null(c->b, c->group_b);
	enum kvt_status status;

	c->slots = &out->slots;
	c->heads = &out->heads;
	if ((status = slot_pairs_by_ids(&out->slots, a, b, err)) ||
	    (by_names(written, pairs_group(b), pairs_group(a)) &&
	     (status = pair_names(out->slots.block, pairs_group(a), pairs_group(b),
				  err))) ||
	    (status = head_pairs_init(&out->heads, pairs_group(a), pairs_group(b),
				      err)) ||
	    (status = check_slots(out, pairs_group(b), err)))
		return status;
	if (null >= 0)
		out->slots.block[null] = -1;
	return check_tables_of_leaf(written, c->group_b, leaf, c->group_a, err);
}

static enum kvt_status verify_group(const struct kvt_dump *source,
				    const struct kvt_dump *written, int g, int nleaves,
				    const struct seen *seen, const struct kvt_run *run,
				    struct kvt_error *err)
{
	struct leaf_pairs *pairs = calloc((size_t)nleaves, sizeof(*pairs));
	struct comparison *list = calloc((size_t)nleaves, sizeof(*list));
	enum kvt_status status = KVT_OK;
	int n = 0;

	if (!pairs || !list)
		status = kvt_no_memory(err, NULL);
	for (int i = 0; !status && i < nleaves; i++) {
		int from = kvt_dump_leaf_group(source, i, g);

		if (from < 0)
			continue;
		list[n] = (struct comparison){ .a = kvt_dump_leaf(source, i),
					       .group_a = from, .b = written,
					       .group_b = g, .seen = seen };
		status = pair_leaf(&pairs[n], &list[n], err);
		n++;
	}
	if (!status)
		status = check_heads(pairs, n, kvt_dump_group(written, g), err);
	if (!status)
		status = compare_elements(list, n, "verifying", run, NULL, NULL, err);
	for (int i = 0; pairs && i < n; i++) {
		slot_pairs_free(&pairs[i].slots);
		head_pairs_free(&pairs[i].heads);
	}
	free(pairs);
	free(list);
	return status;
}

enum kvt_status verify_source(const struct kvt_dump *source,
			      const struct kvt_dump *written, const struct seen *seen,
			      const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *is = kvt_dump_snapshot(written);
	enum kvt_status status;
	int nleaves = 0;

	if ((status = check_all(is, kvt_dump_snapshot(source), true, err)) ||
	    (status = check_tables(is, kvt_dump_snapshot(source), err)))
		return status;
	while (kvt_dump_leaf(source, nleaves))
		nleaves++;
	for (int g = 0; !status && g < is->ngroups; g++)
		status = verify_group(source, written, g, nleaves, seen, run, err);
	return status;
}

enum kvt_status kvt_verify(const struct kvt_dump *source, const struct kvt_dump *written,
			   const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_run quiet = { 0 };

	return verify_source(source, written, NULL, run ? run : &quiet, err);
}
