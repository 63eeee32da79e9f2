/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - what a prefix cache held, event by event
 *
 * A block is a hash of one publisher; it may have copies in several places, and
 * more than one in a place: vLLM computes the last block of a prompt anew
 * although it has it, and tells of both.  A removal takes one copy away.  What
 * is told as a problem is what a reader of the events, who can know no more
 * than they say, would get wrong.
 *
 * A recording need not have all batches.  What was told before the first that
 * is there, or in those that are lost, is not known: then no removal and no
 * parent is called unknown, but counted as not judged.  AllBlocksCleared ends
 * that.  It is told by the cache of the engine's own memory (GPU, or no
 * medium); whether other media were cleared, too, is not said, so that what
 * they had may be removed or stored again from then on.
 */
#include "lib/ops/events/replay_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- findings ----------------------------------------------------------- */

void kvt_cache_replay_tell(struct kvt_cache_replay *r,
			   const struct kvt_cache_finding *finding)
{
	r->totals.found[finding->what]++;
	r->tell(r->context, finding);
}

static void found(struct kvt_cache_replay *r, enum kvt_cache_problem what,
		  const struct kvt_block_id *id, int64_t earlier, const char *format, ...)
	KVT_PRINTF(5, 6);

static void found(struct kvt_cache_replay *r, enum kvt_cache_problem what,
		  const struct kvt_block_id *id, int64_t earlier, const char *format, ...)
{
	char text[500];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	kvt_cache_replay_tell(r, &(struct kvt_cache_finding){
		what, r->event->number, r->event->batch, r->event->sequence, earlier, id,
		text });
}

/* Is all known that was told before? */
static bool complete(const struct kvt_cache_replay *r)
{
	return !r->publisher[r->now].late && !r->publisher[r->now].gap;
}

/* Was it told since batches were lost? */
static bool fresh(const struct kvt_cache_replay *r, int64_t event)
{
	return event > r->publisher[r->now].gap;
}

/* ---- batches ------------------------------------------------------------ */

static void empty(struct kvt_cache_replay *r, bool all);

/* Numbers begin at 0 and grow by one; of 0 again the publisher is a new one. */
static void check_sequence(struct kvt_cache_replay *r,
			   const struct kvt_cache_event *event)
{
	struct cache_publisher *p = &r->publisher[r->now];
	int64_t before = p->sequence, now = event->sequence;

	p->skip = false;
	r->totals.unnumbered |= now < 0;
	if (now < 0)
		return;
	if (before < 0 && now > 0) {
		p->late = r->totals.late = true;
	} else if (before >= 0 && now == 0) {
		found(r, KVT_CACHE_RESTART, NULL, 0,
		      "the publisher began again after batch number %lld: what it had is gone",
		      (long long)before);
		empty(r, true);
		p->late = false;
		p->gap = 0;
	} else if (before >= 0 && now <= before) {
		found(r, KVT_CACHE_BATCH_AGAIN, NULL, 0,
		      "batch number %lld comes after number %lld: its events are passed over",
		      (long long)now, (long long)before);
		p->skip = true;
		return;
	} else if (before >= 0 && now > before + 1) {
		found(r, KVT_CACHE_BATCH_LOST, NULL, 0,
		      "%lld batch%s missing before number %lld: ask the publisher's replay endpoint, or record with a higher limit",
		      (long long)(now - before - 1), now - before > 2 ? "es are" : " is",
		      (long long)now);
		p->gap = event->number ? event->number : 1;
	}
	p->sequence = now;
}

static enum kvt_status begin_batch(struct kvt_cache_replay *r,
				   const struct kvt_cache_event *event)
{
	struct kvt_cache_totals *t = &r->totals;

	if ((r->now = cache_publisher(r, event)) < 0)
		return kvt_no_memory(r->err, NULL);
	t->batches++;
	if (!isnan(event->time)) {
		t->begin = isnan(t->begin) ? event->time : t->begin;
		t->end = event->time;
	}
	check_sequence(r, event);
	cache_sample(r, event);
	return KVT_OK;
}

/* ---- where blocks are --------------------------------------------------- */

static void count(struct kvt_cache_replay *r, struct kvt_cache_copy *copy, int64_t copies)
{
	struct kvt_cache_place *p = &r->place[copy->place];

	if (!copy->copies != !copies)
		r->changes++;
	p->resident += (copies > 0) - (copy->copies > 0);
	p->peak = p->resident > p->peak ? p->resident : p->peak;
	copy->copies = copies;
}

