/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c - which measures are out of line
 *
 * Nothing is known of the model, so layers, heads and ranks are held against each other:
 * what is a finding must be far from the others and the others near each other.  Limits
 * are about twice what any sound dump of the engines has shown; 'score' says by how much
 * one was passed.
 *
 * A rank is so many heads one after the other, as many as divide all; the largest that a
 * finding holds for is told, and nothing within it again.
 */
#include "lib/ops/strange/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/print.h"

enum {
	LEAST_SLOTS = 8,
	MOST_PERHAPS = 3,
	MOST_CELLS = 1 << 14,		/* heads of all layers: models have less */
};

/* What must be passed; scales are logarithms. */
#define LEAST_TURNING 5.0		/* of values above keys; of a few heads 7 */
#define LEAST_TURNING_FEW 7.0
#define SURE_TURNING 12.0
#define LEAST_TURNING_BESIDE 3.0	/* where the others turn so much */
#define LEAST_LAYER 1.386		/* 4 times what the layers beside it have */
#define LEAST_END 2.079			/* the first and the last layer: 8 times */
#define LEAST_RANK 1.099		/* 3 times the other heads, in every layer */
#define LEAST_SPREADS 5.0		/* as far, in spreads of the others */
#define LEAST_SPREAD 0.2

const char *kvt_strange_name(enum kvt_strange_kind kind)
{
	static const char *const names[KVT_NSTRANGE] = {
		[KVT_STRANGE_SWAPPED] = "swapped-kv", [KVT_STRANGE_SCALE] = "scale",
		[KVT_STRANGE_TWICE] = "twice", [KVT_STRANGE_CUT_OFF] = "cut-off",
	};

	return names[kind];
}

const char *kvt_sure_name(enum kvt_sure sure)
{
	static const char *const names[] = { "perhaps", "likely", "certain" };

	return names[sure];
}

/* Of what is perhaps strange a few are enough, so that they leave room for the rest. */
void strange_add(struct kvt_strangeness *out, const struct kvt_strange *found)
{
	int perhaps = 0;

	for (int i = 0; i < out->n; i++)
		perhaps += out->found[i].sure == KVT_PERHAPS;
	out->count++;
	if (out->n < KVT_MAX_STRANGE &&
	    (found->sure > KVT_PERHAPS || perhaps < MOST_PERHAPS))
		out->found[out->n++] = *found;
}

/* ---- measures --------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The upper one of an even number. */
static double median(double *x, int64_t n)
{
	qsort(x, (size_t)n, sizeof(*x), by_value);
	return x[n / 2];
}

/* NaN: most channels never change, as those of zeros. */
static double unit_of(double *scratch, const double *sum, double slots, int64_t dim)
{
	double found;

	for (int64_t d = 0; d < dim; d++) {
		double mean = sum[2 * d] / slots;

		scratch[d] = sqrt(fmax(sum[2 * d + 1] / slots - mean * mean, 0));
	}
	found = median(scratch, dim);
	return found > 0 ? log(found) : NAN;
}

/* In spreads of what chance would do, if all turns were apart from each other. */
static double turning_of(const double *sum, int64_t pairs)
{
	double total = 0, n = 0;

	for (int64_t i = 0; i < pairs; i++) {
		if (!(sum[2 * i + 1] > 0))
			continue;
		total += sum[2 * i] / sqrt(sum[2 * i + 1]);
		n++;
	}
	return n > 0 ? total / sqrt(n) : 0;
}

/* Where the turns of a pairing begin, behind the sums of the elements. */
static int64_t turns_at(const struct strange_seen *seen, int pairing)
{
	int64_t at = 2 * seen->group->shape.n[KVT_AXIS_D];

	for (int p = 0; p < pairing; p++)
		at += 2 * seen->pairing[p].count;
	return at;
}

static const double *head_sums(const struct strange_seen *seen, int64_t l, int64_t i)
{
	return seen->sums + l * seen->layer_room + 1 + i * seen->each;
}

/* Of heads [h, h + n) of keys (0) or values, together. */
static double together(const double *turning, const int64_t *n, int64_t l, int64_t k,
		       int64_t h, int64_t heads)
{
	double sum = 0;

	for (int64_t i = h; i < h + heads; i++)
		sum += turning[(l * n[KVT_AXIS_K] + k) * n[KVT_AXIS_H] + i];
	return sum / sqrt((double)heads);
}

