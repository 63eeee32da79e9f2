/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_blocks.c - which blocks are copied where, and between which groups
 *
 * vLLM's copy_kv_blocks() returns silently from lists that are empty or of
 * unequal length, and writes a destination that comes twice in an order that
 * nobody defines.  All of that is refused here.
 */
#include "lib/kvt/connect.h"
#include "lib/ops/write/copy_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/pairs.h"
#include "lib/snapshot/ids.h"

/* ---- ids of a pool ------------------------------------------------------ */

struct pool {
	const struct kvt_group *group;
	const char *name;
	struct id_index *known;		/* ascending; NULL: an id is an index */
};

static bool pool_init(struct pool *pool)
{
	if (!pool->group->block_ids)
		return true;
	pool->known = id_index_of(pool->group, KVT_AXIS_B);
	return pool->known;
}

static enum kvt_status pool_index(uint32_t *out, const struct pool *pool, int64_t id,
				  struct kvt_error *err)
{
	int64_t n = pool->group->shape.n[KVT_AXIS_B];
	const struct id_index *found;

	if (!pool->known && id < n) {
		*out = (uint32_t)id;
		return KVT_OK;
	}
	found = !pool->known ? NULL : id_index_find(pool->known, n, (uint64_t)id);
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
		status = kvt_no_memory(err, NULL);
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
	if ((*out = kvt_request_named(snapshot, id)))
		return KVT_OK;
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
			LL(first[COPY_FROM]), l->copy->name[COPY_FROM], LL(n[COPY_BASE]),
			LL(first[COPY_BASE]), l->copy->name[COPY_BASE]);
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
			.slots = n[KVT_AXIS_S], .pool = n[KVT_AXIS_B],
		};
	}
	/* all are in their pools, and it speaks of positions */
	status = kvt_copy_blocks_check(&table[COPY_FROM], &table[COPY_BASE], l->seen,
				       NULL);
	if (!status)
		return KVT_OK;
	return kvt_fail(err, status, "%.150s: %s: block id %llu is listed twice",
			l->copy->name[COPY_BASE], copy_group_of(l->pair, COPY_BASE)->id,
			(unsigned long long)repeated_id(l));
}

