/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice_proof.c - proves that moves between ranks lose and double nothing
 *
 * Where a position of a rank lies in the model is worked out here again, from spec and
 * rank.  Nothing of owner.c and slice.c may tell it: they are on trial.
 *
 *	each move	reads and writes what is there, and the same of the model
 *	all of a rank	sorted, the first begins at 0, each where the one before it
 *			ended, and the last ends where the rank does
 *
 * So each position of a destination is written once, by itself.  Moves have layers, too:
 * between two at which any begins or ends, all layers are alike.  What fails first is
 * told, with its rank, layer and place in the model.
 */
#include "lib/kvt/spec.h"

#include <stdio.h>

/* A run of positions of one rank that is a run of the model, too. */
struct range {
	int part;
	int64_t local, global, count;
};

struct holding {
	int nranges;
	int64_t count;
	struct range range[KVT_MAX_SPEC_PARTS];
};

struct trial {
	struct kvt_proof *proof;
	struct kvt_error *err;
	int nparts;
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
	int64_t ranks[2], layers;
};

enum { SRC, DST };

/* Rank r of n holds what it would hold if r/n of the units lay before it. */
static struct holding hold(const struct trial *t, int side, int64_t rank)
{
	struct holding h = { .nranges = t->nparts };
	int64_t size = t->ranks[side];

	for (int i = 0; i < t->nparts; i++) {
		const struct kvt_spec_part *part = &t->part[i];
		int64_t units = part->units > size ? part->units / size : 1;
		int64_t first = rank * part->units / size;

		h.range[i] = (struct range){ i, h.count, first * part->rows,
					     units * part->rows };
		h.count += units * part->rows;
	}
	return h;
}

static const struct range *range_at(const struct holding *h, int64_t local)
{
	for (int i = 0; i < h->nranges; i++)
		if (local - h->range[i].local >= 0 &&
		    local - h->range[i].local < h->range[i].count)
			return &h->range[i];
	return NULL;
}

/* ---- findings ----------------------------------------------------------- */

static const char *const phrase[] = {
	[KVT_FLAW_HOLE] = "is never written",
	[KVT_FLAW_DOUBLE] = "is written twice",
	[KVT_FLAW_MISPLACED] = "is written from another head or channel of the model",
	[KVT_FLAW_FOREIGN] = "is read where the source has no data",
	[KVT_FLAW_SPILL] = "is outside the destination",
};

static enum kvt_status found(const struct trial *t, enum kvt_flaw flaw,
			     const struct kvt_move *move, int64_t dst_rank,
			     int64_t layer, int64_t position)
{
	struct kvt_proof p = { .flaw = flaw, .src_rank = move ? move->src_rank : -1,
			       .dst_rank = dst_rank, .layer = layer,
			       .position = position, .global = -1 };
	const struct range *range = NULL;
	struct holding h = { .count = 0 };
	char from[48] = "", what[64];

	if (dst_rank >= 0 && dst_rank < t->ranks[DST]) {
		h = hold(t, DST, dst_rank);
		range = range_at(&h, position);
	}
	if (range) {
		p.part = t->part[range->part].name;
		p.global = range->global + (position - range->local);
	}
	*t->proof = p;
	if (move)
		snprintf(from, sizeof(from), " (from rank %lld)", LL(move->src_rank));
	if (p.part)
		snprintf(what, sizeof(what), "%s %lld", p.part, LL(p.global));
	else
		snprintf(what, sizeof(what), "position %lld", LL(position));
	return kvt_fail(t->err, KVT_MISMATCH, "rank %lld, layer %lld, %s %s%s",
			LL(dst_rank), LL(layer), what, phrase[flaw], from);
}

/* ---- one move ----------------------------------------------------------- */

/* Compares coordinates range by range; inside two ranges all positions agree. */
static enum kvt_status check_identity(const struct trial *t, const struct kvt_move *m,
				      const struct holding *src,
				      const struct holding *dst)
{
	for (int64_t i = 0, n; i < m->count; i += n) {
		const struct range *a = range_at(src, m->src + i);
		const struct range *b = range_at(dst, m->dst + i);
		int64_t in_a = m->src + i - a->local, in_b = m->dst + i - b->local;

		if (a->part != b->part || a->global + in_a != b->global + in_b)
			return found(t, KVT_FLAW_MISPLACED, m, m->dst_rank,
				     m->layers.begin, m->dst + i);
		n = a->count - in_a < b->count - in_b ? a->count - in_a : b->count - in_b;
	}
	return KVT_OK;
}

static enum kvt_status check_move(const struct trial *t, const struct kvt_move *m)
{
	struct holding src, dst;
	int64_t layers = t->layers;

