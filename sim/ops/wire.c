/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.c - a transfer between two processes, op by op
 *
 * The destination asks for a box of a part on one of its ranks.  The source answers
 * with frames of ops, each followed by its bytes, in the order of the plan, and an end.
 * The destination walks its own plan beside what arrives: an op that differs from the
 * one due, a box that ends early and a frame too many are KVT_BAD_INPUT.  An op longer
 * than a frame has room for is cut on both sides at the same places.
 */
#include "sim/ops/wire.h"

#include <stdlib.h>
#include <string.h>

#include "lib/tile/hash.h"

/* ---- the same plan? -------------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *bytes, int64_t n)
{
	uint64_t both[2] = { hash, kvt_cell_hash(bytes, n) };

	return kvt_cell_hash(both, sizeof(both));
}

static uint64_t mix_side(uint64_t hash, const struct kvt_xfer_side *side,
			 const struct kvt_layout *layout)
{
	const struct kvt_shape *shape = &side->views.view[0].shape;
	const int64_t field[] = { side->ranks, side->replicas, shape->elem };

	hash = mix(hash, field, sizeof(field));
	hash = mix(hash, shape->n, sizeof(shape->n));
	return mix(hash, kvt_layout_string(layout).s,
		   (int64_t)strlen(kvt_layout_string(layout).s));
}

static uint64_t plan_hash(const struct kvt_sides *sides)
{
	uint64_t hash = 0;

	for (int g = 0; g < sides->transfer.ngroups; g++) {
		const struct kvt_transfer_group *group = &sides->transfer.group[g];
		const struct kvt_xfer *x = &group->xfer;

		hash = mix(hash, group->name, (int64_t)strlen(group->name));
		hash = mix_side(hash, &x->src, &group->src_layout);
		hash = mix_side(hash, &x->dst, &group->dst_layout);
		hash = mix(hash, x->entry, x->nentries * (int64_t)sizeof(*x->entry));
	}
	return hash;
}

enum kvt_status wire_hello(const struct wire_peer *peer, const struct kvt_sides *sides,
			   struct kvt_error *err)
{
	uint64_t mine = plan_hash(sides);
	const uint8_t *payload;
	struct wire_head head;
	uint8_t hello[8];
	enum kvt_status status;

	wire_put(hello, 8, mine);
	if ((status = peer->send(peer->context, WIRE_HELLO, hello, 8, NULL, 0, err)) ||
	    (status = peer->receive(peer->context, &head, &payload, err)))
		return status;
	if (head.type != WIRE_HELLO)
		return kvt_fail(err, KVT_BAD_INPUT, head.type == WIRE_ADDRESS ?
				"the peer uses transport ucx" :
					"the peer sent no greeting");
	if (wire_take(payload, 8) != mine)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer has another plan: its dumps or options differ");
	return KVT_OK;
}

/* ---- ops in parts --------------------------------------------------- */

/* The ops of a pair; those that no frame has room for, in parts. */
struct feed {
	struct kvt_ops ops;
	struct kvt_op left;
};

static void feed_start(struct feed *f, const struct kvt_nest *nest)
{
	kvt_ops_start(&f->ops, nest, KVT_SCOPE_RFC);
	f->left.len = 0;
}

static bool feed_next(struct kvt_op *out, struct feed *f)
{
	if (!f->left.len && !kvt_op_next(&f->left, &f->ops))
		return false;
	*out = f->left;
	if (out->len > WIRE_RANGE)
		out->len = WIRE_RANGE;
	f->left.src += out->len;
	f->left.dst += out->len;
	f->left.len -= out->len;
	return true;
}

/* ---- the destination ------------------------------------------------- */

/* All ops of a frame, in the order of the plan. */
static enum kvt_status take_ops(uint8_t *dst, int64_t *moved, struct feed *feed,
				const struct wire_ops *ops, struct kvt_error *err)
{
	const uint8_t *data = ops->data;

	for (int64_t i = 0; i < ops->n; i++) {
		struct kvt_op got = wire_op_take(ops->list + i * WIRE_OP), want;

		if (!feed_next(&want, feed) || got.src != want.src ||
		    got.dst != want.dst || got.len != want.len)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the peer sent an op that is not in the plan: %lld bytes to offset %lld",
					LL(got.len), LL(got.dst));
		memcpy(dst + want.dst, data, (size_t)want.len);
		data += want.len;
		*moved += want.len;
	}
	return KVT_OK;
}

