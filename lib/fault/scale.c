/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - constant factors and flipped bits
 *
 * An element that was scaled and rounded tells in which interval the factor
 * was.  One factor explains all if the intervals have a point in common, which
 * needs no tolerance and holds for any type.  An element that was cut at a limit
 * tells only how small the factor was not.  Where no factor makes B of A, both may
 * have been rounded from one source, of which A tells an interval as well.
 */
#include "lib/fault/fault.h"
#include "lib/base/little_endian.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- neighbours of a value ---------------------------------------------- */

static uint64_t bits_of(const uint8_t *element, int elem)
{
	uint64_t bits = 0;

	for (int i = 0; i < elem; i++)
		bits |= (uint64_t)element[i] << (8 * i);
	return bits;
}

static double value_of(const struct kvt_dtype *dtype, uint64_t bits)
{
	uint8_t element[8];

	kvt_put_le(element, bits, 8);
	return kvt_dtype_decode(dtype, element);
}

static uint64_t sign_bit(const struct kvt_dtype *dtype)
{
	return (uint64_t)1 << (8 * dtype->elem - 1);
}

bool kvt_fault_can_scale(const struct kvt_dtype *dtype)
{
	return dtype->is_float && value_of(dtype, 0) == 0;	/* e8m0 has no zero */
}

double kvt_fault_largest(const struct kvt_dtype *dtype)
{
	uint8_t element[8];
	uint64_t bits;

	kvt_dtype_encode(dtype, element, DBL_MAX);
	bits = bits_of(element, dtype->elem);
	/* infinity or NaN is next to it */
	return value_of(dtype, isfinite(value_of(dtype, bits)) ? bits : bits - 1);
}

/* What is too large becomes the largest, as engines have it for fp8. */
void kvt_fault_scale(uint8_t out[8], const struct kvt_dtype *dtype, const uint8_t *value,
		     double factor)
{
	double x = kvt_dtype_decode(dtype, value) * factor;
	double largest = kvt_fault_largest(dtype);

	if (fabs(x) > largest)
		x = copysign(largest, x);
	kvt_dtype_encode(dtype, out, x);
}

struct interval {
	double least, most;
};

/* The reals that round to 'b', up to the window's tolerance. */
static struct interval rounds_to(const struct kvt_window *w, const uint8_t *b)
{
	uint64_t bits = bits_of(b, w->dtype->elem), sign = bits & sign_bit(w->dtype);
	uint64_t magnitude = bits & ~sign_bit(w->dtype);
	double v = value_of(w->dtype, magnitude), slack = w->atol + w->rtol * v;
	double above = magnitude + 1 < sign_bit(w->dtype) ?
		       value_of(w->dtype, magnitude + 1) : INFINITY;
	double below = magnitude ? value_of(w->dtype, magnitude - 1) :
		       isfinite(above) ? -above : 0;
	double from = v - (v - below) / 2 - slack;
	double to = isfinite(above) ? v + (above - v) / 2 + slack : INFINITY;

	return sign ? (struct interval){ -to, -from } : (struct interval){ from, to };
}

/* ---- one factor --------------------------------------------------------- */

/* Arithmetic in double may be off by a little. */
static const double slack = 1e-12;

/* Where values were cut, and whether those of A were rounded, too. */
struct rounding {
	double limit;
	bool both;
};

/* All y / x; x has no zero inside. */
static struct interval quotients(struct interval y, struct interval x)
{
	const double q[] = { y.least / x.least, y.least / x.most,
			     y.most / x.least, y.most / x.most };

	return (struct interval){ fmin(fmin(q[0], q[1]), fmin(q[2], q[3])),
				  fmax(fmax(q[0], q[1]), fmax(q[2], q[3])) };
}

/* What was rounded to zero tells how large the factor is at least. */
static struct interval from_zero(struct interval y, double most_x, bool same_sign)
{
	double least = fmax(fmax(y.least, -y.most), 0) / most_x;

	if (least <= 0)
		return (struct interval){ -INFINITY, INFINITY };
	return same_sign ? (struct interval){ least, INFINITY } :
			   (struct interval){ -INFINITY, -least };
}

