/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h - what can go wrong with a cache, planted and recognised
 *
 * A fault is a row of a table: which element, or what value, stands where
 * another one should.  The same row plants the fault (kvt_fault_plant()) and
 * predicts what it would have made of the expected cache (kvt_diagnose()).
 * The conventions are those of kvt.h.
 */
#ifndef KVT_DIAGNOSE_H
#define KVT_DIAGNOSE_H

#include "lib/kvt/kvt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the cache at hand -------------------------------------------------- */

/* What a slot of a block holds. */
enum kvt_use {
	KVT_LIVE,
	KVT_STALE,			/* of an earlier tenant, or never written */
	KVT_NULL_BLOCK,
	KVT_UNSEEN,			/* it is not known what it should hold */
};

/* A part of a row: x, B, C of a conv state; the latent and RoPE of an MLA row. */
struct kvt_row_part {
	int64_t start, length;		/* elements of D */
};

enum {
	KVT_NOT_THERE = -1,		/* no such block: the request ends here */
	KVT_NOT_HERE = -2,		/* it exists but the window lacks it */
};

/* The blocks of a request in order. */
struct kvt_blocks_of {
	const uint32_t *block;
	int64_t n;
};

/*
 * Layers and blocks of a cache, all of S, H, K and D, dense in the order
 * L B S H K D.  Layers and blocks are those the caller chose, in its order; a
 * fault that takes data from a block that is not among them cannot be told.
 * Where the caller compares by position in a request, B counts those.
 */
struct kvt_window {
	struct kvt_shape shape;
	const struct kvt_shape *array;	/* of which it is a box; NULL: it is all */
	const struct kvt_dtype *dtype;	/* of both; dtype->elem == shape.elem */
	enum kvt_kind kind;

	/* Facts that some faults need.  All optional: NULL or 0. */
	const uint8_t *use;		/* [B][S] enum kvt_use; NULL: all live */
	const int64_t *prev, *next;	/* [B] block before, after in its request,
					 * as an index into B or KVT_NOT_...; NULL:
					 * not known */
	const int64_t *request;		/* [B] a table that has the block; -1: none, or
					 * several */
	const int64_t *entry;		/* [B] where in that table */
	int64_t ntables, first_block;	/* that of index 0, as tables count them */
	const struct kvt_blocks_of *table;
	const int64_t *layer_ids;	/* [L] index in the model; NULL: 0, 1, ... */
	const int64_t *block_ids;	/* [B] id in the pool; NULL: not known */
	int64_t head_start;		/* of the model, for what is printed */
	const struct kvt_layout *layout;/* of the suspect's memory */
	int64_t page_bytes;		/* of a block of a layer in the engine */
	int nparts;
	struct kvt_row_part part[8];	/* ascending, all of D; conv: x, B, C */

	/*
	 * Two elements are the same if their bytes are, or, with a tolerance
	 * above 0, if |a - b| <= atol + rtol * |a|.
	 */
	double atol, rtol;
};

/* ---- faults ------------------------------------------------------------- */

enum { KVT_FAULT_ARGS = 3 };

/* Arguments in the order of the fault's row; unused ones are 0. */
struct kvt_fault_args {
	int64_t n[KVT_FAULT_ARGS];	/* layers, blocks, heads: window indices */
	double factor;			/* of "scale" */
};

struct kvt_fault_arg {
	const char *name;		/* NULL: not used */
	char axis;			/* 'L', 'B', 'H', 'R': counts those; 0: nothing */
	const char *help;
};

struct kvt_fault {
	const char *name;		/* "swap-heads" */
	const char *summary;		/* one line, no period */
	struct kvt_fault_arg arg[KVT_FAULT_ARGS];
	bool has_factor;
	char moves;			/* 'L', 'B', 'H': it moves whole ones of these */
};

const struct kvt_fault *kvt_fault_at(int i);	/* NULL past the last one */
const struct kvt_fault *kvt_fault_find(const char *name);

/* ---- diagnosis ---------------------------------------------------------- */

enum { KVT_MAX_FAULTS = 48 };

enum kvt_verdict {
	KVT_NOT_TESTED,		/* does not apply to this cache, or lacks a fact */
	KVT_REFUTED,		/* predicts something else than is there */
	KVT_EXPLAINS,		/* predicts all that differs */
	KVT_EXPLAINS_PART,	/* the larger part of it, exactly; more differs */
};

