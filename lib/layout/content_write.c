/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content_write.c - rows of contents from numbers, as the kernels of their engines
 *
 *	tiles			numbers that have a scale for so many of them, by the
 *				rule that the content's row of content_types.c has:
 *
 *	x x x x | x x x x	largest magnitudes: a, b
 *	s(a)      s(b)		the rule's scales, as their field keeps them
 *	c c c c   c c c c	x over the scale that was kept, to the nearest code
 *
 *	int8 per token and head	vLLM's Triton kernel: times the inverse of the scale; half
 *				away from 0, then cut
 *	affine codes		mlx's CPU kernel: of a group, from the end that is
 *				farther from 0, whose code is whole
 *	fp8 of transformers	a scale that is the tensor's
 *
 * All in float32, an operation a statement, so that no compiler joins two.  What a NaN
 * becomes is not the engines', which say nothing of it: NaN of fp8, the largest of 4
 * bits, as the GPU's instruction has it, else 0; no scale comes from one.
 */
#include "lib/kvt/cast.h"
#include "lib/layout/cast_bits.h"
#include "lib/layout/content_types.h"

#include <math.h>
#include <string.h>

enum { STEP = 256 };

static const struct kvt_field *field_of(const struct kvt_packing *p, int i)
{
	return &p->field[i];
}

/* Where a row of a field begins. */
static unsigned char *row_of(unsigned char *bytes, const struct kvt_field *field,
			     int64_t row)
{
	return bytes + field->at + row * field->stride;
}

/* NaN counts for nothing.  By bits, which are vectors in any order. */
static float largest(const float *x, int64_t n)
{
	int32_t most = 0;

	for (int64_t i = 0; i < n; i++) {
		int32_t u = cast_bits_of(x[i]) & 0x7fffffff;

		u = cast_pick(u > 0x7f800000, 0, u);
		most = u > most ? u : most;
	}
	return cast_float_of(most);
}

static void put_float(unsigned char *to, float x)
{
	memcpy(to, &x, sizeof(x));
}

/* vLLM's largest number of the types without negative 0 is 224. */
static float most_of(const struct kvt_dtype *fp8)
{
	return fp8->fraction == 2 ? 57344.0f : fp8->number == KVT_FNUZ ? 224.0f : 448.0f;
}

static float as_type(float x, const struct kvt_dtype *type)
{
	unsigned char bytes[8];

	if (!type)
		return x;
	kvt_cast_store(bytes, type, &x, 1);
	kvt_cast_load(&x, type, bytes, 1);
	return x;
}

/* ---- tiles ----------------------------------------------------------------------- */

/* A field of numbers, the one of its scales, and where their row is. */
struct tiles {
	const struct tile_rule *rule;
	const struct kvt_dtype *through;	/* of the rule; NULL: float32 */
	const struct kvt_field *values, *scales;
	int64_t row;
};

static float largest_code(const struct tiles *t)
{
	return t->values->dtype ? most_of(t->values->dtype) : 6.0f;
}

/* The power of two that is not less than it; of 0 it is 1, and none is below 2^-127. */
static int power_above(float x)
{
	int exponent = 0;
	float fraction = frexpf(x, &exponent);

	if (!(x > 0))
		return 0;
	if (isinf(x))
		return 127;
	exponent -= fraction > 0.5f ? 0 : 1;
	return exponent < -127 ? -127 : exponent > 127 ? 127 : exponent;
}

/* Puts the scale of a tile where it is kept; what it is then. */
static float put_scale(unsigned char *bytes, const struct tiles *t, int64_t s, float most)
{
	unsigned char *to = bytes + kvt_field_bit(t->scales, t->row, s) / 8;
	const struct tile_rule *rule = t->rule;
	float scale = most > rule->least ? most : rule->least;

	scale = rule->over > 0 || rule->over < 0 ?
		scale / (rule->over > 0 ? rule->over : largest_code(t)) :
		scale * rule->times;
	scale = as_type(scale, t->through);
	scale = scale > rule->floor ? scale : rule->floor;
	if (rule->kept == TILE_POWER) {
		int exponent = power_above(scale);

		*to = (unsigned char)(exponent + 127);
		return ldexpf(1, exponent);
	}
	kvt_cast_store(to, t->scales->dtype, &scale, 1);
	kvt_cast_load(&scale, t->scales->dtype, to, 1);
	return scale;
}

