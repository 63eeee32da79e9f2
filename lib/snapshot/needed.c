/* SPDX-License-Identifier: Apache-2.0 */
/*
 * needed.c - which slots of a request are needed, by its table and its group's kind
 *
 *	tokens	first_token ........... first_token + ntokens
 *	slots	[dead][live ...........]	of the blocks in its table, in order
 *		null blocks and holes are not there
 *
 * In: a request, its table in a group, the kind's rule (lib/layout/live.c).  Out: ranges
 * of slots that something still needs, with the block and slot of each.  A table of a
 * group that forgets may have its last blocks alone: then it is read from its end.
 */
#include "lib/kvt/snapshot.h"

#include <stdlib.h>

struct kvt_retention kvt_group_retention(const struct kvt_group *group,
					 const struct kvt_request *request)
{
	return (struct kvt_retention){
		.kind = group->kind, .window = group->window,
		.retained = group->retained, .prompt = request->prompt_tokens,
	};
}

bool kvt_table_may_end(const struct kvt_group *group)
{
	return group->window > 0 && group->kind != KVT_RSWA;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t divide_up(int64_t n, int64_t by)
{
	return n / by + (n % by != 0);
}

/* Blocks may be any size where there is no data to bound them. */
static int64_t times(int64_t n, int64_t each)
{
	int64_t product;

	return __builtin_mul_overflow(n, each, &product) ? INT64_MAX : product;
}

/* What the table has room for, when its first entry is that of block t->first. */
static void place_tokens(struct kvt_table *t, const struct kvt_request *request)
{
	int64_t per = t->group->tokens_per_slot;
	int64_t end = request->first_token + request->ntokens;

	t->slots.begin = request->first_token / per;
	if (t->slots.begin < times(t->first, t->each))
		t->slots.begin = times(t->first, t->each);
	t->slots.end = least(divide_up(end, per), times(t->first + t->nblocks, t->each));
}

struct kvt_table kvt_table_named(const struct kvt_snapshot *snapshot, int group,
				 const struct kvt_request *request)
{
	struct kvt_table t = {
		.group = &snapshot->group[group], .request = request, .number = group,
		.blocks = request->blocks[group],
		.nblocks = request->nblocks[group], .each = 1, .null_block = -1,
	};

	t.slots.end = t.nblocks;
	if (t.group->tokens_per_slot > 0) {
		t.each = t.group->shape.n[KVT_AXIS_S];
		t.first = request->first_token / t.group->block_size;
		place_tokens(&t, request);
	}
	return t;
}

/* Of a recurrent group no state is dead that is not in the null block. */
struct kvt_table kvt_table_of(const struct kvt_snapshot *snapshot, int group,
			      const struct kvt_request *request)
{
	struct kvt_table t = kvt_table_named(snapshot, group, request);
	const struct kvt_retention keep = kvt_group_retention(t.group, request);
	int64_t per = t.group->tokens_per_slot, missing;
	int64_t end = request->first_token + request->ntokens;
	struct kvt_range dead;

	t.null_block = kvt_null_block(snapshot, group);
	if (per < 1)
		return t;
	missing = divide_up(end, t.group->block_size) - t.first - t.nblocks;
	if (missing > 0 && t.nblocks && kvt_table_may_end(t.group)) {
		t.first += missing;
		place_tokens(&t, request);
	}
	dead = kvt_dead_tokens(&keep, end);
	/* a slot that a live token is in is live */
	t.dead = (struct kvt_range){ divide_up(dead.begin, per), dead.end / per };
	return t;
}

/* The tokens of slots in [begin, end), of which the last may stand for more to come. */
static struct kvt_range live_in(const struct kvt_table *t, int64_t begin, int64_t end)
{
	int64_t per = t->group->tokens_per_slot;
	int64_t last = t->request->first_token + t->request->ntokens;

	return kvt_request_live(t->request, t->number, begin * per,
				least(end * per, last));
}

bool kvt_table_lacks(const struct kvt_table *t, int64_t at)
{
	int64_t per = t->group->tokens_per_slot;
	struct kvt_range live;

	if (!t->request->nholes || per < 1)
		return false;
	live = live_in(t, at, at + 1);
	return live.begin == live.end;
}

/* Slots from 'at' on that are all in holes, or all not, end before 'end'. */
static int64_t end_of_hole(const struct kvt_table *t, int64_t at, int64_t end)
{
	int64_t per = t->group->tokens_per_slot;
	struct kvt_range live;

	if (!t->request->nholes || per < 1)
		return end;
	live = live_in(t, at, end);
	if (live.begin / per > at)
		return live.begin / per;
	return least(end, divide_up(live.end, per));
}

struct kvt_stretch kvt_table_at(const struct kvt_table *t, int64_t at)
{
	struct kvt_stretch s = { .begin = at, .end = t->slots.begin, .block = -1,
				 .slot = -1 };
	int64_t entry;

	if (at < t->slots.begin)
		return s;
	s.end = INT64_MAX;
	if (at >= t->slots.end)
		return s;
	entry = at / t->each - t->first;
	s.end = least(times(at / t->each + 1, t->each), t->slots.end);
	s.block = t->blocks[entry];
	s.slot = at % t->each;
	s.live = s.block != t->null_block && kvt_table_needs(t, at);
	if (at < t->dead.begin)
		s.end = least(s.end, t->dead.begin);
	else if (at < t->dead.end)
		s.end = least(s.end, t->dead.end);
	s.end = end_of_hole(t, at, s.end);
	return s;
}

struct kvt_range kvt_table_next(const struct kvt_table *t, int64_t at)
{
	struct kvt_stretch s = kvt_table_at(t, at);
	struct kvt_range live;

	while (!s.live && s.end < INT64_MAX)
		s = kvt_table_at(t, s.end);
	live.begin = live.end = s.begin;
	for (; s.live; s = kvt_table_at(t, s.end))
		live.end = s.end;
	return live;
}

bool kvt_entry_needed(const struct kvt_table *t, int64_t entry)
{
	struct kvt_table named = *t;
	int64_t begin = times(t->first + entry, t->each);
	int64_t end = times(t->first + entry + 1, t->each);

	named.null_block = -1;
	for (struct kvt_stretch s; begin < end; begin = s.end) {
		s = kvt_table_at(&named, begin);
		if (s.live)
			return true;
	}
	return false;
}

bool kvt_entry_may_be_null(const struct kvt_table *t, int64_t entry,
			   const struct kvt_request *request)
{
	const struct kvt_retention keep = kvt_group_retention(t->group, request);
	bool known = keep.window && (keep.kind != KVT_RSWA || keep.prompt);

	if (!kvt_entry_needed(t, entry))
		return true;
	/* the newest is needed in any case */
	return (t->group->tokens_per_slot < 1 ||
		(kvt_retention_forgets(&keep) && !known)) &&
	       times(t->first + entry + 1, t->each) < t->slots.end;
}

bool kvt_entry_is_spare(const struct kvt_table *t, int64_t entry)
{
	return times(t->first + entry, t->each) >= t->slots.end;
}

static bool names_null(const struct kvt_snapshot *snapshot, int group)
{
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(snapshot, group,
							&snapshot->request[r]);

		for (int64_t i = 0; t.null_block >= 0 && i < t.nblocks; i++)
			if (t.blocks[i] == t.null_block && !kvt_entry_is_spare(&t, i))
				return true;
	}
	return false;
}

