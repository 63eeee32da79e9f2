/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256.c - SHA-256 (FIPS 180-4) and HMAC (RFC 2104)
 *
 * Blocks of 64 bytes are mixed into eight words.  What is left at the end, which may be
 * nothing, is filled up to a block, or to two:
 *
 *	.. bytes | 80 | 0 to 63 of 00 | u64 number of bits, most significant byte first
 *
 * One pass, any number of calls.  HMAC is the hash of (key ^ 5c..)  and of the hash of
 * (key ^ 36..)  and the bytes; the key is 64 bytes, zeros behind it, or the hash of a
 * longer one.
 */
#include "lib/hash/sha256.h"

#include <stdio.h>
#include <string.h>

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static void mix(uint32_t h[8], const uint8_t *block)
{
	uint32_t w[64], v[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
		       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];

		w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
		       (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
	}
	memcpy(v, h, sizeof(v));
	for (int i = 0; i < 64; i++) {
		uint32_t a = v[0], e = v[4];
		uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
			      ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
		uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
			      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		h[i] += v[i];
}

void kvt_sha256_start(struct sha256 *s)
{
	static const uint32_t first[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	memcpy(s->h, first, sizeof(first));
	s->nbytes = 0;
}

void kvt_sha256_add(struct sha256 *s, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	while (n > 0) {
		size_t at = s->nbytes % 64, part = 64 - at < n ? 64 - at : n;

		memcpy(s->block + at, p, part);
		s->nbytes += part;
		p += part;
		n -= part;
		if (s->nbytes % 64 == 0)
			mix(s->h, s->block);
	}
}

static void finish(struct sha256 *s)
{
	static const uint8_t pad[64] = { 0x80 };
	uint64_t nbits = s->nbytes * 8;
	uint8_t length[8];

	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)(nbits >> (56 - 8 * i));
	kvt_sha256_add(s, pad, (size_t)((119 - s->nbytes % 64) % 64 + 1));
	kvt_sha256_add(s, length, 8);
}

struct sha256_text kvt_sha256_end(struct sha256 *s)
{
	struct sha256_text text;

	finish(s);
	for (int i = 0; i < 8; i++)
		snprintf(text.s + 8 * i, 9, "%08x", s->h[i]);
	return text;
}

void kvt_sha256_end_bytes(uint8_t out[SHA256_BYTES], struct sha256 *s)
{
	finish(s);
	for (int i = 0; i < SHA256_BYTES; i++)
		out[i] = (uint8_t)(s->h[i / 4] >> (24 - i % 4 * 8));
}

/* ---- HMAC ------------------------------------------------------------ */

static void start_keyed(struct sha256 *s, const uint8_t key[64], uint8_t pad)
{
	uint8_t block[64];

	for (int i = 0; i < 64; i++)
		block[i] = key[i] ^ pad;
	kvt_sha256_start(s);
	kvt_sha256_add(s, block, sizeof(block));
}

void kvt_hmac_sha256(uint8_t out[SHA256_BYTES], const void *key, size_t nkey,
		     const void *bytes, size_t n)
{
	uint8_t block[64] = { 0 };
	struct sha256 s;

	if (nkey > sizeof(block)) {
		kvt_sha256_start(&s);
		kvt_sha256_add(&s, key, nkey);
		kvt_sha256_end_bytes(block, &s);
	} else {
		memcpy(block, key, nkey);
	}
	start_keyed(&s, block, 0x36);
	kvt_sha256_add(&s, bytes, n);
	kvt_sha256_end_bytes(out, &s);
	start_keyed(&s, block, 0x5c);
	kvt_sha256_add(&s, out, SHA256_BYTES);
	kvt_sha256_end_bytes(out, &s);
}
