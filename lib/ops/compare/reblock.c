/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock.c - has each token of each request still the states it had?
 *
 * What is compared follows from the block tables of the two files alone, through
 * the block map of lib/; how the one was made of the other has no part in it, nor
 * have plans and kernels.
 */
#include "lib/dump/reblock.h"
#include "lib/ops/compare/compare.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/span_list.h"
#include "lib/kvt/connect.h"
#include "lib/ops/compare/address.h"

#define LL(x) ((long long)(x))

struct verifying {
	const struct kvt_dump *before, *after;
	int group;
	struct kvt_cut cut;
	struct span_list pairs;	/* by blocks of 'after' */
};

/* ---- what is compared --------------------------------------------------- */

static struct kvt_block_table table_of(const struct kvt_dump *reader, int group,
				       const uint32_t *ids, int64_t nids)
{
	const int64_t *n = kvt_dump_group(reader, group)->shape.n;

	return (struct kvt_block_table){ .ids = ids, .nids = nids,
					 .states = n[KVT_AXIS_S],
					 .pool = n[KVT_AXIS_B] };
}

static enum kvt_status add_pairs(struct verifying *v, const struct kvt_block_table *src,
				 const struct kvt_block_table *dst, int64_t states,
				 bool of_request, struct kvt_error *err)
{
	int64_t null_src = kvt_null_block(kvt_dump_snapshot(v->before), v->group);
	int64_t null_dst = kvt_null_block(kvt_dump_snapshot(v->after), v->group);
	struct kvt_block_map map;
	struct kvt_block_span span;
	enum kvt_status status = kvt_block_map_init(&map, src, dst, 0, states, err);

	while (!status && kvt_block_map_next(&map, &span)) {
		const struct target_span w = {
			{ (uint32_t)span.src_block, (uint32_t)span.src_state,
			  (uint32_t)span.dst_state, (uint32_t)span.count },
			span.dst_block
		};

		/* no token has its state in a null block, and a request has it often */
		if (!of_request || null_src < 0 || null_dst < 0 ||
		    span.src_block != null_src || span.dst_block != null_dst)
			status = span_list_add(&v->pairs, &w, err);
	}
	return status;
}

static const struct kvt_request *request_named(const struct kvt_snapshot *snapshot,
					       const char *id)
{
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		if (!strcmp(snapshot->request[r].id, id))
			return &snapshot->request[r];
	return NULL;
}

static enum kvt_status pair_request(struct verifying *v, const struct kvt_request *a,
				    struct kvt_error *err)
{
	const struct kvt_request *b = request_named(kvt_dump_snapshot(v->after), a->id);
	struct kvt_block_table src, dst;
	struct kvt_error why;
	int64_t states;

	if (!a->nblocks[v->group])
		return KVT_OK;
	if (!b || b->ntokens != a->ntokens)
		return kvt_fail(err, KVT_MISMATCH, "request %s: %lld tokens became %lld",
				a->id, LL(a->ntokens), LL(b ? b->ntokens : 0));
	states = live_states(kvt_dump_group(v->before, v->group), a, v->group);
	src = table_of(v->before, v->group, a->blocks[v->group], a->nblocks[v->group]);
	dst = table_of(v->after, v->group, b->blocks[v->group], b->nblocks[v->group]);
	if (add_pairs(v, &src, &dst, states, true, &why))
		return kvt_fail(err, KVT_MISMATCH, "request %s: %.400s", a->id, why.text);
	return KVT_OK;
}

/* The pool as one request that has every block. */
static enum kvt_status pair_pools(struct verifying *v, struct kvt_error *err)
{
	int64_t a = kvt_dump_group(v->before, v->group)->shape.n[KVT_AXIS_B];
	int64_t b = kvt_dump_group(v->after, v->group)->shape.n[KVT_AXIS_B];
	uint32_t *ids = calloc((size_t)(a > b ? a : b) + 1, sizeof(*ids));
	struct kvt_block_table src = table_of(v->before, v->group, ids, a);
	struct kvt_block_table dst = table_of(v->after, v->group, ids, b);
	enum kvt_status status;

