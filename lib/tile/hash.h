/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h - hashes over semantic coordinates (kvtool-digest(1))
 *
 * A digest is a sum of cell hashes, so digests of disjoint parts of a cache add
 * up to that of the whole, in any order.
 */
#ifndef KVT_DIGEST_H
#define KVT_DIGEST_H

#include "lib/kvt/kvt.h"

struct kvt_digest {
	uint64_t lo, hi;	/* each lane is a sum modulo 2^64 */
};

/* Where a cell stands.  The fields are what the definition hashes, in order. */
struct kvt_cell {
	uint64_t layer, position, slot, head, component;
};

enum kvt_component_code {
	KVT_COMPONENT_KEY, KVT_COMPONENT_VALUE, KVT_COMPONENT_CONTENT,
	KVT_COMPONENT_CONV_X, KVT_COMPONENT_CONV_B, KVT_COMPONENT_CONV_C,
	KVT_COMPONENT_SSM, KVT_COMPONENT_CONV,
};

/* Hash of the bytes alone; the same cell at several places needs it once. */
struct kvt_digest kvt_digest_content(const void *bytes, int64_t nbytes);

/* Hash of a cell: its content at its place. */
struct kvt_digest kvt_digest_cell(const struct kvt_digest *content,
				  const struct kvt_cell *cell);

static inline void kvt_digest_add(struct kvt_digest *sum, const struct kvt_digest *part)
{
	sum->lo += part->lo;
	sum->hi += part->hi;
}

/* What a request's digest is multiplied with before requests are added up. */
struct kvt_digest kvt_digest_request(const char *id);
struct kvt_digest kvt_digest_times(const struct kvt_digest *a,
				   const struct kvt_digest *b);

/* XXH64, seed 0: a content cell of a snapshot (kvtool-snapshot(5)). */
uint64_t kvt_cell_hash(const void *bytes, int64_t nbytes);

/* XXH3, 64 bits, seed 0: a part of a snapshot's data (there as well). */
uint64_t kvt_range_hash(const void *bytes, int64_t nbytes);

#endif
