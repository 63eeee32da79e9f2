/* SPDX-License-Identifier: Apache-2.0 */
/* html.h - the parts of what transfer-sim report draws: a page, or one picture */
#ifndef KVTOOL_HTML_H
#define KVTOOL_HTML_H

#include <stdio.h>

#include "cli/print/transfer.h"
#include "lib/ops/transfer/picture.h"

/* Everything that comes from outside goes through here. */
void html_text(FILE *f, const char *text);

/* "1,310,720" */
struct human human_count(int64_t n);
/* "2.1 ms" */
struct human human_time(int64_t ns);

void html_begin(FILE *f, const char *title);
void html_end(FILE *f);

/* ---- pictures ------------------------------------------------------------ */

enum { PICTURE_WIDTH = 1040, MAP_WIDTH = 520 };

/* The place of a picture in another one; NULL: in the flow of a page. */
struct svg_place {
	int x, y;
};

/* A picture with a name, and a description for screen readers. */
void svg_begin(FILE *f, const struct svg_place *at, const char *id, int width,
	       int height, const char *title, const char *description);
void svg_end(FILE *f);

/* A picture of its own, with the colours of the page. */
void svg_document_begin(FILE *f, int width, int height, const char *title);

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
