/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - a transfer of real bytes, between dumps of all ranks of both sides
 *
 * The caller opens the dumps of the source, and of the destination or describes a
 * new one; kvt_sides_join() makes the plan.  The caller creates a writer for each
 * rank of the destination; carry_out() moves the bytes box by box into these.  The
 * caller opens what was written, and sides_verify() reads it again.
 */
#ifndef KVT_OPS_EXEC_H
#define KVT_OPS_EXEC_H

#include "lib/dump/merge.h"
#include "lib/ops/digest/digest.h"
#include "lib/ops/transfer/transfer.h"

/* ---- both sides: sides.c -------------------------------------------------- */

/* All ranks of a side, by number. */
struct side {
	int n;
	struct rank_file *file;		/* [n]; a side that is new has none */
	struct kvt_snapshot *made;	/* [n]; of a new side, else NULL */
};

/*
 * KVT_BAD_INPUT: ranks are missing, or laid out differently.  Sorts the files.
 */
KVT_MUST_CHECK enum kvt_status
kvt_ranks_check(struct side *side, struct kvt_error *err);

/* What a rank holds, according to its dump or as it will be. */
const struct kvt_snapshot *side_rank(const struct side *side, int rank);

/* Closes the dumps. */
void ranks_free(struct side *side);

struct sides {
	struct side src, dst;
	struct kvt_transfer_plan transfer;
	struct kvt_block_span **span;	/* of each group, by destination block */
	uint8_t fill;			/* what a new destination is filled with */
	bool whole, all_states;
	const char *request;		/* NULL: all */
	int64_t cached;
};

/* A destination that no dump holds yet: what is 0 or NULL is as in the source. */
struct kvt_new_side {
	struct kvt_transfer_pool pool;	/* no layout: nplanes 0 */
	const char *conv;		/* "sd" or "ds" */
	int64_t mamba_groups;
};

/* The snapshots of all ranks of a new destination, into sides->dst. */
KVT_MUST_CHECK enum kvt_status
make_destination(struct sides *sides, const struct kvt_new_side *from,
		 struct kvt_error *err);

/*
 * The plan, of sides->src and sides->dst; names are for messages.  Requests move by
 * what 'how' says, which is kept.
 */
KVT_MUST_CHECK enum kvt_status
kvt_sides_join(struct sides *sides, const char *src_name, const char *dst_name,
	       const struct kvt_transfer_how *how, struct kvt_error *err);
void sides_free(struct sides *sides);

/* KVT_BAD_INPUT if a file of either side changed while it was read. */
KVT_MUST_CHECK enum kvt_status
sides_unchanged(const struct sides *sides, struct kvt_error *err);

/* ---- carrying it out: carry.c --------------------------------------------- */

/* Blocks of one box of all ranks, and the part of a transfer that writes there. */
struct carry_box {
	const struct sides *sides;
	int part;			/* group of sides->transfer */
	int64_t layers[2], blocks[2];	/* of the destination: begin, end */
	const struct kvt_block_span *span;	/* by destination block */
	int64_t nspans;
	int64_t rank_bytes;		/* from the box of one rank to the next */
};

struct carry_box carry_box_of(const struct sides *sides, int part,
			      const struct kvt_box *box);

/*
 * How a group is cut into boxes, and the room that reading them takes: about a
 * cache's size for all ranks, less where a thread's share of the memory would not
 * hold the blocks they come from.  'tiling' is of what is written: cut.c.
 */
KVT_MUST_CHECK enum kvt_status
carry_cut(struct cut *cut, struct work *work, const struct sides *sides, int group,
	  const struct kvt_tiling *tiling, int64_t mem_limit, struct kvt_error *err);

/* The most that the blocks of a box take on one rank of the source. */
int64_t carry_window_room(int64_t mem_limit);

/*
 * The same as a transfer of its own: only those layers, destination blocks from
 * 0 on, and of the source just the blocks that are read, in ascending order.
 */
struct sim_window {
	struct kvt_xfer xfer;
	struct kvt_block_span *entry;	/* owned */
	int64_t *block, nblocks;	/* of the source; owned */
};
KVT_MUST_CHECK enum kvt_status
window_of(struct sim_window *out, const struct carry_box *box, struct kvt_error *err);
void window_done(struct sim_window *window);

/* The blocks of a window from one rank of the source, dense, in its layout. */
KVT_MUST_CHECK enum kvt_status
read_window(struct worker *worker, const struct carry_box *box,
	    const struct sim_window *window, int src_rank, uint8_t *buf,
	    struct kvt_error *err);

/*
 * How bytes get from a window of the source into the boxes of all ranks, which
 * are dense and follow each other; '*moved' grows by the bytes written.
 * worker->buffer[1] has room for a window.
 */
typedef enum kvt_status carry_fn(void *context, struct worker *worker,
				 const struct carry_box *box, uint8_t *dst,
				 int64_t *moved, struct kvt_error *err);

/* Ordinary copies on this machine; no context. */
carry_fn carry_copy;

struct kvt_carry_how {
	struct kvt_run run;		/* its device copies */
	const struct kvt_op_place *corrupt;	/* one byte to spoil; NULL: none */
	bool dry_run;			/* only count boxes and memory */
	carry_fn *fn;
	void *context;
};

struct carried {
	int n;				/* ranks of the destination */
	struct kvt_writer **writer;	/* one a rank; owned */
	int64_t bytes, boxes, memory;
	int64_t rejected;		/* of wire: connections that were turned away */
	double seconds;			/* reading, moving and writing */
};

double seconds_now(void);		/* of a clock that never jumps */

/*
 * Writes all ranks into out->writer, which the caller made for side_rank() of each,
 * and completes them: the caller verifies and publishes them.
 */
KVT_MUST_CHECK enum kvt_status
carry_out(struct carried *out, const struct sides *sides,
	  const struct kvt_carry_how *how, struct kvt_error *err);

/* Closes the writers; what has no name yet is removed. */
void carried_free(struct carried *carried);

/* ---- was it right?  lib/ops/compare/transfer.c ----------------------------- */

struct verified {
	int64_t bytes, untouched;	/* compared with the source; as before */
	enum digest_version version;	/* of them */
	bool has_digest;		/* both sides hold just the same requests */
	struct kvt_digest digest[2];	/* tokens, of each side */
	double seconds;			/* reading and comparing */
};

/*
 * 'after' are the outputs, opened again; the device of 'run' is not used, as it is
 * not to judge its own work.  Where each element comes from follows from tables,
 * heads and layouts of both sides alone.  KVT_MISMATCH says what differs.
 */
KVT_MUST_CHECK enum kvt_status
sides_verify(struct verified *out, const struct sides *sides, const struct side *after,
	     const struct kvt_run *run, struct kvt_error *err);

#endif
