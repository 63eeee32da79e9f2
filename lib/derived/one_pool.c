/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_pool.c - each block of a pool left to the group that has it
 *
 * Groups of one pool are the same bytes, so a capture of all of it has every block once
 * for each group.  A block belongs to the group whose requests use it; where none does,
 * the first group keeps it, so that no row of the pool is lost.  The null block is
 * nobody's content: all keep it, for their tables, and what was in it is zeros.
 */
#include <stdlib.h>

#include "lib/derived/slice.h"

/* A block of a group. */
struct holder {
	uint64_t id;
	int64_t block;
	int group;
	bool used, null, listed;	/* listed: a table has it */
};

struct pool {
	const struct kvt_snapshot *from;
	int64_t n;
	struct holder *holder;		/* by id, then by group */
	bool tables[KVT_MAX_GROUPS];	/* a request has one */
	int64_t *list[KVT_MAX_GROUPS];	/* [B] of the source; -1: zeros, -2: left out */
	bool changed[KVT_MAX_GROUPS];
};
enum { ZEROS = -1, LEFT_OUT = -2 };

/* ---- who has which block ------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	return x->id != y->id ? (x->id < y->id ? -1 : 1) :
	       x->group < y->group ? -1 : x->group > y->group;
}

static void list_group(struct pool *p, int g)
{
	const struct kvt_snapshot *s = p->from;
	int64_t null = kvt_null_block(s, g);
	struct holder *h = p->holder + p->n;

	for (int64_t b = 0; b < s->group[g].shape.n[KVT_AXIS_B]; b++) {
		p->list[g][b] = b;
		h[b] = (struct holder){ .id = kvt_block_id(&s->group[g], b),
					.block = b, .group = g, .null = b == null };
		p->n++;
	}
	for (int64_t r = 0; r < s->nrequests; r++)
		for (int64_t i = 0; i < s->request[r].nblocks[g]; i++) {
			struct holder *its = &h[s->request[r].blocks[g][i]];

			p->tables[g] = its->listed = true;
			its->used = !its->null;
		}
}

static enum kvt_status list_blocks(struct pool *p, struct kvt_error *err)
{
	int64_t n = 0;

	for (int g = 0; g < p->from->ngroups; g++) {
		int64_t blocks = p->from->group[g].shape.n[KVT_AXIS_B];

		p->list[g] = malloc(((size_t)blocks + 1) * sizeof(*p->list[g]));
		if (!p->list[g])
			return kvt_no_memory(err, NULL);
		n += blocks;
	}
	if (!(p->holder = calloc((size_t)n + 1, sizeof(*p->holder))))
		return kvt_no_memory(err, NULL);
	for (int g = 0; g < p->from->ngroups; g++)
		list_group(p, g);
	qsort(p->holder, (size_t)p->n, sizeof(*p->holder), by_id);
	return KVT_OK;
}

/* ---- whose each is ------------------------------------------------------- */

static enum kvt_status refuse(const struct pool *p, const struct holder *a,
			      const struct holder *b, const char *why,
			      struct kvt_error *err)
{
	const struct kvt_group *x = &p->from->group[a->group];
	const struct kvt_group *y = &p->from->group[b->group];

	if (x->page_bytes && x->page_bytes == y->page_bytes &&
	    x->page_offset != y->page_offset)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"groups %s and %s have parts of the same pages, which one tensor cannot hold",
				x->id, y->id);
	return kvt_fail(err, KVT_BAD_INPUT,
			"block %llu is of groups %s and %s, which are the same bytes in one tensor; %s",
			(unsigned long long)a->id, x->id, y->id, why);
}

/* The one of 'n' holders of an id that keeps it. */
static enum kvt_status choose_owner(const struct holder **out, const struct pool *p,
				    const struct holder *h, int64_t n,
				    struct kvt_error *err)
{
	const struct holder *first = NULL;

	*out = NULL;
	for (int64_t i = 0; i < n; i++) {
		if (!first && !h[i].null)
			first = &h[i];
		if (!h[i].used)
			continue;
		if (*out)
			return refuse(p, *out, &h[i],
				      "requests use both, so it cannot be written so", err);
		*out = &h[i];
	}
	if (*out)
		return KVT_OK;
	for (int64_t i = 0; i < n; i++)
		if (!p->tables[h[i].group])
			return refuse(p, &h[0], &h[1], "no request tells whose it is",
				      err);
	*out = first;
	return KVT_OK;
}

