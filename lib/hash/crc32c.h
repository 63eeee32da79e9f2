/* SPDX-License-Identifier: Apache-2.0 */
/* crc32c.h - CRC-32C (Castagnoli), the checksum of records in stores */
#ifndef KVT_CRC32C_H
#define KVT_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of 'nbytes' more; 0 is that of nothing. */
uint32_t kvt_crc32c(uint32_t crc, const void *bytes, size_t nbytes);

#endif
