/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_blocks.c - is each block the one of the base or of the other that it should be?
 *
 * Each block of the output is compared with the base or with the other dump, by one map
 * from blocks to blocks a side: so all are compared once.
 */
#include "lib/ops/write/copy_blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/compare.h"

/* A group of what was written, and of the two dumps. */
struct verifying {
	struct comparison list[NCOPY];
	struct slot_pairs slots[NCOPY];
	struct head_pairs heads[NCOPY];
	char was[NCOPY][300];
};

/* 'from' [B] says which blocks came from the other dump: those are not the base's. */
static enum kvt_status pair_side(struct verifying *v, int side, const int64_t *from,
				 struct kvt_error *err)
{
	struct comparison *c = &v->list[side];
	const struct pairs_side a = { kvt_dump_snapshot(c->a), c->group_a };
	const struct pairs_side b = { kvt_dump_snapshot(c->b), c->group_b };
	enum kvt_status status;

	if ((status = slot_pairs_by_ids(&v->slots[side], a, b, err)) ||
	    (status = head_pairs_init(&v->heads[side], pairs_group(a), pairs_group(b),
				      err)))
		return status;
	for (int64_t i = 0; i < pairs_group(b)->shape.n[KVT_AXIS_B]; i++) {
		int64_t *block = &v->slots[side].block[i];

		if (side == COPY_FROM)
			*block = from[i];
		else if (from[i] >= 0)
			*block = -1;
		else if (*block < 0)
			return kvt_fail(err, KVT_MISMATCH,
					"%s: block %llu is not in the input",
					pairs_group(b)->id,
					(unsigned long long)kvt_block_id(pairs_group(b),
									 i));
	}
	return KVT_OK;
}

static enum kvt_status verify_group(struct kvt_dump *const dumps[NCOPY],
				    const struct kvt_dump *written, int g,
				    const struct copy_blocks *copy,
				    const struct seen *seen, const struct kvt_run *run,
				    struct kvt_error *err)
{
	struct copy_pair pair = {
		.snapshot = { kvt_dump_snapshot(written),
			      kvt_dump_snapshot(dumps[COPY_FROM]) },
		.group = { g, copy->group[g].from },
	};
	struct verifying v = { .list = { { .a = NULL } } };
	int64_t *from, count;
	enum kvt_status status = copied_blocks(&from, &count, &pair, copy, err);

	for (int s = 0; !status && s < NCOPY; s++) {
		snprintf(v.was[s], sizeof(v.was[s]), " in %.280s", copy->name[s]);
		v.list[s] = (struct comparison){
			.a = dumps[s], .group_a = s == COPY_BASE ? g : pair.group[s],
			.b = written, .group_b = g, .slots = &v.slots[s],
			.heads = &v.heads[s], .was = v.was[s], .seen = seen,
		};
		status = pair_side(&v, s, from, err);
	}
	if (!status)
		status = compare_elements(v.list, NCOPY, "verifying", run, NULL, NULL,
					  err);
	for (int s = 0; s < NCOPY; s++) {
		slot_pairs_free(&v.slots[s]);
		head_pairs_free(&v.heads[s]);
	}
	free(from);
	return status;
}

enum kvt_status copy_verify(struct kvt_dump *const dumps[NCOPY],
			    const struct kvt_dump *written,
			    const struct copy_blocks *copy, const struct seen *seen,
			    const struct kvt_run *run, struct kvt_error *err)
{
	const struct kvt_snapshot *is = kvt_dump_snapshot(written);
	const struct kvt_snapshot *base = kvt_dump_snapshot(dumps[COPY_BASE]);
	enum kvt_status status = check_groups(is, base, err);

	if (!status)
		status = check_tables(is, base, err);
	for (int g = 0; !status && g < is->ngroups; g++)
		status = verify_group(dumps, written, g, copy, seen, run, err);
	return status;
}
