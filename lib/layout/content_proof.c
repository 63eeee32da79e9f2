/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content_proof.c - rows of contents a second time, to compare with what was written
 *
 * From the definitions and without speed: arithmetic in doubles, of which each step is
 * rounded to the float32 that engines compute in, and each code looked for among what all
 * codes stand for.  Of content_write.c it shares the rules, as the table of contents has
 * them, and no code: neither the conversions of cast_bits.h nor what packs bits.
 */
#include "lib/layout/content_types.h"

#include <math.h>
#include <string.h>

static double single(double x)
{
	return (double)(float)x;
}

/* ---- codes ---------------------------------------------------------------------- */

/* What the codes of one sign stand for, in ascending order; those that are numbers. */
struct levels {
	double of[128];
	int n;
	uint64_t minus, nan;		/* the bit of a sign; what is no number */
	bool zero;			/* has it a negative zero */
};

static double level(const struct kvt_field *field, uint64_t code)
{
	unsigned char byte = (unsigned char)code;

	if (field->dtype)
		return kvt_dtype_decode(field->dtype, &byte);
	return kvt_content_coding_at(field->coding)->number((uint32_t)code);
}

static struct levels levels_of(const struct kvt_field *field)
{
	bool fp8 = field->dtype, fnuz = fp8 && field->dtype->number == KVT_FNUZ;
	struct levels out = { .minus = fp8 ? 0x80 : 8, .zero = !fnuz,
			      .nan = fnuz ? 0x80 : fp8 ? 0x7f : 7 };

	while (out.n < (int)out.minus && isfinite(level(field, (uint64_t)out.n))) {
		out.of[out.n] = level(field, (uint64_t)out.n);
		out.n++;
	}
	return out;
}

/* The nearest, of two as near the even one; what is too large is the largest. */
static uint64_t nearest(const struct levels *l, double x)
{
	double size = fabs(x);
	int low = 0, high = l->n - 1;

	if (isnan(x))
		return l->nan | (l->zero && signbit(x) && l->minus > 8 ? l->minus : 0);
	while (low + 1 < high) {
		int middle = (low + high) / 2;

		if (l->of[middle] <= size)
			low = middle;
		else
			high = middle;
	}
	if (size - l->of[low] > l->of[high] - size ||
	    (size - l->of[low] == l->of[high] - size && low % 2))
		low = high;
	return (uint64_t)low | (signbit(x) && (low || l->zero) ? l->minus : 0);
}

/* The first at the least distance, as float32 has it. */
static uint64_t first(const struct levels *l, double x)
{
	double least = INFINITY;
	uint64_t code = 0;

	for (int i = 0; i < 2 * l->n; i++) {
		double number = i < l->n ? l->of[i] : -l->of[i - l->n];

		if (single(fabs(x - number)) < least) {
			least = single(fabs(x - number));
			code = (uint64_t)i;
		}
	}
	return code;
}

static void put(unsigned char *bytes, const struct kvt_field *field, int64_t row,
		int64_t i, uint64_t code, int bits)
{
	int64_t at = kvt_field_bit(field, row, i);

	for (int b = 0; b < bits; b++)
		if (code >> b & 1)
			bytes[(at + b) / 8] |= (unsigned char)(1 << (at + b) % 8);
}

/* ---- numbers of types ------------------------------------------------------------- */

static double typed(double x, const struct kvt_dtype *type)
{
	unsigned char bytes[8];

	if (!type || isnan(x))
		return x;
	kvt_dtype_encode(type, bytes, x);
	return kvt_dtype_decode(type, bytes);
}

/* An element as it is, of which fp8 have no more than their largest. */
static void put_number(unsigned char *bytes, const struct kvt_field *field, int64_t row,
		       int64_t i, double x)
{
	unsigned char *to = bytes + kvt_field_bit(field, row, i) / 8;
	struct levels levels;

	if (field->bits > 8) {
		kvt_dtype_encode(field->dtype, to, x);
		if (isnan(x) && signbit(x))	/* a NaN has its sign */
			to[field->bits / 8 - 1] |= 0x80;
		return;
	}
	levels = levels_of(field);
	*to = (unsigned char)nearest(&levels, x);
}

/* ---- rules ------------------------------------------------------------------------ */

static double largest(const float *x, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)x[i]));
	return most;
}

/* Of a type without negative zero vLLM does not use the largest. */
static double most_of(const struct kvt_field *values)
{
	struct levels l = levels_of(values);

	return l.of[l.n - 1] == 240 ? 224 : l.of[l.n - 1];
}

static double tile_scale(unsigned char *bytes, const struct kvt_field *values,
			 const struct kvt_field *scales, const struct tile_rule *rule,
			 int64_t row, int64_t s, double most)
{
	const struct kvt_dtype *type = rule->through ? kvt_dtype_find(rule->through) :
						       NULL;
	double x = fmax(most, (double)rule->least);
	struct levels l;
	int power = -127;
	uint64_t code;

	x = single(rule->times > 0 ? x * (double)rule->times :
		   x / (rule->over > 0 ? (double)rule->over : most_of(values)));
	x = fmax(typed(x, type), (double)rule->floor);
	if (rule->kept == TILE_FLOAT) {
		put_number(bytes, scales, row, s, x);
		return x;
	}
	if (rule->kept == TILE_POWER) {
		while (power < 127 && ldexp(1, power) < x)
			power++;
		power = x > 0 ? power : 0;
		put(bytes, scales, row, s, (uint64_t)(power + 127), 8);
		return ldexp(1, power);
	}
	l = levels_of(scales);
	code = nearest(&l, x);
	put(bytes, scales, row, s, code, 8);
	return l.of[code];
}

