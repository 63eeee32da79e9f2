/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - what sums of channels say of a head: how much it turns, how far it spreads
 *
 * Turning is a sum over pairs of elements: of each the area between one token and the
 * next, in units of what such a sum would be if turns had no direction.
 */
#include "lib/ops/strange/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SLOTS = 8 };

/* The upper one of an even number. */
static double median(double *x, int64_t n)
{
	qsort(x, (size_t)n, sizeof(*x), kvt_by_double);
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
double strange_together(const double *turning, const int64_t *n, int64_t l, int64_t k,
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
				most = fmax(most, strange_together(scratch, n, l, k, 0,
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
