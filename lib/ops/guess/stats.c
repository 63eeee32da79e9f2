/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - what a sample of a cache looks like when a layout is assumed
 *
 * In go rows of values, each with the place that the layout gives it; per channel the
 * number, the sum and the sum of squares are kept, of even and odd slots apart.
 *
 * gain: bits an element that are saved by writing each channel as a normal
 * distribution of its own, fitted to the other half of the slots, instead of one for
 * all; so that a layout gains nothing by having many channels.  The pattern of zeros
 * counts too, for slots are written or not in all channels at once.
 *
 * kinship: each head of a layer is described by six features; the log likelihood that
 * heads of a layer, and the keys (values) of all layers, vary less than the whole.
 *
 * Cost: a pass over the sample, memory for 3 sums a channel and a counter a slot.
 */
#include "lib/ops/guess/stats.h"

#include "lib/ops/guess/impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NFEATURES = 6 };

/* ---- sums --------------------------------------------------------------- */

bool kvt_guess_tally_init(struct guess_tally *t, const struct kvt_shape *sample)
{
	const int64_t *n = sample->n;
	size_t channels, all;
	struct guess_sums *sums;

	t->layers = n[KVT_AXIS_L];
	t->heads = n[KVT_AXIS_H];
	t->kvs = n[KVT_AXIS_K];
	t->dims = n[KVT_AXIS_D];
	t->slots = n[KVT_AXIS_S];
	t->all_slots = n[KVT_AXIS_B] * t->slots;
	channels = (size_t)(t->layers * t->heads * t->kvs * t->dims);
	all = (size_t)t->all_slots;
	t->storage = sums = calloc(1, 3 * channels * sizeof(*sums) +
				      all * sizeof(int64_t));
	if (!sums)
		return false;
	t->half[0] = sums;
	t->half[1] = sums + channels;
	t->pair = sums + 2 * channels;
	t->zeros = (int64_t *)(sums + 3 * channels);
	return true;
}

void kvt_guess_tally_free(struct guess_tally *t)
{
	free(t->storage);
}

static int64_t row_of(const struct guess_tally *t, int64_t layer, int64_t kv,
		      int64_t head)
{
	return ((layer * t->kvs + kv) * t->heads + head) * t->dims;
}

void kvt_guess_add(struct guess_tally *t, const int64_t at[KVT_NAXES],
		   const double *row, const double *before)
{
	int64_t first = row_of(t, at[KVT_AXIS_L], at[KVT_AXIS_K], at[KVT_AXIS_H]);
	int64_t half = (at[KVT_AXIS_B] + at[KVT_AXIS_S]) % 2;
	struct guess_sums *sums = t->half[half] + first;
	struct guess_sums *pair = t->pair + first;
	int64_t zeros = 0;

	for (int64_t d = 0; d < t->dims; d++) {
		if (row[d] == 0) {
			zeros++;
			continue;
		}
		sums[d].n++;
		sums[d].sum += row[d];
		sums[d].squares += row[d] * row[d];
		if (before && before[d] != 0) {
			pair[d].n++;
			pair[d].sum += row[d] + before[d];
			pair[d].squares += row[d] * before[d];
		}
	}
	t->zeros[at[KVT_AXIS_B] * t->slots + at[KVT_AXIS_S]] += zeros;
}

/* ---- how many bits it takes --------------------------------------------- */

static void add_sums(struct guess_sums *a, const struct guess_sums *b)
{
	a->n += b->n;
	a->sum += b->sum;
	a->squares += b->squares;
}

/* Of values with these sums, by a normal distribution fitted to others. */
static double normal_bits(const struct guess_sums *s, double mean, double variance)
{
	double far = s->squares - 2 * mean * s->sum + s->n * mean * mean;

	return 0.5 * (s->n * log2(2 * M_PI * variance) + M_LOG2E * far / variance);
}

/*
 * Every channel of one half of the slots by what the other half has taught, and the
 * other way round: what only fits the sample gains nothing.  Four values of the
 * whole stand in where a channel has few.
 */
static double channel_bits(const struct guess_tally *t, double mean, double variance)
{
	const double prior = 4, square = variance + mean * mean;
	int64_t n = t->layers * t->kvs * t->heads * t->dims;
	double bits = 0;

	for (int h = 0; h < 2; h++)
		for (int64_t i = 0; i < n; i++) {
			const struct guess_sums *seen = &t->half[!h][i];
			double count = seen->n + prior;
			double m = (seen->sum + prior * mean) / count;
			double v = (seen->squares + prior * square) / count - m * m;

			if (t->half[h][i].n > 0)
				bits += normal_bits(&t->half[h][i], m,
						    fmax(v, 1e-6 * variance));
		}
	return bits;
}

/* Bits for which of n elements are the k zeros. */
static double mask_bits(double k, double n)
{
	double p = k / n;

	return k <= 0 || k >= n ? 0 : -n * (p * log2(p) + (1 - p) * log2(1 - p));
}

