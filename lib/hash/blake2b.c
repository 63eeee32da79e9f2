/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blake2b.c - BLAKE2b, as RFC 7693 has it
 *
 * A state of eight words takes 128 bytes at a time, in twelve rounds that mix sixteen
 * words; the last block is marked, and the count of bytes is part of every block:
 *
 *	v	h0 .. h7 | start0 .. 3 | start4 ^ count | start5 | start6 ^ last | start7
 *
 * The length of the hash is in the first state, so a shorter one is no prefix of a
 * longer.  The last block is filled up with zeros; it may be full, and of nothing there
 * is one.
 */
#include "lib/hash/blake2b.h"

#include <string.h>

enum { BLOCK = 128, ROUNDS = 12 };

static const uint64_t start[8] = {
	0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
	0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint8_t sigma[10][16] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
	{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
	{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
	{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
	{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
	{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
	{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
	{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
	{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
};

static uint64_t turn(uint64_t x, int n)
{
	return x >> n | x << (64 - n);
}

static void mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y)
{
	v[a] += v[b] + x;
	v[d] = turn(v[d] ^ v[a], 32);
	v[c] += v[d];
	v[b] = turn(v[b] ^ v[c], 24);
	v[a] += v[b] + y;
	v[d] = turn(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = turn(v[b] ^ v[c], 63);
}

static void compress(uint64_t h[8], const uint8_t block[BLOCK], uint64_t count, int last)
{
	uint64_t v[16], m[16] = { 0 };

	for (int i = 0; i < BLOCK; i++)
		m[i / 8] |= (uint64_t)block[i] << (8 * (i % 8));
	memcpy(v, h, sizeof(start));
	memcpy(v + 8, start, sizeof(start));
	v[12] ^= count;
	v[14] ^= last ? UINT64_MAX : 0;
	for (int r = 0; r < ROUNDS; r++) {
		const uint8_t *s = sigma[r % 10];

		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4,
			    m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
	}
	for (int i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[8 + i];
}

void kvt_blake2b(uint8_t *out, size_t nout, const void *bytes, size_t nbytes)
{
	const uint8_t *p = bytes;
	uint8_t tail[BLOCK] = { 0 };
	uint64_t h[8], count = 0;

	memcpy(h, start, sizeof(h));
	h[0] ^= 0x01010000 ^ nout;
	/* the last block may be full, but not one before it */
	for (; nbytes > BLOCK; p += BLOCK, nbytes -= BLOCK)
		compress(h, p, count += BLOCK, 0);
	if (nbytes)
		memcpy(tail, p, nbytes);
	compress(h, tail, count + nbytes, 1);
	for (size_t i = 0; i < nout; i++)
		out[i] = (uint8_t)(h[i / 8] >> (8 * (i % 8)));
}
