/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - dumps into new ones: other layout, other format
 *
 * relayout, convert and whatever makes a derived dump are this with one writer; a
 * transfer writes all ranks of its destination at once.
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
	int64_t strip;		/* heads of a box that tiles are made of at once */
	bool direct;		/* tile to tile, without a box between, if it has them */
	bool make_cells;	/* the writer wants cells that the reader lacks... */
	bool hold_cells;	/* ... or has, but without a proof */
	int64_t data_bytes;	/* of all writers */
	int64_t ntiles;		/* of all writers; 0: flat */
	int64_t ndirect;	/* those that the sources have as they are */
	int nunits;		/* 2 where keys and values have tiles of their own */
	struct unit unit[2];
};

/* The unit of the tile at begin[]. */
const struct unit *unit_at(const struct group_step *step, const int64_t begin[KVT_NAXES]);
/* Tiles that move undecoded: none, half, or all of ntiles. */
int64_t tiles_that_move(const struct group_step *step);

/* One byte that a writer gets wrong, to see that it is found. */
struct spoiled {
	int writer, group;
	int64_t index[KVT_NAXES];	/* of the element whose first byte it is */
};

/*
 * source[i] goes to writer[i].  Several are ranks of one model: groups of one shape,
 * layout and tiling.  The same box of all of them is written by one worker, which has
 * what they read of a leaf still at hand.
 */
struct transform {
	int n;
	const struct kvt_dump *const *source;	/* [n], borrowed */
	struct kvt_writer *const *writer;	/* [n], borrowed */
	const struct spoiled *spoil;		/* NULL: nothing */
	struct seen *seen;			/* transform_watch(); NULL: nothing */
	struct kvt_run run;
	struct group_step step[KVT_MAX_GROUPS];
};

/*
 * Decides for every group how its bytes travel, proves that the plans of a unit
 * write each of its bytes exactly once, and touches no data.
 */
KVT_MUST_CHECK enum kvt_status
transform_plan(struct transform *t, struct kvt_error *err);

/*
 * After transform_plan(), where the outputs will be verified: what is decoded of the
 * sources is hashed into t->seen, which the caller gives to seen_free().
 */
KVT_MUST_CHECK enum kvt_status
transform_watch(struct transform *t, struct kvt_error *err);

/* Memory of the hungriest group, and of what was seen. */
int64_t transform_memory(const struct transform *t);

/* Carries it out and completes all outputs; the caller publishes them. */
KVT_MUST_CHECK enum kvt_status
transform_run(struct transform *t, struct kvt_error *err);

#endif
