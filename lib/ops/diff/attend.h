/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend.h - what a difference does to attention
 *
 * Of two caches of one content, layer by layer and head by head: the softmax of q.k over
 * the tokens that a query sees, and its output, of either side with the same queries.
 * Queries are those of a dump, or keys of A stand in for them ("proxy").  That dump is
 * one like any other: a group has the heads of queries where a cache has those of keys,
 * no values, and requests that say which positions they are of.  A group "sinks" of it
 * has a number for each layer and head, which takes part in the softmax and has no value.
 *
 *   kvt_diff_attend()      after kvt_diff_results(), of the pairs with keys and values
 *
 * Of MLA the latent is the key, and its first 'rank' numbers are the value: queries are
 * in the same space then, after what absorbs the projection of keys.
 */
#ifndef KVT_OPS_DIFF_ATTEND_H
#define KVT_OPS_DIFF_ATTEND_H

#include "lib/ops/diff/diff.h"

enum { ATTEND_SAMPLE = 64 };		/* keys of a request that stand in for queries */

struct diff_attend_options {
	const struct kvt_dump *queries;	/* borrowed; NULL: keys stand in */
	int64_t sample;			/* how many of a request do; 0: ATTEND_SAMPLE */
	int64_t rank;			/* of a latent, that of its value; 0: as said */
	double scale;			/* of q.k; 0: 1 / sqrt(numbers of a key) */
	double cap;			/* s becomes cap * tanh(s / cap); 0: it stays */
};
/*
 * "scale=0.25,cap=50,rank=512,sample=128" into 'out', which says nothing of these yet.
 * KVT_USAGE; 'what' is for the message.  The note of a dump of queries may say the same
 * behind "attention ", for what the caller leaves 0.
 */
KVT_MUST_CHECK enum kvt_status
kvt_attend_parse(struct diff_attend_options *out, const char *what, const char *text,
		 struct kvt_error *err);

/* Of a layer and a head of queries. */
struct diff_attend_cell {
	int64_t n;			/* queries whose output is a number on a side */
	int64_t lost;			/* of these, not on the other: infinitely far */
	int64_t unknown;		/* queries whose output is none on both */
	int64_t top;			/* those whose key of most weight is another */
	int64_t seen, missing;		/* tokens that they see; and not both hold */
	double change, most;		/* of weights, half sum of |a - b|: sum, most */
	double dd, aa;			/* of outputs: sums of (a - b)^2 and a^2 */
	double worst;			/* of a query's output, relative to A's */
};
/* Of all its queries together, relative to A. */
double kvt_attend_error(const struct diff_attend_cell *cell);
void kvt_attend_add(struct diff_attend_cell *to, const struct diff_attend_cell *from);

/* What the queries of one group do in layers of one pair, or of a pair and another. */
struct diff_attended {
	int pair[2];			/* number of that of keys, of that of values */
	const struct diff_pair *key, *value;
	int64_t nlayers, *layer;	/* in the pairs; owned */
	int64_t nheads, ratio;		/* of keys; heads of queries for each */
	int64_t first_head;		/* of queries in the model */
	int64_t nqueries, nrequests;	/* of a layer and a head; which have any */
	int64_t before;			/* queries left out: their key is not held */
	int64_t dim, rank;		/* numbers of a key, of a value */
	double scale, cap;
	bool sinks, equal;		/* equal: nothing was computed, all is 0 */
	struct diff_attend_cell *cell;	/* [nlayers][nheads * ratio]; owned */
	struct attend_private *own;
};

struct diff_attention {
	bool proxy;
	int n;
	struct diff_attended *of;	/* owned */
};

/* Of the model: of row l and head of queries h. */
int64_t kvt_attend_layer(const struct diff_attended *of, int64_t l);
/* The sum over the heads of a layer, or over all of them (l < 0). */
struct diff_attend_cell kvt_attend_sum(const struct diff_attended *of, int64_t l);

/*
 * Fills 'out', which is to be freed in any case, and judges: with the term T_ATTENTION
 * results of pairs whose heads are farther apart differ, and without other terms those of
 * pairs that have no attention differ unless they are equal.  KVT_BAD_INPUT: no pair has
 * keys and values of tokens, or queries fit none.
 */
KVT_MUST_CHECK enum kvt_status
kvt_diff_attend(struct diff_attention *out, struct diff_result *results,
		const struct diff_pairs *pairs, const struct diff_attend_options *options,
		const struct kvt_run *run, struct kvt_error *err);
void kvt_diff_attention_free(struct diff_attention *attention);

#endif
