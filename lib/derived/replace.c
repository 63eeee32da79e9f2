/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replace.c - a dump with other data in one group: of two sources, one of them memory
 *
 * The new data becomes a dump of one group over the caller's bytes.  Then every group is
 * taken whole, that one from the second source, all others from the first; tables, ids
 * and names stay those of the first.
 */
#include "lib/derived/derive.h"

/* A snapshot of one group without tables or requests. */
static enum kvt_status make_group(struct kvt_dump **out, const struct kvt_snapshot *from,
				  const struct kvt_group *group,
				  const struct kvt_layout *layout, const void *bytes,
				  struct kvt_error *err)
{
	struct kvt_snapshot info;

	kvt_snapshot_init(&info);
	info.ngroups = 1;
	info.parallel = from->parallel;
	info.has_parallel = from->has_parallel;
	info.group[0] = *group;
	info.group[0].layout = *layout;
	info.group[0].page_bytes = info.group[0].page_offset = 0;
	info.group[0].layer_names = NULL;
	info.group[0].layer_ids = NULL;
	info.group[0].scales = NULL;
	info.group[0].block_ids = NULL;
	info.group[0].block_valid = NULL;
	info.group[0].block_names = NULL;
	return kvt_dump_of_memory(out, &info, &bytes, err);
}

enum kvt_status kvt_dump_replace(struct kvt_dump **out, const struct kvt_dump *dump,
				 int group, const struct kvt_layout *layout,
				 const void *bytes, struct kvt_error *err)
{
	const struct kvt_snapshot *from = kvt_dump_snapshot(dump);
	const struct kvt_dump *source[] = { dump, NULL };
	struct derivation d = { .nsources = 2, .source = source };
	struct kvt_dump *made = NULL;
	enum kvt_status status;

	if (group < 0 || group >= from->ngroups)
		return kvt_fail(err, KVT_USAGE, "there is no group %d", group);
	if ((status = make_group(&made, from, &from->group[group], layout, bytes, err)))
		return status;
	source[1] = made;
	kvt_snapshot_init(&d.snapshot);
	status = kvt_snapshot_copy(&d.snapshot, from, err);
	for (int g = 0; !status && g < from->ngroups; g++) {
		status = step_whole(&d.group[g], &from->group[g], g == group ? 0 : g,
				    err);
		if (!status)
			d.group[g].part->source = g == group;
	}
	status = derive(out, &d, status, err);
	kvt_dump_close(made);
	return status;
}
