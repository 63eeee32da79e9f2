/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c - creates a snapshot: everything but the data, which follows by
 * tiles, and the mark that it is complete
 *
 * hdf5.h draws the file.  The same snapshot gives the same bytes: objects are made in a
 * fixed order, without times, in one version of the file format.
 */
#include "formats/hdf5/hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "formats/hdf5/zstd_filter.h"

/* ---- datasets ----------------------------------------------------------- */

static bool write_axes(hid_t data, const struct kvt_group *group,
		       const struct kvt_h5_axes *axes)
{
	const char *label[KVT_MAX_PARTS];
	int64_t order[5];
	int tuple[5];

	for (int i = 0; i < axes->rank; i++)
		label[i] = kvt_h5_label(axes, i);
	if (!kvt_h5_put_labels(data, label, axes->rank) ||
	    !kvt_h5_put_str(data, "axes", kvt_h5_axes_string(axes).s))
		return false;
	if (!kvt_layout_tuple(tuple, &group->layout, KVT_RFC))
		return true;
	for (int i = 0; i < 5; i++)
		order[i] = tuple[i];
	return kvt_h5_put_str(data, "layout", kvt_layout_string(&group->layout).s) &&
	       kvt_h5_put_ints(data, "stride_order", KVT_H5_U32, order, 5) &&
	       kvt_h5_put_str(data, "stride_order_convention", "rfc");
}

/*
 * Room to grow to whole chunks: a chunk may be larger than the extent that a
 * dimension has, but not than the one it may get.
 */
static void most_dims(hsize_t *most, const hsize_t *dims, const hsize_t *chunk,
		      const struct kvt_h5_axes *axes)
{
	for (int i = 0; i < axes->rank; i++) {
		most[i] = dims[i];
		if (axes->part[i].axis == KVT_AXIS_B && dims[i] % chunk[i])
			most[i] += chunk[i] - dims[i] % chunk[i];
		if (most[i] < chunk[i])
			most[i] = chunk[i];
	}
}

/*
 * Each part is where its patch is.  A cut through what a layout splits would not be a
 * box of the dataset.
 */
static bool map_parts(hid_t dcpl, const struct kvt_create_options *options, int g,
		      const char *name, const struct kvt_group *group,
		      const struct kvt_h5_axes *axes, hid_t space)
{
	bool ok = true;

	for (int64_t i = 0; ok && i < options->nparts; i++) {
		const struct kvt_patch *patch = &options->parts[i].patch;
		hsize_t begin[KVT_MAX_PARTS], count[KVT_MAX_PARTS];
		int64_t at[KVT_NAXES] = { patch->layer, patch->block }, n[KVT_NAXES];
		struct kvt_text dataset;
		hid_t there;

		if (patch->group != g)
			continue;
		memcpy(n, group->shape.n, sizeof(n));
		n[KVT_AXIS_L] = patch->nlayers;
		n[KVT_AXIS_B] = patch->nblocks;
		kvt_h5_chunk_dims(count, axes, n);
		kvt_h5_chunk_offset(begin, axes, at);
		snprintf(dataset.s, sizeof(dataset.s), "/groups/%s/%s",
			 options->parts[i].id, name);
		there = H5Screate_simple(axes->rank, count, NULL);
		ok = H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count,
					 NULL) >= 0 &&
		     H5Pset_virtual(dcpl, space, options->parts[i].path, dataset.s,
				    there) >= 0;
		kvt_h5_drop(there);
	}
	return ok && H5Sselect_all(space) >= 0;
}