/* A slot is written or not, in all layers and heads: zeros come together. */
static double zeros_gain(const struct guess_tally *t)
{
	double each = (double)(t->layers * t->kvs * t->heads * t->dims);
	double zeros = 0, bits = 0;

	for (int64_t i = 0; i < t->all_slots; i++) {
		zeros += (double)t->zeros[i];
		bits += mask_bits((double)t->zeros[i], each);
	}
	return mask_bits(zeros, each * (double)t->all_slots) - bits;
}

static double gain(double *of_zeros, const struct guess_tally *t)
{
	int64_t n = t->layers * t->kvs * t->heads * t->dims;
	struct guess_sums all = { 0, 0, 0 };
	double mean, variance;

	for (int h = 0; h < 2; h++)
		for (int64_t i = 0; i < n; i++)
			add_sums(&all, &t->half[h][i]);
	*of_zeros = all.n < 1 ? 0 : zeros_gain(t) / all.n;
	if (all.n < 1)
		return 0;
	mean = all.sum / all.n;
	variance = fmax(all.squares / all.n - mean * mean, 1e-12);
	return (normal_bits(&all, mean, variance) - channel_bits(t, mean, variance)) /
	       all.n + *of_zeros;
}

/* ---- who is akin to whom ------------------------------------------------ */

struct channel {
	double mean, square, variance;
};

static struct channel channel_of(const struct guess_tally *t, int64_t i)
{
	struct guess_sums s = t->half[0][i];
	struct channel c = { 0, 0, 1e-12 };

	add_sums(&s, &t->half[1][i]);
	if (s.n < 1)
		return c;
	c.mean = s.sum / s.n;
	c.square = s.squares / s.n;
	c.variance = fmax(c.square - c.mean * c.mean, 1e-12);
	return c;
}

/* How alike the magnitudes of paired elements are, as rotation leaves them. */
static double pairing(const double *x, int64_t n, int64_t step, int64_t apart)
{
	double product = 0, square = 0;

	for (int64_t i = 0; i + apart < n; i += step) {
		product += x[i] * x[i + apart];
		square += 0.5 * (x[i] * x[i] + x[i + apart] * x[i + apart]);
		if (step == 1 && i + 1 == apart)
			break;
	}
	return square > 1e-9 ? product / square : 0;
}

/*
 * Of the vector of one head: magnitude, how it varies over the elements, share of
 * the mean, correlation of neighbouring tokens, pairs of halves, adjacent pairs.
 * 'scratch' has room for the vector.
 */
static void features(double out[NFEATURES], const struct guess_tally *t, int64_t first,
		     double *scratch)
{
	double n = (double)t->dims, means = 0, squares = 0, variances = 0;
	double log_mean = 0, log_square = 0, product = 0, power = 0, r;

	for (int64_t d = 0; d < t->dims; d++) {
		struct channel c = channel_of(t, first + d);
		const struct guess_sums *p = &t->pair[first + d];

		means += c.mean * c.mean;
		squares += c.square;
		variances += c.variance;
		scratch[d] = log(c.square + 1e-12);
		log_mean += scratch[d] / n;
		product += p->squares - c.mean * p->sum + p->n * c.mean * c.mean;
		power += p->n * c.variance;
	}
	for (int64_t d = 0; d < t->dims; d++) {
		scratch[d] -= log_mean;
		log_square += scratch[d] * scratch[d] / n;
	}
	r = power > 0 ? product / power : 0;
	out[0] = log(squares / n + 1e-12);
	out[1] = log(sqrt(log_square) + 1e-3);
	out[2] = log((means + 1e-9) / variances);
	out[3] = atanh(fmin(fmax(r, -0.99), 0.99));
	out[4] = pairing(scratch, t->dims, 1, t->dims / 2);
	out[5] = pairing(scratch, t->dims, 2, 1);
}

/* Squares of distances: within the heads of a layer, within K over layers, all. */
struct distances {
	double heads, layers, all;
};

static struct distances distances_of(const double *f, const struct guess_tally *t)
{
	int64_t nl = t->layers, nk = t->kvs, nh = t->heads;
	struct distances out = { 0, 0, 0 };
	double total = 0, square = 0;

	for (int64_t k = 0; k < nk; k++) {
		double of_k = 0, of_k_square = 0;

		for (int64_t l = 0; l < nl; l++) {
			const double *x = f + (l * nk + k) * nh * NFEATURES;
			double sum = 0, sum_square = 0;

			for (int64_t h = 0; h < nh; h++) {
				sum += x[h * NFEATURES];
				sum_square += x[h * NFEATURES] * x[h * NFEATURES];
			}
			out.heads += sum_square - sum * sum / (double)nh;
			of_k += sum / (double)nh;
			of_k_square += sum / (double)nh * sum / (double)nh;
			total += sum;
			square += sum_square;
		}
		out.layers += of_k_square - of_k * of_k / (double)nl;
	}
	out.all = square - total * total / (double)(nl * nk * nh);
	return out;
}

static double log_share(double part, double freedom, double whole)
{
	return freedom < 1 ? 0 : -0.5 * freedom *
		log(fmax(part, 0) / freedom / (whole + 1e-9) + 0.02);
}

