/* SPDX-License-Identifier: Apache-2.0 */
/* plant.h - a fault as it was asked for, and as it was planted */
#ifndef KVT_OPS_FAULT_PLANT_H
#define KVT_OPS_FAULT_PLANT_H

#include "lib/dump/read.h"
#include "lib/ops/fault/window.h"

/*
 * What a fault is limited to: it happens to that part as if there were no more, which
 * is how it happens to a rank.  Layers and heads are ids, from the first to before the
 * last; [1] is 0 where nothing is said.
 */
struct fault_limit {
	int64_t layers[2], heads[2];
	const char *kv;			/* "k" or "v"; NULL: both */
	const char *request;		/* NULL: all of them */
};

/* A fault as it was asked for: layers, blocks and heads by their ids. */
struct fault_request {
	const struct kvt_fault *fault;
	int64_t arg[KVT_FAULT_ARGS];
	bool given[KVT_FAULT_ARGS];
	double factor;			/* 0: to be chosen */
	bool has_layer, has_block;
	int64_t layer, block;
	int64_t seed;
	const char *group;		/* NULL: the first that can have it */
	struct fault_limit only;
};

/* What was planted, and where. */
struct planted {
	const char *id;			/* of the group */
	struct kvt_window window;
	struct kvt_strike strike;
	struct kvt_difference difference;
	int group;			/* that it was planted in */
	uint8_t *bytes;			/* of the group, in kvt_layout_slots; owned */
};

/*
 * Free with kvt_planted_free() in any case.  KVT_USAGE: no such group, layer, block or
 * head.  KVT_UNSUPPORTED: no group can have the fault, or twice its data do not fit in
 * run->memory.  KVT_BAD_INPUT: it would change nothing that is live.
 */
KVT_MUST_CHECK enum kvt_status
kvt_plant_fault(struct planted *out, const struct kvt_dump *dump,
		const struct fault_request *asked, const struct kvt_run *run,
		struct kvt_error *err);
void kvt_planted_free(struct planted *planted);

#endif