/* Media beside the engine's own memory may not have been cleared. */
static bool is_own(const struct kvt_cache_place *p)
{
	return !*p->medium || !strcmp(p->medium, "GPU");
}

static void empty(struct kvt_cache_replay *r, bool all)
{
	for (size_t i = 0; i < r->nblocks; i++) {
		struct kvt_cache_block *block = r->all[i];

		for (int k = 0; block->publisher == r->now && k < block->ncopies; k++) {
			struct kvt_cache_copy *copy = &block->copy[k];

			if (!copy->copies)
				continue;
			copy->maybe = !all && !is_own(&r->place[copy->place]);
			if (copy->maybe)
				continue;
			count(r, copy, 0);
			copy->removed = r->event->number;
			copy->cleared = true;
		}
	}
}

/* Another place that has the block; where 'group' is asked for, one of the same group. */
static const struct kvt_cache_copy *elsewhere(const struct kvt_cache_replay *r,
					      const struct kvt_cache_block *block,
					      int64_t place, bool group)
{
	for (int i = 0; i < block->ncopies; i++) {
		const struct kvt_cache_copy *copy = &block->copy[i];

		if (copy->place != place && copy->copies > 0 &&
		    (!group || r->place[copy->place].group == r->place[place].group))
			return copy;
	}
	return NULL;
}

/* ---- removals ----------------------------------------------------------- */

static void not_there(struct kvt_cache_replay *r, const struct kvt_cache_block *block,
		      const struct kvt_cache_copy *copy)
{
	const struct kvt_cache_copy *other = elsewhere(r, block, copy->place, false);
	struct kvt_cache_text here = kvt_cache_place_text(r, copy->place);

	if (copy->removed && fresh(r, copy->removed))
		found(r, KVT_CACHE_REMOVED_TWICE, &block->id, copy->removed,
		      "removed from %s, where it is gone since event %lld%s",
		      here.s, (long long)copy->removed,
		      copy->cleared ? ", which cleared all" : "");
	else if (copy->stored || !complete(r))
		r->totals.unjudged++;
	else if (other)
		found(r, KVT_CACHE_REMOVED_ELSEWHERE, &block->id, other->stored,
		      "removed from %s, where it never was; %s has it since event %lld",
		      here.s, kvt_cache_place_text(r, other->place).s,
		      (long long)other->stored);
	else
		found(r, KVT_CACHE_REMOVED_UNSTORED, &block->id, 0,
		      "removed from %s, and no event stored it", here.s);
}

static void take_away(struct kvt_cache_replay *r, const struct kvt_cache_block *block,
		      struct kvt_cache_copy *copy)
{
	const struct kvt_cache_copy *other = elsewhere(r, block, copy->place, true);
	struct kvt_cache_text here = kvt_cache_place_text(r, copy->place);

	r->place[copy->place].removed++;
	if (copy->copies > 1 && fresh(r, copy->stored) && !copy->maybe)
		found(r, KVT_CACHE_REMOVED_COPY, &block->id, copy->stored,
		      "removed from %s, which has another copy since event %lld: who does not count copies loses it",
		      here.s, (long long)copy->stored);
	else if (copy->copies > 1)
		r->totals.unjudged++;
	else if (other)
		found(r, KVT_CACHE_COPY_STAYS, &block->id, other->stored,
		      "removed from %s; %s still has it", here.s,
		      kvt_cache_place_text(r, other->place).s);
	count(r, copy, copy->copies - 1);
	copy->maybe &= copy->copies > 0;
}

static enum kvt_status take_removed(struct kvt_cache_replay *r, int64_t place)
{
	for (size_t i = 0; i < r->event->nblocks; i++) {
		struct kvt_cache_block *block = cache_block(r, r->now,
							    &r->event->block[i]);
		struct kvt_cache_copy *copy = block ? cache_copy(block, place) : NULL;

		if (!copy)
			return kvt_no_memory(r->err, NULL);
		if (copy->copies)
			take_away(r, block, copy);
		else
			not_there(r, block, copy);
		if (!copy->copies) {
			copy->removed = r->event->number;
			copy->cleared = false;
		}
	}
	return KVT_OK;
}

/* ---- parents ------------------------------------------------------------ */

