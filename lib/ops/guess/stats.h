/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - how much order a layout makes in a sample: statistics, no reading
 *
 * A channel is one element of one head, of the keys or the values of a layer.
 * Over the tokens it has a mean and a spread of its own; read by a wrong layout,
 * channels mix, and the data takes more bits to write down.  That is the first
 * measure, 'gain'.  Some layouts have the same channels under other names (K and
 * H swapped): there the heads of one layer, and the keys of all layers, should
 * be alike, which is the second one, 'kinship'.
 */
#ifndef KVT_GUESS_STATS_H
#define KVT_GUESS_STATS_H

#include "lib/ops/guess/guess.h"

struct guess_sums {
	double n, sum, squares;
};

struct guess_tally {
	int64_t layers, heads, kvs, dims;	/* of the sample */
	int64_t all_slots, slots;		/* slots of all blocks, of one */
	struct guess_sums *half[2];		/* [layer][kv][head][dim] */
	struct guess_sums *pair;		/* the same: products of neighbours */
	int64_t *zeros;				/* [slot] */
	void *storage;
};

/* False: out of memory.  A zeroed struct can be freed. */
bool kvt_guess_tally_init(struct guess_tally *t, const struct kvt_shape *sample);
void kvt_guess_tally_free(struct guess_tally *t);

/*
 * Adds a row of t->dims values of one slot; 0 is no value.  'before' is the row
 * of the slot before it in the block, or NULL.
 */
void kvt_guess_add(struct guess_tally *t, const int64_t at[KVT_NAXES],
		   const double *row, const double *before);

struct kvt_guess_measures kvt_guess_measure(const struct guess_tally *t);

/*
 * Bits a byte that these elements take if they are of this type, 'swapped' if
 * their bytes are in the other order.  Infinity if all are 0.  'unit' is their
 * mean magnitude.
 */
double kvt_guess_type_bits(double *unit, const struct kvt_dtype *dtype, bool swapped,
			   const uint8_t *bytes, int64_t nbytes);

#endif
