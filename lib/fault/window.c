/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c - the window of a cache that a fault is looked for or planted in
 *
 *	[layers][blocks][slots][heads][keys, values][elements]	dense, in memory
 *
 * A window knows ids of layers and blocks, which slots are live, which block comes before
 * and after another in a request, and the layout that the whole has in memory: where that
 * can be had, faults of pages and of memory are asked for as well.
 */
#include "lib/fault/fault.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- checks ------------------------------------------------------------- */

/* Parts follow each other and fill a row. */
static enum kvt_status check_parts(const struct kvt_window *w, struct kvt_error *err)
{
	int64_t start = 0;

	for (int i = 0; i < w->nparts; i++) {
		int64_t left = w->shape.n[KVT_AXIS_D] - start;
		int64_t length = w->part[i].length;

		if (w->part[i].start != start || length < 1 || length > left ||
		    (i == w->nparts - 1 && length != left))
			return kvt_fail(err, KVT_BAD_INPUT,
					"part %d of a row is %lld elements from %lld, expected parts that fill a row in order",
					i, LL(length), LL(w->part[i].start));
		start += length;
	}
	return KVT_OK;
}

enum kvt_status kvt_fault_check_window(const struct kvt_window *w, struct kvt_error *err)
{
	const int64_t blocks = w->shape.n[KVT_AXIS_B];
	int64_t nbytes;
	enum kvt_status status = kvt_shape_nbytes(&nbytes, &w->shape, err);

	if (status)
		return status;
	if (!w->dtype || w->dtype->elem != w->shape.elem)
		return kvt_fail(err, KVT_BAD_INPUT,
				"elements of %" PRId64 " bytes, expected those of %s",
				w->shape.elem, w->dtype ? w->dtype->name : "a type");
	for (int64_t b = 0; b < blocks; b++)
		if ((w->prev && w->prev[b] >= blocks) ||
		    (w->next && w->next[b] >= blocks))
			return kvt_fail(err, KVT_BAD_INPUT,
					"block %lld is beside one beyond the %lld blocks",
					LL(b), LL(blocks));
	return check_parts(w, err);
}

/* ---- cases -------------------------------------------------------------- */

static bool pages_are_runs(const struct kvt_window *w)
{
	struct kvt_predicates p = kvt_layout_predicates(w->layout, &w->shape);

	return p.layer_compact && p.block_compact;
}

void kvt_fault_case_init(struct fault_case *c, const struct kvt_window *w,
			 const void *expected, const void *suspect)
{
	struct kvt_box whole = kvt_box_whole(&w->shape), page = whole;

	*c = (struct fault_case){ .window = w, .expected = expected,
				  .suspect = suspect, .tail = -1,
				  .slots = w->shape.n[KVT_AXIS_S],
				  .heads = w->shape.n[KVT_AXIS_H],
				  .kv = w->shape.n[KVT_AXIS_K],
				  .dim = w->shape.n[KVT_AXIS_D] };
	c->cell = c->dim * w->shape.elem;
	c->page_bytes = c->slots * c->heads * c->kv * c->cell;
	if (!w->layout)
		return;
	page.end[KVT_AXIS_L] = page.end[KVT_AXIS_B] = 1;
	c->has_memory = !kvt_layout_views(&c->memory, w->layout, &whole,
					  w->shape.elem, NULL);
	c->has_page = c->has_memory && pages_are_runs(w) &&
		      !kvt_layout_views(&c->page, w->layout, &page, w->shape.elem, NULL);
}

/* ---- blocks and elements ------------------------------------------------ */

int64_t kvt_fault_offset(const struct kvt_window *window, const int64_t at[KVT_NAXES])
{
	const int64_t *n = window->array ? window->array->n : window->shape.n;
	int64_t i = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		i = i * n[a] + at[a];
	return i * window->shape.elem;
}

bool kvt_fault_is_live(const struct kvt_window *w, int64_t block, int64_t slot)
{
	return !w->use || w->use[block * w->shape.n[KVT_AXIS_S] + slot] == KVT_LIVE;
}

bool kvt_fault_has_tokens(const struct kvt_window *window)
{
	switch (window->kind) {
	case KVT_MAMBA_CONV:
	case KVT_MAMBA_SSM:
	case KVT_OPAQUE:
		return false;
	default:
		return true;
	}
}

int64_t kvt_fault_block(const struct kvt_window *w, int64_t id, int64_t likely)
{
	int64_t n = w->shape.n[KVT_AXIS_B];

	if (likely >= 0 && likely < n && w->block_ids[likely] == id)
		return likely;
	for (int64_t b = 0; b < n; b++)
		if (w->block_ids[b] == id)
			return b;
	return KVT_NOT_HERE;
}

bool kvt_fault_next(int64_t at[KVT_NAXES], const struct kvt_shape *shape,
		    enum kvt_axis first, enum kvt_axis last)
{
	for (int a = last; a >= (int)first; a--) {
		if (++at[a] < shape->n[a])
			return true;
		at[a] = 0;
	}
	return false;
}

bool kvt_fault_same(const struct kvt_window *w, const uint8_t *a, const uint8_t *b)
{
	double x, y;

	if (!memcmp(a, b, (size_t)w->shape.elem))
		return true;
	if (w->atol <= 0 && w->rtol <= 0)
		return false;
	x = kvt_dtype_decode(w->dtype, a);
	y = kvt_dtype_decode(w->dtype, b);
	/* within no distance of anything, nor is a share of infinity one */
	if (!isfinite(x) || !isfinite(y))
		return x == y || (isnan(x) && isnan(y));
	return fabs(x - y) <= w->atol + w->rtol * fabs(x);
}
