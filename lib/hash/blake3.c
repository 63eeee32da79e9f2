/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blake3.c - BLAKE3 without a key, 32 bytes of output
 *
 * The input is cut into chunks of 1024 bytes, each of which is a chain of compressions of
 * 64; chunks are the leaves of a binary tree whose left halves are full.  A stack has the
 * values of the full subtrees on the way, largest first: their sizes are the bits of the
 * number of chunks so far, so 22 are enough for 2^32 bytes.
 *
 * Facts: "BLAKE3: one function, fast everywhere", 2020, sections 2.1 to 2.4.
 */
#include "lib/hash/blake3.h"
#include "lib/base/little_endian.h"

#include <string.h>

enum { CHUNK = 1024, BLOCK = 64, DEPTH = 23 };
enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

static const uint32_t IV[8] = {
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
	0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static uint32_t get32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t rotr(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static void mix(uint32_t v[16], const int at[4], uint32_t x, uint32_t y)
{
	uint32_t *a = &v[at[0]], *b = &v[at[1]], *c = &v[at[2]], *d = &v[at[3]];

	*a += *b + x;
	*d = rotr(*d ^ *a, 16);
	*c += *d;
	*b = rotr(*b ^ *c, 12);
	*a += *b + y;
	*d = rotr(*d ^ *a, 8);
	*c += *d;
	*b = rotr(*b ^ *c, 7);
}

/* One compression whose first half of the result becomes the chaining value. */
static void compress(uint32_t cv[8], const uint8_t block[BLOCK], uint64_t counter,
		     uint32_t nbytes, uint32_t flags)
{
	static const int at[8][4] = {
		{ 0, 4, 8, 12 }, { 1, 5, 9, 13 }, { 2, 6, 10, 14 }, { 3, 7, 11, 15 },
		{ 0, 5, 10, 15 }, { 1, 6, 11, 12 }, { 2, 7, 8, 13 }, { 3, 4, 9, 14 },
	};
	static const int next[16] = {
		2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8,
	};
	uint32_t v[16], m[16], moved[16];

	for (int i = 0; i < 16; i++)
		m[i] = get32(block + 4 * i);
	memcpy(v, cv, 8 * sizeof(*v));
	memcpy(v + 8, IV, 4 * sizeof(*v));
	v[12] = (uint32_t)counter;
	v[13] = (uint32_t)(counter >> 32);
	v[14] = nbytes;
	v[15] = flags;
	for (int round = 0; round < 7; round++) {
		for (int i = 0; i < 8; i++)
			mix(v, at[i], m[2 * i], m[2 * i + 1]);
		for (int i = 0; i < 16; i++)
			moved[i] = m[next[i]];
		memcpy(m, moved, sizeof(m));
	}
	for (int i = 0; i < 8; i++)
		cv[i] = v[i] ^ v[i + 8];
}

/* At most CHUNK bytes; 'root': they are the whole input. */
static void chunk_value(uint32_t cv[8], const uint8_t *p, size_t n, uint64_t number,
			uint32_t root)
{
	uint32_t flags = CHUNK_START;
	uint8_t last[BLOCK] = { 0 };

	memcpy(cv, IV, sizeof(IV));
	for (; n > BLOCK; n -= BLOCK, p += BLOCK, flags = 0)
		compress(cv, p, number, BLOCK, flags);
	if (n)
		memcpy(last, p, n);
	compress(cv, last, number, (uint32_t)n, flags | CHUNK_END | root);
}

/* left becomes the value of the parent of both. */
static void join(uint32_t left[8], const uint32_t right[8], uint32_t root)
{
	uint8_t block[BLOCK];

	for (int i = 0; i < 16; i++)
		kvt_put_le(block + 4 * i, i < 8 ? left[i] : right[i - 8], 4);
	memcpy(left, IV, sizeof(IV));
	compress(left, block, 0, BLOCK, PARENT | root);
}

void kvt_blake3(uint8_t out[BLAKE3_BYTES], const void *bytes, size_t n)
{
	uint32_t stack[DEPTH][8], cv[8];
	const uint8_t *p = bytes;
	uint64_t chunks = 0;
	int depth = 0;

	for (; n > CHUNK; n -= CHUNK, p += CHUNK) {
		chunk_value(cv, p, CHUNK, chunks++, 0);
		/* a subtree of each size that is complete now */
		for (uint64_t full = chunks; !(full & 1); full >>= 1) {
			join(stack[--depth], cv, 0);
			memcpy(cv, stack[depth], sizeof(cv));
		}
		memcpy(stack[depth++], cv, sizeof(cv));
	}
	chunk_value(cv, p, n, chunks, depth ? 0 : ROOT);
	while (depth) {
		join(stack[depth - 1], cv, depth == 1 ? ROOT : 0);
		memcpy(cv, stack[--depth], sizeof(cv));
	}
	for (int i = 0; i < BLAKE3_BYTES / 4; i++)
		kvt_put_le(out + 4 * i, cv[i], 4);
}
