/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests.c - sequences of a llama.cpp state as requests, their cells as
 * tokens in the order of positions
 *
 * In: members (sequence, position, cell), sorted.  Out: requests with a table in each
 * group, holes where a cache lacks a position, and token ids where the list that the
 * program stored has one for each position.
 */
#include "formats/llama/llama.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/little_endian.h"

/* A table grows with positions, and a few cells may be far apart. */
enum { MAX_TOKEN_ID = 1 << 20, MAX_ENTRIES = 1 << 22 };

/* ---- sequences ---------------------------------------------------------- */

/* Members of a sequence, which stand together. */
static struct kvt_llama_sequence find(const struct kvt_llama_member *member, int64_t n,
				      int32_t number)
{
	struct kvt_llama_sequence out = { member, 0, false };
	int64_t from = 0, to = n;

	while (from < to) {
		int64_t i = from + (to - from) / 2;

		if (member[i].sequence < number)
			from = i + 1;
		else
			to = i;
	}
	if (n)
		out.member += from;
	while (from + out.count < n && out.member[out.count].sequence == number) {
		out.counted |= out.count && out.member[out.count].position ==
					    out.member[out.count - 1].position;
		out.count++;
	}
	return out;
}

static struct kvt_llama_sequence find_tokens(const struct kvt_llama_opening *o, int cache,
					     int32_t number)
{
	const struct kvt_llama_cache *c = &o->state.cache[cache];

	return find(c->member, c->nmembers, number);
}

static struct kvt_llama_sequence find_states(const struct kvt_llama_opening *o,
					     int32_t number)
{
	return find(o->state.states.member, o->state.states.nmembers, number);
}

/* A sequence in all caches, and the positions from its first to its last. */
struct all {
	struct kvt_llama_sequence in[KVT_LLAMA_CACHES];
	int64_t begin, end;
};

static bool same_positions(const struct kvt_llama_sequence *a,
			   const struct kvt_llama_sequence *b)
{
	if (a->count != b->count)
		return false;
	for (int64_t i = 0; i < a->count; i++)
		if (a->member[i].position != b->member[i].position)
			return false;
	return true;
}

/* Without tokens in any cache a sequence is as long as its states say. */
static enum kvt_status find_all(struct all *out, const struct kvt_llama_opening *o,
				int32_t number)
{
	struct kvt_llama_sequence states = find_states(o, number);
	bool counted = false;

	*out = (struct all){ .begin = INT64_MAX };
	for (int i = 0; i < o->state.ncaches; i++) {
		out->in[i] = find_tokens(o, i, number);
		counted |= out->in[i].counted;
	}
	for (int i = 0; i < o->state.ncaches; i++) {
		struct kvt_llama_sequence *q = &out->in[i];

		if (counted && !same_positions(q, &out->in[0]))
			return kvt_fail(o->err, KVT_UNSUPPORTED,
					"%s: positions of sequence %ld repeat, and its caches have different ones",
					o->reader->leaf.path, (long)number);
		q->counted = counted;
		if (q->count && kvt_llama_position(q, 0) < out->begin)
			out->begin = kvt_llama_position(q, 0);
		if (q->count && kvt_llama_position(q, q->count - 1) >= out->end)
			out->end = kvt_llama_position(q, q->count - 1) + 1;
	}
	if (!out->end) {
		out->begin = 0;
		out->end = states.count ?
			   (int64_t)states.member[states.count - 1].position + 1 : 0;
	}
	return KVT_OK;
}

static int64_t entries_of(const struct all *all, int64_t size)
{
	return (all->end - 1) / size - all->begin / size + 1;
}

/* Entries of the table that have a token in this cache. */
static int64_t entries_held(const struct kvt_llama_sequence *q, int64_t size)
{
	int64_t held = 0, last = -1;

	for (int64_t i = 0; i < q->count; i++) {
		held += kvt_llama_position(q, i) / size != last;
		last = kvt_llama_position(q, i) / size;
	}
	return held;
}

/* ---- requests ----------------------------------------------------------- */

/* States of a sequence are blocks, those of its cells. */
static enum kvt_status add_state(struct kvt_llama_opening *o, struct kvt_request *request,
				 int g, int32_t number)
{
	const struct kvt_llama_sequence q = find_states(o, number);

	if (!q.count)
		return KVT_OK;
	request->blocks[g] = calloc((size_t)q.count, sizeof(uint32_t));
	if (!request->blocks[g])
		return kvt_llama_no_memory(o);
	request->nblocks[g] = q.count;
	for (int64_t i = 0; i < q.count; i++)
		request->blocks[g][i] = q.member[i].cell +
					(o->reader->leaf.snapshot.null_block == 0);
	return KVT_OK;
}

