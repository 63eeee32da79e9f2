/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_hash.h - one hash over what a snapshot says about its data, as
 * kvtool-snapshot(5) spells it
 */
#ifndef KVT_SNAPSHOT_HASH_H
#define KVT_SNAPSHOT_HASH_H

#include "lib/kvt/snapshot.h"

struct kvt_hash;

struct kvt_hash *kvt_hash_new(void);		/* NULL: out of memory */
uint64_t kvt_hash_end(struct kvt_hash *hash);	/* frees it */

void kvt_hash_number(struct kvt_hash *hash, int64_t value);
void kvt_hash_text(struct kvt_hash *hash, const char *text);
/* 0; or 1, the number of entries, and the entries. */
void kvt_hash_table(struct kvt_hash *hash, const void *table, int64_t n, int64_t elem);

/* What is not in a group, what is in one but its data, and the requests. */
void kvt_hash_root(struct kvt_hash *hash, const struct kvt_snapshot *snapshot);
void kvt_hash_group(struct kvt_hash *hash, const struct kvt_group *group);
void kvt_hash_requests(struct kvt_hash *hash, const struct kvt_snapshot *snapshot);

/*
 * Null blocks and pools of groups, retained tokens, prompts: the feature "liveness",
 * which is hashed only where there is any of it: older files have none.
 */
bool kvt_says_liveness(const struct kvt_snapshot *snapshot);
void kvt_hash_liveness(struct kvt_hash *hash, const struct kvt_snapshot *snapshot);

/*
 * What a list of content cells adds to the checksum of their table: cell i is
 * number 'first' + i of it.
 */
uint64_t kvt_cells_sum(const uint64_t *cells, int64_t n, int64_t first);

#endif
