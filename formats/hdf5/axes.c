/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axes.c - the dimensions of a dataset, and their names
 *
 *	LBHSC  -> [layer][block][head][state][content]	K of extent 1: D is all content
 *	LBKHSD -> [layer][block][kv][head][state][dim]
 *	"D/x S x" of K: -> [dim_outer][state][dim_inner]	the planes apart
 *
 * A dataset has one dimension for each part of its plane's order.  K has none where the
 * planes are datasets of their own.  A slot is called a state in files, a tap of a conv
 * state a tap, and its channels channels.
 */
#include "formats/hdf5/hdf5.h"

#include <stdio.h>
#include <string.h>

int64_t kvt_h5_split(const struct kvt_part *part, int64_t elem)
{
	if (part->kind == KVT_WHOLE)
		return 1;
	if (part->split)
		return part->split;
	return elem < 16 ? 16 / elem : 1;
}

static enum kvt_status add_dim(struct kvt_h5_axes *axes, const struct kvt_group *group,
			       const struct kvt_part *part, struct kvt_error *err)
{
	int64_t n = group->shape.n[part->axis];
	int64_t split = kvt_h5_split(part, group->shape.elem);

	if (n % split)
		return kvt_fail(err, KVT_BAD_INPUT,
				"group %s: %s extent %lld is not a multiple of %lld",
				group->id, kvt_axis_name(part->axis), LL(n), LL(split));
	axes->part[axes->rank] = *part;
	axes->split[axes->rank] = split;
	axes->extent[axes->rank++] = part->kind == KVT_INNER ? split : n / split;
	return KVT_OK;
}

enum kvt_status kvt_h5_axes(struct kvt_h5_axes *out, const struct kvt_group *group,
			    int plane, struct kvt_error *err)
{
	const struct kvt_order *order = &group->layout.plane[plane];
	bool apart = group->layout.nplanes == 2;
	struct kvt_h5_axes axes = {
		.content = !apart && group->shape.n[KVT_AXIS_K] == 1,
		.conv = group->kind == KVT_MAMBA_CONV,
	};
	bool has[KVT_NAXES] = { [KVT_AXIS_K] = apart };

	for (int i = 0; i < order->nparts; i++) {
		const struct kvt_part *part = &order->part[i];
		enum kvt_status status;

		has[part->axis] = true;
		if (part->axis == KVT_AXIS_K && (apart || axes.content))
			continue;
		if ((status = add_dim(&axes, group, part, err)))
			return status;
	}
	for (int a = 0; a < KVT_NAXES; a++)
		if (!has[a] && group->shape.n[a] != 1)
			return kvt_fail(err, KVT_BAD_INPUT,
					"group %s: layout %s has no %s axis, of which there are %lld",
					group->id, kvt_layout_string(&group->layout).s,
					kvt_axis_name(a), LL(group->shape.n[a]));
	*out = axes;
	return KVT_OK;
}

/* ---- names -------------------------------------------------------------- */

const char *kvt_h5_label(const struct kvt_h5_axes *axes, int dim)
{
	static const char *const split[KVT_NAXES][2] = {
		[KVT_AXIS_S] = { "state_outer", "state_inner" },
		[KVT_AXIS_D] = { "dim_outer", "dim_inner" },
	};
	const struct kvt_part *part = &axes->part[dim];

	if (part->kind != KVT_WHOLE)
		return split[part->axis][part->kind == KVT_INNER];
	if (axes->conv && part->axis == KVT_AXIS_S)
		return "tap";
	if (axes->conv && part->axis == KVT_AXIS_D)
		return "channel";
	if (axes->content && part->axis == KVT_AXIS_D)
		return "content";
	/* files call a slot a state, as they did before it had its name */
	return part->axis == KVT_AXIS_S ? "state" : kvt_axis_name(part->axis);
}

/* Letters only where they say it all: D ... x, as in "LBHDSx". */
static bool compact(const struct kvt_h5_axes *axes)
{
	for (int i = 0; i < axes->rank; i++)
		if (axes->part[i].kind != KVT_WHOLE &&
		    (axes->part[i].axis != KVT_AXIS_D || axes->part[i].split))
			return false;
	return true;
}

static int put_part(char *s, size_t room, const struct kvt_h5_axes *axes, int dim,
		    bool short_form)
{
	const struct kvt_part *part = &axes->part[dim];
	char letter = kvt_axis_letter(part->axis);
	char mark = part->kind == KVT_OUTER ? '/' : '%';

	if (part->kind == KVT_WHOLE)
		return snprintf(s, room, "%c", part->axis == KVT_AXIS_D &&
				axes->content && !axes->conv ? 'C' : letter);
	if (short_form)
		return snprintf(s, room, "%c", mark == '/' ? letter : 'x');
	if (part->split)
		return snprintf(s, room, "%c%c%lld", letter, mark, LL(part->split));
	return snprintf(s, room, "%c%cx", letter, mark);
}

struct kvt_text kvt_h5_axes_string(const struct kvt_h5_axes *axes)
{
	bool short_form = compact(axes);
	struct kvt_text text = { "" };
	size_t at = 0;

	for (int i = 0; i < axes->rank; i++) {
		if (i && !short_form)
			text.s[at++] = ' ';
		at += (size_t)put_part(text.s + at, sizeof(text.s) - at, axes, i,
				       short_form);
	}
	return text;
}

const char *kvt_h5_plane_name(const struct kvt_layout *layout, int plane)
{
	if (layout->nplanes == 1)
		return "data";
	return plane == 0 ? "data_k" : "data_v";
}

/* ---- places ------------------------------------------------------------- */

void kvt_h5_chunk_dims(hsize_t *out, const struct kvt_h5_axes *axes,
		       const int64_t n[KVT_NAXES])
{
	for (int i = 0; i < axes->rank; i++) {
		int64_t count = n[axes->part[i].axis];

		if (axes->part[i].kind == KVT_INNER)
			out[i] = (hsize_t)axes->extent[i];
		else
			out[i] = (hsize_t)(count / axes->split[i]);
	}
}

void kvt_h5_chunk_offset(hsize_t *out, const struct kvt_h5_axes *axes,
			 const int64_t begin[KVT_NAXES])
{
	for (int i = 0; i < axes->rank; i++)
		out[i] = axes->part[i].kind == KVT_INNER ? 0 :
			 (hsize_t)(begin[axes->part[i].axis] / axes->split[i]);
}

/* ---- content_digest ----------------------------------------------------- */

int kvt_h5_cell_dims(hsize_t dims[KVT_H5_CELL_RANK],
		     const struct kvt_group *group, const int64_t n[KVT_NAXES])
{
	static const enum kvt_axis axis[KVT_H5_CELL_RANK] = {
		KVT_AXIS_L, KVT_AXIS_B, KVT_AXIS_H, KVT_AXIS_K
	};

	for (int i = 0; i < KVT_H5_CELL_RANK; i++)
		dims[i] = (hsize_t)n[axis[i]];
	return group->shape.n[KVT_AXIS_K] > 1 ? 4 : 3;
}
