/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - questions to the data of dumps: is it the same, what is its digest, is
 * anything wrong with it
 *
 * Each reads what it needs once, with the threads and the memory of its run (NULL: a
 * quiet run on the CPU), and gives the same answer for any number of threads.  What is
 * told to a callback is told by the thread that called, one call at a time; pointers in
 * it are good until the callback returns.
 */
#ifndef KVT_OPS_H
#define KVT_OPS_H

#include "lib/kvt/dump.h"

/* ---- proof of what was written --------------------------------------------- */

/*
 * Does 'written' hold just what 'source' has, element by element, by the ids of layers,
 * blocks and heads, and do its tables name the same blocks?  Addresses are summed up
 * from the definition of the layouts, not by the plans that moved the data.
 * KVT_MISMATCH names the first element that differs.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_verify(const struct kvt_dump *source, const struct kvt_dump *written,
	   const struct kvt_run *run, struct kvt_error *err);

/*
 * The same of a dump that was made by kvt_dump_reblock(), which said 'said': slots of
 * requests through the tables of both; of a pool that was regrouped, those at the same
 * place.
 */
struct kvt_reblocked;
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_verify_reblocked(const struct kvt_dump *before, const struct kvt_dump *after,
		     const struct kvt_reblocked *said, const struct kvt_run *run,
		     struct kvt_error *err);

/* ---- another type ----------------------------------------------------------- */

/* What fp8 numbers are divided by. */
enum kvt_scaling {
	KVT_SCALE_NONE,			/* the type has no scale */
	KVT_SCALE_TOLD,
	/* the largest magnitude over the largest number of the type: */
	KVT_SCALE_AUTO,			/* of the keys, and of the values, of a layer */
	KVT_SCALE_AUTO_HEADS,		/* of those of each head */
};

struct kvt_astype {
	const char *type;		/* as --cache-dtype of kvtool-convert(1) has it */
	enum kvt_scaling scaling;
	double scale[2];		/* told: of keys, of values */
	bool has_from;			/* what fp8 of the dump is to be multiplied by, */
	double from[2];			/* where it does not say it */
};

/*
 * The numbers of keys, values and latents as another type, rounded as engines do; the
 * dump says from which type, and its scales.  Calibrating reads all data.  KVT_USAGE: no
 * such type, a scale that is missing or has no meaning; KVT_BAD_INPUT: numbers cannot be
 * read, or those that are calibrated are not finite; KVT_UNSUPPORTED: not of this shape.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_astype(struct kvt_dump **out, const struct kvt_dump *dump,
		const struct kvt_astype *how, const struct kvt_run *run,
		struct kvt_error *err);

/* ---- digest ------------------------------------------------------------------ */

enum kvt_scope {
	KVT_SCOPE_TOKENS,	/* live tokens of requests; KVT_BAD_INPUT without any */
	KVT_SCOPE_BLOCKS,	/* every slot of the pool */
};

/*
 * "kvd1:tokens:" and 32 digits, as kvtool-digest(1) prints it: the same in every layout
 * and format.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_digest(struct kvt_text *out, const struct kvt_dump *dump, enum kvt_scope scope,
		const struct kvt_run *run, struct kvt_error *err);

/* ---- diff -------------------------------------------------------------------- */

enum kvt_diff_by {
	KVT_DIFF_AUTO,		/* by tokens if the dumps have requests */
	KVT_DIFF_TOKENS,	/* of requests of one name */
	KVT_DIFF_BLOCKS,	/* of one id */
};

/* As the options of kvtool-diff(1); zeros are its defaults: bits decide. */
struct kvt_diff_options {
	enum kvt_diff_by by;
	bool common;		/* what only one dump has is no failure */
	bool exact;		/* numbers must be equal, whatever their types */
	bool automatic;		/* they may be as far apart as rounding puts them */
	bool has_atol, has_rtol;
	double atol, rtol;	/* |A - B| <= atol + rtol |B| */
	bool no_diagnosis;	/* do not look for a known fault that explains it */
	int most;		/* elements told of a group, 0 to 100: the worst */
	bool has_scale[2];	/* of A, of B */
	double scale[2][2];	/* a number of A or B is this times it: keys, values */
	int nmatches;
	const char *const *match;	/* "A=B": request A of A is request B of B */
	bool attention;			/* say what the difference does to it */
	const struct kvt_dump *queries;	/* with these; NULL: keys of A stand in */
	/* As --attend: 0 is what the dumps say. */
	double attention_scale, attention_cap;
	int64_t attention_rank, attention_sample;
	bool has_bound;			/* of the error of each head's outputs, */
	double bound;			/* relative to those of A */
};

