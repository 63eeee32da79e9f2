/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.c - has every token of the destination the bytes of the source?
 *
 * Which element of the source belongs to one of the destination follows from
 * what the files say of themselves: the tables of a request, the number of a
 * head or channel in the model, the layout.  Plans, regions and kernels, which
 * made the one out of the other, have no part in this.
 */
#include "lib/ops/compare/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/address.h"

#define LL(x) ((long long)(x))

/* ---- what is wrong with an element ---------------------------------------- */

/* Whose state is it?  Any request that has the block will do. */
static const struct kvt_request *find_token(int64_t *token, const struct verifying *v,
					    const struct transfer_element *p)
{
	const struct kvt_snapshot *s = kvt_ranks_snapshot(v->after, 0);
	const struct kvt_group *g = group_of(v, 0);

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];

		if (!is_moved(v->sides, q->id) ||
		    !request_named(kvt_ranks_snapshot(&v->sides->src, 0), q->id))
			continue;
		for (int64_t i = 0; i < q->nblocks[v->group]; i++)
			if (q->blocks[v->group][i] == p->b) {
				*token = g->tokens_per_state < 0 ? i :
					 (q->first_token / g->block_size + i) *
					 g->block_size + p->s * g->tokens_per_state;
				return q;
			}
	}
	return NULL;
}

static int64_t first_byte(const uint8_t *a, const uint8_t *b, int64_t n)
{
	int64_t i = 0;

	while (i < n - 1 && a[i] == b[i])
		i++;
	return i;
}

static enum kvt_status transfer_differs(const struct verifying *v, int rank,
					const struct transfer_element *p,
			     int k, const uint8_t *is, const uint8_t *was,
			     struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v, rank);
	int64_t elem = g->shape.elem, token = 0, byte = first_byte(is, was, elem);
	const struct kvt_request *q = find_token(&token, v, p);
	const char *id = q ? q->id : "?";

	if (is_conv(v))
		return kvt_fail(err, KVT_MISMATCH,
				"%s: rank %d: request %s layer %lld tap %lld channel %lld byte %lld is 0x%02x, expected 0x%02x",
				g->id, rank, id, LL(kvt_layer_id(g, p->l)),
				LL(p->s), LL(kvt_head_id(g, p->d)), LL(byte),
				is[byte], was[byte]);
	return kvt_fail(err, KVT_MISMATCH,
			"%s: rank %d: request %s layer %lld token %lld head %lld byte %lld is 0x%02x, expected 0x%02x",
			g->id, rank, id, LL(kvt_layer_id(g, p->l)), LL(token),
			LL(g->head_start + p->h),
			LL((k * g->shape.n[KVT_AXIS_D] + p->d) * elem + byte), is[byte],
			was[byte]);
}

static enum kvt_status transfer_touched(const struct verifying *v, int rank,
					const struct transfer_element *p,
			     int k, const uint8_t *is, const uint8_t *was,
			     struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v, rank);
	int64_t elem = g->shape.elem, byte = first_byte(is, was, elem);

	return kvt_fail(err, KVT_MISMATCH,
			"%s: rank %d: layer %lld block %llu state %lld head %lld byte %lld is 0x%02x, but was 0x%02x",
			g->id, rank, LL(kvt_layer_id(g, p->l)),
			(unsigned long long)kvt_block_id(g, p->b), LL(p->s),
			LL(g->head_start + p->h),
			LL((k * g->shape.n[KVT_AXIS_D] + p->d) * elem + byte), is[byte],
			was[byte]);
}

/* ---- addresses ------------------------------------------------------- */

static const uint8_t *spot_at(const struct addresses *half,
			      const struct transfer_element *p)
{
	const int64_t index[KVT_NAXES] = { p->l, p->b, p->s, p->h };

	return address_of(half, index) + half->terms.at[KVT_AXIS_D][p->d];
}

/* ---- what arrived ---------------------------------------------------- */

