/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swapped.c - keys and values that are exchanged, by what positions turn
 *
 * A model whose keys are not rotated has keys and values that turn a little, one way or
 * the other, and the more tokens there are the surer that is; so it is never how much the
 * values of a layer turn that decides.  Of a layer the keys of the other layers must
 * turn, those of nearly all heads the right way, and its values half as much; of all
 * layers the values of nearly every head must turn the right way, and more than its keys;
 * of a rank's heads in all layers the keys of the other heads must turn, too.
 */
#include "lib/ops/strange/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAST_TURNING 5.0		/* of values above keys, of all layers */
#define LEAST_TURNING_FEW 7.0		/* of a rank's heads, or few heads at all */
#define LEAST_TURNING_BESIDE 3.0	/* of one layer, and of the others */
#define SURE_TURNING 12.0
enum { LEAST_HEADS = 4, FEW_HEADS = 8 };

struct turned {
	double key, value;
	double usual;			/* what keys turn more than values elsewhere */
	double score;			/* below 1: they are not exchanged */
};

static double more_in_keys(const struct kvt_strangeness *out, const int64_t *n, int64_t l,
			   int64_t head, int64_t heads)
{
	return strange_together(out->turning, n, l, 0, head, heads) -
	       strange_together(out->turning, n, l, 1, head, heads);
}

/* ---- a layer ---------------------------------------------------------------- */

/* In the median of the other layers, the lower one of two. */
static double usual_beside(const struct kvt_strangeness *out, double *scratch,
			   const int64_t *n, const struct strange_region *r)
{
	int64_t others = 0;

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		if (l != r->layer)
			scratch[others++] = more_in_keys(out, n, l, r->head, r->heads);
	qsort(scratch, (size_t)others, sizeof(*scratch), kvt_by_double);
	return others < 2 ? 0 : scratch[(others - 1) / 2];
}

/* Of these heads of a layer, whose keys (0) or values turn the right way, and more. */
static int64_t count_turned(const struct kvt_strangeness *out, const int64_t *n,
			    const struct strange_region *r, int64_t l, int k)
{
	const double *of = out->turning + l * n[KVT_AXIS_K] * n[KVT_AXIS_H];
	int64_t count = 0;

	for (int64_t h = r->head; h < r->head + r->heads; h++) {
		double it = of[k * n[KVT_AXIS_H] + h], other = of[!k * n[KVT_AXIS_H] + h];

		count += it > 0 && it > other;
	}
	return count;
}

/* Do the keys of the other layers turn, as far as these heads tell? */
static bool keys_turn_beside(const struct kvt_strangeness *out, const int64_t *n,
			     const struct strange_region *r)
{
	int64_t all = (n[KVT_AXIS_L] - 1) * r->heads, right = 0;
	bool part = r->heads < n[KVT_AXIS_H];

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		if (l != r->layer)
			right += count_turned(out, n, r, l, 0);
	return part ? all >= FEW_HEADS && 10 * right >= 9 * all :
		      all >= LEAST_HEADS && 5 * right >= 4 * all;
}

static struct turned turned_layer(const struct kvt_strangeness *out, double *scratch,
				  const int64_t *n, const struct strange_region *r)
{
	struct turned t = {
		.key = strange_together(out->turning, n, r->layer, 0, r->head, r->heads),
		.value = strange_together(out->turning, n, r->layer, 1, r->head,
					  r->heads),
		.usual = usual_beside(out, scratch, n, r),
	};
	double least = r->heads < n[KVT_AXIS_H] ? LEAST_TURNING_FEW :
						  LEAST_TURNING_BESIDE;

	least = fmax(least, 0.5 * t.usual);
	if (t.usual >= LEAST_TURNING_BESIDE && t.value >= least &&
	    t.value - t.key >= least && 3 * t.key <= t.value &&
	    keys_turn_beside(out, n, r))
		t.score = t.value / least;
	return t;
}

/* ---- every layer ------------------------------------------------------------ */

