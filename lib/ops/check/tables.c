/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.c - can these block tables be true?
 *
 * Entries of all requests are sorted by block, so that who shares a block stands
 * together, and only neighbours are compared.  Memory is that of the tables, whatever
 * the pool is said to have.
 *
 * Who shares a block shares a prefix: it is at the same place in both requests, the
 * block before it is shared, too, and tokens whose ids are known are the same.  Where
 * several groups take blocks of one pool, they are sorted once more, by the pool's ids:
 * a block belongs to one group at a time.
 */
#include "lib/ops/check/check.h"

#include <stdlib.h>
#include <string.h>

#include "lib/ops/digest/digest.h"
#include "lib/ops/where/where.h"
#include "lib/base/order.h"

struct entry {
	uint32_t block;
	int64_t request, index;
};

struct entries {
	const struct kvt_snapshot *s;
	int g;
	struct kvt_table *table;	/* [nrequests] */
	int64_t n;
	struct entry *entry;
	struct kvt_findings *report;
};

static const struct kvt_group *group_of(const struct entries *e)
{
	return &e->s->group[e->g];
}

static struct kvt_find_at at_entry(const struct entries *e, const struct entry *entry)
{
	const struct kvt_group *group = group_of(e);

	return kvt_find_at("group=%s,request=%.60s,block=%llu", group->id,
			   e->s->request[entry->request].id,
			   (unsigned long long)kvt_block_id(group, entry->block));
}

/* Is it known which tokens an entry stands for? */
static bool has_place(const struct entries *e, int64_t request)
{
	return group_of(e)->tokens_per_slot > 0 ||
	       kvt_table_is_whole(e->s, e->g, &e->s->request[request]);
}

/* Entries that have tokens; the others were reserved for later ones. */
static int64_t entries_used(const struct entries *e, int64_t request)
{
	const struct kvt_request *q = &e->s->request[request];
	int64_t blocks;

	if (!q->ntokens || !kvt_table_is_whole(e->s, e->g, q))
		return q->ntokens ? q->nblocks[e->g] : 0;
	blocks = (q->first_token + q->ntokens - 1) / group_of(e)->block_size + 1;
	return blocks - q->first_token / group_of(e)->block_size;
}

/* An entry's place in the request, which its table need not begin with. */
static int64_t place_of(const struct entries *e, const struct entry *entry)
{
	const struct kvt_request *q = &e->s->request[entry->request];

	if (group_of(e)->tokens_per_slot > 0)
		return e->table[entry->request].first + entry->index;
	return q->first_token / group_of(e)->block_size + entry->index;
}

static int64_t null_of(const struct entries *e)
{
	return kvt_null_block(e->s, e->g);
}

/* Positions of the request that an entry stands for. */
static struct kvt_range positions_of(const struct entries *e, int64_t request,
				     int64_t index)
{
	const struct kvt_request *q = &e->s->request[request];
	int64_t size = group_of(e)->block_size, end = q->first_token + q->ntokens;
	struct kvt_range out;

	out.begin = (e->table[request].first + index) * size;
	out.end = out.begin + size < end ? out.begin + size : end;
	if (out.begin < q->first_token)
		out.begin = q->first_token;
	return out;
}

static bool has_hole(const struct entries *e, int64_t request, int64_t index)
{
	struct kvt_range all = positions_of(e, request, index);
	struct kvt_range live = kvt_request_live(&e->s->request[request], e->g, all.begin,
						 all.end);

	return live.begin != all.begin || live.end != all.end;
}

/* ---- the null block ----------------------------------------------------- */

static void check_null(const struct entries *e, const struct entry *entry)
{
	int64_t index = entry->index;

	/* engines put it where a window has passed, or a state was not kept */
	if (entry->block != null_of(e) ||
	    index >= entries_used(e, entry->request) ||
	    kvt_entry_may_be_null(&e->table[entry->request], index,
				  &e->s->request[entry->request]))
		return;
	kvt_find(e->report, "table.null-block", at_entry(e, entry),
		 "entry %lld of the table is the null block", LL(index));
}

