/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunks.c - chunks become blocks and requests
 *
 * In: chunks in any order, each with a hash, a place in a file and a number of tokens.
 * They are sorted into runs, one an id; a list of the user's, or what chunks say that
 * they follow (chains.c), makes requests of runs, else each run is one; runs get blocks
 * in the order of requests, so that what is read together lies together; tables and
 * parts follow.  Only the last chunk of a request may leave its last block unfilled.
 * Time: n log n in chunks.
 *
 * Where a chunk has no header a file that was cut looks like one of fewer tokens, with
 * other values.  A store makes all chunks of a request but its last of one size, so a
 * shorter one is refused inside a request, and told of elsewhere.
 */
#include "formats/store/chunks.h"

#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"
#include "formats/store/chains.h"
#include "formats/store/pages.h"
#include "lib/base/grow.h"

enum { MAX_LIST = 64 << 20 };		/* bytes */

enum kvt_status kvt_chunks_add(struct kvt_chunks *c, const struct kvt_chunk *chunk,
			       struct kvt_error *err)
{
	int64_t n = c->count;

	if (!KVT_GROW(&c->chunk, n))
		return kvt_no_memory(err, c->where);
	c->chunk[c->count++] = *chunk;
	return KVT_OK;
}

void kvt_chunks_free(struct kvt_chunks *c)
{
	free(c->chunk);
	free(c->run);
	*c = (struct kvt_chunks){ 0 };
}

static const struct kvt_chunk *longest_of(const struct kvt_chunks *c)
{
	const struct kvt_chunk *longest = &c->chunk[0];

	for (int64_t i = 1; i < c->count; i++)
		if (c->chunk[i].tokens > longest->tokens)
			longest = &c->chunk[i];
	return longest;
}

/* ---- runs ---------------------------------------------------------------- */

