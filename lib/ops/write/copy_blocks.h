/* SPDX-License-Identifier: Apache-2.0 */
/* copy_blocks.h - which blocks of one dump replace which of another */
#ifndef KVT_COPY_BLOCKS_H
#define KVT_COPY_BLOCKS_H

#include "lib/dump/read.h"

/* Blocks src, src + 1, ... go to dst, dst + 1, ...; ids in the engines' pools. */
struct block_run {
	int64_t src, dst, count;
};

/* Whose: an index of dumps and of what belongs to them. */
enum { COPY_BASE, COPY_FROM, NCOPY };

struct copy_blocks {
	const char *name[NCOPY];
	/* the blocks: one of the two */
	int64_t nruns;
	struct block_run *run;
	struct kvt_names requests;
	/* filled by copy_blocks(): of each group of the base */
	struct {
		int from;		/* the same group of the other */
		int64_t count;
	} group[KVT_MAX_GROUPS];
};

/* The base with those blocks of the other dump; as kvt_dump_graft(). */
KVT_MUST_CHECK enum kvt_status
copy_blocks(struct kvt_dump **out, struct kvt_dump *const dumps[NCOPY],
	    struct copy_blocks *copy, struct kvt_error *err);

/*
 * Compares every block of 'written' with the one of the base or the other that it
 * should be, by the addresses of their elements; 'seen' as in lib/ops/compare/compare.h.
 */
KVT_MUST_CHECK enum kvt_status
copy_verify(struct kvt_dump *const dumps[NCOPY], const struct kvt_dump *written,
	    const struct copy_blocks *copy, const struct seen *seen,
	    const struct kvt_run *run, struct kvt_error *err);

/* A group on both sides. */
struct copy_pair {
	const struct kvt_snapshot *snapshot[NCOPY];
	int group[NCOPY];
};

static inline const struct kvt_group *copy_group_of(const struct copy_pair *pair,
						    int side)
{
	return &pair->snapshot[side]->group[pair->group[side]];
}

/*
 * For each block of the base the index of the one that replaces it, -1 for those
 * that stay.  The caller frees it.
 */
KVT_MUST_CHECK enum kvt_status
copied_blocks(int64_t **out, int64_t *count, const struct copy_pair *pair,
	      const struct copy_blocks *copy, struct kvt_error *err);

#endif