/* A group of either dump, or what both have of it. */
struct kvt_diff_group {
	const char *id;			/* "g0", or "g0 and g1" */
	bool equal;			/* element for element */
	bool differs;			/* the verdict, by the tolerance */
	int64_t elements, unequal;
	int64_t outside;		/* of the tolerance of each element */
	double max_abs;			/* of A - B */
	double rel_l2, cosine, pcc;	/* NaN: not defined */
	const char *fault;		/* kvtool help faults; NULL: none explains it */
	const char *fault_args;		/* "layer=2,block=17" */
	const char *fault_text;		/* what that fault is */
};

/* An element that both have, with other values. */
struct kvt_diff_element {
	const char *group;
	int64_t layer;			/* in the model */
	const char *layer_name;		/* NULL: none */
	const char *request;		/* NULL: paired by blocks */
	int64_t token;			/* of the request; -1 */
	int64_t block[2], slot[2];	/* ids in the pools */
	int64_t head, kv, dim;		/* in the model; -1: there is no such axis */
	double value[2], error;
};

/* What both have of a head of a layer. */
struct kvt_diff_cell {
	const char *group;
	int64_t layer, head;		/* in the model; head -1: there is no such axis */
	int64_t elements, outside;	/* of the tolerance of each element, or unequal */
	double max_abs, dd;		/* of A - B: the largest, the sum of squares */
	double aa, bb, ab;		/* sums of A^2, B^2, A B; 0 in an equal group */
};

enum kvt_diff_axis { KVT_DIFF_TOKEN, KVT_DIFF_DIM, KVT_DIFF_KV };

/* What both have of a token, an element of a slot, or of keys or values alone. */
struct kvt_diff_row {
	const char *group;
	enum kvt_diff_axis axis;
	int64_t id;			/* token, dim, 0 keys, 1 values */
	const char *request;		/* of a token; NULL: paired by blocks, id is -1 */
	int64_t block, slot;		/* of a token, in A; -1 */
	int64_t elements, outside;	/* as in struct kvt_diff_cell, all of these */
	double max_abs, dd, aa, bb, ab;
};

/* What it does to a layer and head of queries. */
struct kvt_diff_attended {
	const char *group;		/* of the keys */
	int64_t layer, head;		/* in the model */
	int64_t queries, top_changed;	/* of them, whose key of most weight is another */
	int64_t lost;			/* whose output is a number on one side only */
	double change, change_max;	/* of weights, 0 to 1: on average, at most */
	double rel_l2, worst;		/* of the outputs: of all, of a query; infinity */
};

/* Requests of two names that are one. */
struct kvt_diff_paired {
	const char *request[2];		/* of A, of B */
	bool by_name;			/* but for a random end; else by content: */
	int64_t alike, sampled;		/* tokens that were read */
};

struct kvt_diff_told {
	void *context;
	/* Each may be NULL.  'side' is 0 for A; text "layers 3, 4 of g0". */
	void (*only)(void *context, int side, const char *text);
	void (*group)(void *context, const struct kvt_diff_group *group);
	/* After their group, the largest error first. */
	void (*element)(void *context, const struct kvt_diff_element *element);
	/* After their group, layer by layer. */
	void (*cell)(void *context, const struct kvt_diff_cell *cell);
	/*
	 * After their group, those of an axis in its order.  Tokens and dims are left out
	 * where all of them together would take more than half of the memory of the run.
	 */
	void (*row)(void *context, const struct kvt_diff_row *row);
	/* Before all groups. */
	void (*paired)(void *context, const struct kvt_diff_paired *paired);
	/* After all groups, if 'attention' is set. */
	void (*attended)(void *context, const struct kvt_diff_attended *attended);
};

/*
 * KVT_MISMATCH if anything differs; KVT_BAD_INPUT if the dumps cannot be compared, and
 * without 'common' if one has what the other lacks.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_diff(const struct kvt_dump *a, const struct kvt_dump *b,
	 const struct kvt_diff_options *options, const struct kvt_diff_told *told,
	 const struct kvt_run *run, struct kvt_error *err);

/* ---- check ------------------------------------------------------------------- */

/* A rule that is broken, as kvtool-fsck(1) lists them. */
struct kvt_broken_rule {
	const char *rule;		/* "table.out-of-pool" */
	const char *severity;		/* "error", "warning", "note" */
	const char *at;			/* "group=g0,block=3"; "": all of the dump */
	const char *text;
};

/*
 * Tables, layers and heads; with 'data' also all data, its checksums and digests.
 * KVT_MISMATCH if there is an error or a warning; a failure is one of reading.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_check(const struct kvt_dump *dump, bool data,
	  void (*found)(void *context, const struct kvt_broken_rule *rule), void *context,
	  const struct kvt_run *run, struct kvt_error *err);

#endif
