/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - the datasets of a foreign group: their axes, their shape, and
 * whether they are tiles or one run of bytes
 *
 * Only headers are read here: what a file costs to open does not depend on how
 * much data it has.
 */
#include "formats/hdf5/hdf5.h"

#include <stdlib.h>
#include <string.h>

/* ---- layout ------------------------------------------------------------- */

static void parse_layout(struct kvt_h5_in *in, hid_t object, struct kvt_layout *out)
{
	char *text = kvt_h5_get_str(in, object, "axes");
	struct kvt_error why;

	if (text && kvt_layout_parse(out, text, &why))
		kvt_h5_bad(in, object, "axes: %.250s", why.text);
	free(text);
}

/* The group says it all; one plane may leave that to its dataset. */
static void read_layout(struct kvt_h5_in *in, hid_t object, struct kvt_layout *out)
{
	hid_t data = -1;
	bool said = kvt_h5_has_attr(in, object, "axes");

	if (!said)
		data = kvt_h5_need(in, object, "data", H5I_DATASET);
	parse_layout(in, said ? object : data, out);
	kvt_h5_drop(data);
}

static void check_planes(struct kvt_h5_in *in, hid_t object,
			 const struct kvt_layout *layout)
{
	enum { MOST = 8 };
	char *name[MOST];
	bool same;
	int n;

	if (!kvt_h5_has_attr(in, object, "planes"))
		return;
	n = kvt_h5_get_strs(in, object, "planes", name, MOST);
	same = n == layout->nplanes;
	for (int i = 0; i < n; i++) {
		same = same && !strcmp(name[i], kvt_h5_plane_name(layout, i));
		free(name[i]);
	}
	if (!same)
		kvt_h5_bad(in, object, "planes do not match axes %s",
			   kvt_layout_string(layout).s);
}

/* ---- shape -------------------------------------------------------------- */

struct dims {
	int rank;
	hsize_t n[KVT_MAX_PARTS];
	char *axes;			/* the attribute */
};

static bool read_dims(struct kvt_h5_in *in, hid_t data, struct dims *out)
{
	hid_t space = H5Dget_space(data);
	bool simple = H5Sget_simple_extent_type(space) == H5S_SIMPLE;
	int rank = simple ? H5Sget_simple_extent_ndims(space) : -1;

	if (rank >= 1 && rank <= KVT_MAX_PARTS)
		out->rank = H5Sget_simple_extent_dims(space, out->n, NULL);
	kvt_h5_drop(space);
	if (rank < 1 || rank > KVT_MAX_PARTS || out->rank != rank)
		return kvt_h5_bad(in, data, "rank is %d, expected 1 to %d", rank,
				  KVT_MAX_PARTS);
	for (int i = 0; i < rank; i++)
		if (out->n[i] > INT64_MAX)
			return kvt_h5_bad(in, data, "extent above 2^63");
	out->axes = kvt_h5_get_str(in, data, "axes");
	return out->axes != NULL;
}

/* Extents of L B S H K D, from those of the dataset's parts of them. */
static bool derive_shape(struct kvt_h5_in *in, hid_t data, const struct dims *dims,
			 struct kvt_group *group)
{
	const struct kvt_order *order = &group->layout.plane[0];
	bool apart = group->layout.nplanes == 2;
	bool has_k = !apart && strchr(dims->axes, 'K');
	int64_t *n = group->shape.n, unused;
	int dim = 0;

	for (int a = 0; a < KVT_NAXES; a++)
		n[a] = a == KVT_AXIS_K && apart ? 2 : 1;
	for (int i = 0; i < order->nparts; i++) {
		const struct kvt_part *part = &order->part[i];

		if (part->axis == KVT_AXIS_K && !has_k)
			continue;
		if (dim < dims->rank && part->kind != KVT_INNER &&
		    __builtin_mul_overflow((int64_t)dims->n[dim],
				kvt_h5_split(part, group->shape.elem),
				&n[part->axis]))
			return kvt_h5_bad(in, data, "extent above 2^63");
		dim++;
	}
	if (dim != dims->rank)
		return kvt_h5_bad(in, data, "rank is %d, but axes %s have %d",
				  dims->rank, dims->axes, dim);
	return !kvt_shape_nbytes(&unused, &group->shape, NULL) ||
	       kvt_h5_bad(in, data, "larger than 2^63 bytes");
}