/* The factors that make the reals of 'b' of the value 'x' of 'a', or of its source. */
static struct interval factors(const struct kvt_window *w, const struct rounding *how,
			       const uint8_t *a, double x, struct interval y)
{
	struct interval from = { x, x };

	if (how->both)
		from = rounds_to(w, a);
	if (x == 0)
		return from_zero(y, fmax(from.most, -from.least),
				 !signbit(x) == (y.most > 0));
	return quotients(y, from);
}

/* Narrows the factors to those that make 'b' of 'a'; false: none does. */
static bool narrow(struct fault_span *span, const struct kvt_window *w,
		   const struct rounding *how, const uint8_t *a, const uint8_t *b)
{
	double x = kvt_dtype_decode(w->dtype, a), y = kvt_dtype_decode(w->dtype, b);
	struct interval to, factor;

	if (isnan(x) || isinf(x))
		return isnan(x) ? isnan(y) : isinf(y);
	if (x == 0 && !how->both)
		return y == 0;
	if (isnan(y))
		return false;
	if (isinf(y))
		return true;		/* too large to be stored */
	if (fabs(y) > how->limit)
		return false;
	to = rounds_to(w, b);
	if (fabs(y) == how->limit) {
		*(y < 0 ? &to.least : &to.most) = y < 0 ? -INFINITY : INFINITY;
		span->cut += !kvt_fault_same(w, a, b);
	}
	factor = factors(w, how, a, x, to);
	/* arithmetic may be off by a little */
	factor.least -= fabs(factor.least) * slack;
	factor.most += fabs(factor.most) * slack;
	span->least = fmax(span->least, factor.least);
	span->most = fmin(span->most, factor.most);
	span->n += x != 0;
	return span->least <= span->most;
}

static bool scan_row(struct kvt_hypothesis *out, struct fault_case *c,
		     const struct rounding *how, const int64_t at[KVT_NAXES])
{
	const struct kvt_window *w = c->window;
	const int64_t *n = w->shape.n, elem = w->shape.elem;
	int64_t row = kvt_fault_offset(w, at), differ = 0;
	struct fault_span *span = &c->span[at[KVT_AXIS_L] * n[KVT_AXIS_K] +
					   at[KVT_AXIS_K]];

	if (!memcmp(c->expected + row, c->suspect + row, (size_t)c->cell))
		return true;
	for (int64_t i = row; i < row + c->cell; i += elem)
		differ += !kvt_fault_same(w, c->expected + i, c->suspect + i);
	for (int64_t i = row; differ && i < row + c->cell; i += elem)
		if (!narrow(span, w, how, c->expected + i, c->suspect + i))
			return false;
	out->explained += differ;
	out->matched += differ ? n[KVT_AXIS_D] : 0;
	return true;
}

/* The factors of each layer's keys and values; false: one of them has none. */
static bool scan(struct kvt_hypothesis *out, struct fault_case *c,
		 const struct rounding *how)
{
	const int64_t *n = c->window->shape.n;
	int64_t at[KVT_NAXES] = { 0 };

	out->verdict = KVT_REFUTED;
	out->tried = 1;
	out->explained = out->matched = 0;
	for (int64_t i = 0; i < n[KVT_AXIS_L] * n[KVT_AXIS_K]; i++)
		c->span[i] = (struct fault_span){ -INFINITY, INFINITY, 0, 0 };
	do {
		if (kvt_fault_is_live(c->window, at[KVT_AXIS_B], at[KVT_AXIS_S]) &&
		    !scan_row(out, c, how, at))
			return false;
	} while (kvt_fault_next(at, &c->window->shape, KVT_AXIS_L, KVT_AXIS_K));
	return true;
}

