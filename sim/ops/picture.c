/* SPDX-License-Identifier: Apache-2.0 */
/*
 * picture.c - which operation each byte of a block belongs to
 *
 * A cell is the longest run of elements that both sides keep together.  Cells of the
 * layers shown are sorted by address; the operations are walked from the first on and
 * mark the cells that they cover, until all cells that move have been marked or the
 * walk has taken MOST_OPS operations.
 */
#include "sim/ops/picture.h"
#include "lib/base/order.h"

#include <stdlib.h>
#include <string.h>

enum {
	MOST_CELLS = 1 << 18,
	MOST_ROWS = 64,
	GOOD_ROWS = 48,
	/* a walk that finds nothing for so long is given up: seconds */
	MOST_OPS = 1 << 26,
};

/* ---- cells --------------------------------------------------------------- */

/* Elements that follow each other in every place of this side. */
static int64_t run_of(const struct kvt_xfer_side *side)
{
	int64_t run = side->views.view[0].shape.n[KVT_AXIS_D];

	/* channels are dealt in parts: a run of one side may begin inside one */
	if (side->spec.nparts)
		return 1;
	for (int v = 0; v < side->views.count; v++) {
		const struct kvt_view *view = &side->views.view[v];

		for (int i = 0; i < view->nfactors; i++) {
			const struct kvt_factor *f = &view->factor[i];

			if (f->axis != KVT_AXIS_D || f->div != 1 || f->n < 2)
				continue;
			if (f->stride != view->shape.elem)
				return 1;
			if (f->n < run)
				run = f->n;
		}
	}
	return run;
}

/* All of the layers shown, by address. */
static void fill_cells(struct kvt_picture_side *m, const struct kvt_views *views,
		       int64_t run)
{
	const int64_t *n = views->view[0].shape.n;
	int64_t end[KVT_NAXES] = { m->layers, m->block + 1, n[KVT_AXIS_S], n[KVT_AXIS_H],
				   kvt_views_kv(views), n[KVT_AXIS_D] };
	int64_t i[KVT_NAXES] = { 0 }, at = 0;
	int a;

	i[KVT_AXIS_B] = m->block;
	do {
		struct kvt_picture_cell *c = &m->cells[at++];

		c->at = kvt_views_at(views, i);
		c->op = -1;
		memcpy(c->index, i, sizeof(i));
		for (a = KVT_NAXES - 1; a >= 0; a--) {
			i[a] += a == KVT_AXIS_D ? run : 1;
			if (i[a] < end[a])
				break;
			i[a] = a == KVT_AXIS_B ? m->block : 0;
		}
	} while (a >= 0);
	qsort(m->cells, (size_t)at, sizeof(*m->cells), kvt_by_int64);
}

/* The largest divisor of n that is no more than 'most'. */
static int64_t divisor(int64_t n, int64_t most)
{
	while (n % most)
		most--;
	return most;
}

/*
 * Rows are what the slowest axis inside a block makes of it, or several if that
 * one alone makes few.  Returns how many a layer has.
 */
static int64_t find_rows(enum kvt_axis *axis, const struct kvt_view *view, int64_t cells,
			 int64_t run)
{
	int64_t rows = 1, below = INT64_MAX;

	*axis = KVT_AXIS_L;
	while (rows < 8) {
		const struct kvt_factor *slow = NULL;

		for (int i = 0; i < view->nfactors; i++) {
			const struct kvt_factor *f = &view->factor[i];

			if (f->axis != KVT_AXIS_L && f->axis != KVT_AXIS_B &&
			    f->n > 1 && f->stride < below &&
			    (!slow || f->stride > slow->stride))
				slow = f;
		}
		if (!slow || (slow->axis == KVT_AXIS_D && run > 1) ||
		    cells % (rows * slow->n) || (rows > 1 && rows * slow->n > MOST_ROWS))
			break;
		if (rows == 1)
			*axis = slow->axis;
		rows *= slow->n > MOST_ROWS ? divisor(slow->n, MOST_ROWS) : slow->n;
		below = slow->stride;
	}
	return rows;
}

static enum kvt_status make_map(struct kvt_picture_side *m,
				const struct kvt_xfer_side *side, int64_t layers,
				int64_t run, struct kvt_error *err)
{
	const struct kvt_view *view = &side->views.view[0];
	const int64_t *n = view->shape.n;
	int64_t cells, rows;

	m->cell = run * view->shape.elem;
	if (n[KVT_AXIS_S] > MOST_CELLS || n[KVT_AXIS_H] > MOST_CELLS ||
	    n[KVT_AXIS_D] / run > MOST_CELLS)
		return KVT_OK;
	cells = n[KVT_AXIS_S] * n[KVT_AXIS_H];
	if (cells > MOST_CELLS ||
	    (cells *= kvt_views_kv(&side->views) * (n[KVT_AXIS_D] / run)) > MOST_CELLS)
		return KVT_OK;
	rows = find_rows(&m->axis, view, cells, run);
	m->columns = cells / rows;
	m->layers = rows < GOOD_ROWS ? GOOD_ROWS / rows : 1;
	if (m->layers > MOST_CELLS / cells)
		m->layers = MOST_CELLS / cells;
	if (m->layers > layers)
		m->layers = layers;
	m->all_rows = rows * layers;
	m->rows = rows * m->layers < MOST_ROWS ? rows * m->layers : MOST_ROWS;
	m->cells = malloc((size_t)(cells * m->layers) * sizeof(*m->cells));
	if (!m->cells)
		return kvt_no_memory(err, NULL);
	fill_cells(m, &side->views, run);
	return KVT_OK;
}