static int compare(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

/* Of one that comes twice, the first in the order of files. */
static int by_id(const void *a, const void *b)
{
	const struct kvt_chunk *x = a, *y = b;
	int order = strcmp(x->id, y->id);

	order = order ? order : compare(x->layer, y->layer);
	order = order ? order : compare(x->file, y->file);
	return order ? order : compare(x->offset, y->offset);
}

static enum kvt_status check_run(const struct kvt_chunks *c,
				 const struct kvt_chunk_run *run, struct kvt_error *err)
{
	const struct kvt_chunk *first = &c->chunk[run->first];

	for (int64_t i = 0; i < run->count; i++) {
		const struct kvt_chunk *chunk = &first[i];
		int64_t expected = first->layer < 0 ? -1 : i;

		if (i && chunk->layer == chunk[-1].layer)
			return kvt_fail(err, KVT_BAD_INPUT, "%s: has chunk %.80s twice",
					c->where, chunk->id);
		if (chunk->layer != expected)
			return kvt_fail(
				err, KVT_BAD_INPUT,
				"%s: chunk %.80s has layer %lld, expected layer %lld",
				c->where, chunk->id, LL(chunk->layer), LL(expected));
		if (chunk->tokens != first->tokens)
			return kvt_fail(
				err, KVT_BAD_INPUT,
				"%s: chunk %.80s has %lld tokens in layer %lld, %lld in the first",
				c->where, chunk->id, LL(chunk->tokens), LL(chunk->layer),
				LL(first->tokens));
	}
	if (run->count != c->run[0].count ||
	    (first->layer < 0) != (c->chunk[0].layer < 0))
		return kvt_fail(
			err, KVT_BAD_INPUT,
			"%s: chunk %.80s has %lld files of layers, chunk %.80s %lld",
			c->where, c->chunk[0].id,
			LL(c->chunk[0].layer < 0 ? 0 : c->run[0].count), first->id,
			LL(first->layer < 0 ? 0 : run->count));
	return KVT_OK;
}

enum kvt_status kvt_chunks_sort(struct kvt_chunks *c, int64_t *layers,
				struct kvt_error *err)
{
	enum kvt_status status;

	if (!c->count)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: holds no chunk", c->where);
	qsort(c->chunk, (size_t)c->count, sizeof(*c->chunk), by_id);
	if (!(c->run = calloc((size_t)c->count, sizeof(*c->run))))
		return kvt_no_memory(err, c->where);
	for (int64_t i = 0; i < c->count; i++) {
		if (!i || strcmp(c->chunk[i].id, c->chunk[i - 1].id))
			c->run[c->nruns++] = (struct kvt_chunk_run){ i, 0, -1 };
		if (!c->again || !c->run[c->nruns - 1].count)
			c->run[c->nruns - 1].count++;
	}
	for (int64_t i = 0; i < c->nruns; i++)
		if ((status = check_run(c, &c->run[i], err)))
			return status;
	*layers = c->chunk[0].layer < 0 ? -1 : c->run[0].count;
	return KVT_OK;
}

/* ---- requests: which chunks follow each other ----------------------------- */

static void order_free(struct kvt_chains *order)
{
	free(order->chain);
	free(order->runs);
	free(order->text);
	kvt_named_free(&order->named);
	*order = (struct kvt_chains){ 0 };
}

static enum kvt_status each_alone(struct kvt_chains *order, const struct kvt_chunks *c,
				  struct kvt_error *err)
{
	enum kvt_status status = kvt_chains_reserve(order, c->nruns, c->nruns, c->where,
						    err);

	for (int64_t i = 0; !status && i < c->nruns; i++) {
		order->runs[i] = i;
		order->chain[order->count++] = (struct kvt_chain){
			c->chunk[c->run[i].first].id, 1, &order->runs[i], 0 };
	}
	return status;
}

static char *next_word(char **rest)
{
	char *word = *rest + strspn(*rest, " \t\r"), *end;

	if (!*word)
		return NULL;
	end = word + strcspn(word, " \t\r");
	*rest = *end ? end + 1 : end;
	*end = '\0';
	return word;
}

static int64_t count_words(const char *s)
{
	int64_t n = 0;

	for (s += strspn(s, " \t\r\n"); *s; s += strspn(s, " \t\r\n")) {
		n++;
		s += strcspn(s, " \t\r\n");
	}
	return n;
}

static int64_t count_lines(const char *s)
{
	int64_t n = 1;

	while ((s = strchr(s, '\n'))) {
		n++;
		s++;
	}
	return n;
}

static enum kvt_status take_line(struct kvt_chains *order, int64_t *used, char *line,
				 int64_t number, const struct kvt_chunks *c,
				 const char *path, struct kvt_error *err)
{
	struct kvt_chain *chain = &order->chain[order->count];
	char *word = next_word(&line);

	if (!word || *word == '#')
		return KVT_OK;
	*chain = (struct kvt_chain){ word, 0, &order->runs[*used], 0 };
	while ((word = next_word(&line))) {
		const struct kvt_chunk_run *found = kvt_chunks_find(c, word);

		if (!found)
			return kvt_fail(
				err, KVT_BAD_INPUT,
				"%s:%lld: chunk %.80s of request %.80s is not in %s",
				path, LL(number), word, chain->request, c->where);
		chain->run[chain->count++] = found - c->run;
	}
	if (!chain->count)
		return kvt_fail(err, KVT_BAD_INPUT, "%s:%lld: request %.80s has no chunk",
				path, LL(number), chain->request);
	*used += chain->count;
	order->count++;
	return KVT_OK;
}

static int by_request(const void *a, const void *b)
{
	const struct kvt_chain *x = *(const struct kvt_chain *const *)a;
	const struct kvt_chain *y = *(const struct kvt_chain *const *)b;

	return strcmp(x->request, y->request);
}

static enum kvt_status check_names(const struct kvt_chains *order, const char *path,
				   struct kvt_error *err)
{
	const struct kvt_chain **by_name;
	enum kvt_status status = KVT_OK;

	if (!order->count)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: names no request", path);
	if (!(by_name = calloc((size_t)order->count, sizeof(*by_name))))
		return kvt_no_memory(err, path);
	for (int64_t i = 0; i < order->count; i++)
		by_name[i] = &order->chain[i];
	qsort(by_name, (size_t)order->count, sizeof(*by_name), by_request);
	for (int64_t i = 1; !status && i < order->count; i++)
		if (!strcmp(by_name[i]->request, by_name[i - 1]->request))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: request %.80s is listed twice", path,
					  by_name[i]->request);
	free(by_name);
	return status;
}

static enum kvt_status take_lists(struct kvt_chains *order, const struct kvt_chunks *c,
				  const char *path, struct kvt_error *err)
{
	int64_t used = 0, number = 0;
	char *line = order->text, *end;
	enum kvt_status status = kvt_chains_reserve(order, count_lines(line),
						    count_words(line), path, err);

	for (; !status && line; line = end) {
		if ((end = strchr(line, '\n')))
			*end++ = '\0';
		status = take_line(order, &used, line, ++number, c, path, err);
	}
	return status ? status : check_names(order, path, err);
}

