/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c - cells of a llama.cpp cache as blocks of tokens
 *
 * A token's slot follows from its position: what a sequence lacks leaves a hole.
 * Entries of which nothing is there are the null block; entries that are the same
 * cells in several sequences are one block.
 */
#include "formats/llama/llama.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* Tokens of one entry of a table. */
struct entry {
	const struct kvt_llama_member *member;
	int64_t count;
	int64_t slot;			/* of the first of them */
};

/* A block that others may have, too; those of one first cell are a chain. */
struct kvt_llama_shared {
	struct entry entry;
	uint32_t block;
	int64_t next;			/* -1: none */
};

enum kvt_status kvt_llama_no_memory(const struct kvt_llama_opening *o)
{
	return kvt_no_memory(o->err, o->reader->leaf.path);
}

/* ---- rows --------------------------------------------------------------- */

/* The first elements of all pairs are one half of a key, the second ones the other. */
static enum kvt_status add_pairs(struct kvt_llama_opening *o, int g,
				 struct kvt_token_run run)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	int64_t dim = group->shape.n[KVT_AXIS_D], step = run.stride[KVT_AXIS_D];
	enum kvt_status status = KVT_OK;

	run.stride[KVT_AXIS_D] = 2 * step;
	for (int half = 0; !status && half < 2; half++, run.offset += step) {
		run.dim[0] = half * (dim / 2);
		run.dim[1] = run.dim[0] + dim / 2;
		status = kvt_token_run_add(&o->reader->flat[g], group, &run, o->err);
	}
	return status;
}

/* One run of neighbours, of keys, values or both, in layers at equal distances. */
static enum kvt_status add_rows(struct kvt_llama_opening *o, int g, int kv,
				const struct kvt_llama_member *m,
				struct kvt_token_run run, int64_t at)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	const struct kvt_llama_cache *cache = &o->state.cache[o->part[g].cache];
	const struct kvt_llama_stream *s = &cache->stream[m->stream];
	const struct kvt_llama_rows *rows = kvt_llama_rows_of(cache, s, kv,
							      o->part[g].first);
	int64_t elem = group->shape.elem;

	run.file = o->file;
	run.stride[KVT_AXIS_S] = rows->elem ? rows->elem : rows->nbytes;
	run.stride[KVT_AXIS_D] = rows->elem ? rows->elem * s->ncells : elem;
	run.stride[KVT_AXIS_H] = run.stride[KVT_AXIS_D] * group->shape.n[KVT_AXIS_D];
	run.offset = at + (int64_t)m->cell * run.stride[KVT_AXIS_S];
	run.kv[0] = group->shape.n[KVT_AXIS_K] == 2 ? kv : 0;
	run.kv[1] = run.kv[0] + 1;
	if (kv || !o->pairs)
		return kvt_token_run_add(&o->reader->flat[g], group, &run, o->err);
	return add_pairs(o, g, run);
}

/* The layers of the group, of which others of the cache may lie between. */
static enum kvt_status add_layers(struct kvt_llama_opening *o, int g, int kv,
				  const struct kvt_llama_member *m,
				  struct kvt_token_run run)
{
	const struct kvt_llama_cache *cache = &o->state.cache[o->part[g].cache];
	const struct kvt_llama_stream *s = &cache->stream[m->stream];
	int64_t n = 0, begin = 0, last = 0;
	enum kvt_status status;

	run.layers[0] = 0;
	for (int64_t l = o->part[g].first; l < s->nlayers; l++) {
		int64_t at = kvt_llama_rows_of(cache, s, kv, l)->at;

		if (!kvt_llama_alike(cache, s, o->part[g].first, l))
			continue;
		run.layers[1] = n;
		if (n - run.layers[0] > 1 && at - last != run.stride[KVT_AXIS_L]) {
			if ((status = add_rows(o, g, kv, m, run, begin)))
				return status;
			run.layers[0] = n;
		}
		if (n == run.layers[0])
			begin = at;
		else
			run.stride[KVT_AXIS_L] = at - last;
		last = at;
		n++;
	}
	run.layers[1] = n;
	return add_rows(o, g, kv, m, run, begin);
}

/* Tokens whose slots and cells both follow each other, over blocks as well. */
struct run {
	const struct kvt_llama_member *member;	/* the first */
	int64_t slot, count;			/* from the group's block 0 on */
};

static enum kvt_status add_run(const struct kvt_llama_blocks *b, const struct run *r)
{
	const struct kvt_group *group = &b->o->reader->leaf.snapshot.group[b->g];
	int only = b->o->part[b->g].kv;
	enum kvt_status status = KVT_OK;
	struct kvt_token_run run = {
		.count = r->count, .block = r->slot / group->block_size,
		.token = r->slot % group->block_size };

	for (int kv = 0; !status && r->count && kv < 2; kv++)
		if (only < 0 ? kv < group->shape.n[KVT_AXIS_K] : kv == only)
			status = add_layers(b->o, b->g, kv, r->member, run);
	return status;
}

static enum kvt_status add_token(const struct kvt_llama_blocks *b, struct run *r,
				 const struct kvt_llama_member *m, int64_t slot)
{
	enum kvt_status status;

	if (r->count && slot == r->slot + r->count && m->stream == r->member->stream &&
	    m->cell == r->member->cell + r->count) {
		r->count++;
		return KVT_OK;
	}
	status = add_run(b, r);
	*r = (struct run){ m, slot, 1 };
	return status;
}

/* ---- blocks ------------------------------------------------------------- */

static bool same_entry(const struct entry *a, const struct entry *b)
{
	if (a->count != b->count || a->slot != b->slot)
		return false;
	for (int64_t i = 0; i < a->count; i++)
		if (a->member[i].stream != b->member[i].stream ||
		    a->member[i].cell != b->member[i].cell)
			return false;
	return true;
}

