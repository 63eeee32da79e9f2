/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32.c - CRC-32, eight bytes at a time
 *
 * table[k][b] is the checksum of byte b followed by k zero bytes, so that eight
 * bytes are eight lookups that do not wait for one another (Kounavis and Berry,
 * 2005).
 */
#include "formats/crc32.h"

#include "formats/little_endian.h"

#define POLYNOMIAL 0xedb88320u

void kvt_crc32_init(struct kvt_crc32 *crc)
{
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t sum = b;

		for (int bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? POLYNOMIAL : 0);
		crc->table[0][b] = sum;
	}
	for (int k = 1; k < 8; k++)
		for (int b = 0; b < 256; b++) {
			uint32_t before = crc->table[k - 1][b];

			crc->table[k][b] = before >> 8 ^ crc->table[0][before & 255];
		}
	crc->state = ~0u;
}

void kvt_crc32_add(struct kvt_crc32 *crc, const void *bytes, size_t nbytes)
{
	const uint8_t *p = bytes;
	uint32_t sum = crc->state;

	for (; nbytes >= 8; nbytes -= 8, p += 8) {
		uint32_t low = sum ^ kvt_le32(p), high = kvt_le32(p + 4);

		sum = crc->table[7][low & 255] ^ crc->table[6][low >> 8 & 255] ^
		      crc->table[5][low >> 16 & 255] ^ crc->table[4][low >> 24] ^
		      crc->table[3][high & 255] ^ crc->table[2][high >> 8 & 255] ^
		      crc->table[1][high >> 16 & 255] ^ crc->table[0][high >> 24];
	}
	for (; nbytes; nbytes--, p++)
		sum = sum >> 8 ^ crc->table[0][(sum ^ *p) & 255];
	crc->state = sum;
}
