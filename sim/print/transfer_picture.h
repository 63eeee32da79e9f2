/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_picture.h - the parts of what transfer-sim report draws */
#ifndef KVTOOL_TRANSFER_PICTURE_H
#define KVTOOL_TRANSFER_PICTURE_H

#include <stdio.h>

#include "print/page/page.h"
#include "sim/ops/picture.h"
#include "sim/print/transfer.h"

enum { PICTURE_WIDTH = 1040, MAP_WIDTH = 520 };

/* These return how high they are. */
int svg_map(FILE *f, const struct svg_place *at, const struct kvt_picture_side *map,
	    const char *id, const char *name);
int svg_matrix(FILE *f, const struct svg_place *at, const struct timeline *pairs);
int svg_sizes(FILE *f, const struct svg_place *at, const char *id,
	      const struct kvt_sizes *sizes);
int svg_timeline(FILE *f, const struct svg_place *at, const struct timeline *pairs);

/* The same with heading and legend, for a page. */
void html_map(FILE *f, const struct kvt_picture_side *map, const char *id,
	      const char *name, const char *layout);
void html_timeline(FILE *f, const struct timeline *pairs);

/* "Block 3 of the source, LBSHC" */
struct human map_title(const struct kvt_picture_side *map, const char *name,
		       const char *layout);

#endif
