/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_requests.c - sequences of a llama.cpp state as requests, their cells as
 * tokens in the order of positions
 */
#include "formats/llama_open.h"

#include <stdlib.h>
#include <string.h>

#include "formats/little_endian.h"

enum { MAX_TOKEN_ID = 1 << 20 };

static enum kvt_status no_memory(const struct llama_opening *o)
{
	return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->reader->path);
}

/* ---- sequences ---------------------------------------------------------- */

/* The cells of one sequence in a cache, by position. */
struct sequence {
	const struct kvt_llama_member *member;
	int64_t count;
	bool dense;			/* positions follow each other */
};

static struct sequence find_sequence(const struct kvt_llama_cache *cache, int32_t number)
{
	struct sequence out = { cache->member, 0, true };
	int64_t i = 0, from = 0, to = cache->nmembers;

	while (from < to) {
		i = from + (to - from) / 2;
		if (cache->member[i].sequence < number)
			from = i + 1;
		else
			to = i;
	}
	out.member += from;
	while (from + out.count < cache->nmembers &&
	       out.member[out.count].sequence == number) {
		if (out.count)
			out.dense &= out.member[out.count].position ==
				     out.member[out.count - 1].position + 1;
		out.count++;
	}
	return out;
}

/* One run of neighbours, of keys, values or both. */
static enum kvt_status add_rows(struct llama_opening *o, int g, int kv,
				const struct kvt_llama_member *m,
				struct kvt_token_run run)
{
	const struct kvt_group *group = &o->reader->snapshot.group[g];
	const struct kvt_llama_stream *s =
		&o->state.cache[o->part[g].cache].stream[m->stream];
	const struct kvt_llama_rows *rows = kv ? &s->v : &s->k;
	int64_t elem = group->shape.elem;

	run.file = o->file;
	run.stride[KVT_AXIS_L] = rows->step;
	run.stride[KVT_AXIS_S] = rows->elem ? rows->elem : rows->nbytes;
	run.stride[KVT_AXIS_D] = rows->elem ? rows->elem * s->ncells : elem;
	run.stride[KVT_AXIS_H] = run.stride[KVT_AXIS_D] * group->shape.n[KVT_AXIS_D];
	run.offset = rows->at + (int64_t)m->cell * run.stride[KVT_AXIS_S];
	run.kv[0] = group->shape.n[KVT_AXIS_K] == 2 ? kv : 0;
	run.kv[1] = run.kv[0] + 1;
	return kvt_token_run_add(&o->reader->flat[g], group, &run, o->err);
}

static enum kvt_status add_zeros(struct llama_opening *o, int g, int64_t block,
				 int64_t token, int64_t count)
{
	const struct kvt_group *group = &o->reader->snapshot.group[g];
	struct kvt_token_run run = {
		.file = -1, .layers = { 0, group->shape.n[KVT_AXIS_L] },
		.kv = { 0, group->shape.n[KVT_AXIS_K] }, .block = block, .token = token,
		.count = count };

	return kvt_token_run_add(&o->reader->flat[g], group, &run, o->err);
}

/* All of a sequence; its first token stands 'skip' tokens behind 'block'. */
static enum kvt_status add_sequence(struct llama_opening *o, int g,
				    const struct sequence *q, int64_t block, int64_t skip)
{
	const struct kvt_group *group = &o->reader->snapshot.group[g];
	int64_t size = group->block_size, end = skip + q->count, n;
	int only = o->part[g].kv;
	enum kvt_status status = add_zeros(o, g, block, 0, skip);

	for (int64_t i = 0; !status && i < q->count; i += n) {
		const struct kvt_llama_member *m = &q->member[i];
		struct kvt_token_run run = { .block = block, .token = skip + i,
			.layers = { 0, group->shape.n[KVT_AXIS_L] } };

		for (n = 1; i + n < q->count && m[n].stream == m->stream &&
			    m[n].cell == m->cell + n; n++)
			;
		run.count = n;
		for (int kv = 0; !status && kv < 2; kv++)
			if (only < 0 ? kv < group->shape.n[KVT_AXIS_K] : kv == only)
				status = add_rows(o, g, kv, m, run);
	}
	return status ? status : add_zeros(o, g, block, end, (size - end % size) % size);
}

/* ---- requests ----------------------------------------------------------- */