	if (m->dst_rank < 0 || m->dst_rank >= t->ranks[DST])
		return found(t, KVT_FLAW_SPILL, m, m->dst_rank, m->layers.begin, m->dst);
	if (m->src_rank < 0 || m->src_rank >= t->ranks[SRC])
		return found(t, KVT_FLAW_FOREIGN, m, m->dst_rank, m->layers.begin,
			     m->dst);
	if (m->layers.begin < 0 || m->layers.begin >= m->layers.end ||
	    m->layers.end > layers)
		return found(t, KVT_FLAW_SPILL, m, m->dst_rank,
			     m->layers.begin < 0 ? m->layers.begin : layers, m->dst);
	dst = hold(t, DST, m->dst_rank);
	if (m->count < 1 || m->dst < 0 || m->dst > dst.count ||
	    m->count > dst.count - m->dst)
		return found(t, KVT_FLAW_SPILL, m, m->dst_rank, m->layers.begin,
			     m->dst < 0 ? m->dst : dst.count);
	src = hold(t, SRC, m->src_rank);
	if (m->src < 0 || m->src > src.count || m->count > src.count - m->src)
		return found(t, KVT_FLAW_FOREIGN, m, m->dst_rank, m->layers.begin,
			     m->src < 0 || m->src > src.count ?
			     m->dst : m->dst + (src.count - m->src));
	return check_identity(t, m, &src, &dst);
}

/* ---- all moves of a rank ------------------------------------------------ */

static bool before(const struct kvt_move *a, const struct kvt_move *b)
{
	if (a->dst_rank != b->dst_rank)
		return a->dst_rank < b->dst_rank;
	return a->dst < b->dst;
}

static void sift(struct kvt_move *moves, int64_t at, int64_t n)
{
	for (int64_t child; (child = 2 * at + 1) < n; at = child) {
		struct kvt_move m = moves[at];

		if (child + 1 < n && before(&moves[child], &moves[child + 1]))
			child++;
		if (!before(&m, &moves[child]))
			return;
		moves[at] = moves[child];
		moves[child] = m;
	}
}

/* By hand: qsort() may allocate. */
static void sort_moves(struct kvt_move *moves, int64_t n)
{
	for (int64_t i = n / 2 - 1; i >= 0; i--)
		sift(moves, i, n);
	for (int64_t i = n - 1; i > 0; i--) {
		struct kvt_move m = moves[0];

		moves[0] = moves[i];
		moves[i] = m;
		sift(moves, 0, i);
	}
}

/*
 * Moves come in ascending positions.  Between two layers at which no move
 * begins or ends all layers are alike, so one sweep proves them all.
 */
static enum kvt_status check_tiling(const struct trial *t, int64_t rank,
				    const struct kvt_move *moves, int64_t n)
{
	int64_t count = hold(t, DST, rank).count, layers = t->layers;

	for (int64_t layer = 0, next; layer < layers; layer = next) {
		int64_t at = 0;

		next = layers;
		for (int64_t i = 0; i < n; i++) {
			const struct kvt_move *m = &moves[i];

			if (m->layers.end <= layer)
				continue;
			if (m->layers.begin > layer) {
				if (m->layers.begin < next)
					next = m->layers.begin;
				continue;
			}
			if (m->dst != at)
				return m->dst < at ?
				       found(t, KVT_FLAW_DOUBLE, m, rank, layer, m->dst) :
				       found(t, KVT_FLAW_HOLE, NULL, rank, layer, at);
			at += m->count;
			if (m->layers.end < next)
				next = m->layers.end;
		}
		if (at < count)
			return found(t, KVT_FLAW_HOLE, NULL, rank, layer, at);
	}
	return KVT_OK;
}

static enum kvt_status add_up(struct trial *t)
{
	struct kvt_proof p = { .flaw = KVT_FLAW_NONE, .global = -1 };

	for (int i = 0; i < t->nparts; i++)
		p.unique += t->part[i].units * t->part[i].rows;
	p.moved = hold(t, DST, 0).count;
	if (__builtin_mul_overflow(p.moved, t->ranks[DST], &p.moved))
		p.moved = INT64_MAX;
	if (__builtin_mul_overflow(p.moved, t->layers, &p.moved) ||
	    __builtin_mul_overflow(p.unique, t->layers, &p.unique))
		return kvt_fail(t->err, KVT_BAD_INPUT,
				"%lld ranks of %lld layers are too many to count",
				LL(t->ranks[DST]), LL(t->layers));
	*t->proof = p;
	return KVT_OK;
}

static enum kvt_status prove(struct trial *t, struct kvt_move *moves, int64_t nmoves)
{
	enum kvt_status status;
	int64_t i = 0;

	for (int64_t j = 0; j < nmoves; j++)
		if ((status = check_move(t, &moves[j])))
			return status;
	sort_moves(moves, nmoves);
	for (int64_t rank = 0; rank < t->ranks[DST]; rank++) {
		int64_t begin = i;

		while (i < nmoves && moves[i].dst_rank == rank)
			i++;
		if ((status = check_tiling(t, rank, moves + begin, i - begin)))
			return status;
	}
	return add_up(t);
}

enum kvt_status kvt_moves_prove(struct kvt_proof *out,
				const struct kvt_transfer *transfer,
				struct kvt_move *moves, int64_t nmoves,
				struct kvt_error *err)
{
	struct kvt_proof unused;
	struct trial t = { .proof = out ? out : &unused, .err = err,
			   .ranks = { transfer->src_ranks, transfer->dst_ranks },
			   .layers = transfer->layers };
	enum kvt_status status;

	if ((status = kvt_transfer_check(transfer, err)))
		return status;
	t.nparts = kvt_spec_parts(t.part, transfer->dst);
	return prove(&t, moves, nmoves);
}
