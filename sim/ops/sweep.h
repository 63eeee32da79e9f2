/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.h - one transfer in many deployments, ranked by time
 *
 * The caller makes a transfer of each deployment and adds it, then asks for the
 * ranking.
 */
#ifndef KVT_OPS_SWEEP_H
#define KVT_OPS_SWEEP_H

#include "sim/ops/batches.h"

/* What most runs of a row end with. */
enum kvt_sweep_cause {
	KVT_SWEEP_TP,		/* part of the heads of a rank */
	KVT_SWEEP_BLOCKS,		/* part of the slots of a block */
	KVT_SWEEP_ORDER,		/* the sides order the axes differently */
	KVT_SWEEP_PLACE,		/* blocks, or layers of them, lie apart */
	KVT_SWEEP_SCOPE,		/* both sides go on, the scope does not */
	KVT_SWEEP_WHOLE,		/* nothing: a pair has one operation */
	KVT_SWEEP_NCAUSES
};

struct kvt_sweep_break {
	enum kvt_sweep_cause cause;
	enum kvt_axis axis;		/* along which the source goes on */
	int64_t ops;			/* that end so */
	int64_t part, of;		/* heads or slots; of 0: not known */
	bool at_source;			/* whose they are */
	bool channels;			/* not heads */
};

struct kvt_sweep_row {
	char layout[2][64];		/* of the sides */
	int64_t block_size[2], tp[2];
	enum kvt_stack stack;		/* whose operations */
	int64_t sge;			/* pieces that one may gather; 1: one */
	int64_t stage;			/* bytes of a buffer; 0: none */
	char refused[208];		/* why the stack does not do it; or "" */
	int64_t ops, bytes, copied, ns;
	bool pareto;			/* no other has less of ops, time and copies */
	struct kvt_sweep_break why;
};

struct kvt_sweep {
	const struct kvt_link *link;	/* borrowed */
	const char *model;		/* borrowed; NULL */
	int64_t tokens;
	int64_t n;
	struct kvt_sweep_row *row;		/* owned; the best first */
};

/* Copies into and out of buffers on both sides. */
struct kvt_sweep_stage {
	int64_t size, copy_rate;	/* bytes; 10^9 of them a second */
};

/* Adds a row as it is. */
KVT_MUST_CHECK enum kvt_status
kvt_sweep_add_row(struct kvt_sweep *sweep, const struct kvt_sweep_row *row,
		  struct kvt_error *err);
/*
 * Adds a deployment: a row of what its stack posts, or of why that refuses.  Names
 * of layouts are those that the user knows; NULL: as the layout is written.
 */
KVT_MUST_CHECK enum kvt_status
kvt_sweep_add(struct kvt_sweep *sweep, const struct kvt_transfer_plan *transfer,
	      const char *const layout[2], enum kvt_stack stack, int64_t sge,
	      struct kvt_error *err);

/* Adds the same through buffers, whatever its stack posts. */
KVT_MUST_CHECK enum kvt_status
kvt_sweep_add_staged(struct kvt_sweep *sweep, const struct kvt_transfer_plan *transfer,
		     const char *const layout[2], enum kvt_stack stack, int64_t sge,
		     const struct kvt_sweep_stage *stage, struct kvt_error *err);

/*
 * The best first: by time, what is equally fast by ops, then as it was added; what a
 * stack refuses comes last.  Marks the rows that no other beats.
 */
void kvt_sweep_rank(struct kvt_sweep *sweep);
void kvt_sweep_free(struct kvt_sweep *sweep);

/* ---- why: sweep_why.c ------------------------------------------------------ */

/* The reason of most breaks, over all groups. */
KVT_MUST_CHECK enum kvt_status
kvt_sweep_why(struct kvt_sweep_break *out, const struct kvt_transfer_plan *transfer,
	      enum kvt_scope scope, struct kvt_error *err);

#endif
