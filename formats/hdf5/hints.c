/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hints.c - what the user says of a snapshot must be what it says itself
 *
 * A snapshot lacks nothing, so hints fill no gaps here.
 */
#include "formats/hdf5/hdf5.h"

static enum kvt_status check_numbers(const char *path,
				     const struct kvt_group *group,
				     const struct kvt_hints *hints,
				     struct kvt_error *err)
{
	const int64_t *n = group->shape.n;
	const struct {
		const char *name;
		int64_t hint, is;
	} rows[] = {
		{ "layers",     hints->layers,     n[KVT_AXIS_L] },
		{ "blocks",     hints->blocks,     n[KVT_AXIS_B] },
		{ "block size", hints->block_size, group->block_size },
		{ "heads",      hints->heads,      n[KVT_AXIS_H] },
		{ "head size",  hints->head_dim,   n[KVT_AXIS_D] },
		{ "content",    hints->content,    n[KVT_AXIS_K] * n[KVT_AXIS_D] },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].hint && rows[i].hint != rows[i].is)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: group %s: %s is %lld, not %lld",
					path, group->id, rows[i].name,
					(long long)rows[i].is,
					(long long)rows[i].hint);
	return KVT_OK;
}

static enum kvt_status check_names(const char *path,
				   const struct kvt_group *group,
				   const struct kvt_hints *hints,
				   struct kvt_error *err)
{
	const struct kvt_dtype *dtype = group->dtype;
	struct kvt_layout layout = group->layout;
	enum kvt_status status;

	if (hints->dtype && !(dtype = kvt_dtype_find(hints->dtype)))
		return kvt_fail(err, KVT_USAGE, "unknown dtype '%s'",
				hints->dtype);
	if (dtype != group->dtype)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: group %s: elements are %s, but --dtype says %s; it describes the input; "
				"kvtool converts no elements, cast in numpy or torch",
				path, group->id, group->dtype->name, dtype->name);
	if (hints->layout &&
	    (status = kvt_layout_parse(&layout, hints->layout, err)))
		return status;
	if (!kvt_layout_equal(&layout, &group->layout))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: group %s: the layout is %s, but --layout says %s", path,
				group->id, kvt_layout_called(&group->layout).s,
				kvt_layout_called(&layout).s);
	return KVT_OK;
}

/* The one thing that a snapshot of another program may not say. */
static enum kvt_status hint_content(struct kvt_reader *reader,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_snapshot *snapshot = &reader->leaf.snapshot;

	if (!hints->content_type)
		return KVT_OK;
	if (snapshot->ngroups > 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %d groups; --content-type cannot be given for "
				"all of them",
				reader->leaf.path, snapshot->ngroups);
	return kvt_group_hint_content(&snapshot->group[0], hints->content_type,
				      reader->leaf.path, err);
}

enum kvt_status kvt_h5_check_hints(struct kvt_reader *reader,
				   const struct kvt_hints *hints,
				   struct kvt_error *err)
{
	const struct kvt_snapshot *snapshot = &reader->leaf.snapshot;

	if (!hints)
		return KVT_OK;
	if (hints->manifest || hints->skip)
		return kvt_fail(err, KVT_USAGE,
				"%s: a snapshot describes itself; leave out %s",
				reader->leaf.path, hints->manifest ? "manifest" :
				"bytes to skip");
	for (int g = 0; g < snapshot->ngroups; g++) {
		enum kvt_status status;

		if ((status = check_numbers(reader->leaf.path, &snapshot->group[g],
					    hints, err)) ||
		    (status = check_names(reader->leaf.path, &snapshot->group[g],
					  hints, err)))
			return status;
	}
	return hint_content(reader, hints, err);
}
