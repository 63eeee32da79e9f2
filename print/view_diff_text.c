/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_diff_text.c - two dumps on a terminal: what differs, and where
 *
 * What kvtool diff prints, then maps of each pair that was compared and is not equal:
 * layers by heads, if there are several, and by tokens or blocks.  Where half a
 * character can have a colour a cell is a shade, the share of its numbers that are
 * unequal, and one without any is not drawn; else the maps are those of diff_maps.c.
 */
#include <math.h>

#include "print/out/say.h"
#include "print/out/cells.h"
#include "print/diff.h"
#include "print/out/screen.h"
#include "print/view.h"

struct map {
	const struct diff_result *r;
	const struct heat *cell;
};

/* What is equal is not drawn, so that one number that differs is seen. */
static double share_of(const struct cells *c, int64_t row, int64_t column)
{
	const struct map *map = c->context;
	const struct heat *h = &map->cell[row * c->columns + column];

	return h->bad ? (double)h->bad / (double)h->n : NAN;
}

static int64_t layer_of(const struct cells *c, int64_t row)
{
	return kvt_diff_layer(((const struct map *)c->context)->r, row);
}

static void print_map(FILE *f, const struct diff_result *r, const struct heat *cell,
		      int64_t columns, const char *what)
{
	struct map map = { r, cell };
	struct cells cells = { r->pair->nlayers, columns, &map, share_of, layer_of };

	fplainf(f, "  %s share of unequal numbers by layer and %s: 0 is one, 9 is all\n",
		r->pair->id, what);
	cells_print(f, &cells);
}

static void print_maps(FILE *f, const struct diff *d)
{
	for (int i = 0; i < d->pairs.n; i++) {
		const struct diff_result *r = &d->result[i];

		if (!r->measured || r->equal)
			continue;
		if (r->pair->nheads > 1)
			print_map(f, r, r->by_head, r->pair->nheads, "head");
		print_map(f, r, r->by_segment, r->ncolumns,
			  r->pair->by_tokens ? "token" : "block");
	}
}

void view_diff_text(const struct diff *d)
{
	diff_text(d);
	if (!screen_halves()) {
		diff_text_maps(stdout, d);
		return;
	}
	screen_fold_begin(2);
	print_maps(stdout, d);
	screen_fold_end();
}
