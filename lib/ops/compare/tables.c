/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.c - do requests have the tokens and blocks that they should have?
 *
 * By ids of requests and of blocks, entry by entry from the token that both tables begin
 * at or behind.
 */
#include "lib/ops/compare/compare.h"

#include <string.h>

/* Entries of both tables that are for the same block of a request. */
static enum kvt_status check_table(const struct kvt_table *is,
				   const struct kvt_table *should, struct kvt_error *err)
{
	for (int64_t i = 0; i < is->nblocks; i++) {
		int64_t j = i + is->first - should->first;
		uint64_t id = kvt_block_id(is->group, is->blocks[i]);

		if (j < 0 || j >= should->nblocks)
			continue;
		if (id != kvt_block_id(should->group, should->blocks[j]))
			return kvt_fail(err, KVT_MISMATCH,
					"%s: request %s: entry %lld of its table is block %llu, expected %llu",
					is->group->id, is->request->id, LL(i),
					(unsigned long long)id,
					(unsigned long long)kvt_block_id(should->group,
							should->blocks[j]));
	}
	return KVT_OK;
}

static enum kvt_status check_request(const struct kvt_snapshot *written,
				     const struct kvt_request *is,
				     const struct kvt_snapshot *wanted,
				     const struct kvt_request *should,
				     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (!is || is->ntokens != should->ntokens ||
	    is->first_token != should->first_token)
		return kvt_fail(err, KVT_MISMATCH,
				"request %s: %lld tokens from %lld became %lld from %lld",
				should->id, LL(should->ntokens), LL(should->first_token),
				LL(is ? is->ntokens : 0), LL(is ? is->first_token : 0));
	for (int g = 0; !status && g < written->ngroups; g++) {
		const struct kvt_table a = kvt_table_of(written, g, is);
		const struct kvt_table b = kvt_table_of(wanted, g, should);

		if (a.nblocks != b.nblocks)
			return kvt_fail(err, KVT_MISMATCH,
					"%s: request %s: a table of %lld blocks, expected %lld",
					a.group->id, is->id, LL(a.nblocks),
					LL(b.nblocks));
		status = check_table(&a, &b, err);
	}
	return status;
}

enum kvt_status check_tables(const struct kvt_snapshot *written,
			     const struct kvt_snapshot *wanted, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t r = 0; !status && r < wanted->nrequests; r++) {
		const struct kvt_request *should = &wanted->request[r];

		status = check_request(written, kvt_request_named(written, should->id),
				       wanted, should, err);
	}
	return status;
}

enum kvt_status check_tables_of_leaf(const struct kvt_snapshot *written, int group,
				     const struct kvt_snapshot *leaf, int leaf_group,
				     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int64_t r = 0; !status && r < written->nrequests; r++) {
		const struct kvt_request *is = &written->request[r];
		const struct kvt_request *was = kvt_request_named(leaf, is->id);
		struct kvt_table a, b;

		if (!was)
			continue;
		a = kvt_table_of(written, group, is);
		b = kvt_table_of(leaf, leaf_group, was);
		status = check_table(&a, &b, err);
	}
	return status;
}
