/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - what is drawn, as JSON, as a page, and on a terminal
 *
 * All three draw the same picture: what a dump is, a block of it, its pool, its numbers.
 */
#ifndef KVTOOL_PRINT_VIEW_H
#define KVTOOL_PRINT_VIEW_H

#include "lib/ops/check/check.h"
#include "lib/ops/describe/describe.h"
#include "lib/ops/view/view.h"
#include "print/out/json_out.h"

/* Cells of the maps of a page: those of all groups share them. */
enum { VIEW_CELLS = 6144 };

struct view_group {
	struct kvt_view_pool pool;
	struct kvt_view_maps maps;	/* group NULL: there are no numbers */
	struct kvt_error why;		/* then why, if they were asked for */
	struct kvt_view_tiles tiles;
};

struct view_dump {
	struct kvt_dump *dump;
	struct kvt_description facts;
	struct kvt_findings found;	/* of fsck; of the data, if all of it is read */
	struct view_group group[KVT_MAX_GROUPS];
};

struct diff;

struct view {
	int n;
	struct view_dump *dump;		/* [n] */
	const struct diff *diff;	/* of the first two; NULL: not compared */
	bool block;			/* as text, a block is drawn, too */
	const struct kvt_hints *hints;	/* what was said of the inputs */
	const char *tolerance;		/* NULL, or that of two dumps */
	bool exact;			/* likewise */
	bool token_ids;			/* are in the JSON: they are the prompt */
};

/* What differs, for the script; view_diff.c. */
void view_diff_json(struct json_out *out, json_t *object, const struct view *view);

void view_json(struct json_out *out, const struct view *view);
/* A page that draws view_json(); the script is print/page/view.js. */
KVT_MUST_CHECK enum kvt_status
view_page(FILE *f, const struct view *view, struct kvt_error *err);
/* Maps alone. */
void view_svg(FILE *f, const struct view *view);
void view_text(FILE *f, const struct view *view);
/* The bytes of a block; view_block.c. */
void view_block_text(FILE *f, const struct kvt_group_facts *facts);
void view_numbers_text(FILE *f, const struct view_group *g);
/* Pools alone, in so many lines. */
KVT_MUST_CHECK enum kvt_status
view_pools(FILE *f, const struct kvt_description *d, int rows, struct kvt_error *err);
/* What differs, on standard output: the verdict, and maps; view_diff_text.c. */
void view_diff_text(const struct diff *d);

#endif