/*
 * From the file that the user named, by what they follow, or each by itself.  Lines are
 * REQUEST CHUNK..., blank ones and those that begin with # count nothing.  A
 * chunk that is not there, and a request that comes twice, are KVT_BAD_INPUT.
 */
static enum kvt_status order_load(struct kvt_chains *out, struct kvt_reader *reader,
				  struct kvt_chunks *c,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	const char *path = kvt_fact(hints, KVT_CHUNKS_ORDER);
	enum kvt_status status;
	size_t nbytes;

	*out = (struct kvt_chains){ .listed = path || hints->prompts.n ||
						      kvt_chains_known(c) };
	if (hints->prompts.n && path)
		return kvt_fail(err, KVT_USAGE,
				"%s: --prompt and --set=order both say which chunks follow each other",
				c->where);
	if (hints->prompts.n)
		return kvt_chains_of_prompts(out, reader, c, hints, err);
	if (!path)
		return kvt_chains_known(c) ? kvt_chains_order(out, c, hints, err) :
					     each_alone(out, c, err);
	if ((status = kvt_tree_text(&out->text, &nbytes, &reader->files, path, MAX_LIST,
				    err)))
		return status;
	if (strlen(out->text) != nbytes)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: holds a NUL character", path);
	return take_lists(out, c, path, err);
}

/* ---- blocks -------------------------------------------------------------- */

static int64_t blocks_of(int64_t tokens, int64_t block_size)
{
	return tokens / block_size + (tokens % block_size != 0);
}

/* A name for every block, if chunks are blocks. */
static enum kvt_status name_blocks(struct kvt_group *group, const struct kvt_chunks *c,
				   struct kvt_error *err)
{
	int64_t used = 0;

	for (int64_t i = 0; i < c->nruns; i++)
		used += c->run[i].block >= 0;
	if (used != group->shape.n[KVT_AXIS_B])
		return KVT_OK;
	group->block_names = calloc((size_t)used + 1, sizeof(char *));
	if (!group->block_names)
		return kvt_no_memory(err, c->where);
	for (int64_t i = 0; i < c->nruns; i++) {
		const struct kvt_chunk_run *run = &c->run[i];

		if (run->block < 0)
			continue;
		group->block_names[run->block] = strdup(c->chunk[run->first].id);
		if (!group->block_names[run->block])
			return kvt_no_memory(err, c->where);
	}
	return KVT_OK;
}

static enum kvt_status place_run(struct kvt_reader *reader, const struct kvt_chunks *c,
				 const struct kvt_chunk_run *run, struct kvt_error *err)
{
	const enum kvt_axis of = c->halves ? KVT_AXIS_K : KVT_AXIS_L;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; i < run->count; i++) {
		const struct kvt_chunk *chunk = &c->chunk[run->first + i];
		int64_t offset = chunk->offset, nbytes;

		for (int g = 0; g < reader->leaf.snapshot.ngroups; g++) {
			const struct kvt_group *group = &reader->leaf.snapshot.group[g];
			struct kvt_box box = kvt_box_whole(&group->shape);
			struct kvt_group part = *group;

			if (chunk->layer >= 0) {
				box.begin[of] = chunk->layer;
				box.end[of] = chunk->layer + 1;
				part.shape.n[of] = 1;
			}
			box.begin[KVT_AXIS_B] = run->block;
			if ((status = kvt_pages_place_tokens(reader, g, chunk->file, &box,
							     chunk->tokens, offset,
							     err)) ||
			    (status = kvt_pages_token_bytes(&nbytes, &part, chunk->tokens,
							    err)))
				return status;
			offset += nbytes;
		}
	}
	return KVT_OK;
}

static enum kvt_status size_groups(struct kvt_reader *reader, struct kvt_chunks *c,
				   int64_t nblocks, int64_t block_size,
				   struct kvt_error *err)
{
	enum kvt_status status;

	if (nblocks > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: has %lld blocks, too many",
				c->where, LL(nblocks));
	for (int g = 0; g < reader->leaf.snapshot.ngroups; g++) {
		struct kvt_group *group = &reader->leaf.snapshot.group[g];

		group->shape.n[KVT_AXIS_S] = group->block_size = block_size;
		group->shape.n[KVT_AXIS_B] = nblocks;
		if ((status = name_blocks(group, c, err)))
			return status;
	}
	return KVT_OK;
}

