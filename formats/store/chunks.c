/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.c - chunks become blocks and requests */
#include "formats/store/chunks.h"

#include <stdlib.h>
#include <string.h>

#include "formats/store/chunk_order.h"
#include "formats/store/pages.h"

#define LL(x) ((long long)(x))

static enum kvt_status no_memory(const struct kvt_chunks *c, struct kvt_error *err)
{
	return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", c->where);
}

enum kvt_status kvt_chunks_add(struct kvt_chunks *c, const struct kvt_chunk *chunk,
			       struct kvt_error *err)
{
	int64_t n = c->count;

	/* full whenever the count is a power of two */
	if (!(n & (n - 1))) {
		struct kvt_chunk *more = realloc(c->chunk,
						 (size_t)(n ? 2 * n : 1) * sizeof(*more));

		if (!more)
			return no_memory(c, err);
		c->chunk = more;
	}
	c->chunk[c->count++] = *chunk;
	return KVT_OK;
}

void kvt_chunks_free(struct kvt_chunks *c)
{
	free(c->chunk);
	free(c->run);
	*c = (struct kvt_chunks){ 0 };
}

const struct kvt_chunk *kvt_chunks_longest(const struct kvt_chunks *c)
{
	const struct kvt_chunk *longest = &c->chunk[0];

	for (int64_t i = 1; i < c->count; i++)
		if (c->chunk[i].tokens > longest->tokens)
			longest = &c->chunk[i];
	return longest;
}

/* ---- runs ---------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
	const struct kvt_chunk *x = a, *y = b;
	int order = strcmp(x->id, y->id);

	return order ? order : x->layer < y->layer ? -1 : x->layer > y->layer;
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
			"%s: chunk %.80s has %lld layers by themselves, chunk %.80s %lld",
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
		return no_memory(c, err);
	for (int64_t i = 0; i < c->count; i++) {
		if (!i || strcmp(c->chunk[i].id, c->chunk[i - 1].id))
			c->run[c->nruns++] = (struct kvt_chunk_run){ i, 0, -1 };
		c->run[c->nruns - 1].count++;
	}
	for (int64_t i = 0; i < c->nruns; i++)
		if ((status = check_run(c, &c->run[i], err)))
			return status;
	*layers = c->chunk[0].layer < 0 ? -1 : c->run[0].count;
	return KVT_OK;
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
	int64_t wanted = 0;

	for (int64_t i = 0; i < c->nruns; i++)
		wanted += c->run[i].block >= 0;
	if (wanted != group->shape.n[KVT_AXIS_B])
		return KVT_OK;
	group->block_names = calloc((size_t)wanted + 1, sizeof(char *));
	if (!group->block_names)
		return no_memory(c, err);
	for (int64_t i = 0; i < c->nruns; i++) {
		const struct kvt_chunk_run *run = &c->run[i];

		if (run->block < 0)
			continue;
		group->block_names[run->block] = strdup(c->chunk[run->first].id);
		if (!group->block_names[run->block])
			return no_memory(c, err);
	}
	return KVT_OK;
}

static enum kvt_status place_run(struct kvt_dump *reader, const struct kvt_chunks *c,
				 const struct kvt_chunk_run *run, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; i < run->count; i++) {
		const struct kvt_chunk *chunk = &c->chunk[run->first + i];
		int64_t offset = chunk->offset, nbytes;

		for (int g = 0; g < reader->snapshot.ngroups; g++) {
			const struct kvt_group *group = &reader->snapshot.group[g];
			struct kvt_box box = kvt_box_whole(&group->shape);
			struct kvt_group part = *group;

			if (chunk->layer >= 0) {
				box.begin[KVT_AXIS_L] = chunk->layer;
				box.end[KVT_AXIS_L] = chunk->layer + 1;
				part.shape.n[KVT_AXIS_L] = 1;
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

static enum kvt_status size_groups(struct kvt_dump *reader, struct kvt_chunks *c,
				   int64_t nblocks, int64_t block_size,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	enum kvt_status status;

	if (nblocks > UINT32_MAX)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: has %lld blocks, too many",
				c->where, LL(nblocks));
	for (int g = 0; g < reader->snapshot.ngroups; g++) {
		struct kvt_group *group = &reader->snapshot.group[g];

		group->shape.n[KVT_AXIS_S] = group->block_size = block_size;
		if ((status = kvt_pages_count(group, KVT_AXIS_B, nblocks, hints, c->where,
					      err)) ||
		    (status = name_blocks(group, c, err)))
			return status;
	}
	return KVT_OK;
}

/* ---- requests ------------------------------------------------------------ */