/* What keys of all other heads turn more than values, all layers together. */
static double usual_of_others(const struct kvt_strangeness *out, const int64_t *n,
			      const struct strange_region *r)
{
	int64_t before = r->head, after = n[KVT_AXIS_H] - r->head - r->heads;
	double sum = 0;

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++) {
		if (before)
			sum += more_in_keys(out, n, l, 0, before) * sqrt((double)before);
		if (after)
			sum += more_in_keys(out, n, l, r->head + r->heads, after) *
			       sqrt((double)after);
	}
	return sum / sqrt((double)(n[KVT_AXIS_L] * (before + after)));
}

/* Do the keys of all other heads turn the right way, nearly all of them? */
static bool others_turn(const struct kvt_strangeness *out, const int64_t *n,
			const struct strange_region *r)
{
	const struct strange_region every = { -1, 0, n[KVT_AXIS_H] };
	int64_t all = n[KVT_AXIS_L] * (n[KVT_AXIS_H] - r->heads), right = 0;

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		right += count_turned(out, n, &every, l, 0) -
			 count_turned(out, n, r, l, 0);
	return 5 * right >= 4 * all;
}

static struct turned turned_all(const struct kvt_strangeness *out, const int64_t *n,
				const struct strange_region *r)
{
	int64_t heads = n[KVT_AXIS_L] * r->heads, right = 0;
	bool part = r->heads < n[KVT_AXIS_H];
	double least = part || heads < FEW_HEADS ? LEAST_TURNING_FEW : LEAST_TURNING;
	struct turned t = { .usual = part ? usual_of_others(out, n, r) : 0 };

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++) {
		t.key += strange_together(out->turning, n, l, 0, r->head, r->heads);
		t.value += strange_together(out->turning, n, l, 1, r->head, r->heads);
		right += count_turned(out, n, r, l, 1);
	}
	t.key /= sqrt((double)n[KVT_AXIS_L]);
	t.value /= sqrt((double)n[KVT_AXIS_L]);
	if (heads >= LEAST_HEADS && 10 * right >= 9 * heads && t.value >= least &&
	    t.value - t.key >= least && 3 * t.key <= t.value &&
	    (!part || (t.usual >= LEAST_TURNING && others_turn(out, n, r))))
		t.score = t.value / least;
	return t;
}

/* ---- which ------------------------------------------------------------------ */

static void tell(struct kvt_strangeness *out, const struct strange_seen *seen,
		 const struct strange_region *r, const struct turned *t)
{
	struct kvt_strange found = { .kind = KVT_STRANGE_SWAPPED, .score = t->score,
				     .sure = t->value - t->key >= SURE_TURNING ?
					     KVT_CERTAIN : KVT_LIKELY };
	char usual[80] = "";

	if (t->usual > 0)
		snprintf(usual, sizeof(usual),
			 " (of others the keys turn by %.1f more than the values)",
			 t->usual);
	strange_say_where(&found, seen, r);
	snprintf(found.text, sizeof(found.text),
		 "keys and values of %.80s are exchanged: its values turn with the position by %.1f, as only rotated keys do, its keys by %.1f%s",
		 strange_region_text(seen, r).s, t->value, t->key, usual);
	strange_add(out, &found);
}

/* The ranks of a size: in every layer, or in some; true: anything was found. */
static bool seek_ranks(struct kvt_strangeness *out, const struct strange_seen *seen,
		       double *scratch, int64_t rank)
{
	const int64_t *n = seen->group->shape.n;
	int64_t before = out->count;

	for (int64_t h = 0; h < n[KVT_AXIS_H]; h += rank) {
		struct strange_region r = { -1, h, rank };
		struct turned t = turned_all(out, n, &r);

		if (t.score >= 1) {
			tell(out, seen, &r, &t);
			continue;
		}
		for (r.layer = 0; r.layer < n[KVT_AXIS_L]; r.layer++) {
			t = turned_layer(out, scratch, n, &r);
			if (t.score >= 1)
				tell(out, seen, &r, &t);
		}
	}
	return out->count > before;
}

void strange_seek_swapped(struct kvt_strangeness *out, const struct strange_seen *seen,
			  double *scratch)
{
	int64_t heads = seen->group->shape.n[KVT_AXIS_H];

	for (int64_t rank = heads; rank > 0; rank /= 2)
		if (heads % rank == 0 && seek_ranks(out, seen, scratch, rank))
			return;
}
