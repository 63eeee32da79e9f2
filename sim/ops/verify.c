/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - has every token of the destination the bytes of the source?
 *
 * Which element of the source belongs to one of the destination follows from what the
 * dumps say of themselves: the tables of a request, the number of a head or channel in
 * the model.  Plans, regions and kernels have no part in this.  What the tables do not
 * name must be what it was.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/compare.h"
#include "sim/ops/verify.h"

/* One group of all ranks. */
struct verifying {
	const struct kvt_sides *sides;
	const struct kvt_ranks *after;
	int group, src_group;
	struct slot_pairs moved, rest;
	struct head_pairs *heads;	/* [src ranks + 1][ranks]: the last with itself */
	struct kvt_dump **filled;	/* [ranks] of a new destination; owned */
	char (*name)[24];		/* [ranks] */
	struct comparison *list;
	int n, nmoved;
	struct digests *digests;	/* [ranks]; NULL: the sides have none in common */
	struct digest_job **job;	/* [ranks]; likewise */
};

static const struct kvt_group *group_of(const struct verifying *v, int rank)
{
	return &kvt_ranks_snapshot(v->after, rank)->group[v->group];
}

static const struct kvt_group *source_of(const struct verifying *v, int rank)
{
	return &kvt_ranks_snapshot(&v->sides->src, rank)->group[v->src_group];
}

static struct head_pairs *heads_of(const struct verifying *v, int src, int rank)
{
	return &v->heads[src * v->after->n + rank];
}

/* ---- heads --------------------------------------------------------------- */

static enum kvt_status check_owned(const struct verifying *v, int rank,
				   struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v, rank);
	bool conv = g->kind == KVT_MAMBA_CONV;

	for (int64_t i = 0; i < g->shape.n[conv ? KVT_AXIS_D : KVT_AXIS_H]; i++) {
		bool owned = false;

		for (int s = 0; s < v->sides->src.n; s++) {
			const struct head_pairs *p = heads_of(v, s, rank);

			owned |= (conv ? p->channel : p->head)[i] >= 0;
		}
		if (!owned)
			return kvt_fail(err, KVT_MISMATCH,
					"%s: rank %d has %s %lld, which no rank of the source has",
					g->id, rank, conv ? "channel" : "head",
					LL(kvt_head_id(g, i)));
	}
	return KVT_OK;
}

/* Each head and channel of a rank from the first rank of the source that has it. */
static enum kvt_status pair_heads(struct verifying *v, struct kvt_error *err)
{
	int nsrc = v->sides->src.n;
	enum kvt_status status = KVT_OK;

	v->heads = calloc((size_t)(nsrc + 1) * (size_t)v->after->n, sizeof(*v->heads));
	if (!v->heads)
		return kvt_no_memory(err, NULL);
	for (int r = 0; !status && r < v->after->n; r++) {
		for (int s = 0; !status && s < nsrc; s++) {
			status = head_pairs_init(heads_of(v, s, r), source_of(v, s),
						 group_of(v, r), err);
			for (int t = 0; !status && t < s; t++)
				head_pairs_without(heads_of(v, s, r), heads_of(v, t, r),
						   group_of(v, r));
		}
		if (!status)
			status = check_owned(v, r, err);
		if (!status)
			status = head_pairs_init(heads_of(v, nsrc, r), group_of(v, r),
						 group_of(v, r), err);
	}
	return status;
}

/* ---- what is compared ---------------------------------------------------- */

static void add(struct verifying *v, const struct kvt_dump *a, int group_a, int rank,
		const struct slot_pairs *slots, const struct head_pairs *heads,
		const char *was)
{
	v->list[v->n++] = (struct comparison){
		.a = a, .group_a = group_a, .b = v->after->file[rank].reader,
		.group_b = v->group, .slots = slots, .heads = heads,
		.name = v->name[rank], .was = was,
		.digest = v->job ? v->job[rank] : NULL,
	};
}

/* What a rank held before: its dump, or what a new one is filled with. */
static enum kvt_status held_before(const struct kvt_dump **out, struct verifying *v,
				   int rank, struct kvt_error *err)
{
	const struct kvt_ranks *dst = &v->sides->dst;
	enum kvt_status status;

	if (!dst->made) {
		*out = dst->file[rank].reader;
		return KVT_OK;
	}
	status = kvt_dump_of_constant(&v->filled[rank], &dst->made[rank], v->sides->fill,
				      err);
	*out = v->filled[rank];
	return status;
}

static enum kvt_status start_digests(struct verifying *v, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (!v->digests)
		return KVT_OK;
	if (!(v->job = calloc((size_t)v->after->n, sizeof(struct digest_job *))))
		return kvt_no_memory(err, NULL);
	for (int r = 0; !status && r < v->after->n; r++)
		status = digest_job_new(&v->job[r], &v->digests[r], v->group, err);
	return status;
}

static enum kvt_status list_all(struct verifying *v, struct kvt_error *err)
{
	int n = v->after->n, nsrc = v->sides->src.n;
	enum kvt_status status = KVT_OK;

