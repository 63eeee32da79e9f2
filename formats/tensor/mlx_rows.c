/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx_rows.c - LayerCache, what mlx-lm keeps of a layer of DeepSeek V4.1
 *
 *	LAYER.0 window	.1 rows	.2 keys of the indexer	.3 what waits	.4 its gates
 *					each [batch, rows, elements], and a number: tokens
 *
 * The newest rows of a window, rows of several tokens each, and what waits to become
 * one.  How many tokens a row stands for follows: all but those that wait are in rows.
 * Read from mlx-lm 0.32.
 */
#include "formats/tensor/mlx_batch.h"

#include <string.h>

enum { WINDOW, ROWS, INDEX, WAITING, GATE, MOST_TOKENS = 1 << 30 };

/* Of an array [batch, rows, elements]; 0: there is none; -1: it is no such array. */
static int64_t rows_of(const struct kvt_tensors *tensors, int64_t layer, int which)
{
	const struct kvt_tensor *t;
	char name[48];

	snprintf(name, sizeof(name), "%lld.%d", LL(layer), which);
	t = kvt_tensors_find(tensors, name);
	if (!t || t->begin == t->end)
		return 0;
	return t->rank == 3 ? t->shape[1] : -1;
}

/* -1: the lengths do not fit each other; 0: no row is there. */
static int64_t ratio_of(const struct kvt_tensors *tensors, int64_t layer, int64_t offset)
{
	int64_t rows = rows_of(tensors, layer, ROWS);
	int64_t waits = rows_of(tensors, layer, WAITING);
	int64_t done = offset - waits;

	if (rows < 0 || waits < 0 || done < 0 ||
	    waits != rows_of(tensors, layer, GATE) ||
	    (rows_of(tensors, layer, INDEX) && rows_of(tensors, layer, INDEX) != rows))
		return -1;
	if (!rows)
		return waits && done ? -1 : 0;
	return done % rows || done / rows <= waits ? -1 : done / rows;
}

static void take_rows(struct kvt_held *out, int which, int64_t ratio, int64_t offset,
		      int64_t waits)
{
	static const char *const ids[] = {
		NULL, "comp", "indexer", "buf.kv", "buf.gate"
	};
	bool row = which == ROWS || which == INDEX;

	out->id = ids[which];
	out->each = row ? ratio : 1;
	out->start = row ? 0 : offset - waits;
	out->opaque = !row;
	out->sliding = !row && ratio;
	out->window = ratio;
}

bool kvt_mlx_rows(struct kvt_held *out, const struct kvt_tensors *tensors, int64_t layer,
		  int which, int64_t offset)
{
	int64_t ratio, rows = rows_of(tensors, layer, which);

	if (offset < 0 || offset > MOST_TOKENS || which < WINDOW || which > GATE ||
	    rows < 1 || (ratio = ratio_of(tensors, layer, offset)) < 0 ||
	    (which == WINDOW && rows > offset))
		return false;
	out->role = KVT_ROLE_INDEX;
	out->layer = layer;
	out->told = out->fixed = true;
	out->seen = offset;
	if (which != WINDOW) {
		take_rows(out, which, ratio, offset, rows_of(tensors, layer, WAITING));
		return true;
	}
	/* it is one only once it has let go of tokens */
	out->single = true;
	out->sliding = offset > rows;
	out->window = out->sliding ? rows : 0;
	return true;
}
