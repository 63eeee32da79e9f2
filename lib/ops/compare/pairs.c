/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.c - which element of one dump is which of another: pairs.h
 *
 * Of an axis: ids of A are sorted, those of B looked up.  Of slots: by ids of layers and
 * blocks, or by request and token, a slot of B at a time.  A place that several of one
 * side could mean has the first of them.
 */
#include "lib/ops/compare/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "lib/snapshot/ids.h"

uint64_t element_id(const struct kvt_group *group, enum kvt_axis axis, int64_t i)
{
	switch (axis) {
	case KVT_AXIS_L:
		return kvt_layer_id(group, i);
	case KVT_AXIS_B:
		return kvt_block_id(group, i);
	case KVT_AXIS_H:
		return (uint64_t)(group->head_start + i);
	default:
		return group->kind == KVT_MAMBA_CONV ? kvt_head_id(group, i) :
						       (uint64_t)i;
	}
}

const struct kvt_request *request_at(int64_t *token, struct pairs_side side,
				     int64_t block, int64_t slot)
{
	int64_t per = pairs_group(side)->tokens_per_slot;

	for (int64_t r = 0; r < side.snapshot->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(side.snapshot, side.group,
							&side.snapshot->request[r]);

		for (int64_t i = 0; i < t.nblocks; i++)
			if (t.blocks[i] == block) {
				*token = per < 1 ? i :
					 ((t.first + i) * t.each + slot) * per;
				return t.request;
			}
	}
	return NULL;
}

/* Part of the channels of a conv state; NULL: none has it. */
static const struct kvt_component *part_of(const struct kvt_group *g, int64_t d)
{
	return g->kind == KVT_MAMBA_CONV ? kvt_group_component(g, d) : NULL;
}

/* Equal numbers are the same channel only in the same part. */
static bool same_part(const struct kvt_group *a, int64_t i, const struct kvt_group *b,
		      int64_t j)
{
	const struct kvt_component *x = part_of(a, i), *y = part_of(b, j);

	return x && y ? !strcmp(x->name, y->name) : !x && !y;
}

enum kvt_status axis_pairs(int64_t **out, enum kvt_axis axis, const struct kvt_group *a,
			   const struct kvt_group *b, struct kvt_error *err)
{
	int64_t na = a->shape.n[axis], nb = b->shape.n[axis];
	struct id_index *known = calloc((size_t)na + 1, sizeof(*known));
	int64_t *map = calloc((size_t)nb + 1, sizeof(*map));

	*out = map;
	if (!known || !map) {
		free(known);
		return kvt_no_memory(err, NULL);
	}
	for (int64_t i = 0; i < na; i++)
		known[i] = (struct id_index){ element_id(a, axis, i), i };
	id_index_sort(known, na);
	for (int64_t i = 0; i < nb; i++) {
		uint64_t id = element_id(b, axis, i);
		const struct id_index *found = id_index_find(known, na, id);

		map[i] = -1;
		while (found && found > known && found[-1].id == id)
			found--;
		for (; found && found < known + na && found->id == id; found++)
			if (axis != KVT_AXIS_D || same_part(a, found->index, b, i)) {
				map[i] = found->index;
				break;
			}
	}
	free(known);
	return KVT_OK;
}

static bool any_in(const int64_t *map, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (!map || map[i] >= 0)
			return true;
	return false;
}

/* ---- slots: by ids ------------------------------------------------------- */

enum kvt_status slot_pairs_by_ids(struct slot_pairs *out, struct pairs_side a,
				  struct pairs_side b, struct kvt_error *err)
{
	const struct kvt_group *ga = pairs_group(a), *gb = pairs_group(b);
	enum kvt_status status;

	*out = (struct slot_pairs){ .layer = NULL };
	if (ga->shape.n[KVT_AXIS_S] != gb->shape.n[KVT_AXIS_S])
		return kvt_fail(err, KVT_BAD_INPUT,
				"groups %s and %s hold slots of another shape or type",
				ga->id, gb->id);
	if ((status = axis_pairs(&out->layer, KVT_AXIS_L, ga, gb, err)) ||
	    (status = axis_pairs(&out->block, KVT_AXIS_B, ga, gb, err)))
		slot_pairs_free(out);
	return status;
}