	v->list = calloc((size_t)n * (size_t)(nsrc + 1), sizeof(*v->list));
	v->filled = calloc((size_t)n, sizeof(*v->filled));
	v->name = calloc((size_t)n, sizeof(*v->name));
	if (!v->list || !v->filled || !v->name)
		return kvt_no_memory(err, NULL);
	for (int r = 0; r < n; r++)
		snprintf(v->name[r], sizeof(v->name[r]), "rank %d", r);
	for (int s = 0; s < nsrc; s++)
		for (int r = 0; r < n; r++)
			if (head_pairs_any(heads_of(v, s, r), group_of(v, r)))
				add(v, v->sides->src.file[s].reader, v->src_group, r,
				    &v->moved, heads_of(v, s, r), NULL);
	for (int i = 0; i < v->n; i++)
		v->list[i].seen = v->sides->seen;
	v->nmoved = v->n;
	for (int r = 0; !status && r < n; r++) {
		const struct kvt_dump *before;

		if (!(status = held_before(&before, v, r, err)))
			add(v, before, v->group, r, &v->rest, heads_of(v, nsrc, r),
			    " as before");
	}
	return status;
}

/* ---- one group ----------------------------------------------------------- */

static void verifying_free(struct verifying *v)
{
	int nheads = (v->sides->src.n + 1) * v->after->n;

	for (int i = 0; v->heads && i < nheads; i++)
		head_pairs_free(&v->heads[i]);
	for (int r = 0; v->filled && r < v->after->n; r++)
		kvt_dump_close(v->filled[r]);
	for (int r = 0; v->job && r < v->after->n; r++)
		digest_job_free(v->job[r]);
	slot_pairs_free(&v->moved);
	slot_pairs_free(&v->rest);
	free(v->heads);
	free(v->filled);
	free(v->job);
	free(v->name);
	free(v->list);
}

static enum kvt_status verify_group(struct kvt_verified *out, struct verifying *v,
				    const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_sides *sides = v->sides;
	const struct token_choice choice = {
		.request = sides->request, .cached = sides->cached,
		.whole = sides->whole, .all_states = sides->all_states,
	};
	const struct kvt_snapshot *src = kvt_ranks_snapshot(&sides->src, 0);
	const struct pairs_side b = { kvt_ranks_snapshot(v->after, 0), v->group };
	struct pairs_side a = { src, 0 };
	enum kvt_status status;

	/* kvt_sides_join() saw to it that there is one */
	v->src_group = kvt_group_named(src, group_of(v, 0)->id);
	a.group = v->src_group;
	if ((status = slot_pairs_by_tokens(&v->moved, a, b, &choice, err)) ||
	    (v->digests && (status = check_all_paired(&v->moved, a, b, err))) ||
	    (status = slot_pairs_rest(&v->rest, b, &v->moved, err)) ||
	    (status = pair_heads(v, err)) || (status = start_digests(v, err)) ||
	    (status = list_all(v, err)))
		return status;
	status = compare_elements(v->list, v->n, "verifying", run, NULL, NULL, err);
	for (int i = 0; i < v->n; i++)
		*(i < v->nmoved ? &out->bytes : &out->untouched) += v->list[i].nbytes;
	return status;
}

/* ---- all of it ----------------------------------------------------------- */

static enum kvt_status check_outputs(const struct kvt_ranks *after,
				     const struct kvt_sides *sides, struct kvt_error *err)
{
	for (int r = 0; r < after->n; r++) {
		const struct kvt_snapshot *is = kvt_ranks_snapshot(after, r);
		const struct kvt_snapshot *wanted = kvt_ranks_snapshot(&sides->dst, r);
		struct kvt_error why = { "" };
		enum kvt_status status;

		if ((status = check_groups(is, wanted, &why)) ||
		    (status = check_tables(is, wanted, &why)))
			return kvt_fail(err, status, "rank %d: %.400s", r, why.text);
	}
	return KVT_OK;
}

static enum kvt_status verify_groups(struct kvt_verified *out,
				     const struct kvt_sides *sides,
				     const struct kvt_ranks *after,
				     struct digests *digests, const struct kvt_run *run,
				     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int r = 0; digests && !status && r < after->n; r++) {
		status = digests_init(&digests[r], after->file[r].reader, DIGEST_NEWEST,
				      err);
		digests[r].tokens_only = true;	/* as add_digests() does */
	}
	for (int g = 0; !status && g < kvt_ranks_snapshot(after, 0)->ngroups; g++) {
		struct verifying v = { .sides = sides, .after = after, .group = g,
				       .digests = digests };

		status = verify_group(out, &v, run, err);
		verifying_free(&v);
	}
	return status;
}

enum kvt_status kvt_sides_verify(struct kvt_verified *out, const struct kvt_sides *sides,
				 const struct kvt_ranks *after, const struct kvt_run *run,
				 struct kvt_error *err)
{
	double start = kvt_seconds_now();
	enum kvt_status status = check_outputs(after, sides, err);
	struct digests *digests = NULL;

	*out = (struct kvt_verified){ .bytes = 0 };
	if (!status && same_requests(sides) &&
	    !(digests = calloc((size_t)after->n, sizeof(*digests))))
		status = kvt_no_memory(err, NULL);
	if (!status)
		status = verify_groups(out, sides, after, digests, run, err);
	if (!status && digests)
		add_digests(out, after, digests);
	for (int r = 0; digests && r < after->n; r++)
		kvt_digests_free(&digests[r]);
	free(digests);
	out->seconds = kvt_seconds_now() - start;
	return status;
}
