/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content.c - content that is not of one element type, as manifests and users
 * name it
 */
#include "formats/manifest/manifest.h"

#include "lib/base/print.h"

/* ---- names -------------------------------------------------------------- */

/* The same type, and of its fp8 as much as is known. */
static bool refines(struct kvt_content *known, const struct kvt_content *more)
{
	if (known->type && known->type != more->type)
		return false;
	if (known->fp8 && more->fp8 && known->fp8 != more->fp8)
		return false;
	known->type = more->type;
	if (more->fp8)
		known->fp8 = more->fp8;
	return true;
}

enum kvt_status kvt_group_hint_content(struct kvt_group *group, const char *text,
				       const char *name, struct kvt_error *err)
{
	struct kvt_content content;

	if (!kvt_content_find(&content, text))
		return kvt_fail(err, KVT_USAGE,
				"content type '%.60s' is not known; see kvtool help "
				"contents",
				text);
	if (refines(&group->content, &content))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: the content of %s is %s, but --content-type says %s", name,
			group->id, kvt_content_name(&group->content).s,
			kvt_content_name(&content).s);
}

enum kvt_status kvt_manifest_take_content_type(struct kvt_group *group,
					       const struct kvt_json *in)
{
	const char *text = NULL;
	enum kvt_status status = kvt_json_string(&text, in, "content_type");

	if (status || !text || kvt_content_find(&group->content, text))
		return status;
	return kvt_fail(in->err, KVT_UNSUPPORTED, "%s: unknown content_type '%.60s'",
			in->name, text);
}

/* ---- what follows from them --------------------------------------------- */

void kvt_content_defaults(struct kvt_group *group)
{
	const struct kvt_content_type *type = group->content.type;
	int64_t *n = group->shape.n;

	if (!type)
		return;
	if (!group->dtype)
		group->dtype = kvt_dtype_find("uint8");
	group->shape.elem = group->dtype->elem;
	if (group->kind == KVT_NKINDS)
		group->kind = type->kind;
	if (n[KVT_AXIS_K] < 0)
		n[KVT_AXIS_K] = type->pairs ? 2 : 1;
	if (n[KVT_AXIS_D] < 0 && kvt_content_row(&group->content))
		n[KVT_AXIS_D] = kvt_content_row(&group->content);
	if (!group->tokens_per_slot)
		group->tokens_per_slot = type->ratio;
}

/* Do the rows of a page fill one run of bytes? */
static bool page_is_run(const struct kvt_group *group)
{
	return group->shape.n[KVT_AXIS_H] == 1 && group->shape.n[KVT_AXIS_K] == 1 &&
	       kvt_layout_predicates(&group->layout, &group->shape).block_compact &&
	       !kvt_content_keeps(&group->content, &group->layout, &group->shape, NULL);
}

/*
 * Engines call a page of planes an array of rows, which it is in size only.
 * Here it is one slot that stands for all tokens of the block, so that nothing
 * takes a row for what it is not.
 */
enum kvt_status kvt_content_fold(struct kvt_group *group, const char *name,
				 struct kvt_error *err)
{
	const struct kvt_content_type *type = group->content.type;
	int64_t *n = group->shape.n, slots = n[KVT_AXIS_S];

	if (!type || !type->planar || group->tokens_per_slot != type->ratio ||
	    slots < 2)
		return KVT_OK;
	if (!page_is_run(group))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a block of %s must be one run of bytes, which it is "
				"not in layout %s",
				name, type->name, kvt_layout_string(&group->layout).s);
	if (__builtin_mul_overflow(n[KVT_AXIS_D], slots, &n[KVT_AXIS_D]))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: pages of %lld rows overflow",
				name, LL(slots));
	for (int64_t b = 0; group->block_valid && b < n[KVT_AXIS_B]; b++)
		group->block_valid[b] = group->block_valid[b] > 0;
	n[KVT_AXIS_S] = 1;
	group->tokens_per_slot = group->block_size;
	return KVT_OK;
}
