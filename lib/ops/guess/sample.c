/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.c - a bounded sample of a dump, read as one layout has it
 *
 * Up to 8 layers and as many blocks as the limit has room for, spread evenly over
 * all; of a small dump everything, at once.  A page is what is read at a time: a block
 * of a layer, or all.  Values are mapped by asinh(x / unit), which keeps their sign
 * and tames outliers; of types of 1 and 2 bytes by a table.
 */
#include "lib/ops/compare/address.h"
#include "lib/ops/guess/impl.h"
#include "lib/ops/guess/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 8, FEW_BLOCKS = 16, TYPE_NBYTES = 1 << 17,
       PART = 256 };

enum kvt_status kvt_guess_open(struct kvt_dump **out, struct kvt_guess_candidate *c,
			       const struct guess_sample *s, const char *layout,
			       struct kvt_error *err)
{
	struct kvt_hints hints = s->hints;
	struct kvt_dump *dump;
	const struct kvt_group *group;
	struct kvt_box box;
	enum kvt_status status;

	hints.layout = layout;
	if ((status = s->source->open(&dump, s->source->context, &hints, err)))
		return status;
	group = &kvt_dump_snapshot(dump)->group[0];
	*c = (struct kvt_guess_candidate){ .layout = group->layout, .group = *group,
				       .same = -1 };
	c->group.layer_names = NULL;
	c->group.layer_ids = NULL;
	c->group.block_names = NULL;
	c->group.block_ids = NULL;
	c->group.block_valid = NULL;
	box = kvt_box_whole(&group->shape);
	if ((status = kvt_layout_views(&c->views, &c->layout, &box, group->shape.elem,
				       err))) {
		kvt_dump_close(dump);
		return status;
	}
	*out = dump;
	return KVT_OK;
}

/* ---- what to read ------------------------------------------------------- */

/* Layers and blocks of the sample, spread evenly over all. */
struct choice {
	int g;
	int64_t layers, blocks;
	struct kvt_shape page;			/* what is read at once */
	int64_t page_nbytes;
};

static int64_t spread(int64_t i, int64_t chosen, int64_t all)
{
	return (int64_t)((double)i * (double)all / (double)chosen);
}

static enum kvt_status choose(struct choice *out, const struct kvt_group *group, int g,
			      int64_t nbytes, struct kvt_error *err)
{
	const int64_t *n = group->shape.n;
	int64_t pages;
	enum kvt_status status;

	out->g = g;
	out->page = group->shape;
	out->page.n[KVT_AXIS_L] = out->page.n[KVT_AXIS_B] = 1;
	if ((status = kvt_shape_nbytes(&out->page_nbytes, &out->page, err)))
		return status;
	if (out->page_nbytes < 1 || n[KVT_AXIS_L] < 1 || n[KVT_AXIS_B] < 1)
		return kvt_fail(err, KVT_BAD_INPUT, "there is no data");
	pages = nbytes / out->page_nbytes;
	if (pages < GUESS_LEAST_BLOCKS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"a block of a layer has %lld bytes; give a --sample of %lld or more",
				LL(out->page_nbytes), LL(out->page_nbytes * FEW_BLOCKS));
	out->layers = n[KVT_AXIS_L] < MAX_LAYERS ? n[KVT_AXIS_L] : MAX_LAYERS;
	while (out->layers > 1 && pages / out->layers < FEW_BLOCKS &&
	       pages / out->layers < n[KVT_AXIS_B])
		out->layers--;
	/* layers that are left out need no room */
	out->blocks = pages / out->layers < n[KVT_AXIS_B] ? pages / out->layers :
		      n[KVT_AXIS_B];
	/* all of a small dump at once: its pages may be in many parts */
	if (pages / n[KVT_AXIS_L] >= n[KVT_AXIS_B]) {
		out->layers = n[KVT_AXIS_L];
		out->blocks = n[KVT_AXIS_B];
		out->page = group->shape;
		out->page_nbytes *= out->layers * out->blocks;
	}
	return KVT_OK;
}

static int64_t npages(const struct choice *choice)
{
	return choice->layers / choice->page.n[KVT_AXIS_L] *
	       (choice->blocks / choice->page.n[KVT_AXIS_B]);
}

static enum kvt_status read_page(uint8_t *buf, struct kvt_dump *dump,
				 const struct kvt_group *group,
				 const struct choice *choice, int64_t layer,
				 int64_t block, struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&group->shape);

	box.begin[KVT_AXIS_L] = spread(layer, choice->layers, group->shape.n[KVT_AXIS_L]);
	box.begin[KVT_AXIS_B] = spread(block, choice->blocks, group->shape.n[KVT_AXIS_B]);
	box.end[KVT_AXIS_L] = box.begin[KVT_AXIS_L] + choice->page.n[KVT_AXIS_L];
	box.end[KVT_AXIS_B] = box.begin[KVT_AXIS_B] + choice->page.n[KVT_AXIS_B];
	return kvt_dump_read(dump, choice->g, &box, NULL, buf, err);
}

