/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotation.c - head vectors that are kept in another basis, and back
 *
 * Sylvester's matrix of n rows is ones and minus ones, and its own inverse but for a
 * factor n: so undoing is the same butterflies, n log n sums, and a division.  The
 * signed one, vLLM's of int4_per_token_head, changes signs before it, in blocks of the
 * largest power of two in n.
 */
#include "lib/layout/content_types.h"

#include <math.h>

const char *kvt_rotation_name(enum kvt_rotation rotation)
{
	static const char *const names[] = { "none", "hadamard", "signed_hadamard" };

	return names[rotation];
}

static bool is_power_of_two(int64_t n)
{
	return n > 0 && !(n & (n - 1));
}

bool kvt_rotation_defined(enum kvt_rotation rotation, int64_t n, const char **why)
{
	if (n > MAX_ROTATED)
		*why = "rotations of more than 1024 numbers are not undone";
	else if (rotation == KVT_ROTATION_HADAMARD && !is_power_of_two(n))
		*why = "the rotation is not defined for sizes that are no power of two";
	else if (rotation == KVT_ROTATION_SIGNED_HADAMARD && (n & -n) > 512)
		*why = "no more than 512 signs of the rotation are published";
	else
		return true;
	return false;
}

/* Sylvester's matrix, of ones and minus ones, times the vector; n is a power of two. */
static void hadamard(double *x, int64_t n)
{
	for (int64_t half = 1; half < n; half *= 2)
		for (int64_t i = 0; i < n; i++) {
			double a = x[i];

			if (i & half)
				continue;
			x[i] = a + x[i + half];
			x[i + half] = a - x[i + half];
		}
}

/* vLLM's for int4_per_token_head, the first in the highest bit; 1 is a minus. */
static const uint8_t signs[64] = {
	0x4f, 0x65, 0x31, 0x59, 0x72, 0x53, 0xfe, 0xfe, 0xc9, 0x43, 0xdd, 0x9a, 0xe3,
	0xd5, 0x01, 0x29, 0x7e, 0x2e, 0xda, 0xad, 0x7d, 0xdc, 0x0a, 0x2a, 0xed, 0xe6,
	0x2f, 0xb3, 0xfa, 0x3d, 0xfb, 0xa0, 0x33, 0xc7, 0x89, 0x4d, 0x2c, 0x1c, 0x6a,
	0xea, 0xa4, 0x47, 0x56, 0x27, 0x65, 0x32, 0x3f, 0xe6, 0x89, 0x61, 0xe3, 0xf3,
	0x8f, 0xfb, 0x9c, 0x4c, 0x91, 0xdb, 0xfa, 0x6c, 0x62, 0xca, 0x46, 0xae,
};

static void undo_signed(double *x, int64_t n)
{
	int64_t block = n & -n;

	for (int64_t at = 0; at < n; at += block) {
		hadamard(x + at, block);
		for (int64_t i = 0; i < block; i++) {
			double y = x[at + i] / (double)block;

			x[at + i] = signs[i / 8] >> (7 - i % 8) & 1 ? -y : y;
		}
	}
}

void kvt_rotation_undo(enum kvt_rotation rotation, double *vector, int64_t n)
{
	if (rotation == KVT_ROTATION_SIGNED_HADAMARD)
		undo_signed(vector, n);
	if (rotation != KVT_ROTATION_HADAMARD)
		return;
	hadamard(vector, n);
	for (int64_t i = 0; i < n; i++)
		vector[i] /= sqrt((double)n);
}
