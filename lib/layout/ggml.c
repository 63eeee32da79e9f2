/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ggml.c - blocks of ggml from 32 numbers, as its CPU backend makes those of a cache
 *
 * In: float32.  Out: scale, minimum and codes, whose places are the content's.  All is
 * float32 arithmetic in the order of ggml's, one operation a statement, so that no
 * compiler joins two.  On x86 the backend's q8_0 divides 127 by the largest number and
 * rounds ties to even; ggml's reference, and ARM, divide once more, and the reference
 * rounds ties away: some numbers in 10^6 differ by a step.  The other types are the
 * reference's everywhere.
 */
#include "lib/layout/content_types.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N = GGML_BLOCK };

/* The one that is farthest from 0, with its sign; the first of them. */
static float farthest(const float *x)
{
	float most = 0, out = 0;

	for (int i = 0; i < N; i++)
		if (most < fabsf(x[i])) {
			most = fabsf(x[i]);
			out = x[i];
		}
	return out;
}

static float inverse(float d)
{
	return d > 0 || d < 0 ? 1.0f / d : 0.0f;
}

/* Cut to a whole number up to 'most'; what is none is 0, as x86 has it. */
static uint8_t whole(float x, int most)
{
	if (!(x > 0 && x < 128))
		return 0;
	return (uint8_t)((int)x < most ? (int)x : most);
}

/* Codes around the middle of 2 * half: the farthest number is exact. */
static void centred(struct ggml_block *out, const float *x, int half)
{
	float d = farthest(x) / (float)-half, id = inverse(d);

	out->scale = d;
	for (int i = 0; i < N; i++) {
		float scaled = x[i] * id;
		float moved = scaled + ((float)half + 0.5f);

		out->code[i] = whole(moved, 2 * half - 1);
	}
}

/* From the least to the largest number, both exact. */
static void spread(struct ggml_block *out, const float *x, int most)
{
	float least = FLT_MAX, largest = -FLT_MAX, range, d, id;

	for (int i = 0; i < N; i++) {
		if (x[i] < least)
			least = x[i];
		if (x[i] > largest)
			largest = x[i];
	}
	range = largest - least;
	d = range / (float)most;
	id = inverse(d);
	out->scale = d;
	out->added = least;
	for (int i = 0; i < N; i++) {
		float above = x[i] - least;
		float scaled = above * id;
		float moved = scaled + 0.5f;

		out->code[i] = whole(moved, most);
	}
}

void kvt_ggml_q4_0(struct ggml_block *out, const float *x)
{
	centred(out, x, 8);
}

void kvt_ggml_q5_0(struct ggml_block *out, const float *x)
{
	centred(out, x, 16);
}

void kvt_ggml_q4_1(struct ggml_block *out, const float *x)
{
	spread(out, x, 15);
}

void kvt_ggml_q5_1(struct ggml_block *out, const float *x)
{
	spread(out, x, 31);
}

void kvt_ggml_q8_0(struct ggml_block *out, const float *x)
{
	float most = fabsf(farthest(x));
	float id = most > 0 ? 127.0f / most : 0.0f;

	out->scale = most / 127.0f;
	for (int i = 0; i < N; i++) {
		float scaled = x[i] * id;

		out->code[i] = isfinite(scaled) ?
			       (uint8_t)(int8_t)nearbyintf(scaled) : 0;
	}
}

/* ---- a code book ---------------------------------------------------------- */

static float book(int i)
{
	return (float)kvt_content_coding_at(kvt_content_coding_find("iq4_nl"))->
		number((uint32_t)i);
}

/* Of ascending values: the nearest, of two the greater. */
static int nearest(const float value[16], float x)
{
	int low = 0, high = 15;

	if (x <= value[0] || !isfinite(x))
		return 0;
	if (x >= value[15])
		return 15;
	while (high - low > 1) {
		int middle = (low + high) / 2;

		if (x < value[middle])
			high = middle;
		else
			low = middle;
	}
	return x - value[low] < value[high] - x ? low : high;
}

/*
 * The scale that is best for the codes, by squared distances weighted by the squares of
 * the numbers.
 */
void kvt_ggml_iq4_nl(struct ggml_block *out, const float *x)
{
	float value[16], most = farthest(x), id, up = 0, down = 0;

	if (fabsf(most) < 1e-15f)
		return;
	for (int i = 0; i < 16; i++)
		value[i] = book(i);
	id = most / value[0];
	id = 1 / id;
	for (int i = 0; i < N; i++) {
		float scaled = id * x[i], q, weight = x[i] * x[i], by, square;

		out->code[i] = (uint8_t)nearest(value, scaled);
		q = value[out->code[i]];
		by = weight * q;
		square = by * q;
		by = by * x[i];
		up += by;
		down += square;
	}
	out->scale = down > 0 ? up / down : 0.0f;
}
