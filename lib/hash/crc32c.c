/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.c - CRC-32C (Castagnoli), the processor's instruction where there is one
 *
 * A store is read through once to check it, so this must keep up with a disk: a table
 * alone does 0.4 GB/s.  Bits are taken from the lowest on, so the polynomial 1edc6f41 is
 * written backwards; the register begins and ends inverted.  Both ways give the same for
 * any cut of the bytes into calls.  The instruction is x86's of SSE 4.2.
 */
#include "lib/hash/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u

/* Four bits at a time, out of a table of 16: small, and it needs no start. */
static uint32_t plain(uint32_t crc, const uint8_t *p, size_t n)
{
	uint32_t table[16];

	for (uint32_t i = 0; i < 16; i++) {
		table[i] = i;
		for (int bit = 0; bit < 4; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? POLYNOMIAL : 0);
	}
	while (n--) {
		crc ^= *p++;
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2")))
static uint32_t fast(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t wide = crc, word;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	return plain((uint32_t)wide, p, n);
}
#endif

uint32_t kvt_crc32c(uint32_t crc, const void *bytes, size_t nbytes)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2"))
		return ~fast(~crc, bytes, nbytes);
#endif
	return ~plain(~crc, bytes, nbytes);
}
