/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locate.c - from elements to the bytes of files and tensors, and back
 *
 * Nothing but parts is looked at, never data.  Those of a file are the reader's; those
 * of a tensor are made when they are asked for.
 *
 * A byte is looked for in all parts of its buffer, of which begin and end come as well:
 *
 *	header | elements | padding | gap | elements | padding | beyond
 *	       begin                                           end
 *
 * Padding is what a page has besides its content: it has a layer and a block, and no
 * element.  Groups whose contents lie side by side in the same pages are one tensor,
 * which has no name.
 */
#include "formats/format.h"

#include <string.h>

/* ---- tensors ------------------------------------------------------------ */

static int64_t content_bytes(const struct kvt_group *group)
{
	struct kvt_shape page = group->shape;
	int64_t nbytes = 0;

	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	return kvt_shape_nbytes(&nbytes, &page, NULL) ? INT64_MAX : nbytes;
}

/* Groups of a hybrid model may take turns in pages: then none has its place. */
static bool side_by_side(const struct kvt_group *a, const struct kvt_group *b)
{
	return a->page_offset + content_bytes(a) <= b->page_offset ||
	       b->page_offset + content_bytes(b) <= a->page_offset;
}

static bool shares_pages(const struct kvt_snapshot *s)
{
	int64_t nbytes;

	if (!kvt_snapshot_has_pages(s) || kvt_snapshot_file_bytes(&nbytes, s, true, NULL))
		return false;
	for (int g = 0; g < s->ngroups; g++)
		for (int h = 0; h < g; h++)
			if (!side_by_side(&s->group[g], &s->group[h]))
				return false;
	return true;
}

static enum kvt_status tensor_part(struct kvt_file_part *out,
				    const struct kvt_snapshot *s, int g,
				    struct kvt_error *err)
{
	const struct kvt_group *group = &s->group[g];
	struct kvt_box whole = kvt_box_whole(&group->shape);
	bool shared = shares_pages(s);

	return kvt_file_part_init(out, group, &whole, shared || kvt_group_has_gaps(group),
			      shared ? 0 : g, 0, err);
}

/* ---- buffers ------------------------------------------------------------ */

/* Files of a folder are named inside it; one file that is the dump needs none. */
static const char *name_of_file(const struct kvt_reader *reader, int64_t i)
{
	const char *path = reader->files.file[i].path;
	size_t n = strlen(reader->leaf.path);

	if (strncmp(path, reader->leaf.path, n))
		return path;
	path += n;
	path += strspn(path, "/");
	return *path ? path : NULL;
}

const char *kvt_reader_buffer_name(const struct kvt_leaf *leaf,
				   enum kvt_space space, int64_t buffer)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);

	if (space == KVT_FILES)
		return name_of_file(reader, buffer);
	if (reader->leaf.snapshot.ngroups < 2 || shares_pages(&reader->leaf.snapshot))
		return NULL;
	return reader->leaf.snapshot.group[buffer].id;
}

static enum kvt_status only_tensor(int64_t *out, const struct kvt_reader *reader,
				   struct kvt_error *err)
{
	const struct kvt_snapshot *s = &reader->leaf.snapshot;

	if (s->ngroups > 1 && !shares_pages(s))
		return kvt_fail(err, KVT_USAGE,
				"%s: has %d tensors, expected the group before the offset, such as %s:0",
				reader->leaf.path, s->ngroups, s->group[0].id);
	*out = 0;
	return KVT_OK;
}

static enum kvt_status several_files(const struct kvt_reader *reader, int64_t one,
				     struct kvt_error *err)
{
	const char *name = name_of_file(reader, one);

	return kvt_fail(err, KVT_USAGE,
			"%s: has several files with data, expected the name before the offset, such as %s:0",
			reader->leaf.path, name ? name : reader->leaf.path);
}

/* The one file that has parts; without any it is the dump's first. */
static enum kvt_status only_file(int64_t *out, const struct kvt_reader *reader,
				 struct kvt_error *err)
{
	int64_t found = -1;

	for (int g = 0; g < reader->leaf.snapshot.ngroups; g++)
		for (int64_t i = 0; i < reader->flat[g].nparts; i++) {
			int64_t file = reader->flat[g].placed[i].file;

			if (file >= 0 && reader->files.file[file].computed)
				continue;
			if (found >= 0 && file >= 0 && file != found)
				return several_files(reader, found, err);
			if (file >= 0)
				found = file;
		}
	*out = found < 0 ? 0 : found;
	return KVT_OK;
}

static bool file_has_data(const struct kvt_reader *reader, int64_t file)
{
	for (int g = 0; g < reader->leaf.snapshot.ngroups; g++)
		for (int64_t i = 0; i < reader->flat[g].nparts; i++)
			if (reader->flat[g].placed[i].file == file)
				return true;
	return false;
}

