/* SPDX-License-Identifier: Apache-2.0 */
/* little_endian.h - numbers out of and into bytes that need not be aligned */
#ifndef KVT_LITTLE_ENDIAN_H
#define KVT_LITTLE_ENDIAN_H

#include <stdint.h>

static inline uint64_t kvt_le(const uint8_t *p, int nbytes)
{
	uint64_t n = 0;

	for (int i = nbytes; i-- > 0;)
		n = n << 8 | p[i];
	return n;
}

static inline uint32_t kvt_le32(const uint8_t *p) { return (uint32_t)kvt_le(p, 4); }
static inline uint64_t kvt_le64(const uint8_t *p) { return kvt_le(p, 8); }

static inline void kvt_put_le(uint8_t *p, uint64_t n, int nbytes)
{
	for (int i = 0; i < nbytes; i++)
		p[i] = (uint8_t)(n >> 8 * i);
}

#endif
