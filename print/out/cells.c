/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells.c - a map by layer as characters
 *
 * A cell is a digit of ten, on a ground of that shade where there are colours.  Where a
 * character can have two of them, it is two rows, and a legend says which shade is what.
 */
#include "print/out/cells.h"

#include <math.h>

#include "print/out/say.h"
#include "print/out/screen.h"

enum { LEFT = 12, LINES = 24 };

static int64_t spread(int64_t i, int64_t n, int64_t total)
{
	return n < total ? i * total / n : i;
}

static void put_digit(FILE *f, double depth)
{
	int tenth;

	if (isnan(depth)) {
		fputc(' ', f);
		return;
	}
	tenth = (int)(depth * 9.999);
	screen_heat(f, tenth);
	fputc('0' + tenth, f);
	screen_heat(f, -1);
}

static void put_half(FILE *f, const struct cells *c, int64_t row, int64_t below,
		     int64_t column)
{
	double upper = c->depth(c, row, column);
	double lower = below < 0 ? -1 : c->depth(c, below, column);

	screen_half(f, isnan(upper) ? -1 : upper, isnan(lower) ? -1 : lower);
}

static void print_legend(FILE *f)
{
	fplainf(f, "%*s0 ", LEFT, "");
	for (int i = 0; i < 10; i++)
		screen_half(f, i / 9.0, i / 9.0);
	screen_heat(f, -1);
	fplainf(f, " 9\n");
}

void cells_print(FILE *f, const struct cells *c)
{
	int64_t room = (int64_t)screen_room() - LEFT, each = screen_halves() ? 2 : 1;
	int64_t columns = c->columns < room ? c->columns : room;
	int64_t rows = c->rows < LINES * each ? c->rows : LINES * each;

	for (int64_t r = 0; r < rows; r += each) {
		int64_t row = spread(r, rows, c->rows);
		int64_t below = r + 1 < rows ? spread(r + 1, rows, c->rows) : -1;

		fplainf(f, "  layer %3lld ", LL(c->layer(c, row)));
		for (int64_t i = 0; i < columns; i++) {
			int64_t column = spread(i, columns, c->columns);

			if (each == 2)
				put_half(f, c, row, below, column);
			else
				put_digit(f, c->depth(c, row, column));
		}
		if (each == 2)
			screen_heat(f, -1);
		fputc('\n', f);
	}
	if (each == 2)
		print_legend(f);
}
