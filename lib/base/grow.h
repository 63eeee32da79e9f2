/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow.h - lists that grow by one
 *
 * How much room a list has follows from how much is in it: it is full whenever its count
 * is a power of two, and then doubles.  So no list remembers its room, and one that is
 * grown here is allocated nowhere else:
 *
 *	if (!KVT_GROW(&rows->row, rows->n))
 *		return kvt_no_memory(err, path);
 *	rows->row[rows->n++] = row;
 */
#ifndef KVT_GROW_H
#define KVT_GROW_H

#include <stddef.h>

#include "lib/kvt/base.h"

/* Room for one more behind the n of *list; false: no memory, and *list is as it was. */
#define KVT_GROW(list, n) kvt_grow((list), (int64_t)(n), sizeof(**(list)))
KVT_MUST_CHECK bool kvt_grow(void *list, int64_t n, size_t size);

#endif
