/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of this folder share */
#ifndef KVT_NUMBERS_INTERNAL_H
#define KVT_NUMBERS_INTERNAL_H

#include "lib/ops/numbers/numbers.h"

/* ---- whose a slot is: duty.c ------------------------------------------------ */

struct duties {
	const struct kvt_snapshot *snapshot;
	const struct kvt_group *group;
	int g;
	/* [B] 0: in no table; else 1 + the slots before its first token */
	uint32_t *used;			/* NULL: not known */
	bool *live;			/* [B][S] of a group that forgets; else NULL */
	uint32_t *tokens;		/* [B][S] of slots of several; NULL: all */
	bool overlaid;			/* what is stale may be of another group */
};
bool duties_init(struct duties *d, const struct kvt_snapshot *s, int g);
void duties_free(struct duties *d);
/* Does the dump say of any slot that it is live? */
bool duties_known(const struct duties *d);
enum kvt_duty duty_of(const struct duties *d, int64_t block, int64_t slot);
/* Are all tokens there that the row of a page, or all of a slot, stands for? */
bool duty_is_full(const struct duties *d, const struct kvt_numbers *n, int64_t block,
		  int64_t slot, int64_t row);

/* ---- the rest ---------------------------------------------------------------- */

/* The first slots of a layer; models have less layers than this, files may have more. */
enum { MOST_LAYERS = 1024 };
struct places {
	struct {
		int64_t block, slot;
	} first[KVT_MAX_PLACES];
};

struct kvt_looking {
	struct kvt_numbers *out;
	struct duties duty;
	int64_t slots;			/* of a page; the taps of a state are one */
	int64_t words;			/* with a bit for each head and column */
	unsigned must;			/* columns whose zeros are strange */
	/* [1 + R][L][1 + words] pages that count, and what of them is not zero */
	uint64_t *nonzero;
	int64_t nlists;			/* 1 + R, or 1 */
	int64_t *first_use, *use;	/* [B + 1] into requests that have the block */
	/* [L][1 + columns] slots that are zeros: all of it, then a column of it */
	int64_t *zeros;
	struct places *zero_at;		/* the same of the first layers */
};

/* What was seen in a box; behind it words of its pages, then flags of its slots. */
struct box_seen {
	struct kvt_odd by[KVT_NDUTIES];
	int64_t nlive;
	struct kvt_odd live[KVT_MAX_PLACES];
};

/*
 * Flags of a slot: its columns that are not all zeros; something is odd; it counts when
 * zeros are sought.
 */
#define SLOT_IS_ODD (UINT32_C(1) << KVT_MAX_COLUMNS)
#define SLOT_COUNTS (UINT32_C(2) << KVT_MAX_COLUMNS)

/* Of all pages (list 0), or of those of request list - 1. */
static inline uint64_t *list_at(const struct kvt_looking *l, int64_t list, int64_t layer)
{
	return l->nonzero + (list * l->duty.group->shape.n[KVT_AXIS_L] + layer) *
			    (1 + l->words);
}

/* Does a slot count when zeros are sought?  If nothing is known, all may be in use. */
static inline bool duty_counts(const struct kvt_looking *l, enum kvt_duty duty)
{
	return duty == (l->out->known ? KVT_DUTY_LIVE : KVT_DUTY_UNKNOWN);
}

/* More of the same kind; what 'to' has comes before. */
static inline void odd_add(struct kvt_odd *to, const struct kvt_odd *more)
{
	struct kvt_odd sum = to->slots ? *to : *more;

	if (to->slots) {
		sum.nan += more->nan;
		sum.inf += more->inf;
		sum.slots += more->slots;
	}
	*to = sum;
}

#endif
