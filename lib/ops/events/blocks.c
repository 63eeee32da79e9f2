/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c - the tables of a replay: blocks by hash, places, publishers
 *
 * A block is a hash of one publisher, and has a copy for each place, a medium and a group
 * of layers, that told of it.  Tables grow with what is published, never by a length that
 * an event says.
 */
#include "lib/ops/events/replay_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/grow.h"

enum { MAX_PLACES = 4096 };

/* ---- blocks ------------------------------------------------------------- */

/* A hash's own bytes are as good as random; but who publishes may be anybody. */
static size_t hash(int64_t publisher, const struct kvt_block_id *id)
{
	uint64_t h = UINT64_C(14695981039346656037) + (uint64_t)publisher;

	for (int i = 0; i < id->nbytes; i++)
		h = (h ^ id->bytes[i]) * UINT64_C(1099511628211);
	return (size_t)(h ^ h >> 32);
}

static struct kvt_cache_block **find_bucket(struct kvt_cache_block **bucket, size_t room,
					    int64_t publisher,
					    const struct kvt_block_id *id)
{
	size_t at = hash(publisher, id) & (room - 1);

	while (bucket[at] && (bucket[at]->publisher != publisher ||
			      !kvt_block_id_equal(&bucket[at]->id, id)))
		at = (at + 1) & (room - 1);
	return &bucket[at];
}

static bool make_room(struct kvt_cache_replay *r)
{
	size_t room = r->room ? 2 * r->room : 1024;
	struct kvt_cache_block **bucket, **all;

	if (2 * (r->nblocks + 1) <= r->room)
		return true;
	if (!(all = realloc(r->all, room / 2 * sizeof(struct kvt_cache_block *))))
		return false;
	r->all = all;
	if (!(bucket = calloc(room, sizeof(struct kvt_cache_block *))))
		return false;
	for (size_t i = 0; i < r->nblocks; i++)
		*find_bucket(bucket, room, all[i]->publisher, &all[i]->id) = all[i];
	free(r->bucket);
	r->bucket = bucket;
	r->room = room;
	return true;
}

struct kvt_cache_block *cache_block(struct kvt_cache_replay *r, int64_t publisher,
				    const struct kvt_block_id *id)
{
	struct kvt_cache_block **at, *block;

	if (!make_room(r))
		return NULL;
	at = find_bucket(r->bucket, r->room, publisher, id);
	if (*at)
		return *at;
	if (!(block = calloc(1, sizeof(*block))))
		return NULL;
	block->id = *id;
	block->publisher = publisher;
	block->index = r->nblocks;
	r->all[r->nblocks++] = *at = block;
	return block;
}

const struct kvt_cache_block *kvt_cache_replay_find(const struct kvt_cache_replay *r,
						    int64_t publisher,
						    const struct kvt_block_id *id)
{
	return r->room ? *find_bucket(r->bucket, r->room, publisher, id) : NULL;
}

const struct kvt_cache_block *kvt_cache_replay_at(const struct kvt_cache_replay *r,
						  size_t i)
{
	return i < r->nblocks ? r->all[i] : NULL;
}

struct kvt_cache_copy *cache_copy(struct kvt_cache_block *block, int64_t place)
{
	for (int i = 0; i < block->ncopies; i++)
		if (block->copy[i].place == place)
			return &block->copy[i];
	if (!KVT_GROW(&block->copy, block->ncopies))
		return NULL;
	block->copy[block->ncopies] = (struct kvt_cache_copy){ .place = place };
	return &block->copy[block->ncopies++];
}

bool kvt_cache_resident(const struct kvt_cache_replay *r,
			const struct kvt_cache_block *block, int64_t group)
{
	for (int i = 0; block && i < block->ncopies; i++)
		if (block->copy[i].copies > 0 &&
		    (group < 0 || r->place[block->copy[i].place].group == group))
			return true;
	return false;
}

/* ---- places ------------------------------------------------------------- */

static char *copy_text(const char *text)
{
	size_t n = strlen(text) + 1;
	char *copy = malloc(n);

	return copy ? memcpy(copy, text, n) : NULL;
}