/* One box of all ranks, as it is now. */
struct comparing {
	struct verifying *v;
	int src_rank, nk;
	struct placed *after;		/* [ranks] */
	struct addresses *half;		/* [ranks][nk] */
	int64_t bytes, untouched;
};

/* All of D at 'p' of a rank, which begins at y, and at x of the source. */
static enum kvt_status compare_head(struct comparing *c, const struct addresses *a,
				    const uint8_t *x, const struct addresses *b,
				    const uint8_t *y, int rank, struct transfer_element p,
				    int k,
				    struct kvt_error *err)
{
	int64_t n = b->view.shape.n[KVT_AXIS_D], elem = b->view.shape.elem;

	c->bytes += n * elem;
	if (a->terms.dense && b->terms.dense && !memcmp(x, y, (size_t)(n * elem)))
		return KVT_OK;
	for (; p.d < n; p.d++) {
		const uint8_t *was = x + a->terms.at[KVT_AXIS_D][p.d];
		const uint8_t *is = y + b->terms.at[KVT_AXIS_D][p.d];

		if (memcmp(is, was, (size_t)elem))
			return transfer_differs(c->v, rank, &p, k, is, was, err);
	}
	return KVT_OK;
}

/* The same of a conv state: the channels that this rank of the source gives. */
static enum kvt_status compare_channels(struct comparing *c, const struct addresses *a,
					const uint8_t *x, const struct addresses *b,
					const uint8_t *y, int rank,
					struct transfer_element p, int k,
					struct kvt_error *err)
{
	const struct owner *owner = c->v->owner + rank * c->v->nowners;
	int64_t elem = b->view.shape.elem;

	for (; p.d < c->v->nowners; p.d++) {
		const uint8_t *was = x + a->terms.at[KVT_AXIS_D][owner[p.d].index];
		const uint8_t *is = y + b->terms.at[KVT_AXIS_D][p.d];

		if (owner[p.d].rank != c->src_rank)
			continue;
		c->bytes += elem;
		if (memcmp(is, was, (size_t)elem))
			return transfer_differs(c->v, rank, &p, k, is, was, err);
	}
	return KVT_OK;
}

/* One state of one layer: the heads, or channels, that this rank gives. */
static enum kvt_status compare_state(struct comparing *c, const struct addresses *a,
				     const struct transfer_element *from, int rank,
				     struct transfer_element p,
				     int k, struct kvt_error *err)
{
	const struct owner *owner = c->v->owner + rank * c->v->nowners;
	const struct addresses *b = &c->half[rank * c->nk + k];
	const uint8_t *x = spot_at(a, from), *y = spot_at(b, &p);
	enum kvt_status status = KVT_OK;

	if (is_conv(c->v))
		return compare_channels(c, a, x, b, y, rank, p, k, err);
	for (; !status && p.h < c->v->nowners; p.h++) {
		const int64_t *there = &a->terms.at[KVT_AXIS_H][owner[p.h].index];

		if (owner[p.h].rank == c->src_rank)
			status = compare_head(c, a, x + *there, b,
					      y + b->terms.at[KVT_AXIS_H][p.h], rank,
					      p, k, err);
	}
	return status;
}

static enum kvt_status compare_span(struct comparing *c, const struct addresses *a,
				    const struct target_span *w, int64_t l, int k,
				    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int r = 0; !status && r < c->v->after->n; r++)
		for (int64_t s = 0; !status && s < w->span.count; s++) {
			struct transfer_element from = { l, w->span.block,
			w->span.state + s, 0, 0 };
			struct transfer_element to = { l, w->to, w->span.at + s, 0, 0 };

			status = compare_state(c, a, &from, r, to, k, err);
		}
	return status;
}

static enum kvt_status compare_spans(void *context, const struct spans_read *read,
				     struct kvt_error *err)
{
	struct comparing *c = context;
	int64_t elem = group_of(c->v, 0)->shape.elem;
	enum kvt_status status = KVT_OK;