/* ---- sharing ------------------------------------------------------------ */

/* Behind the last token in the cache whose id is known. */
static int64_t known_end(const struct kvt_request *q)
{
	return q->first_token + (q->ntokens < q->ntoken_ids ? q->ntokens : q->ntoken_ids);
}

static void check_tokens(const struct entries *e, const struct entry *a,
			 const struct entry *b)
{
	const struct kvt_request *p = &e->s->request[a->request];
	const struct kvt_request *q = &e->s->request[b->request];
	int64_t size = group_of(e)->block_size, first = place_of(e, a) * size;
	int64_t begin = p->first_token > q->first_token ? p->first_token : q->first_token;
	int64_t end = known_end(p) < known_end(q) ? known_end(p) : known_end(q);

	if (begin < first)
		begin = first;
	if (end > first && end - first > size)
		end = first + size;
	for (int64_t t = begin; t < end; t++) {
		int32_t here = q->token_ids[t - q->first_token];
		int32_t there = p->token_ids[t - p->first_token];

		if (here == there)
			continue;
		kvt_find(e->report, "table.shared-tokens", at_entry(e, b),
			 "shared with request %.60s, but token %lld is %ld there and %ld here",
			 p->id, LL(t), (long)there, (long)here);
		return;
	}
}

/*
 * A shared block is a common prefix.  The block before it is shared as well, and
 * is checked where its own entries stand, so one look back is enough; but for one
 * of the two a window may have passed it.
 */
static void check_pair(const struct entries *e, const struct entry *a,
		       const struct entry *b)
{
	const uint32_t *p = e->s->request[a->request].blocks[e->g];
	const uint32_t *q = e->s->request[b->request].blocks[e->g];
	const char *other = e->s->request[a->request].id;
	int64_t null = null_of(e);
	bool passed = a->index && b->index && (p[a->index - 1] == null ||
					       q[b->index - 1] == null);

	if (!has_place(e, a->request) || !has_place(e, b->request))
		return;
	if (place_of(e, a) != place_of(e, b))
		kvt_find(e->report, "table.shared", at_entry(e, b),
			 "entry %lld here, but entry %lld of request %.60s",
			 LL(b->index), LL(a->index), other);
	else if (a->index && b->index && !passed && p[a->index - 1] != q[b->index - 1] &&
		 !has_hole(e, a->request, a->index - 1) &&
		 !has_hole(e, b->request, b->index - 1))
		kvt_find(e->report, "table.shared", at_entry(e, b),
			 "entry %lld is that of request %.60s, entry %lld before it is not",
			 LL(b->index), other, LL(b->index - 1));
	else
		check_tokens(e, a, b);
}

