/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c - which slots are the same ones: by request and token, or by block
 *
 * In: the block tables of both sides.  Out: segments, runs of slots that are
 * consecutive in one block of either side, in the order in which they are read.
 *
 * By tokens, requests are matched by id, or as the caller says, and positions that
 * are live on both sides are walked together; a slot that several requests share is
 * compared once for each.  By blocks, the pools are matched by block id, all slots
 * of each.  Segments are numbered (ordinal) in the order of requests or ids, which is
 * what results are told in, and then sorted by the blocks of the side whose tiles are
 * decoded whole, so that no tile is decoded twice without need.
 *
 * Cost: time and memory of one segment for each block and request.
 */
#include "lib/ops/diff/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"
#include "lib/kvt/spec.h"
#include "lib/ops/compare/pairs.h"
#include "lib/snapshot/ids.h"

void unmatched_add(struct diff_unmatched *unmatched, int side, const char *format, ...)
{
	int room = (int)(sizeof(unmatched->item) / sizeof(unmatched->item[0]));
	va_list args;

	va_start(args, format);
	if (unmatched->n < room) {
		unmatched->item[unmatched->n].side = side;
		vsnprintf(unmatched->item[unmatched->n].text,
			  sizeof(unmatched->item->text), format, args);
	}
	va_end(args);
	unmatched->n++;
}

struct segments {
	struct diff_pair *p;
	bool failed;			/* out of memory */
	const char *alone[NSIDES];	/* the first page that only this side has */
};

static void add_segment(struct segments *to, struct diff_segment segment)
{
	struct diff_pair *p = to->p;

	if (!KVT_GROW(&p->segment, p->nsegments)) {
		to->failed = true;
		return;
	}
	segment.ordinal = p->nsegments;
	p->nslots += segment.count;
	p->segment[p->nsegments++] = segment;
}

static const struct kvt_snapshot *snapshot_of(const struct diff_pair *p, int side)
{
	return kvt_dump_snapshot(p->side[side]->dump);
}

/* ---- by request and token ----------------------------------------------- */

/* The request of B that this one of A is; NULL: none. */
static const struct kvt_request *partner(const struct diff_pair *p,
					 const struct diff_alignment *how, int64_t r)
{
	int64_t other = how->partners->of[SIDE_A][r];

	return other < 0 ? NULL : &snapshot_of(p, SIDE_B)->request[other];
}

/* Of slots that only one side has, the run that is being walked. */
struct alone {
	int64_t begin, end;
};

static void note_unmatched(const struct diff_pair *p, struct diff_unmatched *unmatched,
			   int side, const struct kvt_request *q, struct alone *alone)
{
	int64_t each = p->recurrent ? 1 : p->group[side]->tokens_per_slot;

	if (alone->begin < alone->end)
		unmatched_add(unmatched, side, "%s %lld to %lld of request %.80s in %s",
			      p->recurrent ? "states" : "tokens", LL(alone->begin * each),
			      LL(alone->end * each - 1), q->id, p->group[side]->id);
	alone->begin = alone->end;
}

static void add_stretch(struct segments *to, int64_t r, int64_t at, int64_t end,
			const struct kvt_stretch has[NSIDES])
{
	const struct diff_pair *p = to->p;
	struct diff_segment segment = { .request = r, .position = at, .count = end - at };

	if (p->recurrent)
		segment.count = p->taps;
	for (int s = 0; s < NSIDES; s++) {
		segment.block[s] = has[s].block;
		segment.slot[s] = p->recurrent ? p->slots[s] - p->taps : has[s].slot;
	}
	add_segment(to, segment);
}

/* What is live on both sides is compared; what only one has is noted. */
static void add_request(struct segments *to, int64_t r, struct diff_unmatched *unmatched,
			const struct kvt_request *const q[NSIDES])
{
	const struct diff_pair *p = to->p;
	struct alone alone[NSIDES] = { { 0, 0 } };
	struct kvt_table table[NSIDES];
	struct kvt_stretch has[NSIDES];

	for (int s = 0; s < NSIDES; s++)
		table[s] = kvt_table_of(snapshot_of(p, s), p->number[s], q[s]);
	for (int64_t at = 0, end; !to->failed && at < INT64_MAX; at = end) {
		for (int s = 0; s < NSIDES; s++)
			has[s] = kvt_table_at(&table[s], at);
		end = has[SIDE_A].end < has[SIDE_B].end ? has[SIDE_A].end :
							  has[SIDE_B].end;
		if (has[SIDE_A].live && has[SIDE_B].live)
			add_stretch(to, r, at, end, has);
		for (int s = 0; s < NSIDES; s++) {
			if (has[s].live && !has[!s].live && alone[s].end == at) {
				alone[s].end = end;
				continue;
			}
			note_unmatched(p, unmatched, s, q[s], &alone[s]);
			alone[s] = (struct alone){ end, end };
			if (has[s].live && !has[!s].live)
				alone[s].begin = at;
		}
	}
}

