/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plant.c - choose what is open about a fault, and make it happen
 *
 * In: a window, a fault, and the arguments that are given.  Others are drawn from their
 * ranges by a seed until the row finds them valid: the same seed, the same fault.  Out:
 * the bytes with the fault, and how many elements are others than they were.
 */
#include <math.h>
#include <string.h>

#include "lib/fault/fault.h"
#include "lib/base/random.h"

static int64_t choose(uint64_t *state, int64_t begin, int64_t end)
{
	return begin + (int64_t)(kvt_random(state) % (uint64_t)(end - begin));
}

/* ---- arguments ---------------------------------------------------------- */

enum { MANY_TRIES = 100000 };

static enum kvt_status check_given(const struct kvt_strike *strike,
				   const struct fault_case *c, const struct fault *f,
				   int i, struct kvt_error *err)
{
	struct kvt_range range = f->range(c, i);
	int64_t n = strike->args.n[i];

	if (range.begin >= range.end)
		return kvt_fail(err, KVT_UNSUPPORTED, "%s needs %s", f->says.name,
				f->needs);
	if (strike->given[i] && (n < range.begin || n >= range.end))
		return kvt_fail(err, KVT_USAGE, "%s: %s is %lld, expected %lld to %lld",
				f->says.name, f->says.arg[i].name, LL(n),
				LL(range.begin), LL(range.end - 1));
	return KVT_OK;
}

static enum kvt_status choose_args(struct kvt_strike *strike,
				   const struct fault_case *c, const struct fault *f,
				   uint64_t *random, struct kvt_error *err)
{
	bool open = false;
	int nargs = 0;

	for (; nargs < KVT_FAULT_ARGS && f->says.arg[nargs].name; nargs++) {
		enum kvt_status status = check_given(strike, c, f, nargs, err);

		if (status)
			return status;
		open |= !strike->given[nargs];
	}
	for (int tries = open ? MANY_TRIES : 1; tries > 0; tries--) {
		for (int i = 0; i < nargs; i++) {
			struct kvt_range range = f->range(c, i);

			if (!strike->given[i])
				strike->args.n[i] = choose(random, range.begin,
							   range.end);
		}
		if (!f->valid || f->valid(c, &strike->args))
			return KVT_OK;
	}
	return kvt_fail(err, open ? KVT_UNSUPPORTED : KVT_USAGE,
			open ? "%s: no arguments fit this cache" :
			       "%s: these arguments do not fit this cache", f->says.name);
}

/* A power of two with which values above the average are cut, or half as many. */
static double factor_that_cuts(const struct fault_case *c)
{
	const struct kvt_window *w = c->window;
	int64_t at[KVT_NAXES] = { 0 }, n = 0;
	double sum = 0;

	do {
		int64_t i = kvt_fault_offset(w, at);
		double x = kvt_dtype_decode(w->dtype, c->expected + i);

		if (!kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) || !isfinite(x))
			continue;
		sum += fabs(x);
		n++;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_D));
	if (sum <= 0)
		return 2;
	return exp2(floor(log2(kvt_fault_largest(w->dtype) / sum * (double)n)));
}

static void choose_factor(struct kvt_strike *strike, const struct fault_case *c,
			  const struct fault *f, uint64_t *random)
{
	static const double factors[] = { 0.125, 0.25, 0.3, 0.5, 0.7, 1.5, 2, 3, 4 };
	const int n = sizeof(factors) / sizeof(factors[0]);

	if (!f->says.has_factor || strike->args.factor != 0)
		return;
	if (f->explains == kvt_explain_saturation)
		strike->args.factor = factor_that_cuts(c);
	else
		strike->args.factor = factors[choose(random, 0, n)];
}

/* Elements that are the largest, and were not. */
static int64_t count_cut(const uint8_t *out, const struct fault_case *c)
{
	const struct kvt_window *w = c->window;
	double largest = kvt_fault_largest(w->dtype);
	int64_t at[KVT_NAXES] = { 0 }, n = 0;

	do {
		int64_t i = kvt_fault_offset(w, at);

		n += kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) &&
		     fabs(kvt_dtype_decode(w->dtype, out + i)) >= largest &&
		     !kvt_fault_same(w, out + i, c->expected + i);
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_D));
	return n;
}

/* A live one that is not all zeros, if there is any. */
static enum kvt_status choose_block(struct kvt_strike *strike, const struct fault_case *c,
				    const struct fault *f, uint64_t *random,
				    struct kvt_error *err)
{
	if (!f->one_block || strike->block >= 0)
		return KVT_OK;
	for (int tries = MANY_TRIES; tries > 0; tries--) {
		strike->block = choose(random, 0, c->window->shape.n[KVT_AXIS_B]);
		if (kvt_fault_is_live(c->window, strike->block, 0))
			return KVT_OK;
	}
	return kvt_fail(err, KVT_UNSUPPORTED, "%s needs a block in use", f->says.name);
}

