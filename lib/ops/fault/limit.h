/* SPDX-License-Identifier: Apache-2.0 */
/* limit.h - the part of a group that a fault is limited to */
#ifndef KVT_OPS_FAULT_LIMIT_H
#define KVT_OPS_FAULT_LIMIT_H

#include "lib/ops/fault/plant.h"

struct fault_part {
	const struct kvt_window *whole;
	struct kvt_window window;	/* of the part; borrows from the whole */
	struct kvt_box box;		/* in the whole */
	bool *has;			/* [B] blocks of the request; NULL: all count */
	uint8_t *use;			/* of the window, where a request is named */
};

/* KVT_USAGE: something that is not there.  Free with kvt_fault_part_free() always. */
KVT_MUST_CHECK enum kvt_status
kvt_fault_part_init(struct fault_part *out, const struct kvt_window *whole,
		    const struct kvt_snapshot *snapshot, int group,
		    const struct fault_limit *only, struct kvt_error *err);
void kvt_fault_part_free(struct fault_part *part);

/* Copies the part out of the whole, or, 'out', its blocks of the request into it. */
void kvt_fault_part_copy(const struct fault_part *part, uint8_t *data, uint8_t *whole,
			 bool out);

#endif
