/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strange.h - what is strange in a group, where there is no other dump to compare it with
 *
 * One pass over the data takes four measures, and a few rules say which of them are out
 * of line:
 *
 *   turning   how much pairs of elements turn from one token to the next, always the same
 *             way: rotary positions do that to keys, and to values nothing does
 *   unit      the spread of the median channel of a head; layers, heads and ranks of a
 *             model have about the same, but for a factor that somebody forgot
 *   sums of hashes of what live slots hold: blocks, layers or heads that are there twice
 *   top       elements that are the largest number of their type: what was cut off
 *
 * Only live slots count, and all that are not zero where the dump does not say which are
 * live.  What a measure does not tell is not said: a cache whose keys do not turn has no
 * finding of the first kind.
 */
#ifndef KVT_STRANGE_H
#define KVT_STRANGE_H

#include "lib/kvt/dump.h"
#include "lib/kvt/run.h"

enum kvt_strange_kind {
	KVT_STRANGE_SWAPPED,	/* keys are values and values are keys */
	KVT_STRANGE_SCALE,
	KVT_STRANGE_TWICE,
	KVT_STRANGE_CUT_OFF,
	KVT_NSTRANGE
};
const char *kvt_strange_name(enum kvt_strange_kind kind);	/* "swapped-kv" */

/* Perhaps: sound dumps have that, too, so it is told and is no verdict. */
enum kvt_sure { KVT_PERHAPS, KVT_LIKELY, KVT_CERTAIN };
const char *kvt_sure_name(enum kvt_sure sure);			/* "likely" */

struct kvt_strange {
	enum kvt_strange_kind kind;
	enum kvt_sure sure;
	double score;			/* how far out of line; 1 is what is allowed */
	char at[160];			/* "group=g0,layer=2" */
	char text[420];			/* what it is, and the numbers that say so */
};

enum { KVT_MAX_STRANGE = 16 };	/* kept of a group, the first; others are counted */

struct kvt_strangeness {
	int64_t tokens;			/* slots of a layer that were measured, at most */
	int64_t apart;			/* of two elements that turn together */
	bool measured;			/* the two that follow are known */
	double *turning, *unit;		/* [L][K][H]; unit: logarithm; NaN: no number */
	int64_t elements, top, below;	/* looked at, the largest, the next to it */
	int64_t count;
	int n;
	struct kvt_strange found[KVT_MAX_STRANGE];
};
void kvt_strangeness_free(struct kvt_strangeness *s);

/* Reads all data of the group once; 'out' is zeroed first.  Free it either way. */
KVT_MUST_CHECK enum kvt_status
kvt_seek_strange(struct kvt_strangeness *out, struct kvt_dump *dump, int group,
		 const struct kvt_run *run, struct kvt_error *err);

#endif