struct kvt_hypothesis {
	const struct kvt_fault *fault;
	enum kvt_verdict verdict;
	struct kvt_fault_args args;	/* EXPLAINS: the first that do */
	int nargs;			/* how many sets of arguments do */
	int64_t explained;		/* elements that differ, as predicted */
	int64_t unknown;		/* that differ, but come from outside */
	int64_t matched;		/* elements compared with the prediction */
	int64_t tried;			/* sets of arguments */
};

/* What of two windows differs; only live slots are looked at. */
struct kvt_difference {
	int64_t count, live;		/* elements that differ, and all of them */
	struct kvt_box where;		/* the smallest that holds them */
	int64_t first[KVT_NAXES];	/* in the window's order */
};
void kvt_window_compare(struct kvt_difference *out, const struct kvt_window *window,
			const void *expected, const void *suspect);

/* What has elements that differ: 0 or 1 of each index of the window. */
struct kvt_struck {
	const uint8_t *layer, *block, *head, *kv;
};

struct kvt_diagnosis {
	struct kvt_difference difference;
	int nhypotheses;
	struct kvt_hypothesis hypothesis[KVT_MAX_FAULTS];
	int nexplain;			/* how many explain everything */
	const struct kvt_hypothesis *decided;	/* of these, if it is the only one;
						 * points into this struct */
	/*
	 * Heads that were looked at alone, those of rank 'rank' of 'tp', because no
	 * fault explains all of them; tp is 1 otherwise.
	 */
	int64_t tp, rank;
	struct kvt_struck struck;	/* by what is decided, or differs; in scratch */
	const int64_t *from;		/* of one that moves: where each was, or -1, as
					 * indices of these heads; in scratch, or NULL */
};

/* Bytes that kvt_diagnose() needs; KVT_BAD_INPUT if the window is wrong. */
KVT_MUST_CHECK enum kvt_status
kvt_diagnose_scratch(int64_t *nbytes, const struct kvt_window *window,
		     struct kvt_error *err);

/*
 * Which fault makes 'suspect' of 'expected'?  Both are windows of the same shape.
 * Every part that differs at all must be wholly what the fault predicts, in all of
 * the window or in the heads of one rank; where two faults predict the same nothing
 * is decided.  If there is none, a fault that so explains most of what differs is
 * decided, as KVT_EXPLAINS_PART.  'scratch' is aligned for int64_t.
 */
KVT_MUST_CHECK enum kvt_status
kvt_diagnose(struct kvt_diagnosis *out, const struct kvt_window *window,
	     const void *expected, const void *suspect, void *scratch,
	     struct kvt_error *err);

/*
 * The same for whom only one answer will do: where this fault, tested alone, is not
 * decided, others are not tested, and nothing is.  Else 'out' is that of kvt_diagnose().
 */
KVT_MUST_CHECK enum kvt_status
kvt_diagnose_only(struct kvt_diagnosis *out, const struct kvt_fault *fault,
		  const struct kvt_window *window, const void *expected,
		  const void *suspect, void *scratch, struct kvt_error *err);

/* The id, in the model or the pool, that an argument counts by index. */
int64_t kvt_fault_id(const struct kvt_fault_arg *arg, const struct kvt_window *window,
		     int64_t index);

/*
 * "a=1,b=3": the arguments as ids of the model and the pool; empty if the fault
 * has none.
 */
struct kvt_text kvt_fault_text(const struct kvt_fault *fault,
			       const struct kvt_fault_args *args,
			       const struct kvt_window *window);

/*
 * Of a fault that only moves rows of D within a page: from[] is which row of a sound
 * page, of [S][H][K], stands in the place of each.  False: it moves something else, or
 * cannot happen to such a cache.
 */
bool kvt_fault_rows(int64_t *from, const struct kvt_fault *fault,
		    const struct kvt_fault_args *args, const struct kvt_window *window);

/* ---- planting ----------------------------------------------------------- */

/* Where a fault strikes, and how. */
struct kvt_strike {
	const struct kvt_fault *fault;
	struct kvt_fault_args args;
	bool given[KVT_FAULT_ARGS];	/* arguments that are not to be chosen */
	int64_t layer, block;		/* window indices; -1: all, or chosen */
	uint64_t seed;			/* what is chosen follows from it */
};

/*
 * 'out' becomes 'expected' with the fault; what 'strike' left open is filled
 * in.  The null block stays as it is.  KVT_UNSUPPORTED: the fault cannot happen
 * to such a cache.  KVT_USAGE: an argument is out of range.  KVT_BAD_INPUT: it
 * would change nothing that is live.
 */
KVT_MUST_CHECK enum kvt_status
kvt_fault_plant(void *out, struct kvt_strike *strike,
		const struct kvt_window *window, const void *expected,
		struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