static void turn_all(double *out, const struct strange_seen *seen, int pairing)
{
	const int64_t *n = seen->group->shape.n;
	int64_t each = n[KVT_AXIS_K] * n[KVT_AXIS_H], at = turns_at(seen, pairing);

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		for (int64_t i = 0; i < each; i++)
			out[l * each + i] = turning_of(head_sums(seen, l, i) + at,
						       seen->pairing[pairing].count);
}

/* The pairing that turns most, in the keys or the values of each layer. */
static void choose_turning(struct kvt_strangeness *out, double *scratch,
			   const struct strange_seen *seen)
{
	const int64_t *n = seen->group->shape.n;
	int64_t all = n[KVT_AXIS_L] * n[KVT_AXIS_K] * n[KVT_AXIS_H];
	double best = -1;

	for (int p = 0; p < seen->npairings; p++) {
		double sum = 0;

		turn_all(scratch, seen, p);
		for (int64_t l = 0; l < n[KVT_AXIS_L]; l++) {
			double most = 0;

			for (int64_t k = 0; k < n[KVT_AXIS_K]; k++)
				most = fmax(most, together(scratch, n, l, k, 0,
							   n[KVT_AXIS_H]));
			sum += most;
		}
		if (sum <= best)
			continue;
		best = sum;
		out->apart = seen->pairing[p].apart;
		memcpy(out->turning, scratch, (size_t)all * sizeof(*scratch));
	}
}

bool strange_measure(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	const int64_t *n = seen->group->shape.n;
	int64_t each = n[KVT_AXIS_K] * n[KVT_AXIS_H], all = n[KVT_AXIS_L] * each;
	int64_t least = INT64_MAX;
	double *scratch;

	for (int64_t l = 0; seen->numbers && l < n[KVT_AXIS_L]; l++) {
		int64_t slots = (int64_t)seen->sums[l * seen->layer_room];

		out->tokens = slots > out->tokens ? slots : out->tokens;
		least = slots < least ? slots : least;
	}
	out->measured = seen->numbers && least >= LEAST_SLOTS;
	if (!out->measured)
		return true;
	out->turning = calloc((size_t)all, sizeof(*out->turning));
	out->unit = calloc((size_t)all, sizeof(*out->unit));
	scratch = calloc((size_t)(all + n[KVT_AXIS_D]), sizeof(*scratch));
	if (!out->turning || !out->unit || !scratch) {
		free(scratch);
		return false;
	}
	choose_turning(out, scratch, seen);
	for (int64_t i = 0; i < all; i++)
		out->unit[i] = unit_of(scratch, head_sums(seen, i / each, i % each),
				       seen->sums[i / each * seen->layer_room],
				       n[KVT_AXIS_D]);
	free(scratch);
	return true;
}

/* ---- where ------------------------------------------------------------------ */

/* A layer, or all of them; a rank's heads, or all. */
struct region {
	int64_t layer;			/* -1: every layer */
	int64_t head, heads;
};

static void say_where(struct kvt_strange *found, const struct strange_seen *seen,
		      const struct region *r)
{
	const struct kvt_group *group = seen->group;
	int at = snprintf(found->at, sizeof(found->at), "group=%.64s", group->id);

	if (r->layer >= 0)
		at += snprintf(found->at + at, sizeof(found->at) - (size_t)at,
			       ",layer=%lld", LL(kvt_layer_id(group, r->layer)));
	if (r->heads < group->shape.n[KVT_AXIS_H])
		snprintf(found->at + at, sizeof(found->at) - (size_t)at, ",head=%lld",
			 LL(group->head_start + r->head));
}

/* "layer 2", "heads 2-3 of layer 2", "heads 2-3 of every layer" */
static struct kvt_text region_text(const struct strange_seen *seen,
				   const struct region *r)
{
	const struct kvt_group *group = seen->group;
	int64_t first = group->head_start + r->head;
	struct kvt_text out = { "" };
	int at = 0;

	if (r->heads == 1 && group->shape.n[KVT_AXIS_H] > 1)
		at = snprintf(out.s, sizeof(out.s), "head %lld of ", LL(first));
	else if (r->heads < group->shape.n[KVT_AXIS_H])
		at = snprintf(out.s, sizeof(out.s), "heads %lld-%lld of ", LL(first),
			      LL(first + r->heads - 1));
	if (r->layer < 0)
		snprintf(out.s + at, sizeof(out.s) - (size_t)at, "every layer");
	else
		snprintf(out.s + at, sizeof(out.s) - (size_t)at, "layer %lld",
			 LL(kvt_layer_id(group, r->layer)));
	return out;
}

