/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coding.c - elements of packed contents that are no type of dumps
 *
 * A row is a code: how many bits, the number of each, and how far its neighbours are,
 * for what rounding may have done.  Facts: float4_e2m1 and float8_e8m0 as the OCP
 * specification of microscaling formats has them; codes of ggml by its ggml-quants
 * (iq4_nl's book, too); books of indices are those of TurboQuant in vLLM 0.32.
 */
#include "lib/layout/content_types.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- 4-bit floats ------------------------------------------------------- */

static const double magnitudes[] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };

static double e2m1(uint32_t bits)
{
	return bits & 8 ? -magnitudes[bits & 7] : magnitudes[bits & 7];
}

/*
 * To the farther neighbour.  The largest may stand for more, by as much as its scale
 * was rounded down: no more than to the neighbour below.
 */
static double e2m1_gap(uint32_t bits)
{
	int i = (int)(bits & 7);

	return i < 7 ? magnitudes[i + 1] - magnitudes[i] : 2;
}

/* ---- integers ----------------------------------------------------------- */

static double whole(uint32_t bits)
{
	return bits;
}

/* As ggml has codes of 4 and 5 bits. */
static double less_8(uint32_t bits)
{
	return (double)bits - 8;
}

static double less_16(uint32_t bits)
{
	return (double)bits - 16;
}

/*
 * The number farthest from 0 is a whole step on its side, so the one opposite to it
 * stands for numbers up to a step away.
 */
static double gap_less_8(uint32_t bits)
{
	return bits == 15 ? 2 : 1;
}

static double gap_less_16(uint32_t bits)
{
	return bits == 31 ? 2 : 1;
}

/* ---- places in a code book ---------------------------------------------- */

/*
 * Best for a normal distribution of variance 1, as vLLM computes them; of others they
 * are in the same proportion, and only that matters to a vector of known norm.
 */
static const float book3[] = { 0.244983599f, 0.755645514f, 1.343180060f, 2.150349617f };
static const float book4[] = { 0.128427655f, 0.388137788f, 0.656879902f, 0.942448258f,
			       1.256257534f, 1.617881775f, 2.068447113f, 2.730922222f };

/* Books are symmetric, and from the least number on. */
static double from_book(const float *half, uint32_t n, uint32_t i)
{
	return i < n ? -(double)half[n - 1 - i] : (double)half[i - n];
}

static double index3(uint32_t bits)
{
	return from_book(book3, 4, bits & 7);
}

static double index4(uint32_t bits)
{
	return from_book(book4, 8, bits & 15);
}

/* That of ggml, for numbers that are near 0 more often than not. */
static double iq4_nl(uint32_t bits)
{
	static const int8_t book[] = { -127, -104, -83, -65, -49, -35, -22, -10,
				       1, 13, 25, 38, 53, 69, 89, 113 };

	return book[bits & 15];
}

/* ---- scales ------------------------------------------------------------- */

/* A power of two, but nothing is nothing. */
static double e8m0_or_zero(uint32_t bits)
{
	return !bits ? 0 : bits == 0xff ? NAN : ldexp(1, (int)bits - 127);
}

/* A float32 whose lowest four bits are another number. */
static double without_nibble(uint32_t bits)
{
	float value;

	bits &= ~UINT32_C(15);
	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

/* ---- table -------------------------------------------------------------- */

static const struct content_coding codings[] = {
	{ "float4_e2m1", 4, e2m1, 0, e2m1_gap },
	{ "uint6", 6, whole, 1, NULL },
	{ "uint5", 5, whole, 1, NULL },
	{ "uint4", 4, whole, 1, NULL },
	{ "uint3", 3, whole, 1, NULL },
	{ "uint2", 2, whole, 1, NULL },
	{ "uint1", 1, whole, 1, NULL },
	{ "uint4_less_8", 4, less_8, 0, gap_less_8 },
	{ "uint5_less_16", 5, less_16, 0, gap_less_16 },
	{ "iq4_nl", 4, iq4_nl, 0, NULL },
	{ "index4", 4, index4, 0, NULL },
	{ "index3", 3, index3, 0, NULL },
	{ "float8_e8m0_or_0", 8, e8m0_or_zero, 0, NULL },
	{ "float32_and_zero", 32, without_nibble, 0, NULL },
};
enum { NCODINGS = sizeof(codings) / sizeof(codings[0]) };

int kvt_content_coding_find(const char *name)
{
	for (int i = 0; i < NCODINGS; i++)
		if (!strcmp(codings[i].name, name))
			return i;
	return -1;
}

const struct content_coding *kvt_content_coding_at(int i)
{
	return &codings[i];
}