/* ---- requests ------------------------------------------------------------ */

static enum kvt_status set_tables(struct kvt_reader *reader, struct kvt_request *request,
				  const struct kvt_chunks *c,
				  const struct kvt_chain *chain, int64_t block_size,
				  struct kvt_error *err)
{
	for (int g = 0; g < reader->leaf.snapshot.ngroups; g++) {
		int64_t n = blocks_of(request->ntokens, block_size), at = 0;
		uint32_t *table = calloc((size_t)n + 1, sizeof(*table));

		request->blocks[g] = table;
		request->nblocks[g] = n;
		if (!table)
			return kvt_no_memory(err, c->where);
		for (int64_t i = 0; i < chain->count; i++) {
			const struct kvt_chunk_run *run = &c->run[chain->run[i]];
			int64_t tokens = c->chunk[run->first].tokens;

			for (int64_t b = 0; b < blocks_of(tokens, block_size); b++)
				table[at++] = (uint32_t)(run->block + b);
		}
	}
	return KVT_OK;
}

/* The ids of all its tokens, if all chunks have them. */
static enum kvt_status set_ids(struct kvt_request *request, const struct kvt_chunks *c,
			       const struct kvt_chain *chain, struct kvt_error *err)
{
	for (int64_t i = 0; i < chain->count; i++)
		if (!c->chunk[c->run[chain->run[i]].first].ids)
			return KVT_OK;
	request->token_ids = calloc((size_t)request->ntokens + 1,
				    sizeof(*request->token_ids));
	if (!request->token_ids)
		return kvt_no_memory(err, c->where);
	for (int64_t i = 0; i < chain->count; i++) {
		const struct kvt_chunk *chunk = &c->chunk[c->run[chain->run[i]].first];

		memcpy(request->token_ids + request->ntoken_ids, chunk->ids,
		       (size_t)chunk->tokens * sizeof(*chunk->ids));
		request->ntoken_ids += chunk->tokens;
	}
	return KVT_OK;
}

/*
 * What a list says of a chunk: one that is no last one is full.  'last': of its request.
 */
static enum kvt_status check_listed(const struct kvt_chunks *c,
				    const struct kvt_chunk *chunk, const char *request,
				    bool last, int64_t block_size, struct kvt_error *err)
{
	if (!chunk->tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: chunk %.80s of request %.80s is empty", c->where,
				chunk->id, request);
	if (last)
		return KVT_OK;
	if (c->bare && chunk->tokens < c->full)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: chunk %.80s inside request %.80s has %lld tokens, expected %lld: its file was cut, or the list is wrong",
				c->where, chunk->id, request, LL(chunk->tokens),
				LL(c->full));
	if (chunk->tokens % block_size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: chunk %.80s inside request %.80s has %lld tokens, not a multiple of --block-size=%lld",
				c->where, chunk->id, request, LL(chunk->tokens),
				LL(block_size));
	return KVT_OK;
}

static enum kvt_status add_request(struct kvt_reader *reader, const struct kvt_chunks *c,
				   const struct kvt_chain *chain, bool listed,
				   int64_t block_size, struct kvt_error *err)
{
	struct kvt_snapshot *s = &reader->leaf.snapshot;
	struct kvt_request *request = &s->request[s->nrequests];
	enum kvt_status status;

	for (int64_t i = 0; i < chain->count; i++) {
		const struct kvt_chunk *chunk = &c->chunk[c->run[chain->run[i]].first];

		if (listed && (status = check_listed(c, chunk, chain->request,
						     i + 1 == chain->count, block_size,
						     err)))
			return status;
		if (__builtin_add_overflow(request->ntokens, chunk->tokens,
					   &request->ntokens))
			return kvt_fail(err, KVT_BAD_INPUT, "%s: too many tokens",
					c->where);
	}
	s->nrequests++;
	request->first_token = chain->first;
	if (!(request->id = strdup(chain->request)))
		return kvt_no_memory(err, c->where);
	if ((status = set_ids(request, c, chain, err)))
		return status;
	return set_tables(reader, request, c, chain, block_size, err);
}

/* In the order of requests, so that what is read together lies together. */
static void number_run(struct kvt_chunks *c, struct kvt_chunk_run *run, int64_t *next,
		       int64_t block_size)
{
	/* one without tokens has no blocks */
	if (run->block >= 0 || !c->chunk[run->first].tokens)
		return;
	run->block = *next;
	*next += blocks_of(c->chunk[run->first].tokens, block_size);
}

