/* SPDX-License-Identifier: Apache-2.0 */
/* write.h - what the workers get: the same box of a group of all writers */
#ifndef KVTOOL_TRANSFER_BOX_H
#define KVTOOL_TRANSFER_BOX_H

#include "lib/ops/write/plan.h"

struct transfer {
	const struct transform *t;
	struct put_room room;		/* of one writer */
	int group;
	const struct kvt_group *from, *to;
	struct kvt_layout order;	/* of a box that tiles are made of */
	const struct kvt_tiling *src_tiling, *dst_tiling;	/* NULL: flat */
};

/* A kvt_work_fn; the context is a struct transfer. */
enum kvt_status transfer_box(struct kvt_worker *worker, void *context, int64_t i,
			     struct kvt_error *err);

#endif
