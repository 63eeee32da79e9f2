/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what pass.c has seen, for the measures and the rules */
#ifndef KVT_STRANGE_INTERNAL_H
#define KVT_STRANGE_INTERNAL_H

#include "lib/base/order.h"
#include "lib/ops/strange/strange.h"

/* Elements that rotary positions may turn together: neighbours, or so far apart. */
enum { MAX_PAIRINGS = 4 };
struct pairing {
	int64_t apart, count;		/* 1: elements 0 and 1, 2 and 3, ... */
};

struct strange_seen {
	const struct kvt_snapshot *snapshot;
	const struct kvt_group *group;
	int g;
	bool known;			/* which slots are live */
	bool numbers;			/* the next ones are there */
	int npairings;
	struct pairing pairing[MAX_PAIRINGS];
	int64_t each, layer_room;	/* doubles of a head; of a layer */
	/*
	 * [L] slots, then of [K][H]: sums and sums of squares of each element, then of
	 * each pair of each pairing the sum of what it turned and of its square
	 */
	double *sums;
	uint64_t *page;			/* [L][B] hash of live slots; 0: none is live */
	uint64_t *head;			/* [L][K][H] of all of them; 0: zeros */
	int64_t *full;			/* [B] live slots, of the layer that has most */
};

/* A layer, or all of them; a rank's heads, or all. */
struct strange_region {
	int64_t layer;			/* -1: every layer */
	int64_t head, heads;
};

void strange_say_where(struct kvt_strange *found, const struct strange_seen *seen,
		       const struct strange_region *r);
/* "layer 2", "heads 2-3 of layer 2", "heads 2-3 of every layer" */
struct kvt_text strange_region_text(const struct strange_seen *seen,
				    const struct strange_region *r);

/* What heads [h, h + heads) of keys (0) or values of a layer turn, together. */
double strange_together(const double *turning, const int64_t *n, int64_t l, int64_t k,
			int64_t h, int64_t heads);

void strange_add(struct kvt_strangeness *out, const struct kvt_strange *found);

/* 'scratch' has room for a number of each layer. */
void strange_seek_swapped(struct kvt_strangeness *out, const struct strange_seen *seen,
			  double *scratch);
void strange_seek_scales(struct kvt_strangeness *out, const struct strange_seen *seen);
/* Fills the measures; then the rules.  False: out of memory. */
bool strange_measure(struct kvt_strangeness *out, const struct strange_seen *seen);
bool strange_judge(struct kvt_strangeness *out, const struct strange_seen *seen);
bool strange_find_twice(struct kvt_strangeness *out, const struct strange_seen *seen);

#endif
