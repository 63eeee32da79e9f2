/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seen.h - hashes of what was decoded of leaves, for verifying what was made of it
 *
 * Where stored tiles do not move, copying decodes every tile of the source; to verify
 * the copy it would be decoded a second time, only to be compared.  Instead each cell,
 * what one layer, block, head and K have, is hashed when the tile that it is in was
 * decoded, under the indices that it has in its leaf.  These come from the place of the
 * tile alone: what moves it, and where to, has no part in them.
 *
 * Only cells that are one run of a decoded tile are hashed.  Of the others nothing is
 * known, and who asks reads them.
 */
#ifndef KVT_SEEN_H
#define KVT_SEEN_H

#include "lib/run/leaf.h"

struct seen;

/* 'most': bytes that the hashes may take.  Free with seen_free(); NULL is fine. */
KVT_MUST_CHECK enum kvt_status
seen_new(struct seen **out, int64_t most, struct kvt_error *err);
void seen_free(struct seen *seen);

/*
 * Cells of all leaves of the dump are to be hashed, those of a group that there is room
 * for.  Before anything is read; the leaves must last as long as 'seen'.
 */
KVT_MUST_CHECK enum kvt_status
seen_watch(struct seen *seen, const struct kvt_dump *dump, struct kvt_error *err);
bool seen_has(const struct seen *seen, const struct kvt_leaf *leaf, int group);
int64_t seen_bytes(const struct seen *seen);	/* that the hashes take; of NULL 0 */

/* A tile that was decoded, full size.  From any number of threads; NULL is fine. */
void seen_tile(struct seen *seen, const struct kvt_leaf *leaf, int group,
	       const int64_t begin[KVT_NAXES], const uint8_t *bytes);

/*
 * The hash of the cell with these L, B, H and K, kvt_range_hash() of its slots one
 * after the other; 0: not known.
 */
uint64_t seen_cell(const struct seen *seen, const struct kvt_leaf *leaf, int group,
		   const int64_t index[KVT_NAXES]);

#endif
