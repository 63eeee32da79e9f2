/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_digests.c - the digests of both sides of a transfer, each head once
 *
 * Ranks may hold replicas of a head.  Of each side the sums of those heads and
 * channels are added that no earlier rank holds: if all requests moved, and all of
 * their states, the two sums are equal.
 */
#include "lib/ops/compare/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/pairs.h"

/* Does 'b' have the channel that is channel d of 'a'? */
static bool has_channel(const struct kvt_group *b, const struct kvt_group *a, int64_t d)
{
	const struct kvt_component *x = kvt_group_component(a, d);
	int64_t global = x ? x->global_start + d - x->start : -1;

	for (int i = 0; x && i < b->ncomponents; i++) {
		const struct kvt_component *y = &b->component[i];

		if (!strcmp(x->name, y->name) && global >= y->global_start &&
		    global < y->global_start + y->length)
			return true;
	}
	return false;
}

/* Is head or channel i the first copy of itself? */
static bool is_first(const struct kvt_snapshot *const *ranks, int rank, int g, int64_t i)
{
	const struct kvt_group *mine = &ranks[rank]->group[g];

	for (int r = 0; r < rank; r++) {
		const struct kvt_group *other = &ranks[r]->group[g];
		int64_t at = mine->head_start + i - other->head_start;

		if (mine->kind == KVT_MAMBA_CONV ? has_channel(other, mine, i) :
		    at >= 0 && at < other->shape.n[KVT_AXIS_H])
			return false;
	}
	return true;
}

static enum kvt_status sum_rank(struct kvt_digest *sum, enum digest_version *version,
				struct kvt_dump *reader,
				const struct kvt_snapshot *const *ranks, int rank,
				const struct kvt_run *run, struct kvt_error *err)
{
	struct digests d;
	enum kvt_status status = kvt_digests_compute(&d, reader, DIGEST_NEWEST, run, err);

	*version = d.version;
	for (int g = 0; !status && g < ranks[rank]->ngroups; g++) {
		const struct digest_group *dg = &d.group[g];
		const struct kvt_digest *head = dg->head[DIGEST_TOKENS];

		for (int64_t i = 0; i < dg->nheads; i++) {
			int64_t layers = ranks[rank]->group[g].shape.n[KVT_AXIS_L];

			if (!is_first(ranks, rank, g, i))
				continue;
			for (int64_t l = 0; l < layers; l++)
				kvt_digest_add(sum, &head[l * dg->nheads + i]);
		}
	}
	kvt_digests_free(&d);
	return status;
}

static enum kvt_status sum_side(struct kvt_digest *sum, enum digest_version *version,
				const struct kvt_ranks *side, const struct kvt_run *run,
				struct kvt_error *err)
{
	const struct kvt_snapshot **ranks = calloc((size_t)side->n, sizeof(*ranks));
	enum kvt_status status = KVT_OK;

	if (!ranks)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int r = 0; r < side->n; r++)
		ranks[r] = kvt_ranks_snapshot(side, r);
	for (int r = 0; !status && r < side->n; r++)
		status = sum_rank(sum, version, side->file[r].reader, ranks, r, run, err);
	free(ranks);
	return status;
}

/* Of recurrent groups a transfer moves the last state only. */
static bool moves_all(const struct kvt_sides *sides, const struct kvt_snapshot *s,
		      const struct kvt_request *r)
{
	for (int g = 0; !sides->all_states && g < s->ngroups; g++)
		if (s->group[g].tokens_per_state < 0 && r->nblocks[g] > 1)
			return false;
	return true;
}

bool same_requests(const struct kvt_sides *sides)
{
	const struct kvt_snapshot *a = kvt_ranks_snapshot(&sides->src, 0);
	const struct kvt_snapshot *b = kvt_ranks_snapshot(&sides->dst, 0);

	if (sides->request || sides->cached || a->nrequests != b->nrequests)
		return false;
	for (int64_t i = 0; i < a->nrequests; i++)
		if (!request_named(b, a->request[i].id) ||
		    !moves_all(sides, a, &a->request[i]))
			return false;
	return true;
}

enum kvt_status compare_digests(struct kvt_verified *out, const struct kvt_sides *sides,
				const struct kvt_ranks *after, const struct kvt_run *how,
				struct kvt_error *err)
{
	enum digest_version version = DIGEST_KVD1;
	struct kvt_run run = *how;
	enum kvt_status status;

	run.device = NULL;		/* it is not to judge its own work */
	if ((status = sum_side(&out->digest[0], &version, &sides->src, &run, err)) ||
	    (status = sum_side(&out->digest[1], &version, after, &run, err)))
		return status;
	out->has_digest = true;
	out->version = version;
	if (memcmp(&out->digest[0], &out->digest[1], sizeof(out->digest[0])))
		return kvt_fail(err, KVT_MISMATCH,
				"digest is %s, that of the source is %s",
				kvt_digest_text(DIGEST_TOKENS, version,
						&out->digest[1]).s,
				kvt_digest_text(DIGEST_TOKENS, version,
						&out->digest[0]).s);
	return KVT_OK;
}
