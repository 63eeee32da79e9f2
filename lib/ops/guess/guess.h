/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess.h - which layout the data itself speaks for
 *
 * A channel is one element of one head, of the keys or the values of a layer.
 * Over the tokens it has a mean and a spread of its own; read by a wrong layout,
 * channels mix, and the data takes more bits to write down.  That is the first
 * measure, 'gain'.  Some layouts have the same channels under other names (K and
 * H swapped): there the heads of one layer, and the keys of all layers, should
 * be alike, which is the second one, 'kinship'.
 */
#ifndef KVTOOL_GUESS_H
#define KVTOOL_GUESS_H

#include "cli/json_out.h"
#include "lib/kvt/snapshot.h"

/* ---- statistics, no I/O: guess_stats.c ---------------------------------- */

struct guess_sums {
	double n, sum, squares;
};

struct guess_tally {
	int64_t layers, heads, kvs, dims;	/* of the sample */
	int64_t slots, states;			/* states of all blocks, of one */
	struct guess_sums *half[2];		/* [layer][kv][head][dim] */
	struct guess_sums *pair;		/* the same: products of neighbours */
	int64_t *zeros;				/* [slot] */
	void *storage;
};

/* False: out of memory.  A zeroed struct can be freed. */
bool guess_tally_init(struct guess_tally *t, const struct kvt_shape *sample);
void guess_tally_free(struct guess_tally *t);

/*
 * Adds a row of t->dims values of one state; 0 is no value.  'before' is the row
 * of the state before it in the block, or NULL.
 */
void guess_add(struct guess_tally *t, const int64_t at[KVT_NAXES],
	       const double *row, const double *before);

struct guess_measures {
	double gain;			/* bits an element that channels save */
	double kinship;			/* log likelihood */
	double kinship_spread;		/* of it, where there is nothing to find */
	int64_t live_slots, live_blocks;	/* with any element but 0 */
};
struct guess_measures guess_measure(const struct guess_tally *t);

/*
 * Bits a byte that these elements take if they are of this type, 'swapped' if
 * their bytes are in the other order.  Infinity if all are 0.  'unit' is their
 * mean magnitude.
 */
double guess_type_bits(double *unit, const struct kvt_dtype *dtype, bool swapped,
		       const uint8_t *bytes, int64_t nbytes);

/* ---- one candidate against the file: guess_sample.c --------------------- */

struct guess_candidate {
	struct kvt_layout layout;
	struct kvt_group group;			/* its tables are not kept */
	struct kvt_views views;
	int same;				/* candidate with the same bytes; -1 */
	struct guess_measures is;
	double evidence;			/* that the winner is not this one */
};

struct guess_sample {
	const char *path;
	struct kvt_hints hints;			/* without a layout */
	int64_t nbytes;				/* to read for a candidate */
	double unit;
	double *value;				/* of each pattern of 1 or 2 bytes */
	int64_t read, of;			/* elements: most read, in the file */
};

/* Fills layout, group and views; not an error where the layout does not fit. */
KVT_MUST_CHECK enum kvt_status
guess_open(struct kvt_dump **out, struct guess_candidate *c,
	   const struct guess_sample *s, const char *layout, struct kvt_error *err);
/* Some bytes of the file, as elements; '*out' is malloc()ed. */
KVT_MUST_CHECK enum kvt_status
guess_bytes(uint8_t **out, int64_t *nbytes, const struct guess_sample *s,
	    struct kvt_dump *reader, struct kvt_error *err);
/* Fills c->is. */
KVT_MUST_CHECK enum kvt_status
guess_read(struct guess_candidate *c, struct guess_sample *s,
	   struct kvt_dump *reader, struct kvt_error *err);

/* ---- the ranking: guess_rank.c ------------------------------------------ */

enum { GUESS_MAX_TYPES = 16, GUESS_MAX_CANDIDATES = 64 };

/* What a confidence of 1 is, see kvtool-guess(1) for how it was found. */
#define GUESS_LEAST_GAIN 0.015		/* bits an element */
#define GUESS_GAIN_STATES 3.0		/* the same, times live states */
#define GUESS_LEAST_KINSHIP 4.0		/* spreads */
#define GUESS_LEAST_TYPE 0.1		/* bits a byte */
enum { GUESS_LEAST_BLOCKS = 4, GUESS_LEAST_ELEMENTS = 64 };

struct guess_type {
	const struct kvt_dtype *dtype;
	bool swapped;
	int64_t elements;		/* that were looked at */
	double bits, unit;
};

struct guess {
	struct guess_sample sample;
	int ntypes;				/* the likeliest first; 0: it was said */
	struct guess_type type[GUESS_MAX_TYPES];
	int ncandidates;			/* likewise; same bytes come last */
	struct guess_candidate *candidate;
	struct kvt_layout better;		/* no preset, but likelier than all */
	bool has_better;
	double confidence;			/* the answer stands at 1 or more */
	char why_not[256];			/* "" if it stands */
};

KVT_MUST_CHECK enum kvt_status
guess_rank(struct guess *g, struct kvt_error *err);
void guess_free(struct guess *g);

/* Why there is no answer; the first reason counts. */
void guess_say(struct guess *g, const char *text);
/* The gain by which a candidate must lead. */
double guess_gain_needed(const struct guess_measures *m);
/* With the same channels under other names both sums are the same, but for order. */
bool guess_same_channels(const struct guess_measures *a,
			 const struct guess_measures *b);

/* Element types, likeliest first, and what they do to the confidence. */
KVT_MUST_CHECK enum kvt_status
guess_rank_types(struct guess *g, struct kvt_error *err);
void guess_judge_types(struct guess *g);

/* Is there an order without a name that beats the winner?  Fills 'better'. */
KVT_MUST_CHECK enum kvt_status
guess_look_beyond(struct guess *g, struct kvt_error *err);

/* ---- what is said of it: guess_print.c ---------------------------------- */

void guess_text(const struct guess *g);
void guess_json(struct json_out *out, const struct guess *g);

#endif
