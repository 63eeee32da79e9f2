/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c - the part of a transfer that writes one box
 *
 * A box is a transfer in its own right, planned as any other: memory holds the
 * box and the blocks it comes from, not the allocations of the ranks.  In: a box and
 * the entries that write there.  Out: a plan whose source blocks are numbered by
 * their place in the window, and whose destination blocks begin at 0.  Blocks are
 * read in ascending order, those of one row of tiles at once, so that a tile is
 * decoded once a window.
 */
#include "sim/ops/exec.h"
#include "lib/base/order.h"

#include <stdlib.h>
#include <string.h>

/* ---- which blocks of the source -------------------------------------- */

static void list_blocks(struct kvt_carry_window *w, const struct kvt_carry_box *box)
{
	int64_t n = 0;

	for (int64_t i = 0; i < box->nspans; i++)
		w->block[i] = box->span[i].src_block;
	qsort(w->block, (size_t)box->nspans, sizeof(*w->block), kvt_by_int64);
	for (int64_t i = 0; i < box->nspans; i++)
		if (!n || w->block[n - 1] != w->block[i])
			w->block[n++] = w->block[i];
	w->nblocks = n;
}

static int64_t place_of(const struct kvt_carry_window *w, int64_t block)
{
	const int64_t *found = bsearch(&block, w->block, (size_t)w->nblocks,
				       sizeof(block), kvt_by_int64);

	return found - w->block;
}

/* ---- the transfer ---------------------------------------------------- */

enum kvt_status kvt_side_dense(struct kvt_xfer_side *out, const struct kvt_xfer_side *all,
			       const struct kvt_layout *layout, int64_t layers,
			       int64_t blocks, struct kvt_error *err)
{
	enum kvt_status status = kvt_xfer_side_init(out, &all->spec, all->ranks, layout,
						    layers, blocks, NULL, 0, err);

	out->replicas = all->replicas;
	return status;
}

static enum kvt_status plan(struct kvt_carry_window *w, const struct kvt_carry_box *box,
			    struct kvt_error *err)
{
	const struct kvt_transfer_group *g = &box->sides->transfer.group[box->part];
	int64_t layers = box->layers[1] - box->layers[0];
	struct kvt_xfer_side src, dst;
	enum kvt_status status;

	for (int64_t i = 0; i < box->nspans; i++) {
		w->entry[i] = box->span[i];
		w->entry[i].src_block = place_of(w, box->span[i].src_block);
		w->entry[i].dst_block -= box->blocks[0];
	}
	if ((status = kvt_side_dense(&src, &g->xfer.src, &g->src_layout, layers,
				     w->nblocks, err)) ||
	    (status = kvt_side_dense(&dst, &g->xfer.dst, &g->dst_layout, layers,
				     box->blocks[1] - box->blocks[0], err)))
		return status;
	return kvt_xfer_init(&w->xfer, &src, &dst, w->entry, box->nspans, err);
}

enum kvt_status kvt_carry_window_init(struct kvt_carry_window *out,
				      const struct kvt_carry_box *box,
				      struct kvt_error *err)
{
	struct kvt_carry_window w = {
		.entry = malloc(((size_t)box->nspans + 1) * sizeof(*w.entry)),
		.block = malloc(((size_t)box->nspans + 1) * sizeof(*w.block)),
	};
	enum kvt_status status;

	if (w.entry && w.block) {
		list_blocks(&w, box);
		status = plan(&w, box, err);
	} else {
		status = kvt_no_memory(err, NULL);
	}
	if (status)
		kvt_carry_window_free(&w);
	else
		*out = w;
	return status;
}

void kvt_carry_window_free(struct kvt_carry_window *w)
{
	free(w->entry);
	free(w->block);
	w->entry = NULL;
	w->block = NULL;
}

/* ---- its data -------------------------------------------------------- */

