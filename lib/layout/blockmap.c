/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blockmap.c - the slots of a request from one block table to another
 *
 *	slot i of a request	block ids[(i - first) / slots], slot (i - first) % slots
 *
 * In: a table of each side, with block sizes of their own, and a range of slots.  Out:
 * one span after the other, in order, each inside a block of either side; joined, if
 * asked for, where whole blocks or slots follow each other in both pools.  Tables are
 * checked once, before: the walk cannot fail and allocates nothing.
 */
#include "lib/kvt/connect.h"

static enum kvt_status check_table(const struct kvt_block_table *table, const char *side,
				   int64_t begin, int64_t end, struct kvt_error *err)
{
	int64_t capacity, rows;

	if (table->slots < 1 || table->nids < 0 || table->first < 0 ||
	    __builtin_mul_overflow(table->nids, table->slots, &capacity) ||
	    __builtin_add_overflow(capacity, table->first, &capacity) ||
	    /* JOIN_SLOTS counts through the pool */
	    __builtin_mul_overflow(table->pool, table->slots, &rows))
		return kvt_fail(err, KVT_BAD_INPUT,
				"the %s has %lld blocks of %lld slots", side,
				LL(table->nids), LL(table->slots));
	if (begin < end && (begin < table->first || end > capacity))
		return kvt_fail(err, KVT_BAD_INPUT,
				"slots %lld:%lld are not all in the %s, whose %lld blocks hold %lld:%lld", LL(begin),
				LL(end), side, LL(table->nids),
				LL(table->first), LL(capacity));
	for (int64_t i = 0; i < table->nids; i++)
		if (table->ids[i] >= table->pool)
			return kvt_fail(err, KVT_BAD_INPUT,
					"block id %u of the %s is outside its pool of %lld", table->ids[i], side,
					LL(table->pool));
	return KVT_OK;
}

enum kvt_status kvt_block_map_init(struct kvt_block_map *out,
				   const struct kvt_block_table *src,
				   const struct kvt_block_table *dst, int64_t begin,
				   int64_t end, struct kvt_error *err)
{
	enum kvt_status status;

	if (begin < 0 || end < begin)
		return kvt_fail(err, KVT_BAD_INPUT, "slots %lld:%lld are no range",
				LL(begin), LL(end));
	if ((status = check_table(src, "source", begin, end, err)) ||
	    (status = check_table(dst, "destination", begin, end, err)))
		return status;
	*out = (struct kvt_block_map){ *src, *dst, KVT_JOIN_NONE, begin, end };
	return KVT_OK;
}

/* What is left from 'at' on inside one block on both sides. */
static struct kvt_block_span entry(const struct kvt_block_map *map, int64_t at)
{
	int64_t s = at - map->src.first, d = at - map->dst.first;
	struct kvt_block_span span = {
		.src_block = map->src.ids[s / map->src.slots],
		.src_slot = s % map->src.slots,
		.dst_block = map->dst.ids[d / map->dst.slots],
		.dst_slot = d % map->dst.slots,
		.count = map->end - at,
	};

	if (span.count > map->src.slots - span.src_slot)
		span.count = map->src.slots - span.src_slot;
	if (span.count > map->dst.slots - span.dst_slot)
		span.count = map->dst.slots - span.dst_slot;
	return span;
}

static bool is_whole(const struct kvt_block_map *map, const struct kvt_block_span *span)
{
	return span->count == map->src.slots && span->count == map->dst.slots;
}

/* Does 'next' begin where 'span' ends, on both sides, if a pool is one row? */
static bool continues(const struct kvt_block_map *map, const struct kvt_block_span *span,
		      const struct kvt_block_span *next)
{
	int64_t src = map->src.slots, dst = map->dst.slots;

	return next->src_block * src + next->src_slot ==
	       span->src_block * src + span->src_slot + span->count &&
	       next->dst_block * dst + next->dst_slot ==
	       span->dst_block * dst + span->dst_slot + span->count;
}

bool kvt_block_map_next(struct kvt_block_map *map, struct kvt_block_span *out)
{
	bool whole;

	if (map->at >= map->end)
		return false;
	*out = entry(map, map->at);
	map->at += out->count;
	whole = is_whole(map, out);
	out->nblocks = map->join == KVT_JOIN_BLOCKS && whole;
	if (map->join == KVT_JOIN_NONE || (map->join == KVT_JOIN_BLOCKS && !whole))
		return true;
	while (map->at < map->end) {
		struct kvt_block_span next = entry(map, map->at);

		if (!continues(map, out, &next) ||
		    (map->join == KVT_JOIN_BLOCKS && !is_whole(map, &next)))
			break;
		out->count += next.count;
		out->nblocks += map->join == KVT_JOIN_BLOCKS;
		map->at += next.count;
	}
	return true;
}

int64_t kvt_block_map_whole(const struct kvt_block_table *src,
			    const struct kvt_block_table *dst, int64_t end)
{
	int64_t tail = (end - src->first) % src->slots, whole = end;
	int64_t room = dst->first + dst->nids * dst->slots;

	if (tail > 0)
		whole += src->slots - tail;
	return whole <= room ? whole : room;
}

enum kvt_status kvt_block_table_last(struct kvt_block_table *out,
				     const struct kvt_block_table *in,
				     int64_t nids, struct kvt_error *err)
{
	int64_t skip = in->nids - nids;

	if (nids < 0 || skip < 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"expected at least %lld blocks, got %lld",
				LL(nids), LL(in->nids));
	*out = *in;
	out->ids += skip;
	out->nids = nids;
	out->first += skip * in->slots;
	return KVT_OK;
}

enum kvt_status kvt_block_ids_check(const uint32_t *ids, int64_t nids, int64_t pool,
				    uint8_t *seen, struct kvt_error *err)
{
	for (int64_t i = 0; i < nids; i++) {
		uint32_t id = ids[i];

		if (id >= pool)
			return kvt_fail(err, KVT_BAD_INPUT,
					"block id %u is outside the pool of %lld", id,
					LL(pool));
		if (seen[id / 8] >> id % 8 & 1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"block id %u is listed twice", id);
		seen[id / 8] = (uint8_t)(seen[id / 8] | 1u << id % 8);
	}
	return KVT_OK;
}
