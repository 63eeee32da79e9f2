/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.h - do two dumps agree where they hold the same part of a model?
 *
 * What an element is follows from what each dump says about itself: the layer's
 * and the block's id, the head's and the channel's number in the model.
 */
#ifndef KVT_OPS_COMPARE_SAME_H
#define KVT_OPS_COMPARE_SAME_H

#include "lib/dump/read.h"

/* A group of each dump, and where in 'a' each index of 'b' is. */
struct correspondence {
	const struct kvt_dump *a, *b;
	int group_a, group_b;
	int64_t *map[KVT_NAXES];	/* of L, B, H, D; -1: 'a' lacks it */
	int64_t shared[KVT_NAXES];	/* how many it has */
	int kv;				/* in 'a', where 'b' has its first */
};

/* Groups of other shapes of a state share nothing: KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
correspond_by_ids(struct correspondence *both, const struct kvt_dump *a, int group_a,
	     const struct kvt_dump *b, int group_b, struct kvt_error *err);
void correspondence_free(struct correspondence *both);

/* Is there an element that both hold? */
bool correspondence_any(const struct correspondence *both);

/* KVT_MISMATCH names the first element that both hold and that differs. */
KVT_MUST_CHECK enum kvt_status
compare_elements(const struct correspondence *both, const char *label,
		const struct kvt_run *run, struct kvt_error *err);

/*
 * Is everything in 'written' in a leaf of the source, and the same there?  The
 * parts of the source have no part in this.
 */
KVT_MUST_CHECK enum kvt_status
verify_source(const struct kvt_dump *source, const struct kvt_dump *written,
	      const struct kvt_run *run, struct kvt_error *err);

/*
 * Compares the states of every request through the tables of both; of a pool that
 * was regrouped, all that lie in the same place.
 */
KVT_MUST_CHECK enum kvt_status
reblock_verify(const struct kvt_dump *before, const struct kvt_dump *after,
	       const struct kvt_reblocked said[KVT_MAX_GROUPS],
	       const struct kvt_run *run, struct kvt_error *err);

struct rank_file;

/* KVT_MISMATCH names the first element that two ranks hold differently. */
KVT_MUST_CHECK enum kvt_status
replicas_check(const struct rank_file *files, int nfiles, const struct kvt_run *run,
	       struct kvt_error *err);

/*
 * Reads both dumps again and compares them element by element through the
 * addresses of their views, without plans or kernels.  KVT_MISMATCH names the
 * first coordinate that differs.
 */
KVT_MUST_CHECK enum kvt_status
verify_equal(const struct kvt_dump *a, const struct kvt_dump *b,
	     const struct kvt_run *run, struct kvt_error *err);

#endif
