/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_digests.c - the digest of both sides of a transfer, each head once
 *
 * If all requests moved, and all of their slots, both sides have one digest, which
 * 'kvtool digest' prints of either.  That of the destination is summed up while it is
 * compared.  It is the source's, too, if the element that each live token of a request
 * has in the destination was held against the one that the same token of the same
 * request has in the source: check_all_paired() asks the tables that, not the pairs.
 *
 * Ranks may hold replicas of a head: those heads and channels are added that no earlier
 * rank holds.
 */
#include "sim/ops/verify.h"

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

void add_digests(struct kvt_verified *out, const struct kvt_ranks *after,
		 const struct digests *of)
{
	const struct kvt_snapshot *ranks[KVT_MAX_RANKS];

	for (int r = 0; r < after->n; r++)
		ranks[r] = kvt_ranks_snapshot(after, r);
	for (int r = 0; r < after->n; r++)
		for (int g = 0; g < ranks[r]->ngroups; g++) {
			const struct digest_group *dg = &of[r].group[g];
			const struct kvt_digest *head = dg->head[DIGEST_TOKENS];
			int64_t layers = ranks[r]->group[g].shape.n[KVT_AXIS_L];

			for (int64_t i = 0; i < dg->nheads; i++)
				for (int64_t l = 0; is_first(ranks, r, g, i) &&
						    l < layers; l++)
					kvt_digest_add(&out->digest,
						       &head[l * dg->nheads + i]);
		}
	out->has_digest = true;
	out->version = of[0].version;
}

/* ---- is every token paired? ---------------------------------------------- */

/* A slot of the pool and one of the source that it is held against. */
struct held {
	int64_t here, there;		/* block * slots + slot */
};

static int by_here(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	if (x->here != y->here)
		return x->here < y->here ? -1 : 1;
	return x->there < y->there ? -1 : x->there > y->there;
}

/* All pairs of slots, in order; NULL: out of memory. */
static struct held *list_held(int64_t *n, const struct slot_pairs *pairs, int64_t here,
			      int64_t there)
{
	struct held *out;

	*n = 0;
	for (int64_t i = 0; i < pairs->span.n; i++)
		*n += pairs->span.at[i].span.count;
	if (!(out = malloc(((size_t)*n + 1) * sizeof(*out))))
		return NULL;
	*n = 0;
	for (int64_t i = 0; i < pairs->span.n; i++) {
		const struct target_span *w = &pairs->span.at[i];

		for (int64_t s = 0; s < w->span.count; s++)
			out[(*n)++] = (struct held){
				w->to * here + w->span.at + s,
				w->span.block * there + w->span.slot + s,
			};
	}
	qsort(out, (size_t)*n, sizeof(*out), by_here);
	return out;
}

/* Where a position of a request is: block * slots + slot; -1: it has no entry. */
static int64_t place_of(const struct kvt_table *t, int64_t position)
{
	int64_t at = position - t->first * t->each;
	int64_t slots = t->group->shape.n[KVT_AXIS_S];

	if (at < 0 || at / t->each >= t->nblocks)
		return -1;
	return t->blocks[at / t->each] * slots + at % t->each;
}

enum kvt_status check_all_paired(const struct slot_pairs *pairs, struct pairs_side a,
				 struct pairs_side b, struct kvt_error *err)
{
	const int64_t *na = pairs_group(a)->shape.n, *nb = pairs_group(b)->shape.n;
	int64_t n;
	struct held *held = list_held(&n, pairs, nb[KVT_AXIS_S], na[KVT_AXIS_S]);
	enum kvt_status status = held ? KVT_OK : kvt_no_memory(err, NULL);

	for (int64_t r = 0; !status && r < b.snapshot->nrequests; r++) {
		const struct kvt_request *q = &b.snapshot->request[r];
		const struct kvt_request *from = kvt_request_named(a.snapshot, q->id);
		const struct kvt_table to = kvt_table_of(b.snapshot, b.group, q);
		const struct kvt_table src = kvt_table_of(a.snapshot, a.group, from);
		int64_t end = (to.first + to.nblocks) * to.each;

		for (int64_t p = to.first * to.each; !status && p < end; p++) {
			const struct held it = { place_of(&to, p), place_of(&src, p) };

			if (!kvt_table_needs(&to, p) ||
			    it.here / nb[KVT_AXIS_S] == to.null_block)
				continue;
			if (!bsearch(&it, held, (size_t)n, sizeof(it), by_here))
				status = kvt_fail(err, KVT_MISMATCH,
						  "%s: request %.60s: slot %lld was not compared with the source",
						  to.group->id, q->id, LL(p));
		}
	}
	free(held);
	return status;
}

/* ---- have both sides one digest? ----------------------------------------- */

/* Of recurrent groups a transfer moves the last slot only. */
static bool moves_all(const struct kvt_sides *sides, const struct kvt_snapshot *s,
		      const struct kvt_request *r)
{
	for (int g = 0; !sides->all_states && g < s->ngroups; g++)
		if (s->group[g].tokens_per_slot < 0 && r->nblocks[g] > 1)
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
		if (!kvt_request_named(b, a->request[i].id) ||
		    !moves_all(sides, a, &a->request[i]))
			return false;
	return true;
}
