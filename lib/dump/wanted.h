/* SPDX-License-Identifier: Apache-2.0 */
/* wanted.h - growing lists of states that belong together, by blocks of one side */
#ifndef KVTOOL_WANTED_H
#define KVTOOL_WANTED_H

#include "lib/dump/map.h"

/* Zeroed: empty.  Free with wanted_free(). */
struct wanted_list {
	int64_t n, room;
	struct wanted *at;
};

KVT_MUST_CHECK enum kvt_status
wanted_add(struct wanted_list *list, const struct wanted *w, struct kvt_error *err);

/* By the block that they are for; then wanted_of() can be asked. */
void wanted_sort(struct wanted_list *list);

/*
 * Those for the blocks of a box, as a copy that each_spans() may sort; the caller
 * frees it.  NULL: out of memory.
 */
struct wanted *wanted_of(int64_t *n, const struct wanted_list *list,
			 const struct kvt_box *box);

void wanted_free(struct wanted_list *list);

#endif
