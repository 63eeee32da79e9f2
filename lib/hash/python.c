/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.c - hash() of CPython: of tuples, whole numbers and text
 *
 * Facts: CPython 3.11, tuples are xxHash on 64-bit lanes, numbers are modulo 2^61-1,
 * text is SipHash-1-3; its key out of PYTHONHASHSEED are bytes of a linear congruential
 * generator; of seed 0, zeros.
 */
#include "lib/hash/python.h"

#include <stdbool.h>
#include <string.h>

static uint64_t rotl(uint64_t x, int n)
{
	return x << n | x >> (64 - n);
}

/* ---- tuples and numbers -------------------------------------------------- */

int64_t kvt_python_hash_int(int64_t value)
{
	const uint64_t prime = (UINT64_C(1) << 61) - 1;
	uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value;
	int64_t hash = (int64_t)(size % prime);

	hash = value < 0 ? -hash : hash;
	/* -1 says in C that hashing has failed */
	return hash == -1 ? -2 : hash;
}

void kvt_python_tuple_add(uint64_t *acc, int64_t hash)
{
	*acc += (uint64_t)hash * UINT64_C(14029467366897019727);
	*acc = rotl(*acc, 31) * UINT64_C(11400714785074694791);
}

int64_t kvt_python_tuple_end(uint64_t acc, size_t n)
{
	acc += n ^ (KVT_PYTHON_TUPLE ^ UINT64_C(3527539));
	return acc == UINT64_MAX ? 1546275796 : (int64_t)acc;
}

/* ---- text ---------------------------------------------------------------- */

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] = rotl(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] = rotl(v[2], 32);
}

static uint64_t get64(const uint8_t *p, size_t n)
{
	uint64_t word = 0;

	for (size_t i = 0; i < n; i++)
		word |= (uint64_t)p[i] << 8 * i;
	return word;
}

static void key_of_seed(uint64_t key[2], uint32_t seed)
{
	uint8_t bytes[16] = { 0 };

	for (size_t i = 0; seed && i < sizeof(bytes); i++) {
		seed = seed * 214013 + 2531011;
		bytes[i] = (uint8_t)(seed >> 16);
	}
	key[0] = get64(bytes, 8);
	key[1] = get64(bytes + 8, 8);
}

int64_t kvt_python_hash_text(const char *text, uint32_t seed)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t n = strlen(text), left = n;
	uint64_t key[2], v[4], word;
	int64_t hash;

	if (!n)
		return 0;
	key_of_seed(key, seed);
	v[0] = key[0] ^ UINT64_C(0x736f6d6570736575);
	v[1] = key[1] ^ UINT64_C(0x646f72616e646f6d);
	v[2] = key[0] ^ UINT64_C(0x6c7967656e657261);
	v[3] = key[1] ^ UINT64_C(0x7465646279746573);
	for (bool last = false; !last; p += 8, left -= last ? 0 : 8) {
		last = left < 8;
		word = get64(p, last ? left : 8) | (last ? (uint64_t)n << 56 : 0);
		v[3] ^= word;
		sip_round(v);
		v[0] ^= word;
	}
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	hash = (int64_t)(v[0] ^ v[1] ^ v[2] ^ v[3]);
	return hash == -1 ? -2 : hash;
}
