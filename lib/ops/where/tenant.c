/* SPDX-License-Identifier: Apache-2.0 */
/* tenant.c - which tokens of which requests are in a state of a block */
#include "lib/ops/where/where.h"

bool where_table_is_whole(const struct kvt_snapshot *s, int group,
			  const struct kvt_request *request)
{
	int64_t size = s->group[group].block_size;

	/* of a sliding window, or of states, there may be the last ones only */
	return size > 0 && request->ntokens > 0 &&
	       (kvt_request_skip(request, &s->group[group]) + request->ntokens - 1) /
	       size < request->nblocks[group];
}

/* One state stands for all tokens so far: of how many, at this entry? */
static int64_t seen_at(const struct kvt_snapshot *s, int group,
		       const struct kvt_request *request, int64_t entry)
{
	int64_t size = s->group[group].block_size, n = request->nblocks[group];

	if (n == 1)
		return request->ntokens;
	if (!where_table_is_whole(s, group, request))
		return -1;
	if (request->ntokens / size <= entry)
		return request->ntokens;
	return (entry + 1) * size;
}

/* False if the entry's state is behind the last token. */
static bool tenant_of(struct tenant *out, const struct kvt_snapshot *s,
		      const struct kvt_place *place,
		      const struct kvt_request *request, int64_t entry)
{
	const struct kvt_group *group = &s->group[place->group];
	const struct kvt_table t = kvt_table_of(s, place->group, request);
	int64_t each = group->tokens_per_state, left, end, at;

	*out = (struct tenant){ request, -1, -1, -1 };
	if (each < 1) {
		out->seen = seen_at(s, place->group, request, entry);
		return true;
	}
	/* blocks may be reserved for more tokens than there are */
	if (kvt_entry_is_spare(&t, entry))
		return false;
	end = request->first_token + request->ntokens;
	at = ((t.first + entry) * t.each + place->index[KVT_AXIS_S]) * each;
	left = end - at;
	if (left <= 0 || at < request->first_token)
		return false;
	out->token = at;
	out->ntokens = left < each ? left : each;
	return true;
}

bool where_next_tenant(struct tenant *out, struct tenancy *at,
		       const struct kvt_snapshot *s, const struct kvt_place *place)
{
	int64_t block = place->index[KVT_AXIS_B];

	for (; at->request < s->nrequests; at->request++, at->entry = 0) {
		const struct kvt_request *request = &s->request[at->request];

		while (at->entry < request->nblocks[place->group]) {
			int64_t entry = at->entry++;

			if (request->blocks[place->group][entry] == block &&
			    tenant_of(out, s, place, request, entry))
				return true;
		}
	}
	return false;
}

/* Tables say it all: what none of them needs is stale, though one may name it. */
static enum holding forgetful_holds(const struct kvt_snapshot *s,
				    const struct kvt_place *place)
{
	int64_t block = place->index[KVT_AXIS_B], state = place->index[KVT_AXIS_S];
	bool any = false;

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(s, place->group, &s->request[r]);

		any |= t.nblocks > 0;
		for (int64_t i = 0; i < t.nblocks; i++)
			if (t.blocks[i] == block &&
			    kvt_table_needs(&t, (t.first + i) * t.each + state))
				return HOLDS_LIVE;
	}
	return any ? HOLDS_STALE : HOLDS_UNKNOWN;
}

enum holding where_holds(const struct kvt_snapshot *s, const struct kvt_place *place)
{
	const struct kvt_group *group = &s->group[place->group];
	int64_t block = place->index[KVT_AXIS_B];
	struct tenancy at = { 0, 0 };
	bool unsure = true;
	struct tenant t;

	if (block == kvt_null_block(s, place->group))
		return HOLDS_NULL;
	if (kvt_group_forgets(s, place->group) && group->tokens_per_state > 0)
		return forgetful_holds(s, place);
	for (int64_t r = 0; r < s->nrequests; r++)
		unsure &= !s->request[r].nblocks[place->group];
	while (where_next_tenant(&t, &at, s, place)) {
		if (t.token >= 0 || group->tokens_per_state < 1)
			return HOLDS_LIVE;
		unsure = true;
	}
	if (group->block_valid)
		return place->index[KVT_AXIS_S] < group->block_valid[block] ?
		       HOLDS_LIVE : HOLDS_STALE;
	return unsure ? HOLDS_UNKNOWN : HOLDS_STALE;
}

const char *where_holding_name(enum holding holding)
{
	static const char *const names[] = {
		[HOLDS_UNKNOWN] = "unknown", [HOLDS_LIVE] = "live",
		[HOLDS_STALE] = "stale", [HOLDS_NULL] = "null",
	};

	return names[holding];
}
