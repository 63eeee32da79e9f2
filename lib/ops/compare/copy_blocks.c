/* SPDX-License-Identifier: Apache-2.0 */
/* copy_blocks.c - is each block the one of the base or of the other that it should be? */
#include "lib/ops/write/copy_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "lib/ops/compare/compare.h"

/* ---- what was written --------------------------------------------------- */

/* 'block' says which blocks came from the other one; 'side' is the one to ask. */
static enum kvt_status compare_side(const struct kvt_dump *dump, int group, int side,
				    const struct kvt_dump *written, int g,
				    const int64_t *block,
				    const struct kvt_run *run,
				    struct kvt_error *err)
{
	struct correspondence s;
	enum kvt_status status = correspond_by_ids(&s, dump, group, written, g, err);

	if (status)
		return status;
	for (int64_t b = 0; b < kvt_dump_group(written, g)->shape.n[KVT_AXIS_B]; b++) {
		if (side == COPY_FROM)
			s.map[KVT_AXIS_B][b] = block[b];
		else if (block[b] >= 0)
			s.map[KVT_AXIS_B][b] = -1;
		else if (s.map[KVT_AXIS_B][b] < 0)
			status = KVT_MISMATCH;
	}
	/* of which there may be none now, and it would not look */
	s.shared[KVT_AXIS_B] = 1;
	status = status ? kvt_fail(err, status, "%s: blocks are lost",
				   kvt_dump_group(written, g)->id) :
			  compare_elements(&s, "verifying", run, err);
	correspondence_free(&s);
	return status;
}

enum kvt_status copy_verify(struct kvt_dump *const dumps[NCOPY],
			    const struct kvt_dump *written,
			    const struct copy_blocks *copy,
			    const struct kvt_run *run,
			    struct kvt_error *err)
{
	const struct kvt_snapshot *base = kvt_dump_snapshot(dumps[COPY_BASE]);
	const struct kvt_snapshot *now = kvt_dump_snapshot(written);
	enum kvt_status status = KVT_OK;

	if (now->ngroups != base->ngroups)
		return kvt_fail(err, KVT_MISMATCH, "%d groups became %d", base->ngroups,
				now->ngroups);
	for (int g = 0; !status && g < now->ngroups; g++) {
		struct copy_pair pair = {
			.snapshot = { now, kvt_dump_snapshot(dumps[COPY_FROM]) },
			.group = { g, copy->group[g].from },
		};
		struct kvt_error why = { "" };
		int64_t *block, count;

		if (memcmp(now->group[g].shape.n, base->group[g].shape.n,
			   sizeof(base->group[g].shape.n)))
			return kvt_fail(err, KVT_MISMATCH, "%s: shapes differ",
					base->group[g].id);
		if ((status = copied_blocks(&block, &count, &pair, copy, err)))
			return status;
		for (int s = 0; !status && s < NCOPY; s++) {
			status = compare_side(dumps[s], s == COPY_BASE ? g :
					      copy->group[g].from, s, written, g, block,
					      run, &why);
			if (status)
				kvt_fail(err, status, "not as in %.200s: %.300s",
					 copy->name[s], why.text);
		}
		free(block);
	}
	return status;
}