/* ---- keys that look like values --------------------------------------------- */

/*
 * Values that turn as keys do elsewhere, beside keys that do not.  Returns how far it is
 * beyond what is allowed; below 1: it is not so.  Of all layers together no one of them
 * may say the opposite.
 */
struct turned {
	double key, value, usual, score;
};

static double all_together(const struct kvt_strangeness *out, const int64_t *n,
			   const struct region *r, int64_t k)
{
	double sum = 0;

	if (r->layer >= 0)
		return together(out->turning, n, r->layer, k, r->head, r->heads);
	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		sum += together(out->turning, n, l, k, r->head, r->heads);
	return sum / sqrt((double)n[KVT_AXIS_L]);
}

static bool is_contradicted(const struct kvt_strangeness *out, const int64_t *n,
			    const struct region *r, double least)
{
	for (int64_t l = 0; r->layer < 0 && l < n[KVT_AXIS_L]; l++)
		if (together(out->turning, n, l, 0, r->head, r->heads) -
		    together(out->turning, n, l, 1, r->head, r->heads) > least)
			return true;
	return false;
}

/* What keys or values of these heads turn in the median layer. */
static double usual_turning(const struct kvt_strangeness *out, double *scratch,
			    const int64_t *n, const struct region *r)
{
	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		scratch[l] = fmax(together(out->turning, n, l, 0, r->head, r->heads),
				  together(out->turning, n, l, 1, r->head, r->heads));
	return median(scratch, n[KVT_AXIS_L]);
}

/*
 * How much more the values of these heads must turn than the keys.  Of a layer among
 * others whose keys turn, and values do not, less is enough: half of what these do.
 */
static double least_turning(const struct kvt_strangeness *out, double *scratch,
			    const int64_t *n, const struct region *r)
{
	double usual;
	int64_t others = 0;

	if (r->heads < n[KVT_AXIS_H])
		return LEAST_TURNING_FEW;
	if (r->layer < 0 || n[KVT_AXIS_L] < 3)
		return LEAST_TURNING;
	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++)
		if (l != r->layer)
			scratch[others++] =
				together(out->turning, n, l, 0, 0, r->heads) -
				together(out->turning, n, l, 1, 0, r->heads);
	qsort(scratch, (size_t)others, sizeof(*scratch), by_value);
	usual = scratch[(others - 1) / 2];
	return usual < LEAST_TURNING_BESIDE ? LEAST_TURNING :
	       fmax(LEAST_TURNING_BESIDE, 0.5 * usual);
}

static struct turned turned(const struct kvt_strangeness *out, double *scratch,
			    const int64_t *n, const struct region *r)
{
	double least = least_turning(out, scratch, n, r);
	struct turned t = { .key = all_together(out, n, r, 0),
			    .value = all_together(out, n, r, 1),
			    .usual = usual_turning(out, scratch, n, r) };

	if (t.value >= least && t.value - t.key >= least && 3 * t.key <= t.value &&
	    t.value >= 0.4 * t.usual && !is_contradicted(out, n, r, least))
		t.score = t.value / least;
	return t;
}

static void tell_swapped(struct kvt_strangeness *out, const struct strange_seen *seen,
			 const struct region *r, const struct turned *t)
{
	struct kvt_strange found = { .kind = KVT_STRANGE_SWAPPED, .score = t->score,
				     .sure = t->value - t->key >= SURE_TURNING ?
					     KVT_CERTAIN : KVT_LIKELY };

	say_where(&found, seen, r);
	snprintf(found.text, sizeof(found.text),
		 "keys and values of %.80s are exchanged: its values turn with the position by %.1f, as only rotated keys do, its keys by %.1f (usual for keys of a layer here: %.1f)",
		 region_text(seen, r).s, t->value, t->key, t->usual);
	strange_add(out, &found);
}