/* -1e300: out of memory; no such candidate wins. */
static double kinship(const struct guess_tally *t)
{
	int64_t nheads = t->layers * t->kvs * t->heads;
	double *f = calloc((size_t)(nheads * NFEATURES + t->dims), sizeof(*f));
	double sum = 0;

	if (!f)
		return -1e300;
	for (int64_t i = 0; i < nheads; i++)
		features(f + i * NFEATURES, t, i * t->dims, f + nheads * NFEATURES);
	for (int j = 0; j < NFEATURES; j++) {
		struct distances d = distances_of(f + j, t);
		double whole = d.all / (double)nheads;

		sum += log_share(d.heads, (double)(t->layers * t->kvs * (t->heads - 1)),
				 whole);
		sum += log_share(d.layers, (double)(t->kvs * (t->layers - 1)), whole);
	}
	free(f);
	return sum;
}

/* ---- all of it ---------------------------------------------------------- */

static void count_live(struct kvt_guess_measures *m, const struct guess_tally *t)
{
	int64_t each = t->layers * t->kvs * t->heads * t->dims, block = -1;

	for (int64_t i = 0; i < t->all_slots; i++) {
		if (t->zeros[i] == each)
			continue;
		m->live_slots++;
		m->live_blocks += i / t->slots != block;
		block = i / t->slots;
	}
}

struct kvt_guess_measures kvt_guess_measure(const struct guess_tally *t)
{
	double l = (double)t->layers, h = (double)t->heads;
	struct kvt_guess_measures m = { .kinship = kinship(t) };

	m.gain = gain(&m.of_zeros, t);
	m.kinship_spread = sqrt(NFEATURES * (l * (h - 1) / h + l));
	count_live(&m, t);
	return m;
}

/* ---- element types ------------------------------------------------------ */

static double element(const struct kvt_dtype *dtype, bool swapped, const uint8_t *bytes,
		      uint8_t flip)
{
	uint8_t e[8];

	for (int i = 0; i < dtype->elem; i++)
		e[i] = bytes[swapped ? dtype->elem - 1 - i : i];
	e[0] ^= flip;
	return kvt_dtype_decode(dtype, e);
}

/* Mean of log |x| over what is finite and not 0; false: nothing is. */
static bool magnitude(double *unit, const struct kvt_dtype *dtype, bool swapped,
		      const uint8_t *bytes, int64_t nbytes)
{
	double sum = 0, n = 0;

	for (int64_t i = 0; i + dtype->elem <= nbytes; i += dtype->elem) {
		double x = fabs(element(dtype, swapped, bytes + i, 0));

		if (!isfinite(x) || x == 0)
			continue;
		sum += log(x);
		n++;
	}
	*unit = n ? exp(sum / n) : 1;
	return n > 0;
}

/* hypot() of glibc 2.35 is another one: who calls it cannot run where glibc is older. */
static double length(double a, double b)
{
	double larger = fmax(fabs(a), fabs(b)), ratio = fmin(fabs(a), fabs(b)) / larger;

	return larger * sqrt(1 + ratio * ratio);
}

double kvt_guess_type_bits(double *unit, const struct kvt_dtype *dtype, bool swapped,
			   const uint8_t *bytes, int64_t nbytes)
{
	struct guess_sums s = { 0, 0, 0 };
	double bits = 0, bad = 0, mean, variance;

	if (!magnitude(unit, dtype, swapped, bytes, nbytes))
		return INFINITY;
	for (int64_t i = 0; i + dtype->elem <= nbytes; i += dtype->elem) {
		double x = element(dtype, swapped, bytes + i, 0), y, step;

		step = fabs(x - element(dtype, swapped, bytes + i, 1));
		if (x == 0)
			continue;
		if (!isfinite(x) || !isfinite(step) || step == 0) {
			bad++;
			continue;
		}
		y = asinh(x / *unit);
		s.n++;
		s.sum += y;
		s.squares += y * y;
		bits += log2(length(x, *unit)) - log2(step);
	}
	if (s.n < 1)
		return INFINITY;
	mean = s.sum / s.n;
	variance = fmax(s.squares / s.n - mean * mean, 1e-12);
	bits += normal_bits(&s, mean, variance) + bad * (8 * dtype->elem + 8);
	return bits / (s.n + bad) / dtype->elem;
}

/* ---- one beside another --------------------------------------------------- */

double kvt_guess_gain_needed(const struct kvt_guess_measures *m)
{
	double slots = m->live_slots > 0 ? (double)m->live_slots : 1;

	return fmax(GUESS_LEAST_GAIN, GUESS_GAIN_SLOTS / slots);
}

/* With the same channels under other names both sums are the same, but for order. */
bool kvt_guess_same_channels(const struct kvt_guess_measures *a,
			     const struct kvt_guess_measures *b)
{
	return fabs(a->gain - b->gain) < 1e-7;
}

double kvt_guess_evidence(const struct kvt_guess_measures *winner,
			  const struct kvt_guess_measures *other, double needed)
{
	double akin = winner->kinship - other->kinship;

	if (!kvt_guess_same_channels(winner, other))
		return (winner->gain - other->gain) / needed;
	return fmax(akin, 0) / winner->kinship_spread / GUESS_LEAST_KINSHIP;
}