/* Where it is, or was, in places of the group; false: it was never told there. */
static bool in_group(const struct kvt_cache_replay *r,
		     const struct kvt_cache_block *block, int64_t group,
		     bool *is, int64_t *removed)
{
	bool was = false;

	for (int i = 0; i < block->ncopies; i++) {
		const struct kvt_cache_copy *copy = &block->copy[i];

		if (!copy->stored || r->place[copy->place].group != group)
			continue;
		was = true;
		*is |= copy->copies > 0;
		*removed = copy->removed > *removed ? copy->removed : *removed;
	}
	return was;
}

static bool ever_stored(const struct kvt_cache_block *block)
{
	for (int i = 0; i < block->ncopies; i++)
		if (block->copy[i].stored)
			return true;
	return false;
}

/*
 * A window lets go of its first blocks while a request goes on, and media below have
 * no order in what they drop: there a parent may be gone.
 */
static bool keeps_parents(const struct kvt_cache_place *p)
{
	return is_own(p) && ((!*p->kind && p->group < 1) ||
			     strstr(p->kind, "full_attention") ||
			     !strcmp(p->kind, "mla_attention"));
}

static void check_parent(struct kvt_cache_replay *r, const struct kvt_cache_block *parent,
			 int64_t place)
{
	const struct kvt_cache_event *event = r->event;
	struct kvt_cache_text here = kvt_cache_place_text(r, place);
	const struct kvt_block_id *first = event->nblocks ? &event->block[0] : NULL;
	int64_t removed = 0;
	bool is = false;

	if (first && kvt_block_id_equal(first, &event->parent))
		return;
	if (in_group(r, parent, event->group, &is, &removed)) {
		if (!is && keeps_parents(&r->place[place]) && fresh(r, removed))
			found(r, KVT_CACHE_PARENT_REMOVED, &event->parent, removed,
			      "what follows it is stored in %s, and it was removed in event %lld",
			      here.s, (long long)removed);
	} else if (!complete(r))
		r->totals.unjudged++;
	else if (ever_stored(parent))
		found(r, KVT_CACHE_PARENT_GROUP, &event->parent, 0,
		      "what follows it is stored in %s, and it only ever was in another group",
		      here.s);
	else
		found(r, KVT_CACHE_PARENT_UNKNOWN, &event->parent, 0,
		      "what follows it is stored in %s, and no event stored it: a reader cannot tell which prompt the blocks are of",
		      here.s);
}

/* A hash is of all that comes before: behind another parent it is not the same block. */
static void check_chain(struct kvt_cache_replay *r, const struct kvt_cache_block *block,
			struct kvt_cache_copy *copy, const struct kvt_cache_block *parent)
{
	if (parent == block)
		found(r, KVT_CACHE_PARENT_DIFFERS, &block->id, copy->stored,
		      "stored in %s behind itself",
		      kvt_cache_place_text(r, copy->place).s);
	else if (copy->chained && copy->block_size == r->event->block_size &&
		 copy->parent != parent)
		found(r, KVT_CACHE_PARENT_DIFFERS, &block->id, copy->stored,
		      "stored in %s behind another parent than in event %lld: a hash is of all that is before it",
		      kvt_cache_place_text(r, copy->place).s, (long long)copy->stored);
	if (copy->chained)
		return;
	copy->chained = true;
	copy->parent = parent;
	copy->block_size = r->event->block_size;
}

/* ---- stores ------------------------------------------------------------- */

static void check_span(struct kvt_cache_replay *r, int64_t place)
{
	const struct kvt_cache_event *e = r->event;
	const struct kvt_block_id *first = e->nblocks ? &e->block[0] : NULL;
	struct kvt_cache_text here = kvt_cache_place_text(r, place);
	int64_t n = (int64_t)e->nblocks, tokens = (int64_t)e->ntokens;

	if (e->has_tokens && tokens > n * e->block_size)
		found(r, KVT_CACHE_SPAN, first, 0,
		      "%lld tokens stored in %s with %lld hash%s of %lld: blocks were skipped, and nothing says which",
		      (long long)tokens, here.s, (long long)n, n == 1 ? "" : "es",
		      (long long)e->block_size);
	else if (e->has_tokens && tokens < n * e->block_size)
		found(r, KVT_CACHE_SPAN, first, 0,
		      "%lld tokens stored in %s are too few for %lld hash%s of %lld",
		      (long long)tokens, here.s, (long long)n, n == 1 ? "" : "es",
		      (long long)e->block_size);
	if (e->nextra != SIZE_MAX && e->nextra != e->nblocks)
		found(r, KVT_CACHE_EXTRA, first, 0,
		      "%zu extra keys stored in %s with %lld hash%s", e->nextra, here.s,
		      (long long)n, n == 1 ? "" : "es");
}