/* 'tiling' is NULL for one run of bytes, which gets its place at once. */
static hid_t new_data(hid_t object, const char *name, const struct kvt_group *group,
		      const struct kvt_h5_axes *axes, const struct kvt_tiling *tiling,
		      const struct kvt_create_options *options, int g)
{
	hid_t dcpl = kvt_h5_object_plist(H5P_DATASET_CREATE);
	hid_t type = kvt_h5_element_type(group->dtype), space, data = -1;
	hsize_t dims[KVT_MAX_PARTS], most[KVT_MAX_PARTS], chunk[KVT_MAX_PARTS];
	bool ok = H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER) >= 0;

	kvt_h5_chunk_dims(dims, axes, group->shape.n);
	if (tiling) {
		kvt_h5_chunk_dims(chunk, axes, tiling->n);
		most_dims(most, dims, chunk, axes);
		ok = ok && H5Pset_chunk(dcpl, axes->rank, chunk) >= 0 &&
		     kvt_h5_set_filters(dcpl, tiling);
	} else if (!options->nparts) {
		ok = ok && H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY) >= 0;
	}
	space = H5Screate_simple(axes->rank, dims, tiling ? most : NULL);
	if (options->nparts)
		ok = ok && map_parts(dcpl, options, g, name, group, axes, space);
	if (ok && type >= 0 && space >= 0)
		data = H5Dcreate2(object, name, type, space, H5P_DEFAULT, dcpl,
				  H5P_DEFAULT);
	kvt_h5_drop(space);
	kvt_h5_drop(type);
	kvt_h5_drop(dcpl);
	return data;
}

