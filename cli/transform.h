/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transform.h - one dump into another: other layout, other format
 *
 * relayout and convert are this, with different options.
 */
#ifndef KVTOOL_TRANSFORM_H
#define KVTOOL_TRANSFORM_H

#include "cli/pipeline.h"

/* What happens to one group; filled by transform_plan(). */
struct group_step {
	struct cut cut;
	bool moves;		/* stored tiles go over undecoded */
	bool direct;		/* tile to tile, without a box between */
	bool make_cells;	/* the writer wants cells that the reader lacks */
	int64_t data_bytes;
	int64_t ntiles;		/* of the destination; 0: flat */
	struct kvt_plans plans;	/* of one unit: tile, or box where flat */
};

struct transform {
	struct kvt_reader *reader;
	struct kvt_writer *writer;
	struct pipeline_options options;
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

/*
 * Reads both dumps again and compares them element by element through the
 * addresses of their views, without plans or kernels.  KVT_MISMATCH names the
 * first coordinate that differs.
 */
KVT_MUST_CHECK enum kvt_status
verify_equal(struct kvt_reader *a, struct kvt_reader *b,
	     const struct pipeline_options *options, struct kvt_error *err);

/*
 * The layout that keys, values and states are hashed in: state outer, then
 * content, so that each (layer, block, head, kv) is one run.
 */
extern const struct kvt_layout cell_layout;

#endif
