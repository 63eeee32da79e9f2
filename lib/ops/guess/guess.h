/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess.h - the layout that the data itself speaks for, where nothing says it
 *
 * The same bytes are read by every layout with a name that fits, and the layouts are
 * ranked by how much order each makes in what was read; stats.h has the measures.
 * See kvtool-guess(1).
 */
#ifndef KVT_GUESS_H
#define KVT_GUESS_H

#include "lib/kvt/dump.h"
#include "lib/kvt/fault.h"

/* Opens the same data once more, as 'hints' describe it. */
typedef enum kvt_status kvt_guess_open_fn(struct kvt_dump **out, void *context,
					  const struct kvt_hints *hints,
					  struct kvt_error *err);

struct kvt_guess_source {
	const char *name;		/* for messages */
	kvt_guess_open_fn *open;
	void *context;
	struct kvt_hints hints;		/* without a layout; perhaps without a dtype */
	int64_t nbytes;			/* to read for each layout, at most */
};

/* How much order a layout makes in the sample. */
struct kvt_guess_measures {
	double gain;			/* bits an element that channels save */
	double of_zeros;		/* what of it the pattern of zeros does */
	double kinship;			/* log likelihood that heads are alike */
	double kinship_spread;		/* of it, in data without any order */
	int64_t live_slots, live_blocks;	/* with any element but 0 */
};

struct kvt_guess_candidate {
	struct kvt_layout layout;
	struct kvt_group group;		/* without tables and names */
	struct kvt_views views;
	int same;			/* candidate with the same bytes; -1: none */
	struct kvt_guess_measures is;
	double evidence;		/* that the winner is not this one; 1: enough */
};

struct kvt_guess_type {
	const struct kvt_dtype *dtype;
	bool swapped;			/* big-endian */
	int64_t elements;		/* that were looked at */
	double bits;			/* a byte of the sample takes so many */
	double unit;			/* mean magnitude */
};

/* Rows of the pages lie in another order than the layout has them. */
struct kvt_guess_pages {
	const struct kvt_fault *fault;	/* that does so; NULL: they do not */
	struct kvt_fault_args args, undo;	/* as it was done; what undoes it */
	const char *text;		/* "[S,H] rows under a shape of [H,S]" */
	struct kvt_layout said;
	bool is_layout;			/* as they lie, the bytes have this one: */
	struct kvt_layout layout;
	double gain;			/* once it is undone; zeros do not count */
	double evidence;		/* that it is better than all others; 1: enough */
	bool clear;			/* so much better that it is told as a fault */
};

enum { KVT_GUESS_TYPES = 16, KVT_GUESS_CANDIDATES = 64 };

struct kvt_guess {
	int ntypes;			/* the likeliest first */
	struct kvt_guess_type type[KVT_GUESS_TYPES];
	int ncandidates;		/* likewise; same bytes come last */
	struct kvt_guess_candidate *candidate;
	struct kvt_layout better;	/* no name, but likelier than all that have one */
	bool has_better;
	struct kvt_guess_pages pages;	/* of the first, where it leads */
	double confidence;		/* the answer stands at 1 or more */
	char why_not[512];		/* "" if it stands */
	bool needs_sizes;		/* candidates differ in what is a block, a head */
	int64_t read, of;		/* elements: of the sample, of the data */
};

/*
 * Fills '*out', which must be freed, also after a failure.  That nothing can be told
 * is no failure: 'why_not' says why.  KVT_BAD_INPUT: the data says its layout itself,
 * or no layout with a name fits; KVT_UNSUPPORTED: no floating point values.
 */
KVT_MUST_CHECK enum kvt_status
kvt_guess(struct kvt_guess *out, const struct kvt_guess_source *source,
	  struct kvt_error *err);

/*
 * Of a dump that says its layout: does the data of a group contradict it?  Nothing is
 * said where the data has no order, is not attention's or not of floating point.
 */
KVT_MUST_CHECK enum kvt_status
kvt_guess_pages(struct kvt_guess_pages *out, struct kvt_dump *dump, int g, int64_t nbytes,
		struct kvt_error *err);
void kvt_guess_free(struct kvt_guess *g);

#endif