bool slot_pairs_any(const struct slot_pairs *pairs, struct pairs_side b)
{
	const int64_t *n = pairs_group(b)->shape.n;

	return any_in(pairs->layer, n[KVT_AXIS_L]) &&
	       (pairs->block ? any_in(pairs->block, n[KVT_AXIS_B]) : pairs->span.n > 0);
}

void slot_pairs_free(struct slot_pairs *pairs)
{
	free(pairs->layer);
	free(pairs->block);
	span_list_free(&pairs->span);
	*pairs = (struct slot_pairs){ .layer = NULL };
}

struct target_span *slot_pairs_in(int64_t *n, const struct slot_pairs *pairs,
				  const struct kvt_box *box)
{
	int64_t begin = box->begin[KVT_AXIS_B], end = box->end[KVT_AXIS_B];
	struct target_span *out;

	if (!pairs->block)
		return span_list_of(n, &pairs->span, box);
	*n = 0;
	if (!(out = malloc(((size_t)(end - begin) + 1) * sizeof(*out))))
		return NULL;
	for (int64_t b = begin; b < end; b++)
		if (pairs->block[b] >= 0)
			out[(*n)++] = (struct target_span){
				{ (uint32_t)pairs->block[b], 0, 0,
				  (uint32_t)(box->end[KVT_AXIS_S] -
					     box->begin[KVT_AXIS_S]) }, b,
			};
	return out;
}

/* ---- slots: by tokens ---------------------------------------------------- */

/* Slots from 'begin' on, of both tables; neither has a border within a span. */
static enum kvt_status pair_slots(struct span_list *out, const struct kvt_table *a,
				  const struct kvt_table *b, int64_t begin, int64_t end,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t i = begin, n; !status && i < end; i += n) {
		int64_t x = i - a->first * a->each, y = i - b->first * b->each;
		struct target_span w;

		if (x < 0 || y < 0 || x / a->each >= a->nblocks ||
		    y / b->each >= b->nblocks)
			return kvt_fail(err, KVT_MISMATCH,
					"%s: request %s: slot %lld has no block",
					b->group->id, b->request->id, LL(i));
		n = a->each - x % a->each;
		n = n < b->each - y % b->each ? n : b->each - y % b->each;
		n = n < end - i ? n : end - i;
		w = (struct target_span){
			{ a->blocks[x / a->each], (uint32_t)(x % a->each),
			  (uint32_t)(y % b->each), (uint32_t)n },
			b->blocks[y / b->each],
		};
		status = span_list_add(out, &w, err);
	}
	return status;
}

/* Null blocks: no token has its slot there. */
static bool both_null(const struct kvt_table *a, int64_t x, const struct kvt_table *b,
		      int64_t y)
{
	return a->null_block >= 0 && b->null_block >= 0 && x == a->null_block &&
	       y == b->null_block;
}

/* A block of a recurrent group is one state; engines move the last one. */
static enum kvt_status pair_recurrent(struct span_list *out, const struct kvt_table *a,
				      const struct kvt_table *b,
				      const struct token_choice *choice,
				      struct kvt_error *err)
{
	struct target_span w = {
		.span.count = (uint32_t)b->group->shape.n[KVT_AXIS_S],
	};
	int64_t n = a->nblocks, m = b->nblocks;
	bool all = choice->all_states && n == m;
	enum kvt_status status = KVT_OK;

	if (!n || !m)
		return KVT_OK;
	for (int64_t i = all ? 0 : n - 1; !status && i < n; i++) {
		w.span.block = a->blocks[i];
		w.to = b->blocks[all ? i : m - 1];
		if (!choice->named || !both_null(a, w.span.block, b, w.to))
			status = span_list_add(out, &w, err);
	}
	return status;
}

/* Whole tables, but for null blocks, in which no token has its slot. */
static enum kvt_status pair_named(struct span_list *out, const struct kvt_table *a,
				  const struct kvt_table *b, struct kvt_error *err)
{
	int64_t at = a->first * a->each, end = a->slots.end;
	enum kvt_status status = KVT_OK;

	for (int64_t next; !status && at < end; at = next) {
		int64_t x = at / a->each - a->first, y = at / b->each - b->first;
		int64_t stop = (at / b->each + 1) * b->each;

		next = (at / a->each + 1) * a->each;
		next = next < stop ? next : stop;
		next = next < end ? next : end;
		if (x < 0 || y < 0 || x >= a->nblocks || y >= b->nblocks ||
		    !both_null(a, a->blocks[x], b, b->blocks[y]))
			status = pair_slots(out, a, b, at, next, err);
	}
	return status;
}

