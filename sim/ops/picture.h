/* SPDX-License-Identifier: Apache-2.0 */
/*
 * picture.h - which operation each byte of a block belongs to
 *
 * Of one pair of ranks, the first source block that it reads and the destination
 * block that this one's first slot goes to, as cells by ascending address: what
 * lies between the parts of a block is left out, and of many layers only the
 * first are in it.
 */
#ifndef KVT_OPS_PICTURE_H
#define KVT_OPS_PICTURE_H

#include "sim/ops/transfer.h"

struct kvt_picture_cell {
	int64_t at;			/* address on the rank */
	int64_t op;			/* its place in the canonical list; -1: stays */
	int64_t index[KVT_NAXES];
};

struct kvt_picture_side {
	int64_t block, layers;		/* shown */
	uint64_t id;			/* of the block in its pool */
	int64_t cell;			/* bytes */
	int64_t columns, rows, all_rows;	/* cells of a row; rows shown */
	enum kvt_axis axis;		/* along which rows differ first */
	struct kvt_picture_cell *cells;		/* owned; NULL: too many to draw */
};

struct kvt_picture {
	struct kvt_picture_side side[2];	/* source, destination */
};

KVT_MUST_CHECK enum kvt_status
kvt_picture_init(struct kvt_picture *out, const struct kvt_transfer_group *group,
		 const struct kvt_pair *pair, enum kvt_scope scope,
		 struct kvt_error *err);
void kvt_picture_free(struct kvt_picture *maps);

#endif
