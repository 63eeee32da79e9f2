/* SPDX-License-Identifier: Apache-2.0 */
/* blake3.h - BLAKE3, 32 bytes, of bytes in memory (the BLAKE3 paper of 2020) */
#ifndef KVT_BLAKE3_H
#define KVT_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

enum { BLAKE3_BYTES = 32 };

/* Of at most 2^32 bytes: what is hashed here is the key of a block. */
void kvt_blake3(uint8_t out[BLAKE3_BYTES], const void *bytes, size_t n);

#endif