static int by_block(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	if (x->request != y->request)
		return x->request < y->request ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static void check_entries(struct entries *e)
{
	for (int64_t i = 0; i < e->n; i++)
		check_null(e, &e->entry[i]);
	qsort(e->entry, (size_t)e->n, sizeof(*e->entry), by_block);
	for (int64_t i = 1; i < e->n; i++) {
		const struct entry *a = &e->entry[i - 1], *b = &e->entry[i];

		if (a->block != b->block || a->block == null_of(e))
			continue;
		if (a->request == b->request)
			kvt_find(e->report, "table.repeated", at_entry(e, b),
				 "entries %lld and %lld of the table", LL(a->index),
				 LL(b->index));
		else
			check_pair(e, a, b);
	}
}

static void check_spare(const struct entries *e)
{
	for (int64_t r = 0; r < e->s->nrequests; r++) {
		const struct kvt_request *q = &e->s->request[r];
		int64_t used = entries_used(e, r);

		if (group_of(e)->tokens_per_slot > 0 && q->nblocks[e->g] > used)
			kvt_find(e->report, "table.spare",
				 kvt_find_at("group=%s,request=%.60s", group_of(e)->id,
					     q->id),
				 "%lld blocks, but %lld tokens need only %lld",
				 LL(q->nblocks[e->g]), LL(q->ntokens), LL(used));
	}
}

static bool check_tables(struct kvt_findings *report, const struct kvt_snapshot *s, int g)
{
	struct entries e = { .s = s, .g = g, .report = report };
	int64_t at = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		e.n += s->request[r].nblocks[g];
	if (!e.n)
		return true;
	e.entry = calloc((size_t)e.n, sizeof(*e.entry));
	e.table = calloc((size_t)s->nrequests, sizeof(*e.table));
	if (!e.entry || !e.table) {
		free(e.entry);
		free(e.table);
		return false;
	}
	for (int64_t r = 0; r < s->nrequests; r++) {
		const uint32_t *blocks = s->request[r].blocks[g];

		e.table[r] = kvt_table_of(s, g, &s->request[r]);
		for (int64_t i = 0; i < s->request[r].nblocks[g]; i++)
			e.entry[at++] = (struct entry){ blocks[i], r, i };
	}
	check_entries(&e);
	check_spare(&e);
	free(e.entry);
	free(e.table);
	return true;
}

/* ---- pools of several groups -------------------------------------------- */

/* Who has the block of an id, in the pool of several groups. */
struct holder {
	uint64_t id;
	int g;
	int64_t request, index;
};

static int by_holder(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->g != y->g)
		return x->g - y->g;
	if (x->request != y->request)
		return x->request < y->request ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* What tables of a group name; a block that no token is in yet is taken, too. */
static int64_t list_holders(struct holder *out, const struct kvt_snapshot *s, int g)
{
	int64_t null = kvt_null_block(s, g), n = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		for (int64_t i = 0; i < s->request[r].nblocks[g]; i++) {
			uint32_t block = s->request[r].blocks[g][i];

			if (block == null)
				continue;
			if (out)
				out[n] = (struct holder){
					kvt_block_id(&s->group[g], block), g, r, i };
			n++;
		}
	return n;
}

static void check_holders(struct kvt_findings *report, const struct kvt_snapshot *s,
			  const struct holder *holder, int64_t n)
{
	for (int64_t i = 1; i < n; i++) {
		const struct holder *a = &holder[i - 1], *b = &holder[i];

		if (a->id != b->id || a->g == b->g)
			continue;
		kvt_find(report, "table.shared",
			 kvt_find_at("group=%s,request=%.60s,block=%llu",
				     s->group[b->g].id, s->request[b->request].id,
				     (unsigned long long)b->id),
			 "entry %lld here, but entry %lld of request %.60s in group %s of the same pool",
			 LL(b->index), LL(a->index), s->request[a->request].id,
			 s->group[a->g].id);
	}
}

/* A block belongs to one group at a time.  'g': the first of its pool. */
static bool check_pool(struct kvt_findings *report, const struct kvt_snapshot *s, int g)
{
	struct holder *holder;
	int64_t n = 0, at = 0;

	for (int i = 0; i < g; i++)
		if (kvt_groups_share(&s->group[i], &s->group[g]))
			return true;
	for (int i = g; i < s->ngroups; i++)
		if (kvt_groups_share(&s->group[i], &s->group[g]))
			n += list_holders(NULL, s, i);
	if (!n)
		return true;
	if (!(holder = calloc((size_t)n, sizeof(*holder))))
		return false;
	for (int i = g; i < s->ngroups; i++)
		if (kvt_groups_share(&s->group[i], &s->group[g]))
			at += list_holders(holder + at, s, i);
	qsort(holder, (size_t)n, sizeof(*holder), by_holder);
	check_holders(report, s, holder, n);
	free(holder);
	return true;
}

/* ---- valid counts ------------------------------------------------------- */

static bool check_valid(struct kvt_findings *report, const struct kvt_snapshot *s, int g)
{
	const struct kvt_group *group = &s->group[g];
	int64_t nblocks = group->shape.n[KVT_AXIS_B];
	uint32_t *live;

	if (!group->block_valid || !nblocks || !kvt_snapshot_live(NULL, s, g))
		return true;
	if (!(live = calloc((size_t)nblocks, sizeof(*live))))
		return false;
	kvt_snapshot_live(live, s, g);
	for (int64_t b = 0; b < nblocks; b++) {
		unsigned long long id = kvt_block_id(group, b);
		struct kvt_find_at at = kvt_find_at("group=%s,block=%llu", group->id, id);
		uint32_t valid = group->block_valid[b];

		if (b == kvt_null_block(s, g) && valid > live[b])
			kvt_find(report, "null.valid", at, "%lu valid slots",
				 (unsigned long)valid);
		else if (valid < live[b])
			kvt_find(report, "valid.short", at,
				 "%lu valid slots, but requests hold %lu",
				 (unsigned long)valid, (unsigned long)live[b]);
		else if (live[b] && valid > live[b])
			/* blocks of no request may be kept for later ones */
			kvt_find(report, "valid.excess", at,
				 "%lu valid slots, but requests hold only %lu",
				 (unsigned long)valid, (unsigned long)live[b]);
	}
	free(live);
	return true;
}

/* ---- ids ---------------------------------------------------------------- */

static bool check_block_ids(struct kvt_findings *report, const struct kvt_group *group)
{
	int64_t n = group->shape.n[KVT_AXIS_B];
	uint64_t *ids;

	if (!group->block_ids || !n)
		return true;
	if (!(ids = malloc((size_t)n * sizeof(*ids))))
		return false;
	memcpy(ids, group->block_ids, (size_t)n * sizeof(*ids));
	qsort(ids, (size_t)n, sizeof(*ids), kvt_by_uint64);
	for (int64_t i = 1; i < n; i++)
		if (ids[i] == ids[i - 1])
			kvt_find(report, "blocks.duplicate-id",
				 kvt_find_at("group=%s", group->id),
				 "id %llu is listed twice", (unsigned long long)ids[i]);
	free(ids);
	return true;
}

static void check_missing(struct kvt_findings *report, const struct kvt_snapshot *s,
			  const struct kvt_request *q)
{
	for (int64_t i = 0; i < q->nholes; i++) {
		const struct kvt_hole *h = &q->hole[i];
		const struct kvt_group *group = &s->group[h->group];

		/* that is what a window is for */
		if (group->kind == KVT_SLIDING_WINDOW && h->begin == q->first_token)
			continue;
		kvt_find(report, "request.missing",
			 kvt_find_at("group=%s,request=%.60s", group->id, q->id),
			 "tokens %lld to %lld have no slot", LL(h->begin),
			 LL(h->end - 1));
	}
}

static bool check_requests(struct kvt_findings *report, const struct kvt_snapshot *s)
{
	size_t n = (size_t)s->nrequests;
	const char **ids = calloc(n + 1, sizeof(*ids));

	if (!ids)
		return false;
	for (size_t r = 0; r < n; r++) {
		const struct kvt_request *q = &s->request[r];

		ids[r] = q->id;
		check_missing(report, s, q);
		if (q->token_ids && q->ntoken_ids < q->ntokens)
			kvt_find(report, "request.token-ids",
				 kvt_find_at("request=%.60s", q->id),
				 "%lld tokens, but ids of %lld", LL(q->ntokens),
				 LL(q->ntoken_ids));
	}
	qsort(ids, n, sizeof(*ids), kvt_by_name);
	for (size_t r = 1; r < n; r++)
		if (!strcmp(ids[r], ids[r - 1]))
			kvt_find(report, "request.duplicate",
				 kvt_find_at("request=%.60s", ids[r]), "is listed twice");
	free(ids);
	return true;
}

bool kvt_check_tables(struct kvt_findings *report, const struct kvt_snapshot *s)
{
	bool ok = check_requests(report, s);

	for (int g = 0; ok && g < s->ngroups; g++)
		ok = check_block_ids(report, &s->group[g]) &&
		     check_tables(report, s, g) && check_pool(report, s, g) &&
		     check_valid(report, s, g);
	return ok;
}
