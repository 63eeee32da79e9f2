/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicas.c - do ranks that hold the same elements hold the same bytes?
 *
 * Each file is compared with the first one before it that shares slots and heads with
 * it, by their ids.  So replicas of one thing are all compared with its first, and those
 * of n ranks take n - 1 comparisons.
 */
#include "lib/ops/compare/compare.h"

#include "lib/derived/merge.h"

static enum kvt_status compare_files(const struct rank_file *a, const struct rank_file *b,
				     int g, int64_t part, const struct kvt_run *run,
				     bool *shared, struct kvt_error *err)
{
	const struct pairs_side from = { kvt_dump_snapshot(a->reader), g };
	const struct pairs_side to = { kvt_dump_snapshot(b->reader), g };
	struct slot_pairs slots = { .layer = NULL };
	struct head_pairs heads = { .head = NULL };
	struct comparison c = { .a = a->reader, .b = b->reader, .group_a = g,
				.group_b = g, .slots = &slots, .heads = &heads,
				.divided = true, .part = part };
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (!(status = slot_pairs_by_ids(&slots, from, to, &why)) &&
	    !(status = head_pairs_init(&heads, pairs_group(from), pairs_group(to), &why)))
		*shared = slot_pairs_any(&slots, to) &&
			  head_pairs_any(&heads, pairs_group(to));
	if (!status && *shared)
		status = compare_elements(&c, 1, "replicas", run, NULL, NULL, &why);
	slot_pairs_free(&slots);
	head_pairs_free(&heads);
	if (status)
		kvt_fail(err, status, "%s and %s: %.300s", a->name, b->name, why.text);
	return status;
}

/* With the first that holds the same; the rest follows. */
enum kvt_status replicas_check(const struct rank_file *files, int nfiles,
			       const struct kvt_run *run, struct kvt_error *err)
{
	int ngroups = kvt_dump_snapshot(files[0].reader)->ngroups;

	for (int g = 0; g < ngroups; g++)
		for (int j = 1; j < nfiles; j++) {
			bool shared = false;

			for (int i = 0; i < j && !shared; i++) {
				enum kvt_status status =
					compare_files(&files[i], &files[j], g,
						      (g * (int64_t)nfiles + j) *
						      nfiles + i,
						      run, &shared, err);

				if (status)
					return status;
			}
		}
	return KVT_OK;
}
