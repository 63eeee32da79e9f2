/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice_requests.c - requests by name, and of them the tokens of a range
 *
 * Who is not named goes.  A request whose blocks were left out keeps the tokens before
 * the first of them; one of a window, whose table is its end, keeps none.  Of a range
 * the table loses its entries on both sides, and first_token says where it begins then.
 */
#include "lib/derived/slice.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/nearest.h"

static void free_request(struct kvt_request *request)
{
	free(request->id);
	free(request->token_ids);
	free(request->hole);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(request->blocks[g]);
}

/* ---- by name ------------------------------------------------------------ */

static enum kvt_status check_names(const struct kvt_snapshot *snapshot,
				   const struct kvt_names *wanted, struct kvt_error *err)
{
	for (int i = 0; i < wanted->n; i++) {
		int64_t r = 0;
		struct kvt_nearest near = kvt_nearest_start(wanted->s[i]);

		for (; r < snapshot->nrequests; r++) {
			if (!strcmp(snapshot->request[r].id, wanted->s[i]))
				break;
			kvt_nearest_offer(&near, snapshot->request[r].id);
		}
		if (r < snapshot->nrequests)
			continue;
		if (kvt_nearest_found(&near))
			return kvt_fail(err, KVT_BAD_INPUT,
					"no request '%.100s', did you mean '%.100s'?",
					wanted->s[i], kvt_nearest_found(&near));
		if (!snapshot->nrequests)
			return kvt_fail(err, KVT_BAD_INPUT,
					"no request '%.100s': the dump has none; --blocks-of=%.100s=5,2,9:40 says which blocks it has, and how many tokens",
					wanted->s[i], wanted->s[i]);
		return kvt_fail(err, KVT_BAD_INPUT,
				"no request '%.100s' among the %lld of this dump",
				wanted->s[i], LL(snapshot->nrequests));
	}
	return KVT_OK;
}

enum kvt_status slice_requests(struct kvt_snapshot *snapshot,
			      const struct kvt_names *wanted, struct kvt_error *err)
{
	enum kvt_status status = check_names(snapshot, wanted, err);
	int64_t kept = 0;

	if (status || !wanted->n)
		return status;
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		if (names_have(wanted, snapshot->request[r].id))
			snapshot->request[kept++] = snapshot->request[r];
		else
			free_request(&snapshot->request[r]);
	}
	snapshot->nrequests = kept;
	return KVT_OK;
}

/* ---- by block ----------------------------------------------------------- */

/* Tokens that this many blocks of the table's beginning hold. */
static int64_t tokens_in(const struct kvt_group *group, int64_t nblocks,
			 const struct kvt_request *request)
{
	int64_t skip = kvt_request_skip(request, group), tokens;

	if (!group->block_size ||
	    __builtin_mul_overflow(nblocks, group->block_size, &tokens))
		return request->ntokens;
	tokens = tokens > skip ? tokens - skip : 0;
	return tokens < request->ntokens ? tokens : request->ntokens;
}

void renumber_requests(struct kvt_snapshot *snapshot, int group, const int64_t *inverse)
{
	const struct kvt_group *g = &snapshot->group[group];

	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		struct kvt_request *request = &snapshot->request[r];
		int64_t n = 0, had = request->nblocks[group];
		uint32_t *blocks = request->blocks[group];

		for (; n < had && inverse[blocks[n]] >= 0; n++)
			blocks[n] = (uint32_t)inverse[blocks[n]];
		if (n == had)
			continue;
		/* what a window still holds is its end, so no beginning is enough */
		request->nblocks[group] = g->window ? 0 : n;
		if (!g->window)
			request->ntokens = tokens_in(g, n, request);
	}
}

