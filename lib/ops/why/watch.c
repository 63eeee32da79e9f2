/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - what a cache had of prompts, over the time of a recording
 *
 * A request finds the blocks of its prompt from the first one to the first that is not
 * there, in its group of layers; what is there behind that one is of no use to it.
 * Which medium has a block does not matter here: all of them can serve it.
 */
#include "lib/ops/why/watch.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/grow.h"

const char *kvt_why_gone_name(enum kvt_why_gone gone)
{
	static const char *const names[KVT_WHY_NGONE] = {
		"all-there", "never-stored", "evicted", "cleared", "other-group",
		"other-rank",
	};

	return names[gone];
}

enum kvt_status kvt_why_watch_new(struct kvt_why_watch *out,
				  const struct kvt_cache_replay *replay,
				  const struct kvt_why_prompt *prompt, int64_t n,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_why_watch){ .replay = replay, .changes = -1 };
	if (!(out->prompt = calloc((size_t)(n + !n), sizeof(*out->prompt))))
		return kvt_no_memory(err, NULL);
	for (; !status && out->nprompts < n; out->nprompts++)
		status = kvt_why_chain(&out->prompt[out->nprompts].chain,
				       &prompt[out->nprompts], 0, err);
	return status;
}

void kvt_why_watch_free(struct kvt_why_watch *watch)
{
	for (int64_t i = 0; i < watch->nprompts; i++) {
		for (int k = 0; k < watch->prompt[i].nin; k++)
			free(watch->prompt[i].in[k].block);
		kvt_why_chain_free(&watch->prompt[i].chain);
		free(watch->prompt[i].in);
	}
	free(watch->prompt);
	*watch = (struct kvt_why_watch){ 0 };
}

/* ---- blocks by their hashes --------------------------------------------- */

/* As events may have it: all bytes, the last 8 (vLLM), or the first 8 (SGLang). */
/* The block of that hash, of a publisher; NULL: it was never told. */
static const struct kvt_cache_block *find_block(const struct kvt_cache_replay *replay,
						int64_t publisher,
						const struct kvt_prefix *prefix)
{
	const struct { int from, n; } part[] = {
		{ 0, prefix->nbytes }, { prefix->nbytes - 8, 8 }, { 0, 8 },
	};
	const struct kvt_cache_block *block = NULL;
	struct kvt_block_id id;

	for (int i = 0; !block && prefix->nbytes >= 8 && i < 3; i++) {
		id = (struct kvt_block_id){ .nbytes = (uint8_t)part[i].n };
		memcpy(id.bytes, prefix->hash + part[i].from, (size_t)part[i].n);
		block = kvt_cache_replay_find(replay, publisher, &id);
	}
	return block;
}

/* Is block i of the prompt?  One that was told once stays where it is in memory. */
static bool is_there(const struct kvt_why_watch *w, const struct kvt_why_watched *p,
		     const struct kvt_why_seen_in *in, int64_t i)
{
	const struct kvt_cache_block **block = &in->block[i];

	if (!*block)
		*block = find_block(w->replay, in->publisher, &p->chain.block[i]);
	return kvt_cache_resident(w->replay, *block, in->group);
}

bool kvt_why_was_stored(void *context, const struct kvt_prefix *prefix)
{
	const struct kvt_cache_replay *replay = context;
	int64_t n = kvt_cache_replay_totals(replay)->publishers;
	bool is = false;

	for (int64_t p = 0; !is && p < n; p++) {
		const struct kvt_cache_block *block = find_block(replay, p, prefix);

		for (int i = 0; block && !is && i < block->ncopies; i++)
			is = block->copy[i].stored;
	}
	return is;
}

/* ---- looking ------------------------------------------------------------ */

/* Where requests may ask, of which there are more as events tell of them. */
static enum kvt_status more_places(const struct kvt_why_watch *w,
				   struct kvt_why_watched *p, struct kvt_error *err)
{
	const struct kvt_cache_place *place;
	struct kvt_why_seen_in *more;
	int k;

	for (int64_t i = 0; (place = kvt_cache_replay_place(w->replay, i)); i++) {
		for (k = 0; k < p->nin; k++)
			if (p->in[k].publisher == place->publisher &&
			    p->in[k].group == place->group)
				break;
		if (k < p->nin)
			continue;
		if (!KVT_GROW(&p->in, p->nin))
			return kvt_no_memory(err, NULL);
		more = p->in;
		more[p->nin] = (struct kvt_why_seen_in){
			.publisher = place->publisher, .group = place->group,
			.since = NAN, .elsewhere = -1,
			.block = calloc((size_t)p->chain.nblocks + 1,
					sizeof(*more->block)),
		};
		if (!more[p->nin].block)
			return kvt_no_memory(err, NULL);
		p->nin++;
	}
	return KVT_OK;
}

static void look(const struct kvt_why_watch *w, const struct kvt_why_watched *p,
		 struct kvt_why_seen_in *in, const struct kvt_cache_event *event,
		 bool again)
{
	double begin = kvt_cache_replay_totals(w->replay)->begin;

	if (again) {
		for (in->now = 0; in->now < p->chain.nblocks; in->now++)
			if (!is_there(w, p, in, in->now))
				break;
		if (in->now > in->best) {
			in->best = in->now;
			in->best_event = event->number;
		}
	}
	/* it has been so since the batch before this one, which is not taken yet */
	if (isnan(in->since))
		in->since = begin;
	if (event->time > in->since) {
		in->area += (double)in->now * (event->time - in->since);
		in->since = event->time;
	}
}

