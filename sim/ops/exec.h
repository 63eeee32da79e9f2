/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - a transfer of real bytes, between dumps of all ranks of both sides
 *
 * The caller opens the dumps of the source, and of the destination or describes a
 * new one; kvt_sides_join() makes the plan.  kvt_sides_dumps() is what the ranks of the
 * destination hold then, to be written like any dumps; between processes
 * kvt_carry_out() moves the bytes op by op, box by box, instead.  The caller opens
 * what was written, and kvt_sides_verify() reads it again.
 */
#ifndef KVT_OPS_EXEC_H
#define KVT_OPS_EXEC_H

#include "lib/derived/merge.h"
#include "lib/dump/seen.h"
#include "lib/ops/digest/digest.h"
#include "sim/ops/transfer.h"

/* ---- both sides: sides.c -------------------------------------------------- */

/* All ranks of a side, by number. */
struct kvt_ranks {
	int n;
	struct rank_file *file;		/* [n]; a side that is new has none */
	struct kvt_snapshot *made;	/* [n]; of a new side, else NULL */
};

/*
 * KVT_BAD_INPUT: ranks are missing, or laid out differently.  Sorts the files.
 */
KVT_MUST_CHECK enum kvt_status
kvt_ranks_check(struct kvt_ranks *side, struct kvt_error *err);

/* What a rank holds, according to its dump or as it will be. */
const struct kvt_snapshot *kvt_ranks_snapshot(const struct kvt_ranks *side, int rank);

/* Closes the dumps. */
void kvt_ranks_free(struct kvt_ranks *side);

struct kvt_sides {
	struct kvt_ranks src, dst;
	struct kvt_transfer_plan transfer;
	struct kvt_block_span **span;	/* of each group, by destination block */
	uint8_t fill;			/* what a new destination is filled with */
	bool whole, all_states;
	const char *request;		/* NULL: all */
	int64_t cached;
	struct seen *seen;		/* of the source as it was moved; NULL: none */
};

/* A destination that no dump holds yet: what is 0 or NULL is as in the source. */
struct kvt_new_side {
	struct kvt_transfer_pool pool;	/* no layout: nplanes 0 */
	const char *conv;		/* "sd" or "ds" */
	int64_t mamba_groups;
};

/* The snapshots of all ranks of a new destination, into sides->dst. */
KVT_MUST_CHECK enum kvt_status
kvt_sides_make_dst(struct kvt_sides *sides, const struct kvt_new_side *from,
		   struct kvt_error *err);

/*
 * The plan, of sides->src and sides->dst; names are for messages.  Requests move by
 * what 'how' says, which is kept.
 */
KVT_MUST_CHECK enum kvt_status
kvt_sides_join(struct kvt_sides *sides, const char *src_name, const char *dst_name,
	       const struct kvt_transfer_how *how, struct kvt_error *err);
void kvt_sides_free(struct kvt_sides *sides);
/* For qsort(): block spans by the slot that they write to. */
int kvt_span_by_target(const void *a, const void *b);

/* How many bytes the plan writes, to all ranks. */
KVT_MUST_CHECK enum kvt_status
kvt_sides_nbytes(int64_t *out, const struct kvt_sides *sides, struct kvt_error *err);

/* KVT_BAD_INPUT if a file of either side changed while it was read. */
KVT_MUST_CHECK enum kvt_status
kvt_sides_unchanged(const struct kvt_sides *sides, struct kvt_error *err);

/* ---- what comes of it, as dumps: grafts.c ---------------------------------- */

/*
 * [sides->dst.n] dumps: each rank of the destination as it will be.  No data is read.
 * Their leaves are those of both sides.  The caller gives them to kvt_sides_close().
 */
KVT_MUST_CHECK enum kvt_status
kvt_sides_dumps(struct kvt_dump ***out, const struct kvt_sides *sides,
		struct kvt_error *err);
void kvt_sides_close(struct kvt_dump **dumps, int n);	/* NULL is fine */

/* ---- carrying it out: carry.c --------------------------------------------- */

/* Blocks of one box of all ranks, and the part of a transfer that writes there. */
struct kvt_carry_box {
	const struct kvt_sides *sides;
	int part;			/* group of sides->transfer */
	int64_t layers[2], blocks[2];	/* of the destination: begin, end */
	const struct kvt_block_span *span;	/* by destination block */
	int64_t nspans;
	int64_t rank_bytes;		/* from the box of one rank to the next */
};