bool kvt_group_forgets(const struct kvt_snapshot *snapshot, int group)
{
	const struct kvt_request nobody = { .ntokens = 0 };
	const struct kvt_retention keep =
		kvt_group_retention(&snapshot->group[group], &nobody);

	for (int64_t r = 0; r < snapshot->nrequests; r++)
		if (kvt_request_missing(&snapshot->request[r], group))
			return true;
	return kvt_retention_forgets(&keep) || names_null(snapshot, group);
}

bool *kvt_live_slots(const struct kvt_snapshot *snapshot, int group)
{
	const int64_t *n = snapshot->group[group].shape.n;
	const int64_t slots = n[KVT_AXIS_S], all = times(n[KVT_AXIS_B], slots);
	bool *live = all < INT64_MAX ? calloc((size_t)all + 1, sizeof(*live)) : NULL;

	for (int64_t r = 0; live && r < snapshot->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(snapshot, group,
							&snapshot->request[r]);
		struct kvt_stretch s;

		for (int64_t at = t.slots.begin; at < t.slots.end; at = s.end) {
			int64_t count = slots;		/* the taps of one slot */

			s = kvt_table_at(&t, at);
			if (t.group->tokens_per_slot > 0)
				count = s.end - s.begin;
			for (int64_t i = 0; s.live && i < count; i++)
				live[s.block * slots + s.slot + i] = true;
		}
	}
	return live;
}

bool kvt_table_is_whole(const struct kvt_snapshot *s, int group,
			const struct kvt_request *request)
{
	int64_t size = s->group[group].block_size;

	/* of a sliding window, or of states, there may be the last ones only */
	return size > 0 && request->ntokens > 0 &&
	       (kvt_request_skip(request, &s->group[group]) + request->ntokens - 1) /
	       size < request->nblocks[group];
}
