/* SPDX-License-Identifier: Apache-2.0 */
/* blake2b.h - BLAKE2b of RFC 7693 without a key, by which stores name what they hold */
#ifndef KVT_BLAKE2B_H
#define KVT_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

/* 'nout' bytes, 1 to 64, of 'nbytes' at once: no prefix of those for another 'nout'. */
void kvt_blake2b(uint8_t *out, size_t nout, const void *bytes, size_t nbytes);

#endif
