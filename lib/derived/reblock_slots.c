/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock_slots.c - slots of a request, and a growing list of spans
 *
 * A table may have fewer blocks than its tokens need, as a window drops them in front:
 * so many slots less are live, and the last block is as full as without a window.
 */
#include "lib/derived/reblock.h"

#include "lib/base/grow.h"

int64_t live_slots(const struct kvt_group *group, const struct kvt_request *request,
		   int index)
{
	int64_t tps = group->tokens_per_slot, size = group->shape.n[KVT_AXIS_S];
	int64_t had = request->nblocks[index], slots, need;

	if (tps < 1 || !had)
		return had * size;
	slots = request->ntokens / tps + (request->ntokens % tps != 0);
	need = slots / size + (slots % size != 0);
	/* what a window lost was in front */
	return need > had ? slots - (need - had) * size : slots;
}

enum kvt_status add_span(struct regroup *g, struct map_span span, struct kvt_error *err)
{
	if (!KVT_GROW(&g->map->span, g->nspans))
		return kvt_no_memory(err, NULL);
	g->map->span[g->nspans++] = span;
	return KVT_OK;
}