/* Blocks behind the last token, where tokens were lost. */
static void cut_tables(const struct kvt_snapshot *snapshot, struct kvt_request *request)
{
	for (int g = 0; g < snapshot->ngroups; g++) {
		int64_t size = snapshot->group[g].block_size, need;

		if (!size || snapshot->group[g].window)
			continue;
		need = (kvt_request_skip(request, &snapshot->group[g]) +
			request->ntokens + size - 1) / size;
		if (request->nblocks[g] > need)
			request->nblocks[g] = need;
	}
	if (request->ntoken_ids > request->ntokens)
		request->ntoken_ids = request->ntokens;
	kvt_request_cut_holes(request, request->first_token,
			      request->first_token + request->ntokens);
}

void cut_requests(struct kvt_snapshot *snapshot, const struct kvt_snapshot *before)
{
	const struct kvt_request *old = before->request;
	int64_t kept = 0;

	for (int64_t r = 0; r < snapshot->nrequests; r++, old++) {
		struct kvt_request *request = &snapshot->request[r];
		int64_t left = 0, had = 0;

		/* these are some of those, in their order */
		while (strcmp(old->id, request->id))
			old++;
		if (request->ntokens < old->ntokens)
			cut_tables(snapshot, request);
		for (int g = 0; g < KVT_MAX_GROUPS; g++) {
			left += g < snapshot->ngroups ? request->nblocks[g] : 0;
			had += old->nblocks[g];
		}
		if (had && !left)
			free_request(request);
		else
			snapshot->request[kept++] = *request;
	}
	snapshot->nrequests = kept;
}

/* From the first token that any request has to behind the last. */
static enum kvt_status check_range(const struct kvt_snapshot *snapshot,
				   const struct kvt_range *want, struct kvt_error *err)
{
	struct kvt_range all = { INT64_MAX, 0 };

	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		const struct kvt_request *q = &snapshot->request[r];

		if (q->first_token < all.begin)
			all.begin = q->first_token;
		if (q->first_token + q->ntokens > all.end)
			all.end = q->first_token + q->ntokens;
	}
	if (!snapshot->nrequests)
		return kvt_fail(err, KVT_BAD_INPUT,
				"the dump has no requests, so tokens cannot be chosen; --blocks-of=A=5,2,9:40 says which blocks request A has, and how many tokens");
	if (want->begin < all.begin || want->end > all.end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"no token %lld, the request%s tokens %lld to %lld",
				want->begin < all.begin ? LL(want->begin) : LL(all.end),
				snapshot->nrequests == 1 ? " has" : "s have",
				LL(all.begin), LL(all.end - 1));
	return KVT_OK;
}

/* Can the group be cut there at all? */
static enum kvt_status check_cut(const struct kvt_group *g, const struct kvt_request *q,
				 const struct kvt_range *keep, struct kvt_error *err)
{
	int64_t end = q->first_token + q->ntokens, each = g->tokens_per_slot;
	bool same = keep->begin == q->first_token && keep->end == end;
	int64_t at;

	if (same)
		return KVT_OK;
	if (each < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: one state stands for all tokens of request %.100s; leave it out with --layers or --component",
				g->id, q->id);
	at = keep->begin % each ? keep->begin : keep->end;
	if (at % each && at != end)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: token %lld is within a slot of %lld tokens",
				g->id, LL(at), LL(each));
	return KVT_OK;
}

/* Where it is known what is needed, is it there?  Else, is nothing missing? */
static bool has_all(const struct kvt_snapshot *snapshot, int group,
		    const struct kvt_request *q)
{
	const struct kvt_table t = kvt_table_of(snapshot, group, q);
	const struct kvt_retention keep = kvt_group_retention(t.group, q);
	int64_t first = q->first_token / t.group->tokens_per_slot;
	struct kvt_stretch s;

	if (!t.group->window && !kvt_retention_forgets(&keep))
		return true;
	if (first < t.slots.begin && (first < t.dead.begin || t.dead.end < t.slots.begin))
		return false;
	for (int64_t at = t.slots.begin; at < t.slots.end; at = s.end) {
		s = kvt_table_at(&t, at);
		if (!s.live && kvt_table_needs(&t, at))
			return false;
	}
	return true;
}

/*
 * The entries of a table that hold tokens to keep.  The group loses the table if it
 * no longer has a token that the shorter request would still need.
 */