/* A cache with a window has the last tokens of what the other one has. */
static enum kvt_status match(int64_t *first, const struct llama_opening *o,
			     const struct sequence *all, const struct sequence *some)
{
	*first = all->count - some->count;
	if (some->count && *first >= 0 && (all->dense || !*first) &&
	    some->dense == all->dense &&
	    some->member[0].position == all->member[*first].position &&
	    some->member[some->count - 1].position ==
	    all->member[all->count - 1].position)
		return KVT_OK;
	return kvt_fail(o->err, KVT_UNSUPPORTED,
			"%s: sequence %ld: one cache has other positions than the other one",
			o->reader->path, (long)all->member[0].sequence);
}

/* A table of blocks of a group's own, where its cache has tokens of the request. */
static enum kvt_status add_table(struct llama_opening *o, struct kvt_request *request,
				 int g, const struct sequence *all,
				 const struct sequence *q, int64_t *nblocks)
{
	struct kvt_group *group = &o->reader->snapshot.group[g];
	int64_t size = group->block_size, first, passed, skip;
	int64_t n = request->first_token % size + request->ntokens;
	enum kvt_status status;

	if ((status = match(&first, o, all, q)))
		return status;
	n = n / size + (n % size != 0);
	skip = request->first_token % size + first;
	passed = skip / size;
	if (!(request->blocks[g] = calloc((size_t)n + 1, sizeof(uint32_t))))
		return no_memory(o);
	request->nblocks[g] = n;
	/* what a window has passed is in the null block */
	for (int64_t i = passed; i < n; i++)
		request->blocks[g][i] = (uint32_t)(*nblocks + i - passed);
	if (o->part[g].cache && group->window < q->count)
		group->window = q->count;
	/* the extent follows when all are counted, and is not asked before */
	status = add_sequence(o, g, q, *nblocks, skip % size);
	*nblocks += n - passed;
	return status;
}

static struct sequence find_state(const struct llama_opening *o, int32_t number)
{
	const struct kvt_llama_states *states = &o->state.states;
	const struct kvt_llama_cache as_cache = { .nmembers = states->nmembers,
						  .member = states->member };

	return find_sequence(&as_cache, number);
}

/* The state of a sequence is a block, that of its cell. */
static enum kvt_status add_state(struct llama_opening *o, struct kvt_request *request,
				 int g, int32_t number)
{
	const struct sequence q = find_state(o, number);

	if (!q.count)
		return KVT_OK;
	if (!(request->blocks[g] = calloc(1, sizeof(uint32_t))))
		return no_memory(o);
	request->blocks[g][0] = q.member[0].cell + (o->reader->snapshot.null_block == 0);
	request->nblocks[g] = 1;
	return KVT_OK;
}

/* The numbers stored beside the state may be anything, and are ids only if they fit. */
static enum kvt_status take_tokens(struct llama_opening *o)
{
	struct kvt_request *request = o->reader->snapshot.request;
	int64_t n = o->state.ntokens;
	enum kvt_status status;
	uint8_t *bytes;

	if (o->reader->snapshot.nrequests != 1 || n < request->ntokens || !n ||
	    request->first_token)
		return KVT_OK;
	n = request->ntokens;
	bytes = malloc((size_t)n * 4);
	request->token_ids = malloc((size_t)n * sizeof(*request->token_ids));
	if (!bytes || !request->token_ids)
		status = kvt_fail(o->err, KVT_SYSTEM,
				  "%s: out of memory", o->reader->path);
	else
		status = kvt_file_read(&o->reader->files.file[o->file], bytes, n * 4,
				       o->state.tokens_at, o->err);
	for (int64_t i = 0; !status && i < n; i++) {
		request->token_ids[i] = (int32_t)kvt_le32(bytes + 4 * i);
		if (request->token_ids[i] < 0 || request->token_ids[i] >= MAX_TOKEN_ID)
			break;
		request->ntoken_ids = i + 1;
	}
	free(bytes);
	if (request->ntoken_ids != n) {
		request->ntoken_ids = 0;
		free(request->token_ids);
		request->token_ids = NULL;
	}
	return status;
}

