/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack.h - the operations that software stacks really post
 *
 * transfer.h says what the bytes of two layouts allow.  A connector posts
 * what it finds simple: mostly one descriptor a region and block, of whole
 * blocks, merged by rules of its own, if at all.  Here are those lists, in the
 * order of the stack, with its refusals.
 */
#ifndef KVT_STACK_H
#define KVT_STACK_H

#include "lib/kvt/transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The first three are of vLLM's connectors.  Their regions are the layers of a
 * group (two a layer where keys and values lie apart; one of each part of a conv
 * state), or all layers at once where a block holds them all: always of
 * "nixl-packed", of "nixl" where the block of a layer is not [heads][slots].
 * The others are the scopes, whose list is that of kvt_op_next().
 */
enum kvt_stack {
	KVT_STACK_NIXL,
	KVT_STACK_NIXL_PACKED,
	KVT_STACK_MOONCAKE,
	KVT_STACK_RFC,
	KVT_STACK_LAYER,
	KVT_STACK_MAX,
	KVT_NSTACKS
};
/* Is it a connector of vLLM, whose regions a release decides? */
bool kvt_stack_is_vllm(enum kvt_stack stack);
const char *kvt_stack_name(enum kvt_stack stack);	/* "nixl-packed" */
bool kvt_stack_find(enum kvt_stack *out, const char *name);

/* Which neighbours of a list become one. */
enum kvt_coalesce {
	KVT_COALESCE_STACK,	/* those that the stack merges itself */
	KVT_COALESCE_OFF,
	KVT_COALESCE_NIXL,	/* that ascend on both sides, in one region */
	KVT_COALESCE_FULL,	/* whatever may be one: scope max */
	KVT_NCOALESCES
};
const char *kvt_coalesce_name(enum kvt_coalesce coalesce);	/* "nixl" */

/* Engine constants of Mooncake: a rest of up to 'fragment' joins its slice. */
enum { KVT_MOONCAKE_SLICE = 65536, KVT_MOONCAKE_FRAGMENT = 16384 };

struct kvt_posting {
	enum kvt_stack stack;
	enum kvt_coalesce coalesce;
	bool descending;	/* also merge rows that descend on both sides */
	int64_t sge;		/* source ranges an op may gather; 0, 1: one */
	int64_t slice, fragment;	/* longer ones are cut; 0: none are */
};

/* Ranges that one operation of 'len' bytes is cut to. */
int64_t kvt_slice_count(int64_t len, int64_t slice, int64_t fragment);

/* One region of a pair: block b of it begins at src + b * src_block. */
struct kvt_post_region {
	int64_t src, dst, len;
	int64_t src_layer, dst_layer, src_block, dst_block;
};

enum { KVT_MAX_POST_REGIONS = 2 * KVT_MAX_SPEC_PARTS };

/* The list of one pair; counts are complete when it ends. */
struct kvt_posts {
	int64_t listed;		/* descriptors before anything is merged */
	int64_t merged;		/* after */
	int64_t ops, bytes;	/* that were returned */
	/* internal */
	struct kvt_posting how;
	const struct kvt_block_span *order;
	int64_t norder, at, layer, layers, chunk;
	int nregions, region;
	bool packed;		/* a region is a block of all layers */
	struct kvt_post_region regions[KVT_MAX_POST_REGIONS];
	struct kvt_nest nest;
	struct kvt_ops walk;
	bool scoped, have[2];
	int64_t row[2];
	struct kvt_op ahead[2], rest;	/* of the list; merged; being cut */
};

/*
 * 'order' are the entries in the order of the request, before kvt_xfer_init()
 * sorted them; borrowed like 'xfer'.  'posts' stays where it is.  What the stack
 * itself would refuse is KVT_BAD_INPUT, and the sentence says why.
 */
KVT_MUST_CHECK enum kvt_status
kvt_posts_start(struct kvt_posts *posts, const struct kvt_posting *how,
		const struct kvt_xfer *xfer, const struct kvt_pair *pair,
		const struct kvt_block_span *order, int64_t norder,
		struct kvt_error *err);

/* The next operation; 'src' is that of its first range. */
bool kvt_post_next(struct kvt_op *out, struct kvt_posts *posts);

#ifdef __cplusplus
}
#endif

#endif