/* ---- ops ----------------------------------------------------------------- */

/* Whether this pair moves a cell of a side; parts and slots are few. */
static bool moves(const struct kvt_xfer *x, const struct kvt_pair *pair, int side,
		  const struct kvt_picture_cell *c)
{
	const struct kvt_exchange *e = &pair->exchange;
	int64_t unit = c->index[e->axis];
	bool inside = e->axis != KVT_AXIS_H && e->axis != KVT_AXIS_D;

	for (int i = 0; i < e->count; i++) {
		int64_t from = side ? e->range[i].dst : e->range[i].src;

		inside |= unit >= from && unit < from + e->range[i].count;
	}
	for (int64_t i = 0; inside && i < x->nentries; i++) {
		const struct kvt_block_span *s = &x->entry[i];
		int64_t block = side ? s->dst_block : s->src_block;
		int64_t slot = side ? s->dst_slot : s->src_slot;

		if (block == c->index[KVT_AXIS_B] &&
		    (x->src.spec.nparts || (c->index[KVT_AXIS_S] >= slot &&
					    c->index[KVT_AXIS_S] < slot + s->count)))
			return true;
	}
	return false;
}

/* Marks the cells of an op; how many. */
static int64_t mark(struct kvt_picture_side *m, int64_t at, int64_t len, int64_t op)
{
	int64_t lo = 0, hi = m->rows * m->columns, n = 0;

	while (lo < hi) {
		int64_t mid = lo + (hi - lo) / 2;

		if (m->cells[mid].at + m->cell <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < m->rows * m->columns && m->cells[lo].at < at + len; lo++, n++)
		m->cells[lo].op = op;
	return n;
}

/* Walks until every cell that moves has been met. */
static void find_ops(struct kvt_picture *maps, const struct kvt_nest *nest,
		     enum kvt_scope scope, int64_t wanted)
{
	struct kvt_picture_side *src = &maps->side[0], *dst = &maps->side[1];
	struct kvt_ops ops;
	struct kvt_op op;

	kvt_ops_start(&ops, nest, scope);
	for (int64_t i = 0; wanted > 0 && i < MOST_OPS && kvt_op_next(&op, &ops); i++)
		wanted -= mark(src, op.src, op.len, i) + mark(dst, op.dst, op.len, i);
}

static int64_t count_moves(const struct kvt_picture_side *m, const struct kvt_xfer *x,
			   const struct kvt_pair *pair, int side)
{
	/* slots of a block that entries hold: a look at each entry for each cell
	 * would take long, so a cell like the one before has its answer */
	int64_t n = 0;
	bool last = false;

	for (int64_t i = 0; i < m->rows * m->columns; i++) {
		const struct kvt_picture_cell *c = &m->cells[i], *b = c - 1;

		if (!i || b->index[KVT_AXIS_S] != c->index[KVT_AXIS_S] ||
		    b->index[KVT_AXIS_H] != c->index[KVT_AXIS_H] ||
		    (pair->exchange.axis == KVT_AXIS_D &&
		     b->index[KVT_AXIS_D] != c->index[KVT_AXIS_D]))
			last = moves(x, pair, side, c);
		n += last;
	}
	return n;
}

/* ---- maps ---------------------------------------------------------------- */

void kvt_picture_free(struct kvt_picture *maps)
{
	free(maps->side[0].cells);
	free(maps->side[1].cells);
}

enum kvt_status kvt_picture_init(struct kvt_picture *out,
				 const struct kvt_transfer_group *group,
				 const struct kvt_pair *pair, enum kvt_scope scope,
				 struct kvt_error *err)
{
	const struct kvt_xfer *x = &group->xfer;
	int64_t run = run_of(&x->src), other = run_of(&x->dst), wanted = 0;
	struct kvt_picture maps = { 0 };
	struct kvt_nest nest;
	enum kvt_status status;

	if (other < run)
		run = other;
	maps.side[0].block = x->entry[0].src_block;
	maps.side[1].block = x->entry[0].dst_block;
	maps.side[0].id = group->src_ids ? group->src_ids[maps.side[0].block] :
					   (uint64_t)maps.side[0].block;
	maps.side[1].id = group->dst_ids ? group->dst_ids[maps.side[1].block] :
					   (uint64_t)maps.side[1].block;
	if (!(status = kvt_nest_init(&nest, x, pair, err)) &&
	    !(status = make_map(&maps.side[0], &x->src, x->layers, run, err)) &&
	    !(status = make_map(&maps.side[1], &x->dst, x->layers, run, err))) {
		for (int s = 0; s < 2; s++)
			wanted += count_moves(&maps.side[s], x, pair, s);
		find_ops(&maps, &nest, scope, wanted);
	}
	if (status)
		kvt_picture_free(&maps);
	else
		*out = maps;
	return status;
}