static struct kvt_box box_of(const struct kvt_shape *shape, const int64_t layers[2],
			     int64_t first, int64_t blocks)
{
	struct kvt_box box = kvt_box_whole(shape);

	box.begin[KVT_AXIS_L] = layers[0];
	box.end[KVT_AXIS_L] = layers[1];
	box_take(&box, KVT_AXIS_B, first, blocks);
	return box;
}

/* Blocks from 'first' on that one tile has, or that follow each other. */
static int64_t row_of(const struct kvt_carry_window *w, int64_t first,
		      const struct kvt_tiling *tiling)
{
	int64_t n = tiling ? tiling->n[KVT_AXIS_B] : 0, i = first + 1;

	while (i < w->nblocks && (n ? w->block[i] / n == w->block[first] / n :
				      w->block[i] == w->block[i - 1] + 1))
		i++;
	return i - first;
}

/* The blocks first.. of the window, each from where it is in what was read. */
static enum kvt_status put_row(struct kvt_worker *worker, const struct placed *to,
			       const struct placed *from,
			       const struct kvt_carry_window *w,
			       const struct kvt_box *row, int64_t elem,
			       struct kvt_error *err)
{
	int64_t end = row->end[KVT_AXIS_B];
	enum kvt_status status = KVT_OK;

	for (int64_t i = row->begin[KVT_AXIS_B], run; !status && i < end; i += run) {
		struct kvt_box here = *row, there = *row;

		run = row_of(w, i, NULL);
		if (run > end - i)
			run = end - i;
		box_take(&here, KVT_AXIS_B, i, run);
		box_take(&there, KVT_AXIS_B, w->block[i], run);
		status = copy_part(worker, to, &here, from, &there, elem, err);
	}
	return status;
}

/* Some layers, of one row of tiles: blocks that lie together are read together. */
static enum kvt_status read_layers(struct kvt_worker *worker, struct kvt_dump *reader,
				   int group, const struct placed *to,
				   const struct kvt_carry_window *w,
				   const int64_t layers[2], struct kvt_error *err)
{
	const struct kvt_shape *shape = &kvt_dump_group(reader, group)->shape;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0, n; !status && i < w->nblocks; i += n) {
		struct kvt_box row, there;
		struct placed from;
		int64_t last;

		n = row_of(w, i, kvt_dump_tiling(reader, group));
		last = w->block[i + n - 1];
		row = box_of(shape, layers, i, n);
		there = box_of(shape, layers, w->block[i], last + 1 - w->block[i]);
		status = read_around(&from, worker, leaf_of(reader), group, &there, err);
		if (!status)
			status = put_row(worker, to, &from, w, &row, shape->elem, err);
	}
	return status;
}

enum kvt_status kvt_carry_window_read(struct kvt_worker *worker,
				      const struct kvt_carry_box *box,
				      const struct kvt_carry_window *w, int src_rank,
				      uint8_t *buf, struct kvt_error *err)
{
	struct kvt_dump *reader = box->sides->src.file[src_rank].reader;
	int index = box->sides->transfer.group[box->part].src_group;
	const struct kvt_group *g = kvt_dump_group(reader, index);
	const struct kvt_tiling *tiling = kvt_dump_tiling(reader, index);
	struct placed to = { &g->layout, box_of(&g->shape, box->layers, 0, w->nblocks),
			     buf };
	int64_t step = tiling ? tiling->n[KVT_AXIS_L] : g->shape.n[KVT_AXIS_L];
	enum kvt_status status = KVT_OK;

	if (row_of(w, 0, NULL) == w->nblocks) {
		struct kvt_box there = box_of(&g->shape, box->layers, w->block[0],
					      w->nblocks);

		return kvt_read(worker, reader, index, &there, NULL, buf, err);
	}
	for (int64_t l = box->layers[0]; !status && l < box->layers[1]; ) {
		int64_t layers[2] = { l, (l / step + 1) * step };

		if (layers[1] > box->layers[1])
			layers[1] = box->layers[1];
		status = read_layers(worker, reader, index, &to, w, layers, err);
		l = layers[1];
	}
	return status;
}
