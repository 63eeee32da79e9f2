/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_svg.c - maps of the numbers of dumps as one picture, for documents and slides
 *
 * The root mean square alone; the page has the rest.  The map of keys and that of values
 * have one scale, so that they compare.
 */
#include <math.h>

#include "print/out/say.h"
#include "print/page/heat.h"
#include "print/page/page.h"
#include "print/view.h"

/* A map of one component. */
struct subject {
	const struct kvt_view_maps *maps;
	const struct kvt_view_cell *cell;
	int64_t columns, k;
	bool heads;
	double least, most;		/* of all cells */
};

static const struct kvt_view_cell *cell_of(const struct heat_map *m, int64_t row,
					   int64_t column)
{
	const struct subject *s = m->context;

	return &s->cell[(row * s->columns + column) * s->maps->kv + s->k];
}

static double depth(const struct heat_map *m, int64_t row, int64_t column)
{
	const struct subject *s = m->context;
	double x = kvt_view_rms(cell_of(m, row, column));

	if (isnan(x))
		return -1;
	return s->most > s->least ? (x - s->least) / (s->most - s->least) : 1;
}

static void row_words(char out[static HEAT_WORDS], const struct heat_map *m, int64_t row)
{
	const struct kvt_view_maps *maps = ((const struct subject *)m->context)->maps;
	int64_t l = kvt_view_member(&maps->layers, row);

	snprintf(out, HEAT_WORDS, "%llu",
		 (unsigned long long)kvt_layer_id(maps->group, l));
}

static void column_words(char out[static HEAT_WORDS], const struct heat_map *m,
			 int64_t column)
{
	const struct subject *s = m->context;
	const struct kvt_view_maps *maps = s->maps;
	unsigned long long id = s->heads ?
		kvt_head_id(maps->group, kvt_view_member(&maps->heads, column)) :
		kvt_block_id(maps->group,
			     maps->block[kvt_view_member(&maps->positions, column)]);

	snprintf(out, HEAT_WORDS, "%s %llu", s->heads ? "head" : "block", id);
}

static void cell_words(char out[static HEAT_WORDS], const struct heat_map *m, int64_t row,
		       int64_t column)
{
	const struct kvt_view_cell *c = cell_of(m, row, column);
	char layer[HEAT_WORDS], name[HEAT_WORDS];

	row_words(layer, m, row);
	column_words(name, m, column);
	snprintf(out, HEAT_WORDS,
		 "layer %.20s, %.30s: rms %.6g, largest %.6g, %lld of %lld zero, %lld not finite",
		 layer, name, kvt_view_rms(c), c->largest, LL(c->zero),
		 LL(c->finite), LL(c->nan + c->inf));
}

/* One scale for keys and values, as on a page. */
static void scale(struct subject *s)
{
	int64_t n = s->maps->layers.n * s->columns * s->maps->kv;

	s->least = INFINITY;
	s->most = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = kvt_view_rms(&s->cell[i]);

		s->least = x < s->least ? x : s->least;
		s->most = x > s->most ? x : s->most;
	}
}

/* All maps of a group from y on; f NULL: they are only measured. */
static double draw(FILE *f, const struct kvt_view_maps *maps, double y)
{
	for (int64_t i = 0; i < 2 * maps->kv; i++) {
		struct subject s = { .maps = maps, .k = i / 2, .heads = !(i % 2) };
		struct heat_map m = { .row_name = "layer", .rows = maps->layers.n,
				      .context = &s, .depth = depth, .row = row_words,
				      .column = column_words, .cell = cell_words };
		char title[200];

		s.cell = s.heads ? maps->by_head : maps->by_position;
		m.columns = s.columns = s.heads ? maps->heads.n : maps->positions.n;
		m.column_name = s.heads ? "head" : "block";
		if ((s.heads && maps->heads.n < 2) || !maps->nblocks)
			continue;
		scale(&s);
		snprintf(title, sizeof(title),
			 "%.60s, %s: root mean square by layer and %s, %.3g to %.3g",
			 maps->group->id, kvt_component_name(maps->group, s.k),
			 m.column_name, s.least, s.most);
		m.title = title;
		y = f ? heat_draw(f, &m, y) : y + heat_height(&m);
	}
	return y;
}

static double draw_all(FILE *f, const struct view *view, double y)
{
	for (int i = 0; i < view->n; i++)
		for (int g = 0; g < view->dump[i].facts.snapshot->ngroups; g++)
			if (view->dump[i].group[g].maps.by_head)
				y = draw(f, &view->dump[i].group[g].maps, y);
	return y;
}

void view_svg(FILE *f, const struct view *view)
{
	double y = 40;

	svg_document_begin(f, HEAT_LEFT + HEAT_WIDTH + HEAT_RIGHT,
			   (int)draw_all(NULL, view, y) + 1, view->dump[0].facts.path);
	heat_text(f, HEAT_LEFT, 24, "start", view->dump[0].facts.path);
	if (draw_all(f, view, y) < y + 1)
		heat_text(f, HEAT_LEFT, y + 20, "start", "there are no numbers");
	svg_end(f);
}