/* Parts of the sample, evenly spread: a type needs no more. */
static int64_t thin_out(uint8_t *buf, int64_t nbytes)
{
	int64_t parts = nbytes / PART, keep = TYPE_NBYTES / PART;

	if (parts <= keep)
		return nbytes;
	for (int64_t i = 0; i < keep; i++)
		memmove(buf + i * PART, buf + spread(i, keep, parts) * PART, PART);
	return keep * PART;
}

enum kvt_status kvt_guess_bytes(uint8_t **out, int64_t *nbytes,
				const struct guess_sample *s,
				struct kvt_dump *dump, struct kvt_error *err)
{
	const struct kvt_group *group = &kvt_dump_snapshot(dump)->group[s->g];
	struct choice choice;
	enum kvt_status status = choose(&choice, group, s->g, s->nbytes, err);
	uint8_t *buf;
	int64_t n;

	if (status)
		return status;
	n = npages(&choice);
	buf = malloc((size_t)(n * choice.page_nbytes));
	if (!buf)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; !status && i < n; i++)
		status = read_page(buf + i * choice.page_nbytes, dump, group, &choice,
				   i / choice.blocks, i % choice.blocks, err);
	if (status) {
		free(buf);
		return status;
	}
	*out = buf;
	*nbytes = thin_out(buf, n * choice.page_nbytes);
	return KVT_OK;
}

/* ---- values ------------------------------------------------------------- */

static double value_of(const struct guess_sample *s, const struct kvt_dtype *dtype,
		       const uint8_t *element)
{
	double x;

	if (dtype->elem == 2)
		return s->value[element[0] | element[1] << 8];
	if (dtype->elem == 1)
		return s->value[element[0]];
	x = kvt_dtype_decode(dtype, element);
	return isfinite(x) ? asinh(x / s->unit) : 0;
}

static enum kvt_status make_table(struct guess_sample *s, const struct kvt_dtype *dtype,
				  struct kvt_error *err)
{
	int n = dtype->elem == 2 ? 65536 : 256;

	if (s->value || dtype->elem > 2)
		return KVT_OK;
	s->value = malloc((size_t)n * sizeof(*s->value));
	if (!s->value)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < n; i++) {
		uint8_t bytes[2] = { (uint8_t)i, (uint8_t)(i >> 8) };
		double x = kvt_dtype_decode(dtype, bytes);

		s->value[i] = isfinite(x) ? asinh(x / s->unit) : 0;
	}
	return KVT_OK;
}

/* ---- one page ----------------------------------------------------------- */

struct page {
	struct kvt_view view[2];
	struct address_terms terms[2];
	uint8_t *bytes;
	double *rows;			/* [S][H][K][D] of one block */
};

/* The values of a block of the page. */
static void decode_block(const struct page *page, const struct guess_sample *s,
			 const struct kvt_group *group, const int64_t from[KVT_NAXES])
{
	const int64_t *n = group->shape.n;
	int64_t at[KVT_NAXES];
	double *row = page->rows;

	memcpy(at, from, sizeof(at));
	for (int64_t i = 0; i < n[KVT_AXIS_S] * n[KVT_AXIS_H]; i++)
		for (int64_t k = 0; k < n[KVT_AXIS_K]; k++, row += n[KVT_AXIS_D]) {
			const struct address_terms *terms = &page->terms[k];
			const uint8_t *bytes = page->bytes + page->view[k].offset;

			at[KVT_AXIS_S] = i / n[KVT_AXIS_H];
			at[KVT_AXIS_H] = i % n[KVT_AXIS_H];
			bytes += address_terms_offset(terms, at);
			for (int64_t d = 0; d < n[KVT_AXIS_D]; d++)
				row[d] = value_of(s, group->dtype,
						  bytes + terms->at[KVT_AXIS_D][d]);
		}
}

/* 'turn' says which row stands in the place of each; NULL: its own. */
static void add_block(struct guess_tally *t, const double *rows, const int64_t *turn,
		      int64_t layer, int64_t block)
{
	int64_t at[KVT_NAXES] = { [KVT_AXIS_L] = layer, [KVT_AXIS_B] = block };
	int64_t below = t->heads * t->kvs;

	for (int64_t i = 0; i < t->slots * below; i++) {
		const double *row = rows + (turn ? turn[i] : i) * t->dims;
		const double *before = NULL;

		at[KVT_AXIS_S] = i / below;
		at[KVT_AXIS_H] = i / t->kvs % t->heads;
		at[KVT_AXIS_K] = i % t->kvs;
		if (i >= below)
			before = rows + (turn ? turn[i - below] : i - below) * t->dims;
		kvt_guess_add(t, at, row, before);
	}
}