enum kvt_status kvt_why_watch_look(struct kvt_why_watch *w,
				   const struct kvt_cache_event *event,
				   struct kvt_error *err)
{
	int64_t changes = kvt_cache_replay_changes(w->replay);
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < w->nprompts; i++) {
		struct kvt_why_watched *p = &w->prompt[i];

		status = more_places(w, p, err);
		for (int k = 0; !status && k < p->nin; k++)
			look(w, p, &p->in[k], event, changes != w->changes);
	}
	w->changes = changes;
	return status;
}

/* ---- why not ------------------------------------------------------------ */

/* Which of its copies are asked about. */
enum where { IN_GROUP, NOT_IN_GROUP, ANYWHERE };

/* Of all that were stored: the last one to go, or one that is elsewhere. */
static void say_why(const struct kvt_why_watch *w, struct kvt_why_seen_in *in,
		    const struct kvt_cache_block *block, enum where where)
{
	for (int i = 0; block && i < block->ncopies; i++) {
		const struct kvt_cache_copy *copy = &block->copy[i];
		bool here = kvt_cache_replay_place(w->replay, copy->place)->group ==
			    in->group;

		if (!copy->stored || (where != ANYWHERE && here != (where == IN_GROUP)))
			continue;
		if (where == IN_GROUP && copy->removed >= in->event) {
			in->gone = copy->cleared ? KVT_WHY_CLEARED : KVT_WHY_EVICTED;
			in->event = copy->removed;
		} else if (where != IN_GROUP && (in->elsewhere < 0 || copy->copies)) {
			in->elsewhere = copy->place;
			in->event = copy->stored;
		}
	}
}

static void end(const struct kvt_why_watch *w, const struct kvt_why_watched *p,
		struct kvt_why_seen_in *in)
{
	int64_t n = kvt_cache_replay_totals(w->replay)->publishers;
	const struct kvt_prefix *missing = &p->chain.block[in->now];

	in->gone = KVT_WHY_ALL_THERE;
	if (in->now == p->chain.nblocks)
		return;
	for (int64_t i = in->now + 1; i < p->chain.nblocks; i++)
		in->after += is_there(w, p, in, i);
	in->gone = KVT_WHY_NEVER;
	say_why(w, in, find_block(w->replay, in->publisher, missing), IN_GROUP);
	if (in->gone != KVT_WHY_NEVER)
		return;
	say_why(w, in, find_block(w->replay, in->publisher, missing), NOT_IN_GROUP);
	if (in->elsewhere >= 0)
		in->gone = KVT_WHY_OTHER_GROUP;
	for (int64_t i = 0; i < n && in->elsewhere < 0; i++)
		if (i != in->publisher)
			say_why(w, in, find_block(w->replay, i, missing), ANYWHERE);
	if (in->gone == KVT_WHY_NEVER && in->elsewhere >= 0)
		in->gone = KVT_WHY_OTHER_RANK;
}

void kvt_why_watch_end(struct kvt_why_watch *w)
{
	for (int64_t i = 0; i < w->nprompts; i++)
		for (int k = 0; k < w->prompt[i].nin; k++)
			end(w, &w->prompt[i], &w->prompt[i].in[k]);
}

/* ---- what is there instead ---------------------------------------------- */

/* Is it that of the block before the missing one? */
static bool follows(const struct kvt_why_instead *w, const struct kvt_block_id *parent)
{
	const struct kvt_prefix *before;

	if (!w->missing)
		return !parent;
	before = &w->chain->block[w->missing - 1];
	return parent && kvt_block_id_is(parent, before->hash, (size_t)before->nbytes);
}

static void compare(struct kvt_why_instead *w, const struct kvt_cache_event *event,
		    const int64_t *token)
{
	int64_t begin = w->missing * w->prompt->rule.block, size = event->block_size;
	int64_t left = w->prompt->ntokens - begin, i = 0;

	while (i < size && i < left && token[i] == w->prompt->token[begin + i])
		i++;
	if (i == size || (i == left && size > w->prompt->rule.block)) {
		w->same = event->number;
		w->same_block_size = size;
		w->has_extra = event->has_extra;
		memset(w->lora, 0, sizeof(w->lora));
		memset(w->salt, 0, sizeof(w->salt));
		strncpy(w->lora, event->lora, sizeof(w->lora) - 1);
		strncpy(w->salt, event->salt, sizeof(w->salt) - 1);
	} else if (i < left && (!w->other || begin + i > w->token)) {
		w->other = event->number;
		w->token = begin + i;
	}
}

void kvt_why_instead(struct kvt_why_instead *w, const struct kvt_cache_event *event)
{
	const struct kvt_block_id *parent = event->has_parent ? &event->parent : NULL;

	if (event->kind != KVT_CACHE_STORED || event->block_size < 1 ||
	    (int64_t)event->ntokens != (int64_t)event->nblocks * event->block_size)
		return;
	for (size_t i = 0; i < event->nblocks; i++) {
		if (follows(w, parent))
			compare(w, event, event->token + (int64_t)i * event->block_size);
		parent = &event->block[i];
	}
}