/* ---- the fault ---------------------------------------------------------- */

static bool strikes(const struct kvt_strike *strike, const struct kvt_window *w,
		    const int64_t at[KVT_NAXES])
{
	int64_t b = at[KVT_AXIS_B];

	return (strike->layer < 0 || strike->layer == at[KVT_AXIS_L]) &&
	       (strike->block < 0 || strike->block == b) &&
	       !(w->use && w->use[b * w->shape.n[KVT_AXIS_S]] == KVT_NULL_BLOCK);
}

static void plant_elements(uint8_t *out, const struct kvt_strike *strike,
			   const struct fault_case *c, const struct fault *f)
{
	const struct kvt_window *w = c->window;
	int64_t at[KVT_NAXES] = { 0 };
	uint8_t value[8];

	do {
		if (strikes(strike, w, at) &&
		    kvt_fault_value(value, c, f, &strike->args, at))
			memcpy(out + kvt_fault_offset(w, at), value,
			       (size_t)w->shape.elem);
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_L, KVT_AXIS_D));
}

/* One bit of one live element that has not been hit yet; false: none found. */
static bool flip_one(uint8_t *out, const struct kvt_strike *strike,
		     const struct fault_case *c, uint64_t *random)
{
	const struct kvt_window *w = c->window;
	const int64_t elem = w->shape.elem;

	for (int tries = MANY_TRIES; tries > 0; tries--) {
		int64_t at[KVT_NAXES], i, bit = choose(random, 0, 8 * elem);

		for (int a = 0; a < KVT_NAXES; a++)
			at[a] = choose(random, 0, w->shape.n[a]);
		i = kvt_fault_offset(w, at);
		if (!strikes(strike, w, at) ||
		    !kvt_fault_is_live(w, at[KVT_AXIS_B], at[KVT_AXIS_S]) ||
		    memcmp(out + i, c->expected + i, (size_t)elem))
			continue;
		out[i + bit / 8] ^= (uint8_t)(1 << bit % 8);
		return true;
	}
	return false;
}

static enum kvt_status plant_flips(uint8_t *out, const struct kvt_strike *strike,
				   const struct fault_case *c, uint64_t *random,
				   struct kvt_error *err)
{
	for (int64_t i = 0; i < strike->args.n[0]; i++)
		if (!flip_one(out, strike, c, random))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"flip-bits: fewer than %lld live elements",
					LL(strike->args.n[0]));
	return KVT_OK;
}

static enum kvt_status find_row(const struct fault **out, const struct kvt_fault *fault,
				struct kvt_error *err)
{
	for (int i = 0; (*out = kvt_fault_row(i)); i++)
		if (&(*out)->says == fault)
			return KVT_OK;
	return kvt_fail(err, KVT_USAGE, "no such fault");
}

/* Some faults have a usual form, which is what is chosen. */
static void choose_usual(struct kvt_strike *strike, const struct fault *f)
{
	if (f->explains == kvt_explain_flips && !strike->given[0]) {
		strike->args.n[0] = 1;
		strike->given[0] = true;
	}
	for (int i = 0; i < KVT_FAULT_ARGS; i++)
		if (f->usual & 1U << i && !strike->given[i]) {
			strike->args.n[i] = 0;
			strike->given[i] = true;
		}
}

enum kvt_status kvt_fault_plant(void *out, struct kvt_strike *strike,
				const struct kvt_window *w, const void *expected,
				struct kvt_error *err)
{
	const struct fault *f;
	uint64_t random = strike->seed;
	struct kvt_difference difference;
	struct fault_case c;
	int64_t nbytes;
	enum kvt_status status;

	if ((status = kvt_fault_check_window(w, err)) ||
	    (status = kvt_shape_nbytes(&nbytes, &w->shape, err)) ||
	    (status = find_row(&f, strike->fault, err)))
		return status;
	kvt_fault_case_init(&c, w, expected, NULL);
	if (!nbytes || !f->applies(&c))
		return kvt_fail(err, KVT_UNSUPPORTED, "%s needs %s", f->says.name,
				f->needs);
	choose_usual(strike, f);
	choose_factor(strike, &c, f, &random);
	if ((status = choose_args(strike, &c, f, &random, err)) ||
	    (status = choose_block(strike, &c, f, &random, err)))
		return status;
	memcpy(out, expected, (size_t)nbytes);
	if (f->explains == kvt_explain_flips)
		status = plant_flips(out, strike, &c, &random, err);
	else
		plant_elements(out, strike, &c, f);
	if (status)
		return status;
	if (f->explains == kvt_explain_saturation)
		strike->args.n[1] = count_cut(out, &c);
	kvt_window_compare(&difference, w, expected, out);
	if (!difference.count)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s would not change any live element of this dump",
				f->says.name);
	return KVT_OK;
}
