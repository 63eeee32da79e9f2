/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.c - the entries of a block mapping, in order and checked
 *
 *	an entry	src_block, src_slot -> dst_block, dst_slot, count
 *
 * In: spans from block tables, in any order, in the caller's memory.  Out: sorted by
 * source, what several requests share kept once.  A slot of either side that has two
 * partners stands beside itself once they are sorted by that side, and is refused.  n
 * log n in entries, by a heap in place: nothing here allocates.
 */
#include "lib/transfer/xfer.h"


/* ---- making ------------------------------------------------------------- */

int64_t kvt_xfer_entries_most(const struct kvt_block_table *src,
			      const struct kvt_block_table *dst)
{
	/* each begins at a block boundary of one side or both */
	return src->nids + dst->nids;
}

enum kvt_status kvt_xfer_entries(struct kvt_block_span *entry, int64_t *n,
				 int64_t room, const struct kvt_block_table *src,
				 const struct kvt_block_table *dst, int64_t begin,
				 int64_t end, struct kvt_error *err)
{
	struct kvt_block_map map;
	struct kvt_block_span span;
	enum kvt_status status = kvt_block_map_init(&map, src, dst, begin, end, err);
	int64_t count = *n;

	if (status)
		return status;
	while (kvt_block_map_next(&map, &span)) {
		if (count == room)
			return kvt_fail(err, KVT_SYSTEM,
					"there is room for %lld entries of the block mapping, which has more", LL(room));
		entry[count++] = span;
	}
	*n = count;
	return KVT_OK;
}

/* ---- sorting ------------------------------------------------------------ */

static bool source_before(const struct kvt_block_span *a, const struct kvt_block_span *b)
{
	return a->src_block != b->src_block ? a->src_block < b->src_block :
					      a->src_slot < b->src_slot;
}

static bool destination_before(const struct kvt_block_span *a,
			       const struct kvt_block_span *b)
{
	return a->dst_block != b->dst_block ? a->dst_block < b->dst_block :
					      a->dst_slot < b->dst_slot;
}

typedef bool before_fn(const struct kvt_block_span *, const struct kvt_block_span *);

static void sift(struct kvt_block_span *e, int64_t at, int64_t n, before_fn *before)
{
	for (int64_t child; (child = 2 * at + 1) < n; at = child) {
		struct kvt_block_span x = e[at];

		if (child + 1 < n && before(&e[child], &e[child + 1]))
			child++;
		if (!before(&x, &e[child]))
			return;
		e[at] = e[child];
		e[child] = x;
	}
}

/* By hand: qsort() may allocate.  What is in order already is the usual case. */
static void sort(struct kvt_block_span *e, int64_t n, before_fn *before)
{
	int64_t i = 1;

	while (i < n && !before(&e[i], &e[i - 1]))
		i++;
	if (i >= n)
		return;
	for (i = n / 2 - 1; i >= 0; i--)
		sift(e, i, n, before);
	for (i = n - 1; i > 0; i--) {
		struct kvt_block_span x = e[0];

		e[0] = e[i];
		e[i] = x;
		sift(e, 0, i, before);
	}
}

/* ---- checking ----------------------------------------------------------- */

static enum kvt_status check_place(const char *side, int64_t block, int64_t slot,
				   int64_t count, const struct kvt_xfer_side *s,
				   struct kvt_error *err)
{
	int64_t pool = s->views.view[0].shape.n[KVT_AXIS_B];
	int64_t slots = kvt_xfer_block_slots(s);

	if (block < 0 || block >= pool)
		return kvt_fail(err, KVT_BAD_INPUT,
				"block id %lld of the %s is outside its pool of %lld",
				LL(block), side, LL(pool));
	if (count < 1 || slot < 0 || slot >= slots || count > slots - slot)
		return kvt_fail(err, KVT_BAD_INPUT,
				"slots %lld:%lld of block %lld of the %s are outside 0:%lld", LL(slot), LL(slot + count),
				LL(block), side, LL(slots));
	return KVT_OK;
}

/* Do both map the same source blocks to the same destination? */
static bool same_mapping(const struct kvt_block_span *a, const struct kvt_block_span *b)
{
	return a->src_block == b->src_block && a->dst_block == b->dst_block &&
	       a->src_slot - a->dst_slot == b->src_slot - b->dst_slot;
}

/* What several requests share is kept once. */
static int64_t join_shared(struct kvt_block_span *e, int64_t n)
{
	int64_t kept = 0;

	for (int64_t i = 0; i < n; i++) {
		struct kvt_block_span *last = kept ? &e[kept - 1] : NULL;
		int64_t end = e[i].src_slot + e[i].count;

		if (!last || !same_mapping(last, &e[i]) ||
		    e[i].src_slot > last->src_slot + last->count)
			e[kept++] = e[i];
		else if (end > last->src_slot + last->count)
			last->count = end - last->src_slot;
	}
	return kept;
}

static enum kvt_status check_sources(const struct kvt_block_span *e, int64_t n,
				     struct kvt_error *err)
{
	for (int64_t i = 1; i < n; i++)
		if (e[i].src_block == e[i - 1].src_block &&
		    e[i].src_slot < e[i - 1].src_slot + e[i - 1].count)
			return kvt_fail(err, KVT_BAD_INPUT,
					"slot %lld of block %lld of the source goes to blocks %lld and %lld of the destination",
					LL(e[i].src_slot), LL(e[i].src_block),
					LL(e[i - 1].dst_block), LL(e[i].dst_block));
	return KVT_OK;
}

static enum kvt_status check_destinations(const struct kvt_block_span *e, int64_t n,
					  struct kvt_error *err)
{
	for (int64_t i = 1; i < n; i++)
		if (e[i].dst_block == e[i - 1].dst_block &&
		    e[i].dst_slot < e[i - 1].dst_slot + e[i - 1].count)
			return kvt_fail(err, KVT_BAD_INPUT,
					"slot %lld of block %lld of the destination is written from blocks %lld and %lld of the source",
					LL(e[i].dst_slot), LL(e[i].dst_block),
					LL(e[i - 1].src_block), LL(e[i].src_block));
	return KVT_OK;
}

enum kvt_status kvt_entries_sort(struct kvt_xfer *x, struct kvt_block_span *e,
				 int64_t n, struct kvt_error *err)
{
	enum kvt_status status;

	for (int64_t i = 0; i < n; i++) {
		e[i].nblocks = 0;
		if ((status = check_place("source", e[i].src_block, e[i].src_slot,
					  e[i].count, &x->src, err)) ||
		    (status = check_place("destination", e[i].dst_block,
					  e[i].dst_slot, e[i].count, &x->dst, err)))
			return status;
	}
	sort(e, n, source_before);
	n = join_shared(e, n);
	if ((status = check_sources(e, n, err)))
		return status;
	sort(e, n, destination_before);
	if ((status = check_destinations(e, n, err)))
		return status;
	sort(e, n, source_before);
	x->nentries = n;
	x->slots = 0;
	for (int64_t i = 0; i < n; i++)
		x->slots += e[i].count;
	return KVT_OK;
}
