/* SPDX-License-Identifier: Apache-2.0 */
/* html.h - the parts of the page that transfer-sim report writes */
#ifndef KVTOOL_HTML_H
#define KVTOOL_HTML_H

#include <stdio.h>

#include "cli/block_map.h"
#include "cli/sim_pairs.h"

/* Everything that comes from outside goes through here. */
void html_text(FILE *f, const char *text);

/* "1,310,720" */
struct human human_count(int64_t n);
/* "2.1 ms" */
struct human human_time(int64_t ns);

void html_begin(FILE *f, const char *title);
void html_end(FILE *f);

/* A picture with a name and a description for those who do not see it. */
void svg_begin(FILE *f, const char *id, int width, int height, const char *title,
	       const char *description);
void svg_end(FILE *f);

/* Of one side; 'name' is "source" or "destination", 'id' is the picture's. */
void html_map(FILE *f, const struct block_map *map, const char *id, const char *name,
	      const char *layout);
void html_matrix(FILE *f, const struct sim_pairs *pairs);
void html_sizes(FILE *f, const struct kvt_sizes *sizes);
void html_timeline(FILE *f, const struct sim_pairs *pairs);

#endif
