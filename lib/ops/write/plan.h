/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - one dump into another: other layout, other format
 *
 * relayout and convert are this, with different run.
 */
#ifndef KVTOOL_TRANSFORM_H
#define KVTOOL_TRANSFORM_H

#include "lib/dump/read.h"
#include "lib/ops/write/put.h"

/* What happens to a tile, or to a box where the destination is flat. */
struct unit {
	struct kvt_plans plans;
	bool moves;		/* the stored tile goes over undecoded */
};

/* What happens to one group; filled by transform_plan(). */
struct group_step {
	struct kvt_cut cut;
	bool direct;		/* tile to tile, without a box between, if it has them */
	bool make_cells;	/* the writer wants cells that the reader lacks... */
	bool hold_cells;	/* ... or has, but without a proof */
	int64_t data_bytes;
	int64_t ntiles;		/* of the destination; 0: flat */
	int64_t ndirect;	/* those that the source has as they are */
	int nunits;		/* 2 where keys and values have tiles of their own */
	struct unit unit[2];
};

/* The unit of the tile at begin[]. */
const struct unit *unit_at(const struct group_step *step,
			   const int64_t begin[KVT_NAXES]);
/* Tiles that move undecoded: none, half, or all of ntiles. */
int64_t tiles_that_move(const struct group_step *step);

struct transform {
	const struct kvt_dump *source;
	struct kvt_writer *writer;
	struct kvt_run run;
	struct group_step step[KVT_MAX_GROUPS];
};

/*
 * Decides for every group how its bytes travel, proves that the plans of a unit
 * write each of its bytes exactly once, and touches no data.
 */
KVT_MUST_CHECK enum kvt_status
transform_plan(struct transform *t, struct kvt_error *err);

/* Memory of the hungriest group. */
int64_t transform_memory(const struct transform *t);

/* Carries it out; the caller commits. */
KVT_MUST_CHECK enum kvt_status
transform_run(struct transform *t, struct kvt_error *err);

#endif
