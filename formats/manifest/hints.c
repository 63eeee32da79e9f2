/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hints.c - what the user says of a dump: it fills gaps, or contradicts
 *
 * Hints are applied after the manifest was read, and never override it.
 */
#include "formats/manifest/manifest.h"

#include "lib/base/print.h"

static enum kvt_status hint_layout(struct kvt_manifest *out, const char *text,
				   const char *name, struct kvt_error *err)
{
	struct kvt_group *group = &out->snapshot.group[0];
	struct kvt_layout layout;
	enum kvt_status status = kvt_layout_parse(&layout, text, err);

	if (status)
		return status;
	if (!out->has_layout)
		group->layout = layout;
	else if (!kvt_layout_agree(&layout, &group->layout, &group->shape))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the layout is %s, but --layout says %s", name,
				kvt_layout_called(&group->layout).s,
				kvt_layout_called(&layout).s);
	out->has_layout = true;
	return KVT_OK;
}

static enum kvt_status hint_dtype(struct kvt_group *group, const char *text,
				  const char *name, struct kvt_error *err)
{
	const struct kvt_dtype *dtype = kvt_dtype_find(text);

	if (!dtype)
		return kvt_fail(err, KVT_USAGE, "dtype '%.40s' is not an element type",
				text);
	if (group->dtype && group->dtype != dtype)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: elements are %s, but --dtype says %s; it describes the input; "
				"kvtool converts no elements, cast in numpy or torch",
				name, group->dtype->name, dtype->name);
	group->dtype = dtype;
	group->shape.elem = dtype->elem;
	return KVT_OK;
}

static enum kvt_status hint_sizes(struct kvt_group *group,
				  const struct kvt_hints *hints, const char *name,
				  struct kvt_error *err)
{
	const struct {
		const char *what;
		enum kvt_axis axis;
		int64_t n;
	} rows[] = {
		{ "--layers",   KVT_AXIS_L, hints->layers },
		{ "--blocks",   KVT_AXIS_B, hints->blocks },
		{ "--heads",    KVT_AXIS_H, hints->heads },
		{ "--head-dim", KVT_AXIS_D, hints->head_dim },
		{ "--content-size",  KVT_AXIS_D, hints->content },
	};
	int64_t *block_size = &group->block_size;
	enum kvt_status status;

	if (hints->head_dim && hints->content)
		return kvt_fail(err, KVT_USAGE,
				"content is a key and a value of --head-dim elements, or "
				"opaque with --content-size, not both");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].n &&
		    (status = kvt_manifest_extent(group, rows[i].axis, rows[i].n,
						  hints->spec ? "--spec" : rows[i].what,
						  name, err)))
			return status;
	if ((hints->head_dim || hints->content) &&
	    (status = kvt_manifest_extent(group, KVT_AXIS_K, hints->content ? 1 : 2,
					  hints->content ? "--content-size" :
							   "--head-dim", name, err)))
		return status;
	if (hints->block_size && *block_size > 0 && *block_size != hints->block_size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: --block-size is %lld, but blocks have %lld tokens",
				name, LL(hints->block_size), LL(*block_size));
	if (hints->block_size)
		*block_size = hints->block_size;
	return KVT_OK;
}

static enum kvt_status hint_group(struct kvt_manifest *out, const struct kvt_hints *hints,
				  const char *name, struct kvt_error *err)
{
	struct kvt_group *group = &out->snapshot.group[0];
	const struct kvt_parallel *parallel = &out->snapshot.parallel;
	struct kvt_hints told = *hints;
	enum kvt_status status;

	if ((status = kvt_hints_take_spec(&told, parallel, err)) ||
	    (hints->dtype && (status = hint_dtype(group, hints->dtype, name, err))) ||
	    (hints->content_type &&
	     (status = kvt_group_hint_content(group, hints->content_type, name, err))) ||
	    (status = hint_sizes(group, &told, name, err)) ||
	    (hints->spec &&
	     (status = kvt_manifest_spec(group, hints, parallel, name, err))))
		return status;
	return hints->layout ? hint_layout(out, hints->layout, name, err) : KVT_OK;
}

/* Which rank it is, where the file does not say. */
static enum kvt_status hint_rank(struct kvt_manifest *out, const struct kvt_hints *hints,
				 const char *name, struct kvt_error *err)
{
	struct kvt_parallel *p = &out->snapshot.parallel;

	if (p->tp_size > 1 && (p->tp_size != hints->tp_size ||
			       p->tp_rank != hints->tp_rank))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: says that it is rank %lld of %lld, but it is given as rank %lld of %lld",
				name, LL(p->tp_rank), LL(p->tp_size),
				LL(hints->tp_rank), LL(hints->tp_size));
	p->tp_size = hints->tp_size;
	p->tp_rank = hints->tp_rank;
	for (int g = 0; g < out->snapshot.ngroups; g++)
		if (out->snapshot.group[g].total_heads < 0)
			out->snapshot.group[g].total_heads = hints->total_heads;
	return KVT_OK;
}

enum kvt_status kvt_manifest_hints(struct kvt_manifest *out,
				   const struct kvt_hints *hints, const char *name,
				   struct kvt_error *err)
{
	enum kvt_status status;

	if (!hints)
		return KVT_OK;
	if (hints->skip && out->skip && hints->skip != out->skip)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: data begins at byte %lld, but --skip says %lld",
				name, LL(out->skip), LL(hints->skip));
	if (hints->skip)
		out->skip = hints->skip;
	if (hints->tp_size && (status = hint_rank(out, hints, name, err)))
		return status;
	out->lacks_rank = hints->one_of_several && out->snapshot.parallel.tp_size <= 1;
	if (out->snapshot.ngroups > 1) {
		if (hints->layout || hints->dtype || hints->content_type ||
		    hints->layers || hints->blocks || hints->block_size ||
		    hints->heads || hints->head_dim || hints->content)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: describes %d groups; options for layout, "
					"type or size cannot be given for all of them",
					name, out->snapshot.ngroups);
		return KVT_OK;
	}
	return hint_group(out, hints, name, err);
}
