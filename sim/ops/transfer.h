/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - a simulated transfer: which bytes go where, group by group
 *
 * A transfer is made of two dumps (dumps.c) or of a model and two pools that no
 * dump describes (model.c).  Either way each group of layers becomes a plan of
 * lib/transfer (struct kvt_xfer), which is proven before it is handed out: every
 * byte of the destination that is to be written is written exactly once.  No data
 * is read.
 *
 * Whatever has an init function must be freed only if that returned KVT_OK.
 */
#ifndef KVT_OPS_TRANSFER_H
#define KVT_OPS_TRANSFER_H

#include "lib/kvt/model.h"
#include "lib/kvt/snapshot.h"
#include "lib/kvt/transfer.h"

/* ---- a transfer --------------------------------------------------------- */

struct kvt_transfer_group {
	char name[32];
	struct kvt_layout src_layout, dst_layout;
	int src_group, dst_group;	/* of two dumps: their numbers there */
	const uint64_t *src_ids, *dst_ids;	/* of blocks; NULL: positions are */
	struct kvt_block_span *entry;	/* owned; of xfer */
	struct kvt_block_span *order;	/* owned; as the requests have them */
	int64_t *slot;			/* owned; of its request, where each begins */
	int64_t norder;
	struct kvt_xfer xfer;
};

struct kvt_transfer_plan {
	const char *model;		/* borrowed; NULL: not known */
	int64_t requests, tokens;	/* how many move; of all of them */
	bool whole;			/* blocks, not only valid slots */
	int ngroups;
	struct kvt_transfer_group *group;	/* owned */
};
void kvt_transfer_free(struct kvt_transfer_plan *transfer);

/* What of the requests moves, and what the sides do not say themselves. */
struct kvt_transfer_how {
	const char *request;		/* of two dumps; NULL: all that both have */
	int64_t cached;			/* tokens that the destination has already */
	int64_t mamba_groups;		/* of B and C in the model; 0: not known */
	enum kvt_replicas replicas;
	bool whole;			/* a last block in part moves as a whole */
	bool all_states;		/* of recurrent groups, not only the last one */
};

/* ---- between two dumps: dumps.c ------------------------------------------ */

/* Any rank of either side; names are for messages.  All must outlive the transfer. */
struct kvt_transfer_dumps {
	const char *src_name, *dst_name;
	const struct kvt_snapshot *src, *dst;
};

/*
 * From specs, layouts and block tables.  Requests that share blocks make several
 * groups of one group, see dumps.c.
 */
KVT_MUST_CHECK enum kvt_status
kvt_transfer_of_dumps(struct kvt_transfer_plan *out,
		      const struct kvt_transfer_dumps *dumps,
		      const struct kvt_transfer_how *how, struct kvt_error *err);

/* ---- of a model, between two pools: model.c ------------------------------- */

/* Which blocks a request has, in the words of kvt_block_ids(). */
struct kvt_id_pattern {
	const char *words;		/* borrowed */
	const char *list;		/* borrowed; the text of "file:PATH" */
	size_t nbytes;
};

struct kvt_transfer_pool {
	struct kvt_layout layout;
	int64_t ranks, block_size;	/* tensor parallel; tokens */
	int64_t dcp, interleave;	/* of them, that deal tokens out: how many each */
	int64_t blocks;			/* 0: the fewest that the ids need */
	struct kvt_id_pattern ids;
};

/* One request of a model; all is borrowed. */
struct kvt_model_transfer {
	const char *name;		/* of the model; NULL */
	const struct kvt_model_group *group;
	int ngroups;
	const char *cache_dtype;	/* NULL: the model's */
	const char *conv;		/* "sd" or "ds"; NULL: not said */
	struct kvt_transfer_pool src, dst;
	int64_t tokens;
	struct kvt_transfer_how how;
};
KVT_MUST_CHECK enum kvt_status
kvt_transfer_of_model(struct kvt_transfer_plan *out,
		      const struct kvt_model_transfer *from, struct kvt_error *err);

/*
 * The layout of a conv state: layers and blocks where 'layout' has them, then
 * channels and taps as the engine stores them: "sd" or "ds", which must be said.
 */
KVT_MUST_CHECK enum kvt_status
kvt_conv_layout(struct kvt_layout *out, const struct kvt_layout *layout,
		const char *conv, struct kvt_error *err);

/* ---- groups: group.c ------------------------------------------------------ */

/* One end of a group, ready to be joined with the other. */
struct kvt_transfer_end {
	struct kvt_spec spec;		/* of any rank */
	int64_t ranks, layers;
	struct kvt_layout layout;
	enum kvt_replicas replicas;
	struct kvt_deal deal;		/* of each: slots are those that it was dealt */
	int64_t strides[KVT_NAXES], offset;	/* bytes; 0: as the layout has them */
	struct kvt_block_table table;	/* of one request; ids borrowed */
};

/* Slots begin to end of one request; tables borrowed. */
struct kvt_transfer_move {
	struct kvt_block_table src, dst;
	int64_t begin, end;
};

