/* SPDX-License-Identifier: Apache-2.0 */
/* write.h - what transform.c hands to the workers: one box of one group */
#ifndef KVTOOL_TRANSFER_BOX_H
#define KVTOOL_TRANSFER_BOX_H

#include "lib/ops/write/plan.h"

struct transfer {
	const struct transform *t;
	int group;
	const struct kvt_group *from, *to;
	const struct kvt_tiling *src_tiling, *dst_tiling;	/* NULL: flat */
};

/* A kvt_work_fn; the context is a struct transfer. */
enum kvt_status transfer_box(struct kvt_worker *worker, void *context, int64_t i,
			     struct kvt_error *err);

#endif
