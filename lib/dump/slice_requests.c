/* SPDX-License-Identifier: Apache-2.0 */
/* slice_requests.c - requests of a dump of which only a part remains */
#include "lib/dump/slice.h"
#include "lib/base/nearest.h"

#include <stdlib.h>
#include <string.h>

static void free_request(struct kvt_request *request)
{
	free(request->id);
	free(request->token_ids);
	free(request->hole);
	for (int g = 0; g < KVT_MAX_GROUPS; g++)
		free(request->blocks[g]);
}

/* ---- by name ------------------------------------------------------------ */

static bool is_named(const struct kvt_names *names, const char *id)
{
	for (int i = 0; i < names->n; i++)
		if (!strcmp(names->s[i], id))
			return true;
	return false;
}

static enum kvt_status check_names(const struct kvt_snapshot *snapshot,
				   const struct kvt_names *wanted,
				   struct kvt_error *err)
{
	for (int i = 0; i < wanted->n; i++) {
		int64_t r = 0;
		struct kvt_nearest near;

		kvt_nearest_start(&near, wanted->s[i]);
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
		return kvt_fail(err, KVT_BAD_INPUT,
				"no request '%.100s' among the %lld of this dump",
				wanted->s[i], (long long)snapshot->nrequests);
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
		if (is_named(wanted, snapshot->request[r].id))
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

void renumber_requests(struct kvt_snapshot *snapshot, int group,
		       const int64_t *inverse)
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