/* KVT_BAD_INPUT if a table names a block twice. */
KVT_MUST_CHECK enum kvt_status
kvt_transfer_group_init(struct kvt_transfer_group *out, const char *name,
			const struct kvt_transfer_end *src,
			const struct kvt_transfer_end *dst,
			const struct kvt_transfer_move *moves, int64_t nmoves,
			struct kvt_error *err);

/*
 * Tokens begin..end of the one request where ranks of one end or both deal them out:
 * those that both of these ranks have, if any.
 */
KVT_MUST_CHECK enum kvt_status
kvt_transfer_group_init_dealt(struct kvt_transfer_group *out, const char *name,
			      const struct kvt_transfer_end *src,
			      const struct kvt_transfer_end *dst, int64_t begin,
			      int64_t end, struct kvt_error *err);
void kvt_transfer_group_free(struct kvt_transfer_group *group);

/* Room for one more group; NULL when out of memory.  Counts when ngroups does. */
struct kvt_transfer_group *kvt_transfer_group_new(struct kvt_transfer_plan *transfer,
						  struct kvt_error *err);

/* KVT_MISMATCH if a destination would not be written exactly once. */
KVT_MUST_CHECK enum kvt_status
kvt_transfer_prove(const struct kvt_transfer_plan *transfer, struct kvt_error *err);

/* Where op 'n' of all groups and pairs, in scope rfc, ends up. */
struct kvt_op_place {
	int rank, group;		/* of the destination; rank -1: nowhere */
	int64_t index[KVT_NAXES];	/* of its first byte */
};
/* KVT_BAD_INPUT: there are not so many. */
KVT_MUST_CHECK enum kvt_status
kvt_transfer_find_op(struct kvt_op_place *out, const struct kvt_transfer_plan *transfer,
		     int64_t n, struct kvt_error *err);

/* ---- block ids: ids.c ----------------------------------------------------- */

enum { KVT_MOST_POOL = 1 << 26 };

/*
 * n ids: "contig", "scatter", "reverse", "half", "random:SEED", "aged:SEED",
 * "list:3:1:2", or "file:NAME" whose list was read.  '*pool' blocks there are; 0
 * becomes the fewest that the pattern needs.  The caller frees '*ids'.
 */
KVT_MUST_CHECK enum kvt_status
kvt_block_ids(uint32_t **ids, int64_t *pool, const struct kvt_id_pattern *pattern,
	      int64_t n, struct kvt_error *err);

/* The most bytes of a list that can be of use. */
size_t kvt_id_list_most(void);

/* ---- figures: figures.c --------------------------------------------------- */

enum { KVT_MOST_SIZES = 1 << 16 };

/* Of one group, or of all; over the pairs of ranks. */
struct kvt_figures {
	int64_t pairs;
	struct kvt_tally tally;
	struct kvt_sizes sizes;		/* owned */
	int64_t least, most;		/* ops of a pair */
};
KVT_MUST_CHECK enum kvt_status
kvt_figures_init(struct kvt_figures *out, struct kvt_error *err);
void kvt_figures_free(struct kvt_figures *figures);

/* Adds those of a group. */
KVT_MUST_CHECK enum kvt_status
kvt_figures_add(struct kvt_figures *figures, const struct kvt_transfer_group *group,
		enum kvt_scope scope, struct kvt_error *err);

/* Figures of every group under every scope. */
struct kvt_plan_figures {
	const struct kvt_transfer_plan *transfer;		/* borrowed */
	struct kvt_figures (*figures)[KVT_NSCOPES];	/* owned; [ngroups] */
};
KVT_MUST_CHECK enum kvt_status
kvt_plan_figures_init(struct kvt_plan_figures *out,
		      const struct kvt_transfer_plan *transfer, struct kvt_error *err);
void kvt_plan_figures_free(struct kvt_plan_figures *report);

/* Of all groups. */
int64_t kvt_plan_figures_ops(const struct kvt_plan_figures *report, enum kvt_scope scope);

/* ---- what an operation carries: carries.c --------------------------------- */

/* Slots of a request that lie in one block of the source. */
struct kvt_held_slots {
	int64_t block, slot, count;	/* first one in the block; how many */
	int64_t at;			/* it is this one of the request */
};

/* A group's slots by block and slot of the source. */
struct kvt_op_index {
	const struct kvt_transfer_group *group;	/* borrowed */
	struct kvt_held_slots *held;	/* owned; [group->norder] */
};
KVT_MUST_CHECK enum kvt_status
kvt_op_index_init(struct kvt_op_index *out, const struct kvt_transfer_group *group,
		  struct kvt_error *err);
void kvt_op_index_free(struct kvt_op_index *places);

/*
 * Layers, slots and heads from the least to the greatest that have a byte in it:
 * all of them if it is a box of the model, and mostly it is.
 */
struct kvt_op_content {
	const char *slice;		/* "head", or a part of a conv state */
	int64_t layer, layers, slot, slots;
	int64_t head, heads;		/* of the model; of a conv state, channels */
};
struct kvt_op_content kvt_op_content(const struct kvt_op_index *places,
				     const struct kvt_pair *pair,
				     const struct kvt_op *op);

#endif
