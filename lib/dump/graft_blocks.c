/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graft_blocks.c - which blocks are copied where
 *
 * vLLM's copy_kv_blocks() returns silently from lists that are empty or of
 * unequal length, and writes a destination that comes twice in an order that
 * nobody defines.  All of that is refused here.
 */
#include "lib/dump/graft.h"

#include <stdlib.h>
#include <string.h>

#include "lib/dump/ids.h"
#include "lib/kvt/connect.h"

#define LL(x) ((long long)(x))

/* ---- the command line --------------------------------------------------- */

/* "7" or "3-9", both ends of which belong to it. */
static bool take_ids(int64_t *first, int64_t *count, const char **text)
{
	int64_t last;

	if (!number_take(first, text))
		return false;
	last = *first;
	if (**text == '-') {
		++*text;
		if (!number_take(&last, text) || last < *first)
			return false;
	}
	*count = last - *first + 1;
	return true;
}

static enum kvt_status take_run(struct block_run *run, const char **text,
				struct kvt_error *err)
{
	const char *begin = *text;
	int64_t ndst;
	bool ok = take_ids(&run->src, &run->count, text) && *(*text)++ == ':' &&
		  take_ids(&run->dst, &ndst, text) && (!**text || **text == ',');

	if (!ok)
		return kvt_fail(err, KVT_USAGE,
				"--blocks has '%.60s', expected SRC:DST, numbers or ranges such as 3-9:40-46",
				begin);
	if (run->count != ndst)
		return kvt_fail(err, KVT_USAGE,
				"--blocks has '%.*s': %lld blocks do not fit %lld",
				(int)(*text - begin < 60 ? *text - begin : 60), begin,
				LL(run->count), LL(ndst));
	return KVT_OK;
}

enum kvt_status block_runs_parse(struct copy_blocks *copy, const char *text,
				 struct kvt_error *err)
{
	size_t room = 1;

	for (const char *p = text; *p; p++)
		room += *p == ',';
	if (!(copy->run = calloc(room, sizeof(*copy->run))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (;;) {
		enum kvt_status status = take_run(&copy->run[copy->nruns++], &text, err);

		if (status || !*text)
			return status;
		text++;
	}
}

/* ---- ids of a pool ------------------------------------------------------ */

struct pool {
	const struct kvt_group *group;
	const char *name;
	struct numbered *known;		/* ascending; NULL: an id is an index */
};

static bool pool_init(struct pool *pool)
{
	if (!pool->group->block_ids)
		return true;
	pool->known = numbered_of(pool->group, KVT_AXIS_B);
	return pool->known;
}

static enum kvt_status pool_index(uint32_t *out, const struct pool *pool, int64_t id,
				  struct kvt_error *err)
{
	int64_t n = pool->group->shape.n[KVT_AXIS_B];
	const struct numbered *found;

	if (!pool->known && id < n) {
		*out = (uint32_t)id;
		return KVT_OK;
	}
	found = !pool->known ? NULL :
		numbered_find(pool->known, n, (uint64_t)id);
	if (!found)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.150s: %s has no block %lld among its %lld",
				pool->name, pool->group->id, LL(id), LL(n));
	*out = (uint32_t)found->index;
	return KVT_OK;
}

/* ---- the list of a group ------------------------------------------------ */

struct listing {
	const struct copy_pair *pair;
	const struct copy_blocks *copy;
	int64_t n, room;		/* one more than the base has blocks */
	uint32_t *src, *dst;
	int64_t *block;			/* [B] of the base */
	uint8_t *seen;			/* bits; [B] of the base */
};

/* What is too long has a block twice, and the check will find the first. */
static void add(struct listing *l, uint32_t src, uint32_t dst)
{
	if (l->n == l->room)
		return;
	l->src[l->n] = src;
	l->dst[l->n++] = dst;
	l->block[dst] = src;
}

static enum kvt_status add_run(struct listing *l, const struct pool pool[NCOPY],
			       const struct block_run *run, struct kvt_error *err)
{
	for (int64_t i = 0; i < run->count && l->n < l->room; i++) {
		enum kvt_status status;
		uint32_t src, dst;

		if ((status = pool_index(&src, &pool[COPY_FROM], run->src + i, err)) ||
		    (status = pool_index(&dst, &pool[COPY_BASE], run->dst + i, err)))
			return status;
		add(l, src, dst);
	}
	return KVT_OK;
}

static enum kvt_status add_runs(struct listing *l, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct pool pool[NCOPY];
	bool ok = true;

	for (int s = 0; s < NCOPY; s++) {
		pool[s] = (struct pool){ copy_group_of(l->pair, s), l->copy->name[s],
					 NULL };
		ok &= pool_init(&pool[s]);
	}
	if (!ok)
		status = kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t i = 0; !status && i < l->copy->nruns; i++)
		status = add_run(l, pool, &l->copy->run[i], err);
	for (int s = 0; s < NCOPY; s++)
		free(pool[s].known);
	return status;
}

/* ---- requests ----------------------------------------------------------- */

static enum kvt_status find_request(const struct kvt_request **out,
				    const struct kvt_snapshot *snapshot, const char *id,
				    const char *name, struct kvt_error *err)
{
	for (int64_t r = 0; r < snapshot->nrequests; r++)
		if (!strcmp(snapshot->request[r].id, id)) {
			*out = &snapshot->request[r];
			return KVT_OK;
		}
	return kvt_fail(err, KVT_BAD_INPUT, "%.150s: no request '%.60s' among %lld",
			name, id, LL(snapshot->nrequests));
}

/* Which block of the request its table begins with. */
static int64_t first_block(const struct kvt_request *request,
			   const struct kvt_group *group)
{
	return group->block_size > 0 ? request->first_token / group->block_size : 0;
}

