/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content_write.c - rows of contents from numbers, as the kernels of their engines
 *
 *	per token and head	vLLM's Triton kernel: largest magnitude over that of the
 *				type, at least 1e-6; times its inverse; int8 half away
 *				from 0, then cut
 *	fp8_ds_mla		vLLM's CUDA kernel: of 128 each, largest magnitude over
 *				448, at least the least normal float32
 *	affine codes		mlx's CPU kernel: of a group, from the end that is
 *				farther from 0, whose code is whole
 *	fp8 of transformers	a scale that is the tensor's
 *
 * All in float32, an operation a statement, so that no compiler joins two.  What a NaN
 * becomes is not the engines', which say nothing of it: NaN of fp8, else 0.
 */
#include "lib/kvt/cast.h"
#include "lib/layout/cast_bits.h"
#include "lib/layout/content_types.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { STEP = 256 };

static const struct kvt_field *field_of(const struct kvt_packing *p, int i)
{
	return &p->field[i];
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

/*
 * Each over or times 'scale', as elements of one byte.  The engines hold them between the
 * ends first, which a scale of the largest leaves by less than its rounding.
 */
static void put_fp8(unsigned char *to, const struct kvt_dtype *fp8, const float *x,
		    int64_t n, float scale, bool times)
{
	float here[STEP];

	for (int64_t at = 0, m; at < n; at += m) {
		m = n - at < STEP ? n - at : STEP;
		for (int64_t i = 0; i < m; i++)
			here[i] = times ? x[at + i] * scale : x[at + i] / scale;
		kvt_cast_store(to + at, fp8, here, m);
	}
}

/* ---- a scale a head vector ---------------------------------------------------- */

static float scale_of(const float *x, int64_t n, float end)
{
	float scale = largest(x, n) / end;

	return scale > 1e-6f ? scale : 1e-6f;
}

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

void kvt_write_int8(unsigned char *row, const struct kvt_packing *p, const float *x,
		    float unused)
{
	const struct kvt_field *values = field_of(p, 0), *scales = field_of(p, 1);
	float scale = scale_of(x, values->count, 127), by = 1.0f / scale;

	(void)unused;
	for (int64_t i = 0; i < values->count; i++)
		row[values->at + i] = nearest_int8(x[i] * by);
	put_float(row + scales->at, scale);
}

void kvt_write_fp8(unsigned char *row, const struct kvt_packing *p, const float *x,
		   float unused)
{
	const struct kvt_field *values = field_of(p, 0), *scales = field_of(p, 1);
	float scale = scale_of(x, values->count, most_of(values->dtype));

	(void)unused;
	put_fp8(row + values->at, values->dtype, x, values->count, 1.0f / scale, true);
	put_float(row + scales->at, scale);
}

/* ---- latents ------------------------------------------------------------------- */

void kvt_write_ds_mla(unsigned char *row, const struct kvt_packing *p, const float *x,
		      float unused)
{
	const struct kvt_field *values = field_of(p, 0), *scales = field_of(p, 1);
	const struct kvt_field *rope = field_of(p, 2);
	int64_t each = values->count / scales->count;

	(void)unused;
	for (int64_t s = 0; s < scales->count; s++) {
		const float *tile = x + s * each;
		float scale = largest(tile, each) / most_of(values->dtype);

		scale = scale > FLT_MIN ? scale : FLT_MIN;
		put_fp8(row + values->at + s * each, values->dtype, tile, each, scale,
			false);
		put_float(row + scales->at + s * 4, scale);
	}
	kvt_cast_store(row + rope->at, rope->dtype, x + values->count, rope->count);
}

/* ---- one for the tensor -------------------------------------------------------- */

void kvt_write_transformers_fp8(unsigned char *row, const struct kvt_packing *p,
				const float *x, float scale)
{
	const struct kvt_field *values = field_of(p, 0), *scales = field_of(p, 1);

	put_fp8(row + values->at, values->dtype, x, values->count, scale, false);
	put_float(row + scales->at, scale);
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

void kvt_write_affine(unsigned char *row, const struct kvt_packing *p, const float *x,
		      float unused)
{
	enum { MOST = 128 };
	const struct kvt_field *codes = field_of(p, 0), *scales = field_of(p, 1);
	const struct kvt_field *biases = field_of(p, 2);
	int64_t each = codes->count / scales->count;
	const struct kvt_dtype *type = scales->dtype;
	float most = (float)((1 << codes->bits) - 1), here[MOST];
	unsigned char bytes[MOST * 4];

	(void)unused;
	for (int64_t s = 0; s < scales->count; s++) {
		struct affine a;

		/* numbers of mlx are of that type, too */
		kvt_cast_store(bytes, type, x + s * each, each);
		kvt_cast_load(here, type, bytes, each);
		a = affine_of(here, each, most);
		for (int64_t i = 0; i < each; i++) {
			float above = here[i] - a.bias;
			float code = above / a.scale;

			code = !(code > 0) ? 0 : code > most ? most : code;
			/* to the nearest: its last bits are those of the sum */
			code += 8388608.0f;
			put_code(row + codes->at, (s * each + i) * codes->bits,
				 (uint32_t)cast_bits_of(code) & 0xff);
		}
		kvt_cast_store(row + scales->at + s * type->elem, type, &a.scale, 1);
		kvt_cast_store(row + biases->at + s * type->elem, type, &a.bias, 1);
	}
}
