/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.h - one transfer in many deployments, ranked by time */
#ifndef KVTOOL_SWEEP_H
#define KVTOOL_SWEEP_H

#include "lib/kvt/link.h"
#include "lib/kvt/stack.h"
#include "lib/ops/transfer/transfer.h"

/* What most runs of a row end with. */
enum sweep_cause {
	SWEEP_TP,		/* part of the heads of a rank */
	SWEEP_BLOCKS,		/* part of the states of a block */
	SWEEP_ORDER,		/* the sides order the axes differently */
	SWEEP_PLACE,		/* blocks, or layers of them, lie apart */
	SWEEP_SCOPE,		/* both sides go on, the scope does not */
	SWEEP_WHOLE,		/* nothing: a pair has one operation */
	SWEEP_NCAUSES
};

struct sweep_break {
	enum sweep_cause cause;
	enum kvt_axis axis;		/* along which the source goes on */
	int64_t ops;			/* that end so */
	int64_t part, of;		/* heads or states; of 0: not known */
	bool at_source;			/* whose they are */
	bool channels;			/* not heads */
};

struct sweep_row {
	char layout[2][64];		/* of the sides */
	int64_t block_size[2], tp[2];
	enum kvt_stack stack;		/* whose operations */
	int64_t sge;			/* pieces that one may gather; 1: one */
	int64_t stage;			/* bytes of a buffer; 0: none */
	char refused[208];		/* why the stack does not do it; or "" */
	int64_t ops, bytes, copied, ns;
	bool pareto;			/* no other has less of ops, time and copies */
	struct sweep_break why;
};

struct sweep {
	const struct sim_args *args;
	const struct kvt_link *link;
	int64_t tokens;
	int64_t n, room;
	struct sweep_row *row;		/* owned; the best first */
};

/* Adds a row: what its stack posts, or why that refuses.  Fills in 'row'. */
KVT_MUST_CHECK enum kvt_status
sweep_posts(struct sweep *sweep, const struct sim *sim, struct sweep_row *row,
	    struct kvt_error *err);

/* Adds the same deployment with buffers on both sides. */
struct sweep_stage {
	int64_t size, copy_rate;	/* bytes; 10^9 of them a second */
};
KVT_MUST_CHECK enum kvt_status
sweep_staged(struct sweep *sweep, const struct sim *sim, const struct sweep_row *row,
	     const struct sweep_stage *stage, struct kvt_error *err);

/* The scope that comes next to what a stack posts. */
enum kvt_scope sweep_scope(enum kvt_stack stack);

/* The reason of most breaks, over all groups. */
KVT_MUST_CHECK enum kvt_status
sweep_why(struct sweep_break *out, const struct sim *sim, enum kvt_scope scope,
	  struct kvt_error *err);

const char *sweep_cause_name(enum sweep_cause cause);	/* "tp" */

/* "Different TP breaks nhd and blshc ...": what the rows say together. */
void sweep_sentence(char *out, size_t room, const struct sweep *sweep);

void sweep_text(const struct sweep *sweep);
void sweep_csv(const struct sweep *sweep);
KVT_MUST_CHECK enum kvt_status
sweep_json(const struct sweep *sweep, struct kvt_error *err);

#endif