static const float *prove_field(unsigned char *bytes, const struct kvt_packing *p,
				const struct kvt_field *values, int64_t row,
				const float *x)
{
	const struct tile_rule *rule = content_recipe_of(&p->content)->tile;
	const struct kvt_field *scales = &p->field[values->scale];
	const struct kvt_dtype *type = rule->through ? kvt_dtype_find(rule->through) :
						       NULL;
	int64_t each = values->count / scales->count;
	struct levels l = levels_of(values);

	for (int64_t s = 0; s < scales->count; s++, x += each) {
		double scale = tile_scale(bytes, values, scales, rule, row, s,
					  typed(largest(x, each), type));
		double by = scale > 0 ? single(1 / scale) : 0;

		for (int64_t i = 0; i < each; i++) {
			double y = typed((double)x[i], type);

			y = rule->inverse ? y * by : scale > 0 ? y / scale : 0;
			y = typed(single(y), type);
			put(bytes, values, row, s * each + i,
			    rule->first ? first(&l, y) : nearest(&l, y), values->bits);
		}
	}
	return x;
}

static void prove_tiles(unsigned char *bytes, const struct kvt_packing *p, int64_t row,
			const float *x)
{
	for (int f = 0; f < p->nfields; f++) {
		const struct kvt_field *field = &p->field[f];

		if (field->role != KVT_FIELD_VALUES)
			continue;
		if (field->scale >= 0) {
			x = prove_field(bytes, p, field, row, x);
			continue;
		}
		for (int64_t i = 0; i < field->count; i++)
			put_number(bytes, field, row, i, (double)*x++);
	}
}

/* A scale for all of the row, which is told or, of int8, made. */
static void prove_row(unsigned char *bytes, const struct kvt_packing *p, int64_t row,
		      const float *x, double scale)
{
	const struct kvt_field *values = &p->field[0], *scales = &p->field[1];
	bool whole = !content_recipe_of(&p->content)->scaled;

	if (whole)
		scale = fmax(single(largest(x, values->count) / 127), (double)1e-6f);
	put_number(bytes, scales, row, 0, scale);
	for (int64_t i = 0; i < values->count; i++) {
		double y = whole ? single((double)x[i] * single(1 / scale)) :
				   single((double)x[i] / scale);

		if (!whole) {
			put_number(bytes, values, row, i, y);
			continue;
		}
		y = isnan(y) ? 0 : trunc(single(y + (y >= 0 ? 0.5 : -0.5)));
		put(bytes, values, row, i,
		    (uint64_t)(int64_t)fmin(fmax(y, -128), 127) & 0xff, 8);
	}
}

static void prove_affine(unsigned char *bytes, const struct kvt_packing *p, int64_t row,
			 const float *x)
{
	const struct kvt_field *codes = &p->field[0], *scales = &p->field[1];
	double most = (double)((1 << codes->bits) - 1);
	int64_t each = codes->count / scales->count;

	for (int64_t s = 0; s < scales->count; s++, x += each) {
		double low = INFINITY, high = -INFINITY, scale, edge, q;

		for (int64_t i = 0; i < each; i++) {
			low = fmin(low, typed((double)x[i], scales->dtype));
			high = fmax(high, typed((double)x[i], scales->dtype));
		}
		scale = fmax(single(single(high - low) / most), (double)1e-7f);
		scale = fabs(low) > fabs(high) ? scale : -scale;
		edge = fabs(low) > fabs(high) ? low : high;
		q = nearbyint(single(edge / scale));
		scale = q < 0 || q > 0 ? single(edge / q) : scale;
		edge = q < 0 || q > 0 ? edge : 0;
		for (int64_t i = 0; i < each; i++) {
			double y = single(typed((double)x[i], scales->dtype) - edge);

			y = single(y / scale);
			put(bytes, codes, row, s * each + i,
			    (uint64_t)nearbyint(fmin(y > 0 ? y : 0, most)), codes->bits);
		}
		put_number(bytes, scales, row, s, scale);
		put_number(bytes, &p->field[2], row, s, edge);
	}
}

void kvt_packing_prove(void *bytes, const struct kvt_packing *packing, int64_t row,
		       int64_t kv, const float *numbers, float scale)
{
	const struct content_recipe *recipe = content_recipe_of(&packing->content);

	if (recipe->blocks) {
		kvt_packing_put_blocks(bytes, packing, kv, numbers, true);
		return;
	}
	if (!row)
		memset(bytes, 0, (size_t)packing->nbytes);
	if (recipe->tile)
		prove_tiles(bytes, packing, row, numbers);
	else if (packing->field[0].added >= 0)
		prove_affine(bytes, packing, row, numbers);
	else
		prove_row(bytes, packing, row, numbers, (double)scale);
}
