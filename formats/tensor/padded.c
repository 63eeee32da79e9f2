/* SPDX-License-Identifier: Apache-2.0 */
/*
 * padded.c - heads whose elements fill only a part of what is kept for them
 *
 * Engines on TPUs pad heads to 128 elements, and the rest is zeros; nothing in a file
 * says so.  Rows of several blocks that all end in zeros are told of.  If the user says
 * how long padded rows are, tensors become views of the elements before the padding.
 */
#include "formats/tensor/tensors.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = 128, COLUMN = 8, LEAST = 16, LOOKS = 4, ROWS = 64, MOST_PADDED = 1 << 20 };

/* ---- what is said of it -------------------------------------------------- */

/* Is any byte of columns [d, d + COLUMN) of a block set? */
static enum kvt_status look_at(bool *set, const struct kvt_reader *reader, int g,
			       int64_t block, int64_t d, struct kvt_error *err)
{
	const struct kvt_group *group = &reader->leaf.snapshot.group[g];
	struct kvt_box box = kvt_box_whole(&group->shape);
	struct kvt_shape shape;
	enum kvt_status status;
	uint8_t *bytes;
	int64_t n;

	box.end[KVT_AXIS_L] = 1;
	box.begin[KVT_AXIS_B] = block;
	box.end[KVT_AXIS_B] = block + 1;
	box.begin[KVT_AXIS_D] = d;
	box.end[KVT_AXIS_D] = d + COLUMN;
	if (box.end[KVT_AXIS_S] > LOOKS)
		box.end[KVT_AXIS_S] = LOOKS;
	if (box.end[KVT_AXIS_H] > LOOKS)
		box.end[KVT_AXIS_H] = LOOKS;
	shape = kvt_box_shape(&box, group->shape.elem);
	if ((status = kvt_shape_nbytes(&n, &shape, err)))
		return status;
	if (!(bytes = malloc((size_t)n)))
		return kvt_no_memory(err, NULL);
	status = kvt_flat_read(&reader->flat[g], &reader->files, group, &box, bytes, err);
	*set = false;
	for (int64_t i = 0; !status && i < n; i++)
		*set |= bytes[i] != 0;
	free(bytes);
	return status;
}

/* How many elements of a row are not zero in all blocks that are looked at. */
static enum kvt_status find_width(int64_t *width, const struct kvt_reader *reader, int g,
				  struct kvt_error *err)
{
	const int64_t *n = reader->leaf.snapshot.group[g].shape.n;
	int64_t looks = n[KVT_AXIS_B] < LOOKS ? n[KVT_AXIS_B] : LOOKS;
	enum kvt_status status = KVT_OK;
	bool set;

	*width = 0;
	for (int64_t i = 0; !status && i < looks; i++) {
		int64_t block = looks > 1 ? i * (n[KVT_AXIS_B] - 1) / (looks - 1) : 0;
		int64_t d = n[KVT_AXIS_D] - COLUMN;

		for (set = false; !status && !set && d >= *width; d -= COLUMN) {
			status = look_at(&set, reader, g, block, d, err);
			if (set)
				*width = d + COLUMN;
		}
	}
	return status;
}

/* False: out of memory. */
static bool say_padding(struct kvt_reader *reader, const struct kvt_group *group,
			int64_t width)
{
	int64_t dims = group->shape.n[KVT_AXIS_D];
	enum { ROOM = 400 };
	char *text = malloc(ROOM);

	if (text)
		snprintf(text, ROOM,
			 "rows of group %s have %lld elements, and those that were looked at are zeros from %lld on, as of heads that were padded to %lld: --set=padded=%lld with --head-dim=%lld (or --content-size) leaves them out",
			 group->id, LL(dims), LL(width), LL(dims), LL(dims), LL(width));
	reader->leaf.unnoticed = reader->leaf.said = text;
	return text != NULL;
}