static int64_t *chain_of(const struct kvt_llama_blocks *b, const struct entry *e)
{
	return &b->chain[b->first_cell[e->member->stream] + e->member->cell];
}

static bool find_shared(uint32_t *block, const struct kvt_llama_blocks *b,
			const struct entry *e)
{
	int64_t i = b->chain ? *chain_of(b, e) : -1;

	while (i >= 0 && !same_entry(&b->shared[i].entry, e))
		i = b->shared[i].next;
	if (i < 0)
		return false;
	*block = b->shared[i].block;
	return true;
}

static enum kvt_status offer(struct kvt_llama_blocks *b, const struct entry *e,
			     uint32_t block)
{
	size_t n = (size_t)b->nshared;

	if (!b->chain)
		return KVT_OK;
	if (!KVT_GROW(&b->shared, n))
		return kvt_llama_no_memory(b->o);
	b->shared[n] = (struct kvt_llama_shared){ *e, block, *chain_of(b, e) };
	*chain_of(b, e) = b->nshared++;
	return KVT_OK;
}

/* The next block, with zeros where it has no token. */
static enum kvt_status add_block(struct kvt_llama_blocks *b, struct run *r,
				 const struct kvt_llama_sequence *q,
				 const struct entry *e)
{
	int64_t size = b->o->reader->leaf.snapshot.group[b->g].block_size, next = 0, slot;
	int64_t at = e->member - q->member, shift = kvt_llama_position(q, at) - e->slot;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < e->count; i++, next = slot + 1) {
		slot = kvt_llama_position(q, at + i) - shift;
		if (slot > next)
			status = kvt_token_zeros(b->o->reader, b->g, b->n, next,
						 slot - next, b->o->err);
		if (!status)
			status = add_token(b, r, &e->member[i], b->n * size + slot);
	}
	if (!status && next < size)
		status = kvt_token_zeros(b->o->reader, b->g, b->n, next, size - next,
					 b->o->err);
	return status ? status : offer(b, e, (uint32_t)b->n++);
}

/* What is at positions [begin, begin + size), from the i-th token on. */
static struct entry entry_at(const struct kvt_llama_sequence *q, int64_t i, int64_t begin,
			     int64_t size)
{
	struct entry e = { NULL, 0, 0 };

	if (i == q->count)
		return e;
	e.member = q->member + i;
	while (i + e.count < q->count && kvt_llama_position(q,
							    i + e.count) - begin < size)
		e.count++;
	if (e.count)
		e.slot = kvt_llama_position(q, i) - begin;
	return e;
}

static enum kvt_status add_holes(const struct kvt_llama_blocks *b,
				 struct kvt_request *request,
				 const struct kvt_llama_sequence *q)
{
	int64_t next = request->first_token, end = next + request->ntokens;

	for (int64_t i = 0; i <= q->count; i++) {
		int64_t at = i < q->count ? kvt_llama_position(q, i) : end;

		if (at > next && !kvt_request_add_hole(request, b->g, next, at))
			return kvt_llama_no_memory(b->o);
		next = at + 1;
	}
	return KVT_OK;
}

enum kvt_status kvt_llama_table(struct kvt_llama_blocks *b, struct kvt_request *request,
				const struct kvt_llama_sequence *q)
{
	int64_t size = b->o->reader->leaf.snapshot.group[b->g].block_size, i = 0;
	int64_t first = request->first_token / size;
	int64_t n = (request->first_token + request->ntokens - 1) / size - first + 1;
	enum kvt_status status = KVT_OK;
	struct run run = { NULL, 0, 0 };
	uint32_t *blocks;

	/* zeros: what is not there is in the null block */
	if (!(blocks = request->blocks[b->g] = calloc((size_t)n, sizeof(*blocks))))
		return kvt_llama_no_memory(b->o);
	request->nblocks[b->g] = n;
	for (int64_t k = 0; !status && k < n; k++) {
		struct entry e = entry_at(q, i, (first + k) * size, size);

		i += e.count;
		if (!e.count || find_shared(&blocks[k], b, &e))
			continue;
		blocks[k] = (uint32_t)b->n;
		status = add_block(b, &run, q, &e);
	}
	if (!status)
		status = add_run(b, &run);
	return status ? status : add_holes(b, request, q);
}

/* Chains are needed only where a cell is of several sequences. */
enum kvt_status kvt_llama_blocks_init(struct kvt_llama_blocks *b,
				      struct kvt_llama_opening *o, int g)
{
	const struct kvt_llama_cache *cache = &o->state.cache[o->part[g].cache];
	int64_t ncells = 0;

	*b = (struct kvt_llama_blocks){ .o = o, .g = g };
	b->n = o->reader->leaf.snapshot.null_block == 0;
	b->first_cell = calloc((size_t)cache->nstreams + 1, sizeof(*b->first_cell));
	if (!b->first_cell)
		return kvt_llama_no_memory(o);
	for (int64_t i = 0; i < cache->nstreams; i++) {
		b->first_cell[i] = ncells;
		ncells += cache->stream[i].ncells;
	}
	if (cache->nmembers <= ncells)
		return KVT_OK;
	if (!(b->chain = malloc((size_t)ncells * sizeof(*b->chain))))
		return kvt_llama_no_memory(o);
	for (int64_t i = 0; i < ncells; i++)
		b->chain[i] = -1;
	return KVT_OK;
}

void kvt_llama_blocks_free(struct kvt_llama_blocks *b)
{
	free(b->first_cell);
	free(b->chain);
	free(b->shared);
}
