/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.c - hashes over semantic coordinates; the definition is kvtool-digest(1)
 *
 *	content		XXH3 of 128 bits of a cell's bytes
 *	cell		XXH3 of 128 bits of 56 bytes: content, low and high, then layer,
 *			position, slot, head, component, of 8 bytes each, little-endian
 *	request		that of its id, each half made odd, times the sum of its cells
 *
 * Sums are modulo 2^64, of each half by itself; ops/digest says which cells there are.
 */
#include "lib/tile/hash.h"

#include <string.h>
#include <xxhash.h>
/* XXH3 for the processor at hand, where the library has that: twice as fast */
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "numbers are hashed as they are in memory");

static void put64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

static struct kvt_digest hash128(const void *bytes, size_t nbytes)
{
	XXH128_hash_t h = XXH3_128bits(bytes, nbytes);

	return (struct kvt_digest){ h.low64, h.high64 };
}

struct kvt_digest kvt_digest_content(const void *bytes, int64_t nbytes)
{
	return hash128(bytes, (size_t)nbytes);
}

struct kvt_digest kvt_digest_cell(const struct kvt_digest *content,
				  const struct kvt_cell *cell)
{
	uint8_t message[56];

	put64(message, content->lo);
	put64(message + 8, content->hi);
	put64(message + 16, cell->layer);
	put64(message + 24, cell->position);
	put64(message + 32, cell->slot);
	put64(message + 40, cell->head);
	put64(message + 48, cell->component);
	return hash128(message, sizeof(message));
}

/* Odd, so that multiplying loses nothing. */
struct kvt_digest kvt_digest_request(const char *id)
{
	struct kvt_digest h = hash128(id, strlen(id));

	return (struct kvt_digest){ h.lo | 1, h.hi | 1 };
}

struct kvt_digest kvt_digest_times(const struct kvt_digest *a, const struct kvt_digest *b)
{
	return (struct kvt_digest){ a->lo * b->lo, a->hi * b->hi };
}

uint64_t kvt_cell_hash(const void *bytes, int64_t nbytes)
{
	return XXH64(bytes, (size_t)nbytes, 0);
}

uint64_t kvt_range_hash(const void *bytes, int64_t nbytes)
{
	return XXH3_64bits(bytes, (size_t)nbytes);
}
