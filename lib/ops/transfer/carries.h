/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carries.h - what of the model an operation carries
 *
 * Layers, states and heads from the least to the greatest that have a byte in it:
 * all of them if it is a box of the model, and mostly it is.
 */
#ifndef KVTOOL_SIM_WHERE_H
#define KVTOOL_SIM_WHERE_H

#include "lib/ops/transfer/transfer.h"

/* Which states of a request lie in a block of the source. */
struct held_states {
	int64_t block, state, count;	/* first one in the block; how many */
	int64_t at;			/* it is this one of the request */
};

struct op_places {
	const struct sim_group *group;	/* borrowed */
	struct held_states *held;	/* owned; by block and state */
};
KVT_MUST_CHECK enum kvt_status
op_places_init(struct op_places *out, const struct sim_group *group,
	       struct kvt_error *err);
void op_places_free(struct op_places *places);

struct op_where {
	const char *slice;		/* "head", or a part of a conv state */
	int64_t layer, layers, state, states;
	int64_t head, heads;		/* of the model; of a conv state, channels */
};
struct op_where op_where(const struct op_places *places, const struct kvt_pair *pair,
			 const struct kvt_op *op);

/* In this order, between commas. */
#define OP_WHERE_COLUMNS "slice,layer0,layers,token0,tokens,head0,heads"
void op_where_print(const struct op_where *where);

#endif
