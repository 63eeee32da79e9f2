/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_verify.c - has every token of the destination the bytes of the source?
 *
 * Which element of the source belongs to one of the destination follows from
 * what the files say of themselves: the tables of a request, the number of a
 * head or channel in the model, the layout.  Plans, regions and kernels, which
 * made the one out of the other, have no part in this.
 */
#include "cli/sim_verify.h"

#include <stdlib.h>
#include <string.h>

#include "cli/half.h"

#define LL(x) ((long long)(x))

/* ---- addresses ------------------------------------------------------- */

/* An element, by what it is in the file. */
struct spot {
	int64_t l, b, s, h, d;
};

static const uint8_t *spot_at(const struct half *half, const struct spot *p)
{
	const int64_t index[KVT_NAXES] = { p->l, p->b, p->s, p->h };

	return half_at(half, index) + half->terms.at[KVT_AXIS_D][p->d];
}

/* ---- saying what is wrong -------------------------------------------- */

/* Whose state is it?  Any request that has the block will do. */
static const struct kvt_request *find_token(int64_t *token, const struct verifying *v,
					    const struct spot *p)
{
	const struct kvt_snapshot *s = kvt_reader_snapshot(v->after);
	const struct kvt_group *g = group_of(v);

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];

		if (!is_moved(v->sides, q->id) ||
		    !request_named(side_rank(&v->sides->src, 0), q->id))
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

static enum kvt_status differs(const struct verifying *v, const struct spot *p, int k,
			       const uint8_t *is, const uint8_t *was,
			       struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v);
	int64_t elem = g->shape.elem, token = 0, byte = first_byte(is, was, elem);
	const struct kvt_request *q = find_token(&token, v, p);
	const char *id = q ? q->id : "?";

	if (is_conv(v))
		return kvt_fail(err, KVT_MISMATCH,
				"%s: rank %d: request %s layer %lld tap %lld channel %lld byte %lld is 0x%02x, expected 0x%02x",
				g->id, v->rank, id, LL(digest_layer_id(g, p->l)),
				LL(p->s), LL(digest_head_id(g, p->d)), LL(byte),
				is[byte], was[byte]);
	return kvt_fail(err, KVT_MISMATCH,
			"%s: rank %d: request %s layer %lld token %lld head %lld byte %lld is 0x%02x, expected 0x%02x",
			g->id, v->rank, id, LL(digest_layer_id(g, p->l)), LL(token),
			LL(g->head_start + p->h),
			LL((k * g->shape.n[KVT_AXIS_D] + p->d) * elem + byte), is[byte],
			was[byte]);
}

static enum kvt_status touched(const struct verifying *v, const struct spot *p, int k,
			       const uint8_t *is, const uint8_t *was,
			       struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v);
	int64_t elem = g->shape.elem, byte = first_byte(is, was, elem);

	return kvt_fail(err, KVT_MISMATCH,
			"%s: rank %d: layer %lld block %lld state %lld head %lld byte %lld is 0x%02x, but was 0x%02x",
			g->id, v->rank, LL(digest_layer_id(g, p->l)), LL(p->b), LL(p->s),
			LL(g->head_start + p->h),
			LL((k * g->shape.n[KVT_AXIS_D] + p->d) * elem + byte), is[byte],
			was[byte]);
}

/* ---- what arrived ---------------------------------------------------- */

struct comparing {
	struct verifying *v;
	int src_rank;
	struct placed after;
	int64_t bytes;
};

/* Head 'there' of the source against head p->h: all of D. */
static enum kvt_status compare_head(struct comparing *c, const struct half *a,
				    struct spot from, const struct half *b, struct spot p,
				    int k, struct kvt_error *err)
{
	int64_t n = b->view.shape.n[KVT_AXIS_D], elem = b->view.shape.elem;

	c->bytes += n * elem;
	if (a->terms.dense && b->terms.dense &&
	    !memcmp(spot_at(a, &from), spot_at(b, &p), (size_t)(n * elem)))
		return KVT_OK;
	for (; p.d < n; p.d++, from.d++)
		if (memcmp(spot_at(a, &from), spot_at(b, &p), (size_t)elem))
			return differs(c->v, &p, k, spot_at(b, &p), spot_at(a, &from),
				       err);
	return KVT_OK;
}

/* One state of one layer: the heads, or channels, that this rank gives. */
static enum kvt_status compare_state(struct comparing *c, const struct half *a,
				     struct spot from, const struct half *b,
				     struct spot p, int k, struct kvt_error *err)
{
	const struct owner *owner = c->v->owner;
	int64_t elem = b->view.shape.elem;
	enum kvt_status status = KVT_OK;

