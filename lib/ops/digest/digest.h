/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h - sums of cell hashes over a dump (kvtool-digest(1)) */
#ifndef KVT_OPS_DIGEST_H
#define KVT_OPS_DIGEST_H

#include "lib/run/pipeline.h"
#include "lib/tile/hash.h"

enum digest_scope {
	DIGEST_TOKENS,		/* live tokens of requests, by position */
	DIGEST_BLOCKS,		/* every slot of the pool, by block id */
	DIGEST_NSCOPES
};

/*
 * What a digest covers, which its prefix tells.  Version 1 takes all slots that
 * tables name; version 2 leaves out null blocks and what no request needs any more.
 * Where a group never forgets both are the same, and the prefix is kvd1.
 */
enum digest_version { DIGEST_NEWEST, DIGEST_KVD1, DIGEST_KVD2 };

/* Sums of one group; the tables of a scope that does not exist stay zero. */
struct digest_group {
	enum digest_version version;	/* of its tokens; blocks are all kvd1 */
	int64_t nheads;			/* of this file; channels of a conv state */
	struct kvt_digest *head[DIGEST_NSCOPES];	/* [L][nheads] */
	struct kvt_digest *block[DIGEST_NSCOPES];	/* [B] */
};

struct digests {
	struct kvt_dump *reader;
	enum digest_version asked;
	bool has_tokens;		/* the dump knows its requests */
	bool tokens_only;		/* leave the sums of DIGEST_BLOCKS zero */
	enum digest_version version;	/* of its tokens: the newest of its groups' */
	struct digest_group group[KVT_MAX_GROUPS];
	struct kvt_digest *request;	/* [nrequests], without multiplier */
	struct kvt_digest whole[DIGEST_NSCOPES];
};

/*
 * Reads all data once; 'reader' is borrowed until the digests are freed.  'asked' is
 * DIGEST_KVD1 or DIGEST_NEWEST.  The same for any layout, format, number of threads
 * and limit of memory.  Free with kvt_digests_free() in any case.
 */
KVT_MUST_CHECK enum kvt_status
kvt_digests_compute(struct digests *out, struct kvt_dump *reader,
		    enum digest_version asked, const struct kvt_run *run,
		    struct kvt_error *err);
void kvt_digests_free(struct digests *digests);

/*
 * The same in steps, for whom has the boxes at hand: digests_init(), and for each
 * group a job, that is told how boxes are cut and given each of them once, by any
 * worker.  digest_job_cut() returns the bytes that 'sums' must have; 'cells' has those
 * of the box, for an order in which cells are not one run each.
 */
struct digest_job;
struct placed;
KVT_MUST_CHECK enum kvt_status
digests_init(struct digests *out, struct kvt_dump *reader, enum digest_version asked,
	     struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
digest_job_new(struct digest_job **out, struct digests *digests, int group,
	       struct kvt_error *err);
int64_t digest_job_cut(struct digest_job *job, const struct kvt_cut *cut);
KVT_MUST_CHECK enum kvt_status
digest_box(struct digest_job *job, struct kvt_worker *worker, const struct placed *box,
	   uint8_t *cells, uint8_t *sums, struct kvt_error *err);
void digest_job_free(struct digest_job *job);	/* NULL is fine */

/* The version of what a request has in all groups. */
enum digest_version kvt_digests_version(const struct digests *digests, int64_t request);

/* "kvd1:tokens:", "kvd2:tokens:" or "kvd1:blocks:" and 32 digits. */
struct digest_value {
	char s[64];
};
struct digest_value kvt_digest_text(enum digest_scope scope, enum digest_version version,
				    const struct kvt_digest *d);

#endif
