/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content.c - content that is not of one element type, as manifests and users name it
 *
 * The words are those of lib/layout/content_types.c.  From a name follow the type, the
 * kind, how wide a row is and how many tokens it stands for, as far as nothing else says
 * it; last, how the rows of a block are cut into pages, each with planes of its own.
 */
#include "formats/describe/describe.h"

#include <string.h>

/* ---- names -------------------------------------------------------------- */

/* Of a group of bytes, or of one whose type nobody has said yet. */
static void hint_content(struct kvt_group *group, const char *text)
{
	bool bytes = !group->dtype || group->dtype == kvt_dtype_find("uint8");
	struct kvt_content *known = &group->content, said;

	if (!bytes || !kvt_content_find(&said, text) ||
	    (known->type && known->type != said.type))
		return;
	known->type = said.type;
	if (!known->fp8)
		known->fp8 = said.fp8;
	if (!known->n)
		known->n = said.n;
	if (!known->turn[0] && !known->turn[1])
		memcpy(known->turn, said.turn, sizeof(known->turn));
}

void kvt_snapshot_hint_content(struct kvt_snapshot *s, const struct kvt_hints *hints)
{
	for (int g = 0; g < s->ngroups; g++) {
		const char *said = kvt_hints_of(hints, s->group[g].id).content_type;

		/* of several groups one must be named: most have none */
		if (said && (s->ngroups == 1 || said != hints->content_type))
			hint_content(&s->group[g], said);
	}
}

void kvt_manifest_take_content_type(struct kvt_group *group, const struct kvt_json *in)
{
	const char *text = NULL;
	enum kvt_status status = KVT_OK;
	struct kvt_error why;

	kvt_json_string(&text, in, "content_type");
	if (text)
		status = kvt_content_parse(&group->content, text, &why);
	if (status == KVT_USAGE)
		kvt_json_refuse(in, KVT_UNSUPPORTED, "unknown content_type '%.60s'",
				text);
	else if (status)
		kvt_json_refuse(in, status, "%.400s", why.text);
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
	if (!group->tokens_per_slot && type->ratio)
		group->tokens_per_slot = type->ratio;
}

int64_t kvt_content_ratio(const struct kvt_group *group)
{
	const struct kvt_content_type *type = group->content.type;
	int64_t rows = group->shape.n[KVT_AXIS_S], tokens = group->block_size;

	if (!type || type->ratio || rows < 1 || tokens < rows || tokens % rows)
		return 1;
	return tokens / rows;
}

/* Do the rows of a page fill one run of bytes? */
static bool page_is_run(const struct kvt_group *group)
{
	return group->shape.n[KVT_AXIS_H] == 1 && group->shape.n[KVT_AXIS_K] == 1 &&
	       kvt_layout_predicates(&group->layout, &group->shape).block_compact &&
	       !kvt_content_keeps(&group->content, &group->layout, &group->shape, NULL);
}

/* Rows of a page of a block of so many: as said, or as engines have it. */
static enum kvt_status rows_of_page(int64_t *out, const struct kvt_group *group,
				    int64_t rows, const char *name, struct kvt_error *err)
{
	int64_t most = kvt_content_page_rows(&group->content);

	*out = group->content.n ? group->content.n : rows;
	if (rows % *out)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a block has %lld rows of %s, which pages of %lld rows do not fill",
				name, LL(rows), group->content.type->name, LL(*out));
	if (group->content.n || !most || rows <= most)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: a block has %lld rows of %s, but a page of a kernel has at most %lld, each with its own planes: give --content-type=%s/%lld, or how many rows a page has",
			name, LL(rows), group->content.type->name, LL(most),
			kvt_content_name(&group->content).s, LL(most));
}

/* Rows of a block that is an array of them, or one page; 0: it is neither. */
static int64_t rows_of_block(const struct kvt_group *group)
{
	const struct kvt_content_type *type = group->content.type;
	int64_t slots = group->shape.n[KVT_AXIS_S], width = group->shape.n[KVT_AXIS_D];
	int64_t row = kvt_content_row(&group->content);

	if (!type || !type->planar)
		return 0;
	if (slots > 1 && (type->ratio ? group->tokens_per_slot == type->ratio :
					width == row))
		return slots;
	return slots == 1 && row && width > row && width % row == 0 ? width / row : 0;
}

/* Pages of which any row is one of so many slots, each of some rows. */
static uint32_t pages_of(uint32_t slots, int64_t each, int64_t rows)
{
	return (uint32_t)((slots * each + rows - 1) / rows);
}

/* The number said how many rows a page has, of which there are as many now. */
static void forget_rows(struct kvt_group *group)
{
	const struct kvt_content said = { .type = group->content.type };

	if (kvt_content_row(&said))
		group->content.n = 0;
}

/*
 * Engines call a page of planes an array of rows, which it is in size only.
 * Here it is one slot that stands for all tokens of the page, so that nothing
 * takes a row for what it is not.
 */
enum kvt_status kvt_content_fold(struct kvt_group *group, const char *name,
				 struct kvt_error *err)
{
	const struct kvt_content_type *type = group->content.type;
	int64_t *n = group->shape.n, all = rows_of_block(group), rows;
	enum kvt_status status;

	if (!all)
		return KVT_OK;
	if (!page_is_run(group))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a block of %s must be one run of bytes, which it is not in layout %s",
				name, type->name, kvt_layout_string(&group->layout).s);
	if ((status = rows_of_page(&rows, group, all, name, err)))
		return status;
	if (__builtin_mul_overflow(n[KVT_AXIS_D] / (all / n[KVT_AXIS_S]), rows,
				   &n[KVT_AXIS_D]))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: pages of %lld rows overflow",
				name, LL(rows));
	for (int64_t b = 0; group->block_valid && b < n[KVT_AXIS_B]; b++)
		group->block_valid[b] = pages_of(group->block_valid[b],
						 all / n[KVT_AXIS_S], rows);
	n[KVT_AXIS_S] = all / rows;
	group->tokens_per_slot = group->block_size / n[KVT_AXIS_S];
	forget_rows(group);
	return KVT_OK;
}
