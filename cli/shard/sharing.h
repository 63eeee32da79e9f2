/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharing.h - whose units are whose, as a run of the command asks
 *
 * Private to cli/shard and cli/mpi.
 */
#ifndef KVTOOL_SHARING_H
#define KVTOOL_SHARING_H

#include "cli/shard/shard.h"

struct shard_source {
	void *context;
	/*
	 * A unit of the pass that begins: out->file if there is a result of it, *todo
	 * if it is to be done here.  Neither: others have it, as all if this is NULL.
	 */
	enum kvt_status (*take)(void *context, struct shard_result *out, bool *todo,
				struct shard_unit unit, struct kvt_error *err);
	/* NULL: all that take() wants done; else the next of this pass, or -1 */
	int64_t (*next)(void *context, struct shard_unit pass);
	/* NULL: it is only taken in by this process */
	enum kvt_status (*store)(void *context, struct shard_unit unit,
				 const struct kvt_unit_result *result,
				 struct kvt_error *err);
	const char *(*dir_of)(void *context, int64_t unit);
};

/*
 * The command without output, and what came of the units; see shard_do().  *unfinished: a
 * unit was begun and has no result.
 */
KVT_MUST_CHECK enum kvt_status
shard_run_share(struct shard_job *job, const struct shard_source *source,
		bool *unfinished, struct kvt_error *err);
/* The command with its output and its status. */
KVT_MUST_CHECK enum kvt_status
shard_run_whole(struct shard_job *job, const struct shard_source *source,
		struct kvt_error *err);

/* Cuts the list and makes the fingerprint: job.c. */
KVT_MUST_CHECK enum kvt_status
shard_job_finish(struct shard_job *job, struct kvt_error *err);

/* The result that the folder has of a unit, if it is proven, with its part. */
KVT_MUST_CHECK enum kvt_status
shard_take_done(struct shard_result *out, const struct shard_job *job, const char *dir,
		struct shard_unit unit, struct kvt_error *err);
/* Is it one that the command did not need?  Then it is no result, and freed. */
bool shard_not_wanted(struct shard_result *result);
/* Are the parts of a unit what its result says?  Else 'why': cli/rewrite_parts.c. */
bool shard_part_proven(const struct kvt_unit_result *result, const char *dir,
		       int64_t group, struct kvt_error *why);
KVT_MUST_CHECK enum kvt_status
shard_refuse_streams(const struct shard_words *words, struct kvt_error *err);

#endif
