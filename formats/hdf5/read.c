/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - opens a snapshot (kvtool-snapshot(5), versions 1.0 and 1.1)
 *
 * In order: the root's attributes, each group's attributes, datasets, tables and
 * cells, the requests, and last the checksum of all of it.  Nothing is believed that
 * HDF5 could not read: a fault of the file under it comes before any other complaint.
 * Time and memory: those of the tables; data and cells are not read.
 */
#include "formats/hdf5/hdf5.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the groups of a file ----------------------------------------------- */

struct listing {
	int n;
	char id[KVT_MAX_GROUPS][sizeof(((struct kvt_group *)NULL)->id)];
	bool too_many, too_long;
};

static herr_t list(hid_t parent, const char *name, const H5L_info_t *info, void *data)
{
	struct listing *listing = data;

	(void)parent;
	(void)info;
	listing->too_many = listing->n == KVT_MAX_GROUPS;
	listing->too_long = strlen(name) >= sizeof(listing->id[0]);
	if (listing->too_many || listing->too_long)
		return 1;
	strcpy(listing->id[listing->n++], name);
	return 0;
}

/* The attribute 'ids' has the order; without it names do. */
static void take_order(struct kvt_h5_in *in, hid_t parent, struct listing *listing)
{
	char *id[KVT_MAX_GROUPS];
	int n;

	if (!kvt_h5_has_attr(in, parent, "ids"))
		return;
	n = kvt_h5_get_strs(in, parent, "ids", id, KVT_MAX_GROUPS);
	if (n != listing->n)
		kvt_h5_bad(in, parent, "attribute ids lists %d groups, but there are %d",
			   n, listing->n);
	for (int i = 0; i < n; i++) {
		if (strlen(id[i]) < sizeof(listing->id[0]))
			strcpy(listing->id[i], id[i]);
		else
			kvt_h5_bad(in, parent, "attribute ids lists no group");
		free(id[i]);
	}
}

static void list_groups(struct kvt_h5_in *in, hid_t parent, struct listing *out)
{
	if (in->status)
		return;
	if (H5Literate(parent, H5_INDEX_NAME, H5_ITER_INC, NULL, list, out) < 0)
		in->status = kvt_h5_failed(in->err, KVT_BAD_INPUT, in->path,
					   "cannot list its groups");
	else if (out->too_many)
		kvt_h5_refuse(in, parent, KVT_UNSUPPORTED, "more than %d groups",
			      KVT_MAX_GROUPS);
	else if (out->too_long)
		kvt_h5_bad(in, parent, "a group's name has more than %zu bytes",
			   sizeof(out->id[0]) - 1);
	else if (out->n == 0)
		kvt_h5_bad(in, parent, "there are no groups");
	else
		take_order(in, parent, out);
}

/* ---- cells -------------------------------------------------------------- */

/* Are they what kvt_fetch_cells() promises?  Other digests are left alone. */
static bool match_cells(struct kvt_h5_in *in, hid_t cells, const struct kvt_group *group)
{
	int64_t seed = 0, unit = group->shape.n[KVT_AXIS_S];
	char *algorithm = kvt_h5_get_str(in, cells, "algorithm");
	bool match = algorithm && !strcmp(algorithm, "xxh64");

	if (kvt_h5_has_attr(in, cells, "seed"))
		seed = kvt_h5_get_int(in, cells, "seed", KVT_H5_U64);
	if (kvt_h5_has_attr(in, cells, "unit_states"))
		unit = kvt_h5_get_int(in, cells, "unit_states", KVT_H5_U64);
	free(algorithm);
	return !in->status && match && seed == 0 && unit == group->shape.n[KVT_AXIS_S];
}

static bool check_cells(struct kvt_h5_in *in, hid_t cells, const struct kvt_group *group)
{
	hsize_t dims[KVT_H5_CELL_RANK], expected[KVT_H5_CELL_RANK];
	int rank = kvt_h5_cell_dims(expected, group, group->shape.n);

	if (!kvt_h5_check_plain(in, cells, kvt_h5_int_type(KVT_H5_U64), rank, dims))
		return false;
	return !memcmp(dims, expected, (size_t)rank * sizeof(dims[0])) ||
	       kvt_h5_bad(in, cells, "extents are not those of the data");
}

/* Negative: there are none that are to be used. */
static hid_t read_cells(struct kvt_h5_in *in, hid_t object, const struct kvt_group *group)
{
	hid_t cells = kvt_h5_child(in, object, "content_digest", H5I_DATASET);

	if (cells >= 0 && match_cells(in, cells, group) && check_cells(in, cells, group))
		return cells;
	kvt_h5_drop(cells);
	return -1;
}

/* ---- a group ------------------------------------------------------------ */

