/* SPDX-License-Identifier: Apache-2.0 */
/* cast_box.h - the elements of a box as those of another type, by CPU or device */
#ifndef KVT_CAST_BOX_H
#define KVT_CAST_BOX_H

#include "lib/dump/read.h"
#include "lib/kvt/device.h"

/* Scales of a group, [L][2][heads]. */
struct cast_scales {
	float *scale;			/* NULL: what the group says */
	int64_t heads;
};

/* Dense boxes of one layout; 'src' is of 'from', 'dst' of 'to'. */
struct cast_job {
	const struct kvt_group *from, *to;
	const struct cast_scales *times, *by;
	const uint8_t *src;
	uint8_t *dst;
};

/* What a layer, head and half are multiplied by and divided by. */
struct kvt_device_factors cast_factors(const struct cast_job *job, int64_t l, int64_t h,
				       int64_t k);

/*
 * 'count' elements, those of 'box' in 'layout'.  On the worker's device where it has one
 * that casts these types and holds the box; else on the CPU, so where 'worker' is NULL.
 */
KVT_MUST_CHECK enum kvt_status
cast_elements(struct kvt_worker *worker, const struct cast_job *job,
	      const struct kvt_box *box, const struct kvt_layout *layout, int64_t count,
	      struct kvt_error *err);

#endif