	for (int k = 0; !status && k < c->nk; k++) {
		struct addresses a = { 0 };

		status = addresses_init(&a, &read->src, k, elem, err);
		for (int64_t l = read->layers[0]; !status && l < read->layers[1]; l++)
			for (int64_t i = 0; !status && i < read->n; i++)
				status = compare_span(c, &a, &read->wanted[i], l, k, err);
		address_terms_free(&a.terms);
	}
	return status;
}

/* ---- what did not ---------------------------------------------------- */

/* Are all bytes the first one?  'was' NULL: they should be, and that 'fill'. */
static bool unchanged(const uint8_t *is, const uint8_t *was, uint8_t fill, int64_t n)
{
	if (was)
		return !memcmp(is, was, (size_t)n);
	return is[0] == fill && !memcmp(is, is + 1, (size_t)n - 1);
}

/* The head at 'p' of a rank, and what was there: NULL is all fill. */
static enum kvt_status compare_old(const struct comparing *c, int rank,
				   struct transfer_element p,
				   int k, const uint8_t *before, struct kvt_error *err)
{
	const struct addresses *b = &c->half[rank * c->nk + k];
	int64_t n = b->view.shape.n[KVT_AXIS_D], elem = b->view.shape.elem;
	const uint8_t *head = spot_at(b, &p), fill = c->v->sides->fill;
	uint8_t filled[16];

	if (before)
		before += head - c->after[rank].bytes;
	if (b->terms.dense && unchanged(head, before, fill, n * elem))
		return KVT_OK;
	memset(filled, fill, sizeof(filled));
	for (; p.d < n; p.d++) {
		int64_t at = b->terms.at[KVT_AXIS_D][p.d];

		if (!unchanged(head + at, before ? before + at : NULL, fill, elem))
			return transfer_touched(c->v, rank, &p, k, head + at,
				       before ? before + at : filled, err);
	}
	return KVT_OK;
}

static enum kvt_status compare_rest(struct comparing *c, int rank, const uint8_t *before,
				    int k, struct kvt_error *err)
{
	const struct kvt_box *box = &c->after[rank].box;
	const int64_t *n = c->half[rank * c->nk + k].view.shape.n;
	int64_t elem = group_of(c->v, 0)->shape.elem;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < n[0] * n[1] * n[KVT_AXIS_S]; i++) {
		struct transfer_element p = { box->begin[0] + i / n[KVT_AXIS_S] / n[1],
				  box->begin[1] + i / n[KVT_AXIS_S] % n[1],
				  i % n[KVT_AXIS_S], 0, 0 };

		if (c->v->arrived[p.b * n[KVT_AXIS_S] + p.s])
			continue;
		for (; !status && p.h < n[KVT_AXIS_H]; p.h++)
			status = compare_old(c, rank, p, k, before, err);
		c->untouched += n[KVT_AXIS_H] * n[KVT_AXIS_D] * elem;
	}
	return status;
}

static enum kvt_status compare_untouched(struct kvt_worker *worker, struct comparing *c,
					 int rank, struct kvt_error *err)
{
	const struct verifying *v = c->v;
	const uint8_t *before = NULL;
	enum kvt_status status = KVT_OK;

	if (!v->sides->dst.made) {
		before = worker->buffer[1];
		status = kvt_read(worker, v->sides->dst.file[rank].reader, v->group,
				  &c->after[rank].box, NULL, worker->buffer[1], err);
	}
	for (int k = 0; !status && k < c->nk; k++)
		status = compare_rest(c, rank, before, k, err);
	return status;
}

/* ---- boxes ----------------------------------------------------------- */

