/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.h - the same elements of two dumps, byte for byte
 *
 * Which element is which: pairs.h.  Then both sides are read, and the address of each
 * element is summed up from its definition, without plans and kernels.  To prove what
 * was written it is compared with each leaf that it came from, not with the derived
 * dump: a map that proves itself proves nothing.
 *
 * Whole blocks of a leaf whose tiles were decoded to be copied need not be decoded again:
 * their cells were hashed then, by their place in the leaf (lib/dump/seen.h), and the
 * cells of b that are paired with them must have these hashes.
 */
#ifndef KVT_OPS_COMPARE_H
#define KVT_OPS_COMPARE_H

#include "lib/dump/read.h"
#include "lib/ops/compare/pairs.h"

/* ---- elements: compare.c ------------------------------------------------------ */

/* A group of a leaf, and one that should have the same where both are paired. */
struct digest_job;
struct seen;

struct comparison {
	const struct kvt_dump *a, *b;	/* a is a leaf */
	int group_a, group_b;
	const struct slot_pairs *slots;
	const struct head_pairs *heads;
	const struct seen *seen;	/* of a, when b was made of it; NULL: a is read */
	const char *name;		/* of b in messages, "rank 0"; NULL: none */
	const char *was;		/* " in FILE", " before"; "": nothing to add */
	struct digest_job *digest;	/* of b: gets its boxes, too; NULL: nothing */
	int64_t nbytes;			/* filled: compared */
	/* alone, and no difference is told: processes may divide it, as this part */
	bool divided;
	int64_t part;
};

struct unequal {
	const struct comparison *in;
	int64_t index[KVT_NAXES];	/* of b */
	uint8_t is[16], was[16];	/* the element, on both sides */
};
/*
 * Hears of differences in the order of boxes of b, then L B S H K D, then as the
 * comparisons stand: one call at a time, the same calls whatever the threads.  False
 * ends it.  At most MOST_DIFFERENCES of a box are told.
 */
typedef bool unequal_fn(void *context, const struct unequal *difference);
enum { MOST_DIFFERENCES = 64 };

/*
 * All b have groups of one shape but for H and D: they are read box by box together.
 * Neighbours in the list with the same 'a' and slots are compared with what was read
 * once.  Without 'differs' the first difference is the sentence of KVT_MISMATCH;
 * with it any difference is KVT_MISMATCH without one.
 */
KVT_MUST_CHECK enum kvt_status
compare_elements(struct comparison *list, int n, const char *label,
		 const struct kvt_run *run, unequal_fn *differs, void *context,
		 struct kvt_error *err);

/* ---- what an operation promised ----------------------------------------------- */

/* Groups of those shapes, and the ids that were to be written: written.c. */
KVT_MUST_CHECK enum kvt_status
check_groups(const struct kvt_snapshot *written, const struct kvt_snapshot *wanted,
	     struct kvt_error *err);

/*
 * KVT_MISMATCH: a request that was to be written has other tokens, or its table names
 * another block: tables.c.
 */
KVT_MUST_CHECK enum kvt_status
check_tables(const struct kvt_snapshot *written, const struct kvt_snapshot *wanted,
	     struct kvt_error *err);

/* The same of blocks that tables of 'written' and of a leaf have an entry for, both. */
KVT_MUST_CHECK enum kvt_status
check_tables_of_leaf(const struct kvt_snapshot *written, int group,
		     const struct kvt_snapshot *leaf, int leaf_group,
		     struct kvt_error *err);

/*
 * Is everything in 'written' in a leaf of the source and the same there, and do its
 * tables name the blocks that those of the leaves do?  The parts of the source have no
 * part in this.  'seen' is of the leaves while 'written' was made, or NULL.
 */
KVT_MUST_CHECK enum kvt_status
verify_source(const struct kvt_dump *source, const struct kvt_dump *written,
	      const struct seen *seen, const struct kvt_run *run, struct kvt_error *err);

/*
 * Compares the slots of every request through the tables of both; of a pool that
 * was regrouped, all that lie in the same place.
 */
KVT_MUST_CHECK enum kvt_status
reblock_verify(const struct kvt_dump *before, const struct kvt_dump *after,
	       const struct kvt_reblocked said[KVT_MAX_GROUPS], const struct seen *seen,
	       const struct kvt_run *run, struct kvt_error *err);

struct rank_file;

/* KVT_MISMATCH names the first element that two ranks hold differently. */
KVT_MUST_CHECK enum kvt_status
replicas_check(const struct rank_file *files, int nfiles, const struct kvt_run *run,
	       struct kvt_error *err);

#endif