static enum kvt_status pair_live(struct span_list *out, const struct kvt_table *a,
				 const struct kvt_table *b,
				 const struct token_choice *choice, struct kvt_error *err)
{
	const struct kvt_request *request = a->request;
	int64_t per = b->group->tokens_per_slot,
	room = (b->first + b->nblocks) * b->each;
	int64_t cached = choice->cached < request->ntokens ? choice->cached :
							     request->ntokens;
	enum kvt_status status = KVT_OK;
	struct kvt_range live;

	for (int64_t at = (request->first_token + cached) / per; !status; at = live.end) {
		int64_t end;

		live = kvt_table_next(a, at);
		if (live.begin == live.end)
			break;
		end = live.end;
		if (choice->whole && end == a->slots.end) {
			end = (end + a->each - 1) / a->each * a->each;
			end = end < room ? end : room;
		}
		status = pair_slots(out, a, b, live.begin, end, err);
	}
	return status;
}

enum kvt_status slot_pairs_by_tokens(struct slot_pairs *out, struct pairs_side a,
				     struct pairs_side b,
				     const struct token_choice *choice,
				     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct slot_pairs){ .layer = NULL };
	for (int64_t i = 0; !status && i < a.snapshot->nrequests; i++) {
		const struct kvt_request *from = &a.snapshot->request[i];
		const struct kvt_request *to = kvt_request_named(b.snapshot, from->id);
		struct kvt_table src, dst;

		if (!to || (choice->request && strcmp(choice->request, from->id)))
			continue;
		src = kvt_table_of(a.snapshot, a.group, from);
		dst = kvt_table_of(b.snapshot, b.group, to);
		if (src.group->tokens_per_slot < 1)
			status = pair_recurrent(&out->span, &src, &dst, choice, err);
		else if (choice->named)
			status = pair_named(&out->span, &src, &dst, err);
		else
			status = pair_live(&out->span, &src, &dst, choice, err);
	}
	span_list_sort(&out->span);
	if (status)
		slot_pairs_free(out);
	return status;
}

/* ---- slots: pools -------------------------------------------------------- */

enum kvt_status slot_pairs_of_pools(struct slot_pairs *out, struct pairs_side a,
				    struct pairs_side b, struct kvt_error *err)
{
	const int64_t *na = pairs_group(a)->shape.n, *nb = pairs_group(b)->shape.n;
	int64_t each = na[KVT_AXIS_S], size = nb[KVT_AXIS_S];
	int64_t end = na[KVT_AXIS_B] * each, room = nb[KVT_AXIS_B] * size;
	enum kvt_status status = KVT_OK;

	*out = (struct slot_pairs){ .layer = NULL };
	for (int64_t i = 0, n; !status && i < end && i < room; i += n) {
		n = each - i % each < size - i % size ? each - i % each : size - i % size;
		status = span_list_add(&out->span, &(struct target_span){
			{ (uint32_t)(i / each), (uint32_t)(i % each),
			  (uint32_t)(i % size), (uint32_t)n }, i / size,
		}, err);
	}
	if (status)
		slot_pairs_free(out);
	return status;
}

/* ---- slots: the rest ----------------------------------------------------- */

/* Raises in 'in' [B * S] the slots that the pairs have. */
static void mark(uint8_t *in, const struct slot_pairs *pairs, const int64_t *n)
{
	int64_t slots = n[KVT_AXIS_S];

	for (int64_t b = 0; pairs->block && b < n[KVT_AXIS_B]; b++)
		if (pairs->block[b] >= 0)
			memset(in + b * slots, 1, (size_t)slots);
	for (int64_t i = 0; i < pairs->span.n; i++)
		memset(in + pairs->span.at[i].to * slots + pairs->span.at[i].span.at, 1,
		       pairs->span.at[i].span.count);
}