static enum kvt_status add_request(struct llama_opening *o, int32_t number,
				   int64_t nblocks[KVT_MAX_GROUPS])
{
	struct kvt_snapshot *s = &o->reader->snapshot;
	struct sequence all[KVT_LLAMA_CACHES] = { { 0 } };
	enum kvt_status status = KVT_OK;
	struct kvt_request *request;
	char id[16];

	request = realloc(s->request, (size_t)(s->nrequests + 1) * sizeof(*request));
	if (!request)
		return no_memory(o);
	s->request = request;
	request += s->nrequests++;
	for (int i = 0; i < o->state.ncaches; i++)
		all[i] = find_sequence(&o->state.cache[i], number);
	snprintf(id, sizeof(id), "%ld", (long)number);
	*request = (struct kvt_request){ .id = strdup(id), .ntokens = all[0].count };
	if (!o->state.ncaches)
		request->ntokens = (int64_t)find_state(o, number).member->position + 1;
	else if (all[0].dense)
		request->first_token = all[0].member[0].position;
	o->nmembers += all[1].count;
	if (!request->id)
		return no_memory(o);
	for (int g = 0; !status && g < s->ngroups; g++)
		status = o->part[g].cache < 0 ? add_state(o, request, g, number) :
			 add_table(o, request, g, &all[0], &all[o->part[g].cache],
				   &nblocks[g]);
	return status;
}

/* All cells of all sequences as a group of blocks, in the order of the file. */
static enum kvt_status add_states(struct llama_opening *o, int g)
{
	const struct kvt_llama_rows *rows = &o->state.states.row[o->part[g].kv];
	struct kvt_group *group = &o->reader->snapshot.group[g];
	int64_t null = o->reader->snapshot.null_block == 0;
	struct kvt_piece piece = { .file = o->file };
	enum kvt_status status;

	group->shape.n[KVT_AXIS_B] = o->state.states.ncells + null;
	piece.box = kvt_box_whole(&group->shape);
	piece.box.begin[KVT_AXIS_B] = null;
	if ((status = kvt_layout_views(&piece.views, &group->layout, &piece.box,
				       group->shape.elem, o->err)))
		return status;
	kvt_view_set_stride(&piece.views.view[0], KVT_AXIS_L, rows->step);
	piece.views.view[0].offset += rows->at;
	if ((status = kvt_flat_add(&o->reader->flat[g], &piece, o->err)) || !null)
		return status;
	piece.file = -1;
	piece.box.begin[KVT_AXIS_B] = 0;
	piece.box.end[KVT_AXIS_B] = 1;
	return kvt_flat_add(&o->reader->flat[g], &piece, o->err);
}

/* The sequences of the first cache, or of states where there is no other. */
static enum kvt_status add_sequences(struct llama_opening *o,
				     int64_t nblocks[KVT_MAX_GROUPS])
{
	const struct kvt_llama_cache *cache = &o->state.cache[0];
	const struct kvt_llama_member *m = o->state.ncaches ? cache->member :
							      o->state.states.member;
	int64_t n = o->state.ncaches ? cache->nmembers : o->state.states.nmembers;
	enum kvt_status status = KVT_OK;

	for (int64_t i = 0; !status && i < n; i++)
		if (!i || m[i].sequence != m[i - 1].sequence)
			status = add_request(o, m[i].sequence, nblocks);
	if (!status && o->state.ncaches > 1 && o->nmembers != o->state.cache[1].nmembers)
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: one cache has other sequences than the other one",
				o->reader->path);
	return status;
}

enum kvt_status llama_requests(struct llama_opening *o)
{
	struct kvt_snapshot *s = &o->reader->snapshot;
	int64_t nblocks[KVT_MAX_GROUPS] = { 0 };
	enum kvt_status status;

	/* groups with a window need a block for what it has passed */
	if (o->state.ncaches > 1) {
		s->null_block = 0;
		for (int g = 0; g < s->ngroups; g++)
			nblocks[g] = 1;
	}
	status = add_sequences(o, nblocks);
	for (int g = 0; !status && g < s->ngroups; g++) {
		if (o->part[g].cache < 0) {
			status = add_states(o, g);
			continue;
		}
		s->group[g].shape.n[KVT_AXIS_B] = nblocks[g];
		if (s->null_block == 0)
			status = add_zeros(o, g, 0, 0, s->group[g].block_size);
	}
	return status ? status : take_tokens(o);
}
