/* SPDX-License-Identifier: Apache-2.0 */
/* span_list.h - growing lists of slots that belong together, by blocks of one side */
#ifndef KVT_SPAN_LIST_H
#define KVT_SPAN_LIST_H

#include "lib/dump/map.h"

/* Zeroed: empty.  Free with span_list_free(). */
struct span_list {
	int64_t n;
	struct target_span *at;
};

KVT_MUST_CHECK enum kvt_status
span_list_add(struct span_list *list, const struct target_span *w, struct kvt_error *err);

/* By the block that they are for; then span_list_of() can be asked. */
void span_list_sort(struct span_list *list);

/*
 * Those for the blocks of a box, as a copy that each_spans() may sort; the caller
 * frees it.  NULL: out of memory.
 */
struct target_span *span_list_of(int64_t *n, const struct span_list *list,
			 const struct kvt_box *box);

void span_list_free(struct span_list *list);

#endif
