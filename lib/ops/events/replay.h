/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.h - what a prefix cache held, by the events that its engine published
 *
 * Events go in one by one; a listener hears of what no sound stream has.  Afterwards, or
 * in between, it can be asked where a block is, and since when it is not.
 */
#ifndef KVT_CACHE_REPLAY_H
#define KVT_CACHE_REPLAY_H

#include "lib/transfer/cache_event.h"

enum kvt_cache_problem {
	KVT_CACHE_BATCH_LOST,		/* numbers of batches are missing */
	KVT_CACHE_BATCH_AGAIN,		/* or come again */
	KVT_CACHE_REMOVED_UNSTORED,	/* where it never was, nor anywhere else */
	KVT_CACHE_REMOVED_ELSEWHERE,	/* where it is not, while it is somewhere else */
	KVT_CACHE_REMOVED_TWICE,
	KVT_CACHE_REMOVED_COPY,		/* one of several in that place */
	KVT_CACHE_PARENT_UNKNOWN,	/* never reported */
	KVT_CACHE_PARENT_GROUP,		/* reported of other groups only */
	KVT_CACHE_PARENT_REMOVED,	/* before what follows was stored */
	KVT_CACHE_PARENT_DIFFERS,	/* from that of the same hash before */
	KVT_CACHE_SPAN,			/* not as many tokens as its blocks have */
	KVT_CACHE_EXTRA,		/* not as many extra keys as blocks */
	KVT_CACHE_NO_FILE,		/* told to be stored, and no file has it */
	KVT_CACHE_NOT_ALONE,		/* a part of a file, told as if alone */
	KVT_CACHE_HASH,			/* not that of its tokens */
	KVT_CACHE_NPROBLEMS,
	/* notes: sound engines do this, and who reads their events must know */
	KVT_CACHE_STORED_TWICE = KVT_CACHE_NPROBLEMS,
	KVT_CACHE_COPY_STAYS,		/* and in another medium still is */
	KVT_CACHE_RESTART,
	KVT_CACHE_NFINDINGS,
};
/* "parent-unknown" */
const char *kvt_cache_problem_name(enum kvt_cache_problem problem);

/* One of them, or a note.  'text' is valid during the call. */
struct kvt_cache_finding {
	enum kvt_cache_problem what;
	int64_t event, batch, sequence;
	int64_t earlier;		/* the event that it is about; 0: none */
	const struct kvt_block_id *id;	/* NULL: it is of no block */
	const char *text;
};
typedef void kvt_cache_finding_fn(void *context, const struct kvt_cache_finding *f);

/* A place: a medium of a publisher, a group of its layers. */
struct kvt_cache_place {
	int64_t publisher, group, rank;	/* -1: not given */
	const char *topic, *medium, *owner, *kind;
	int64_t resident, peak, stored, removed;	/* blocks */
	int64_t block_size;		/* of the last event; 0: none has told it */
};

/* What is known of a block in one place; numbers are those of events, 0: none. */
struct kvt_cache_copy {
	int64_t place, copies, stored, removed;
	bool cleared;			/* it was not removed alone */
	bool maybe;			/* told before a clearing that may not be its */
	bool chained;			/* 'parent' is that of the block before it */
	int64_t block_size;
	const struct kvt_cache_block *parent;	/* NULL: it is the first */
};

struct kvt_cache_block {
	struct kvt_block_id id;
	int64_t publisher;
	size_t index;			/* of kvt_cache_replay_at() */
	int ncopies;
	struct kvt_cache_copy *copy;
};

/* Blocks in a medium, up to a batch. */
enum { KVT_CACHE_MEDIA = 8 };
struct kvt_cache_sample {
	int64_t batch, event;
	double time;
	int64_t resident[KVT_CACHE_MEDIA];
};

struct kvt_cache_totals {
	int64_t batches, events, blocks, publishers;
	int64_t unjudged;		/* what lost batches keep from being known */
	int64_t found[KVT_CACHE_NFINDINGS];
	bool late;			/* some publisher's first batch is not number 0 */
	bool unnumbered;		/* batches without: lost ones are not seen */
	double begin, end;		/* NaN: no times */
	int nmedia;
	const char *medium[KVT_CACHE_MEDIA];
};

struct kvt_cache_replay;
KVT_MUST_CHECK enum kvt_status
kvt_cache_replay_new(struct kvt_cache_replay **out, kvt_cache_finding_fn *tell,
		     void *context, struct kvt_error *err);
void kvt_cache_replay_free(struct kvt_cache_replay *r);		/* NULL is allowed */

KVT_MUST_CHECK enum kvt_status
kvt_cache_replay_take(struct kvt_cache_replay *r, const struct kvt_cache_event *event,
		      struct kvt_error *err);

/* After the last event, of which 'last' has the numbers and the time. */
void kvt_cache_replay_end(struct kvt_cache_replay *r, const struct kvt_cache_event *last);

/* What others found goes the same way: it is counted, and told. */
void kvt_cache_replay_tell(struct kvt_cache_replay *r,
			   const struct kvt_cache_finding *finding);

const struct kvt_cache_totals *kvt_cache_replay_totals(const struct kvt_cache_replay *r);
/* NULL past the last. */
const struct kvt_cache_place *kvt_cache_replay_place(const struct kvt_cache_replay *r,
						     int64_t i);
/* At most 'most', in order; how many there are. */
int kvt_cache_replay_samples(const struct kvt_cache_sample *out[], int most,
			     const struct kvt_cache_replay *r);

/* Of that publisher; NULL: it was never told. */
const struct kvt_cache_block *kvt_cache_replay_find(const struct kvt_cache_replay *r,
						    int64_t publisher,
						    const struct kvt_block_id *id);
/* The i-th of all that were told, NULL past the last. */
const struct kvt_cache_block *kvt_cache_replay_at(const struct kvt_cache_replay *r,
						  size_t i);
/* Is a copy anywhere, in this group (-1: any)? */
bool kvt_cache_resident(const struct kvt_cache_replay *r,
			const struct kvt_cache_block *block, int64_t group);
/* Whose batch it is that was last taken; -1: its events were passed over. */
int64_t kvt_cache_replay_now(const struct kvt_cache_replay *r);
/* Grows with each change of where blocks are. */
int64_t kvt_cache_replay_changes(const struct kvt_cache_replay *r);

/* "GPU, group 0", and the rank or topic where there are several. */
struct kvt_cache_text {
	char s[200];
};
struct kvt_cache_text kvt_cache_place_text(const struct kvt_cache_replay *r,
					   int64_t place);

#endif
