/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trial.c - a plan that is carried out in memory, op by op, and verified
 *
 * Each rank of both sides is the dense array of each group.  A part of the plan is
 * planned once more between these arrays, which is the plan itself unless pages have
 * gaps; then its ops are copied as an engine would, with every byte of the destination
 * marked as it is written.  Whether the right bytes have arrived is for
 * kvt_sides_verify() to say, which knows nothing of the plan.
 */
#include "sim/ops/trial.h"

#include <stdlib.h>
#include <string.h>

/* ---- a side in memory ------------------------------------------------- */

static const struct kvt_shape *shape_of(const struct kvt_ranks *ranks, int rank, int g)
{
	return &kvt_ranks_snapshot(ranks, rank)->group[g].shape;
}

static uint8_t *bytes_of(const struct kvt_held_side *side, int64_t rank, int g)
{
	return side->bytes[rank * side->ngroups + g];
}

int64_t kvt_ranks_nbytes(const struct kvt_ranks *ranks)
{
	int64_t sum = 0, n;

	for (int r = 0; r < ranks->n; r++)
		for (int g = 0; g < kvt_ranks_snapshot(ranks, r)->ngroups; g++)
			if (kvt_shape_nbytes(&n, shape_of(ranks, r, g), NULL) ||
			    __builtin_add_overflow(sum, n, &sum))
				return INT64_MAX;
	return sum;
}

void kvt_held_free(struct kvt_held_side *side)
{
	for (int i = 0; side->bytes && i < side->ranks.n * side->ngroups; i++)
		free(side->bytes[i]);
	free(side->bytes);
	kvt_ranks_free(&side->ranks);
	*side = (struct kvt_held_side){ .bytes = NULL };
}

enum kvt_status kvt_held_new(struct kvt_held_side *side, const struct kvt_ranks *as,
			     uint8_t fill, int64_t most, struct kvt_error *err)
{
	*side = (struct kvt_held_side){
		.ngroups = kvt_ranks_snapshot(as, 0)->ngroups,
		.nbytes = kvt_ranks_nbytes(as),
	};
	if (side->nbytes > most)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"a side takes %s, expected at most %s: raise --mem-limit, or give fewer --tokens",
				kvt_size_string(side->nbytes).s, kvt_size_string(most).s);
	side->bytes = calloc((size_t)as->n * (size_t)side->ngroups + 1,
			     sizeof(*side->bytes));
	side->ranks.file = calloc((size_t)as->n + 1, sizeof(*side->ranks.file));
	if (!side->bytes || !side->ranks.file)
		return kvt_no_memory(err, NULL);
	side->ranks.n = as->n;
	for (int i = 0; i < as->n * side->ngroups; i++) {
		int64_t n;
		enum kvt_status status = kvt_shape_nbytes(&n, shape_of(
			as, i / side->ngroups, i % side->ngroups), err);

		if (status)
			return status;
		if (!(side->bytes[i] = malloc((size_t)n + 1)))
			return kvt_no_memory(err, NULL);
		memset(side->bytes[i], fill, (size_t)n);
	}
	return KVT_OK;
}

enum kvt_status kvt_held_open(struct kvt_held_side *side, const struct kvt_ranks *as,
			      struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int r = 0; !status && r < as->n; r++) {
		const void *bytes[KVT_MAX_GROUPS];

		for (int g = 0; g < side->ngroups; g++)
			bytes[g] = bytes_of(side, r, g);
		side->ranks.file[r].name = "memory";
		status = kvt_dump_of_memory(&side->ranks.file[r].reader,
					    kvt_ranks_snapshot(as, r), bytes, err);
	}
	return status;
}

