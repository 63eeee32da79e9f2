/* SPDX-License-Identifier: Apache-2.0 */
/* size_plan.h - kvtool size --plan */
#ifndef KVTOOL_SIZE_PLAN_H
#define KVTOOL_SIZE_PLAN_H

#include "cli/cli.h"

struct size_plan {
	const char *rates;		/* file of kvtool bench --files --json */
	const char *job;
	double seconds;			/* that it may take */
	int64_t threads;		/* of a shard */
	bool json;
};

/* KVT_MISMATCH, without a sentence: it cannot be done in that time. */
KVT_MUST_CHECK enum kvt_status
size_plan(const struct size_plan *said, char **files, int n, struct kvt_error *err);

#endif