/* A power of two, which most factors are, or the shortest decimal in the span. */
static double round_inside(double least, double most)
{
	double middle = isinf(most) ? least : isinf(least) ? most :
			least + (most - least) / 2;
	double power = least > 0 ? exp2(ceil(log2(least))) : -exp2(ceil(log2(-most)));

	if (power >= least && power <= most)
		return power;
	for (int digits = 0; digits < 12 && middle != 0; digits++) {
		double unit = pow(10, floor(log10(fabs(middle))) - digits);
		double x = unit < 1 ? nearbyint(middle * (1 / unit)) / (1 / unit) :
				      nearbyint(middle / unit) * unit;

		if (x >= least && x <= most)
			return x;
	}
	return middle;
}

enum { LEAST_ROW = 4, LEAST_EVIDENCE = 8, LEAST_EVIDENCE_BOTH = 64 };

static bool holds_one(const struct fault_span *span)
{
	return span->least <= 1 && span->most >= 1;
}

/* With a factor of one all that was cut was larger, by more than is tolerated. */
static bool is_only_cut(const struct fault_span *span, const struct kvt_window *w)
{
	return span->least < 1 - w->rtol;
}

/* Is it a factor, and not zeros (0) or too few values that tell it? */
static bool is_factor(const struct fault_span *span)
{
	return span->n >= LEAST_ROW && span->least * span->most > 0;
}

/*
 * What the spans say.  Where 'plain', a factor of one is none, but rounding; elsewhere
 * it is, if there is nothing else that differs but what was cut.
 */
static void judge_spans(struct kvt_hypothesis *out, const struct fault_case *c,
			bool plain, bool both)
{
	const int64_t least = both ? LEAST_EVIDENCE_BOTH : LEAST_EVIDENCE;
	const int64_t *n = c->window->shape.n;
	struct fault_span all = { -INFINITY, INFINITY, 0, 0 }, first = { 0, 0, 0, 0 };
	int seen[2] = { 0, 0 };
	bool one = false;

	for (int64_t i = 0; i < n[KVT_AXIS_L] * n[KVT_AXIS_K]; i++) {
		const struct fault_span *span = &c->span[i];

		if (!span->n)
			continue;
		if (!is_factor(span) ||
		    (holds_one(span) && (plain || both || !is_only_cut(span, c->window))))
			return;
		one |= holds_one(span);
		first = first.n ? first : *span;
		all.least = fmax(all.least, span->least);
		all.most = fmin(all.most, span->most);
		all.n += span->n;
		all.cut += span->cut;
		seen[i % n[KVT_AXIS_K] != 0] = 1;
		out->nargs++;
	}
	if (all.n < least || plain != (all.cut < LEAST_EVIDENCE) ||
	    (one && all.cut < out->explained) || (!one && all.n - all.cut < LEAST_ROW))
		return;
	if (all.least <= all.most) {
		out->nargs = 1;
		first = all;
	}
	out->args.factor = holds_one(&first) ? 1 : round_inside(first.least, first.most);
	out->args.n[0] = n[KVT_AXIS_K] != 2 || (seen[0] && seen[1]) ? 2 : seen[1];
	out->args.n[1] = plain ? 0 : all.cut;
	out->verdict = KVT_EXPLAINS;
}

/* From A, or if that cannot be and values are not allowed for, from what A was, too. */
static bool scan_both(struct kvt_hypothesis *out, struct fault_case *c,
		      struct rounding *how)
{
	how->both = false;
	if (scan(out, c, how))
		return true;
	how->both = c->window->atol <= 0 && c->window->rtol <= 0;
	return how->both && scan(out, c, how);
}

/* Each layer's keys and values may have a factor of their own. */
void kvt_explain_scale(struct kvt_hypothesis *out, struct fault_case *c)
{
	struct rounding how = { .limit = kvt_fault_largest(c->window->dtype) };

	if (scan_both(out, c, &how))
		judge_spans(out, c, true, how.both);
}

/* ---- values that are cut ------------------------------------------------ */

enum { ROWS_LOOKED_AT = 1024 };

/*
 * Where values were cut.  That is the largest of the type, or of one that they had
 * before, which then is the largest of the first rows that differ.
 */
