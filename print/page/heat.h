/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heat.h - a map of shades: rows, columns, and words for each cell
 *
 * One hue that gets deeper: the order of the shades does not depend on telling colours
 * apart.
 */
#ifndef KVTOOL_HEAT_H
#define KVTOOL_HEAT_H

#include <stdint.h>
#include <stdio.h>

enum { HEAT_WORDS = 400 };

struct heat_map {
	const char *title;
	const char *row_name, *column_name;	/* "layer", "head" */
	int64_t rows, columns;			/* 1 or more */
	const void *context;
	/* How deep a cell is, from 0 to 1; below 0: it is not drawn. */
	double (*depth)(const struct heat_map *m, int64_t row, int64_t column);
	/* What stands beside a row, under the first and last column, and in a cell. */
	void (*row)(char out[static HEAT_WORDS], const struct heat_map *m, int64_t row);
	void (*column)(char out[static HEAT_WORDS], const struct heat_map *m,
		       int64_t column);
	void (*cell)(char out[static HEAT_WORDS], const struct heat_map *m, int64_t row,
		     int64_t column);
};

enum { HEAT_LEFT = 90, HEAT_WIDTH = 720, HEAT_RIGHT = 40 };

/* Draws it from y on; returns the y below it. */
double heat_draw(FILE *f, const struct heat_map *m, double y);
/* How high it is. */
double heat_height(const struct heat_map *m);

/* Shades in steps, with what each of them is. */
void heat_legend(FILE *f, double y, const char *title, const char *const *label, int n);

/* Words that stand by themselves; anchor: "start", "middle", "end". */
void heat_text(FILE *f, double x, double y, const char *anchor, const char *text);

#endif
