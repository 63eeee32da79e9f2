/* SPDX-License-Identifier: Apache-2.0 */
/* ids.c - indices of a dump by the numbers that the model or the pool has */
#include "lib/snapshot/ids.h"
#include "lib/base/order.h"

#include <stdlib.h>


void id_index_sort(struct id_index *list, int64_t n)
{
	qsort(list, (size_t)n, sizeof(*list), kvt_by_uint64);
}

const struct id_index *id_index_find(const struct id_index *list, int64_t n, uint64_t id)
{
	const struct id_index want = { id, 0 };

	return bsearch(&want, list, (size_t)n, sizeof(*list), kvt_by_uint64);
}

struct id_index *id_index_of(const struct kvt_group *group, enum kvt_axis axis)
{
	int64_t n = group->shape.n[axis];
	struct id_index *list = calloc((size_t)n + 1, sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		list[i] = (struct id_index){ axis == KVT_AXIS_L ?
					     kvt_layer_id(group, i) :
					     kvt_block_id(group, i), i };
	if (list)
		id_index_sort(list, n);
	return list;
}