static hid_t new_cells(hid_t object, const struct kvt_group *group)
{
	static const char *const label[] = { "layer", "unit", "head", "kv" };
	hid_t dcpl = kvt_h5_object_plist(H5P_DATASET_CREATE), space, cells;
	hsize_t dims[KVT_H5_CELL_RANK];
	int rank = kvt_h5_cell_dims(dims, group, group->shape.n);

	space = H5Screate_simple(rank, dims, NULL);
	cells = H5Dcreate2(object, "content_digest", kvt_h5_int_type(KVT_H5_U64),
			   space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
	kvt_h5_drop(space);
	kvt_h5_drop(dcpl);
	if (cells >= 0 &&
	    kvt_h5_put_labels(cells, label, rank) &&
	    kvt_h5_put_str(cells, "algorithm", "xxh64") &&
	    kvt_h5_put_int(cells, "seed", KVT_H5_U64, 0) &&
	    kvt_h5_put_int(cells, "unit_states", KVT_H5_U64, group->shape.n[KVT_AXIS_S]))
		return cells;
	kvt_h5_drop(cells);
	return -1;
}

/* ---- groups ------------------------------------------------------------- */

static bool write_group(struct kvt_h5_group *own, hid_t parent,
			const struct kvt_group *group, const struct kvt_tiling *tiling,
			const struct kvt_create_options *options, int g)
{
	hid_t object = kvt_h5_new_group(parent, group->id);
	bool ok = object >= 0 && kvt_h5_write_group(object, group);

	own->nplanes = group->layout.nplanes;
	for (int p = 0; p < own->nplanes && ok; p++) {
		own->data[p] = new_data(object, kvt_h5_plane_name(&group->layout, p),
					group, &own->axes[p], tiling, options, g);
		ok = own->data[p] >= 0 && write_axes(own->data[p], group, &own->axes[p]);
	}
	if (ok && !options->no_digest && !options->nparts)
		ok = (own->cells = new_cells(object, group)) >= 0;
	ok = ok && kvt_h5_write_tables(object, group);
	kvt_h5_drop(object);
	return ok;
}

static bool write_groups(struct kvt_writer *writer, hid_t parent)
{
	const struct kvt_snapshot *snapshot = &writer->head.snapshot;
	struct kvt_h5_file *own = writer->own;
	const char *id[KVT_MAX_GROUPS];
	bool ok;

	for (int g = 0; g < snapshot->ngroups; g++)
		id[g] = snapshot->group[g].id;
	ok = kvt_h5_put_strs(parent, "ids", id, snapshot->ngroups) &&
	     (snapshot->null_block < 0 ||
	      kvt_h5_put_int(parent, "null_block", KVT_H5_I64, snapshot->null_block));
	for (int g = 0; g < snapshot->ngroups && ok; g++)
		ok = write_group(&own->group[g], parent, &snapshot->group[g],
				 writer->head.tiling[g].nbytes ?
				 &writer->head.tiling[g] : NULL,
				 &writer->options, g);
	return ok;
}

static bool write_all(struct kvt_writer *writer)
{
	const struct kvt_snapshot *snapshot = &writer->head.snapshot;
	hid_t file = ((struct kvt_h5_file *)writer->own)->file, parent;
	bool ok;

	if (!kvt_h5_write_root(file, snapshot))
		return false;
	parent = kvt_h5_new_group(file, "groups");
	ok = parent >= 0 && write_groups(writer, parent) &&
	     kvt_h5_write_requests(file, snapshot);
	kvt_h5_drop(parent);
	return ok;
}

/* ---- the bytes of the data ---------------------------------------------- */

static enum kvt_status add_run(struct kvt_writer *writer, int index, int plane,
			       int64_t *end, struct kvt_error *err)
{
	const struct kvt_group *group = &writer->head.snapshot.group[index];
	struct kvt_file_part range = { .box = kvt_box_whole(&group->shape) };
	struct kvt_h5_file *own = writer->own;
	hid_t data = own->group[index].data[plane];
	enum kvt_status status;
	haddr_t at;

	if (group->layout.nplanes == 2) {
		range.box.begin[KVT_AXIS_K] = plane;
		range.box.end[KVT_AXIS_K] = plane + 1;
	}
	status = kvt_layout_views(&range.views, &group->layout, &range.box,
				  group->shape.elem, err);
	if (status || range.views.nbytes == 0)
		return status;
	at = H5Dget_offset(data);
	if (at == HADDR_UNDEF)
		return kvt_h5_failed(err, KVT_SYSTEM, writer->temporary,
				     "cannot find the offset of the data");
	for (int i = 0; i < range.views.count; i++)
		range.views.view[i].offset += (int64_t)at;
	if (*end < (int64_t)at + range.views.nbytes)
		*end = (int64_t)at + range.views.nbytes;
	own->group[index].at[plane] = (int64_t)at;
	own->group[index].nbytes[plane] = range.views.nbytes;
	if ((status = kvt_h5_new_sums(own, index, plane, err)))
		return status;
	return kvt_flat_add(&writer->flat[index], &range, err);
}

/*
 * The data is written through a descriptor of our own: HDF5 has given a run of
 * bytes its place, or will give one to each tile, and does not touch it again.
 */
static enum kvt_status open_data(struct kvt_writer *writer, struct kvt_error *err)
{
	const char *path = writer->temporary;
	struct kvt_file *file;
	enum kvt_status status;
	int64_t end = 0;
	int index, fd;

	for (int g = 0; g < writer->head.snapshot.ngroups; g++)
		for (int p = 0; p < writer->head.snapshot.group[g].layout.nplanes; p++)
			if (!writer->head.tiling[g].nbytes && !writer->options.nparts &&
			    (status = add_run(writer, g, p, &end, err)))
				return status;
	if ((status = kvt_files_open(&writer->files, &index, path, err)))
		return status;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot open: %s", path,
				strerror(errno));
	file = &writer->files.file[index];
	close(file->fd);
	file->fd = fd;
	file->proof = &((struct kvt_h5_file *)writer->own)->proof;
	if ((status = kvt_files_written(&writer->files, index, err)))
		return status;
	if (file->nbytes < end) {
		file->nbytes = end;
		if (ftruncate(fd, end))
			return kvt_fail(err, KVT_SYSTEM, "%s: cannot write: %s",
					path, strerror(errno));
	}
	return KVT_OK;
}

/* ---- the file ----------------------------------------------------------- */