	if (!ids)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; i < a || i < b; i++)
		ids[i] = (uint32_t)i;
	if ((status = add_pairs(v, &src, &dst, a * src.states, false, err)))
		status = KVT_MISMATCH;
	free(ids);
	return status;
}

/* ---- comparing ---------------------------------------------------------- */

static bool head_equal(const struct addresses *a, const uint8_t *pa,
		       const struct addresses *b,
		       const uint8_t *pb)
{
	int64_t n = a->view.shape.n[KVT_AXIS_D], elem = a->view.shape.elem;

	if (a->terms.dense && b->terms.dense)
		return !memcmp(pa, pb, (size_t)(n * elem));
	for (int64_t d = 0; d < n; d++)
		if (memcmp(pa + a->terms.at[KVT_AXIS_D][d],
			   pb + b->terms.at[KVT_AXIS_D][d], (size_t)elem))
			return false;
	return true;
}

/* Whose token is it?  Of a pool without requests only the block is known. */
static enum kvt_status differs(const struct verifying *v,
			       const int64_t at[KVT_NAXES], int k,
			       struct kvt_error *err)
{
	const struct kvt_snapshot *after = kvt_dump_snapshot(v->after);
	const struct kvt_group *group = &after->group[v->group];
	int64_t size = group->shape.n[KVT_AXIS_S], state = at[KVT_AXIS_S];

	for (int64_t r = 0; r < after->nrequests; r++)
		for (int64_t i = 0; i < after->request[r].nblocks[v->group]; i++)
			if (after->request[r].blocks[v->group][i] == at[KVT_AXIS_B])
				return kvt_fail(err, KVT_MISMATCH,
						"%s: request %s state %lld layer %lld head %lld kv %d differs",
						group->id, after->request[r].id,
						LL(i * size + state), LL(at[KVT_AXIS_L]),
						LL(at[KVT_AXIS_H]), k);
	return kvt_fail(err, KVT_MISMATCH,
			"%s: block %llu state %lld layer %lld head %lld kv %d differs",
			group->id,
			(unsigned long long)kvt_block_id(group, at[KVT_AXIS_B]),
			LL(state), LL(at[KVT_AXIS_L]), LL(at[KVT_AXIS_H]), k);
}

struct comparing {
	const struct verifying *v;
	struct placed after;
};

/* One layer of one pair, keys or values. */
static enum kvt_status compare_pair(const struct comparing *c,
				    const struct target_span *w,
				    const struct addresses *a, const struct addresses *b,
				    int64_t layer, int k, struct kvt_error *err)
{
	int64_t heads = a->view.shape.n[KVT_AXIS_H];

	for (int64_t i = 0; i < w->span.count; i++)
		for (int64_t h = 0; h < heads; h++) {
			const int64_t from[KVT_NAXES] = {
				layer, w->span.block, w->span.state + i, h,
			};
			const int64_t to[KVT_NAXES] = {
				layer, w->to, w->span.at + i, h,
			};

			if (!head_equal(a, address_of(a, from), b, address_of(b, to)))
				return differs(c->v, to, k, err);
		}
	return KVT_OK;
}

static enum kvt_status compare_k(const struct comparing *c, const struct spans_read *read,
				 int k, struct kvt_error *err)
{
	int64_t elem = kvt_dump_group(c->v->before, c->v->group)->shape.elem;
	struct addresses a = { 0 }, b = { 0 };
	enum kvt_status status;

	if (!(status = addresses_init(&a, &read->src, k, elem, err)))
		status = addresses_init(&b, &c->after, k, elem, err);
	for (int64_t l = read->layers[0]; l < read->layers[1]; l++)
		for (int64_t i = 0; !status && i < read->n; i++)
			status = compare_pair(c, &read->wanted[i], &a, &b, l, k, err);
	address_terms_free(&a.terms);
	address_terms_free(&b.terms);
	return status;
}

static enum kvt_status compare_spans(void *context, const struct spans_read *read,
				     struct kvt_error *err)
{
	const struct comparing *c = context;
	int64_t nk = kvt_dump_group(c->v->before, c->v->group)->shape.n[KVT_AXIS_K];
	enum kvt_status status = KVT_OK;

