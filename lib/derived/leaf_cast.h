/* SPDX-License-Identifier: Apache-2.0 */
/* leaf_cast.h - what leaf_cast.c and the rows that it makes (cast_rows.c) share */
#ifndef KVT_DERIVED_LEAF_CAST_H
#define KVT_DERIVED_LEAF_CAST_H

#include "lib/derived/cast_box.h"
#include "lib/dump/map.h"
#include "lib/kvt/cast.h"

/* What it takes to make rows of a box of the source, as kvt_layout_slots has it. */
struct cast_rows {
	const struct kvt_caster *caster;
	int64_t page;			/* slots that become one */
	bool one_by_one;
	const struct kvt_box *there;
	struct kvt_views views;		/* of the result */
	float *numbers;			/* of a row */
};

/* Where the rows of a box of the result come from. */
struct kvt_box cast_rows_box(const struct cast_rows *r, const struct kvt_group *from,
			     const struct kvt_box *box);
KVT_MUST_CHECK enum kvt_status cast_rows_of(const struct cast_job *p, struct cast_rows *r,
					    const struct kvt_box *box,
					    struct kvt_error *err);

#endif