/* The newest state of a table, and how many it has; -1: none. */
static int64_t newest_state(const struct kvt_table *table, int64_t *count)
{
	int64_t last = -1;
	struct kvt_range live;

	*count = 0;
	for (int64_t at = 0; ; at = live.end) {
		live = kvt_table_next(table, at);
		if (live.begin >= live.end)
			return last;
		last = live.end - 1;
		*count += live.end - live.begin;
	}
}

/*
 * A side may keep the newest state alone, where the other has a table with an entry for
 * each block: then the newest ones are the same, if they are of equally many tokens.
 */
static enum kvt_status add_states(struct segments *to, int64_t r,
				  struct diff_unmatched *unmatched,
				  const struct kvt_request *const q[NSIDES],
				  struct kvt_error *err)
{
	const struct diff_pair *p = to->p;
	struct kvt_stretch has[NSIDES];
	struct kvt_table table[NSIDES];
	int64_t last[NSIDES], count[NSIDES];

	for (int s = 0; s < NSIDES; s++) {
		table[s] = kvt_table_of(snapshot_of(p, s), p->number[s], q[s]);
		last[s] = newest_state(&table[s], &count[s]);
	}
	if (!count[SIDE_A] || !count[SIDE_B] || (last[SIDE_A] == last[SIDE_B] &&
						 !p->reordered) ||
	    (count[SIDE_A] > 1 && count[SIDE_B] > 1)) {
		add_request(to, r, unmatched, q);
		return KVT_OK;
	}
	if (q[SIDE_A]->ntokens != q[SIDE_B]->ntokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the newest recurrent state of request %.80s is of %lld tokens in A and of %lld in B",
				p->id, q[SIDE_A]->id, LL(q[SIDE_A]->ntokens),
				LL(q[SIDE_B]->ntokens));
	for (int s = 0; s < NSIDES; s++) {
		struct alone older = { 0, last[s] };

		if (count[s] > 1)
			note_unmatched(p, unmatched, s, q[s], &older);
		has[s] = kvt_table_at(&table[s], last[s]);
	}
	add_stretch(to, r, last[SIDE_A], last[SIDE_A] + 1, has);
	return KVT_OK;
}

static void unmatched_requests(const struct diff_pair *p,
			       struct diff_unmatched *unmatched,
			       const struct diff_alignment *how)
{
	for (int s = 0; s < NSIDES; s++) {
		const struct kvt_snapshot *in = snapshot_of(p, s);

		for (int64_t r = 0; r < in->nrequests; r++)
			if (how->partners->of[s][r] < 0)
				unmatched_add(unmatched, s, "request %.80s in %s",
					      in->request[r].id, p->group[s]->id);
	}
}

static enum kvt_status segments_by_tokens(struct segments *to,
					  const struct diff_alignment *how,
					  struct diff_unmatched *unmatched,
					  struct kvt_error *err)
{
	const struct diff_pair *p = to->p;
	const struct kvt_snapshot *a = snapshot_of(p, SIDE_A);
	const struct kvt_snapshot *b = snapshot_of(p, SIDE_B);
	enum kvt_status status;
	bool matched = false;

	for (int64_t r = 0; r < a->nrequests; r++) {
		const struct kvt_request *q[NSIDES] = { &a->request[r] };

		if (!(q[SIDE_B] = partner(p, how, r)))
			continue;
		matched = true;
		if (!p->recurrent)
			add_request(to, r, unmatched, q);
		else if ((status = add_states(to, r, unmatched, q, err)))
			return status;
	}
	unmatched_requests(p, unmatched, how);
	/* that neither needs a token of it any more is equal, too */
	if (!p->nsegments && !to->failed && (!matched || unmatched->n))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: no token of a request in common: A has '%.60s', B has '%.60s', and which is which is not certain; %s pairs them",
				p->id, a->request[0].id, b->request[0].id,
				how->partners->ask[0] ? how->partners->ask :
							"--match=A=B");
	return KVT_OK;
}

/* ---- by block ----------------------------------------------------------- */

static void add_block(struct segments *to, int64_t in_a, int64_t in_b)
{
	const struct diff_pair *p = to->p;

	add_segment(to, (struct diff_segment){
		.block = { in_a, in_b }, .request = -1, .count = p->taps,
		.slot = { p->slots[SIDE_A] - p->taps, p->slots[SIDE_B] - p->taps } });
}

struct named_block {
	const char *name;
	int64_t index;
};

static int by_name(const void *a, const void *b)
{
	const struct named_block *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : x->index < y->index ? -1 : x->index > y->index;
}

