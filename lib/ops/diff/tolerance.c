/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tolerance.c - the tolerance that a pair is judged by
 *
 * In: what was asked for, and the element types and scales of both sides.  Out: atol
 * and rtol, where they are to follow from the types: what rounding one number to
 * both types can do, and no more, so that a dump and its conversion are equal under
 * it and a wrong element is not.  Pairs that nothing asked for makes comparable, and
 * numbers of 8 bits without a scale, are refused instead of guessed at.
 */
#include "lib/ops/diff/internal.h"

#include <math.h>

/*
 * A value of a type is at most half the gap to its neighbour away from what was
 * rounded to it.  Relative to the value the gap is greatest just above 1; below
 * the least value with all digits it no longer shrinks.  Both are measured on
 * the type itself.
 */
struct rounding {
	double relative, absolute;
};

static struct rounding rounding_of(const struct kvt_dtype *dtype)
{
	struct rounding r = { 0, 0 };
	uint64_t count = dtype->elem <= 2 ? (uint64_t)1 << (8 * dtype->elem) : 0;
	uint8_t element[8] = { 0 };
	double next, one = 2;

	if (!dtype->is_float)
		return r;
	if (!count)		/* float32, float64 */
		return dtype->elem == 4 ? (struct rounding){ 0x1p-24, 0x1p-150 } :
					  (struct rounding){ 0x1p-53, 0 };
	for (uint64_t i = 1; i < count; i++) {
		element[0] = (uint8_t)i;
		element[1] = (uint8_t)(i >> 8);
		next = kvt_dtype_decode(dtype, element);
		if (i == 1)
			r.absolute = next / 2;
		if (next > 1 && next < one)
			one = next;
	}
	r.relative = (one - 1) / 2;
	return r;
}

void tolerance_of_types(double *atol, double *rtol, const struct diff_pair *p,
			const struct diff_scale scale[NSIDES])
{
	struct rounding r[NSIDES];

	*atol = 0;
	for (int s = 0; s < NSIDES; s++) {
		r[s] = rounding_of(p->group[s]->dtype);
		*atol += r[s].absolute * fmax(scale[s].kv[0], scale[s].kv[1]);
	}
	/* from what was rounded twice to the a that rtol is taken of */
	*rtol = (r[SIDE_A].relative + r[SIDE_B].relative) / (1 - r[SIDE_A].relative);
	*atol *= 1 + *rtol;
}

static void automatic(struct diff_tolerance *t, const struct diff_pair *p,
		      const struct diff_scale scale[NSIDES])
{
	double atol, rtol;

	tolerance_of_types(&atol, &rtol, p, scale);
	if (!t->has[T_ATOL])
		t->value[T_ATOL] = atol;
	if (!t->has[T_RTOL])
		t->value[T_RTOL] = rtol;
	t->has[T_ATOL] = t->has[T_RTOL] = true;
}

/* Does a tolerance follow from what numbers were rounded to? */
static bool is_bounded(const struct diff_pair *p)
{
	for (int s = 0; p->decoded && s < NSIDES; s++)
		if (p->packing[s].nfields && !kvt_packing_bounded(&p->packing[s]))
			return false;
	return true;
}

enum kvt_status tolerance_of_pair(struct diff_tolerance *out,
				  const struct diff_criteria *criteria,
				  const struct diff_pair *p,
				  const struct diff_scale scale[NSIDES],
				  struct kvt_error *err)
{
	struct kvt_text a = kvt_group_type(p->group[SIDE_A]);
	struct kvt_text b = kvt_group_type(p->group[SIDE_B]);
	bool same = kvt_group_same_type(p->group[SIDE_A], p->group[SIDE_B]);
	int side = p->group[SIDE_B]->cast_from[0] ? SIDE_B : SIDE_A;
	struct kvt_text cast = kvt_group_cast_text(p->group[side]);

	*out = criteria->tolerance;
	if (!same && !criteria->exact && !out->given)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is %s in A and %s in B%s%s: give --tolerance=%s to allow for rounding, or --exact to require equal values",
				p->id, a.s, b.s, cast.s[0] ? "; values changed: " : "",
				cast.s, is_bounded(p) ? "auto" : "atol=X");
	/* numbers of so few bits are hardly ever stored unscaled */
	for (int s = 0; !same && s < NSIDES; s++)
		if (p->group[s]->dtype->elem == 1 && !p->group[s]->content.type &&
		    !criteria->scale[s].given && !p->group[s]->scales)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is %s in %s, and the dump has no scale: give --scale-%c=X, or --scale-%c=1 if there is none",
					p->id, p->group[s]->dtype->name, s ? "B" : "A",
					s ? 'b' : 'a', s ? 'b' : 'a');
	if ((!same || p->decoded) && out->has[T_ULP])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is %s in A and %s in B: ulp needs the same type in both", p->id,
				a.s, b.s);
	/* of packed numbers it depends on the scale of each: meter_run() */
	if (out->automatic && !p->decoded)
		automatic(out, p, scale);
	return KVT_OK;
}
