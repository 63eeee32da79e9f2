/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fit.c - what requests take of the memory of a rank, and how many tokens fit
 *
 * In goes a model as it is cached on one rank (kvt_model_size()).  A request takes
 * whole blocks of every group: as many as its tokens fill, at most what the window
 * needs, one of a state and of each draft of it; where tokens are dealt out to context
 * parallel ranks, of the most that one of them has.  So its bytes never fall with its
 * tokens, and the most tokens that fit are found by bisection, in 31 steps.
 */
#include "lib/kvt/model.h"

/* Blocks that 'tokens' of one request take in each layer of the group. */
static int64_t blocks_of(const struct kvt_group_size *g, int64_t tokens)
{
	int64_t blocks;

	if (!g->block_size)
		return 1 + g->group.args.drafts;
	if (kvt_spec_class_of(g->keeps, &g->group.args) == KVT_CLASS_ENCODER)
		return 0;
	blocks = kvt_ceil_div(kvt_ceil_div(tokens, g->dealt), g->block_size);
	return g->most_blocks && g->most_blocks < blocks ? g->most_blocks : blocks;
}

int64_t kvt_model_request(const struct kvt_model_size *size, int64_t tokens)
{
	int64_t sum = 0, n;

	for (int i = 0; i < size->ngroups; i++) {
		const struct kvt_group_size *g = &size->group[i];

		if (__builtin_mul_overflow(g->page, g->group.layers, &n) ||
		    __builtin_mul_overflow(n, blocks_of(g, tokens), &n) ||
		    __builtin_add_overflow(sum, n, &sum))
			return INT64_MAX;
	}
	return sum;
}

int64_t kvt_model_tokens(const struct kvt_model_size *size, int64_t nbytes)
{
	int64_t low = -1, high = KVT_ANY_TOKENS;

	if (kvt_model_request(size, high) <= nbytes)
		return high;
	while (high - low > 1) {
		int64_t mid = low + (high - low) / 2;

		if (kvt_model_request(size, mid) <= nbytes)
			low = mid;
		else
			high = mid;
	}
	return low;
}

int64_t kvt_model_fit(const struct kvt_model_size *size, int64_t nbytes, int64_t requests)
{
	return kvt_model_tokens(size, nbytes / requests);
}

struct kvt_model_sums kvt_model_sums(const struct kvt_model_size *size)
{
	struct kvt_model_sums sums = { .token = 0 };

	for (int i = 0; i < size->ngroups; i++) {
		const struct kvt_group_size *g = &size->group[i];
		int64_t block = g->page * g->group.layers;
		double token;

		if (!g->block_size) {
			sums.states += block * (1 + g->group.args.drafts);
			continue;
		}
		token = (double)block / (double)g->block_size;
		if (g->most_blocks) {
			sums.windows += block * g->most_blocks;
			sums.window += token;
		} else {
			sums.token += token / (double)g->dealt;
			sums.all_ranks += token / (double)g->dealt * (double)size->tp;
			sums.unique += token * (double)size->tp /
				       (double)g->spec.replication;
		}
	}
	return sums;
}