static struct named_block *blocks_by_name(const struct kvt_group *group)
{
	int64_t n = group->shape.n[KVT_AXIS_B];
	struct named_block *list = calloc((size_t)n + 1, sizeof(*list));

	for (int64_t i = 0; list && i < n; i++)
		list[i] = (struct named_block){ group->block_names[i], i };
	if (list && n)
		qsort(list, (size_t)n, sizeof(*list), by_name);
	return list;
}

/* Pages of stores are known by their keys; numbers follow from what else is there. */
static void add_named_blocks(struct segments *to)
{
	const struct kvt_group *const *group = to->p->group;
	struct named_block *list[NSIDES];
	int64_t at[NSIDES] = { 0, 0 }, n[NSIDES];

	for (int s = 0; s < NSIDES; s++) {
		n[s] = group[s]->shape.n[KVT_AXIS_B];
		list[s] = blocks_by_name(group[s]);
	}
	to->failed = !list[SIDE_A] || !list[SIDE_B];
	while (!to->failed && (at[SIDE_A] < n[SIDE_A] || at[SIDE_B] < n[SIDE_B])) {
		const struct named_block *a = list[SIDE_A] + at[SIDE_A];
		const struct named_block *b = list[SIDE_B] + at[SIDE_B];
		int order = at[SIDE_A] == n[SIDE_A] ? 1 : at[SIDE_B] == n[SIDE_B] ? -1 :
			    strcmp(a->name, b->name);

		if (!order)
			add_block(to, a->index, b->index);
		else if (!to->alone[order > 0])
			to->alone[order > 0] = order > 0 ? b->name : a->name;
		at[SIDE_A] += order <= 0;
		at[SIDE_B] += order >= 0;
	}
	free(list[SIDE_A]);
	free(list[SIDE_B]);
}

/* In the order of their ids. */
static enum kvt_status add_numbered_blocks(struct segments *to, struct kvt_error *err)
{
	const struct kvt_group *a = to->p->group[SIDE_A], *b = to->p->group[SIDE_B];
	struct id_index *list = id_index_of(b, KVT_AXIS_B);
	int64_t *in_a;
	enum kvt_status status = axis_pairs(&in_a, KVT_AXIS_B, a, b, err);

	to->failed = !list;
	for (int64_t i = 0; !status && !to->failed && i < b->shape.n[KVT_AXIS_B]; i++) {
		int64_t block = list[i].index;

		/* of ids that come twice the second is nobody's */
		if (in_a[block] >= 0 && (!i || list[i].id != list[i - 1].id))
			add_block(to, in_a[block], block);
	}
	free(list);
	free(in_a);
	return status;
}

static bool are_named(const struct diff_pair *p)
{
	return p->group[SIDE_A]->block_names && p->group[SIDE_B]->block_names;
}

static enum kvt_status add_blocks(struct segments *to, struct diff_unmatched *unmatched,
				  struct kvt_error *err)
{
	const struct diff_pair *p = to->p;
	enum kvt_status status = KVT_OK;

	if (are_named(p))
		add_named_blocks(to);
	else
		status = add_numbered_blocks(to, err);
	for (int s = 0; s < NSIDES; s++) {
		int64_t alone = p->group[s]->shape.n[KVT_AXIS_B] - p->nsegments;

		if (alone && to->alone[s])
			unmatched_add(unmatched, s, "%lld page%s of %s (%.80s%s)",
				      LL(alone), alone == 1 ? "" : "s",
				      p->group[s]->id, to->alone[s],
				      alone == 1 ? "" : ", ...");
		else if (alone)
			unmatched_add(unmatched, s, "%lld block%s of %s", LL(alone),
				      alone == 1 ? "" : "s", p->group[s]->id);
	}
	return status;
}

static enum kvt_status segments_by_blocks(struct segments *to,
					  struct diff_unmatched *unmatched,
					  struct kvt_error *err)
{
	struct diff_pair *p = to->p;
	int64_t sa = p->group[SIDE_A]->shape.n[KVT_AXIS_S];
	int64_t sb = p->group[SIDE_B]->shape.n[KVT_AXIS_S];
	const int before = unmatched->n;
	enum kvt_status status;

	if (sa != sb && !p->recurrent)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: block sizes differ, %lld slots in A and %lld in B; bring both to one with kvtool reblock, or name their requests, such as --blocks-of=A=5,2,9:40, and compare with --by=tokens",
				p->id, LL(sa), LL(sb));
	if ((status = add_blocks(to, unmatched, err)))
		return status;
	if (!p->nsegments && !to->failed && unmatched->n > before)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: no %s in common%s", p->id,
				are_named(p) ? "page of one key" : "block",
				p->recurrent && !snapshot_of(p, SIDE_A)->nrequests !=
						!snapshot_of(p, SIDE_B)->nrequests ?
				", and one side has no requests; --set tokens=N makes them of the rows of a cache of transformers" :
				"");
	return KVT_OK;
}