	for (; !is_conv(c->v) && !status && p.h < b->view.shape.n[KVT_AXIS_H]; p.h++) {
		from.h = owner[p.h].index;
		if (owner[p.h].rank == c->src_rank)
			status = compare_head(c, a, from, b, p, k, err);
	}
	for (; is_conv(c->v) && p.d < b->view.shape.n[KVT_AXIS_D]; p.d++) {
		if (owner[p.d].rank != c->src_rank)
			continue;
		from.d = owner[p.d].index;
		c->bytes += elem;
		if (memcmp(spot_at(a, &from), spot_at(b, &p), (size_t)elem))
			return differs(c->v, &p, k, spot_at(b, &p), spot_at(a, &from),
				       err);
	}
	return status;
}

static enum kvt_status compare_k(struct comparing *c, const struct spans_read *read,
				 int k, struct kvt_error *err)
{
	int64_t elem = group_of(c->v)->shape.elem;
	struct half a = { 0 }, b = { 0 };
	enum kvt_status status;

	if (!(status = half_init(&a, &read->src, k, elem, err)))
		status = half_init(&b, &c->after, k, elem, err);
	for (int64_t l = read->layers[0]; !status && l < read->layers[1]; l++)
		for (int64_t i = 0; !status && i < read->n; i++) {
			const struct wanted *w = &read->wanted[i];

			for (int64_t s = 0; !status && s < w->span.count; s++) {
				struct spot from = { l, w->span.block,
						     w->span.state + s, 0, 0 };
				struct spot to = { l, w->to, w->span.at + s, 0, 0 };

				status = compare_state(c, &a, from, &b, to, k, err);
			}
		}
	terms_free(&a.terms);
	terms_free(&b.terms);
	return status;
}

static enum kvt_status compare_spans(void *context, const struct spans_read *read,
				     struct kvt_error *err)
{
	struct comparing *c = context;
	int64_t nk = group_of(c->v)->shape.n[KVT_AXIS_K];
	enum kvt_status status = KVT_OK;

	for (int k = 0; !status && k < nk; k++)
		status = compare_k(c, read, k, err);
	return status;
}

/* ---- what did not ---------------------------------------------------- */

static enum kvt_status compare_rest(struct comparing *c, const uint8_t *before, int k,
				    int64_t *bytes, struct kvt_error *err)
{
	const struct verifying *v = c->v;
	const struct kvt_box *box = &c->after.box;
	int64_t elem = group_of(v)->shape.elem;
	const int64_t *n;
	struct half b = { 0 };
	enum kvt_status status = half_init(&b, &c->after, k, elem, err);
	uint8_t filled[16];

	memset(filled, v->sides->fill, sizeof(filled));
	n = b.view.shape.n;
	for (int64_t i = 0; !status && i < n[0] * n[1] * n[KVT_AXIS_S]; i++) {
		struct spot p = { box->begin[0] + i / n[KVT_AXIS_S] / n[1],
				  box->begin[1] + i / n[KVT_AXIS_S] % n[1],
				  i % n[KVT_AXIS_S], 0, 0 };

		if (v->arrived[p.b * n[KVT_AXIS_S] + p.s])
			continue;
		for (int64_t j = 0; j < n[KVT_AXIS_H] * n[KVT_AXIS_D]; j++) {
			const uint8_t *is, *was = filled;

			p.h = j / n[KVT_AXIS_D];
			p.d = j % n[KVT_AXIS_D];
			is = spot_at(&b, &p);
			if (before)
				was = before + (is - c->after.bytes);
			if (memcmp(is, was, (size_t)elem)) {
				status = touched(v, &p, k, is, was, err);
				break;
			}
		}
		*bytes += n[KVT_AXIS_H] * n[KVT_AXIS_D] * elem;
	}
	terms_free(&b.terms);
	return status;
}

static enum kvt_status compare_untouched(struct worker *worker, struct comparing *c,
					 int64_t *bytes, struct kvt_error *err)
{
	const struct verifying *v = c->v;
	const uint8_t *before = NULL;
	enum kvt_status status = KVT_OK;

	if (!v->sides->dst.made) {
		before = worker->buffer[1];
		status = read_box(worker, v->sides->dst.file[v->rank].reader, v->group,
				  &c->after.box, worker->buffer[1], err);
	}
	for (int k = 0; !status && k < group_of(v)->shape.n[KVT_AXIS_K]; k++)
		status = compare_rest(c, before, k, bytes, err);
	return status;
}

/* ---- boxes ----------------------------------------------------------- */

static enum kvt_status verify_box(struct worker *worker, void *context, int64_t i,
				  struct kvt_error *err)
{
	struct verifying *v = context;
	struct kvt_box box = cut_box(&v->cut, i);
	const int64_t layers[2] = { box.begin[KVT_AXIS_L], box.end[KVT_AXIS_L] };
	int64_t n, untouched = 0;
	struct placed after = { &group_of(v)->layout, box, worker->buffer[0] };
	struct comparing c = { v, 0, after, 0 };
	struct wanted *wanted = wanted_of(&n, &v->pairs, &box);
	enum kvt_status status;

