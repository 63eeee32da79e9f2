/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock.c - has each token of each request still the slots it had?
 *
 * What is compared follows from the block tables of the two dumps alone; how the one was
 * made of the other has no part in it.
 *
 * A pool that was regrouped in place keeps every slot, also those of no request: then
 * all of the pool is compared, and each token must be in the slot of its old number.
 * Else only what tokens of requests have is compared.
 */
#include "lib/kvt/ops.h"
#include "lib/derived/reblock.h"

#include <string.h>

#include "lib/ops/compare/compare.h"

struct verifying {
	const struct kvt_dump *before, *after;
	const struct seen *seen;
	int group;
	struct pairs_side a, b;
	struct slot_pairs tokens, pool;
	struct head_pairs heads;
};

static enum kvt_status check_requests(const struct verifying *v, struct kvt_error *err)
{
	for (int64_t r = 0; r < v->a.snapshot->nrequests; r++) {
		const struct kvt_request *was = &v->a.snapshot->request[r];
		const struct kvt_request *is = kvt_request_named(v->b.snapshot, was->id);

		if (was->nblocks[v->group] && (!is || is->ntokens != was->ntokens))
			return kvt_fail(err, KVT_MISMATCH,
					"request %s: %lld tokens became %lld", was->id,
					LL(was->ntokens), LL(is ? is->ntokens : 0));
	}
	return KVT_OK;
}

/* In a pool that was regrouped every slot keeps its place, those of tokens, too. */
static enum kvt_status check_in_place(const struct verifying *v, struct kvt_error *err)
{
	const struct kvt_group *a = pairs_group(v->a), *b = pairs_group(v->b);

	for (int64_t i = 0; i < v->tokens.span.n; i++) {
		const struct target_span *w = &v->tokens.span.at[i];
		int64_t should = w->span.block * a->shape.n[KVT_AXIS_S] + w->span.slot;
		int64_t is = w->to * b->shape.n[KVT_AXIS_S] + w->span.at, token = 0;
		const struct kvt_request *request;

		if (is == should)
			continue;
		request = request_at(&token, v->b, w->to, w->span.at);
		return kvt_fail(err, KVT_MISMATCH,
				"%s: request %s token %lld is in slot %lld of the pool, expected %lld",
				b->id, request ? request->id : "?", LL(token), LL(is),
				LL(should));
	}
	return KVT_OK;
}

static bool same_shape(const struct kvt_group *a, const struct kvt_group *b)
{
	for (int axis = 0; axis < KVT_NAXES; axis++)
		if (axis != KVT_AXIS_B && axis != KVT_AXIS_S &&
		    a->shape.n[axis] != b->shape.n[axis])
			return false;
	return a->dtype == b->dtype;
}

static enum kvt_status verify_group(struct verifying *v, const struct kvt_reblocked *said,
				    const struct kvt_run *run, struct kvt_error *err)
{
	const struct token_choice all = { .all_states = true, .named = true };
	const struct kvt_leaf *leaf = kvt_dump_is_leaf(v->after);
	/* of one tensor, groups have what is theirs alone */
	bool in_place = said->how != KVT_GATHERED && said->stale == said->stale_kept &&
			!(leaf && leaf->rows);
	struct comparison c = { .a = v->before, .group_a = v->group,
				.b = v->after, .group_b = v->group,
				.slots = in_place ? &v->pool : &v->tokens,
				.heads = &v->heads, .seen = v->seen };
	enum kvt_status status;

	if (!same_shape(pairs_group(v->a), pairs_group(v->b)))
		return kvt_fail(err, KVT_MISMATCH, "%s: shapes differ",
				pairs_group(v->a)->id);
	if ((status = check_requests(v, err)) ||
	    (status = slot_pairs_by_tokens(&v->tokens, v->a, v->b, &all, err)) ||
	    (status = head_pairs_init(&v->heads, pairs_group(v->a), pairs_group(v->b),
				      err)))
		return status;
	if (in_place && ((status = slot_pairs_of_pools(&v->pool, v->a, v->b, err)) ||
			 (status = check_in_place(v, err))))
		return status;
	return compare_elements(&c, 1, "verifying", run, NULL, NULL, err);
}

enum kvt_status reblock_verify(const struct kvt_dump *before,
			       const struct kvt_dump *after,
			       const struct kvt_reblocked said[KVT_MAX_GROUPS],
			       const struct seen *seen, const struct kvt_run *run,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *was = kvt_dump_snapshot(before);
	const struct kvt_snapshot *is = kvt_dump_snapshot(after);
	enum kvt_status status = KVT_OK;

	if (is->ngroups != was->ngroups)
		return kvt_fail(err, KVT_MISMATCH, "%d groups became %d", was->ngroups,
				is->ngroups);
	for (int g = 0; !status && g < was->ngroups; g++) {
		struct verifying v = { .before = before, .after = after, .seen = seen,
				       .group = g,
				       .a = { was, g }, .b = { is, g } };

		status = verify_group(&v, &said[g], run, err);
		slot_pairs_free(&v.tokens);
		slot_pairs_free(&v.pool);
		head_pairs_free(&v.heads);
	}
	return status;
}

enum kvt_status kvt_verify_reblocked(const struct kvt_dump *before,
				     const struct kvt_dump *after,
				     const struct kvt_reblocked *said,
				     const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_run quiet = { 0 };

	return reblock_verify(before, after, said, NULL, run ? run : &quiet, err);
}
