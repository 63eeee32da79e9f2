/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_svg.c - where the differences are, as a picture
 *
 * The share of different elements is shown by its magnitude, so that one element of a
 * thousand is not as pale as none.
 */
#include <math.h>
#include <string.h>

#include "print/diff.h"
#include "print/page/heat.h"
#include "print/page/page.h"

/* What a map of one result is of. */
struct subject {
	const struct diff_result *r;
	const struct heat *heat;
	bool heads;			/* else tokens or blocks */
};

/* From 0 (one of 10^6 or fewer) to 1 (all); below 0: none. */
static double depth(const struct heat_map *m, int64_t row, int64_t column)
{
	const struct subject *s = m->context;
	const struct heat *h = &s->heat[row * m->columns + column];
	double share;

	if (!h->bad || !h->n)
		return -1;
	share = log10((double)h->bad / (double)h->n) / 6 + 1;
	return share < 0 ? 0 : share;
}

static void row_words(char out[static HEAT_WORDS], const struct heat_map *m, int64_t row)
{
	const struct subject *s = m->context;

	snprintf(out, HEAT_WORDS, "%lld", LL(kvt_diff_layer(s->r, row)));
}

static void column_words(char out[static HEAT_WORDS], const struct heat_map *m,
			 int64_t column)
{
	const struct subject *s = m->context;

	if (s->heads)
		snprintf(out, HEAT_WORDS, "head %lld", LL(kvt_diff_head(s->r, column)));
	else
		snprintf(out, HEAT_WORDS, "%s", column_name(s->r, column).s);
}

static void cell_words(char out[static HEAT_WORDS], const struct heat_map *m, int64_t row,
		       int64_t column)
{
	const struct subject *s = m->context;
	const struct heat *h = &s->heat[row * m->columns + column];
	char name[HEAT_WORDS];

	column_words(name, m, column);
	snprintf(out, HEAT_WORDS, "layer %lld, %.280s: %lld of %lld differ, max abs %.6g",
		 LL(kvt_diff_layer(s->r, row)), name, LL(h->bad), LL(h->n), h->max_abs);
}

/* Of heads, or of what the columns are. */
static struct heat_map map_of(char title[static 200], const struct subject *s)
{
	const struct diff_pair *p = s->r->pair;
	const char *what = p->by_tokens ? "token" : "block";

	snprintf(title, 200, "%s: share of different elements by layer and %s", p->id,
		 s->heads ? "head" : what);
	return (struct heat_map){
		.title = title, .row_name = "layer",
		.column_name = s->heads ? "head" : p->by_tokens ? "request and token" :
								   "block",
		.rows = p->nlayers, .columns = s->heads ? p->nheads : s->r->ncolumns,
		.context = s, .depth = depth, .row = row_words, .column = column_words,
		.cell = cell_words,
	};
}

static bool drawn(const struct diff_result *r)
{
	return r->measured && !r->equal;
}

/* Both maps of a result; f NULL: nothing is drawn, only measured. */
static double draw(FILE *f, const struct diff_result *r, double y)
{
	for (int i = 0; i < 2; i++) {
		const struct subject s = { .r = r, .heads = !i,
					   .heat = i ? r->by_segment : r->by_head };
		char title[200];
		struct heat_map m = map_of(title, &s);

		if (s.heads && m.columns < 2)
			continue;
		y = f ? heat_draw(f, &m, y) : y + heat_height(&m);
	}
	return y;
}

void diff_svg_maps(FILE *stream, const struct diff *d)
{
	static const char *const label[] = { "none", "10^-6", "10^-5", "10^-4", "10^-3",
					     "1 %", "10 %", "all" };
	double height = 120, y = 40;
	char title[1200];

	for (int i = 0; i < d->pairs.n; i++)
		if (drawn(&d->result[i]))
			height = draw(NULL, &d->result[i], height);
	snprintf(title, sizeof(title), "kvtool diff: %.500s and %.500s",
		 d->side[SIDE_A].name, d->side[SIDE_B].name);
	svg_document_begin(stream, HEAT_LEFT + HEAT_WIDTH + HEAT_RIGHT, (int)height + 1,
			   title);
	for (int i = 0; i < d->pairs.n; i++)
		if (drawn(&d->result[i]))
			y = draw(stream, &d->result[i], y);
	if (y < 41)
		heat_text(stream, HEAT_LEFT, y + 20, "start", "nothing differs");
	heat_legend(stream, y + 50, "share of elements that differ", label, 8);
	svg_end(stream);
}