/* What all ranks have there now, one after the other in memory. */
static enum kvt_status read_after(struct kvt_worker *worker, struct comparing *c,
				  const struct kvt_box *box, struct kvt_error *err)
{
	const struct verifying *v = c->v;
	int64_t elem = group_of(v, 0)->shape.elem;
	enum kvt_status status = KVT_OK;

	c->after = calloc((size_t)v->after->n, sizeof(*c->after));
	c->half = calloc((size_t)(v->after->n * c->nk) + 1, sizeof(*c->half));
	if (!c->after || !c->half)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int r = 0; !status && r < v->after->n; r++) {
		c->after[r] = (struct placed){
			&group_of(v, r)->layout, *box,
			worker->buffer[0] + r * v->cut.box_bytes,
		};
		status = kvt_read(worker, v->after->file[r].reader, v->group, box, NULL,
				  c->after[r].bytes, err);
		for (int k = 0; !status && k < c->nk; k++)
			status = addresses_init(&c->half[r * c->nk + k], &c->after[r], k,
					   elem, err);
	}
	return status;
}

static enum kvt_status compare_box(struct kvt_worker *worker, struct comparing *c,
				   const struct kvt_box *box, struct kvt_error *err)
{
	const struct verifying *v = c->v;
	const int64_t layers[2] = { box->begin[KVT_AXIS_L], box->end[KVT_AXIS_L] };
	int64_t n, rows = v->cut.blocks * group_of(v, 0)->shape.n[KVT_AXIS_S];
	struct target_span *wanted = span_list_of(&n, &v->pairs, box);
	enum kvt_status status = KVT_OK;

	if (!wanted)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (; n && !status && c->src_rank < v->sides->src.n; c->src_rank++)
		status = each_spans(worker,
				    leaf_of(v->sides->src.file[c->src_rank].reader),
				    v->src_group, layers, wanted, n, rows, compare_spans,
				    c, err);
	free(wanted);
	for (int r = 0; !status && r < v->after->n; r++)
		status = compare_untouched(worker, c, r, err);
	return status;
}

static enum kvt_status verify_box(struct kvt_worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	struct verifying *v = context;
	struct kvt_box box = kvt_cut_box(&v->cut, i);
	struct comparing c = { .v = v, .nk = (int)group_of(v, 0)->shape.n[KVT_AXIS_K] };
	enum kvt_status status = read_after(worker, &c, &box, err);

	if (!status)
		status = compare_box(worker, &c, &box, err);
	for (int h = 0; c.half && h < v->after->n * c.nk; h++)
		address_terms_free(&c.half[h].terms);
	free(c.half);
	free(c.after);
	kvt_worker_lock(worker);
	v->bytes += c.bytes;
	v->untouched += c.untouched;
	kvt_worker_unlock(worker);
	kvt_worker_progress(worker, v->cut.box_bytes * v->after->n);
	return status;
}

static enum kvt_status verify_boxes(struct verifying *v,
				    const struct kvt_run *run,
				    struct kvt_error *err)
{
	int64_t states = group_of(v, 0)->shape.n[KVT_AXIS_S];
	struct kvt_work work = { .fn = verify_box, .context = v, .label = "verifying" };
	enum kvt_status status;

	span_list_sort(&v->pairs);
	status = kvt_carry_cut(&v->cut, &work, v->sides, v->group,
			       kvt_dump_tiling(v->after->file[0].reader, v->group),
			       run->memory, err);
	if (status)
		return status;
	work.total_bytes = v->cut.nboxes * v->cut.box_bytes * v->after->n;
	work.buffer_bytes[0] = v->after->n * v->cut.box_bytes;
	work.buffer_bytes[1] = v->cut.box_bytes;
	for (int r = 0; r < v->after->n; r++)
		work_needs_tiles(&work, kvt_dump_tiling(v->after->file[r].reader,
							  v->group));
	for (int r = 0; r < v->sides->src.n; r++)
		work_needs_spans(&work, leaf_of(v->sides->src.file[r].reader),
				 v->src_group,
				 v->cut.layers, v->cut.blocks * states);
	return work.total_bytes ? kvt_work_run(&work, run, err) : KVT_OK;
}

