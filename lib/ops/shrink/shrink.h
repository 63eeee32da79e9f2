/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.h - the least of one dump, or two, that still shows something
 *
 * What is to be shown is a question that the caller answers for any part.  Parts are
 * slices of slices (kvt_dump_slice()), so they keep the numbers of layers, heads, tokens
 * and blocks that they had in the whole, and no data moves.
 */
#ifndef KVT_OPS_SHRINK_H
#define KVT_OPS_SHRINK_H

#include "lib/kvt/derive.h"
#include "lib/ops/diff/diff.h"

/* Two sides as diff has them; part[SIDE_B] NULL: there is only one dump. */
struct shrink_parts {
	struct kvt_dump *part[NSIDES];
};

/* Does what these hold still show it?  A failure ends the search: nothing is known. */
typedef enum kvt_status
shrink_shows(void *context, bool *out, const struct shrink_parts *parts,
	     struct kvt_error *err);

struct shrink {
	shrink_shows *shows;
	void *context;
	bool (*cancelled)(void *context);	/* between two parts; NULL: never */
	int64_t tries;			/* parts that were looked at */
};

/*
 * Layers, requests, tokens, blocks and heads are left out, of both sides the same, for
 * as long as 'shows' says yes; at the end nothing of them can be left out alone: no
 * layer, request or block, no token or head at either end.  'whole' must show it.  The
 * parts of 'out' are the caller's to close, in any case, and outlive the whole.
 *
 * Looks at about log(n) parts for an axis of n where one of them matters, and at some
 * n for each one that cannot be left out.
 */
KVT_MUST_CHECK enum kvt_status
kvt_shrink(struct shrink_parts *out, struct shrink *shrink,
	   const struct kvt_dump *const whole[NSIDES], struct kvt_error *err);
void kvt_shrink_parts_close(struct shrink_parts *parts);

/*
 * "Do they differ, and by the same fault?"  The first call, for the whole, finds the
 * fault: every later part must be explained by one of that name.
 */
struct shrink_differs {
	struct diff_criteria criteria;
	struct kvt_run run;
	bool diagnose;			/* false: whatever the fault is */
	bool asked;			/* the whole has been looked at */
	const struct kvt_fault *fault;	/* NULL: none explains it, or not asked */
	struct kvt_text args;		/* of the last part that showed it */
};
/*
 * Requests of B that are those of A by other names get these names, for parts of a
 * request may be too small to tell whose they are.  *b is closed and replaced.
 */
KVT_MUST_CHECK enum kvt_status
kvt_shrink_pair(const struct shrink_differs *d, const struct kvt_dump *a,
		struct kvt_dump **b, struct kvt_error *err);
/* A shrink_shows, of a struct shrink_differs. */
enum kvt_status kvt_shrink_differs(void *context, bool *out,
				   const struct shrink_parts *parts,
				   struct kvt_error *err);

/*
 * Of both sides' snapshots ('b' may be NULL): names become A, B, ... for requests, g0,
 * g1, ... for groups, p0, ... for pools and b0, ... for blocks of a store, the same name
 * the same on both sides; layers are named by their numbers; model, notes and, unless
 * 'tokens', ids of tokens are gone.
 */
KVT_MUST_CHECK enum kvt_status
kvt_shrink_names(struct kvt_snapshot *a, struct kvt_snapshot *b, bool tokens,
		 struct kvt_error *err);

#endif