static hid_t new_file(const struct kvt_writer *writer)
{
	struct kvt_h5_file *own = writer->own;
	hid_t fcpl = kvt_h5_object_plist(H5P_FILE_CREATE);
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file = -1;

	/* One version of the format: what HDF5 prefers changes over time. */
	if ((own->driver = kvt_h5_driver_new()) >= 0 &&
	    H5Pset_driver(fapl, own->driver, NULL) >= 0 &&
	    H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
	    H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG) >= 0 &&
	    /* cells come in small ranges */
	    H5Pset_sieve_buf_size(fapl, 1 << 20) >= 0 &&
	    /* what is one run can then be mapped, or read around the cache */
	    (!writer->options.uncompressed || H5Pset_alignment(fapl, 4096, 4096) >= 0))
		file = H5Fcreate(writer->temporary, H5F_ACC_EXCL, fcpl, fapl);
	kvt_h5_drop(fapl);
	kvt_h5_drop(fcpl);
	return file;
}

static enum kvt_status prepare(struct kvt_writer *writer, struct kvt_error *err)
{
	struct kvt_h5_file *own = writer->own;

	for (int g = 0; g < writer->head.snapshot.ngroups; g++) {
		const struct kvt_group *group = &writer->head.snapshot.group[g];
		enum kvt_status status;

		for (int p = 0; p < group->layout.nplanes; p++)
			if ((status = kvt_h5_axes(&own->group[g].axes[p], group, p, err)))
				return status;
		if (!writer->options.uncompressed && !writer->options.nparts &&
		    (status = kvt_h5_choose_tiling(&writer->head.tiling[g], group,
						   &writer->options, err)))
			return status;
	}
	return KVT_OK;
}

enum kvt_status kvt_h5_create(struct kvt_writer *writer, struct kvt_error *err)
{
	enum kvt_status status = kvt_h5_load(writer->path, err);
	struct kvt_h5_entry entry;
	struct kvt_h5_file *own;

	if (status)
		return status;
	own = writer->own = kvt_h5_file_new();
	if (!own)
		return kvt_no_memory(err, NULL);
	if ((status = prepare(writer, err)))
		return status;
	entry = kvt_h5_enter();
	/* HDF5 makes no dataset with a filter that it does not know. */
	if (H5Zregister(&kvt_zstd_filter) < 0 ||
	    (own->file = new_file(writer)) < 0 ||
	    !(own->catch = kvt_h5_driver_catch(own->file, &own->fault)))
		status = kvt_h5_failed(err, KVT_SYSTEM, writer->temporary,
				       "cannot create");
	else if (!write_all(writer))
		status = kvt_h5_failed(err, KVT_SYSTEM, writer->temporary,
				       "cannot write");
	else if (!(status = kvt_h5_check_fault(&own->fault, writer->temporary, err)))
		status = open_data(writer, err);
	kvt_h5_leave(&entry);
	return status;
}

enum kvt_status kvt_h5_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	struct kvt_h5_entry entry = kvt_h5_enter();
	struct kvt_h5_file *own = writer->own;
	const char *path = writer->temporary;
	enum kvt_status status = KVT_OK;
	hid_t file = own->file;

	/*
	 * The mark comes after all else, and closing the file writes it.  The driver
	 * alone knows what could not be written.
	 */
	if (!(status = kvt_h5_write_proof(writer, err)) &&
	    H5Fflush(file, H5F_SCOPE_LOCAL) < 0)
		status = kvt_h5_failed(err, KVT_SYSTEM, path, "cannot write");
	if (!status && !(status = kvt_h5_check_fault(&own->fault, path, err)) &&
	    !kvt_h5_put_int(file, "complete", KVT_H5_U8, 1))
		status = kvt_h5_failed(err, KVT_SYSTEM, path, "cannot write");
	if (!status) {
		own->file = -1;
		if (H5Fclose(file) < 0)
			status = kvt_h5_failed(err, KVT_SYSTEM, path, "cannot write");
		else
			status = kvt_h5_check_fault(&own->fault, path, err);
	}
	kvt_h5_leave(&entry);
	return status;
}