static double limit_of(const struct fault_case *c)
{
	const struct kvt_window *w = c->window;
	int64_t at[KVT_NAXES] = { 0 }, rows = 0;
	double limit = 0;

	do {
		int64_t row = kvt_fault_offset(w, at);

		if (!kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) ||
		    !memcmp(c->expected + row, c->suspect + row, (size_t)c->cell))
			continue;
		for (int64_t i = row; i < row + c->cell; i += w->shape.elem) {
			double y = fabs(kvt_dtype_decode(w->dtype, c->suspect + i));

			limit = isfinite(y) && y > limit ? y : limit;
		}
		rows++;
	} while (rows < ROWS_LOOKED_AT &&
		 kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_K));
	return limit;
}

/* Where a factor alone explains all, many that have the largest value prove nothing. */
void kvt_explain_saturation(struct kvt_hypothesis *out, struct fault_case *c)
{
	struct rounding plain = { .limit = kvt_fault_largest(c->window->dtype) };
	struct rounding how = { .limit = limit_of(c) };

	if (how.limit < plain.limit && scan_both(out, c, &plain))
		return;
	if (scan_both(out, c, &how))
		judge_spans(out, c, false, how.both);
}

/* ---- bits --------------------------------------------------------------- */

enum { SURE_BIT = 2, SPARSE = 16 };

/* False: two bits of an element, or too many elements. */
static bool flips_of_row(struct kvt_hypothesis *out, const struct fault_case *c,
			 const int64_t at[KVT_NAXES], uint64_t *flipped)
{
	const struct kvt_window *w = c->window;
	const int64_t row = kvt_fault_offset(w, at), elem = w->shape.elem;

	if (!memcmp(c->expected + row, c->suspect + row, (size_t)c->cell))
		return true;
	for (int64_t i = row; i < row + c->cell; i += elem) {
		uint64_t bits = bits_of(c->expected + i, w->dtype->elem) ^
				bits_of(c->suspect + i, w->dtype->elem);

		if (kvt_fault_same(w, c->expected + i, c->suspect + i))
			continue;
		*flipped |= bits;
		if ((bits & (bits - 1)) || ++out->explained > MAX_FLIPS)
			return false;
	}
	return true;
}

/*
 * A few elements of many, each with one bit flipped.  If that is never more than
 * one of the two lowest bits, it may as well be rounding.
 */
void kvt_explain_flips(struct kvt_hypothesis *out, struct fault_case *c)
{
	const struct kvt_window *w = c->window;
	int64_t at[KVT_NAXES] = { 0 }, live = 0;
	uint64_t flipped = 0;

	out->verdict = KVT_REFUTED;
	out->tried = 1;
	do {
		if (!kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]))
			continue;
		live += c->dim;
		if (!flips_of_row(out, c, at, &flipped))
			return;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_K));
	out->matched = out->explained;
	if (out->explained > live / SPARSE || !(flipped >> SURE_BIT))
		return;
	out->args.n[0] = out->explained;
	out->nargs = 1;
	out->verdict = KVT_EXPLAINS;
}

/* ---- values that are none ----------------------------------------------- */

/* All that differs is not finite, but was; single bits may make such a value, too. */
void kvt_explain_nan(struct kvt_hypothesis *out, struct fault_case *c)
{
	const struct kvt_window *w = c->window;
	int64_t at[KVT_NAXES] = { 0 };
	bool flipped = true;

	out->verdict = KVT_REFUTED;
	out->tried = 1;
	do {
		int64_t i = kvt_fault_offset(w, at);
		uint64_t bits;

		if (!kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) ||
		    kvt_fault_same(w, c->expected + i, c->suspect + i))
			continue;
		if (isfinite(kvt_dtype_decode(w->dtype, c->suspect + i)) ||
		    !isfinite(kvt_dtype_decode(w->dtype, c->expected + i)))
			return;
		bits = bits_of(c->expected + i, w->dtype->elem) ^
		       bits_of(c->suspect + i, w->dtype->elem);
		flipped &= !(bits & (bits - 1));
		out->explained++;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_D));
	out->matched = out->explained;
	if (flipped)
		return;
	out->nargs = 1;
	out->verdict = KVT_EXPLAINS;
}
