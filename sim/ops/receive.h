/* SPDX-License-Identifier: Apache-2.0 */
/* receive.h - what vLLM's receivers do to blocks, done to a group of a dump */
#ifndef KVT_OPS_RECEIVE_H
#define KVT_OPS_RECEIVE_H

#include "lib/kvt/connect.h"
#include "lib/kvt/dump.h"
#include "lib/kvt/run.h"

struct received {
	enum kvt_receive which;
	struct kvt_receive_block block;
	struct kvt_plan plan;
	struct kvt_layout layout;	/* of 'bytes' */
	int64_t nblocks;		/* that were changed, in each layer */
	uint8_t *bytes;			/* of the group; owned */
};

/*
 * In a group whose blocks arrived as 'ratio' smaller ones, head by head, puts the
 * blocks of these ids into the order that the group's layout says; one that is listed
 * twice is done once.  'back' undoes it.  ids NULL: all blocks.
 *
 * Free with kvt_received_free() in any case.  KVT_UNSUPPORTED: heads or slots are not
 * what is directly below a block, or the group does not fit in run->memory.  KVT_USAGE:
 * there is no such block.
 */
KVT_MUST_CHECK enum kvt_status
kvt_receive_group(struct received *out, const struct kvt_dump *dump, int group,
		  int64_t ratio, const struct kvt_range *ids, int nids, bool back,
		  const struct kvt_run *run, struct kvt_error *err);
void kvt_received_free(struct received *received);

#endif