static enum kvt_status take_pair(const struct wire_peer *peer,
				 const struct kvt_pair *pair, const struct kvt_nest *nest,
				 uint8_t *dst, int64_t *moved, struct kvt_error *err)
{
	int64_t left = 0;
	struct kvt_op op;
	struct feed feed;
	enum kvt_status status = KVT_OK;

	feed_start(&feed, nest);
	while (feed_next(&op, &feed))
		left += op.len;
	feed_start(&feed, nest);
	while (!status && left > 0) {
		const uint8_t *payload;
		struct wire_head head;
		struct wire_ops ops;

		if ((status = peer->receive(peer->context, &head, &payload, err)))
			return status;
		if (head.type != WIRE_OPS)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the peer ended a box %lld bytes early", LL(left));
		if ((status = wire_ops_take(&ops, payload, head.length, err)))
			return status;
		if (ops.src_rank != pair->src_rank)
			return kvt_fail(err, KVT_BAD_INPUT,
					"the peer sent ops of rank %lld, expected rank %lld",
					LL(ops.src_rank), LL(pair->src_rank));
		status = take_ops(dst, moved, &feed, &ops, err);
		left -= ops.nbytes;
	}
	return status;
}

static enum kvt_status ask(const struct wire_peer *peer, const struct kvt_carry_box *box,
			   int rank, struct kvt_error *err)
{
	const struct wire_ask ask = { box->part, rank,
				      { box->layers[0], box->layers[1] },
				      { box->blocks[0], box->blocks[1] } };
	uint8_t bytes[WIRE_ASK_BYTES];

	wire_ask_put(bytes, &ask);
	return peer->send(peer->context, WIRE_ASK, bytes, sizeof(bytes), NULL, 0, err);
}

/* The box of one rank; 'dst' is where that begins. */
static enum kvt_status pull_rank(const struct wire_peer *peer,
				 const struct kvt_carry_box *box,
				 const struct kvt_carry_window *w, int rank, uint8_t *dst,
				 int64_t *moved, struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	enum kvt_status status = ask(peer, box, rank, err);
	const uint8_t *payload;
	struct wire_head head;
	struct kvt_pair pair;
	struct kvt_nest nest;

	while (!status && kvt_pair_next(&pair, &walk, &w->xfer))
		if (pair.dst_rank == rank &&
		    !(status = kvt_nest_init(&nest, &w->xfer, &pair, err)))
			status = take_pair(peer, &pair, &nest, dst, moved, err);
	if (status || (status = peer->receive(peer->context, &head, &payload, err)))
		return status;
	return head.type == WIRE_END ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT, "the peer sent more ops than the plan has");
}

enum kvt_status wire_pull(void *context, struct kvt_worker *worker,
			  const struct kvt_carry_box *box, uint8_t *dst, int64_t *moved,
			  struct kvt_error *err)
{
	struct kvt_carry_window w;
	enum kvt_status status = kvt_carry_window_init(&w, box, err);

	(void)worker;
	if (status)
		return status;
	for (int r = 0; !status && r < box->sides->dst.n; r++)
		status = pull_rank(context, box, &w, r, dst + r * box->rank_bytes, moved,
				   err);
	kvt_carry_window_free(&w);
	return status;
}

/* ---- the source ------------------------------------------------------ */

/* A frame of ops as it fills. */
struct frame {
	uint8_t list[8 + WIRE_MOST_OPS * WIRE_OP];
	uint8_t data[WIRE_RANGE];
	int64_t n, nbytes;
};

static enum kvt_status flush(const struct wire_peer *peer, struct frame *f,
			     int64_t src_rank, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	wire_put(f->list, 4, (uint64_t)src_rank);
	wire_put(f->list + 4, 4, (uint64_t)f->n);
	if (f->n)
		status = peer->send(peer->context, WIRE_OPS, f->list, 8 + f->n * WIRE_OP,
				    f->data, f->nbytes, err);
	f->n = f->nbytes = 0;
	return status;
}

static enum kvt_status give_pair(const struct wire_peer *peer, struct frame *f,
				 const uint8_t *src, const struct kvt_pair *pair,
				 const struct kvt_nest *nest, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_op op;
	struct feed feed;

	feed_start(&feed, nest);
	while (!status && feed_next(&op, &feed)) {
		if (f->n == WIRE_MOST_OPS || f->nbytes + op.len > WIRE_RANGE)
			status = flush(peer, f, pair->src_rank, err);
		wire_op_put(f->list + 8 + f->n++ * WIRE_OP, &op);
		memcpy(f->data + f->nbytes, src + op.src, (size_t)op.len);
		f->nbytes += op.len;
	}
	return status ? status : flush(peer, f, pair->src_rank, err);
}

struct serving {
	const struct wire_peer *peer;
	const struct kvt_sides *sides;
	int64_t room;			/* of a window */
	struct frame *frame;
};

/* Bytes of a window's blocks on one rank. */
static int64_t window_bytes(const struct kvt_carry_box *box,
			    const struct kvt_carry_window *w)
{
	const struct kvt_group *g = &kvt_ranks_snapshot(&box->sides->src, 0)->group[
		box->sides->transfer.group[box->part].src_group];
	int64_t nbytes = g->shape.elem * (box->layers[1] - box->layers[0]);

	for (int a = KVT_AXIS_S; a < KVT_NAXES; a++)
		nbytes *= g->shape.n[a];
	return nbytes * w->nblocks;
}

