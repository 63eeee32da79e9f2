/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h - SHA-256 (FIPS 180-4), and HMAC (RFC 2104) on top of it */
#ifndef KVT_SHA256_H
#define KVT_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
	uint32_t h[8];
	uint64_t nbytes;
	uint8_t block[64];
};

enum { SHA256_BYTES = 32 };

struct sha256_text {
	char s[65];			/* 64 lower-case digits */
};

void kvt_sha256_start(struct sha256 *s);
void kvt_sha256_add(struct sha256 *s, const void *bytes, size_t n);
struct sha256_text kvt_sha256_end(struct sha256 *s);
void kvt_sha256_end_bytes(uint8_t out[SHA256_BYTES], struct sha256 *s);

void kvt_hmac_sha256(uint8_t out[SHA256_BYTES], const void *key, size_t nkey,
		     const void *bytes, size_t n);

#endif
