/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prove.c - proves that a transfer writes what it must, exactly once
 *
 * No two writes meet: positions by kvt_moves_prove(), slots and elements by
 * what kvt_xfer_init() refuses.  So it is enough that each rank is written as
 * many bytes as it holds of the moved slots.
 */
#include "lib/transfer/xfer.h"

static enum kvt_status check_rank(const struct kvt_xfer *x, int64_t rank, int64_t found,
				  int64_t expected, struct kvt_error *err)
{
	if (found == expected)
		return KVT_OK;
	return kvt_fail(err, KVT_MISMATCH,
			"rank %lld is written %lld bytes, but holds %lld of the %lld slots that move", LL(rank), LL(found),
			LL(expected), LL(x->slots));
}

static enum kvt_status check_amounts(const struct kvt_xfer *x, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_tally tally = { 0 };
	int64_t bytes, unique, rank = 0, before = 0;
	int64_t deal = kvt_xfer_side_ranks(&x->dst) / x->dst.ranks;
	struct kvt_pair pair;
	struct kvt_nest nest;
	enum kvt_status status;

	if ((status = kvt_xfer_nbytes(&bytes, &unique, x, err)))
		return status;
	while (kvt_pair_next(&pair, &walk, x)) {
		for (; rank < pair.dst_rank / deal; rank++, before = tally.bytes)
			if ((status = check_rank(x, rank, tally.bytes - before,
						 bytes / x->dst.ranks, err)))
				return status;
		if ((status = kvt_nest_init(&nest, x, &pair, err)) ||
		    (status = kvt_pair_tally(&tally, NULL, &nest, KVT_SCOPE_MAX, err)))
			return status;
	}
	for (; rank < x->dst.ranks; rank++, before = tally.bytes)
		if ((status = check_rank(x, rank, tally.bytes - before,
					 bytes / x->dst.ranks, err)))
			return status;
	return KVT_OK;
}

enum kvt_status kvt_xfer_prove(struct kvt_proof *out, const struct kvt_xfer *x,
			       struct kvt_move *moves, struct kvt_error *err)
{
	struct kvt_transfer t = { &x->src.spec, &x->dst.spec, x->src.ranks,
				  x->dst.ranks, x->layers };
	struct kvt_move_walk walk = { 0, 0, 0 };
	enum kvt_status status;
	int64_t n = 0;

	while (kvt_move_next(&moves[n], &walk, &t))
		n++;
	status = kvt_moves_prove(out, &t, moves, n, err);
	return status ? status : check_amounts(x, err);
}
