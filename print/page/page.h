/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - what every page in HTML and every picture in SVG is made with
 *
 * Knows no dump, no command and no result: who draws says what, and these how it looks.
 * Text that comes from outside goes through html_text(), and nowhere past it.
 */
#ifndef KVTOOL_PAGE_H
#define KVTOOL_PAGE_H

#include <stdio.h>

/* Markup is escaped; what is no printable ASCII becomes a question mark. */
void html_text(FILE *f, const char *text);

void html_begin(FILE *f, const char *title);
void html_end(FILE *f);

/* view.js, which draws the JSON of the element with the id "data". */
void html_script(FILE *f);

/* ---- pictures ------------------------------------------------------------ */

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

#endif
