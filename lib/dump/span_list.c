/* SPDX-License-Identifier: Apache-2.0 */
/*
 * span_list.c - growing lists of slots that belong together, by blocks of one side
 *
 * Sorted once by the block that they are for, so that a box finds its own in log n
 * steps.  Spans for one block keep no order among themselves: who asks gets a copy and
 * sorts it.
 */
#include "lib/dump/span_list.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

enum kvt_status span_list_add(struct span_list *list, const struct target_span *w,
			   struct kvt_error *err)
{
	if (!KVT_GROW(&list->at, list->n))
		return kvt_no_memory(err, NULL);
	list->at[list->n++] = *w;
	return KVT_OK;
}

static int by_target(const void *a, const void *b)
{
	const struct target_span *x = a, *y = b;

	return x->to < y->to ? -1 : x->to > y->to;
}

void span_list_sort(struct span_list *list)
{
	if (list->n)
		qsort(list->at, (size_t)list->n, sizeof(*list->at), by_target);
}

/* The first for this block or for one behind it. */
static int64_t first_for(const struct span_list *list, int64_t block)
{
	int64_t low = 0, high = list->n;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (list->at[middle].to < block)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct target_span *span_list_of(int64_t *n, const struct span_list *list,
			 const struct kvt_box *box)
{
	int64_t begin = first_for(list, box->begin[KVT_AXIS_B]);
	struct target_span *out;

	*n = first_for(list, box->end[KVT_AXIS_B]) - begin;
	if ((out = malloc(((size_t)*n + 1) * sizeof(*out))) && *n)
		memcpy(out, list->at + begin, (size_t)*n * sizeof(*out));
	return out;
}

void span_list_free(struct span_list *list)
{
	free(list->at);
	*list = (struct span_list){ 0 };
}
