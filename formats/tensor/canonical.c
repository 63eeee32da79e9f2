/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonical.c - one tensor for all groups: a row of each block, pages side by side
 *
 *	row 0	[layer 0 of its group][layer 1] ...  rest	row_bytes
 *	row 1	[...
 *		rows of them, one for each block id; no header
 *
 * The allocation of vLLM #37885, and of release 0.32 where blocks are outermost: a row
 * is what one block id costs.  The layers of a group have its pages one after the
 * other, from byte 0 of the row on; those of another group are the same bytes.  That
 * is sound as a block belongs to one group at a time, so a group has the blocks that
 * its block_ids name, and no other group may have them.
 *
 * The file has no header: a manifest beside it has "rows" and "row_bytes".  It is read
 * as raw.
 */
#include "formats/tensor/canonical.h"

#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "lib/layout/words.h"

/* ---- one group ---------------------------------------------------------- */

static int64_t id_of(const struct kvt_group *g, int64_t block)
{
	return g->block_ids ? (int64_t)g->block_ids[block] : block;
}

/* Bytes of the page of one layer, and of all. */
static enum kvt_status group_bytes(int64_t *page, int64_t *all, const struct kvt_group *g,
				   struct kvt_error *err)
{
	struct kvt_shape shape = g->shape;
	enum kvt_status status;

	shape.n[KVT_AXIS_L] = shape.n[KVT_AXIS_B] = 1;
	if ((status = kvt_shape_nbytes(page, &shape, err)))
		return status;
	if (g->page_bytes > *page)
		*page = g->page_bytes;
	if (__builtin_mul_overflow(*page, g->shape.n[KVT_AXIS_L], all))
		return kvt_fail(err, KVT_BAD_INPUT, "group %s: its size overflows",
				g->id);
	return KVT_OK;
}

static enum kvt_status check_order(const struct kvt_group *g, int64_t page,
				   struct kvt_error *err)
{
	const struct kvt_order *order = &g->layout.plane[0];
	struct kvt_shape content = g->shape;
	int64_t nbytes;

	content.n[KVT_AXIS_L] = content.n[KVT_AXIS_B] = 1;
	if (kvt_shape_nbytes(&nbytes, &content, NULL))
		nbytes = -1;
	if (g->layout.nplanes == 1 && order->part[0].axis == KVT_AXIS_B &&
	    (nbytes == page || (order->part[1].axis == KVT_AXIS_L && !g->page_offset)))
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"group %s is %s, but in one tensor blocks are outermost%s", g->id,
			kvt_layout_string(&g->layout).s,
			/* states keep their layout beside others */
			kvt_is_recurrent(g->kind) ? "" :
			"; kvtool relayout --to=blhsc has them so");
}

/* The views of the group in a tensor that begins at byte 0, as if ids were indices. */
static enum kvt_status views_of(struct kvt_views *out, const struct kvt_group *g,
				int64_t page, int64_t row, struct kvt_error *err)
{
	struct kvt_box whole = kvt_box_whole(&g->shape);
	enum kvt_status status = kvt_layout_views(out, &g->layout, &whole, g->shape.elem,
						  err);

	if (status)
		return status;
	if (g->layout.plane[0].part[1].axis == KVT_AXIS_L)
		kvt_view_set_stride(&out->view[0], KVT_AXIS_L, page);
	kvt_view_set_stride(&out->view[0], KVT_AXIS_B, row);
	return KVT_OK;
}

/* Blocks whose ids follow each other are one part. */
static enum kvt_status place_group(struct kvt_flat *flat, const struct kvt_group *g,
				   const struct kvt_rows *rows, int file, int64_t skip,
				   struct kvt_error *err)
{
	struct kvt_file_part part = { .file = file };
	int64_t n = g->shape.n[KVT_AXIS_B], page, all, end;
	enum kvt_status status;

	if ((status = group_bytes(&page, &all, g, err)) ||
	    (status = check_order(g, page, err)))
		return status;
	if (all > rows->row_bytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s has %lld bytes a block, more than row_bytes, %lld", g->id, LL(all),
				LL(rows->row_bytes));
	for (int64_t b = 0; b < n; b = end) {
		for (end = b + 1; end < n && id_of(g, end) == id_of(g, end - 1) + 1;)
			end++;
		if (id_of(g, end - 1) >= rows->rows)
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s has block %lld, but there are %lld rows", g->id, LL(id_of(g, end - 1)),
					LL(rows->rows));
		part.box = kvt_box_whole(&g->shape);
		part.box.begin[KVT_AXIS_B] = b;
		part.box.end[KVT_AXIS_B] = end;
		if ((status = views_of(&part.views, g, page, rows->row_bytes, err)) ||
		    (status = kvt_views_narrow(&part.views, &part.views, &part.box, err)))
			return status;
		part.views.view[0].offset += skip + (id_of(g, b) - b) * rows->row_bytes;
		if ((status = kvt_flat_add(flat, &part, err)))
			return status;
	}
	return KVT_OK;
}