enum kvt_status kvt_reader_find_buffer(int64_t *out, const struct kvt_leaf *leaf,
				       enum kvt_space space, const char *name,
				       struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);
	bool memory = space == KVT_MEMORY;
	int64_t n = memory ? reader->leaf.snapshot.ngroups : reader->files.count;

	if (!name)
		return memory ? only_tensor(out, reader, err) :
				only_file(out, reader, err);
	for (int64_t i = 0; i < n; i++) {
		const char *own = memory ? reader->leaf.snapshot.group[i].id :
					   name_of_file(reader, i);

		if (!own || strcmp(own, name) || (!memory && !file_has_data(reader, i)))
			continue;
		*out = memory && shares_pages(&reader->leaf.snapshot) ? 0 : i;
		return KVT_OK;
	}
	return kvt_fail(err, KVT_USAGE, "%s: has no %s '%.200s' with data",
			reader->leaf.path,
			memory ? "group" : "file", name);
}

/* ---- where an element is ------------------------------------------------ */

static bool holds(const struct kvt_box *box, const int64_t index[KVT_NAXES])
{
	for (int a = 0; a < KVT_NAXES; a++)
		if (index[a] < box->begin[a] || index[a] >= box->end[a])
			return false;
	return true;
}

static void place_in(int64_t *buffer, int64_t *offset,
		     const struct kvt_file_part *part, const int64_t index[KVT_NAXES])
{
	int64_t inside[KVT_NAXES];

	*buffer = part->file;
	*offset = 0;
	if (part->file < 0)
		return;
	for (int a = 0; a < KVT_NAXES; a++)
		inside[a] = index[a] - part->box.begin[a];
	*offset = kvt_views_at(&part->views, inside);
}

/* What is worked out of many bytes has none of its own. */
static enum kvt_status no_place(const struct kvt_reader *reader, int group,
				struct kvt_error *err)
{
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s: group %s is decoded from codes that are packed together, so an element has no offset",
			reader->leaf.path, reader->leaf.snapshot.group[group].id);
}

enum kvt_status kvt_reader_locate(int64_t *buffer, int64_t *offset,
				  const struct kvt_leaf *leaf, enum kvt_space space,
				  int group, const int64_t index[KVT_NAXES],
				  struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);
	const struct kvt_snapshot *s = &reader->leaf.snapshot;
	const struct kvt_flat *flat;
	struct kvt_file_part part;
	struct kvt_box whole;
	enum kvt_status status;

	if (group < 0 || group >= s->ngroups)
		return kvt_fail(err, KVT_USAGE, "%s: has no group %d", reader->leaf.path,
				group);
	whole = kvt_box_whole(&s->group[group].shape);
	if (!holds(&whole, index))
		return kvt_fail(err, KVT_USAGE, "%s: index outside group %s",
				reader->leaf.path, s->group[group].id);
	if (space == KVT_MEMORY) {
		if ((status = tensor_part(&part, s, group, err)))
			return status;
		place_in(buffer, offset, &part, index);
		return KVT_OK;
	}
	flat = &reader->flat[group];
	for (int64_t i = 0; i < flat->nparts; i++)
		if (holds(&flat->placed[i].box, index)) {
			part = kvt_flat_part(flat, i);
			if (part.file >= 0 && reader->files.file[part.file].computed)
				return no_place(reader, group, err);
			place_in(buffer, offset, &part, index);
			return KVT_OK;
		}
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s: group %s is stored in compressed tiles, in which elements have no offset",
			reader->leaf.path, s->group[group].id);
}

/* ---- what a byte is ----------------------------------------------------- */

/* The factor of an unsplit axis. */
static const struct kvt_factor *factor_of(const struct kvt_view *view, enum kvt_axis axis)
{
	for (int i = 0; i < view->nfactors; i++)
		if (view->factor[i].axis == axis)
			return &view->factor[i];
	return NULL;
}

/* In dense arrays the faster of both strides is the content of a page. */
static bool in_pages(const struct kvt_file_part *part, const struct kvt_group *group)
{
	const struct kvt_view *view = &part->views.view[0];
	const struct kvt_factor *l = factor_of(view, KVT_AXIS_L);
	const struct kvt_factor *b = factor_of(view, KVT_AXIS_B);

	return kvt_group_has_gaps(group) && l && b &&
	       (l->stride < b->stride ? l : b)->stride == group->page_bytes;
}

static void look_at_page(struct kvt_where *out, const struct kvt_file_part *part,
			 const struct kvt_group *group, int g, int64_t offset)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_L, KVT_AXIS_B };
	const struct kvt_view *view = &part->views.view[0];
	int64_t begin = view->offset - group->page_offset;
	int64_t end = begin + group->shape.n[KVT_AXIS_L] *
			      group->shape.n[KVT_AXIS_B] * group->page_bytes;

	if (begin < out->begin)
		out->begin = begin;
	if (end > out->end)
		out->end = end;
	if (offset < begin || offset >= end || out->region != KVT_GAP)
		return;
	out->region = KVT_PADDING;
	out->group = g;
	out->byte = (offset - begin) % group->page_bytes;
	for (int i = 0; i < 2; i++) {
		const struct kvt_factor *f = factor_of(view, axes[i]);

		out->index[axes[i]] = (offset - begin) / f->stride % f->n;
	}
}

