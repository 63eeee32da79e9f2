/* SPDX-License-Identifier: Apache-2.0 */
/* tolerance.c - tolerances: what is asked for, and what rounding allows */
#include "lib/ops/diff/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[NTERMS] = {
	[T_ATOL] = "atol", [T_RTOL] = "rtol", [T_ULP] = "ulp", [T_MAX_ABS] = "max-abs",
	[T_REL_L2] = "rel-l2", [T_COSINE] = "cosine", [T_PCC] = "pcc",
};

const char *term_name(enum term term)
{
	return names[term];
}

/* ---- what is asked for -------------------------------------------------- */

static bool number(double *out, const char *text, size_t length)
{
	char copy[64], *end;

	if (!length || length >= sizeof(copy) || strchr(" \t\n", text[0]))
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	*out = strtod(copy, &end);
	return !*end && isfinite(*out);
}

static enum kvt_status parse_term(struct tolerance *out, const char *text, size_t length,
				  struct kvt_error *err)
{
	const char *equals = memchr(text, '=', length);
	size_t n = equals ? (size_t)(equals - text) : length;
	double value;
	int t = 0;

	if (length == 4 && !strncmp(text, "auto", 4)) {
		out->automatic = true;
		return KVT_OK;
	}
	while (t < NTERMS && (strlen(names[t]) != n || strncmp(text, names[t], n)))
		t++;
	if (t == NTERMS)
		return kvt_fail(err, KVT_USAGE,
				"--tolerance has '%.*s', expected auto, atol, rtol, ulp, max-abs, rel-l2, cosine or pcc",
				(int)(n < 60 ? n : 60), text);
	if (!equals || !number(&value, equals + 1, length - n - 1) ||
	    (value < 0 && t < T_COSINE) || (value > 1 && t >= T_COSINE))
		return kvt_fail(err, KVT_USAGE, "--tolerance has '%.*s', expected %s=%s",
				(int)(length < 60 ? length : 60), text, names[t],
				t < T_COSINE ? "a number from 0 on" :
					       "a number up to 1");
	if (out->has[t])
		return kvt_fail(err, KVT_USAGE, "--tolerance has %s twice", names[t]);
	out->has[t] = true;
	out->value[t] = value;
	return KVT_OK;
}

enum kvt_status tolerance_parse(struct tolerance *out, const char *text,
				struct kvt_error *err)
{
	*out = (struct tolerance){ .given = true };
	for (;;) {
		size_t length = strcspn(text, ",");
		enum kvt_status status = parse_term(out, text, length, err);

		if (status || !text[length])
			return status;
		text += length + 1;
	}
}

enum kvt_status scale_parse(struct scale *out, const char *option, const char *text,
			    struct kvt_error *err)
{
	size_t first = strcspn(text, ",");
	const char *second = text[first] ? text + first + 1 : text;

	out->given = true;
	if (!number(&out->kv[0], text, first) ||
	    !number(&out->kv[1], second, text[first] ? strlen(second) : first) ||
	    !(out->kv[0] > 0) || !(out->kv[1] > 0))
		return kvt_fail(err, KVT_USAGE,
				"--%s is '%.60s', expected a number above 0, or one for keys and one for values: 0.5,0.25",
				option, text);
	return KVT_OK;
}

/* ---- what rounding allows ----------------------------------------------- */

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

void tolerance_of_types(double *atol, double *rtol, const struct pair *p,
			const struct scale scale[NSIDES])
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

static void automatic(struct tolerance *t, const struct pair *p,
		      const struct scale scale[NSIDES])
{
	double atol, rtol;

	tolerance_of_types(&atol, &rtol, p, scale);
	if (!t->has[T_ATOL])
		t->value[T_ATOL] = atol;
	if (!t->has[T_RTOL])
		t->value[T_RTOL] = rtol;
	t->has[T_ATOL] = t->has[T_RTOL] = true;
}

enum kvt_status judge_pair(struct tolerance *out, const struct judging *how,
			   const struct pair *p, const struct scale scale[NSIDES],
			   struct kvt_error *err)
{
	struct kvt_text a = kvt_group_type(p->group[SIDE_A]);
	struct kvt_text b = kvt_group_type(p->group[SIDE_B]);
	bool same = kvt_group_same_type(p->group[SIDE_A], p->group[SIDE_B]);

	*out = how->tolerance;
	if (!same && !how->exact && !out->given)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is %s in A and %s in B: --tolerance=auto allows for rounding, --exact wants equal values",
				p->id, a.s, b.s);
	/* numbers of so few bits are hardly ever stored unscaled */
	for (int s = 0; !same && s < NSIDES; s++)
		if (p->group[s]->dtype->elem == 1 && !p->group[s]->content.type &&
		    !how->scale[s].given)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s is %s in %s, and the dump has no scale: say --scale-%c, 1 if there is none",
					p->id, p->group[s]->dtype->name, s ? "B" : "A",
					s ? 'b' : 'a');
	if ((!same || p->decoded) && out->has[T_ULP])
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is %s in A and %s in B: ulp is for one type", p->id,
				a.s, b.s);
	/* of packed numbers it depends on the scale of each: meter_run() */
	if (out->automatic && !p->decoded)
		automatic(out, p, scale);
	return KVT_OK;
}