static int64_t number_blocks(struct kvt_chunks *c, const struct kvt_chains *order,
			     int64_t block_size)
{
	int64_t next = 0;

	for (int64_t r = 0; r < order->count; r++)
		for (int64_t i = 0; i < order->chain[r].count; i++)
			number_run(c, &c->run[order->chain[r].run[i]], &next, block_size);
	/* those of no request, where it is known which are of one */
	for (int64_t i = 0; (c->nlost || order->named.unit) && i < c->nruns; i++)
		number_run(c, &c->run[i], &next, block_size);
	return next;
}

static enum kvt_status place(struct kvt_reader *reader, struct kvt_chunks *c,
			     const struct kvt_chains *order,
			     const struct kvt_hints *hints, struct kvt_error *err)
{
	int64_t block_size = hints->block_size > 0 ? hints->block_size :
			     longest_of(c)->tokens;
	enum kvt_status status;

	if (longest_of(c)->tokens < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: none of its %lld chunks holds a token: all are empty", c->where, LL(c->nruns));
	if ((status = size_groups(reader, c, number_blocks(c, order, block_size),
				  block_size, err)))
		return status;
	reader->leaf.snapshot.request = calloc((size_t)order->count + 1,
					  sizeof(*reader->leaf.snapshot.request));
	if (!reader->leaf.snapshot.request)
		return kvt_no_memory(err, c->where);
	for (int64_t r = 0; !status && r < order->count; r++)
		status = add_request(reader, c, &order->chain[r], order->listed,
				     block_size, err);
	for (int64_t i = 0; !status && !c->elsewhere && i < c->nruns; i++)
		if (c->run[i].block >= 0)
			status = place_run(reader, c, &c->run[i], err);
	return status;
}

/* ---- lengths -------------------------------------------------------------- */

/* How long one is that is not the last of its request: as said, or the longest. */
static enum kvt_status find_full(struct kvt_chunks *c, const struct kvt_hints *hints,
				 struct kvt_error *err)
{
	const struct kvt_chunk *longest = longest_of(c);
	enum kvt_status status = kvt_fact_int(&c->full, hints, KVT_CHUNKS_SIZE, 1,
					      INT32_MAX, err);

	if (status)
		return status;
	if (c->full && longest->tokens > c->full)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: chunk %.80s has %lld tokens, but --set=chunk-size says %lld",
				c->where, longest->id, LL(longest->tokens), LL(c->full));
	if (!c->full)
		c->full = longest->tokens;
	return KVT_OK;
}

static enum kvt_status check_lengths(const struct kvt_chunks *c,
				     const struct kvt_hints *hints, struct kvt_error *err)
{
	int64_t full = hints->block_size > c->full ? hints->block_size : c->full;
	/* a list alone may know better: it names the last ones */
	bool whole = c->whole && (kvt_fact(hints, KVT_CHUNKS_SIZE) ||
				  !kvt_fact(hints, KVT_CHUNKS_ORDER));

	for (int64_t i = 0; i < c->nruns; i++) {
		const struct kvt_chunk *chunk = &c->chunk[c->run[i].first];

		if (!chunk->tokens) {
			kvt_tell(hints, "file.empty", "%.200s is empty", chunk->id);
			continue;
		}
		if (whole && chunk->tokens < c->full)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: chunk %.80s has %lld tokens, expected %lld: %s",
					c->where, chunk->id, LL(chunk->tokens),
					LL(c->full), c->whole);
		if (c->bare && chunk->tokens < full)
			kvt_tell(hints, "file.short",
				 "%.200s has %lld tokens, a whole one %lld: it is the last of its request, or was cut",
				 chunk->id, LL(chunk->tokens), LL(full));
	}
	return KVT_OK;
}

enum kvt_status kvt_chunks_place(struct kvt_reader *reader, struct kvt_chunks *c,
				 const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_chains order = { .count = 0 };
	enum kvt_status status;

	if (!(status = find_full(c, hints, err)) &&
	    !(status = check_lengths(c, hints, err)) &&
	    !(status = order_load(&order, reader, c, hints, err)))
		status = place(reader, c, &order, hints, err);
	order_free(&order);
	/* a list says what there should be */
	if (kvt_fact(hints, KVT_CHUNKS_ORDER))
		reader->leaf.unlisted = false;
	return status;
}
