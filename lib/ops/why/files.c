/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - is what events tell to be stored in files there?
 *
 * Of blocks that are in a medium of files when the recording ends, each hash is looked up
 * among the names of the tree.  Of several blocks in a file only the last one names it.
 */
#include "lib/ops/why/files.h"

#include <stdio.h>
#include <stdlib.h>

/* vLLM's tiers, llm-d's, SGLang's; GPU and CPU memory are no files. */
static const char *const media[] = {
	"STORAGE", "FS", "OBJ", "SHARED_STORAGE", "DISK", "EXTERNAL",
};

static bool is_file(const char *name, const char *medium)
{
	if (medium)
		return !strcmp(name, medium);
	for (size_t i = 0; i < sizeof(media) / sizeof(media[0]); i++)
		if (!strcmp(name, media[i]))
			return true;
	return false;
}

enum { UNKNOWN, IN_FILE, MISSING, IN_CHUNK };

struct look {
	const char *medium;
	kvt_why_file_fn *has;
	void *context;
	struct kvt_cache_replay *replay;
	uint8_t *state;			/* by kvt_cache_block.index, of one place */
};

static const struct kvt_cache_copy *copy_in(const struct kvt_cache_block *block,
					    int64_t place)
{
	for (int i = 0; block && i < block->ncopies; i++)
		if (block->copy[i].place == place && block->copy[i].copies > 0)
			return &block->copy[i];
	return NULL;
}

static void ask(const struct look *l, int64_t place, struct kvt_why_files *out)
{
	const struct kvt_cache_place *p = kvt_cache_replay_place(l->replay, place);
	const struct kvt_cache_block *block;

	for (size_t i = 0; (block = kvt_cache_replay_at(l->replay, i)); i++) {
		l->state[i] = UNKNOWN;
		if (!copy_in(block, place))
			continue;
		out->told++;
		l->state[i] = MISSING;
		if (l->has(l->context, &block->id, p->group))
			l->state[i] = IN_FILE;
		out->found += l->state[i] == IN_FILE;
	}
}

/* Those before a block that has a file, of the same event, are parts of its chunk. */
static void find_chunks(const struct look *l, int64_t place)
{
	const struct kvt_cache_block *block;

	for (size_t i = 0; (block = kvt_cache_replay_at(l->replay, i)); i++) {
		const struct kvt_cache_copy *copy = copy_in(block, place), *before;
		int64_t event = copy ? copy->stored : 0;

		if (!copy || l->state[i] != IN_FILE)
			continue;
		while (copy->chained && copy->parent &&
		       l->state[copy->parent->index] == MISSING &&
		       (before = copy_in(copy->parent, place)) &&
		       before->stored == event) {
			l->state[copy->parent->index] = IN_CHUNK;
			copy = before;
		}
	}
}

static void tell(const struct look *l, int64_t place)
{
	struct kvt_cache_text here = kvt_cache_place_text(l->replay, place);
	const struct kvt_cache_block *block;
	char text[400];

	for (size_t i = 0; (block = kvt_cache_replay_at(l->replay, i)); i++) {
		bool chunk = l->state[i] == IN_CHUNK;

		if (l->state[i] != MISSING && !chunk)
			continue;
		snprintf(text, sizeof(text), "told to be in %s, and %s", here.s, chunk ?
			 "only a later hash of that event has a file: a prompt that parts inside that chunk finds nothing" :
			 "no file is named so");
		kvt_cache_replay_tell(l->replay, &(struct kvt_cache_finding){
			chunk ? KVT_CACHE_NOT_ALONE : KVT_CACHE_NO_FILE,
			copy_in(block, place)->stored, 0, -1, 0, &block->id, text });
	}
}

enum kvt_status kvt_why_files(struct kvt_why_files *out, struct kvt_cache_replay *replay,
			      const char *medium, kvt_why_file_fn *has, void *context,
			      struct kvt_error *err)
{
	struct look l = { medium, has, context, replay, NULL };
	const struct kvt_cache_place *place;
	size_t n = 0;

	*out = (struct kvt_why_files){ 0 };
	while (kvt_cache_replay_at(replay, n))
		n++;
	if (!(l.state = malloc(n + 1)))
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; (place = kvt_cache_replay_place(replay, i)); i++) {
		if (!is_file(place->medium, medium))
			continue;
		ask(&l, i, out);
		find_chunks(&l, i);
		tell(&l, i);
	}
	free(l.state);
	return KVT_OK;
}
