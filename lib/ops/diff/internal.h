/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - between the files of lib/ops/diff
 *
 *	align.c, partners.c, alike.c, slots.c	which group, request and slot is which
 *	basis.c, states.c, views.c		how both sides are read as one shape
 *	pass.c, diff.c, measure.c		a pair in chunks: equal, or how far apart
 *	meter.c, table.c, coordinates.c		numbers measured, counted, and where
 *	diagnose.c				which fault explains it
 *	attend_plan.c, attend.c, attend_row.c	what it does to attention
 */
#ifndef KVT_OPS_DIFF_INTERNAL_H
#define KVT_OPS_DIFF_INTERNAL_H

#include <stdlib.h>

#include "lib/ops/diff/diff.h"

/* ---- steps of an alignment ---------------------------------------------- */

void unmatched_add(struct diff_unmatched *unmatched, int side, const char *format, ...)
	KVT_PRINTF(3, 4);

/*
 * states.c: is it a row of llama.cpp, whose extents the file does not have; that of this
 * group, which is in 'in'; and has a dump such rows?
 */
bool is_state_row(const struct kvt_group *group);
bool is_row_of(const struct kvt_group *row, const struct kvt_group *group,
	       const struct kvt_snapshot *in);
bool has_state_rows(const struct kvt_snapshot *s);
/* How both sides of a recurrent pair are read; after the rest of the content. */
KVT_MUST_CHECK enum kvt_status
pair_states(struct diff_pair *p, struct kvt_error *err);
/* From an index in the pair, with offsets of the side, to that in the dump. */
void state_index(const struct diff_pair *p, int side, int64_t index[KVT_NAXES]);
/*
 * align.c: which layers, heads and channels groups of both sides have in common; layers
 * 0: none, they are no pair.  Free in any case.
 */
KVT_MUST_CHECK enum kvt_status
pair_shape(struct diff_pair *p, const struct diff_side side[NSIDES],
	   const int group[NSIDES], const struct diff_alignment *how,
	   struct diff_unmatched *unmatched, struct kvt_error *err);
void pair_free(struct diff_pair *p);
/* Layers that side 's' alone has. */
void unmatched_layers(struct diff_unmatched *unmatched,
		      const struct diff_side side[NSIDES], int s, struct kvt_error *err);
/* KVT_BAD_INPUT, with what the first groups are. */
enum kvt_status nothing_in_common(const struct diff_side side[NSIDES],
				  struct kvt_error *err);
/* partners.c: which request of a side is which of the other. */
KVT_MUST_CHECK enum kvt_status
find_partners(struct diff_partners *out, const struct diff_side side[NSIDES],
	      const struct diff_alignment *how, struct kvt_error *err);
/* alike.c: those that names leave over, by what they hold. */
KVT_MUST_CHECK enum kvt_status
find_alike(struct diff_partners *out, const struct diff_side side[NSIDES],
	   const struct diff_alignment *how, struct kvt_error *err);
/* slots.c: the segments of a pair, by request and token or by block. */
KVT_MUST_CHECK enum kvt_status
pair_segments(struct diff_pair *p, const struct diff_alignment *how,
	      struct diff_unmatched *unmatched, struct kvt_error *err);
/* basis.c: after the views, whether a side that does not say it is rotated. */
KVT_MUST_CHECK enum kvt_status
pair_basis(struct diff_pair *p, struct kvt_error *err);
/* views.c: what both sides have, as dumps of one shape. */
KVT_MUST_CHECK enum kvt_status
pair_views(struct diff_pair *p, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
pair_view(struct diff_pair *p, int side, struct kvt_error *err);

/* ---- tolerance.c -------------------------------------------------------- */

/* The tolerance for a pair; KVT_BAD_INPUT if nothing can decide. */
KVT_MUST_CHECK enum kvt_status
tolerance_of_pair(struct diff_tolerance *out, const struct diff_criteria *criteria,
		  const struct diff_pair *p, const struct diff_scale scale[NSIDES],
		  struct kvt_error *err);

/* What rounding one number to the types of both sides can do. */
void tolerance_of_types(double *atol, double *rtol, const struct diff_pair *p,
			const struct diff_scale scale[NSIDES]);

/* ---- meter.c ------------------------------------------------------------ */

void sums_add(struct diff_sums *to, const struct diff_sums *from);
void heat_add_sums(struct heat *to, const struct diff_sums *from);

/* Into a list of the worst, worst first; *n of at most 'room'. */
void worst_insert(struct deviation *list, int64_t *n, int64_t room,
		  const struct deviation *deviation);

/* How elements of a pair are decoded and judged. */
struct meter {
	const struct kvt_dtype *dtype[NSIDES];
	float *table[NSIDES];		/* of types of one or two bytes */
	struct diff_scale scale[NSIDES];	/* the largest, where a group has many */
	const struct diff_pair *pair;
	bool said[NSIDES];		/* scales are those of the group */
	bool bits;			/* equal bits mean equal values */
	bool has_ulp;
	int64_t first_kv;		/* of the pair, for the scale */
	struct diff_tolerance tolerance;
	bool by_element;		/* it has terms of each element */
	/* packed content: NULL is a side that is not */
	bool decoded;
	const struct kvt_packing *packing[NSIDES];
	bool rounding;			/* the tolerance is how each number was rounded */
	double top, top_slack;		/* B's largest, what rounds to it; 0: none */
};
/* Free in any case. */
KVT_MUST_CHECK enum kvt_status
meter_init(struct meter *m, const struct diff_pair *p,
	   const struct diff_criteria *criteria, struct kvt_error *err);
void meter_free(struct meter *m);

/* Where the findings of one run of elements along D go. */
struct findings {
	struct diff_sums *sums;
	struct deviation *first;
	struct deviation *worst;
	int64_t nworst, room;
	uint8_t *bad_dim;		/* [n]: raised where an element is bad */
	struct heat *by_dim;		/* [n]; NULL: not wanted */
	double top, top_slack;		/* of the run: meter's, times B's scale */
};
/* What elements of a layer and head of the pair stand for; k: 1 of values. */
double meter_scale(const struct meter *m, int side, int64_t layer, int64_t head, int k);
/* n elements from 'first' on of a slot and head, times the scale. */
void meter_values(const struct meter *m, int side, int k, double scale,
		  const uint8_t *bytes, int64_t first, int64_t n, double *out);
/* Measures n elements along D of both sides; key[]: of the first, in the pair. */
void meter_run(const struct meter *m, const uint8_t *a, const uint8_t *b, int64_t n,
	       const int64_t key[KVT_NAXES], struct findings *out);

static inline void diagnosis_free(struct diff_diagnosis *d)
{
	if (!d)
		return;
	free(d->scratch);
	free(d->requests);
	free(d);
}

/* ---- heat maps ------------------------------------------------------------ */

/* The first ordinal of a column of by_segment. */
static inline int64_t column_begin(const struct diff_result *r, int64_t column)
{
	return (column * r->pair->nsegments + r->ncolumns - 1) / r->ncolumns;
}

#endif
