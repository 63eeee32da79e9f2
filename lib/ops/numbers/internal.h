/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of this folder share */
#ifndef KVT_NUMBERS_INTERNAL_H
#define KVT_NUMBERS_INTERNAL_H

#include "lib/ops/numbers/duty.h"

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
