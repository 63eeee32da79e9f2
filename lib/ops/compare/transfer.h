/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h - between the files that verify a transfer */
#ifndef KVT_OPS_COMPARE_TRANSFER_H
#define KVT_OPS_COMPARE_TRANSFER_H

#include "lib/dump/span_list.h"
#include "lib/ops/transfer/exec.h"

/* The rank of the source that a head or channel is compared with, and where. */
struct owner {
	int rank;
	int64_t index;
};

/* One group of all ranks. */
struct verifying {
	const struct kvt_sides *sides;
	const struct kvt_ranks *after;
	int group, src_group;
	struct kvt_cut cut;
	struct span_list pairs;	/* by blocks of 'after' */
	uint8_t *arrived;		/* [B * S] */
	struct owner *owner;		/* of heads, or of channels of a conv state: */
	int64_t nowners;		/* so many of each rank */
	int64_t bytes, untouched;
};

static inline const struct kvt_group *group_of(const struct verifying *v, int rank)
{
	return &kvt_ranks_snapshot(v->after, rank)->group[v->group];
}

static inline bool is_conv(const struct verifying *v)
{
	return group_of(v, 0)->kind == KVT_MAMBA_CONV;
}

/* Which states and heads belong together: identity.c. */
KVT_MUST_CHECK enum kvt_status
pair_requests(struct verifying *v, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
find_owners(struct verifying *v, struct kvt_error *err);
const struct kvt_request *request_named(const struct kvt_snapshot *s, const char *id);
bool is_moved(const struct kvt_sides *sides, const char *id);
/* The channel of 'b' that is channel d of 'a'; -1: none. */
int64_t channel_in(const struct kvt_group *b, const struct kvt_group *a, int64_t d);

/* An element, by what it is in the file. */
struct transfer_element {
	int64_t l, b, s, h, d;
};

/* Digests, where both sides have the same requests: digests.c. */
bool same_requests(const struct kvt_sides *sides);
KVT_MUST_CHECK enum kvt_status
compare_digests(struct kvt_verified *out, const struct kvt_sides *sides,
		const struct kvt_ranks *after, const struct kvt_run *run,
		struct kvt_error *err);

#endif