/* All parts of a buffer are looked at: begin and end come from all of them. */
static void look(struct kvt_where *out, const struct kvt_file_part *part,
		 const struct kvt_group *group, int g, int64_t offset)
{
	int64_t index[KVT_NAXES], end;

	for (int i = 0; i < part->views.count; i++) {
		const struct kvt_view *view = &part->views.view[i];

		if (kvt_view_end(&end, view, NULL) || !end)
			continue;
		if (view->offset < out->begin)
			out->begin = view->offset;
		if (end > out->end)
			out->end = end;
	}
	if (in_pages(part, group))
		look_at_page(out, part, group, g, offset);
	if (!kvt_views_find(&part->views, offset, index))
		return;
	out->region = KVT_ELEMENT;
	out->group = g;
	out->byte = offset - kvt_views_at(&part->views, index);
	for (int a = 0; a < KVT_NAXES; a++)
		out->index[a] = index[a] + part->box.begin[a];
}

static void look_in_file(struct kvt_where *out, const struct kvt_reader *reader,
			 int64_t file, int64_t offset)
{
	for (int g = 0; g < reader->leaf.snapshot.ngroups; g++)
		for (int64_t i = 0; i < reader->flat[g].nparts; i++)
			if (reader->flat[g].placed[i].file == file) {
				struct kvt_file_part part =
					kvt_flat_part(&reader->flat[g], i);

				look(out, &part, &reader->leaf.snapshot.group[g], g,
				     offset);
			}
}

static enum kvt_status look_in_tensor(struct kvt_where *out,
				      const struct kvt_snapshot *s, int64_t tensor,
				      int64_t offset, struct kvt_error *err)
{
	for (int g = 0; g < s->ngroups; g++) {
		struct kvt_file_part part;
		enum kvt_status status = tensor_part(&part, s, g, err);

		if (status)
			return status;
		if (part.file == tensor)
			look(out, &part, &s->group[g], g, offset);
	}
	return KVT_OK;
}

static bool has_tiles(const struct kvt_reader *reader)
{
	for (int g = 0; g < reader->leaf.snapshot.ngroups; g++)
		if (reader->leaf.tiling[g].nbytes)
			return true;
	return false;
}

static bool has_computed(const struct kvt_reader *reader)
{
	for (int64_t i = 0; i < reader->files.count; i++)
		if (reader->files.file[i].computed)
			return true;
	return false;
}

enum kvt_status kvt_reader_at(struct kvt_where *out, const struct kvt_leaf *leaf,
			      enum kvt_space space, int64_t buffer, int64_t offset,
			      struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);
	struct kvt_where place = { .region = KVT_GAP, .group = -1, .begin = INT64_MAX };
	enum kvt_status status = KVT_OK;

	if (space == KVT_MEMORY)
		status = look_in_tensor(&place, &reader->leaf.snapshot, buffer, offset,
					err);
	else
		look_in_file(&place, reader, buffer, offset);
	if (status)
		return status;
	if (space == KVT_FILES && place.region != KVT_ELEMENT && has_computed(reader))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: byte %lld is no element by itself, for keys and values are decoded from codes that are packed together",
				reader->leaf.path, LL(offset));
	if (place.begin > place.end)
		place.begin = place.end;
	if (space == KVT_FILES && place.region != KVT_ELEMENT && has_tiles(reader))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: byte %lld is in no array; groups are stored in compressed tiles, whose bytes belong to no single element",
				reader->leaf.path, LL(offset));
	if (place.region == KVT_GAP && offset < place.begin)
		place.region = KVT_HEADER;
	else if (place.region == KVT_GAP && offset >= place.end)
		place.region = KVT_BEYOND;
	*out = place;
	return KVT_OK;
}

/* ---- padding ------------------------------------------------------------ */

bool kvt_reader_has_padding(const struct kvt_leaf *leaf, int group)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);
	const struct kvt_flat *flat = &reader->flat[group];
	struct kvt_file_part part;

	if (group > 0 && shares_pages(&reader->leaf.snapshot))
		return false;
	if (flat->nparts != 1 || flat->placed[0].file < 0)
		return false;
	part = kvt_flat_part(flat, 0);
	return in_pages(&part, &reader->leaf.snapshot.group[group]);
}

enum kvt_status kvt_reader_read_padding(uint8_t *page, const struct kvt_leaf *leaf,
				 int group, int64_t layer, int64_t block,
				 struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_leaf_reader(leaf);
	const struct kvt_snapshot *s = &reader->leaf.snapshot;
	const int64_t index[KVT_NAXES] = { layer, block };
	bool shared = shares_pages(s);
	enum kvt_status status;
	int64_t file, offset;

	if ((status = kvt_reader_locate(&file, &offset, leaf, KVT_FILES, group, index,
					err)))
		return status;
	offset -= s->group[group].page_offset;
	status = kvt_file_read(&reader->files.file[file], page,
			       s->group[group].page_bytes, offset, err);
	for (int g = 0; !status && g < s->ngroups; g++)
		if (shared || g == group)
			memset(page + s->group[g].page_offset, 0,
			       (size_t)content_bytes(&s->group[g]));
	return status;
}
