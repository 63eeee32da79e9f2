/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.c - which rank holds which heads and tokens, and who gives them to whom
 *
 *	heads >= ranks	8 heads, 4 ranks: 0 1 | 2 3 | 4 5 | 6 7
 *	heads < ranks	2 heads, 4 ranks: 0 | 0 | 1 | 1		replicas
 *	neither number divides the other: refused
 *
 * A rank of the destination gets what it holds from its candidates, the source ranks
 * that may have it, each the part that no candidate before it gave.  Shares ascend with
 * the rank, so that part is one range and follows from the neighbour alone.
 */
#include "lib/kvt/spec.h"

/* Products of two counts of ranks or units must fit. */
static const int64_t most = INT32_MAX;

static enum kvt_status check_rank(int64_t units, struct kvt_rank rank,
				  struct kvt_error *err)
{
	if (rank.size < 1 || rank.size > most)
		return kvt_fail(err, KVT_BAD_INPUT,
				"there are %lld ranks, expected 1 to %lld",
				LL(rank.size), LL(most));
	if (rank.index < 0 || rank.index >= rank.size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"rank is %lld, expected 0 to %lld",
				LL(rank.index), LL(rank.size) - 1);
	if (units < 1 || units > most)
		return kvt_fail(err, KVT_BAD_INPUT,
				"there are %lld heads, expected 1 to %lld",
				LL(units), LL(most));
	return KVT_OK;
}

enum kvt_status kvt_owned(struct kvt_range *out, int64_t units,
			  struct kvt_rank rank, struct kvt_error *err)
{
	enum kvt_status status = check_rank(units, rank, err);

	if (status)
		return status;
	if (units % rank.size == 0) {
		int64_t n = units / rank.size;

		*out = (struct kvt_range){ rank.index * n, (rank.index + 1) * n };
		return KVT_OK;
	}
	if (rank.size % units == 0) {
		int64_t unit = rank.index / (rank.size / units);

		*out = (struct kvt_range){ unit, unit + 1 };
		return KVT_OK;
	}
	return kvt_fail(err, KVT_BAD_INPUT,
			"%lld heads cannot be divided evenly among %lld ranks: neither number divides the other",
			LL(units), LL(rank.size));
}

bool kvt_is_replicated(int64_t units, int64_t ranks)
{
	return ranks > units;
}

enum kvt_status kvt_candidates(struct kvt_range *out, int64_t units, int64_t src_ranks,
			       struct kvt_rank dst, struct kvt_error *err)
{
	struct kvt_rank first = { src_ranks, 0 };
	enum kvt_status status;

	if ((status = check_rank(units, first, err)) ||
	    (status = check_rank(units, dst, err)))
		return status;
	if (src_ranks % dst.size == 0) {
		int64_t q = src_ranks / dst.size;

		*out = (struct kvt_range){ dst.index * q, (dst.index + 1) * q };
	} else if (dst.size % src_ranks == 0 || units == 1) {
		/* what all ranks hold may come from any: spread the load */
		int64_t at = dst.index * src_ranks / dst.size;

		*out = (struct kvt_range){ at, at + 1 };
	} else {
		*out = (struct kvt_range){ 0, src_ranks };
	}
	return KVT_OK;
}

/*
 * Shares ascend with the rank, and the candidates' shares begin no later than
 * the destination's.  So what earlier candidates gave ends where the previous
 * one's share ends, and no list of it is needed.
 */
enum kvt_status kvt_given(struct kvt_range *out, int64_t units, struct kvt_rank src,
			  struct kvt_rank dst, struct kvt_error *err)
{
	struct kvt_range have, want, from, before = { 0, 0 }, given;
	enum kvt_status status;

	if ((status = kvt_owned(&have, units, src, err)) ||
	    (status = kvt_owned(&want, units, dst, err)) ||
	    (status = kvt_candidates(&from, units, src.size, dst, err)))
		return status;
	if (src.index > from.begin) {
		struct kvt_rank previous = { src.size, src.index - 1 };

		if ((status = kvt_owned(&before, units, previous, err)))
			return status;
	}
	given.begin = have.begin > want.begin ? have.begin : want.begin;
	if (given.begin < before.end)
		given.begin = before.end;
	given.end = have.end < want.end ? have.end : want.end;
	if (given.end < given.begin || src.index < from.begin || src.index >= from.end)
		given.end = given.begin;
	*out = given;
	return KVT_OK;
}
