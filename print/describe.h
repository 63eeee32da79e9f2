/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.h - printing what a dump is
 *
 * Text and JSON are two ways to print the same facts.
 */
#ifndef KVTOOL_PRINT_DESCRIBE_H
#define KVTOOL_PRINT_DESCRIBE_H

#include "lib/ops/describe/describe.h"
#include "lib/ops/fit/fit.h"
#include "print/out/json_out.h"
#include "print/out/say.h"

struct describe_tokens;

/* What is printed only on request. */
struct describe_options {
	bool names, tuples, tables, verbose;
	const struct kvt_hints *hints;	/* with which it was opened; NULL: of many */
	const struct describe_tokens *ids;	/* NULL: not asked for */
};

void describe_text(const struct kvt_description *d,
		   const struct describe_options *options);
/* One of its groups: describe_group.c. */
void describe_group(const struct kvt_group_facts *f, const struct kvt_description *d,
		    const struct describe_options *options);
void describe_json(struct json_out *out, const struct kvt_description *d,
		   const struct describe_options *options);

/* ---- on a terminal alone: describe_screen.c -------------------------------- */

/* Two lines below the number of blocks: how many are whose. */
void describe_pool_bar(const struct kvt_group_facts *f, bool has_null);
/*
 * Behind text of 'used' columns, from 'column' on, both counted where text begins: how
 * many tokens these are of the most that a request has.
 */
void describe_request_bar(int64_t tokens, int64_t most, int used, int column);
/* What is known of the data, and what to type next, if 'hints' tell how it was opened. */
void describe_outlook(const struct kvt_description *d, const struct kvt_hints *hints);

/*
 * The facts of a text as lines to compare: "LABEL\tWHAT" each, more of the same behind a
 * tab alone, and before a group, whose id is a label, an empty line.  Of requests it has
 * names and a number of tokens.
 */
void describe_facts(const struct kvt_description *d);

/* ---- state files of engines, ids and text of tokens: describe_saved.c -------- */

/*
 * Ids of tokens where they are known, and their text if 'gguf', which may be NULL, has
 * a vocabulary that is known here; free in any case.  KVT_BAD_INPUT: it is of another
 * model.
 */
KVT_MUST_CHECK enum kvt_status
describe_tokens(struct describe_tokens **out, const struct kvt_description *d,
		const char *gguf, struct kvt_error *err);
void describe_tokens_free(struct describe_tokens *t);	/* NULL is allowed */
/* Of request r, or if negative of the list of a state: "token_ids", "text". */
void describe_ids_json(struct json_out *out, json_t *o, const struct describe_tokens *t,
		       int64_t r);
/* 't' may be NULL. */
void describe_saved_text(const struct kvt_description *d,
			 const struct describe_tokens *t);
void describe_saved_json(struct json_out *out, const struct kvt_description *d,
			const struct describe_tokens *t);

/* ---- several dumps: describe_set.c ----------------------------------------- */

/* Dumps that are described by how they differ from one before, if they are alike. */
struct described {
	const char *path;
	char *facts, *text;	/* owned; NULL: it was not opened; it is like another */
	uint64_t tables;	/* a sum of block tables, which are in no facts */
	int like;		/* the first that is alike, which may be it itself */
};
/* The next one, after those before it; false: out of memory. */
KVT_MUST_CHECK bool describe_add(struct described *set, int n,
				 const struct kvt_description *d);
void describe_set_text(const struct described *set, int n);
void describe_set_free(struct described *set, int n);

/* What a person would say of it, in one line; describe_sentence.c. */
void describe_sentence(FILE *f, const struct kvt_description *d);
/* The numbers of each layer, head and component, their totals, and what is odd. */
void describe_stats_text(const struct kvt_group_facts *f);

/* Which types it would hold in; describe_fit.c. */
void fit_text(const struct fit_try *fit, int n);
void fit_json(struct json_out *out, const struct fit_try *fit, int n);

/* Appends an object to 'list'. */
void strange_json(struct json_out *out, json_t *list, const struct kvt_strange *s);

void canonical_text(const struct kvt_canonical_facts *f);
void canonical_json(struct json_out *out, const struct kvt_canonical_facts *f);

void peeks_text(const struct kvt_peeks *peeks);
void peeks_json(struct json_out *out, const struct kvt_peeks *peeks);

#endif