enum kvt_status kvt_ranks_hollow(struct kvt_ranks *out, const struct kvt_ranks *as,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_ranks){
		.n = as->n, .file = calloc((size_t)as->n + 1, sizeof(*out->file)),
	};
	if (!out->file)
		return kvt_no_memory(err, NULL);
	for (int r = 0; !status && r < as->n; r++) {
		out->file[r].name = "nothing";
		status = kvt_dump_of_constant(&out->file[r].reader,
					      kvt_ranks_snapshot(as, r), 0, err);
	}
	return status;
}

enum kvt_status kvt_held_load(struct kvt_held_side *out, const struct kvt_ranks *from,
			      int64_t most, struct kvt_error *err)
{
	struct kvt_held_side side;
	enum kvt_status status = kvt_held_new(&side, from, 0, most, err);

	for (int i = 0; !status && i < from->n * side.ngroups; i++) {
		int r = i / side.ngroups, g = i % side.ngroups;
		struct kvt_box whole = kvt_box_whole(shape_of(from, r, g));

		status = kvt_dump_read(from->file[r].reader, g, &whole, NULL,
				       side.bytes[i], err);
	}
	if (!status)
		status = kvt_held_open(&side, from, err);
	if (status)
		kvt_held_free(&side);
	else
		*out = side;
	return status;
}

/* ---- ops ------------------------------------------------------------------ */

/* A part of the plan, between dense arrays. */
struct part {
	const struct kvt_transfer_group *group;
	struct kvt_xfer xfer;
	const struct kvt_held_side *src, *dst;
	int64_t src_nbytes, dst_nbytes;	/* of the group on any rank */
	uint8_t **written;		/* [ranks of dst]: 1 for each byte that is */
	int64_t moved;
};

static enum kvt_status wrong_op(const struct part *p, const struct kvt_pair *pair,
				const struct kvt_op *op, const char *what,
				struct kvt_error *err)
{
	return kvt_fail(err, KVT_MISMATCH,
			"%s: the op of %lld bytes from offset %lld of rank %lld to offset %lld of rank %lld %s",
			p->group->name, LL(op->len), LL(op->src), LL(pair->src_rank),
			LL(op->dst), LL(pair->dst_rank), what);
}

static bool is_inside(int64_t at, int64_t len, int64_t nbytes)
{
	return at >= 0 && len > 0 && len <= nbytes && at <= nbytes - len;
}

static enum kvt_status copy_op(struct part *p, const struct kvt_pair *pair,
			       const struct kvt_op *op, struct kvt_error *err)
{
	const uint8_t *src = bytes_of(p->src, pair->src_rank, p->group->src_group);
	uint8_t *dst = bytes_of(p->dst, pair->dst_rank, p->group->dst_group);
	uint8_t *written = p->written[pair->dst_rank];

	if (!is_inside(op->src, op->len, p->src_nbytes) ||
	    !is_inside(op->dst, op->len, p->dst_nbytes))
		return wrong_op(p, pair, op, "reaches outside", err);
	if (memchr(written + op->dst, 1, (size_t)op->len))
		return wrong_op(p, pair, op, "writes what another one has written", err);
	memset(written + op->dst, 1, (size_t)op->len);
	memcpy(dst + op->dst, src + op->src, (size_t)op->len);
	p->moved += op->len;
	return KVT_OK;
}

/* '*left' ops until one is spoilt. */
static enum kvt_status copy_pair(struct part *p, const struct kvt_pair *pair,
				 int64_t *left, struct kvt_error *err)
{
	uint8_t *dst = bytes_of(p->dst, pair->dst_rank, p->group->dst_group);
	struct kvt_nest nest;
	struct kvt_ops ops;
	struct kvt_op op;
	enum kvt_status status = kvt_nest_init(&nest, &p->xfer, pair, err);

	if (status)
		return status;
	kvt_ops_start(&ops, &nest, KVT_SCOPE_RFC);
	while (!status && kvt_op_next(&op, &ops))
		if (!(status = copy_op(p, pair, &op, err)) && !(*left)--)
			dst[op.dst] ^= 0xff;
	return status;
}