static void put_copy(struct kvt_cache_replay *r, const struct kvt_cache_block *block,
		     struct kvt_cache_copy *copy)
{
	r->place[copy->place].stored++;
	if (copy->copies && !copy->maybe && fresh(r, copy->stored))
		found(r, KVT_CACHE_STORED_TWICE, &block->id, copy->stored,
		      "stored in %s, which has it since event %lld",
		      kvt_cache_place_text(r, copy->place).s, (long long)copy->stored);
	else if (copy->copies && !copy->maybe)
		r->totals.unjudged++;
	count(r, copy, copy->maybe || !fresh(r, copy->stored) ? 1 : copy->copies + 1);
	copy->stored = r->event->number;
	copy->maybe = copy->cleared = false;
}

static enum kvt_status take_stored(struct kvt_cache_replay *r, int64_t place)
{
	const struct kvt_cache_event *e = r->event;
	bool dense = e->has_tokens &&
		     (int64_t)e->ntokens == (int64_t)e->nblocks * e->block_size;
	const struct kvt_cache_block *parent = NULL;

	if (e->has_parent && !(parent = cache_block(r, r->now, &e->parent)))
		return kvt_no_memory(r->err, NULL);
	if (parent)
		check_parent(r, parent, place);
	check_span(r, place);
	if (e->has_tokens)
		r->place[place].block_size = e->block_size;
	for (size_t i = 0; i < e->nblocks; i++) {
		struct kvt_cache_block *block = cache_block(r, r->now, &e->block[i]);
		struct kvt_cache_copy *copy = block ? cache_copy(block, place) : NULL;

		if (!copy)
			return kvt_no_memory(r->err, NULL);
		if (dense && (!parent || ever_stored(parent)))
			check_chain(r, block, copy, parent);
		put_copy(r, block, copy);
		parent = block;
	}
	return KVT_OK;
}

/* ---- the replay --------------------------------------------------------- */

enum kvt_status kvt_cache_replay_take(struct kvt_cache_replay *r,
				      const struct kvt_cache_event *event,
				      struct kvt_error *err)
{
	int64_t place;

	r->err = err;
	r->event = event;
	if (event->kind == KVT_CACHE_BATCH)
		return begin_batch(r, event);
	r->totals.events++;
	if (r->publisher[r->now].skip)
		return KVT_OK;
	if (event->kind == KVT_CACHE_CLEARED) {
		empty(r, false);
		r->publisher[r->now].late = false;
		r->publisher[r->now].gap = 0;
		return KVT_OK;
	}
	if ((place = cache_place(r, event)) < 0)
		return kvt_no_memory(r->err, NULL);
	return event->kind == KVT_CACHE_STORED ? take_stored(r, place) :
	       take_removed(r, place);
}

void kvt_cache_replay_end(struct kvt_cache_replay *r, const struct kvt_cache_event *last)
{
	r->samples.skipped = r->samples.every;
	cache_sample(r, last);
	r->totals.blocks = 0;
	for (size_t i = 0; i < r->nblocks; i++)
		r->totals.blocks += ever_stored(r->all[i]);
}

const struct kvt_cache_totals *kvt_cache_replay_totals(const struct kvt_cache_replay *r)
{
	return &r->totals;
}

int64_t kvt_cache_replay_now(const struct kvt_cache_replay *r)
{
	return r->publisher[r->now].skip ? -1 : r->now;
}

int64_t kvt_cache_replay_changes(const struct kvt_cache_replay *r)
{
	return r->changes;
}

enum kvt_status kvt_cache_replay_new(struct kvt_cache_replay **out,
				     kvt_cache_finding_fn *tell, void *context,
				     struct kvt_error *err)
{
	struct kvt_cache_replay *r = calloc(1, sizeof(*r));

	if (!r)
		return kvt_no_memory(err, NULL);
	r->tell = tell;
	r->context = context;
	r->totals.begin = r->totals.end = NAN;
	*out = r;
	return KVT_OK;
}

void kvt_cache_replay_free(struct kvt_cache_replay *r)
{
	if (!r)
		return;
	cache_free(r);
	free(r);
}