static void read_group(struct kvt_reader *reader, int index, struct kvt_h5_in *in,
		       hid_t object)
{
	struct kvt_group *group = &reader->leaf.snapshot.group[index];
	struct kvt_h5_file *own = reader->own;

	kvt_h5_read_group(in, object, group);
	kvt_h5_read_data(reader, index, in, object);
	/* what follows works with its extents */
	if (in->status)
		return;
	kvt_h5_check_shape(in, object, group);
	kvt_h5_read_tables(in, object, group);
	own->group[index].cells = read_cells(in, object, group);
}

static void read_groups(struct kvt_reader *reader, struct kvt_h5_in *in, hid_t parent)
{
	struct kvt_snapshot *snapshot = &reader->leaf.snapshot;
	struct listing listing = { 0 };

	list_groups(in, parent, &listing);
	if (kvt_h5_has_attr(in, parent, "null_block"))
		snapshot->null_block = kvt_h5_get_int(in, parent, "null_block",
						      KVT_H5_I64);
	for (int i = 0; i < listing.n && !in->status; i++) {
		hid_t object = kvt_h5_need(in, parent, listing.id[i], H5I_GROUP);

		if (object < 0)
			return;
		strcpy(snapshot->group[i].id, listing.id[i]);
		snapshot->ngroups = i + 1;
		read_group(reader, i, in, object);
		kvt_h5_drop(object);
	}
}

/* ---- the file ----------------------------------------------------------- */

/*
 * Bytes before HDF5's own shift every offset; no writer of dumps makes them, so
 * they are refused.
 */
static void check_user_block(struct kvt_h5_in *in)
{
	hid_t fcpl = H5Fget_create_plist(in->file);
	hsize_t nbytes = 0;
	herr_t failed = H5Pget_userblock(fcpl, &nbytes);

	kvt_h5_drop(fcpl);
	if (failed < 0 || nbytes > 0)
		kvt_h5_refuse(in, -1, KVT_UNSUPPORTED,
			      "HDF5 with a user block is not supported");
}

/* Whatever was said of the file is worth nothing if some of it could not be read. */
static enum kvt_status read_all(struct kvt_reader *reader, struct kvt_h5_in *in)
{
	enum kvt_status broken;
	hid_t parent;

	check_user_block(in);
	kvt_h5_read_root(in, &reader->leaf.snapshot);
	parent = kvt_h5_need(in, in->file, "groups", H5I_GROUP);
	read_groups(reader, in, parent);
	kvt_h5_drop(parent);
	kvt_h5_read_requests(in, &reader->leaf.snapshot);
	kvt_h5_check_proof(reader, in);
	if ((broken = kvt_h5_check_fault(in->fault, in->path, in->err)))
		return broken;
	if (!in->status && in->untold)
		return kvt_fail(in->err, in->untold, "%s", in->why.text);
	return in->status;
}

static hid_t open_file(struct kvt_h5_file *own, const char *path)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file = -1;

	/* whatever an error path leaves open goes with the file */
	H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
	if ((own->driver = kvt_h5_driver_new()) >= 0 &&
	    H5Pset_driver(fapl, own->driver, NULL) >= 0)
		file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
	kvt_h5_drop(fapl);
	return file;
}

/* What HDF5 says of its file is read from ours. */
static enum kvt_status check_same(const struct kvt_file *file, int fd,
				  struct kvt_error *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot stat: %s", file->path,
				strerror(errno));
	if (st.st_dev != file->dev || st.st_ino != file->ino)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: replaced while in use",
				file->path);
	return KVT_OK;
}

enum kvt_status kvt_h5_open(struct kvt_reader *reader, const char *path,
			    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_h5_entry entry;
	struct kvt_h5_in in = { .path = path, .err = err };
	struct kvt_h5_file *own;
	enum kvt_status status;
	int index;

	/* first: says what the system has against it, and refuses a FIFO */
	if ((status = kvt_files_open(&reader->files, &index, path, err)) ||
	    (status = kvt_h5_load(path, err)))
		return status;
	in.nbytes = in.left = reader->files.file[index].nbytes;
	reader->own = own = kvt_h5_file_new();
	if (!own)
		return kvt_no_memory(err, path);
	entry = kvt_h5_enter();
	in.fault = &own->fault;
	in.file = open_file(own, path);
	own->file = in.file;
	if (in.file < 0 || !(own->catch = kvt_h5_driver_catch(in.file, &own->fault)))
		status = kvt_h5_failed(err, KVT_BAD_INPUT, path,
				       "truncated or not an HDF5 file");
	else if (!(status = check_same(&reader->files.file[index], own->catch->fd, err)))
		status = read_all(reader, &in);
	kvt_h5_leave(&entry);
	/* the one thing that a snapshot of another program may not say */
	if (!status)
		kvt_snapshot_hint_content(&reader->leaf.snapshot, hints);
	return status;
}