/* The engine keeps all of a window: what another cache has of it must be there. */
static enum kvt_status check_window(const struct kvt_llama_opening *o, int g,
				    const struct kvt_request *request,
				    const struct all *all)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	int64_t end = request->first_token + request->ntokens;
	int64_t begin = end - group->window;
	struct kvt_range live;
	bool lacks = false;

	if (!group->window)
		return KVT_OK;
	if (begin < request->first_token)
		begin = request->first_token;
	live = kvt_request_live(request, g, begin, end);
	for (int i = 0; i < o->state.ncaches; i++)
		for (int64_t k = 0; k < all->in[i].count; k++)
			lacks |= kvt_llama_position(&all->in[i], k) >= begin &&
				 kvt_llama_position(&all->in[i], k) < live.begin;
	if (!lacks)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: window=%lld needs token %lld of sequence %s, but its cache begins with token %lld",
			o->reader->leaf.path, LL(group->window), LL(begin),
			request->id, LL(live.begin));
}

static enum kvt_status add_request(struct kvt_llama_opening *o, int32_t number,
				   struct kvt_llama_blocks *blocks)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_request *request;
	enum kvt_status status;
	struct all all;
	char id[16];

	request = realloc(s->request, (size_t)(s->nrequests + 1) * sizeof(*request));
	if (!request)
		return kvt_llama_no_memory(o);
	s->request = request;
	request += s->nrequests++;
	snprintf(id, sizeof(id), "%ld", (long)number);
	*request = (struct kvt_request){ .id = strdup(id) };
	if (!request->id)
		return kvt_llama_no_memory(o);
	if ((status = find_all(&all, o, number)))
		return status;
	request->first_token = all.begin;
	request->ntokens = all.end - all.begin;
	for (int g = 0; !status && g < s->ngroups; g++) {
		int cache = o->part[g].cache;

		if (cache < 0)
			status = add_state(o, request, g, number);
		else if (!(status = kvt_llama_table(&blocks[g], request, &all.in[cache])))
			status = check_window(o, g, request, &all);
	}
	return status;
}

/* All cells of all sequences as a group of blocks, in the order of the file. */
static enum kvt_status add_states(struct kvt_llama_opening *o, int g)
{
	int which = o->part[g].kv;
	struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	int64_t null = o->reader->leaf.snapshot.null_block == 0;
	struct kvt_file_part range = { .file = o->file };
	enum kvt_status status;

	group->shape.n[KVT_AXIS_B] = o->state.states.ncells + null;
	range.box = kvt_box_whole(&group->shape);
	range.box.begin[KVT_AXIS_B] = null;
	if ((status = kvt_layout_views(&range.views, &group->layout, &range.box,
				       group->shape.elem, o->err)))
		return status;
	kvt_view_set_stride(&range.views.view[0], KVT_AXIS_L,
			    o->state.states.row[which].step);
	range.views.view[0].offset += o->state.states.row[which].at;
	if ((status = kvt_flat_add(&o->reader->flat[g], &range, o->err)) || !null)
		return status;
	range.file = -1;
	range.box.begin[KVT_AXIS_B] = 0;
	range.box.end[KVT_AXIS_B] = 1;
	return kvt_flat_add(&o->reader->flat[g], &range, o->err);
}

/* ---- all sequences ------------------------------------------------------ */

/* Those of any cache or of states. */
static void find_numbers(bool seen[], const struct kvt_llama_opening *o)
{
	const struct kvt_llama_state *s = &o->state;

	for (int i = 0; i < s->ncaches; i++)
		for (int64_t k = 0; k < s->cache[i].nmembers; k++)
			seen[s->cache[i].member[k].sequence] = true;
	for (int64_t k = 0; k < s->states.nmembers; k++)
		seen[s->states.member[k].sequence] = true;
}

