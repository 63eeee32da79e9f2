/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.c - the blocks of a request in the order of its tokens, as a dump
 *
 * In: a group, a request, a range of its tokens; none is all of them.  Out: a selection
 * of the blocks of its table that hold these, and the slot at which the first token is.
 * A token that the engine has let go of is refused: no zeros stand for it.
 */
#include "lib/kvt/derive.h"

#include <stdlib.h>

/* Slots that hold the tokens; of a recurrent group the newest state. */
static enum kvt_status choose_slots(struct kvt_range *out, const struct kvt_table *t,
				    struct kvt_range tokens, struct kvt_error *err)
{
	const struct kvt_request *r = t->request;
	int64_t begin = r->first_token, end = r->first_token + r->ntokens;
	int64_t per = t->group->tokens_per_slot;

	if (tokens.begin == tokens.end)
		tokens = (struct kvt_range){ begin, end };
	if (tokens.begin < begin || tokens.end > end || tokens.begin > tokens.end)
		return kvt_fail(err, KVT_USAGE,
				"tokens %lld to %lld of %.100s, which has %lld to %lld",
				LL(tokens.begin), LL(tokens.end), r->id,
				LL(begin), LL(end));
	if (per < 1)
		*out = (struct kvt_range){ t->slots.end - 1, t->slots.end };
	else
		*out = (struct kvt_range){ tokens.begin / per,
					   (tokens.end + per - 1) / per };
	if (out->begin < 0 || out->begin >= out->end)
		return kvt_fail(err, KVT_BAD_INPUT, "%.100s has no tokens in %s", r->id,
				t->group->id);
	for (struct kvt_stretch s = { .end = out->begin }; s.end < out->end;) {
		int64_t at = s.end;

		s = kvt_table_at(t, at);
		if (!s.live)
			return kvt_fail(err, KVT_BAD_INPUT,
					"token %lld of %.100s is in no block of %s: the engine has let go of it",
					LL(per < 1 ? end - 1 : at * per), r->id,
					t->group->id);
	}
	return KVT_OK;
}

enum kvt_status kvt_dump_tokens(struct kvt_dump **out, int64_t *first,
				const struct kvt_dump *dump, int group,
				const char *request, struct kvt_range tokens,
				struct kvt_error *err)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const struct kvt_request *r = kvt_request_named(s, request);
	struct kvt_select select = { .group = group, .nchannels = 1 };
	struct kvt_segment channels = { 0 };
	int64_t *layer, *block, from, n;
	struct kvt_range slots = { 0, 0 };
	struct kvt_table t;
	enum kvt_status status;

	if (group < 0 || group >= s->ngroups)
		return kvt_fail(err, KVT_USAGE, "there is no group %d", group);
	if (!r)
		return kvt_fail(err, KVT_USAGE, "there is no request %.100s", request);
	t = kvt_table_of(s, group, r);
	if ((status = choose_slots(&slots, &t, tokens, err)))
		return status;
	from = slots.begin / t.each;
	n = (slots.end - 1) / t.each + 1 - from;
	select.nlayers = t.group->shape.n[KVT_AXIS_L];
	select.nblocks = n;
	layer = calloc((size_t)select.nlayers + 1, sizeof(*layer));
	block = calloc((size_t)n + 1, sizeof(*block));
	for (int64_t l = 0; layer && l < select.nlayers; l++)
		layer[l] = l;
	for (int64_t b = 0; block && b < n; b++)
		block[b] = t.blocks[from + b - t.first];
	select.layer = layer;
	select.block = block;
	select.heads.count = t.group->shape.n[KVT_AXIS_H];
	select.kv.count = t.group->shape.n[KVT_AXIS_K];
	channels.count = t.group->shape.n[KVT_AXIS_D];
	select.channel = &channels;
	if (!layer || !block)
		status = kvt_no_memory(err, NULL);
	else
		status = kvt_dump_select(out, dump, &select, err);
	if (!status)
		*first = slots.begin - from * t.each;
	free(layer);
	free(block);
	return status;
}