static enum kvt_status same_length(const struct listing *l,
				   const struct kvt_request *const request[NCOPY],
				   struct kvt_error *err)
{
	int64_t n[NCOPY], first[NCOPY];

	for (int s = 0; s < NCOPY; s++) {
		const struct kvt_group *group = copy_group_of(l->pair, s);

		n[s] = request[s]->nblocks[l->pair->group[s]];
		first[s] = n[s] ? first_block(request[s], group) : 0;
	}
	if (n[COPY_FROM] == n[COPY_BASE] && first[COPY_FROM] == first[COPY_BASE])
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"request %.60s has %lld blocks of %s from its block %lld on in %.100s, and %lld from %lld on in %.100s",
			request[0]->id, LL(n[COPY_FROM]), copy_group_of(l->pair, 0)->id,
			LL(first[COPY_FROM]), l->copy->name[COPY_FROM],
			LL(n[COPY_BASE]), LL(first[COPY_BASE]),
			l->copy->name[COPY_BASE]);
}

/*
 * Requests share blocks, so the same copy may come again.  The null block holds
 * no token: it is left out where both tables have it, and in one of them it means
 * that they do not speak of the same.
 */
static enum kvt_status add_request(struct listing *l, const char *id,
				   struct kvt_error *err)
{
	const struct kvt_request *request[NCOPY];
	const uint32_t *blocks[NCOPY];
	enum kvt_status status;

	for (int s = 0; s < NCOPY; s++) {
		status = find_request(&request[s], l->pair->snapshot[s], id,
				      l->copy->name[s], err);
		if (status)
			return status;
		blocks[s] = request[s]->blocks[l->pair->group[s]];
	}
	if ((status = same_length(l, request, err)))
		return status;
	for (int64_t i = 0; i < request[0]->nblocks[l->pair->group[0]]; i++) {
		uint32_t src = blocks[COPY_FROM][i], dst = blocks[COPY_BASE][i];
		bool null[NCOPY];

		for (int s = 0; s < NCOPY; s++)
			null[s] = blocks[s][i] == kvt_null_block(l->pair->snapshot[s],
								 l->pair->group[s]);
		if (null[COPY_FROM] != null[COPY_BASE])
			return kvt_fail(err, KVT_BAD_INPUT,
					"request %.60s: entry %lld of its table of %s is the null block in %.100s only",
					id, LL(i), copy_group_of(l->pair, 0)->id,
					l->copy->name[null[COPY_FROM] ? COPY_FROM :
							COPY_BASE]);
		if (!null[COPY_BASE] && l->block[dst] != src)
			add(l, src, dst);
	}
	return KVT_OK;
}

/* ---- all of it ---------------------------------------------------------- */

/* The first destination that comes again. */
static uint64_t repeated_id(const struct listing *l)
{
	const struct kvt_group *group = copy_group_of(l->pair, COPY_BASE);

	memset(l->seen, 0, (size_t)l->room / 8 + 1);
	for (int64_t i = 0; i < l->n; i++) {
		uint8_t *byte = &l->seen[l->dst[i] / 8], bit = 1u << l->dst[i] % 8;

		if (*byte & bit)
			return kvt_block_id(group, l->dst[i]);
		*byte |= bit;
	}
	return 0;
}

static enum kvt_status check(const struct listing *l, struct kvt_error *err)
{
	struct kvt_block_table table[NCOPY];
	enum kvt_status status;

	for (int s = 0; s < NCOPY; s++) {
		const int64_t *n = copy_group_of(l->pair, s)->shape.n;

		table[s] = (struct kvt_block_table){
			.ids = s == COPY_FROM ? l->src : l->dst, .nids = l->n,
			.states = n[KVT_AXIS_S], .pool = n[KVT_AXIS_B],
		};
	}
	/* all are in their pools, and it speaks of positions */
	status = kvt_copy_blocks_check(&table[COPY_FROM], &table[COPY_BASE], l->seen,
				       NULL);
	if (!status)
		return KVT_OK;
	return kvt_fail(err, status, "%.150s: %s: block id %llu comes twice",
			l->copy->name[COPY_BASE], copy_group_of(l->pair, COPY_BASE)->id,
			(unsigned long long)repeated_id(l));
}

static enum kvt_status fill(struct listing *l, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (!l->src || !l->dst || !l->seen || !l->block)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int64_t b = 0; b + 1 < l->room; b++)
		l->block[b] = -1;
	if (l->copy->nruns)
		status = add_runs(l, err);
	for (int i = 0; !status && i < l->copy->requests.n; i++)
		status = add_request(l, l->copy->requests.s[i], err);
	/* a request need not have blocks of every group */
	if (status || (!l->n && !l->copy->nruns))
		return status;
	return check(l, err);
}

enum kvt_status copied_blocks(int64_t **out, int64_t *count,
			      const struct copy_pair *pair,
			      const struct copy_blocks *copy, struct kvt_error *err)
{
	int64_t room = copy_group_of(pair, COPY_BASE)->shape.n[KVT_AXIS_B] + 1;
	struct listing l = {
		.pair = pair, .copy = copy, .room = room,
		.src = calloc((size_t)room, sizeof(*l.src)),
		.dst = calloc((size_t)room, sizeof(*l.dst)),
		.block = calloc((size_t)room, sizeof(*l.block)),
		.seen = calloc((size_t)room / 8 + 1, 1),
	};
	enum kvt_status status = fill(&l, err);

	free(l.src);
	free(l.dst);
	free(l.seen);
	if (status)
		free(l.block);
	*out = status ? NULL : l.block;
	*count = l.n;
	return status;
}