/* To the nearest of 4 bits, ties to the even code, as cvt.rn.satfinite.e2m1x2 does. */
static unsigned e2m1(float x)
{
	static const float middle[] = { 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5 };
	float size = fabsf(x);
	unsigned code = 0;

	if (isnan(x))
		return 7;
	for (unsigned i = 0; i < 7; i++)
		code += i % 2 ? size >= middle[i] : size > middle[i];
	return code | (signbit(x) ? 8 : 0);
}

/* As mlx looks for it: the first of the numbers at the least distance. */
static unsigned e2m1_first(float x)
{
	static const float number[] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6,
					0, -0.5f, -1, -1.5f, -2, -3, -4, -6 };
	float least = INFINITY;
	unsigned code = 0;

	for (unsigned i = 0; i < 16; i++) {
		float distance = x - number[i];

		distance = fabsf(distance);
		if (distance < least) {
			least = distance;
			code = i;
		}
	}
	return code;
}

/* Codes of n numbers. */
static void put_codes(unsigned char *to, const struct tiles *t, const float *x, int64_t n)
{
	unsigned (*code)(float) = t->rule->first ? e2m1_first : e2m1;

	if (t->values->dtype)
		kvt_cast_store(to, t->values->dtype, x, n);
	else
		for (int64_t i = 0; i < n; i += 2)
			to[i / 2] = (unsigned char)(code(x[i]) | code(x[i + 1]) << 4);
}

static void round_all(float *x, int64_t n, const struct kvt_dtype *type)
{
	for (int64_t i = 0; type && i < n; i++)
		x[i] = as_type(x[i], type);
}

static void put_tile(unsigned char *bytes, const struct tiles *t, int64_t s,
		     const float *x, int64_t n)
{
	int bits = t->values->bits;
	unsigned char *to = row_of(bytes, t->values, t->row) + s * n * bits / 8;
	float here[STEP], scale, most = largest(x, n), by;

	/* rounding keeps the order of numbers */
	round_all(&most, 1, t->through);
	scale = put_scale(bytes, t, s, most);
	by = t->rule->inverse && scale > 0 ? 1.0f / scale : 0;
	for (int64_t at = 0, m; at < n; at += m) {
		m = n - at < STEP ? n - at : STEP;
		memcpy(here, x + at, (size_t)m * sizeof(*here));
		round_all(here, m, t->through);
		for (int64_t i = 0; i < m; i++)
			here[i] = t->rule->inverse ? here[i] * by :
				  scale > 0 ? here[i] / scale : 0;
		round_all(here, m, t->through);
		put_codes(to + at * bits / 8, t, here, m);
	}
}

static void write_tiles(unsigned char *bytes, const struct kvt_packing *p, int64_t row,
			const float *x, float unused)
{
	const struct tile_rule *rule = content_recipe_of(&p->content)->tile;
	struct tiles t = { .rule = rule, .row = row,
			   .through = rule->through ? kvt_dtype_find(rule->through) :
						      NULL };
	int64_t each;

	(void)unused;
	for (int f = 0; f < p->nfields; f++) {
		t.values = field_of(p, f);
		if (t.values->role != KVT_FIELD_VALUES)
			continue;
		if (t.values->scale < 0) {
			kvt_cast_store(row_of(bytes, t.values, row), t.values->dtype, x,
				       t.values->count);
			x += t.values->count;
			continue;
		}
		t.scales = field_of(p, t.values->scale);
		each = t.values->count / t.scales->count;
		for (int64_t s = 0; s < t.scales->count; s++, x += each)
			put_tile(bytes, &t, s, x, each);
	}
}

/* ---- one for a head vector, or for the tensor ------------------------------------- */

/* The nearest, half away from 0, of a byte; NaN is 0. */
static uint8_t nearest_int8(float y)
{
	int32_t u = cast_bits_of(y);
	float half = cast_float_of((u & INT32_MIN) | 0x3f000000);

	y = cast_float_of(cast_pick((u & 0x7fffffff) > 0x7f800000, 0, u)) + half;
	y = y > 127 ? 127 : y;
	y = y < -128 ? -128 : y;
	return (uint8_t)(int32_t)y;
}