static enum kvt_status verify_group(struct kvt_verified *out, struct verifying *v,
				    const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *src = kvt_ranks_snapshot(&v->sides->src, 0);
	const struct kvt_group *g = group_of(v, 0);
	enum kvt_status status;

	while (strcmp(src->group[v->src_group].id, g->id))
		v->src_group++;		/* sides_open() saw to it that there is one */
	v->arrived = calloc((size_t)(g->shape.n[KVT_AXIS_B] * g->shape.n[KVT_AXIS_S]) + 1,
			    1);
	if (!v->arrived)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if (!(status = pair_requests(v, err)) && !(status = find_owners(v, err)))
		status = verify_boxes(v, run, err);
	out->bytes += v->bytes;
	out->untouched += v->untouched;
	span_list_free(&v->pairs);
	free(v->arrived);
	free(v->owner);
	return status;
}

/* ---- all of it ------------------------------------------------------- */

/* Does a rank hold what was to be written: these groups, of this shape? */
static enum kvt_status check_groups(const struct kvt_snapshot *is,
				    const struct kvt_snapshot *wanted, int rank,
				    struct kvt_error *err)
{
	if (is->ngroups != wanted->ngroups)
		return kvt_fail(err, KVT_MISMATCH, "rank %d: %d groups became %d", rank,
				wanted->ngroups, is->ngroups);
	for (int g = 0; g < is->ngroups; g++) {
		const struct kvt_group *a = &wanted->group[g], *b = &is->group[g];

		if (strcmp(a->id, b->id))
			return kvt_fail(err, KVT_MISMATCH,
					"rank %d: group %s is in the place of %s", rank,
					b->id, a->id);
		if (memcmp(&a->shape, &b->shape, sizeof(a->shape)))
			return kvt_fail(err, KVT_MISMATCH, "%s: rank %d: shapes differ",
					a->id, rank);
	}
	return KVT_OK;
}

/* And these requests?  Those that are missing would go unseen. */
static enum kvt_status check_requests(const struct kvt_snapshot *is,
				      const struct kvt_snapshot *wanted, int rank,
				      struct kvt_error *err)
{
	for (int64_t i = 0; i < wanted->nrequests; i++) {
		const struct kvt_request *a = &wanted->request[i];
		const struct kvt_request *b = request_named(is, a->id);

		if (!b || a->ntokens != b->ntokens || a->first_token != b->first_token)
			return kvt_fail(err, KVT_MISMATCH,
					"rank %d: request %s: %lld tokens from %lld "
					"became %lld from %lld", rank, a->id,
					LL(a->ntokens), LL(a->first_token),
					LL(b ? b->ntokens : 0),
					LL(b ? b->first_token : 0));
	}
	return KVT_OK;
}

static enum kvt_status check_outputs(const struct kvt_ranks *after,
				     const struct kvt_sides *sides, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int r = 0; !status && r < after->n; r++) {
		const struct kvt_snapshot *is = kvt_ranks_snapshot(after, r);
		const struct kvt_snapshot *wanted = kvt_ranks_snapshot(&sides->dst, r);

		if (!(status = check_groups(is, wanted, r, err)))
			status = check_requests(is, wanted, r, err);
	}
	return status;
}

enum kvt_status kvt_sides_verify(struct kvt_verified *out, const struct kvt_sides *sides,
				 const struct kvt_ranks *after, const struct kvt_run *how,
				 struct kvt_error *err)
{
	struct kvt_run run = *how;
	double start = kvt_seconds_now();
	enum kvt_status status = check_outputs(after, sides, err);

	run.device = NULL;
	*out = (struct kvt_verified){ .bytes = 0 };
	for (int g = 0; !status && g < kvt_ranks_snapshot(after, 0)->ngroups; g++) {
		struct verifying v = { .sides = sides, .after = after, .group = g };

		status = verify_group(out, &v, &run, err);
	}
	if (!status && same_requests(sides))
		status = compare_digests(out, sides, after, &run, err);
	out->seconds = kvt_seconds_now() - start;
	return status;
}
