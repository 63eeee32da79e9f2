/* SPDX-License-Identifier: Apache-2.0 */
/* cells.h - a map by layer as characters: two rows a line where halves have colours */
#ifndef KVTOOL_PRINT_CELLS_H
#define KVTOOL_PRINT_CELLS_H

#include <stdint.h>
#include <stdio.h>

struct cells {
	int64_t rows, columns;
	const void *context;
	/* How deep one is, from 0 to 1; NaN: it is not drawn. */
	double (*depth)(const struct cells *c, int64_t row, int64_t column);
	/* The layer of a row. */
	int64_t (*layer)(const struct cells *c, int64_t row);
};

/* As much of it as there is room for; of more rows and columns some, evenly. */
void cells_print(FILE *f, const struct cells *c);

#endif
