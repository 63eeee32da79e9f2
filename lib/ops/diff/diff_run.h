/* SPDX-License-Identifier: Apache-2.0 */
/* diff_run.h - between the two passes over a pair */
#ifndef KVT_DIFF_RUN_H
#define KVT_DIFF_RUN_H

#include <stdatomic.h>

#include "lib/ops/diff/diff.h"

struct comparing {
	struct result *out;
	const struct pair *p;
	struct cut cut;			/* of layers and spans */
	bool cells;			/* both sides have digests of whole blocks */
	int64_t state_bytes[NSIDES];	/* of one state: heads, keys and values */
	int64_t page_bytes[NSIDES];
	int64_t state_elements;
	atomic_bool differs;
	atomic_llong by_digest;
	int64_t ntop;
};

enum { BUFFER_A, BUFFER_B, BUFFER_FOUND, BUFFER_CELLS };

/* Layers and spans of a box, and the blocks of a side that these are in. */
struct part {
	int64_t layer, end_layer, span, end_span;
	struct kvt_box box[NSIDES];
	uint8_t *bytes[NSIDES];
};

struct part part_of(const struct comparing *c, struct worker *worker, int64_t i);
KVT_MUST_CHECK enum kvt_status
read_part(struct worker *worker, const struct comparing *c, const struct part *part,
	  struct kvt_error *err);
/* States of a span that was read. */
const uint8_t *states_at(const struct comparing *c, const struct part *part, int side,
			 int64_t layer, const struct span *span);
int64_t part_elements(const struct comparing *c, const struct part *part);
struct work work_of(struct comparing *c, work_fn *fn, const char *label);

/* The second pass, diff_measure.c. */
KVT_MUST_CHECK enum kvt_status
measure_all(struct comparing *c, const struct kvt_run *run,
	    struct kvt_error *err);

static inline int64_t element_bytes(const struct comparing *c)
{
	return c->p->group[SIDE_A]->dtype->elem;
}

#endif