	if (!wanted)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = read_box(worker, v->after, v->group, &box, c.after.bytes, err);
	for (; n && !status && c.src_rank < v->sides->src.n; c.src_rank++)
		status = each_spans(worker, v->sides->src.file[c.src_rank].reader,
				    v->src_group, layers, wanted, n,
				    v->cut.blocks * group_of(v)->shape.n[KVT_AXIS_S],
				    compare_spans, &c, err);
	if (!status)
		status = compare_untouched(worker, &c, &untouched, err);
	free(wanted);
	pipeline_lock(worker);
	v->bytes += c.bytes;
	v->untouched += untouched;
	pipeline_unlock(worker);
	pipeline_progress(worker, v->cut.box_bytes);
	return status;
}

static enum kvt_status verify_boxes(struct verifying *v,
				    const struct pipeline_options *options,
				    struct kvt_error *err)
{
	const struct kvt_group *g = group_of(v);
	const struct kvt_tiling *tiling = kvt_reader_tiling(v->after, v->group);
	int64_t limit = options->mem_limit ? options->mem_limit : INT64_MAX;
	struct work work = { .fn = verify_box, .context = v, .label = "verifying" };

	wanted_sort(&v->pairs);
	v->cut = cut_choose(g, tiling, NULL, NULL, limit / 8);
	work.count = v->cut.nboxes;
	work.total_bytes = v->cut.nboxes * v->cut.box_bytes;
	work.buffer_bytes[0] = work.buffer_bytes[1] = v->cut.box_bytes;
	work_needs_tiles(&work, tiling);
	if (!v->sides->dst.made)
		work_needs_tiles(&work, kvt_reader_tiling(
			v->sides->dst.file[v->rank].reader, v->group));
	for (int r = 0; r < v->sides->src.n; r++)
		work_needs_spans(&work, v->sides->src.file[r].reader, v->src_group,
				 v->cut.layers, v->cut.blocks * g->shape.n[KVT_AXIS_S]);
	return work.total_bytes ? pipeline_run(&work, options, err) : KVT_OK;
}

static enum kvt_status verify_group(struct verified *out, struct verifying *v,
				    const struct pipeline_options *options,
				    struct kvt_error *err)
{
	const struct kvt_snapshot *src = side_rank(&v->sides->src, 0);
	const struct kvt_group *g = group_of(v);
	enum kvt_status status;

	while (strcmp(src->group[v->src_group].id, g->id))
		v->src_group++;		/* sides_open() saw to it that there is one */
	v->arrived = calloc((size_t)(g->shape.n[KVT_AXIS_B] * g->shape.n[KVT_AXIS_S]) + 1,
			    1);
	if (!v->arrived)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if (!(status = pair_requests(v, err)) && !(status = find_owners(v, err)))
		status = verify_boxes(v, options, err);
	out->bytes += v->bytes;
	out->untouched += v->untouched;
	wanted_free(&v->pairs);
	free(v->arrived);
	free(v->owner);
	return status;
}

/* ---- all of it ------------------------------------------------------- */

static enum kvt_status verify_all(struct verified *out, const struct sides *sides,
				  struct kvt_reader **again, const struct exec_args *args,
				  struct kvt_error *err)
{
	struct kvt_hints hints = { .format = args->create.format };
	struct pipeline_options options = exec_pipeline(args);
	enum kvt_status status = KVT_OK;

	for (int r = 0; !status && r < sides->dst.n; r++) {
		char name[4096];

		if ((status = output_name(name, sizeof(name), args->output, r,
					  sides->dst.n, err)) ||
		    (status = kvt_open(&again[r], name, &hints, err)))
			break;
		for (int g = 0; !status && g < side_rank(&sides->dst, r)->ngroups; g++) {
			struct verifying v = { .sides = sides, .after = again[r],
					       .rank = r, .group = g };

			status = verify_group(out, &v, &options, err);
		}
	}
	return status;
}

enum kvt_status sides_verify(struct verified *out, const struct sides *sides,
			     const struct exec_args *args, struct kvt_error *err)
{
	struct kvt_reader **again = calloc((size_t)sides->dst.n, sizeof(*again));
	enum kvt_status status;

	*out = (struct verified){ .bytes = 0 };
	if (!again)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	if (!(status = verify_all(out, sides, again, args, err)) && same_requests(sides))
		status = compare_digests(out, sides, again, args, err);
	for (int r = 0; r < sides->dst.n; r++)
		kvt_close_reader(again[r]);
	free(again);
	return status;
}