/* Is there an entry of which a group has no token?  Those need a null block. */
static enum kvt_status find_gaps(struct kvt_llama_opening *o, const bool *seen)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status;

	for (int32_t number = 0; number <= KVT_LLAMA_SEQUENCES; number++) {
		struct all all;

		if (!seen[number])
			continue;
		if ((status = find_all(&all, o, number)))
			return status;
		for (int g = 0; g < s->ngroups; g++) {
			int64_t size = s->group[g].block_size, held;

			if (o->part[g].cache < 0)
				continue;
			held = entries_held(&all.in[o->part[g].cache], size);
			if (entries_of(&all, size) > MAX_ENTRIES &&
			    entries_of(&all, size) / 64 > held)
				return kvt_fail(o->err, KVT_UNSUPPORTED,
						"%s: sequence %ld has %lld tokens of %lld positions: too few for a table",
						o->reader->leaf.path, (long)number,
						LL(all.in[o->part[g].cache].count),
						LL(all.end - all.begin));
			if (held < entries_of(&all, size))
				s->null_block = 0;
		}
	}
	return KVT_OK;
}

static enum kvt_status add_sequences(struct kvt_llama_opening *o, const bool *seen)
{
	struct kvt_llama_blocks blocks[KVT_MAX_GROUPS] = { { 0 } };
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	enum kvt_status status = KVT_OK;

	for (int g = 0; !status && g < s->ngroups; g++)
		if (o->part[g].cache >= 0)
			status = kvt_llama_blocks_init(&blocks[g], o, g);
	for (int32_t number = 0; !status && number <= KVT_LLAMA_SEQUENCES; number++)
		if (seen[number])
			status = add_request(o, number, blocks);
	/* the extent follows when all are counted, and is not asked before */
	for (int g = 0; !status && g < s->ngroups; g++) {
		if (o->part[g].cache < 0) {
			status = add_states(o, g);
			continue;
		}
		s->group[g].shape.n[KVT_AXIS_B] = blocks[g].n;
		if (s->null_block == 0)
			status = kvt_token_zeros(o->reader, g, 0, 0,
						 s->group[g].block_size, o->err);
	}
	for (int g = 0; g < s->ngroups; g++)
		kvt_llama_blocks_free(&blocks[g]);
	return status;
}

/* ---- token ids ---------------------------------------------------------- */

static enum kvt_status read_ids(struct kvt_request *request,
				const struct kvt_llama_opening *o)
{
	int64_t n = request->ntokens;
	uint8_t *bytes = malloc((size_t)n * 4);
	enum kvt_status status;

	request->token_ids = malloc((size_t)n * sizeof(*request->token_ids));
	if (!bytes || !request->token_ids) {
		free(bytes);
		return kvt_llama_no_memory(o);
	}
	status = kvt_file_read(&o->reader->files.file[o->file], bytes, n * 4,
			       o->state.tokens_at + 4 * request->first_token, o->err);
	for (int64_t i = 0; !status && i < n; i++) {
		request->token_ids[i] = (int32_t)kvt_le32(bytes + 4 * i);
		if (request->token_ids[i] < 0 || request->token_ids[i] >= MAX_TOKEN_ID)
			break;
		request->ntoken_ids = i + 1;
	}
	free(bytes);
	return status;
}

/*
 * The numbers stored beside the state may be anything.  They are ids only if there
 * is one for each position: after a shift a list is longer, and nobody knows which
 * tokens are gone.
 */
static enum kvt_status take_tokens(struct kvt_llama_opening *o, const bool *seen)
{
	struct kvt_request *request = o->reader->leaf.snapshot.request;
	enum kvt_status status;
	int32_t number = 0;
	struct all all;

	if (o->reader->leaf.snapshot.nrequests != 1 || !request->ntokens ||
	    o->state.ntokens != request->first_token + request->ntokens)
		return KVT_OK;
	while (!seen[number])
		number++;		/* that of the only request */
	if ((status = find_all(&all, o, number)))
		return status;
	if (all.in[0].counted)
		return KVT_OK;
	status = read_ids(request, o);
	if (request->ntoken_ids != request->ntokens) {
		request->ntoken_ids = 0;
		free(request->token_ids);
		request->token_ids = NULL;
	}
	return status;
}

enum kvt_status kvt_llama_requests(struct kvt_llama_opening *o)
{
	bool seen[KVT_LLAMA_SEQUENCES + 1] = { false };
	enum kvt_status status;

	find_numbers(seen, o);
	(void)((status = find_gaps(o, seen)) || (status = add_sequences(o, seen)) ||
	       (status = take_tokens(o, seen)));
	return status;
}