static enum kvt_status take_ask(struct kvt_carry_box *box, int *rank,
				const struct serving *s, const uint8_t *payload,
				int64_t length, struct kvt_error *err)
{
	const struct kvt_transfer_plan *transfer = &s->sides->transfer;
	struct kvt_box asked = { .begin = { 0 } };
	const int64_t *n;
	struct wire_ask a;
	enum kvt_status status = wire_ask_take(&a, payload, length, err);

	if (status)
		return status;
	if (a.part >= transfer->ngroups || a.rank >= s->sides->dst.n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer requests part %lld of rank %lld, which is not in the plan",
				LL(a.part), LL(a.rank));
	n = transfer->group[a.part].xfer.dst.views.view[0].shape.n;
	if (a.layers[0] >= a.layers[1] || a.layers[1] > n[KVT_AXIS_L] ||
	    a.blocks[0] >= a.blocks[1] || a.blocks[1] > n[KVT_AXIS_B])
		return kvt_fail(err, KVT_BAD_INPUT,
				"the peer requests layers %lld to %lld of blocks %lld to %lld",
				LL(a.layers[0]), LL(a.layers[1]), LL(a.blocks[0]),
				LL(a.blocks[1]));
	box_take(&asked, KVT_AXIS_L, a.layers[0], a.layers[1] - a.layers[0]);
	box_take(&asked, KVT_AXIS_B, a.blocks[0], a.blocks[1] - a.blocks[0]);
	*box = kvt_carry_box_of(s->sides, (int)a.part, &asked);
	*rank = (int)a.rank;
	return box->nspans ? KVT_OK :
	       kvt_fail(err, KVT_BAD_INPUT,
			"the peer requests blocks that the plan does not write");
}

static enum kvt_status give_box(struct kvt_worker *worker, const struct serving *s,
				const struct kvt_carry_box *box, int rank,
				struct kvt_error *err)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_carry_window w;
	struct kvt_pair pair;
	struct kvt_nest nest;
	enum kvt_status status = kvt_carry_window_init(&w, box, err);

	if (status)
		return status;
	if (window_bytes(box, &w) > s->room)
		status = kvt_fail(err, KVT_UNSUPPORTED,
				  "the peer requests more at once than --mem-limit allows");
	while (!status && kvt_pair_next(&pair, &walk, &w.xfer))
		if (pair.dst_rank == rank &&
		    !(status = kvt_nest_init(&nest, &w.xfer, &pair, err)) &&
		    !(status = kvt_carry_window_read(worker, box, &w, (int)pair.src_rank,
						     worker->buffer[1], err)))
			status = give_pair(s->peer, s->frame, worker->buffer[1], &pair,
					   &nest, err);
	kvt_carry_window_free(&w);
	/* the peer keeps what it got once it has heard of the end */
	if (!status)
		status = kvt_worker_settle(worker, err);
	return status ? status : s->peer->send(s->peer->context, WIRE_END, NULL, 0, NULL,
					       0, err);
}

static enum kvt_status serve(struct kvt_worker *worker, void *context, int64_t i,
			     struct kvt_error *err)
{
	const struct serving *s = context;
	const uint8_t *payload;
	enum kvt_status status;
	struct wire_head head;
	struct kvt_carry_box box;
	int rank = 0;

	(void)i;
	while (!(status = s->peer->receive(s->peer->context, &head, &payload,
					   err)) && head.type == WIRE_ASK)
		if ((status = take_ask(&box, &rank, s, payload, head.length, err)) ||
		    (status = give_box(worker, s, &box, rank, err)))
			return status;
	if (status || head.type == WIRE_BYE)
		return status;
	return kvt_fail(err, KVT_BAD_INPUT,
			"the peer sent a frame of type %d, expected %d",
			(int)head.type, (int)WIRE_ASK);
}

/*
 * What the destination will ask for depends on what it writes: there is room for
 * as much as it may want of a source with the same limit.
 */
static void needs_of(struct kvt_work *work, const struct kvt_sides *sides, int64_t room)
{
	work->buffer_bytes[1] = work->buffer_bytes[RANGE_BUFFER] = room;
	for (int r = 0; r < sides->src.n; r++)
		for (int g = 0; g < kvt_ranks_snapshot(&sides->src, r)->ngroups; g++)
			work_needs_ranges(work, leaf_of(sides->src.file[r].reader), g, 1,
					  1);
}

enum kvt_status wire_serve(const struct wire_peer *peer, const struct kvt_sides *sides,
			   const struct kvt_run *how, struct kvt_error *err)
{
	struct kvt_run run = *how;
	struct serving s = { .peer = peer, .sides = sides,
			     .room = kvt_carry_window_room(how->memory),
			     .frame = malloc(sizeof(*s.frame)) };
	struct kvt_work work = { .fn = serve, .context = &s, .count = 1 };
	enum kvt_status status;

	if (!s.frame)
		return kvt_no_memory(err, NULL);
	needs_of(&work, sides, s.room);
	run.device = NULL;
	run.progress = NULL;
	status = kvt_work_run(&work, &run, err);
	free(s.frame);
	return status;
}
