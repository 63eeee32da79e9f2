/* SPDX-License-Identifier: Apache-2.0 */
/* graft.h - a dump some of whose blocks are another's, as a source */
#ifndef KVTOOL_COPY_BLOCKS_H
#define KVTOOL_COPY_BLOCKS_H

#include "cli/opt.h"
#include "lib/dump/map.h"

/* Blocks src, src + 1, ... go to dst, dst + 1, ...; ids in the engines' pools. */
struct block_run {
	int64_t src, dst, count;
};

/* Whose: an index of readers and of what belongs to them. */
enum { COPY_BASE, COPY_FROM, NCOPY };

struct copy_blocks {
	const char *name[NCOPY];
	/* the blocks: one of the two */
	int64_t nruns;
	struct block_run *run;
	struct opt_strings requests;
	/* filled by copy_source(): of each group of the base */
	struct {
		int from;		/* the same group of the other */
		int64_t count;
	} group[KVT_MAX_GROUPS];
};

/* "3:40,5-9:50-54": fills run[], which must be freed in any case. */
KVT_MUST_CHECK enum kvt_status
block_runs_parse(struct copy_blocks *copy, const char *text, struct kvt_error *err);

/*
 * The readers are those of the base and the other; both must outlive the source,
 * which must be freed in any case.
 */
KVT_MUST_CHECK enum kvt_status
copy_source(struct source *out, struct kvt_dump *readers[NCOPY],
	    struct copy_blocks *copy, struct kvt_error *err);

/*
 * Compares every block of 'written' with the one of the base or the other that it
 * should be, by the addresses of their elements.
 */
KVT_MUST_CHECK enum kvt_status
copy_verify(struct kvt_dump *readers[NCOPY], struct kvt_dump *written,
	    const struct copy_blocks *copy, const struct kvt_run *run,
	    struct kvt_error *err);

/* ---- between the files of copy_blocks ----------------------------------- */

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
