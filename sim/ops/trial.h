/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trial.h - a transfer that is tried: carried out in memory, op by op, and verified
 *
 * Where exec.h writes dumps, this keeps all ranks of a side in memory, so that many
 * deployments can be tried one after the other.  The source of a model that nobody has
 * a dump of is made of bytes that differ everywhere.
 */
#ifndef KVT_OPS_TRIAL_H
#define KVT_OPS_TRIAL_H

#include "sim/ops/exec.h"

/* ---- all ranks of a side, as dumps of memory ------------------------------- */

struct kvt_held_side {
	struct kvt_ranks ranks;
	int ngroups;
	uint8_t **bytes;		/* [ranks][ngroups]; owned */
	int64_t nbytes;			/* of all of them */
};

/* What their data takes; INT64_MAX if that is more than can be said. */
int64_t kvt_ranks_nbytes(const struct kvt_ranks *ranks);

/*
 * Room for all that 'as' says, each byte 'fill'; then, when it holds what it should, the
 * dumps.  KVT_UNSUPPORTED if it is more than 'most' bytes.  Free it even if this fails.
 */
KVT_MUST_CHECK enum kvt_status
kvt_held_new(struct kvt_held_side *out, const struct kvt_ranks *as, uint8_t fill,
	     int64_t most, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_held_open(struct kvt_held_side *side, const struct kvt_ranks *as,
	      struct kvt_error *err);
void kvt_held_free(struct kvt_held_side *side);

/* The data of dumps. */
KVT_MUST_CHECK enum kvt_status
kvt_held_load(struct kvt_held_side *out, const struct kvt_ranks *from, int64_t most,
	      struct kvt_error *err);

/* ---- of a model that nobody has a dump of: sample.c ------------------------ */

/*
 * One rank with a request of a model.  'from' says which groups, how many tokens, the
 * cache's type and the order of conv states; blocks are of 16 tokens, or of what a group
 * has.  '*mamba_groups' are those of its conv states, which a snapshot does not say; 0:
 * it has none.  Free it even if this fails.
 */
KVT_MUST_CHECK enum kvt_status
kvt_ranks_of_model(struct kvt_ranks *out, int64_t *mamba_groups,
		   const struct kvt_model_transfer *from, struct kvt_error *err);

/* As kvt_held_new() and kvt_held_open(), with other bytes in every place. */
KVT_MUST_CHECK enum kvt_status
kvt_held_sample(struct kvt_held_side *out, const struct kvt_ranks *as, int64_t most,
		struct kvt_error *err);

/* The same ranks with nothing in them, of which transfers can be planned. */
KVT_MUST_CHECK enum kvt_status
kvt_ranks_hollow(struct kvt_ranks *out, const struct kvt_ranks *as,
		 struct kvt_error *err);

/* ---- one transfer ------------------------------------------------------------ */

struct kvt_trial_how {
	struct kvt_run run;
	int64_t most;			/* bytes of a side */
	int64_t corrupt;		/* op whose first byte is spoilt; -1: none */
};

/*
 * Copies every op of a plan, in scope rfc, from 'src', which sides->src is, into a new
 * destination, and verifies that.  KVT_MISMATCH: an op reaches outside its rank, a byte
 * is written twice or not at all, or has arrived where another belongs.
 */
KVT_MUST_CHECK enum kvt_status
kvt_trial_run(struct kvt_held_side *out, struct kvt_verified *verified,
	      const struct kvt_sides *sides, const struct kvt_held_side *src,
	      const struct kvt_trial_how *how, struct kvt_error *err);

#endif