static void change(struct pool *p, const struct holder *h, int64_t to)
{
	p->list[h->group][h->block] = to;
	p->changed[h->group] = true;
}

static enum kvt_status divide(struct pool *p, const struct holder *h, int64_t n,
			      struct kvt_error *err)
{
	const struct holder *owner;
	enum kvt_status status;
	int64_t nulls = 0;

	for (int64_t i = 0; i < n; i++)
		nulls += h[i].null;
	if (nulls == n) {
		for (int64_t i = 0; i < n; i++)
			change(p, &h[i], ZEROS);
		return KVT_OK;
	}
	if ((status = choose_owner(&owner, p, h, n, err)))
		return status;
	for (int64_t i = 0; i < n; i++) {
		if (&h[i] == owner)
			continue;
		if (h[i].listed)
			return refuse(p, owner, &h[i],
				      "it is the null block of one alone", err);
		change(p, &h[i], LEFT_OUT);
	}
	return KVT_OK;
}

static enum kvt_status divide_all(struct pool *p, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int64_t end;

	for (int64_t i = 0; !status && i < p->n; i = end) {
		for (end = i + 1; end < p->n && p->holder[end].id == p->holder[i].id;)
			end++;
		if (end > i + 1)
			status = divide(p, p->holder + i, end - i, err);
	}
	return status;
}

/* ---- the dump ------------------------------------------------------------ */

/* Tables and lists of a group, whose blocks that are left out no table has. */
static enum kvt_status keep(struct derivation *d, const struct pool *p, int g,
			    struct kvt_error *err)
{
	struct kvt_snapshot *to = &d->snapshot;
	int64_t n = to->group[g].shape.n[KVT_AXIS_B], null = kvt_null_block(to, g);
	int64_t kept = 0, *place, *from = calloc((size_t)n + 1, sizeof(*from));

	place = d->group[g].block = calloc((size_t)n + 1, sizeof(*place));
	if (!from || !place) {
		free(from);
		return kvt_no_memory(err, NULL);
	}
	for (int64_t b = 0; b < n; b++)
		if (p->list[g][b] != LEFT_OUT)
			from[kept++] = b;
	if (!keep_blocks(&to->group[g], from, kept)) {
		free(from);
		return kvt_no_memory(err, NULL);
	}
	/* first where each block went, for the tables; then where each comes from */
	for (int64_t b = 0; b < n; b++)
		place[b] = -1;
	for (int64_t i = 0; i < kept; i++)
		place[from[i]] = i;
	kvt_set_null(to, g, null < 0 ? -1 : place[null]);
	renumber_requests(to, g, place);
	for (int64_t i = 0; i < kept; i++)
		place[i] = p->list[g][from[i]];
	free(from);
	return KVT_OK;
}

static enum kvt_status one_pool(struct derivation *d, struct pool *p,
				struct kvt_error *err)
{
	enum kvt_status status;

	if ((status = list_blocks(p, err)) || (status = divide_all(p, err)) ||
	    (status = kvt_snapshot_copy(&d->snapshot, p->from, err)))
		return status;
	for (int g = 0; g < p->from->ngroups; g++)
		if ((status = step_whole(&d->group[g], &p->from->group[g], g, err)) ||
		    (p->changed[g] && (status = keep(d, p, g, err))))
			return status;
	for (int g = 0; g < p->from->ngroups; g++)
		kvt_set_null(&d->snapshot, g, kvt_null_block(&d->snapshot, g));
	kvt_share_null(&d->snapshot);
	return KVT_OK;
}

enum kvt_status kvt_dump_one_pool(struct kvt_dump **out, const struct kvt_dump *dump,
				  struct kvt_error *err)
{
	struct derivation d = { .nsources = 1, .source = &dump };
	struct pool p = { .from = kvt_dump_snapshot(dump) };
	enum kvt_status status;

	kvt_snapshot_init(&d.snapshot);
	status = one_pool(&d, &p, err);
	free(p.holder);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(p.list[g]);
	return derive(out, &d, status, err);
}
