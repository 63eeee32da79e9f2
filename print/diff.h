/* SPDX-License-Identifier: Apache-2.0 */
/* diff.h - the findings of kvtool diff, as text, JSON, CSV and pictures */
#ifndef KVT_PRINT_DIFF_H
#define KVT_PRINT_DIFF_H

#include "print/out/say.h"
#include "lib/ops/diff/attend.h"
#include "print/out/json_out.h"

/* What was compared, how, and what came out. */
struct diff {
	struct diff_side side[NSIDES];
	struct diff_pairs pairs;
	struct diff_result *result;	/* one a pair */
	struct diff_criteria criteria;
	struct diff_options options;
	bool common, map, quiet, no_diagnosis;
	struct diff_attend_options attend;
	struct diff_attention attention;	/* n 0: it was not asked for */
	int64_t rows;			/* --top: of a table at most; 0, -1: not said */
};

enum { DIFF_ROWS = 20 };		/* of a table that people read */

/* "atol", "max-abs": diff_words.c, as --tolerance and kvtool-json(5) have them. */
const char *diff_term_name(enum diff_term term);

/* "A:0-15": the tokens of a column of the heat map by position; or "block 3-4". */
struct human column_name(const struct diff_result *r, int64_t column);

static inline int unmatched_kept(const struct diff_unmatched *u)
{
	int room = (int)(sizeof(u->item) / sizeof(u->item[0]));

	return u->n < room ? u->n : room;
}

void diff_text(const struct diff *d);
void diff_text_where(const struct diff_result *r);
/* Does it differ in some dims, tokens, ... alone?  Not known: memory was short. */
bool diff_only_some(const struct diff_result *r, enum diff_axis axis, bool *known);
void diff_text_tables(const struct diff *d, const struct diff_result *r);
void diff_json_where(struct json_out *out, json_t *o, const struct diff_result *r);
void diff_json_tables(struct json_out *out, json_t *o, const struct diff *d,
		      const struct diff_result *r);
/* What another type has lost, by layer, keys and values: diff_lost.c. */
void diff_text_lost(const struct diff *d, const struct diff_result *r);
void diff_json_lost(struct json_out *out, json_t *o, const struct diff_result *r);
/* How many are the largest of B's type; "-" where it has none. */
struct human diff_saturated(const struct diff_result *r, const struct heat *heat);
/* What it does to attention: diff_attend.c. */
void diff_text_attention(const struct diff *d);
void diff_json_attention(struct json_out *out, json_t *o, const struct diff *d);
/* The line of a diagnosis. */
void diff_text_fault(const struct diff_result *r);
/* What it says behind the name of the line. */
void diff_fault_words(FILE *f, const struct diff_result *r);
void diff_text_maps(FILE *stream, const struct diff *d);
void diff_json(struct json_out *out, const struct diff *d);
/* Requests of other names that are one: "paired". */
void diff_json_paired(struct json_out *out, json_t *object, const struct diff *d);
/* The maps alone, as an object of their own. */
void diff_json_maps(struct json_out *out, const struct diff *d);
void diff_svg_maps(FILE *stream, const struct diff *d);

/* .svg, .csv, .json or .txt, by the end of the name. */
KVT_MUST_CHECK enum kvt_status
heatmap_check(const char *path, bool force, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
heatmap_write(const char *path, bool force, const struct diff *d, struct kvt_error *err);

#endif
