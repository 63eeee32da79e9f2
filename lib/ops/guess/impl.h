/* SPDX-License-Identifier: Apache-2.0 */
/* impl.h - what sample.c, types.c, pages.c and rank.c share; private to them */
#ifndef KVT_GUESS_IMPL_H
#define KVT_GUESS_IMPL_H

#include "lib/ops/guess/guess.h"

/* What a confidence of 1 is, see kvtool-guess(1) for how it was found. */
#define GUESS_LEAST_GAIN 0.015		/* bits an element */
#define GUESS_GAIN_SLOTS 3.0		/* the same, times live slots */
#define GUESS_LEAST_KINSHIP 4.0		/* spreads */
#define GUESS_LEAST_TYPE 0.1		/* bits a byte */
enum { GUESS_LEAST_BLOCKS = 4, GUESS_LEAST_ELEMENTS = 64 };

/* ---- one candidate against the data: sample.c --------------------------- */

struct guess_sample {
	const struct kvt_guess_source *source;
	struct kvt_hints hints;		/* the source's, and the dtype once it is known */
	int g;				/* group of the dump */
	int64_t nbytes;			/* to read for a candidate */
	double unit;			/* mean magnitude of an element */
	double *value;			/* of each pattern of 1 or 2 bytes */
	int64_t read, of;		/* elements: most read, in the data */
};

/* Fills layout, group and views of 'c'; KVT_BAD_INPUT: the layout does not fit. */
KVT_MUST_CHECK enum kvt_status
kvt_guess_open(struct kvt_dump **out, struct kvt_guess_candidate *c,
	       const struct guess_sample *s, const char *layout, struct kvt_error *err);
/* Some bytes of the data, as elements; '*out' is malloc()ed. */
KVT_MUST_CHECK enum kvt_status
kvt_guess_bytes(uint8_t **out, int64_t *nbytes, const struct guess_sample *s,
		struct kvt_dump *dump, struct kvt_error *err);
/* Fills c->is. */
KVT_MUST_CHECK enum kvt_status
kvt_guess_read(struct kvt_guess_candidate *c, struct guess_sample *s,
	       struct kvt_dump *dump, struct kvt_error *err);


/* Rows [S][H][K] of a page, each taken from where its list says; NULL: as they are. */
enum { GUESS_TURNS = 9 };
struct guess_turns {
	int n;
	const int64_t *rows[GUESS_TURNS];
};
/* The same of a page with its rows elsewhere, of one reading: is[turns->n]. */
KVT_MUST_CHECK enum kvt_status
kvt_guess_read_turned(struct kvt_guess_measures *is, const struct guess_turns *turns,
		      const struct kvt_guess_candidate *c, struct guess_sample *s,
		      struct kvt_dump *dump, struct kvt_error *err);

/* ---- which is the better one: stats.c ------------------------------------ */

/* The gain by which the best must lead. */
double kvt_guess_gain_needed(const struct kvt_guess_measures *best);
/* With the same channels under other names both sums are the same, but for order. */
bool kvt_guess_same_channels(const struct kvt_guess_measures *a,
			     const struct kvt_guess_measures *b);
/* That it is the winner and not the other one; 1 is enough. */
double kvt_guess_evidence(const struct kvt_guess_measures *winner,
			  const struct kvt_guess_measures *other, double needed);

/* ---- pages in another order: pages.c ------------------------------------- */

/* Is there more order in the data of 'c' without a fault of its pages? */
KVT_MUST_CHECK enum kvt_status
kvt_guess_turn_pages(struct kvt_guess_pages *out, const struct kvt_guess_candidate *c,
		     struct guess_sample *s, struct kvt_dump *dump,
		     struct kvt_error *err);

/* ---- element types: types.c --------------------------------------------- */

/* Fills g->type, the likeliest first. */
KVT_MUST_CHECK enum kvt_status
kvt_guess_rank_types(struct kvt_guess *g, const struct guess_sample *s,
		     struct kvt_error *err);
/* What they do to the confidence. */
void kvt_guess_judge_types(struct kvt_guess *g);

/* Why there is no answer; the first reason counts. */
void kvt_guess_doubt(struct kvt_guess *g, const char *text);

#endif