enum kvt_status slot_pairs_rest(struct slot_pairs *out, struct pairs_side b,
				const struct slot_pairs *other, struct kvt_error *err)
{
	const int64_t *n = pairs_group(b)->shape.n, slots = n[KVT_AXIS_S];
	uint8_t *in = calloc((size_t)(n[KVT_AXIS_B] * slots) + 1, 1);
	enum kvt_status status = KVT_OK;

	*out = (struct slot_pairs){ .layer = NULL };
	if (!in)
		return kvt_no_memory(err, NULL);
	mark(in, other, n);
	for (int64_t block = 0; !status && block < n[KVT_AXIS_B]; block++)
		for (int64_t s = 0, end; !status && s < slots; s = end) {
			const uint8_t *at = in + block * slots;

			for (end = s + 1; end < slots && at[end] == at[s]; )
				end++;
			if (at[s])
				continue;
			status = span_list_add(&out->span, &(struct target_span){
				{ (uint32_t)block, (uint32_t)s, (uint32_t)s,
				  (uint32_t)(end - s) }, block,
			}, err);
		}
	free(in);
	if (status)
		slot_pairs_free(out);
	return status;
}

/* ---- heads --------------------------------------------------------------- */

/* Channels of equal parts are the same ones, even where no part has them. */
static bool same_parts(const struct kvt_group *a, const struct kvt_group *b)
{
	if (a->shape.n[KVT_AXIS_D] != b->shape.n[KVT_AXIS_D] ||
	    a->ncomponents != b->ncomponents)
		return false;
	for (int i = 0; i < a->ncomponents; i++) {
		const struct kvt_component *x = &a->component[i], *y = &b->component[i];

		if (strcmp(x->name, y->name) || x->start != y->start ||
		    x->length != y->length || x->global_start != y->global_start)
			return false;
	}
	return true;
}

/* Of keys and values B may hold one half only. */
static bool same_kv(int *first, const struct kvt_group *a, const struct kvt_group *b)
{
	int half = kvt_group_half(b);

	*first = 0;
	if (a->shape.n[KVT_AXIS_K] == b->shape.n[KVT_AXIS_K])
		return half == kvt_group_half(a);
	*first = half;
	return half >= 0 && a->shape.n[KVT_AXIS_K] == 2;
}

enum kvt_status head_pairs_init(struct head_pairs *out, const struct kvt_group *a,
				const struct kvt_group *b, struct kvt_error *err)
{
	int64_t nd = b->shape.n[KVT_AXIS_D];
	enum kvt_status status;

	*out = (struct head_pairs){ .first_kv = 0 };
	if (a->dtype != b->dtype || !same_kv(&out->first_kv, a, b) ||
	    !kvt_group_same_state(a, b))
		return kvt_fail(err, KVT_BAD_INPUT,
				"groups %s and %s hold slots of another shape or type",
				a->id, b->id);
	if ((status = axis_pairs(&out->head, KVT_AXIS_H, a, b, err)) ||
	    (status = axis_pairs(&out->channel, KVT_AXIS_D, a, b, err))) {
		head_pairs_free(out);
		return status;
	}
	for (int64_t d = 0; d < nd && same_parts(a, b); d++)
		out->channel[d] = d;
	out->same_channels = a->shape.n[KVT_AXIS_D] == nd;
	for (int64_t d = 0; d < nd; d++)
		out->same_channels &= out->channel[d] == d;
	return KVT_OK;
}

bool head_pairs_any(const struct head_pairs *pairs, const struct kvt_group *b)
{
	return any_in(pairs->head, b->shape.n[KVT_AXIS_H]) &&
	       any_in(pairs->channel, b->shape.n[KVT_AXIS_D]);
}

void head_pairs_without(struct head_pairs *pairs, const struct head_pairs *other,
			const struct kvt_group *b)
{
	bool conv = b->kind == KVT_MAMBA_CONV;
	int64_t *mine = conv ? pairs->channel : pairs->head;
	const int64_t *theirs = conv ? other->channel : other->head;

	for (int64_t i = 0; i < b->shape.n[conv ? KVT_AXIS_D : KVT_AXIS_H]; i++)
		if (theirs[i] >= 0)
			mine[i] = -1;
	for (int64_t d = 0; d < b->shape.n[KVT_AXIS_D]; d++)
		pairs->same_channels &= pairs->channel[d] == d;
}

void head_pairs_free(struct head_pairs *pairs)
{
	free(pairs->head);
	free(pairs->channel);
	*pairs = (struct head_pairs){ .first_kv = 0 };
}