/* ---- reading ------------------------------------------------------------ */

enum kvt_status kvt_canonical_fit(struct kvt_reader *reader,
				  struct kvt_manifest *manifest, int index,
				  struct kvt_error *err)
{
	const struct kvt_rows *rows = &manifest->tensor;
	int64_t size = reader->files.file[index].nbytes, nbytes;
	struct kvt_snapshot *s = &manifest->snapshot;
	enum kvt_status status;

	if (__builtin_mul_overflow(rows->rows, rows->row_bytes, &nbytes) ||
	    __builtin_add_overflow(nbytes, manifest->skip, &nbytes) || nbytes != size)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes, but %lld rows of %lld bytes are expected", reader->leaf.path, LL(size),
				LL(rows->rows), LL(rows->row_bytes));
	if ((status = kvt_manifest_complete(manifest, reader->leaf.path, err)))
		return status;
	reader->leaf.rows = rows->rows;
	reader->leaf.row_bytes = rows->row_bytes;
	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_error why = { "" };

		if ((status = place_group(&reader->flat[g], &s->group[g], rows, index,
					  manifest->skip, &why)))
			return kvt_fail(err, status, "%s: %s", reader->leaf.path,
					why.text);
	}
	return kvt_manifest_adopt(reader, manifest, err);
}

/* ---- writing ------------------------------------------------------------ */

/* A block of a group. */
struct block {
	int64_t id;
	int group;
	bool null;
};

static int by_id(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->id != y->id ? (x->id < y->id ? -1 : 1) :
	       x->group < y->group ? -1 : x->group > y->group;
}

/* Each is of one group, but for the null block: kvt_dump_one_pool() sees to it. */
static enum kvt_status check_shared(struct block *block, int64_t n,
				    const struct kvt_snapshot *s, struct kvt_error *err)
{
	qsort(block, (size_t)n, sizeof(*block), by_id);
	for (int64_t i = 1; i < n; i++)
		if (block[i].id == block[i - 1].id &&
		    !(block[i].null && block[i - 1].null))
			return kvt_fail(err, KVT_BAD_INPUT,
					"block %lld is of groups %s and %s, which are the same bytes in one tensor",
					LL(block[i].id), s->group[block[i - 1].group].id,
					s->group[block[i].group].id);
	return KVT_OK;
}

static enum kvt_status measure(struct kvt_rows *out, const struct kvt_snapshot *s,
			       struct kvt_error *err)
{
	int64_t n = 0, page, all;
	enum kvt_status status = KVT_OK;
	struct block *block;

	*out = (struct kvt_rows){ 0, 0 };
	for (int g = 0; g < s->ngroups; g++)
		n += s->group[g].shape.n[KVT_AXIS_B];
	if (!(block = calloc((size_t)n + 1, sizeof(*block))))
		return kvt_no_memory(err, NULL);
	n = 0;
	for (int g = 0; g < s->ngroups && !status; g++) {
		const struct kvt_group *group = &s->group[g];

		for (int64_t b = 0; b < group->shape.n[KVT_AXIS_B]; b++) {
			block[n + b].id = id_of(group, b);
			block[n + b].group = g;
			block[n + b].null = b == kvt_null_block(s, g);
			if (block[n + b].id >= out->rows)
				out->rows = block[n + b].id + 1;
		}
		n += group->shape.n[KVT_AXIS_B];
		status = group_bytes(&page, &all, group, err);
		if (!status && all > out->row_bytes)
			out->row_bytes = all;
	}
	if (!status)
		status = check_shared(block, n, s, err);
	free(block);
	return status;
}

enum kvt_status kvt_canonical_create(struct kvt_writer *writer, struct kvt_error *err)
{
	const struct kvt_snapshot *s = &writer->head.snapshot;
	struct kvt_rows *rows = &writer->tensor;
	enum kvt_status status;
	int64_t nbytes;
	int index;

	if ((status = measure(rows, s, err)))
		return status;
	if (__builtin_mul_overflow(rows->rows, rows->row_bytes, &nbytes))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld rows of %lld bytes are too many",
				LL(rows->rows), LL(rows->row_bytes));
	status = kvt_files_create(&writer->files, &index, writer->temporary, nbytes, err);
	for (int g = 0; g < s->ngroups && !status; g++)
		status = place_group(&writer->flat[g], &s->group[g], rows, index, 0, err);
	return status;
}
