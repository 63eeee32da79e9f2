/* SPDX-License-Identifier: Apache-2.0 */
/* ids.h - indices of a dump by the numbers that the model or the pool has */
#ifndef KVTOOL_NUMBERED_H
#define KVTOOL_NUMBERED_H

#include "lib/kvt/snapshot.h"

struct id_index {
	uint64_t id;
	int64_t index;
};

void id_index_sort(struct id_index *list, int64_t n);

/* NULL if none of a sorted list has this id. */
const struct id_index *id_index_find(const struct id_index *list, int64_t n, uint64_t id);

/*
 * The layers (KVT_AXIS_L) or the blocks (KVT_AXIS_B) of a group, sorted; the
 * caller frees it.  NULL: out of memory.
 */
struct id_index *id_index_of(const struct kvt_group *group, enum kvt_axis axis);

#endif
