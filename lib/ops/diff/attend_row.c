/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend_row.c - one query: scores, weights, outputs, and what differs
 *
 * Products are added in float32, in 16 sums side by side, which compilers make vectors
 * of; what is added over many keys is added in double.  A side whose scores or output
 * are no numbers has none: the other decides whether that is a difference.
 */
#include "lib/ops/diff/attend_internal.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

static float dot(const float *a, const float *b, int64_t n)
{
	float lane[LANES] = { 0 };
	double sum = 0;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int j = 0; j < LANES; j++)
			lane[j] += a[i + j] * b[i + j];
	for (; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	for (int j = 0; j < LANES; j++)
		sum += (double)lane[j];
	return (float)sum;
}

void attend_score(float *out, const float *query, const float *keys, int64_t n,
		  int64_t dim, double scale, double cap)
{
	for (int64_t i = 0; i < n; i++, keys += dim) {
		double s = (double)dot(query, keys, dim) * scale;

		out[i] = (float)(cap > 0 ? cap * tanh(s / cap) : s);
	}
}

void attend_mix(double *out, float *sum, const float *weight, const float *values,
		int64_t n, int64_t dim)
{
	memset(sum, 0, (size_t)dim * sizeof(*sum));
	for (int64_t i = 0; i < n; i++, values += dim) {
		float w = weight[i];

		for (int64_t d = 0; d < dim; d++)
			sum[d] += w * values[d];
	}
	for (int64_t d = 0; d < dim; d++)
		out[d] += (double)sum[d];
}

/* ---- weights -------------------------------------------------------------- */

/* The key of the greatest score, the first of several; -1: one is no number, or none. */
static int64_t top_of(const float *score, const struct kvt_range *sees)
{
	int64_t top = -1;

	for (int r = 0; r < 2; r++)
		for (int64_t i = sees[r].begin; i < sees[r].end; i++) {
			if (isnan(score[i]))
				return -1;
			if (top < 0 || score[i] > score[top])
				top = i;
		}
	return top < 0 || isinf(score[top]) ? -1 : top;
}

/* Scores become weights; the weight of the sink. */
static double softmax(float *score, const struct kvt_range *sees, float max,
		      const float *sink)
{
	double sum = 0, of_sink = 0;

	if (sink && *sink > max)
		max = *sink;
	for (int r = 0; r < 2; r++)
		for (int64_t i = sees[r].begin; i < sees[r].end; i++) {
			score[i] = expf(score[i] - max);
			sum += (double)score[i];
		}
	if (sink)
		of_sink = exp((double)*sink - (double)max);
	sum += of_sink;
	for (int r = 0; r < 2; r++)
		for (int64_t i = sees[r].begin; i < sees[r].end; i++)
			score[i] = (float)((double)score[i] / sum);
	return of_sink / sum;
}

int attend_weigh(struct diff_attend_cell *cell, const struct attend_scores *s)
{
	int64_t top[NSIDES];
	double sink[NSIDES] = { 0, 0 }, change = 0;
	int valid = 0;
	bool moved;

	for (int side = 0; side < NSIDES; side++) {
		top[side] = top_of(s->side[side], s->sees);
		valid |= (top[side] >= 0) << side;
	}
	if (valid != 3)
		return valid;
	moved = s->side[SIDE_B][top[SIDE_A]] < s->side[SIDE_B][top[SIDE_B]];
	for (int side = 0; side < NSIDES; side++)
		sink[side] = softmax(s->side[side], s->sees,
				     s->side[side][top[side]], s->sink);
	for (int r = 0; r < 2; r++)
		for (int64_t i = s->sees[r].begin; i < s->sees[r].end; i++)
			change += fabs((double)s->side[SIDE_A][i] -
				       (double)s->side[SIDE_B][i]);
	change = (change + fabs(sink[SIDE_A] - sink[SIDE_B])) / 2;
	cell->top += moved;
	cell->change += change;
	if (cell->most < change)
		cell->most = change;
	return valid;
}

/* ---- outputs -------------------------------------------------------------- */

static bool are_finite(const double *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += x[i] - x[i];	/* 0, or no number */
	return sum >= 0;
}

static void judge_lost(struct diff_attend_cell *cell)
{
	cell->n++;
	cell->lost++;
	cell->top++;
	cell->change += 1;
	cell->most = 1;
	cell->worst = (double)INFINITY;
}

void attend_judge(struct diff_attend_cell *cell, const double *a, const double *b,
		  int64_t dim, int valid, const struct diff_attend_cell *query)
{
	bool has_a = valid & 1 && are_finite(a, dim);
	bool has_b = valid & 2 && are_finite(b, dim);
	struct diff_attend_cell own = *query;

	cell->seen += own.seen;
	cell->missing += own.missing;
	if (!has_a && !has_b) {
		cell->unknown++;
		return;
	}
	if (!has_a || !has_b) {
		judge_lost(cell);
		return;
	}
	own.n = 1;
	own.seen = own.missing = 0;
	for (int64_t d = 0; d < dim; d++) {
		own.dd += (a[d] - b[d]) * (a[d] - b[d]);
		own.aa += a[d] * a[d];
	}
	own.worst = own.dd > 0 ? sqrt(own.dd / own.aa) : 0;
	kvt_attend_add(cell, &own);
}

double kvt_attend_error(const struct diff_attend_cell *cell)
{
	if (cell->lost)
		return (double)INFINITY;
	return cell->dd > 0 ? sqrt(cell->dd / cell->aa) : 0;
}

void kvt_attend_add(struct diff_attend_cell *to, const struct diff_attend_cell *from)
{
	to->n += from->n;
	to->lost += from->lost;
	to->unknown += from->unknown;
	to->top += from->top;
	to->seen += from->seen;
	to->missing += from->missing;
	to->change += from->change;
	to->dd += from->dd;
	to->aa += from->aa;
	if (to->most < from->most)
		to->most = from->most;
	if (to->worst < from->worst)
		to->worst = from->worst;
}

/* ---- cells ----------------------------------------------------------------- */

int64_t kvt_attend_layer(const struct diff_attended *of, int64_t l)
{
	const struct diff_pair *p = of->key;

	return (int64_t)kvt_layer_id(p->group[SIDE_A], p->layer[SIDE_A][of->layer[l]]);
}

struct diff_attend_cell kvt_attend_sum(const struct diff_attended *of, int64_t l)
{
	struct diff_attend_cell sum = { 0 };
	int64_t n = of->nheads * of->ratio, end = l < 0 ? of->nlayers * n : (l + 1) * n;

	for (int64_t i = l < 0 ? 0 : l * n; i < end; i++)
		kvt_attend_add(&sum, &of->cell[i]);
	return sum;
}
