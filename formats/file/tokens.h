/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.h - requests whose tokens lie in a file at strides of its own
 *
 * For formats that know tokens and no blocks: the tokens of each request fill
 * blocks of their own, in order.
 */
#ifndef KVT_TOKENS_H
#define KVT_TOKENS_H

#include "formats/format.h"

enum { KVT_TOKEN_BLOCK = 16 };	/* tokens a block by default */

/* As the user says, or that; KVT_USAGE if no block has as many. */
KVT_MUST_CHECK enum kvt_status
kvt_token_block_size(int64_t *out, const struct kvt_hints *hints, struct kvt_error *err);

/*
 * Tokens of one request that follow each other in the file; slots of them, where one
 * stands for several.
 */
struct kvt_token_run {
	int file;			/* -1: nowhere, zeros */
	int64_t offset;			/* of the first token's first element */
	/* bytes; that of S is from a token to the next one, B is not used */
	int64_t stride[KVT_NAXES];
	int64_t layers[2];		/* of the group: begin, end */
	int64_t kv[2];			/* keys, values or, at strides of K, both */
	int64_t dim[2];			/* elements of a row; both 0: all */
	int64_t block;			/* the first one of the request */
	int64_t token, count;		/* from the beginning of that block on */
};

/* Adds the parts: at most a part of a block, whole blocks, and a part again. */
KVT_MUST_CHECK enum kvt_status
kvt_token_run_add(struct kvt_flat *flat, const struct kvt_group *group,
		  const struct kvt_token_run *run, struct kvt_error *err);

/* Zeros for tokens of group 'g' that are nowhere, from 'token' of a block on. */
KVT_MUST_CHECK enum kvt_status
kvt_token_zeros(struct kvt_reader *reader, int g, int64_t block, int64_t token,
		int64_t count, struct kvt_error *err);

/*
 * The next request of a snapshot: 'ntokens' tokens from position 'first' on, in
 * blocks of their own in every group.  'nblocks' counts those of each group, and
 * before the call has how many there are by then.  A group that says no block size has
 * room for one block, and none yet.
 */
KVT_MUST_CHECK enum kvt_status
kvt_token_request(struct kvt_snapshot *snapshot, const char *id, int64_t ntokens,
		  int64_t first, int64_t nblocks[KVT_MAX_GROUPS], struct kvt_error *err);

#endif
