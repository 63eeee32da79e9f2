/* SPDX-License-Identifier: Apache-2.0 */
/* window.h - a group in memory, and what a diagnosis must know about it */
#ifndef KVT_OPS_FAULT_WINDOW_H
#define KVT_OPS_FAULT_WINDOW_H

#include "lib/dump/read.h"
#include "lib/kvt/fault.h"
#include "lib/run/pipeline.h"

/* The window of a whole group, without data; free with kvt_window_free(). */
KVT_MUST_CHECK enum kvt_status
kvt_window_init(struct kvt_window *out, const struct kvt_snapshot *snapshot, int group,
		struct kvt_error *err);
void kvt_window_free(struct kvt_window *window);

/*
 * For n blocks of a group from 'first' on: the block that the tables have 'step' (-1
 * or 1) after it, as an index into these n, or KVT_NOT_...; what kvt_window calls
 * prev and next.  KVT_NOT_HERE, too, where requests that share a block disagree.
 */
void kvt_window_neighbours(int64_t *out, const struct kvt_snapshot *snapshot, int group,
			   int64_t first, int64_t n, int step);

/*
 * The tables of a group, and of n blocks from 'first' on what window->request and entry
 * say; window->table is a new array, to be freed, of lists that the snapshot has.
 */
KVT_MUST_CHECK enum kvt_status
kvt_window_tables(struct kvt_window *window, int64_t *request, int64_t *entry,
		  const struct kvt_snapshot *snapshot, int group, int64_t first,
		  int64_t n, struct kvt_error *err);

/* All data of a group, dense in the window's order. */
KVT_MUST_CHECK enum kvt_status
kvt_window_read(uint8_t *out, const struct kvt_dump *dump, int group,
		const struct kvt_run *run, struct kvt_error *err);

#endif
