/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.h - every source with every destination, carried out and verified
 *
 * The caller describes the sides; all are made of one dump or model, which is held in
 * memory.
 */
#ifndef KVT_OPS_MATRIX_H
#define KVT_OPS_MATRIX_H

#include "sim/ops/sweep.h"
#include "sim/ops/trial.h"

struct kvt_matrix_side {
	struct kvt_new_side made;
	const char *layout;		/* what the user calls it; NULL: as it was */
	bool as_it_is;			/* of a source: what is held, unchanged */
};

enum kvt_verdict {
	KVT_VERDICT_EQUAL,		/* every byte is where it belongs */
	KVT_VERDICT_DIFFERS,
	KVT_VERDICT_REFUSED,		/* such a transfer is not planned */
	KVT_NVERDICTS
};
const char *kvt_verdict_name(enum kvt_verdict verdict);

struct kvt_matrix_row {
	struct kvt_sweep_row plan;	/* what scope rfc posts; no ops: there is none */
	enum kvt_verdict verdict;
	char why[400];			/* it is not equal; or "" */
	int64_t compared, untouched;	/* bytes */
	bool has_digest;
	enum digest_version version;
	struct kvt_digest digest;	/* of the tokens, on both sides */
};

struct kvt_matrix {
	const struct kvt_held_side *held;	/* what all is made of; borrowed */
	const struct kvt_matrix_side *src, *dst;	/* borrowed */
	int64_t nsrc, ndst;
	/* what plans are told of: the same with more layers; NULL: what is held */
	const struct kvt_ranks *whole;
	const struct kvt_link *link;
	struct kvt_transfer_how how;
	int64_t corrupt;		/* op of each pair that is spoilt; -1: none */
	int64_t most;			/* bytes of a side: kvt_matrix_room() */
	int threads;			/* pairs at a time */
	struct kvt_matrix_row *row;	/* [nsrc * ndst], by source; owned */
	int64_t count[KVT_NVERDICTS];
};

/*
 * 'most' and 'threads' of a run: two sides a thread, as large as the largest of these,
 * have room in its memory; what a single thread has no room for is refused.
 */
void kvt_matrix_room(struct kvt_matrix *matrix, const struct kvt_run *run);

/* Fills the rows, which are to be freed even if this fails. */
KVT_MUST_CHECK enum kvt_status
kvt_matrix_run(struct kvt_matrix *matrix, const struct kvt_run *run,
	       struct kvt_error *err);

#endif
