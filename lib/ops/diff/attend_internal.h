/* SPDX-License-Identifier: Apache-2.0 */
/* attend_internal.h - between the files attend*.c of lib/ops/diff */
#ifndef KVT_OPS_DIFF_ATTEND_INTERNAL_H
#define KVT_OPS_DIFF_ATTEND_INTERNAL_H

#include "lib/ops/diff/attend.h"
#include "lib/ops/diff/internal.h"

struct attend_query {
	int64_t position;
	int64_t block, slot;		/* where it is; of a proxy, in the view of A */
	int64_t seen, missing;
};

/* A request of A that has queries.  Scores lie at position - base. */
struct attend_request {
	int64_t request, prompt;
	int64_t base, span;
	int64_t n;
	struct attend_query *query;	/* owned */
};

struct attend_private {
	const struct meter *meter[2];	/* of keys, of values */
	int64_t kv[2];			/* which half they are in these pairs */
	int group;			/* of the queries; -1: keys stand in */
	const struct kvt_dump *queries;
	int64_t *from;			/* [nlayers] layer of the queries; owned */
	int64_t query_head;		/* index there of the first head */
	enum kvt_kind kind;
	int64_t window;
	float *sink;			/* [nlayers][heads of queries]; owned; or NULL */
	struct attend_request *request;	/* [nrequests]; owned */
};

/* attend_plan.c: who attends to what; reads no data but sinks. */
KVT_MUST_CHECK enum kvt_status
attend_plan(struct diff_attention *out, const struct diff_result *results,
	    const struct diff_pairs *pairs, const struct diff_attend_options *options,
	    struct kvt_error *err);
/* The tokens that a query sees, as two runs of positions that do not touch. */
void attend_sees(struct kvt_range out[2], const struct attend_private *own,
		 const struct attend_request *request, int64_t position);

/* ---- attend_row.c: a query ------------------------------------------------ */

/* Scores of n keys, NAN or -INFINITY among them. */
struct attend_scores {
	const struct kvt_range *sees;	/* [2], from 0 on */
	float *side[NSIDES];		/* become weights */
	const float *sink;		/* NULL: none */
};
/* q.k * scale, capped, of 'n' keys of 'dim' numbers that follow each other. */
void attend_score(float *out, const float *query, const float *keys, int64_t n,
		  int64_t dim, double scale, double cap);
/* out += the sum of weight * value, added up in 'sum' [dim] first. */
void attend_mix(double *out, float *sum, const float *weight, const float *values,
		int64_t n, int64_t dim);
/* Softmax of both, and what differs; which sides have any: bits. */
int attend_weigh(struct diff_attend_cell *cell, const struct attend_scores *s);
/* Adds what the query's outputs differ by; 'valid' as of attend_weigh(). */
void attend_judge(struct diff_attend_cell *cell, const double *a, const double *b,
		  int64_t dim, int valid, const struct diff_attend_cell *query);

#endif
