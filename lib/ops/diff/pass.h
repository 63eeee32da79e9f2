/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass.h - a pass over a pair, which is cut into chunks: some layers x some segments
 *
 * Of either side a chunk reads the box of blocks that its segments are in.
 */
#ifndef KVT_DIFF_PASS_H
#define KVT_DIFF_PASS_H

#include <stdatomic.h>

#include "lib/ops/diff/internal.h"

struct pass {
	struct diff_result *out;
	const struct diff_pair *p;
	struct kvt_cut cut;			/* of layers and segments */
	bool cells;			/* both sides have digests of whole blocks */
	int64_t slot_bytes[NSIDES];	/* of one slot: heads, keys and values */
	int64_t page_bytes[NSIDES];
	int64_t slot_elements;
	atomic_bool differs;
	int64_t by_digest;
	int64_t nworst;
	int64_t most_slots;		/* of a segment */
	const bool *table;		/* [DIFF_AXES] */
	bool firsts;
};

enum { BUFFER_A, BUFFER_B, BUFFER_CELLS };

static inline int64_t element_bytes(const struct pass *c)
{
	return c->p->group[SIDE_A]->dtype->elem;
}

/* Layers and segments, and the blocks of a side that these are in. */
struct chunk {
	int64_t layer, end_layer, segment, end_segment;
	struct kvt_box box[NSIDES];
	uint8_t *bytes[NSIDES];
};

/* Chunk i.  'worker' NULL: no bytes are wanted. */
struct chunk pass_chunk(const struct pass *c, struct kvt_worker *worker, int64_t i);
/* The slots of a segment in a layer, of those that pass_read() has read. */
const uint8_t *pass_slots_at(const struct pass *c, const struct chunk *chunk, int side,
			     int64_t layer, const struct diff_segment *segment);
KVT_MUST_CHECK enum kvt_status
pass_read(struct kvt_worker *worker, const struct pass *c, const struct chunk *chunk,
	  struct kvt_error *err);
int64_t pass_elements(const struct pass *c, const struct chunk *chunk);

/* Are there digests of all cells, and checksums that say they are of what is there? */
bool pass_proven_cells(const struct kvt_dump *view);
/* Cuts the pair: a chunk has about 'limit' bytes of a side at most, but whole tiles. */
void pass_cut(struct pass *c, int64_t limit);
/* Work of 'fn' for each chunk; what it needs more than the chunk is the caller's. */
struct kvt_work pass_work(struct pass *c, kvt_work_fn *fn, const char *label);

/* The second pass: fills c->out, by how much the sides differ and where (measure.c). */
KVT_MUST_CHECK enum kvt_status
pass_measure(struct pass *c, const struct kvt_run *run, struct kvt_error *err);

#endif
