/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deal.c - tokens that context parallel ranks deal out, chunk by chunk
 *
 * Chunk i is on rank i % size, behind those that this rank was dealt before:
 *
 *	chunks of 2, 3 ranks	tokens	0 1 | 2 3 | 4 5 | 6 7 | 8 9 | ..
 *	rank 1			slots	      0 1               2 3
 *
 * So of the first n tokens a rank has a chunk of each whole round, and of the last round
 * what reaches into its chunk.
 */
#include "lib/kvt/connect.h"

int64_t kvt_deal_size(const struct kvt_deal *deal)
{
	return deal->size > 1 ? deal->size : 1;
}

int64_t kvt_deal_count(const struct kvt_deal *deal, int64_t n)
{
	int64_t round, rest;

	if (deal->size <= 1)
		return n;
	round = deal->size * deal->chunk;
	rest = n % round - deal->rank * deal->chunk;
	rest = rest < 0 ? 0 : rest > deal->chunk ? deal->chunk : rest;
	return n / round * deal->chunk + rest;
}

bool kvt_deal_has(const struct kvt_deal *deal, int64_t token)
{
	return deal->size <= 1 || token / deal->chunk % deal->size == deal->rank;
}

int64_t kvt_deal_end(const struct kvt_deal *deal, int64_t token)
{
	return deal->size <= 1 ? INT64_MAX : (token / deal->chunk + 1) * deal->chunk;
}