	for (int k = 0; !status && k < nk; k++)
		status = compare_k(c, read, k, err);
	return status;
}

static enum kvt_status verify_box(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	const struct verifying *v = context;
	const struct kvt_group *after = kvt_dump_group(v->after, v->group);
	struct kvt_box box = kvt_cut_box(&v->cut, i);
	const int64_t layers[2] = { box.begin[KVT_AXIS_L], box.end[KVT_AXIS_L] };
	struct comparing c = { v, { &after->layout, box, worker->buffer[0] } };
	int64_t n;
	struct target_span *wanted = span_list_of(&n, &v->pairs, &box);
	enum kvt_status status;

	if (!wanted)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = n ? kvt_read(worker, v->after, v->group, &box, NULL, c.after.bytes,
			      err) :
		     KVT_OK;
	if (!status)
		status = each_spans(worker, leaf_of(v->before), v->group, layers, wanted,
				    n,
				    v->cut.blocks * after->shape.n[KVT_AXIS_S],
				    compare_spans, &c, err);
	free(wanted);
	kvt_worker_progress(worker, v->cut.box_bytes);
	return status;
}

/* ---- all of it ---------------------------------------------------------- */

static bool same_shape(const struct kvt_group *a, const struct kvt_group *b)
{
	for (int axis = 0; axis < KVT_NAXES; axis++)
		if (axis != KVT_AXIS_B && axis != KVT_AXIS_S &&
		    a->shape.n[axis] != b->shape.n[axis])
			return false;
	return a->dtype == b->dtype;
}

static enum kvt_status verify_group(struct verifying *v,
				    const struct kvt_reblocked said[KVT_MAX_GROUPS],
				    const struct kvt_run *run,
				    struct kvt_error *err)
{
	const struct kvt_snapshot *before = kvt_dump_snapshot(v->before);
	const struct kvt_group *a = kvt_dump_group(v->before, v->group);
	const struct kvt_group *b = kvt_dump_group(v->after, v->group);
	const struct kvt_tiling *tiling = kvt_dump_tiling(v->after, v->group);
	int64_t limit = run->memory ? run->memory : INT64_MAX;
	struct kvt_work work = { .fn = verify_box, .context = v, .label = "verifying" };
	enum kvt_status status = KVT_OK;

	if (!same_shape(a, b))
		return kvt_fail(err, KVT_MISMATCH, "%s: shapes differ", a->id);
	for (int64_t r = 0; !status && r < before->nrequests; r++)
		status = pair_request(v, &before->request[r], err);
	if (!status && said->how != KVT_GATHERED && said->stale == said->stale_kept)
		status = pair_pools(v, err);
	if (status || !v->pairs.n)
		return status;
	span_list_sort(&v->pairs);
	v->cut = kvt_cut_choose(b, tiling, &a->layout, NULL, limit / 4);
	work.count = v->cut.nboxes;
	work.total_bytes = v->cut.nboxes * v->cut.box_bytes;
	work.buffer_bytes[0] = v->cut.box_bytes;
	work_needs_tiles(&work, tiling);
	work_needs_spans(&work, leaf_of(v->before), v->group, v->cut.layers,
			 v->cut.blocks * b->shape.n[KVT_AXIS_S]);
	return kvt_work_run(&work, run, err);
}

enum kvt_status reblock_verify(const struct kvt_dump *before,
			       const struct kvt_dump *after,
			       const struct kvt_reblocked said[KVT_MAX_GROUPS],
			       const struct kvt_run *run,
			       struct kvt_error *err)
{
	int ngroups = kvt_dump_snapshot(before)->ngroups;
	enum kvt_status status = KVT_OK;

	if (kvt_dump_snapshot(after)->ngroups != ngroups)
		return kvt_fail(err, KVT_MISMATCH, "%d groups became %d", ngroups,
				kvt_dump_snapshot(after)->ngroups);
	for (int g = 0; !status && g < ngroups; g++) {
		struct verifying v = { .before = before, .after = after, .group = g };

		status = verify_group(&v, &said[g], run, err);
		span_list_free(&v.pairs);
	}
	return status;
}