static enum kvt_status set_tables(struct kvt_dump *reader, struct kvt_request *request,
				  const struct kvt_chunks *c,
				  const struct kvt_chunk_list *list, int64_t block_size,
				  struct kvt_error *err)
{
	for (int g = 0; g < reader->snapshot.ngroups; g++) {
		int64_t n = blocks_of(request->ntokens, block_size), at = 0;
		uint32_t *table = calloc((size_t)n + 1, sizeof(*table));

		request->blocks[g] = table;
		request->nblocks[g] = n;
		if (!table)
			return no_memory(c, err);
		for (int64_t i = 0; i < list->count; i++) {
			const struct kvt_chunk_run *run = &c->run[list->run[i]];
			int64_t tokens = c->chunk[run->first].tokens;

			for (int64_t b = 0; b < blocks_of(tokens, block_size); b++)
				table[at++] = (uint32_t)(run->block + b);
		}
	}
	return KVT_OK;
}

/* All but the last chunk of a request fill their blocks. */
static enum kvt_status add_request(struct kvt_dump *reader, const struct kvt_chunks *c,
				   const struct kvt_chunk_list *list, int64_t block_size,
				   struct kvt_error *err)
{
	struct kvt_snapshot *s = &reader->snapshot;
	struct kvt_request *request = &s->request[s->nrequests];

	for (int64_t i = 0; i < list->count; i++) {
		const struct kvt_chunk *chunk = &c->chunk[c->run[list->run[i]].first];

		if (i + 1 < list->count && chunk->tokens % block_size)
			return kvt_fail(
				err, KVT_BAD_INPUT,
				"%s: chunk %.80s inside request %.80s has %lld tokens, no multiple of --block-size %lld",
				c->where, chunk->id, list->request, LL(chunk->tokens),
				LL(block_size));
		if (__builtin_add_overflow(request->ntokens, chunk->tokens,
					   &request->ntokens))
			return kvt_fail(err, KVT_BAD_INPUT, "%s: too many tokens",
					c->where);
	}
	s->nrequests++;
	if (!(request->id = strdup(list->request)))
		return no_memory(c, err);
	return set_tables(reader, request, c, list, block_size, err);
}

/* In the order of requests, so that what is read together lies together. */
static int64_t number_blocks(struct kvt_chunks *c, const struct kvt_chunk_order *order,
			     int64_t block_size)
{
	int64_t next = 0;

	for (int64_t r = 0; r < order->count; r++)
		for (int64_t i = 0; i < order->list[r].count; i++) {
			struct kvt_chunk_run *run = &c->run[order->list[r].run[i]];

			if (run->block >= 0)
				continue;
			run->block = next;
			next += blocks_of(c->chunk[run->first].tokens, block_size);
		}
	return next;
}

static enum kvt_status place(struct kvt_dump *reader, struct kvt_chunks *c,
			     const struct kvt_chunk_order *order,
			     const struct kvt_hints *hints, struct kvt_error *err)
{
	int64_t block_size = hints->block_size > 0 ? hints->block_size :
			     kvt_chunks_longest(c)->tokens;
	enum kvt_status status;

	if (kvt_chunks_longest(c)->tokens < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: none of its %lld chunks holds a token", c->where,
				LL(c->nruns));
	if ((status = size_groups(reader, c, number_blocks(c, order, block_size),
				  block_size, hints, err)))
		return status;
	reader->snapshot.request = calloc((size_t)order->count + 1,
					  sizeof(*reader->snapshot.request));
	if (!reader->snapshot.request)
		return no_memory(c, err);
	for (int64_t r = 0; !status && r < order->count; r++)
		status = add_request(reader, c, &order->list[r], block_size, err);
	for (int64_t i = 0; !status && i < c->nruns; i++)
		if (c->run[i].block >= 0)
			status = place_run(reader, c, &c->run[i], err);
	return status;
}

enum kvt_status kvt_chunks_place(struct kvt_dump *reader, struct kvt_chunks *c,
				 const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_chunk_order order;
	enum kvt_status status = kvt_chunk_order_load(&order, reader, c, hints, err);

	if (!status)
		status = place(reader, c, &order, hints, err);
	kvt_chunk_order_free(&order);
	return status;
}