static void cut_table(const struct kvt_snapshot *snapshot, int group,
		      struct kvt_request *q, const struct kvt_range *keep)
{
	const struct kvt_table t = kvt_table_of(snapshot, group, q);
	int64_t size = t.group->block_size;
	int64_t begin = keep->begin / size - t.first;
	int64_t end = (keep->end - 1) / size - t.first + 1;
	uint32_t *blocks = q->blocks[group];
	struct kvt_request shorter = *q;

	q->nblocks[group] = 0;
	if (begin < 0)
		begin = 0;	/* of a window, the last ones only */
	if (end > t.nblocks || begin >= end)
		return;
	memmove(blocks, blocks + begin, (size_t)(end - begin) * sizeof(*blocks));
	shorter.first_token = keep->begin;
	shorter.ntokens = keep->end - keep->begin;
	shorter.nblocks[group] = end - begin;
	if (has_all(snapshot, group, &shorter))
		q->nblocks[group] = end - begin;
}

static void cut_token_ids(struct kvt_request *q, const struct kvt_range *keep)
{
	int64_t before = keep->begin - q->first_token;

	if (before > q->ntoken_ids)
		before = q->ntoken_ids;
	q->ntoken_ids -= before;
	if (q->ntoken_ids > keep->end - keep->begin)
		q->ntoken_ids = keep->end - keep->begin;
	if (q->ntoken_ids)
		memmove(q->token_ids, q->token_ids + before,
			(size_t)q->ntoken_ids * sizeof(*q->token_ids));
}

static enum kvt_status cut_request(const struct kvt_snapshot *snapshot,
				   struct kvt_request *q,
				   const struct kvt_slice_options *options,
				   struct kvt_error *err)
{
	int64_t end = q->first_token + q->ntokens;
	struct kvt_range keep = options->tokens.range[0];

	if (keep.begin < q->first_token)
		keep.begin = q->first_token;
	if (keep.end > end)
		keep.end = end;
	for (int g = 0; g < snapshot->ngroups; g++) {
		const struct kvt_group *group = &snapshot->group[g];
		enum kvt_status status;

		if (!q->nblocks[g] || !slice_wants(group, options))
			continue;
		if ((status = check_cut(group, q, &keep, err)))
			return status;
		if (group->tokens_per_slot > 0)
			cut_table(snapshot, g, q, &keep);
	}
	kvt_request_cut_holes(q, keep.begin, keep.end);
	cut_token_ids(q, &keep);
	q->first_token = keep.begin;
	q->ntokens = keep.end - keep.begin;
	return KVT_OK;
}

/* Other tokens of a block that is left are live no more. */
static void forget_live(struct kvt_snapshot *snapshot)
{
	for (int g = 0; g < snapshot->ngroups; g++) {
		struct kvt_group *group = &snapshot->group[g];

		if (group->tokens_per_slot < 1 || group->window)
			continue;
		free(group->block_valid);
		group->block_valid = NULL;	/* follows from the tables */
	}
}

enum kvt_status slice_tokens(struct kvt_snapshot *snapshot,
			     const struct kvt_slice_options *options,
			    struct kvt_error *err)
{
	const struct kvt_range *want = options->tokens.range;
	enum kvt_status status;

	if (!options->tokens.n)
		return KVT_OK;
	if ((status = check_range(snapshot, want, err)))
		return status;
	for (int64_t r = 0; r < snapshot->nrequests; r++) {
		struct kvt_request *q = &snapshot->request[r];

		if (want->begin < q->first_token + q->ntokens &&
		    want->end > q->first_token && q->ntokens > 0) {
			if ((status = cut_request(snapshot, q, options, err)))
				return status;
		} else {
			/* without blocks it is left out in the end */
			memset(q->nblocks, 0, sizeof(q->nblocks));
			q->ntokens = q->ntoken_ids = q->nholes = 0;
		}
	}
	forget_live(snapshot);
	return KVT_OK;
}
