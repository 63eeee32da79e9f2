/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.h - one box of a group into a writer, as an array or in ranges
 *
 * Ranges are encoded in any order and wait in memory until all earlier boxes
 * are written, so that the file does not depend on timing or on the number of
 * threads.
 */
#ifndef KVTOOL_PUT_BOX_H
#define KVTOOL_PUT_BOX_H

#include "lib/dump/read.h"
#include "lib/kvt/write.h"

/* A stored tile that waits for its box's turn to write. */
struct waiting {
	int64_t begin[KVT_NAXES];
	int64_t nbytes;
	uint32_t filter_mask;
	int64_t offset;			/* in the file, once placed */
};

/* What is to be written, and room for it; the caller fills this in. */
struct put {
	struct kvt_writer *writer;
	int group;
	struct kvt_box box;
	uint64_t *cells;		/* of the box; NULL: the writer keeps none */
	bool make_cells;		/* else the caller has them */
	bool in_cell_order;		/* as put_room() says */
	uint8_t *sorted;		/* flat: the box in the order of cells */
	uint8_t *stored;		/* tiled: put_room() of the box, and a list */
	struct waiting *waiting;
	/* no one else's */
	uint8_t *filled;		/* end of what is in 'stored' */
	int64_t nwaiting;
};

/*
 * Bytes that 'cells', 'stored' and 'waiting' take for a full box of the cut.  And are
 * cells one run each in a full tile, in the order of cell_layout?
 */
struct put_room {
	int64_t cells, stored, waiting;
	bool in_cell_order;
};
struct put_room put_room(const struct kvt_writer *writer, int group,
			 const struct kvt_cut *cut);

/* Room for one more stored tile, and: it is filled. */
struct kvt_stored put_next(struct put *put);
void put_keep(struct put *put, const int64_t begin[KVT_NAXES],
	      const struct kvt_stored *stored);
/* Hashes the cells of a range that holds all of S and D; 'spare' has its size. */
KVT_MUST_CHECK enum kvt_status
put_hash(struct kvt_worker *worker, const struct put *put, const struct placed *range,
	 const struct kvt_box *part, uint8_t *spare, struct kvt_error *err);
/* The tile at 'begin', from its plain bytes; uses worker->spare. */
KVT_MUST_CHECK enum kvt_status
put_tile(struct kvt_worker *worker, struct put *put, const int64_t begin[KVT_NAXES],
	 uint8_t *plain, struct kvt_error *err);

/*
 * All of the box out of a larger one or itself: an array is written, and must
 * have the writer's layout; ranges are encoded.
 */
KVT_MUST_CHECK enum kvt_status
put_dense(struct kvt_worker *worker, struct put *put, const struct placed *from,
	  struct kvt_error *err);
/*
 * What put_dense(), or put_keep() for each tile, left to be done for box i of a
 * pipeline: of tiles in turn, which is the order of the file.  Several writers
 * that are alike may get the same box at once.
 */
KVT_MUST_CHECK enum kvt_status
put_finish(struct kvt_worker *worker, struct put *put, int nputs, int64_t i,
	   struct kvt_error *err);

#endif
