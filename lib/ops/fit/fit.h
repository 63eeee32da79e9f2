/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fit.h - would a cache hold in another type
 *
 * The dump is cast in memory, with the scales that an engine would calibrate, read back
 * and compared with itself: what kvtool diff would say of it, had it been written.  A
 * layer's keys or values, or a head, hold if they are off by no more than a bound, as
 * rel-l2, and no number became none.
 */
#ifndef KVT_OPS_FIT_H
#define KVT_OPS_FIT_H

#include "lib/ops/diff/diff.h"

#define FIT_BOUND 0.125		/* of rel-l2, where none is said */

struct fit_try {
	char type[64];			/* as --cache-dtype has it */
	double bound;
	bool made;			/* it was; else 'why' not */
	struct kvt_error why;
	/* what is below is only of one that was made */
	struct kvt_dump *cast, *numbers[NSIDES];	/* owned */
	struct diff_side side[NSIDES];
	struct rank_file file[NSIDES];
	struct diff_pairs pairs;
	struct diff_result *result;	/* [pairs.n] */
};

/*
 * "fp8", "nvfp4", "q4_0/plain=0.2": a type, of which "int4" and "nvfp4" are the first of
 * their kind that can be written, and a bound.  'scale': what fp8 of the dump is times.
 * That a type is not possible is no failure.  Free in any case.
 */
KVT_MUST_CHECK enum kvt_status
fit_try(struct fit_try *out, const struct kvt_dump *dump, const char *asked,
	const double scale[2], const struct kvt_run *run, struct kvt_error *err);
void fit_free(struct fit_try *fit);

/* Was anything of this pair cast? */
bool fit_is_of(const struct fit_try *fit, int pair);
/* Has its type a largest number, and no scales within rows? */
bool fit_saturates(const struct fit_try *fit, int pair);
/* The scales that the cast group has: least, greatest; 0, 0: none. */
void fit_scales(float out[2], const struct fit_try *fit, int pair);
/* Does it hold? */
bool fit_holds(const struct fit_try *fit, const struct heat *heat);
/* A dim whose numbers are many times those of the others: which, and how many times. */
double fit_channel(int64_t *dim, const struct fit_try *fit, int pair);

#endif