static enum kvt_status fill(struct listing *l, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (!l->src || !l->dst || !l->seen || !l->block)
		return kvt_no_memory(err, NULL);
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

enum kvt_status copied_blocks(int64_t **out, int64_t *count, const struct copy_pair *pair,
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

/* ---- the same group of both --------------------------------------------- */

/* Groups are the same if they are of one kind and share a layer. */
static enum kvt_status find_partner(struct copy_pair *pair,
				    const struct copy_blocks *copy, struct kvt_error *err)
{
	const struct kvt_group *base = copy_group_of(pair, COPY_BASE);
	const struct kvt_snapshot *from = pair->snapshot[COPY_FROM];
	uint64_t first = kvt_layer_id(base, 0);

	for (int g = 0; g < from->ngroups; g++)
		if (from->group[g].kind == base->kind &&
		    kvt_group_has_layer(&from->group[g], first)) {
			pair->group[COPY_FROM] = g;
			return KVT_OK;
		}
	return kvt_fail(err, KVT_BAD_INPUT,
			"%.150s: no group is %s and has layer %llu, as %s of %.150s",
			copy->name[COPY_FROM], kvt_kind_name(base->kind),
			(unsigned long long)first, base->id, copy->name[COPY_BASE]);
}

static enum kvt_status check_numbers(const struct copy_pair *pair,
				     const struct copy_blocks *copy,
				     struct kvt_error *err)
{
	const struct kvt_group *base = copy_group_of(pair, COPY_BASE);
	const struct kvt_group *from = copy_group_of(pair, COPY_FROM);
	const int64_t *nb = base->shape.n, *nf = from->shape.n;
	const struct {
		const char *what;
		int64_t base, from;
		const char *advice;
	} rows[] = {
		{ "tokens a block", base->block_size, from->block_size,
		  ": kvtool reblock makes them equal" },
		{ "tokens a slot", base->tokens_per_slot, from->tokens_per_slot, "" },
		{ "slots a block", nb[KVT_AXIS_S], nf[KVT_AXIS_S], "" },
		{ "heads of the model", base->total_heads, from->total_heads, "" },
		{ "first head", base->head_start, from->head_start, "" },
		{ "heads", nb[KVT_AXIS_H], nf[KVT_AXIS_H], "" },
		{ "keys and values", nb[KVT_AXIS_K], nf[KVT_AXIS_K], "" },
		{ "elements of a head", nb[KVT_AXIS_D], nf[KVT_AXIS_D], "" },
		{ "layers", nb[KVT_AXIS_L], nf[KVT_AXIS_L], "" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].base != rows[i].from)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s: %lld in %.120s, %lld in %.120s%s",
					base->id, rows[i].what, LL(rows[i].from),
					copy->name[COPY_FROM], LL(rows[i].base),
					copy->name[COPY_BASE], rows[i].advice);
	return KVT_OK;
}

/* Channels of a rank are others on another, and so is what nobody can read. */
static enum kvt_status check_ranks(const struct copy_pair *pair, struct kvt_error *err)
{
	const struct kvt_parallel *base = &pair->snapshot[COPY_BASE]->parallel;
	const struct kvt_parallel *from = &pair->snapshot[COPY_FROM]->parallel;

	if (copy_group_of(pair, COPY_BASE)->kind != KVT_OPAQUE ||
	    (base->tp_size == from->tp_size && base->tp_rank == from->tp_rank))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: opaque content of rank %lld of %lld does not fit rank %lld of %lld",
			copy_group_of(pair, COPY_BASE)->id, LL(from->tp_rank),
			LL(from->tp_size), LL(base->tp_rank), LL(base->tp_size));
}

/* Has the other one every layer, and the same channels? */
static enum kvt_status check_same(const struct copy_pair *pair, struct kvt_error *err)
{
	const struct kvt_group *base = copy_group_of(pair, COPY_BASE);
	const struct pairs_side a = { pair->snapshot[COPY_FROM], pair->group[COPY_FROM] };
	const struct pairs_side b = { pair->snapshot[COPY_BASE], pair->group[COPY_BASE] };
	struct slot_pairs slots = { .layer = NULL };
	struct head_pairs heads = { .head = NULL };
	enum kvt_status status;

	if (!(status = slot_pairs_by_ids(&slots, a, b, err)))
		status = head_pairs_init(&heads, pairs_group(a), pairs_group(b), err);
	for (int64_t l = 0; !status && l < base->shape.n[KVT_AXIS_L]; l++)
		if (slots.layer[l] < 0)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: no layer %llu on the other side", base->id,
					  (unsigned long long)kvt_layer_id(base, l));
	for (int64_t d = 0; !status && d < base->shape.n[KVT_AXIS_D]; d++)
		if (heads.channel[d] != d)
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: channel %lld is not the same on both sides",
					  base->id, LL(d));
	slot_pairs_free(&slots);
	head_pairs_free(&heads);
	return status;
}

/* Can the groups exchange blocks at all? */
static enum kvt_status same_layers(const struct copy_pair *pair,
				   const struct copy_blocks *copy, struct kvt_error *err)
{
	const struct kvt_group *base = copy_group_of(pair, COPY_BASE);
	const struct kvt_group *from = copy_group_of(pair, COPY_FROM);
	enum kvt_status status;

	if (!kvt_group_same_type(base, from))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: dtype is %s in %.150s, %s in %.150s", base->id,
				kvt_group_type(from).s, copy->name[COPY_FROM],
				kvt_group_type(base).s, copy->name[COPY_BASE]);
	if ((status = check_numbers(pair, copy, err)) ||
	    (status = check_ranks(pair, err)))
		return status;
	return check_same(pair, err);
}

/* ---- the dump ------------------------------------------------------------------ */