/* The ranks of a size: in every layer, or in some; true: anything was found. */
static bool seek_swapped_ranks(struct kvt_strangeness *out,
			       const struct strange_seen *seen, double *scratch,
			       int64_t rank)
{
	const int64_t *n = seen->group->shape.n;
	int64_t before = out->count;

	for (int64_t h = 0; h < n[KVT_AXIS_H]; h += rank) {
		struct region r = { -1, h, rank };
		struct turned t = turned(out, scratch, n, &r);

		if (t.score >= 1 && n[KVT_AXIS_L] > 1) {
			tell_swapped(out, seen, &r, &t);
			continue;
		}
		for (r.layer = 0; r.layer < n[KVT_AXIS_L]; r.layer++) {
			t = turned(out, scratch, n, &r);
			if (t.score >= 1)
				tell_swapped(out, seen, &r, &t);
		}
	}
	return out->count > before;
}

static void seek_swapped(struct kvt_strangeness *out, const struct strange_seen *seen,
			 double *scratch)
{
	int64_t heads = seen->group->shape.n[KVT_AXIS_H];

	for (int64_t rank = heads; rank > 0; rank /= 2)
		if (heads % rank == 0 && seek_swapped_ranks(out, seen, scratch, rank))
			return;
}

/* ---- scales ----------------------------------------------------------------- */

struct scales {
	const double *unit;		/* [L][K][H] */
	const int64_t *n;
	int64_t k;
};

/* A region whose numbers are larger or smaller than the others'. */
struct jump {
	struct region where;
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
	qsort(beside, (size_t)n, sizeof(*beside), by_value);
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
	const struct region *r = &j->where;

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
	double least = l == 0 || l == layers - 1 ? LEAST_END : LEAST_LAYER;

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

	say_where(&found, seen, &j->where);
	snprintf(found.text, sizeof(found.text),
		 "keys and values of %.80s are exchanged: one is %.3g times larger than in the layers beside it, and the other smaller",
		 region_text(seen, &j->where).s, exp(fabs(j->by)));
	strange_add(out, &found);
}

static void tell_scale(struct kvt_strangeness *out, const struct strange_seen *seen,
		       const struct jump *j, int64_t k)
{
	struct kvt_strange found = { .kind = KVT_STRANGE_SCALE, .score = j->score,
				     .sure = KVT_LIKELY };
	bool one = seen->group->shape.n[KVT_AXIS_K] == 1;

	say_where(&found, seen, &j->where);
	snprintf(found.text, sizeof(found.text),
		 "%s of %.80s are %.3g times %s than those of %s: was a scale forgotten, or applied twice? (the others are within %.2g times of each other)",
		 one ? "numbers" : k ? "values" : "keys", region_text(seen, &j->where).s,
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

/* ---- what was cut off ------------------------------------------------------- */

static void seek_cut_off(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	const struct region r = { -1, 0, seen->group->shape.n[KVT_AXIS_H] };
	double share = out->elements ? (double)out->top / (double)out->elements : 0;
	struct kvt_strange found = { .kind = KVT_STRANGE_CUT_OFF };

	/* what runs out by itself has as many of the number before */
	if (out->top < 8 || out->top < 2 * out->below || share < 1e-4)
		return;
	found.score = share / 1e-4;
	found.sure = share >= 1e-3 ? KVT_LIKELY : KVT_PERHAPS;
	say_where(&found, seen, &r);
	snprintf(found.text, sizeof(found.text),
		 "numbers too large for %s were cut off: %lld of %lld (%.2g %%) are its largest, %lld the one below; is the scale too small?",
		 seen->group->dtype->name, LL(out->top), LL(out->elements), 100 * share,
		 LL(out->below));
	strange_add(out, &found);
}

static bool is_told(const struct kvt_strangeness *out)
{
	for (int i = 0; i < out->n; i++)
		if (out->found[i].sure > KVT_PERHAPS)
			return true;
	return false;
}

/* Rows that are exchanged or there twice have another scale: that is no second fault. */
bool strange_judge(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	const int64_t *n = seen->group->shape.n;
	double *scratch;

	seek_cut_off(out, seen);
	if (!out->measured || is_told(out) ||
	    n[KVT_AXIS_H] > MOST_CELLS / n[KVT_AXIS_L])
		return true;
	if (!(scratch = calloc((size_t)n[KVT_AXIS_L] + 1, sizeof(*scratch))))
		return false;
	if (n[KVT_AXIS_K] == 2)
		seek_swapped(out, seen, scratch);
	free(scratch);
	if (is_told(out))
		return true;
	for (int64_t k = 0; k < n[KVT_AXIS_K]; k++) {
		const struct scales scales = { out->unit, n, k };

		if (all_change(&scales) && seek_scale(out, seen, &scales))
			return true;
	}
	return true;
}
