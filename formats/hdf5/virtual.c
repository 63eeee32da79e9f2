/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual.c - data that are boxes of other snapshots, as kvtool reduce joins parts
 *
 * A file says which files these are, and a hostile one could name any of the reader's.
 * So they are in its folder, or below it, and each is a snapshot that proves itself; and
 * nothing is opened before all that the file says of them is found to be a box of layers
 * and blocks.
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

/* Source i, of all of the dataset there. */
static enum kvt_status take_source(struct kvt_h5_source *out,
				   const struct kvt_h5_axes *axes,
				   const struct kvt_group *group, struct kvt_h5_in *in,
				   hid_t data, hid_t dcpl, size_t i,
				   struct kvt_error *err)
{
	hid_t space = H5Pget_virtual_vspace(dcpl, i);
	hid_t there = H5Pget_virtual_srcspace(dcpl, i);
	bool all = H5Sget_select_type(there) == H5S_SEL_ALL;
	bool box = take_box(&out->patch, axes, group, space);
	ssize_t length[2];

	kvt_h5_drop(space);
	kvt_h5_drop(there);
	length[0] = H5Pget_virtual_filename(dcpl, i, out->path, sizeof(out->path));
	length[1] = H5Pget_virtual_dsetname(dcpl, i, out->dataset, sizeof(out->dataset));
	if (!all || !box || length[0] < 1 || length[0] >= (ssize_t)sizeof(out->path) ||
	    length[1] < 1 || length[1] >= (ssize_t)sizeof(out->dataset))
		return kvt_h5_refuse(in, data, KVT_UNSUPPORTED, err,
				     "source %zu of a virtual dataset is not all of a dataset as a box of layers and blocks",
				     i);
	return is_below(out->path) ? KVT_OK :
	       kvt_h5_refuse(in, data, KVT_UNSUPPORTED, err,
			     "a virtual dataset is of %.200s, which is not in its file's folder; use kvtool reduce --one-file",
			     out->path);
}

static bool same_source(const struct kvt_h5_source *a, const struct kvt_h5_source *b)
{
	return !strcmp(a->path, b->path) && a->patch.layer == b->patch.layer &&
	       a->patch.nlayers == b->patch.nlayers && a->patch.block == b->patch.block &&
	       a->patch.nblocks == b->patch.nblocks;
}

/* Of the first plane they are added; the other has the same. */
enum kvt_status kvt_h5_add_sources(struct kvt_reader *reader, int index, int plane,
				   struct kvt_h5_in *in, hid_t data, hid_t dcpl,
				   struct kvt_error *err)
{
	struct kvt_h5_file *own = reader->own;
	struct kvt_h5_group *group = &own->group[index];
	struct kvt_h5_source *grown, one;
	enum kvt_status status = KVT_OK;
	size_t n = 0;

	H5Pget_virtual_count(dcpl, &n);
	if (!plane) {
		group->first_source = own->nsources;
		group->nsources = (int64_t)n;
		grown = realloc(own->source,
				((size_t)own->nsources + n + 1) * sizeof(*grown));
		if (!grown)
			return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", in->path);
		own->source = grown;
	}
	if (own->nsources + (int64_t)n > MOST_SOURCES ||
	    (plane && group->nsources != (int64_t)n))
		return kvt_h5_refuse(in, data, KVT_UNSUPPORTED, err,
				     "%zu sources of a virtual dataset: too many, or not those of the keys",
				     n);
	for (size_t i = 0; !status && i < n; i++) {
		status = take_source(&one, &group->axes[plane],
				     &reader->leaf.snapshot.group[index], in, data,
				     dcpl, i, err);
		one.patch.group = index;
		if (status)
			break;
		if (!plane)
			own->source[own->nsources++] = one;
		else if (!same_source(&one, own->source + group->first_source + i))
			status = kvt_h5_refuse(in, data, KVT_UNSUPPORTED, err,
					       "source %zu is not that of the keys", i);
	}
	return status;
}

/* ---- the sources -------------------------------------------------------- */

/* Snapshots of snapshots are none of kvtool reduce. */
static _Thread_local bool inside;

static enum kvt_status open_source(struct kvt_dump **out,
				   const struct kvt_reader *reader,
				   const struct kvt_h5_source *source,
				   struct kvt_error *err)
{
	const struct kvt_hints hints = { .format = "hdf5" };
	const char *slash = strrchr(reader->leaf.path, '/');
	size_t n = slash ? (size_t)(slash + 1 - reader->leaf.path) : 0;
	char *path = malloc(n + strlen(source->path) + 1), dataset[KVT_H5_SOURCE_NAME];
	enum kvt_status status;

	if (!path)
		return kvt_fail(err, KVT_SYSTEM, "%s: out of memory", reader->leaf.path);
	memcpy(path, reader->leaf.path, n);
	strcpy(path + n, source->path);
	status = kvt_open(out, path, &hints, err);
	free(path);
	if (status)
		return status;
	/* group 0 of it is what is joined */
	snprintf(dataset, sizeof(dataset), "/groups/%s/%s", kvt_dump_group(*out, 0)->id,
		 kvt_h5_plane_name(&kvt_dump_group(*out, 0)->layout, 0));
	if (kvt_dump_snapshot(*out)->ngroups != 1 || strcmp(dataset, source->dataset)) {
		kvt_dump_close(*out);
		*out = NULL;
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: a virtual dataset is of %.200s in %.200s, which is not its one group",
				reader->leaf.path, source->dataset, source->path);
	}
	return KVT_OK;
}

/* Is what is read of it held against checksums? */
static bool is_proven(const struct kvt_dump *part)
{
	const struct kvt_tiling *tiling = kvt_dump_tiling(part, 0);

	return tiling ? tiling->fletcher32 : kvt_dump_proven(part)->flat[0];
}

static enum kvt_status open_all(struct kvt_reader *reader, struct kvt_dump **part,
				struct kvt_patch *patch, struct kvt_error *err)
{
	const struct kvt_h5_file *own = reader->own;
	enum kvt_status status = KVT_OK;

	inside = true;
	for (int64_t i = 0; !status && i < own->nsources; i++) {
		patch[i] = own->source[i].patch;
		if (!(status = open_source(&part[i], reader, &own->source[i], err)))
			reader->leaf.proven.flat[patch[i].group] &= is_proven(part[i]);
	}
	inside = false;
	return status;
}

enum kvt_status kvt_h5_open_sources(struct kvt_reader *reader, struct kvt_error *err)
{
	const struct kvt_h5_file *own = reader->own;
	size_t n = (size_t)own->nsources;
	struct kvt_dump **part = calloc(n + 1, sizeof(struct kvt_dump *));
	struct kvt_patch *patch = calloc(n + 1, sizeof(*patch));
	struct kvt_error why = { "" };
	enum kvt_status status;

	if (inside)
		status = kvt_fail(err, KVT_UNSUPPORTED,
				  "%s: a virtual dataset is of a virtual dataset",
				  reader->leaf.path);
	else if (!part || !patch)
		status = kvt_fail(err, KVT_SYSTEM, "%s: out of memory",
				  reader->leaf.path);
	else if (!(status = open_all(reader, part, patch, err)) &&
		 (status = kvt_reader_join(reader, part, patch, own->nsources, &why)))
		kvt_fail_about(err, status, reader->leaf.path, &why);
	for (size_t i = 0; part && i < n; i++)
		kvt_dump_close(part[i]);
	free(part);
	free(patch);
	return status;
}