static const char *medium_of(struct kvt_cache_replay *r, const char *medium)
{
	struct kvt_cache_totals *t = &r->totals;

	for (int i = 0; i < t->nmedia; i++)
		if (!strcmp(t->medium[i], medium))
			return t->medium[i];
	/* more than any engine has: the last one stands for the rest */
	if (t->nmedia == KVT_CACHE_MEDIA)
		return t->medium[KVT_CACHE_MEDIA - 1];
	if (!(medium = copy_text(medium)))
		return NULL;
	return t->medium[t->nmedia++] = medium;
}

static bool fill_place(struct kvt_cache_place *place, struct kvt_cache_replay *r,
		       const struct kvt_cache_event *event)
{
	*place = (struct kvt_cache_place){
		.publisher = r->now, .group = event->group, .rank = event->rank,
		.topic = r->publisher[r->now].topic,
		.medium = medium_of(r, event->medium), .owner = copy_text(event->owner),
		.kind = copy_text(event->kind_of_cache),
	};
	if (place->medium && place->owner && place->kind)
		return true;
	free((char *)place->owner);
	free((char *)place->kind);
	return false;
}

/* Removals do not say it: it comes with the first store. */
static bool with_kind(struct kvt_cache_place *place, const struct kvt_cache_event *event)
{
	char *kind;

	if (*place->kind || !*event->kind_of_cache)
		return true;
	if (!(kind = copy_text(event->kind_of_cache)))
		return false;
	free((char *)place->kind);
	place->kind = kind;
	return true;
}

int64_t cache_place(struct kvt_cache_replay *r, const struct kvt_cache_event *event)
{
	for (int64_t i = 0; i < r->nplaces; i++)
		if (r->place[i].publisher == r->now &&
		    r->place[i].group == event->group &&
		    !strcmp(r->place[i].medium, event->medium) &&
		    !strcmp(r->place[i].owner, event->owner))
			return with_kind(&r->place[i], event) ? i : -1;
	if (r->nplaces >= MAX_PLACES || !KVT_GROW(&r->place, r->nplaces) ||
	    !fill_place(&r->place[r->nplaces], r, event))
		return -1;
	return r->nplaces++;
}

int64_t cache_publisher(struct kvt_cache_replay *r, const struct kvt_cache_event *event)
{
	char *topic;

	for (int64_t i = 0; i < r->npublishers; i++)
		if (r->publisher[i].rank == event->rank &&
		    !strcmp(r->publisher[i].topic, event->topic))
			return i;
	if (r->npublishers >= MAX_PLACES || !(topic = copy_text(event->topic)))
		return -1;
	if (!KVT_GROW(&r->publisher, r->npublishers)) {
		free(topic);
		return -1;
	}
	r->publisher[r->npublishers] = (struct cache_publisher){
		.topic = topic, .rank = event->rank, .sequence = -1,
	};
	r->totals.publishers = ++r->npublishers;
	return r->npublishers - 1;
}

const struct kvt_cache_place *kvt_cache_replay_place(const struct kvt_cache_replay *r,
						     int64_t i)
{
	return i < r->nplaces ? &r->place[i] : NULL;
}

struct kvt_cache_text kvt_cache_place_text(const struct kvt_cache_replay *r,
					   int64_t place)
{
	const struct kvt_cache_place *p = &r->place[place];
	struct kvt_cache_text text;
	size_t n;

	snprintf(text.s, sizeof(text.s), "%.30s%s%.30s", *p->medium ? p->medium :
		 "no medium", *p->owner ? " of " : "", p->owner);
	n = strlen(text.s);
	if (p->group >= 0)
		snprintf(text.s + n, sizeof(text.s) - n, ", group %lld", LL(p->group));
	n = strlen(text.s);
	if (r->npublishers > 1)
		snprintf(text.s + n, sizeof(text.s) - n, ", rank %lld%s%.40s",
			 LL(p->rank), *p->topic ? " of " : "", p->topic);
	return text;
}

void cache_free(struct kvt_cache_replay *r)
{
	for (size_t i = 0; i < r->nblocks; i++) {
		free(r->all[i]->copy);
		free(r->all[i]);
	}
	for (int64_t i = 0; i < r->nplaces; i++) {
		free((char *)r->place[i].owner);
		free((char *)r->place[i].kind);
	}
	for (int64_t i = 0; i < r->npublishers; i++)
		free(r->publisher[i].topic);
	for (int i = 0; i < r->totals.nmedia; i++)
		free((char *)r->totals.medium[i]);
	free(r->bucket);
	free(r->all);
	free(r->place);
	free(r->publisher);
}
