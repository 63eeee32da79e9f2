/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - layers and ranks whose numbers are larger or smaller than those of the others
 *
 * Nothing is known of the model, so layers and heads are compared with each other: what
 * is told must be far from the others, and these near each other.  Limits are about twice
 * what any sound dump of the engines has shown.
 */
#include "lib/ops/strange/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Logarithms. */
#define LEAST_LAYER 1.386		/* 4 times what the layers beside it have */
#define LEAST_END 2.079			/* the first, the last, some heads: 8 times */
#define LEAST_RANK 1.099		/* 3 times the other heads, in every layer */
#define LEAST_SPREADS 5.0		/* as far, in spreads of the others */
#define LEAST_SPREAD 0.2

struct scales {
	const double *unit;		/* [L][K][H] */
	const int64_t *n;
	int64_t k;
};

/* A region whose numbers are larger or smaller than the others'. */
struct jump {
	struct strange_region where;
	double by;			/* logarithm */
	double spread;			/* of the others */
	double score;			/* 1 is what is allowed */
};

static double unit_at(const struct scales *s, int64_t l, int64_t h)
{
	return s->unit[(l * s->n[KVT_AXIS_K] + s->k) * s->n[KVT_AXIS_H] + h];
}

/* Mean and spread of heads [h, h + heads) of a layer, or of all others. */
struct mean {
	double mean, spread;
};

static struct mean mean_of(const struct scales *s, int64_t l, int64_t h, int64_t heads,
			   bool others)
{
	double sum = 0, squares = 0, n = 0;

	for (int64_t i = 0; i < s->n[KVT_AXIS_H]; i++) {
		if ((i >= h && i < h + heads) == others)
			continue;
		sum += unit_at(s, l, i);
		squares += unit_at(s, l, i) * unit_at(s, l, i);
		n++;
	}
	return (struct mean){ sum / n,
			      sqrt(fmax(squares / n - sum / n * (sum / n), 0)) };
}

/* Of a layer above those beside it, two on either side at most. */
static double jump_of(const struct scales *s, int64_t l, int64_t h, int64_t heads)
{
	double beside[4];
	int n = 0;

	for (int64_t i = l - 2; i <= l + 2; i++)
		if (i != l && i >= 0 && i < s->n[KVT_AXIS_L])
			beside[n++] = mean_of(s, i, h, heads, false).mean;
	if (n < 2)
		return 0;
	qsort(beside, (size_t)n, sizeof(*beside), kvt_by_double);
	return mean_of(s, l, h, heads, false).mean -
	       0.5 * (beside[(n - 1) / 2] + beside[n / 2]);
}

/* How far neighbours are apart among the other layers, as if this one were not there. */
static double steps_without(const struct scales *s, int64_t l, int64_t h, int64_t heads)
{
	double before = NAN, squares = 0, n = 0;

	for (int64_t i = 0; i < s->n[KVT_AXIS_L]; i++) {
		double now;

		if (i == l)
			continue;
		now = mean_of(s, i, h, heads, false).mean;
		if (!isnan(before)) {
			squares += (now - before) * (now - before);
			n++;
		}
		before = now;
	}
	return n > 0 ? sqrt(squares / n) : 0;
}

/* Have all of these heads jumped, and not the others? */
static bool is_of_heads(const struct scales *s, const struct jump *j)
{
	const struct strange_region *r = &j->where;

	for (int64_t h = 0; h < s->n[KVT_AXIS_H]; h++) {
		double by = jump_of(s, r->layer, h, 1) / j->by;

		if ((h >= r->head && h < r->head + r->heads) != (by > 0.5))
			return false;
	}
	return true;
}

/* One layer against those beside it: of all of its heads, or of a rank's. */
static struct jump layer_jump(const struct scales *s, int64_t l, int64_t h, int64_t heads)
{
	int64_t layers = s->n[KVT_AXIS_L];
	struct jump j = { .where = { l, h, heads }, .by = jump_of(s, l, h, heads) };
	bool part = heads < s->n[KVT_AXIS_H];
	double least = part || l == 0 || l == layers - 1 ? LEAST_END : LEAST_LAYER;

	j.spread = fmax(LEAST_SPREAD, steps_without(s, l, h, heads));
	if (layers > 2 && fabs(j.by) >= least && is_of_heads(s, &j))
		j.score = fabs(j.by) / j.spread / LEAST_SPREADS;
	return j;
}