/* ---- axes --------------------------------------------------------------- */

/* Equal but for blanks, and N, which others write for S. */
static bool same_axes(const char *a, const char *b)
{
	for (;;) {
		a += strspn(a, " ");
		b += strspn(b, " ");
		if ((*a == 'N' ? 'S' : *a) != *b)
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

/* A tuple is a second word on the layout: it may not be another one. */
static bool check_tuple(struct kvt_h5_in *in, hid_t data, const struct kvt_layout *layout)
{
	int64_t order[5];
	int expected[5], n;
	bool same, vllm;
	char *name;

	if (!kvt_h5_has_attr(in, data, "stride_order"))
		return true;
	n = kvt_h5_get_ints(in, data, "stride_order", KVT_H5_U32, order, 5);
	name = kvt_h5_get_str(in, data, "stride_order_convention");
	vllm = name && !strcmp(name, "vllm");
	same = name && (vllm || !strcmp(name, "rfc")) && n == 5 &&
	       kvt_layout_tuple(expected, layout, vllm ? KVT_VLLM : KVT_RFC);
	for (int i = 0; i < 5 && same; i++)
		same = order[i] == expected[i];
	free(name);
	return same || kvt_h5_bad(in, data, "stride_order does not match axes %s",
				  kvt_layout_string(layout).s);
}

static bool check_axes(struct kvt_h5_in *in, hid_t data, const struct dims *dims,
		       const struct kvt_group *group, int plane, struct kvt_h5_axes *out)
{
	struct kvt_error why;

	if (kvt_h5_axes(out, group, plane, &why))
		return kvt_h5_bad(in, data, "%.250s", why.text);
	if (!same_axes(dims->axes, kvt_h5_axes_string(out).s))
		return kvt_h5_bad(in, data, "axes are '%s', expected '%s'", dims->axes,
				  kvt_h5_axes_string(out).s);
	if (dims->rank != out->rank)
		return kvt_h5_bad(in, data, "rank is %d, expected %d", dims->rank,
				  out->rank);
	for (int i = 0; i < out->rank; i++)
		if (dims->n[i] != (hsize_t)out->extent[i])
			return kvt_h5_bad(in, data, "%s extent is %llu, expected %lld",
					  kvt_h5_label(out, i),
					  (unsigned long long)dims->n[i],
					  LL(out->extent[i]));
	return check_tuple(in, data, &group->layout);
}

static bool check_type(struct kvt_h5_in *in, hid_t data, const struct kvt_dtype *dtype)
{
	hid_t is = H5Dget_type(data), expected = kvt_h5_element_type(dtype);
	bool same = H5Tequal(is, expected) > 0;

	kvt_h5_drop(expected);
	kvt_h5_drop(is);
	return same || kvt_h5_bad(in, data, "its HDF5 type does not match %s",
				  dtype->name);
}

/* ---- storage ------------------------------------------------------------ */

static void add_run(struct kvt_reader *reader, int index, int plane,
		    struct kvt_h5_in *in, hid_t data)
{
	struct kvt_h5_file *own = reader->own;
	const struct kvt_group *group = &reader->leaf.snapshot.group[index];
	struct kvt_file_part range = { .box = kvt_box_whole(&group->shape) };
	haddr_t at = H5Dget_offset(data);

	if (group->layout.nplanes == 2) {
		range.box.begin[KVT_AXIS_K] = plane;
		range.box.end[KVT_AXIS_K] = plane + 1;
	}
	if ((in->status = kvt_layout_views(&range.views, &group->layout, &range.box,
					   group->shape.elem, in->err)))
		return;
	if (H5Dget_storage_size(data) != (hsize_t)range.views.nbytes)
		kvt_h5_bad(in, data, "data has %llu bytes in the file, expected %lld",
			   (unsigned long long)H5Dget_storage_size(data),
			   LL(range.views.nbytes));
	else if (range.views.nbytes &&
		 (at == HADDR_UNDEF || at > INT64_MAX ||
		  (int64_t)at > in->nbytes - range.views.nbytes))
		kvt_h5_bad(in, data, "data is not inside the file");
	if (in->status || range.views.nbytes == 0)
		return;
	for (int i = 0; i < range.views.count; i++)
		range.views.view[i].offset += (int64_t)at;
	own->group[index].at[plane] = (int64_t)at;
	own->group[index].nbytes[plane] = range.views.nbytes;
	in->status = kvt_flat_add(&reader->flat[index], &range, in->err);
}

static void add_tiles(struct kvt_reader *reader, int index, int plane,
		      struct kvt_h5_in *in, hid_t data, hid_t dcpl)
{
	struct kvt_h5_group *own = &((struct kvt_h5_file *)reader->own)->group[index];
	struct kvt_tiling tiling, *first = &reader->leaf.tiling[index];
	unsigned options = 0;

	if (!kvt_h5_read_tiling(&tiling, in, data, dcpl,
				&reader->leaf.snapshot.group[index], &own->axes[plane]))
		return;
	if (H5Pget_chunk_opts(dcpl, &options) < 0)
		kvt_h5_bad(in, data, "unreadable chunk options");
	reader->leaf.held[index] = true;
	own->raw_edges[plane] = options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS;
	if (plane == 0)
		*first = tiling;
	else if (memcmp(first->n, tiling.n, sizeof(tiling.n)) ||
		 !kvt_tiling_same_codec(first, &tiling))
		kvt_h5_refuse(in, data, KVT_UNSUPPORTED,
			      "keys and values are chunked differently");
}

static void read_storage(struct kvt_reader *reader, int index, int plane,
			 struct kvt_h5_in *in, hid_t data)
{
	hid_t dcpl = H5Dget_create_plist(data);
	H5D_layout_t layout = H5Pget_layout(dcpl);
	bool tiled = reader->leaf.tiling[index].nbytes > 0;

	if (layout == H5D_VIRTUAL)
		kvt_h5_add_sources(reader, index, plane, in, data, dcpl);
	else if (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS)
		kvt_h5_refuse(in, data, KVT_UNSUPPORTED,
			      "data is in the object header, expected chunks or contiguous data");
	else if (plane > 0 && tiled != (layout == H5D_CHUNKED))
		kvt_h5_refuse(in, data, KVT_UNSUPPORTED,
			      "only one of keys and values is chunked");
	else if (layout == H5D_CHUNKED)
		add_tiles(reader, index, plane, in, data, dcpl);
	else
		add_run(reader, index, plane, in, data);
	kvt_h5_drop(dcpl);
}

/* ---- all of it ---------------------------------------------------------- */

static void read_plane(struct kvt_reader *reader, int index, int plane,
		       struct kvt_h5_in *in, hid_t data)
{
	struct kvt_group *group = &reader->leaf.snapshot.group[index];
	struct kvt_h5_group *own = &((struct kvt_h5_file *)reader->own)->group[index];
	struct dims dims = { 0 };

	if (read_dims(in, data, &dims) &&
	    (plane > 0 || derive_shape(in, data, &dims, group)) &&
	    check_axes(in, data, &dims, group, plane, &own->axes[plane]) &&
	    check_type(in, data, group->dtype))
		read_storage(reader, index, plane, in, data);
	free(dims.axes);
}

void kvt_h5_read_data(struct kvt_reader *reader, int index, struct kvt_h5_in *in,
		      hid_t object)
{
	struct kvt_h5_file *own = reader->own;
	struct kvt_layout *layout = &reader->leaf.snapshot.group[index].layout;

	read_layout(in, object, layout);
	check_planes(in, object, layout);
	for (int p = 0; p < layout->nplanes && !in->status; p++) {
		hid_t *data = &own->group[index].data[p];

		*data = kvt_h5_need(in, object, kvt_h5_plane_name(layout, p),
				    H5I_DATASET);
		if (*data >= 0)
			read_plane(reader, index, p, in, *data);
		kvt_h5_read_sums(reader, index, p, in, object);
	}
	own->group[index].nplanes = layout->nplanes;
}
