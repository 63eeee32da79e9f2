/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seen.c - hashes of what was decoded of leaves: seen.h
 *
 * A table a group of a leaf: [L][B][H][K] of u64, 0 where nothing is known.  Threads
 * store without a lock: two that decode the same tile store the same hash.
 */
#include "lib/dump/seen.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "lib/base/grow.h"
#include "lib/dump/map.h"
#include "lib/tile/hash.h"

/* One group of a leaf. */
struct watched {
	const struct kvt_leaf *leaf;
	int group;
	_Atomic uint64_t *cell;		/* [L][B][H][K]; 0: not known */
};

struct seen {
	int64_t room, used;		/* bytes of cells */
	struct watched *list;
	int n;
};

enum kvt_status seen_new(struct seen **out, int64_t most, struct kvt_error *err)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return kvt_no_memory(err, NULL);
	(*out)->room = most;
	return KVT_OK;
}

void seen_free(struct seen *seen)
{
	if (!seen)
		return;
	for (int i = 0; i < seen->n; i++)
		free(seen->list[i].cell);
	free(seen->list);
	free(seen);
}

int64_t seen_bytes(const struct seen *seen)
{
	return seen ? seen->used : 0;
}

static struct watched *find(const struct seen *seen, const struct kvt_leaf *leaf,
			    int group)
{
	for (int i = 0; seen && i < seen->n; i++)
		if (seen->list[i].leaf == leaf && seen->list[i].group == group)
			return &seen->list[i];
	return NULL;
}

bool seen_has(const struct seen *seen, const struct kvt_leaf *leaf, int group)
{
	return find(seen, leaf, group);
}

static int64_t count_cells(const int64_t *n)
{
	return n[KVT_AXIS_L] * n[KVT_AXIS_B] * n[KVT_AXIS_H] * n[KVT_AXIS_K];
}

/* Has every cell of a tile all of its slots and channels, in one run? */
static bool has_cells(const struct kvt_leaf *leaf, int group)
{
	const struct kvt_group *g = &leaf->snapshot.group[group];
	const struct kvt_tiling *tiling = leaf_tiling(leaf, group);

	return tiling && tiling->n[KVT_AXIS_S] == g->shape.n[KVT_AXIS_S] &&
	       tiling->n[KVT_AXIS_D] == g->shape.n[KVT_AXIS_D] &&
	       tile_in_cell_order(&g->layout, tiling);
}

static enum kvt_status watch_group(struct seen *seen, const struct kvt_leaf *leaf,
				   int group, struct kvt_error *err)
{
	int64_t n = count_cells(leaf->snapshot.group[group].shape.n);
	int64_t nbytes = n * (int64_t)sizeof(uint64_t);
	struct watched *w;

	if (!n || !has_cells(leaf, group) || find(seen, leaf, group) ||
	    n > (seen->room - seen->used) / (int64_t)sizeof(uint64_t))
		return KVT_OK;
	if (!KVT_GROW(&seen->list, seen->n))
		return kvt_no_memory(err, NULL);
	w = &seen->list[seen->n];
	*w = (struct watched){ leaf, group, calloc((size_t)n, sizeof(*w->cell)) };
	if (!w->cell)
		return kvt_no_memory(err, NULL);
	seen->n++;
	seen->used += nbytes;
	return KVT_OK;
}

enum kvt_status seen_watch(struct seen *seen, const struct kvt_dump *dump,
			   struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < dump->nleaves; i++)
		for (int g = 0; !status && g < dump->leaf[i]->snapshot.ngroups; g++)
			status = watch_group(seen, dump->leaf[i], g, err);
	return status;
}

/* Of 'n' of a group. */
static int64_t cell_number(const int64_t *n, const int64_t index[KVT_NAXES])
{
	return ((index[KVT_AXIS_L] * n[KVT_AXIS_B] + index[KVT_AXIS_B]) * n[KVT_AXIS_H] +
		index[KVT_AXIS_H]) * n[KVT_AXIS_K] + index[KVT_AXIS_K];
}

void seen_tile(struct seen *seen, const struct kvt_leaf *leaf, int group,
	       const int64_t begin[KVT_NAXES], const uint8_t *bytes)
{
	const struct watched *w = find(seen, leaf, group);
	const struct kvt_shape *shape = &leaf->snapshot.group[group].shape;
	const int64_t size = shape->n[KVT_AXIS_S] * shape->n[KVT_AXIS_D] * shape->elem;
	const int64_t *n = shape->n;
	struct kvt_box box;
	int64_t at[KVT_NAXES] = { 0 };

	if (!w)
		return;
	box = tile_box(leaf_tiling(leaf, group), begin);
	for (at[0] = box.begin[0]; at[0] < box.end[0]; at[0]++)
	for (at[1] = box.begin[1]; at[1] < box.end[1]; at[1]++)
	for (at[3] = box.begin[3]; at[3] < box.end[3]; at[3]++)
	for (at[4] = box.begin[4]; at[4] < box.end[4]; at[4]++, bytes += size)
		/* the others are padding */
		if (at[0] < n[0] && at[1] < n[1] && at[3] < n[3] && at[4] < n[4])
			atomic_store_explicit(&w->cell[cell_number(n, at)],
					      kvt_range_hash(bytes, size),
					      memory_order_relaxed);
}

uint64_t seen_cell(const struct seen *seen, const struct kvt_leaf *leaf, int group,
		   const int64_t index[KVT_NAXES])
{
	const struct watched *w = find(seen, leaf, group);

	return w ? atomic_load_explicit(&w->cell[cell_number(
				leaf->snapshot.group[group].shape.n, index)],
					memory_order_relaxed) : 0;
}