void kvt_write_int8(unsigned char *bytes, const struct kvt_packing *p, int64_t row,
		    const float *x, float unused)
{
	const struct kvt_field *values = field_of(p, 0), *scales = field_of(p, 1);
	unsigned char *to = row_of(bytes, values, row);
	float scale = largest(x, values->count) / 127, by;

	(void)unused;
	scale = scale > 1e-6f ? scale : 1e-6f;
	by = 1.0f / scale;
	for (int64_t i = 0; i < values->count; i++)
		to[i] = nearest_int8(x[i] * by);
	put_float(row_of(bytes, scales, row), scale);
}

void kvt_write_transformers_fp8(unsigned char *bytes, const struct kvt_packing *p,
				int64_t row, const float *x, float scale)
{
	const struct kvt_field *values = field_of(p, 0), *scales = field_of(p, 1);
	unsigned char *to = row_of(bytes, values, row);
	float here[STEP];

	for (int64_t at = 0, m; at < values->count; at += m) {
		m = values->count - at < STEP ? values->count - at : STEP;
		for (int64_t i = 0; i < m; i++)
			here[i] = x[at + i] / scale;
		kvt_cast_store(to + at, values->dtype, here, m);
	}
	put_float(row_of(bytes, scales, row), scale);
}

/* ---- codes between two ends ----------------------------------------------------- */

struct affine {
	float scale, bias;
};

static struct affine affine_of(const float *x, int64_t n, float most)
{
	float low = INFINITY, high = -INFINITY, range, edge, whole, scale;
	bool from_low;

	for (int64_t i = 0; i < n; i++) {
		high = x[i] > high ? x[i] : high;
		low = x[i] < low ? x[i] : low;
	}
	from_low = fabsf(low) > fabsf(high);
	range = high - low;
	scale = range / most;
	scale = scale > 1e-7f ? scale : 1e-7f;
	scale = from_low ? scale : -scale;
	edge = from_low ? low : high;
	whole = rintf(edge / scale);
	if (!(whole < 0 || whole > 0))
		return (struct affine){ scale, 0 };
	return (struct affine){ edge / whole, edge };
}

static void put_code(unsigned char *to, int64_t bit, uint32_t code)
{
	uint32_t bits = code << (bit % 8);

	for (int64_t b = bit / 8; bits; b++, bits >>= 8)
		to[b] |= (unsigned char)bits;
}

void kvt_write_affine(unsigned char *bytes, const struct kvt_packing *p, int64_t row,
		      const float *x, float unused)
{
	enum { MOST = 128 };
	const struct kvt_field *codes = field_of(p, 0), *scales = field_of(p, 1);
	const struct kvt_field *biases = field_of(p, 2);
	int64_t each = codes->count / scales->count;
	const struct kvt_dtype *type = scales->dtype;
	float most = (float)((1 << codes->bits) - 1), here[MOST];
	unsigned char typed[MOST * 4];

	(void)unused;
	for (int64_t s = 0; s < scales->count; s++) {
		struct affine a;

		/* numbers of mlx are of that type, too */
		kvt_cast_store(typed, type, x + s * each, each);
		kvt_cast_load(here, type, typed, each);
		a = affine_of(here, each, most);
		for (int64_t i = 0; i < each; i++) {
			float above = here[i] - a.bias;
			float code = above / a.scale;

			code = !(code > 0) ? 0 : code > most ? most : code;
			/* to the nearest: its last bits are those of the sum */
			code += 8388608.0f;
			put_code(row_of(bytes, codes, row), (s * each + i) * codes->bits,
				 (uint32_t)cast_bits_of(code) & 0xff);
		}
		kvt_cast_store(row_of(bytes, scales, row) + s * type->elem, type,
			       &a.scale, 1);
		kvt_cast_store(row_of(bytes, biases, row) + s * type->elem, type,
			       &a.bias, 1);
	}
}

/* ---- any ------------------------------------------------------------------------- */

void kvt_packing_write(void *bytes, const struct kvt_packing *packing, int64_t row,
		       int64_t kv, const float *numbers, float scale)
{
	const struct content_recipe *recipe = content_recipe_of(&packing->content);

	if (recipe->blocks) {
		kvt_packing_put_blocks(bytes, packing, kv, numbers, false);
		return;
	}
	if (!row)
		memset(bytes, 0, (size_t)packing->nbytes);
	(recipe->tile ? write_tiles : recipe->write)(bytes, packing, row, numbers, scale);
}