/* A rank's heads against the others, the same in every layer. */
static struct jump rank_jump(const struct scales *s, int64_t h, int64_t heads)
{
	int64_t layers = s->n[KVT_AXIS_L];
	struct jump j = { .where = { -1, h, heads } };
	double sum = 0, squares = 0, within = 0, n = (double)layers;

	for (int64_t l = 0; l < layers; l++) {
		struct mean these = mean_of(s, l, h, heads, false);
		struct mean others = mean_of(s, l, h, heads, true);

		sum += these.mean - others.mean;
		squares += (these.mean - others.mean) * (these.mean - others.mean);
		within += fmax(these.spread, others.spread) / n;
	}
	j.by = sum / n;
	j.spread = fmax(fmax(LEAST_SPREAD, within),
			sqrt(fmax(squares / n - j.by * j.by, 0)));
	if (layers > 2 && fabs(j.by) >= LEAST_RANK)
		j.score = fabs(j.by) / j.spread / LEAST_SPREADS;
	return j;
}

/* One of them became smaller as the other became larger: they are exchanged. */
static bool is_exchange(const struct scales *s, const struct jump *j)
{
	const struct scales other = { s->unit, s->n, !s->k };
	double by;

	if (s->n[KVT_AXIS_K] < 2 || j->where.layer < 0)
		return false;
	by = jump_of(&other, j->where.layer, j->where.head, j->where.heads);
	return by / j->by < -0.5;
}

static void tell_exchange(struct kvt_strangeness *out, const struct strange_seen *seen,
			  const struct jump *j)
{
	struct kvt_strange found = { .kind = KVT_STRANGE_SWAPPED, .score = j->score,
				     .sure = KVT_LIKELY };

	strange_say_where(&found, seen, &j->where);
	snprintf(found.text, sizeof(found.text),
		 "keys and values of %.80s are exchanged: one is %.3g times larger than in the layers beside it, and the other smaller",
		 strange_region_text(seen, &j->where).s, exp(fabs(j->by)));
	strange_add(out, &found);
}

static void tell_scale(struct kvt_strangeness *out, const struct strange_seen *seen,
		       const struct jump *j, int64_t k)
{
	struct kvt_strange found = { .kind = KVT_STRANGE_SCALE, .score = j->score,
				     .sure = KVT_LIKELY };
	bool one = seen->group->shape.n[KVT_AXIS_K] == 1;

	strange_say_where(&found, seen, &j->where);
	snprintf(found.text, sizeof(found.text),
		 "%s of %.80s are %.3g times %s than those of %s: was a scale forgotten, or applied twice? (the others are within %.2g times of each other)",
		 one ? "numbers" : k ? "values" : "keys",
		 strange_region_text(seen, &j->where).s,
		 exp(fabs(j->by)), j->by > 0 ? "larger" : "smaller",
		 j->where.layer < 0 ? "the other heads" : "the layers beside it",
		 exp(j->spread));
	strange_add(out, &found);
}

static bool all_change(const struct scales *s)
{
	for (int64_t l = 0; l < s->n[KVT_AXIS_L]; l++)
		for (int64_t h = 0; h < s->n[KVT_AXIS_H]; h++)
			if (isnan(unit_at(s, l, h)))
				return false;
	return true;
}

/*
 * The jump that is farthest out of line, of layers and of ranks of every size.  True: it
 * is of keys and values both.
 */
static bool seek_scale(struct kvt_strangeness *out, const struct strange_seen *seen,
		       const struct scales *s)
{
	int64_t heads = s->n[KVT_AXIS_H];
	struct jump most = { .score = 0 };

	for (int64_t rank = heads; rank > 0; rank /= 2)
		for (int64_t h = 0; heads % rank == 0 && h < heads; h += rank) {
			struct jump j = { .score = 0 };

			if (rank < heads)
				j = rank_jump(s, h, rank);
			if (j.score > most.score)
				most = j;
			for (int64_t l = 0; l < s->n[KVT_AXIS_L]; l++) {
				j = layer_jump(s, l, h, rank);
				if (j.score > most.score)
					most = j;
			}
		}
	if (most.score >= 1 && is_exchange(s, &most)) {
		tell_exchange(out, seen, &most);
		return true;
	}
	if (most.score >= 1)
		tell_scale(out, seen, &most, s->k);
	return false;
}

void strange_seek_scales(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	const int64_t *n = seen->group->shape.n;

	for (int64_t k = 0; k < n[KVT_AXIS_K]; k++) {
		const struct scales scales = { out->unit, n, k };

		if (all_change(&scales) && seek_scale(out, seen, &scales))
			return;
	}
}