static enum kvt_status copy_all(struct part *p, int64_t *left, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	int64_t wanted, unique;
	struct kvt_pair pair;
	enum kvt_status status = kvt_xfer_nbytes(&wanted, &unique, &p->xfer, err);

	while (!status && kvt_pair_next(&pair, &walk, &p->xfer))
		status = copy_pair(p, &pair, left, err);
	if (status || p->moved == wanted)
		return status;
	return kvt_fail(err, KVT_MISMATCH, "%s: %lld bytes were moved, expected %lld",
			p->group->name, LL(p->moved), LL(wanted));
}

/* ---- parts ------------------------------------------------------------------ */

static enum kvt_status plan_part(struct part *p, struct kvt_error *err)
{
	const struct kvt_transfer_group *g = p->group;
	const struct kvt_shape *from = &g->xfer.src.views.view[0].shape;
	const struct kvt_shape *to = &g->xfer.dst.views.view[0].shape;
	struct kvt_xfer_side src, dst;
	enum kvt_status status;

	if ((status = kvt_side_dense(&src, &g->xfer.src, &g->src_layout,
				     from->n[KVT_AXIS_L], from->n[KVT_AXIS_B], err)) ||
	    (status = kvt_side_dense(&dst, &g->xfer.dst, &g->dst_layout,
				     to->n[KVT_AXIS_L], to->n[KVT_AXIS_B], err)))
		return status;
	return kvt_xfer_init(&p->xfer, &src, &dst, g->entry, g->xfer.nentries, err);
}

static void free_marks(struct part *p, int n)
{
	for (int r = 0; p->written && r < n; r++)
		free(p->written[r]);
	free(p->written);
}

static enum kvt_status make_marks(struct part *p, int n, struct kvt_error *err)
{
	p->written = calloc((size_t)n, sizeof(*p->written));
	for (int r = 0; p->written && r < n; r++)
		if (!(p->written[r] = calloc((size_t)p->dst_nbytes + 1, 1)))
			return kvt_no_memory(err, NULL);
	return p->written ? KVT_OK : kvt_no_memory(err, NULL);
}

static enum kvt_status run_part(const struct kvt_sides *sides,
				const struct kvt_held_side *src,
				const struct kvt_held_side *dst, int number,
				int64_t *left, struct kvt_error *err)
{
	const struct kvt_transfer_group *g = &sides->transfer.group[number];
	struct part p = { .group = g, .src = src, .dst = dst };
	enum kvt_status status;

	if ((status = kvt_shape_nbytes(&p.src_nbytes, shape_of(&sides->src, 0,
							       g->src_group), err)) ||
	    (status = kvt_shape_nbytes(&p.dst_nbytes, shape_of(&sides->dst, 0,
							       g->dst_group), err)) ||
	    (status = plan_part(&p, err)))
		return status;
	if (!(status = make_marks(&p, sides->dst.n, err)))
		status = copy_all(&p, left, err);
	free_marks(&p, sides->dst.n);
	return status;
}

/* ---- all of it -------------------------------------------------------------- */

enum kvt_status kvt_trial_run(struct kvt_held_side *out, struct kvt_verified *verified,
			      const struct kvt_sides *sides,
			      const struct kvt_held_side *src,
			      const struct kvt_trial_how *how, struct kvt_error *err)
{
	struct kvt_held_side dst;
	int64_t left = how->corrupt;
	enum kvt_status status = kvt_held_new(&dst, &sides->dst, sides->fill, how->most,
					      err);

	for (int p = 0; !status && p < sides->transfer.ngroups; p++)
		status = run_part(sides, src, &dst, p, &left, err);
	if (!status)
		status = kvt_held_open(&dst, &sides->dst, err);
	if (!status)
		status = kvt_sides_verify(verified, sides, &dst.ranks, &how->run, err);
	if (status)
		kvt_held_free(&dst);
	else
		*out = dst;
	return status;
}