/* The copied blocks of a group, as spans; '*count' of them. */
static enum kvt_status spans_of(struct kvt_block_span **out, int64_t *count,
				const struct copy_pair *pair,
				const struct copy_blocks *copy, struct kvt_error *err)
{
	int64_t nblocks = copy_group_of(pair, COPY_BASE)->shape.n[KVT_AXIS_B], n = 0;
	int64_t slots = copy_group_of(pair, COPY_BASE)->shape.n[KVT_AXIS_S], *block;
	enum kvt_status status = copied_blocks(&block, count, pair, copy, err);

	if (status)
		return status;
	if (!(*out = calloc((size_t)nblocks + 1, sizeof(**out)))) {
		free(block);
		return kvt_no_memory(err, NULL);
	}
	for (int64_t b = 0; b < nblocks; b++)
		if (block[b] >= 0)
			(*out)[n++] = (struct kvt_block_span){
				.src_block = block[b], .dst_block = b,
				.count = slots, .nblocks = 1,
			};
	free(block);
	return KVT_OK;
}

static enum kvt_status pair_group(struct kvt_graft *graft, struct kvt_block_span **span,
				  struct kvt_dump *const dumps[NCOPY], int g,
				  struct copy_blocks *copy, struct kvt_error *err)
{
	struct copy_pair pair = {
		.snapshot = { kvt_dump_snapshot(dumps[COPY_BASE]),
			      kvt_dump_snapshot(dumps[COPY_FROM]) },
		.group = { g, -1 },
	};
	const struct kvt_group *base = copy_group_of(&pair, COPY_BASE);
	int64_t nblocks = base->shape.n[KVT_AXIS_B];
	enum kvt_status status;

	if (!base->shape.n[KVT_AXIS_L])
		/* then its blocks may be any number, with no bytes for them */
		return kvt_fail(err, KVT_BAD_INPUT, "%.150s: %s has no layers",
				copy->name[COPY_BASE], base->id);
	if ((status = find_partner(&pair, copy, err)))
		return status;
	copy->group[g].from = pair.group[COPY_FROM];
	if ((status = same_layers(&pair, copy, err)) ||
	    (status = spans_of(span, &copy->group[g].count, &pair, copy, err)))
		return status;
	graft->from = pair.group[COPY_FROM];
	graft->span = *span;
	for (graft->nspans = 0; graft->nspans < nblocks &&
	     (*span)[graft->nspans].nblocks; )
		graft->nspans++;
	return KVT_OK;
}

enum kvt_status copy_blocks(struct kvt_dump **out, struct kvt_dump *const dumps[NCOPY],
			    struct copy_blocks *copy, struct kvt_error *err)
{
	const struct kvt_snapshot *base = kvt_dump_snapshot(dumps[COPY_BASE]);
	const struct kvt_snapshot *from = kvt_dump_snapshot(dumps[COPY_FROM]);
	struct kvt_graft graft[KVT_MAX_GROUPS] = { { .from = 0 } };
	struct kvt_block_span *span[KVT_MAX_GROUPS] = { NULL };
	enum kvt_status status = KVT_OK;
	int64_t total = 0;

	if (base->ngroups != from->ngroups)
		return kvt_fail(err, KVT_BAD_INPUT, "%d groups in %.200s, %d in %.200s",
				from->ngroups, copy->name[COPY_FROM], base->ngroups,
				copy->name[COPY_BASE]);
	for (int g = 0; !status && g < base->ngroups; g++) {
		status = pair_group(&graft[g], &span[g], dumps, g, copy, err);
		total += copy->group[g].count;
	}
	if (!status && !total)
		status = kvt_fail(err, KVT_BAD_INPUT, "there is no block to copy");
	if (!status)
		status = kvt_dump_graft(out, dumps[COPY_BASE], dumps[COPY_FROM], graft,
					err);
	for (int g = 0; g < base->ngroups; g++)
		free(span[g]);
	return status;
}
