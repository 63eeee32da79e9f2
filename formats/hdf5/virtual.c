/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.c - data that are boxes of other snapshots, as kvtool reduce joins parts
 *
 * A file says which files these are, and a hostile one could name any of the reader's.
 * So they are in its folder, or below it, and nothing is opened here; kvt_open() opens
 * what was found to be boxes of layers and blocks.
 */
#include "formats/hdf5/hdf5.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 16384 };

/* ---- what the file says ------------------------------------------------- */

bool kvt_h5_virtual_fixed(hid_t dcpl)
{
	size_t n = 0;
	bool fixed = H5Pget_virtual_count(dcpl, &n) >= 0 && n <= MOST_SOURCES;

	/* with these HDF5 opens files when it is asked for an extent */
	for (size_t i = 0; fixed && i < n; i++) {
		hsize_t low[H5S_MAX_RANK], high[H5S_MAX_RANK];
		hid_t space = H5Pget_virtual_vspace(dcpl, i);
		char name[4096];
		ssize_t length = H5Pget_virtual_filename(dcpl, i, name, sizeof(name));

		fixed = H5Sget_select_bounds(space, low, high) >= 0 && length > 0 &&
			length < (ssize_t)sizeof(name) && !strchr(name, '%');
		kvt_h5_drop(space);
	}
	return fixed;
}

/* "shards/000000.h5": neither from the root nor upwards, nor the file itself. */
static bool is_below(const char *name)
{
	if (*name == '/' || !strcmp(name, "."))
		return false;
	for (const char *part = name; part; part = strchr(part, '/')) {
		part += *part == '/';
		if (!strncmp(part, "..", 2) && (part[2] == '/' || !part[2]))
			return false;
	}
	return true;
}

/* A box of whole layers and blocks, and nothing twice. */
static bool take_box(struct kvt_patch *out, const struct kvt_h5_axes *axes,
		     const struct kvt_group *group, hid_t space)
{
	hsize_t low[H5S_MAX_RANK], high[H5S_MAX_RANK];
	int64_t begin[KVT_NAXES] = { 0 }, n[KVT_NAXES];
	uint64_t count = 1;

	if (H5Sget_simple_extent_ndims(space) != axes->rank ||
	    H5Sget_select_bounds(space, low, high) < 0)
		return false;
	memcpy(n, group->shape.n, sizeof(n));
	for (int i = 0; i < axes->rank; i++) {
		const enum kvt_axis axis = axes->part[i].axis;
		const bool whole = !low[i] && high[i] + 1 == (hsize_t)axes->extent[i];

		if (high[i] >= (hsize_t)axes->extent[i] ||
		    __builtin_mul_overflow(count, high[i] - low[i] + 1, &count))
			return false;
		if (whole)
			continue;
		if ((axis != KVT_AXIS_L && axis != KVT_AXIS_B) ||
		    axes->part[i].kind != KVT_WHOLE)
			return false;
		begin[axis] = (int64_t)low[i];
		n[axis] = (int64_t)(high[i] - low[i] + 1);
	}
	out->layer = begin[KVT_AXIS_L];
	out->nlayers = n[KVT_AXIS_L];
	out->block = begin[KVT_AXIS_B];
	out->nblocks = n[KVT_AXIS_B];
	return H5Sget_select_npoints(space) == (hssize_t)count;
}

/* "/groups/g0/data" is data of the group g0. */
static bool take_group(char out[sizeof(((struct kvt_source *)0)->group)],
		       const char *dataset, const char *plane)
{
	const char *id = dataset + strlen("/groups/"), *end = strrchr(dataset, '/');

	if (strncmp(dataset, "/groups/", strlen("/groups/")) || end <= id ||
	    strcmp(end + 1, plane) || memchr(id, '/', (size_t)(end - id)))
		return false;
	memcpy(out, id, (size_t)(end - id));
	out[end - id] = '\0';
	return true;
}

/* Source i, of all of the dataset there. */
static bool take_source(struct kvt_source *out, const struct kvt_h5_axes *axes,
			const struct kvt_group *group, int plane, struct kvt_h5_in *in,
			hid_t data, hid_t dcpl, size_t i)
{
	hid_t space = H5Pget_virtual_vspace(dcpl, i);
	hid_t there = H5Pget_virtual_srcspace(dcpl, i);
	bool all = H5Sget_select_type(there) == H5S_SEL_ALL;
	bool box = take_box(&out->patch, axes, group, space);
	char dataset[sizeof(out->group)];
	ssize_t length[2];

	kvt_h5_drop(space);
	kvt_h5_drop(there);
	length[0] = H5Pget_virtual_filename(dcpl, i, out->path, sizeof(out->path));
	length[1] = H5Pget_virtual_dsetname(dcpl, i, dataset, sizeof(dataset));
	if (!all || !box || length[0] < 1 || length[0] >= (ssize_t)sizeof(out->path) ||
	    length[1] < 1 || length[1] >= (ssize_t)sizeof(dataset) ||
	    !take_group(out->group, dataset, kvt_h5_plane_name(&group->layout, plane)))
		return kvt_h5_refuse(in, data, KVT_UNSUPPORTED,
				     "source %zu of a virtual dataset is not a box of whole layers and blocks of a group",
				     i);
	return is_below(out->path) ||
	       kvt_h5_refuse(in, data, KVT_UNSUPPORTED,
			     "a virtual dataset is of %.200s, which is not in its file's folder; use kvtool reduce --one-file",
			     out->path);
}

static bool same_source(const struct kvt_source *a, const struct kvt_source *b)
{
	return !strcmp(a->path, b->path) && !strcmp(a->group, b->group) &&
	       a->patch.layer == b->patch.layer &&
	       a->patch.nlayers == b->patch.nlayers && a->patch.block == b->patch.block &&
	       a->patch.nblocks == b->patch.nblocks;
}

/* Of the first plane they are added; the other has the same. */
void kvt_h5_add_sources(struct kvt_reader *reader, int index, int plane,
			struct kvt_h5_in *in, hid_t data, hid_t dcpl)
{
	struct kvt_h5_file *own = reader->own;
	struct kvt_h5_group *group = &own->group[index];
	struct kvt_source *grown, one;
	size_t n = 0;

	H5Pget_virtual_count(dcpl, &n);
	if (!plane) {
		group->first_source = reader->nsources;
		group->nsources = (int64_t)n;
		grown = realloc(reader->source,
				((size_t)reader->nsources + n + 1) * sizeof(*grown));
		if (!grown) {
			in->status = kvt_no_memory(in->err, in->path);
			return;
		}
		reader->source = grown;
	}
	if (reader->nsources + (int64_t)n > MOST_SOURCES ||
	    (plane && group->nsources != (int64_t)n))
		kvt_h5_refuse(in, data, KVT_UNSUPPORTED,
			      "%zu sources of a virtual dataset: too many, or not those of the keys",
			      n);
	for (size_t i = 0; i < n && !in->status; i++) {
		if (!take_source(&one, &group->axes[plane],
				 &reader->leaf.snapshot.group[index], plane, in, data,
				 dcpl, i))
			return;
		one.patch.group = index;
		if (!plane)
			reader->source[reader->nsources++] = one;
		else if (!same_source(&one, reader->source + group->first_source + i))
			kvt_h5_refuse(in, data, KVT_UNSUPPORTED,
				      "source %zu is not that of the keys", i);
	}
}
