/* SPDX-License-Identifier: Apache-2.0 */
/* window.h - a part of both sides in memory, side by side */
#ifndef KVT_DIFF_WINDOW_H
#define KVT_DIFF_WINDOW_H

#include "lib/ops/diff/diff.h"

struct extract {
	const struct result *r;
	const struct pair *p;
	int64_t limit;			/* bytes of one side */
	bool same_pool;			/* block i of A is block i of B */
	int64_t layer, block;		/* where the window begins */
	struct kvt_window window;
	uint8_t *use;
	int64_t *prev, *next, *layer_ids, *block_ids;
	uint8_t *data[NSIDES], *scratch;
};

/* Free with extract_free() in any case. */
KVT_MUST_CHECK enum kvt_status
extract_init(struct extract *x, const struct result *r,
	     const struct kvt_run *run, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
extract_data(struct extract *x, const struct kvt_run *run,
	     struct kvt_error *err);
void extract_free(struct extract *x);

#endif
