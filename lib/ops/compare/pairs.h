/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.h - which element of one dump is which of another
 *
 * Two questions with two answers.  Slot pairs say which slot (layer, block, place
 * in the block) of group A is which of group B; head pairs say the same of what is
 * in a slot: heads, keys and values, channels.  Both follow from what the two
 * snapshots say of themselves (ids, block tables, numbers in the model), never from
 * the parts of a derived dump or from the plan of a transfer: what made one side out
 * of the other has no part in comparing them.
 */
#ifndef KVT_OPS_COMPARE_PAIRS_H
#define KVT_OPS_COMPARE_PAIRS_H

#include "lib/dump/span_list.h"

/* A group of a snapshot. */
struct pairs_side {
	const struct kvt_snapshot *snapshot;
	int group;
};

static inline const struct kvt_group *pairs_group(struct pairs_side side)
{
	return &side.snapshot->group[side.group];
}

/* ---- one axis ---------------------------------------------------------------- */

/*
 * For each index of B along L, B, H or D the one of A that is the same in the model or
 * the pool, or -1: layers and blocks by id, heads and channels by number, channels of
 * states in parts of equal name.  The caller frees '*out', also where it fails.
 */
KVT_MUST_CHECK enum kvt_status
axis_pairs(int64_t **out, enum kvt_axis axis, const struct kvt_group *a,
	   const struct kvt_group *b, struct kvt_error *err);

/* ---- slots ------------------------------------------------------------------ */

/* Zeroed: none.  Free with slot_pairs_free(). */
struct slot_pairs {
	int64_t *layer;			/* [L] of B: in A, -1: not there; NULL: itself */
	int64_t *block;			/* [B] of B: in A; NULL: what 'span' says */
	struct span_list span;		/* from A, to blocks of B; by these */
};

/* Layers and blocks of equal id; slots at the same place. */
KVT_MUST_CHECK enum kvt_status
slot_pairs_by_ids(struct slot_pairs *out, struct pairs_side a, struct pairs_side b,
		  struct kvt_error *err);

/* What of the requests is compared. */
struct token_choice {
	const char *request;		/* NULL: all that both have */
	int64_t cached;			/* tokens that were there before */
	bool whole;			/* up to the end of the last block */
	bool all_states;		/* of recurrent groups; else the last one */
	bool named;			/* what no token needs any more, too */
};
/*
 * Slots of the tokens of requests of equal id, through both block tables; layers as
 * they stand.  KVT_MISMATCH: a token has no block.
 */
KVT_MUST_CHECK enum kvt_status
slot_pairs_by_tokens(struct slot_pairs *out, struct pairs_side a, struct pairs_side b,
		     const struct token_choice *choice, struct kvt_error *err);

/* Both pools as one row of slots: those with equal numbers. */
KVT_MUST_CHECK enum kvt_status
slot_pairs_of_pools(struct slot_pairs *out, struct pairs_side a, struct pairs_side b,
		    struct kvt_error *err);

/* All slots of B that 'other' does not have, as themselves. */
KVT_MUST_CHECK enum kvt_status
slot_pairs_rest(struct slot_pairs *out, struct pairs_side b,
		const struct slot_pairs *other, struct kvt_error *err);

bool slot_pairs_any(const struct slot_pairs *pairs, struct pairs_side b);
void slot_pairs_free(struct slot_pairs *pairs);

/* Spans for the blocks of a box, as span_list_of(). */
struct target_span *slot_pairs_in(int64_t *n, const struct slot_pairs *pairs,
				  const struct kvt_box *box);

/* ---- heads ------------------------------------------------------------------ */

/* Zeroed: none.  Free with head_pairs_free(). */
struct head_pairs {
	int64_t *head, *channel;	/* [H], [D] of B: in A, -1: not there */
	int first_kv;			/* in A, of B's first */
	bool same_channels;		/* all of both, in order */
};

/* Groups of other types, or of other keys and values: KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
head_pairs_init(struct head_pairs *out, const struct kvt_group *a,
		const struct kvt_group *b, struct kvt_error *err);
bool head_pairs_any(const struct head_pairs *pairs, const struct kvt_group *b);
/* Takes out of 'pairs' what 'other' has, too. */
void head_pairs_without(struct head_pairs *pairs, const struct head_pairs *other,
			const struct kvt_group *b);
void head_pairs_free(struct head_pairs *pairs);

/* ---- names ------------------------------------------------------------------ */

/* What the index of an axis is in the model or in the engine's pool. */
uint64_t element_id(const struct kvt_group *group, enum kvt_axis axis, int64_t i);

/* The first request whose table has the block, and its token there, or its entry. */
const struct kvt_request *request_at(int64_t *token, struct pairs_side side,
				     int64_t block, int64_t slot);

#endif