enum kvt_status kvt_tell_padding(struct kvt_reader *reader, struct kvt_error *err)
{
	const struct kvt_snapshot *s = &reader->leaf.snapshot;
	enum kvt_status status;

	for (int g = 0; g < s->ngroups && !reader->leaf.unnoticed; g++) {
		const struct kvt_group *group = &s->group[g];
		int64_t dims = group->shape.n[KVT_AXIS_D], width;
		if (dims % LANES || group->content.type || !group->dtype->is_float ||
		    kvt_is_recurrent(group->kind))
			continue;
		if ((status = find_width(&width, reader, g, err)))
			return status;
		if (!width || dims - width < LEAST)
			continue;
		if (!say_padding(reader, group, width))
			return kvt_no_memory(err, NULL);
	}
	return KVT_OK;
}

/* ---- leaving it out ------------------------------------------------------ */

static enum kvt_status refuse_row(const struct kvt_tensor *t, int64_t row, int64_t width,
				  const struct kvt_file *file, struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: tensor %.100s: row %lld has more than zeros from element %lld on, so that is no padding",
			file->path, t->name, LL(row), LL(width));
}

/* Rows all over a tensor: what is called padding is zeros there. */
static enum kvt_status check_zeros(const struct kvt_tensor *t, int64_t data,
				   int64_t padded, int64_t width,
				   const struct kvt_file *file, struct kvt_error *err)
{
	int64_t elem = kvt_tensor_array(t, "").elem, n = (padded - width) * elem;
	int64_t rows = (t->end - t->begin) / (padded * elem), step = rows / ROWS + 1;
	uint8_t *bytes = malloc((size_t)n);
	enum kvt_status status = KVT_OK;

	if (!bytes)
		return kvt_no_memory(err, file->path);
	for (int64_t row = 0; !status && row < rows; row += step) {
		int64_t at = data + t->begin + (row * padded + width) * elem;

		status = kvt_file_read(file, bytes, n, at, err);
		for (int64_t i = 0; !status && i < n; i++)
			if (bytes[i])
				status = refuse_row(t, row, width, file, err);
	}
	free(bytes);
	return status;
}

/* The tensor without the end of each row, which is its last axis. */
static void cut_rows(struct kvt_tensor *t, int64_t width)
{
	int64_t dense = kvt_tensor_array(t, "").elem, bytes = dense;

	for (int i = t->rank - 1; i >= 0; i--) {
		t->stride[i] = dense;
		dense *= t->shape[i];
	}
	t->shape[t->rank - 1] = width;
	for (int i = 0; i < t->rank; i++)
		bytes *= t->shape[i];
	t->strided = true;
	t->end = t->begin + bytes;
}

enum kvt_status kvt_tensors_cut(struct kvt_reader *reader, struct kvt_tensors *tensors,
				const struct kvt_file *file,
				const struct kvt_hints *hints, struct kvt_error *err)
{
	int64_t padded = 0, width = hints ? hints->head_dim : 0;
	enum kvt_status status;

	if ((status = kvt_fact_int(&padded, hints, "padded", 2, MOST_PADDED, err)) ||
	    !padded)
		return status;
	if (width < 1)
		width = hints->content;
	if (width < 1 || width >= padded)
		return kvt_fail(err, KVT_USAGE,
				"padded is %lld: give --head-dim (or --content-size), of fewer elements than that",
				LL(padded));
	for (int64_t i = 0; i < tensors->count; i++) {
		struct kvt_tensor *t = &tensors->tensor[i];

		if (!t->rank || t->shape[t->rank - 1] != padded || t->strided)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: tensor %.100s has no rows of %lld elements, as padded says",
					file->path, t->name, LL(padded));
		if ((status = check_zeros(t, tensors->data, padded, width, file, err)))
			return status;
		cut_rows(t, width);
	}
	reader->leaf.unnoticed =
		"what padded leaves out was looked at in some rows of each tensor only";
	return KVT_OK;
}
