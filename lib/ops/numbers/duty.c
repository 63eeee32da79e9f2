/* SPDX-License-Identifier: Apache-2.0 */
/*
 * duty.c - whose is a slot: what the tables say of it
 *
 * Where they say nothing, nothing is expected.  A slot of several tokens, and each row
 * of a page, is written when the last of its tokens is.
 */
#include "lib/ops/numbers/duty.h"

#include <stdlib.h>

/*
 * Slots before the first token of all that have the block belong to no request; nor
 * does what a state that no token has reached yet holds.
 */
static void use_block(struct duties *d, const struct kvt_table *t, int64_t i)
{
	const struct kvt_group *group = d->group;
	uint32_t *used = &d->used[t->blocks[i]], before = 0;

	if (group->tokens_per_slot < 1)
		before = kvt_entry_is_spare(t, i) ? UINT32_MAX - 1 : 0;
	else if (!i)
		before = (uint32_t)(kvt_request_skip(t->request, group) /
				    group->tokens_per_slot);
	if (!*used || before + 1 < *used)
		*used = before + 1;
}

static bool mark_used(struct duties *d)
{
	const struct kvt_snapshot *s = d->snapshot;
	bool any = false;

	for (int64_t r = 0; r < s->nrequests; r++)
		any |= s->request[r].nblocks[d->g] > 0;
	if (!any)
		return true;
	d->used = calloc((size_t)d->group->shape.n[KVT_AXIS_B] + 1, sizeof(*d->used));
	for (int64_t r = 0; d->used && r < s->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(s, d->g, &s->request[r]);

		for (int64_t i = 0; i < t.nblocks; i++)
			use_block(d, &t, i);
	}
	return d->used != NULL;
}

/* Each leaves its own bytes in a block that another one gets. */
static bool is_overlaid(const struct kvt_snapshot *s, int g)
{
	for (int i = 0; i < s->ngroups; i++)
		if (i != g && kvt_groups_share(&s->group[i], &s->group[g]))
			return true;
	return false;
}

static bool mark_live(struct duties *d)
{
	if (d->group->tokens_per_slot < 1 || !d->used ||
	    !kvt_group_forgets(d->snapshot, d->g))
		return true;
	d->live = kvt_live_slots(d->snapshot, d->g);
	return d->live != NULL;
}

/* How many tokens of each slot there are; the most, where requests share it. */
static bool count_tokens(struct duties *d)
{
	const struct kvt_snapshot *s = d->snapshot;
	const int64_t *n = d->group->shape.n, each = d->group->tokens_per_slot;

	if (each < 2 || !d->used)
		return true;
	d->tokens = calloc((size_t)(n[KVT_AXIS_B] * n[KVT_AXIS_S]) + 1,
			   sizeof(*d->tokens));
	for (int64_t r = 0; d->tokens && r < s->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(s, d->g, &s->request[r]);
		int64_t end = t.request->first_token + t.request->ntokens;

		for (int64_t at = t.slots.begin; at < t.slots.end; at++) {
			int64_t block = t.blocks[at / t.each - t.first];
			int64_t there = end - at * each < each ? end - at * each : each;
			uint32_t *tokens = &d->tokens[block * n[KVT_AXIS_S] +
						      at % t.each];

			if (there > *tokens)
				*tokens = (uint32_t)there;
		}
	}
	return d->tokens != NULL;
}

bool duties_init(struct duties *d, const struct kvt_snapshot *s, int g)
{
	*d = (struct duties){ .snapshot = s, .group = &s->group[g], .g = g,
			      .overlaid = is_overlaid(s, g) };
	return mark_used(d) && mark_live(d) && count_tokens(d);
}

void duties_free(struct duties *d)
{
	free(d->used);
	free(d->live);
	free(d->tokens);
}

bool duties_known(const struct duties *d)
{
	return d->group->block_valid || d->live ||
	       (d->used && d->group->tokens_per_slot < 1);
}

/*
 * Of a recurrent group it is the block that counts.  What a window has passed is
 * left as it was.
 */
enum kvt_duty duty_of(const struct duties *d, int64_t block, int64_t slot)
{
	const struct kvt_group *group = d->group;

	if (block == kvt_null_block(d->snapshot, d->g))
		return KVT_DUTY_NULL;
	if (d->used && d->used[block] && slot < (int64_t)d->used[block] - 1)
		return KVT_DUTY_LEFT;
	if (d->live && d->used[block])
		return d->live[block * group->shape.n[KVT_AXIS_S] + slot] ?
		       KVT_DUTY_LIVE : KVT_DUTY_LEFT;
	if (group->block_valid)
		return slot < group->block_valid[block] ? KVT_DUTY_LIVE : KVT_DUTY_STALE;
	if (!d->used)
		return KVT_DUTY_UNKNOWN;
	if (!d->used[block])
		return KVT_DUTY_STALE;
	return group->tokens_per_slot < 1 ? KVT_DUTY_LIVE : KVT_DUTY_UNKNOWN;
}

bool duty_is_full(const struct duties *d, const struct kvt_numbers *n, int64_t block,
		  int64_t slot, int64_t row)
{
	const struct kvt_packing *p = &n->packing;
	int64_t each = d->group->tokens_per_slot, before = 0;

	if (!d->tokens || !d->used[block])
		return true;
	if (d->group->content.type && p->rows > 1) {
		before = row % (p->rows / p->heads) * p->row_tokens;
		each = p->row_tokens;
	}
	return before + each <= d->tokens[block * d->group->shape.n[KVT_AXIS_S] + slot];
}
