/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.h - CRC-32 of zlib and Ethernet, which every language's library has */
#ifndef KVT_CRC32_H
#define KVT_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of what was added so far; the tables belong to no thread. */
struct kvt_crc32 {
	uint32_t table[8][256];
	uint32_t state;
};

void kvt_crc32_init(struct kvt_crc32 *crc);
void kvt_crc32_add(struct kvt_crc32 *crc, const void *bytes, size_t nbytes);

/* zlib.crc32() of the same bytes. */
static inline uint32_t kvt_crc32_value(const struct kvt_crc32 *crc)
{
	return ~crc->state;
}

#endif