/* ---- states alone ------------------------------------------------------- */

/*
 * A cache of states alone does not say how many tokens it is of, and has no requests.
 * If it has one state, and the other side one request, these are the same.
 */
static bool segments_of_one(struct segments *to, struct diff_unmatched *unmatched)
{
	struct diff_pair *p = to->p;
	struct diff_segment segment = { .request = -1, .count = p->taps };
	int known = snapshot_of(p, SIDE_A)->nrequests ? SIDE_A : SIDE_B;
	const struct kvt_snapshot *in = snapshot_of(p, known);
	struct kvt_table table;
	int64_t last, count;

	if (!p->recurrent || in->nrequests != 1 || snapshot_of(p, !known)->nrequests ||
	    p->group[!known]->shape.n[KVT_AXIS_B] != 1)
		return false;
	table = kvt_table_of(in, p->number[known], &in->request[0]);
	if ((last = newest_state(&table, &count)) < 0)
		return false;
	if (count > 1)
		note_unmatched(p, unmatched, known, &in->request[0],
			       &(struct alone){ 0, last });
	segment.block[known] = kvt_table_at(&table, last).block;
	for (int s = 0; s < NSIDES; s++)
		segment.slot[s] = p->slots[s] - p->taps;
	add_segment(to, segment);
	return true;
}

/* ---- the order of reading ----------------------------------------------- */

static int in_a(const void *a, const void *b)
{
	const struct diff_segment *x = a, *y = b;

	if (x->block[SIDE_A] != y->block[SIDE_A])
		return x->block[SIDE_A] < y->block[SIDE_A] ? -1 : 1;
	return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

static int in_b(const void *a, const void *b)
{
	const struct diff_segment *x = a, *y = b;

	if (x->block[SIDE_B] != y->block[SIDE_B])
		return x->block[SIDE_B] < y->block[SIDE_B] ? -1 : 1;
	return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

static bool is_tiled(const struct diff_pair *p, int side)
{
	const struct kvt_dump *dump = p->side[side]->dump;

	return kvt_dump_tiling(kvt_dump_leaf(dump, 0),
			       kvt_dump_leaf_group(dump, 0, p->number[side])) != NULL;
}

/* Tiles are decoded whole, so their blocks are taken together. */
static bool sort_segments(struct diff_pair *p)
{
	bool by_b = is_tiled(p, SIDE_B) && !is_tiled(p, SIDE_A);
	int64_t before = 0;

	for (int64_t i = 0; i < p->nsegments; i++) {	/* by ordinal as yet */
		p->segment[i].before = before;
		before += p->segment[i].count;
	}
	if (p->nsegments)
		qsort(p->segment, (size_t)p->nsegments, sizeof(*p->segment),
		      by_b ? in_b : in_a);
	p->ordered = calloc((size_t)p->nsegments + 1, sizeof(*p->ordered));
	if (!p->ordered)
		return false;
	for (int64_t i = 0; i < p->nsegments; i++) {
		struct diff_segment *segment = &p->segment[i];

		p->ordered[segment->ordinal] = i;
		for (int s = 0; s < NSIDES; s++)
			segment->at[s] = !i ? 0 : segment[-1].at[s] +
				      (segment[-1].block[s] != segment->block[s]);
	}
	return true;
}

static bool has_tokens(const struct diff_pair *p, int side)
{
	const struct kvt_snapshot *s = snapshot_of(p, side);

	for (int64_t r = 0; r < s->nrequests; r++)
		if (s->request[r].ntokens)
			return true;
	return false;
}

enum kvt_status pair_segments(struct diff_pair *p, const struct diff_alignment *how,
			      struct diff_unmatched *unmatched, struct kvt_error *err)
{
	struct segments to = { .p = p };
	enum kvt_status status;

	p->by_tokens = how->by != BY_BLOCKS;
	for (int s = 0; s < NSIDES; s++) {
		bool tables = snapshot_of(p, s)->nrequests > 0;

		if (!tables && how->by == BY_TOKENS)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s has no block tables, so its tokens are not known",
					p->side[s]->name);
		p->by_tokens &= tables;
	}
	/* requests that have nothing are no reason to look at nothing */
	if (how->by == BY_AUTO && !has_tokens(p, SIDE_A) && !has_tokens(p, SIDE_B))
		p->by_tokens = false;
	if (how->by == BY_AUTO && segments_of_one(&to, unmatched))
		status = KVT_OK;
	else
		status = p->by_tokens ? segments_by_tokens(&to, how, unmatched, err) :
					segments_by_blocks(&to, unmatched, err);
	if (status)
		return status;
	if (to.failed || !sort_segments(p))
		return kvt_no_memory(err, NULL);
	return KVT_OK;
}