static enum kvt_status page_init(struct page *page, const struct kvt_layout *layout,
				 const struct choice *choice, struct kvt_error *err)
{
	struct kvt_box box = kvt_box_whole(&choice->page);
	const int64_t *n = choice->page.n;
	struct kvt_views views;
	enum kvt_status status;

	if ((status = kvt_layout_views(&views, layout, &box, choice->page.elem, err)))
		return status;
	for (int k = 0; k < choice->page.n[KVT_AXIS_K]; k++) {
		if ((status = views_half(&page->view[k], &views, k, err)))
			return status;
		if (!address_terms_init(&page->terms[k], &page->view[k]))
			return kvt_no_memory(err, NULL);
	}
	page->bytes = malloc((size_t)choice->page_nbytes);
	page->rows = malloc((size_t)(n[KVT_AXIS_S] * n[KVT_AXIS_H] * n[KVT_AXIS_K] *
				     n[KVT_AXIS_D]) * sizeof(double));
	if (!page->bytes || !page->rows)
		return kvt_no_memory(err, NULL);
	return KVT_OK;
}

static void page_free(struct page *page)
{
	address_terms_free(&page->terms[0]);
	address_terms_free(&page->terms[1]);
	free(page->bytes);
	free(page->rows);
}

/* ---- all pages ---------------------------------------------------------- */

/* As many tallies as there are turns. */
static enum kvt_status tally(struct guess_tally *t, const struct guess_turns *turns,
			     const struct guess_sample *s, struct kvt_dump *dump,
			     const struct choice *choice, struct page *page,
			     struct kvt_error *err)
{
	const struct kvt_group *group = &kvt_dump_snapshot(dump)->group[choice->g];
	enum kvt_status status;

	bool whole = npages(choice) == 1;
	int64_t from[KVT_NAXES] = { 0 };

	for (int64_t l = 0; l < choice->layers; l++)
		for (int64_t b = 0; b < choice->blocks; b++) {
			if ((!whole || (!l && !b)) &&
			    (status = read_page(page->bytes, dump, group, choice, l, b,
						err)))
				return status;
			from[KVT_AXIS_L] = whole ? l : 0;
			from[KVT_AXIS_B] = whole ? b : 0;
			decode_block(page, s, group, from);
			for (int i = 0; i < turns->n; i++)
				add_block(&t[i], page->rows, turns->rows[i], l, b);
		}
	return KVT_OK;
}

enum kvt_status kvt_guess_read_turned(struct kvt_guess_measures *is,
				      const struct guess_turns *turns,
				      const struct kvt_guess_candidate *c,
				      struct guess_sample *s, struct kvt_dump *dump,
				      struct kvt_error *err)
{
	struct guess_tally t[GUESS_TURNS] = { { .layers = 0 } };
	struct page page = { .bytes = NULL };
	struct kvt_shape sample = c->group.shape;
	struct choice choice;
	enum kvt_status status;

	if ((status = choose(&choice, &c->group, s->g, s->nbytes, err)) ||
	    (status = make_table(s, c->group.dtype, err)))
		return status;
	sample.n[KVT_AXIS_L] = choice.layers;
	sample.n[KVT_AXIS_B] = choice.blocks;
	for (int i = 0; !status && i < turns->n; i++)
		if (!kvt_guess_tally_init(&t[i], &sample))
			status = kvt_no_memory(err, NULL);
	if (!status && !(status = page_init(&page, &c->layout, &choice, err)) &&
	    !(status = tally(t, turns, s, dump, &choice, &page, err)))
		for (int i = 0; i < turns->n; i++)
			is[i] = kvt_guess_measure(&t[i]);
	s->read = npages(&choice) * choice.page_nbytes / c->group.shape.elem;
	s->of = c->views.nbytes / c->group.shape.elem;
	page_free(&page);
	for (int i = 0; i < turns->n; i++)
		kvt_guess_tally_free(&t[i]);
	return status;
}

enum kvt_status kvt_guess_read(struct kvt_guess_candidate *c, struct guess_sample *s,
			       struct kvt_dump *dump, struct kvt_error *err)
{
	const struct guess_turns as_it_is = { .n = 1, .rows = { NULL } };

	return kvt_guess_read_turned(&c->is, &as_it_is, c, s, dump, err);
}
