/* SPDX-License-Identifier: Apache-2.0 */
/* plant.h - a fault as it was asked for, and as it was planted */
#ifndef KVTOOL_MUTATE_H
#define KVTOOL_MUTATE_H

#include "cli/rewrite.h"
#include "lib/ops/fault/window.h"

/* Layers, blocks and heads by their ids. */
struct asked {
	const struct kvt_fault *fault;
	int64_t arg[KVT_FAULT_ARGS];
	bool given[KVT_FAULT_ARGS];
	double factor;			/* 0: to be chosen */
	bool has_layer, has_block;
	int64_t layer, block;
	int64_t seed;
	const char *group;		/* NULL: the first that can have it */
};

struct planted {
	const char *id;			/* of the group */
	struct kvt_window window;
	struct kvt_strike strike;
	struct kvt_difference difference;
	struct overlay overlay;
};

/* Free with planted_free() in any case. */
KVT_MUST_CHECK enum kvt_status
plant(struct planted *out, struct kvt_dump *reader, const struct asked *asked,
      const struct rewrite *r, struct kvt_error *err);
void planted_free(struct planted *planted);

#endif
