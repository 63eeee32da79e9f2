/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pick.h - a part of a dump, as a source that keeps its place in the model
 *
 * Layers, blocks and heads are named by their ids in the model and in the
 * engine's pool, as digest prints them, so that a part of a part is named as it
 * was in the whole.
 */
#ifndef KVTOOL_PICK_H
#define KVTOOL_PICK_H

#include "cli/opt.h"
#include "cli/source.h"
#include "lib/kvt_spec.h"

enum { MAX_RANGES = 64 };

struct ranges {
	int n;				/* 0: everything */
	struct kvt_range range[MAX_RANGES];
};

/* "3", "0:4", "0,2,8:16"; 'option' is for the message. */
KVT_MUST_CHECK enum kvt_status
ranges_parse(struct ranges *out, const char *option, const char *text,
	     struct kvt_error *err);
bool ranges_have(const struct ranges *ranges, uint64_t id);

struct pick {
	struct ranges layers, blocks;
	struct ranges heads;		/* one range at most */
	struct opt_strings requests;	/* n 0: all of them */
	struct kvt_rank rank;		/* size 0: not wanted */
	int64_t mamba_groups;		/* of B and C in the model; 0: not known */
};

/*
 * The source must be freed, also its reader by the caller.  What is named and
 * not there is KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
pick_source(struct source *out, struct kvt_reader **reader, const struct pick *pick,
	    struct kvt_error *err);

/* ---- between the files of pick ------------------------------------------ */

/* Heads and channels of a group; 'group' becomes what the part has left. */
KVT_MUST_CHECK enum kvt_status
pick_width(struct source_part *part, struct kvt_group *group,
	   const struct kvt_parallel *parallel, const struct pick *pick,
	   struct kvt_error *err);

/* Are all channels of a conv state in just one part each? */
KVT_MUST_CHECK enum kvt_status
check_parts(const struct kvt_group *group, struct kvt_error *err);

/* Where groups of another width stand in the engine's page. */
void place_in_pages(struct kvt_snapshot *snapshot);

/* Keeps the named ones only. */
KVT_MUST_CHECK enum kvt_status
pick_requests(struct kvt_snapshot *snapshot, const struct opt_strings *wanted,
	      struct kvt_error *err);
/* Tables of one group; inverse[] is -1 where a block is left out. */
void renumber_requests(struct kvt_snapshot *snapshot, int group,
		       const int64_t *inverse);
/* When all groups are renumbered: no more than the tokens that all still have. */
void cut_requests(struct kvt_snapshot *snapshot, const struct kvt_snapshot *before);

#endif
