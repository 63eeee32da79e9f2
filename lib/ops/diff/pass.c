/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass.c - a pair in chunks: how it is cut, what a chunk reads, where its slots are
 *
 * In: a pair, whose segments are in the order of reading.  Out: chunks, some layers x
 * some segments, and for each side the box of blocks from that of the first segment to
 * that of the last.  A segment is in one block of either side, and its block in a view
 * is that of the segment before it or the next one (slots.c):
 *
 *	segment		0   1   2   3   4
 *	at in A		0   0   1   1   2	blocks of 32 slots
 *	at in B		0   1   2   3   4	blocks of 16
 *
 * So n segments are in at most n blocks, and as many pages of a side are room for what a
 * chunk has of it.  What is cut, at the borders of tiles of both sides, is a group with
 * one page, of the side whose are larger, for each layer and segment.
 */
#include "lib/ops/diff/pass.h"

struct chunk pass_chunk(const struct pass *c, struct kvt_worker *worker, int64_t i)
{
	struct kvt_box cut = kvt_cut_box(&c->cut, i);
	struct chunk chunk = {
		.layer = cut.begin[KVT_AXIS_L], .end_layer = cut.end[KVT_AXIS_L],
		.segment = cut.begin[KVT_AXIS_B], .end_segment = cut.end[KVT_AXIS_B],
	};

	for (int s = 0; s < NSIDES; s++) {
		int64_t first = c->p->segment[chunk.segment].at[s];
		int64_t last = c->p->segment[chunk.end_segment - 1].at[s];

		chunk.bytes[s] = worker ? worker->buffer[s] : NULL;
		chunk.box[s] = kvt_box_whole(&kvt_dump_group(c->p->view[s], 0)->shape);
		box_take(&chunk.box[s], KVT_AXIS_L, chunk.layer,
			 chunk.end_layer - chunk.layer);
		box_take(&chunk.box[s], KVT_AXIS_B, first, last + 1 - first);
	}
	return chunk;
}

const uint8_t *pass_slots_at(const struct pass *c, const struct chunk *chunk, int side,
			     int64_t layer, const struct diff_segment *segment)
{
	const struct kvt_box *box = &chunk->box[side];
	int64_t nblocks = box->end[KVT_AXIS_B] - box->begin[KVT_AXIS_B];
	int64_t page = (layer - chunk->layer) * nblocks + segment->at[side] -
		       box->begin[KVT_AXIS_B];

	return chunk->bytes[side] + page * c->page_bytes[side] +
	       segment->slot[side] * c->slot_bytes[side];
}

enum kvt_status pass_read(struct kvt_worker *worker, const struct pass *c,
			  const struct chunk *chunk, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++) {
		struct kvt_error why = { "" };

		status = kvt_read(worker, c->p->view[s], 0, &chunk->box[s],
				  &c->p->read[s], chunk->bytes[s], &why);
		if (status)
			kvt_fail_about(err, status, c->p->side[s]->name, &why);
	}
	return status;
}

int64_t pass_elements(const struct pass *c, const struct chunk *chunk)
{
	int64_t nslots = 0;

	for (int64_t i = chunk->segment; i < chunk->end_segment; i++)
		nslots += c->p->segment[i].count;
	return nslots * (chunk->end_layer - chunk->layer) * c->slot_elements;
}

/* What the first leaf that a view reads has: how it is cut and laid out. */
struct leaf_group {
	const struct kvt_tiling *tiling;
	const struct kvt_layout *layout;
};

static struct leaf_group leaf_of_view(const struct kvt_dump *view)
{
	struct leaf_group out = { NULL, &kvt_dump_group(view, 0)->layout };
	const struct kvt_dump *leaf;

	for (int i = 0; (leaf = kvt_dump_leaf(view, i)); i++) {
		int from = kvt_dump_leaf_group(view, i, 0);

		if (from < 0)
			continue;
		out.tiling = kvt_dump_tiling(leaf, from);
		out.layout = &kvt_dump_group(leaf, from)->layout;
		break;
	}
	return out;
}

bool pass_proven_cells(const struct kvt_dump *view)
{
	const struct kvt_tiling *tiling = leaf_of_view(view).tiling;

	return kvt_dump_has_cells(view, 0) && kvt_dump_cells_proven(view, 0) && tiling &&
	       tiling->fletcher32;
}

void pass_cut(struct pass *c, int64_t limit)
{
	const struct leaf_group a = leaf_of_view(c->p->view[SIDE_A]);
	const struct leaf_group b = leaf_of_view(c->p->view[SIDE_B]);
	struct kvt_group group = *kvt_dump_group(c->p->view[SIDE_A], 0);
	int64_t big = c->page_bytes[SIDE_A];

	if (big < c->page_bytes[SIDE_B])
		big = c->page_bytes[SIDE_B];
	group.layout = *a.layout;
	/* boxes are made of segments, and a segment is in one block of either side */
	group.shape = (struct kvt_shape){ .n = { c->p->nlayers, c->p->nsegments, 1, 1, 1,
						 big }, .elem = 1 };
	c->cut = kvt_cut_choose(&group, a.tiling, b.layout, b.tiling, limit);
}

struct kvt_work pass_work(struct pass *c, kvt_work_fn *fn, const char *label)
{
	int64_t pages = c->cut.layers * c->cut.blocks;
	struct kvt_work work = { .fn = fn, .context = c, .label = label,
			     .part = c->p->index, .count = c->cut.nboxes,
			     .total_bytes = diff_pair_elements(c->p) * element_bytes(c) };

	for (int s = 0; s < NSIDES; s++) {
		work.buffer_bytes[s] = pages * c->page_bytes[s];
		kvt_work_reads(&work, c->p->view[s], 0, &c->cut, &c->p->read[s]);
	}
	return work;
}