struct kvt_carry_box kvt_carry_box_of(const struct kvt_sides *sides, int part,
				      const struct kvt_box *box);

/*
 * How a group is cut into boxes, and the room that reading them takes: about a
 * cache's size for all ranks, less where a thread's share of the memory would not
 * hold the blocks they come from.  'tiling' is of what is written: cut.c.
 */
KVT_MUST_CHECK enum kvt_status
kvt_carry_cut(struct kvt_cut *cut, struct kvt_work *work, const struct kvt_sides *sides,
	      int group, const struct kvt_tiling *tiling, int64_t mem_limit,
	      struct kvt_error *err);

/* A side as arrays of so many layers and blocks, without gaps. */
KVT_MUST_CHECK enum kvt_status
kvt_side_dense(struct kvt_xfer_side *out, const struct kvt_xfer_side *side,
	       const struct kvt_layout *layout, int64_t layers, int64_t blocks,
	       struct kvt_error *err);

/* The most that the blocks of a box take on one rank of the source. */
int64_t kvt_carry_window_room(int64_t mem_limit);

/*
 * The same as a transfer of its own: only those layers, destination blocks from
 * 0 on, and of the source just the blocks that are read, in ascending order.
 */
struct kvt_carry_window {
	struct kvt_xfer xfer;
	struct kvt_block_span *entry;	/* owned */
	int64_t *block, nblocks;	/* of the source; owned */
};
KVT_MUST_CHECK enum kvt_status
kvt_carry_window_init(struct kvt_carry_window *out, const struct kvt_carry_box *box,
		      struct kvt_error *err);
void kvt_carry_window_free(struct kvt_carry_window *window);

/* The blocks of a window from one rank of the source, dense, in its layout. */
KVT_MUST_CHECK enum kvt_status
kvt_carry_window_read(struct kvt_worker *worker, const struct kvt_carry_box *box,
		      const struct kvt_carry_window *window, int src_rank, uint8_t *buf,
		      struct kvt_error *err);

/*
 * How bytes get from a window of the source into the boxes of all ranks, which
 * are dense and follow each other; '*moved' grows by the bytes written.
 * worker->buffer[1] has room for a window.
 */
typedef enum kvt_status kvt_carry_fn(void *context, struct kvt_worker *worker,
				     const struct kvt_carry_box *box, uint8_t *dst,
				     int64_t *moved, struct kvt_error *err);

struct kvt_carry_how {
	struct kvt_run run;
	const struct kvt_op_place *corrupt;	/* one byte to spoil; NULL: none */
	kvt_carry_fn *fn;
	void *context;
};

struct kvt_carried {
	int n;				/* ranks of the destination */
	struct kvt_writer **writer;	/* one a rank; owned */
	int64_t bytes, boxes, memory;
	int64_t rejected;		/* of wire: connections that were turned away */
	double seconds;			/* reading, moving and writing */
};

double kvt_seconds_now(void);		/* of a monotonic clock */

/*
 * Writes all ranks into out->writer, which the caller made for the snapshot of each,
 * and completes them: the caller verifies and publishes them.
 */
KVT_MUST_CHECK enum kvt_status
kvt_carry_out(struct kvt_carried *out, const struct kvt_sides *sides,
	      const struct kvt_carry_how *how, struct kvt_error *err);

/* Closes the writers; what has no name yet is removed. */
void kvt_carried_free(struct kvt_carried *carried);

/* ---- was it right?  sim/ops/verify.c ----------------------------- */

struct kvt_verified {
	int64_t bytes, untouched;	/* compared with the source; as before */
	enum digest_version version;	/* of them */
	bool has_digest;		/* both sides hold just the same requests */
	struct kvt_digest digest;	/* tokens, of either side */
	double seconds;			/* reading and comparing */
};

/*
 * 'after' are the outputs, opened again; the device of 'run' is not used, as it is
 * not to judge its own work.  Where each element comes from follows from tables,
 * heads and layouts of both sides alone.  KVT_MISMATCH says what differs.
 */
KVT_MUST_CHECK enum kvt_status
kvt_sides_verify(struct kvt_verified *out, const struct kvt_sides *sides,
		 const struct kvt_ranks *after, const struct kvt_run *run,
		 struct kvt_error *err);

#endif
