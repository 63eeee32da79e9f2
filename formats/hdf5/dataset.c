/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataset.c - groups and datasets at the end of hard links, and tables: datasets of one
 * dimension
 *
 * Files come from anybody.  So a name is followed only where it is a hard link: soft and
 * external ones are refused, as are datasets whose data lies in other files, but for the
 * virtual ones of virtual.c.  Nothing is allocated before the length of a dataset was
 * held against what the group, or a limit, allows.
 */
#include "formats/hdf5/hdf5.h"

#include <stdlib.h>
#include <string.h>

/* ---- links -------------------------------------------------------------- */

/*
 * Bytes in other files, named by this one, are not this dump's: a hostile file
 * could have any file of the reader's be shown.
 */
static enum kvt_status check_dataset(struct kvt_h5_in *in, hid_t dataset,
				     const char *name, struct kvt_error *err)
{
	hid_t dcpl = H5Dget_create_plist(dataset);
	H5D_layout_t layout = H5Pget_layout(dcpl);
	int external = H5Pget_external_count(dcpl);
	/* virtual.c looks at what they are of */
	bool data = !strncmp(name, "data", 4) && layout == H5D_VIRTUAL &&
		    kvt_h5_virtual_fixed(dcpl);

	kvt_h5_drop(dcpl);
	if (external != 0)
		return kvt_h5_bad(in, dataset, err,
				  "dataset keeps its data in other files");
	if (layout == H5D_VIRTUAL && !data)
		return kvt_h5_refuse(in, dataset, KVT_UNSUPPORTED, err,
				     "virtual datasets are read only as kvtool reduce writes them; use its --one-file");
	if (layout < 0)
		return kvt_h5_bad(in, dataset, err, "dataset has no layout");
	return KVT_OK;
}

static enum kvt_status open_object(struct kvt_h5_in *in, hid_t parent,
				   const char *name, H5I_type_t type, hid_t *out,
				   struct kvt_error *err)
{
	hid_t object = H5Oopen(parent, name, H5P_DEFAULT);
	enum kvt_status status = KVT_OK;

	if (object < 0 || H5Iget_type(object) != type)
		status = kvt_h5_bad(in, parent, err, "%s is not a %s", name,
				    type == H5I_GROUP ? "group" : "dataset");
	else if (type == H5I_DATASET)
		status = check_dataset(in, object, name, err);
	if (status)
		kvt_h5_drop(object);
	else
		*out = object;
	return status;
}

enum kvt_status kvt_h5_child(struct kvt_h5_in *in, hid_t parent,
			     const char *name, H5I_type_t type, hid_t *out,
			     struct kvt_error *err)
{
	H5L_info_t link;

	*out = -1;
	if (!kvt_h5_has_link(in, parent, name))
		return KVT_OK;
	if (H5Lget_info(parent, name, &link, H5P_DEFAULT) < 0 ||
	    link.type != H5L_TYPE_HARD)
		return kvt_h5_bad(in, parent, err,
				  "%s is a link to another object", name);
	return open_object(in, parent, name, type, out, err);
}

enum kvt_status kvt_h5_need(struct kvt_h5_in *in, hid_t parent,
			    const char *name, H5I_type_t type, hid_t *out,
			    struct kvt_error *err)
{
	enum kvt_status status = kvt_h5_child(in, parent, name, type, out, err);

	if (!status && *out < 0)
		return kvt_h5_bad(in, parent, err, "%s %s is missing",
				  type == H5I_GROUP ? "group" : "dataset", name);
	return status;
}

/* ---- plain arrays ------------------------------------------------------- */

static bool plain_layout(hid_t dataset)
{
	hid_t dcpl = H5Dget_create_plist(dataset);
	H5D_layout_t layout = H5Pget_layout(dcpl);

	kvt_h5_drop(dcpl);
	return layout == H5D_CONTIGUOUS || layout == H5D_COMPACT;
}

/* Extents; false if the dataset has not 'rank' of them. */
static bool get_dims(hid_t dataset, int rank, hsize_t *dims)
{
	hid_t space = H5Dget_space(dataset);
	bool ok = H5Sget_simple_extent_type(space) == H5S_SIMPLE &&
		  H5Sget_simple_extent_ndims(space) == rank &&
		  H5Sget_simple_extent_dims(space, dims, NULL) == rank;

	kvt_h5_drop(space);
	return ok;
}

enum kvt_status kvt_h5_check_plain(struct kvt_h5_in *in, hid_t dataset,
				   hid_t type, int rank, hsize_t *dims,
				   struct kvt_error *err)
{
	hid_t is = H5Dget_type(dataset);
	bool same = H5Tequal(is, type) > 0;
	uint64_t nbytes = H5Tget_size(type);

	kvt_h5_drop(is);
	if (!same)
		return kvt_h5_bad(in, dataset, err, "wrong element type");
	if (!get_dims(dataset, rank, dims))
		return kvt_h5_bad(in, dataset, err, "expected rank %d", rank);
	if (!plain_layout(dataset))
		return kvt_h5_bad(in, dataset, err,
				  "table is chunked, expected contiguous");
	for (int i = 0; i < rank; i++)
		if (__builtin_mul_overflow(nbytes, dims[i], &nbytes))
			return kvt_h5_bad(in, dataset, err, "table is too large");
	if (H5Dget_storage_size(dataset) != nbytes)
		return kvt_h5_bad(in, dataset, err,
				  "table has %llu bytes in the file, expected %llu",
				  (unsigned long long)H5Dget_storage_size(dataset),
				  (unsigned long long)nbytes);
	return KVT_OK;
}

/* ---- tables of integers ------------------------------------------------- */

static enum kvt_status check_count(struct kvt_h5_in *in, hid_t dataset,
				   hsize_t is, int64_t expected,
				   struct kvt_error *err)
{
	if (expected >= 0 && is != (hsize_t)expected)
		return kvt_h5_bad(in, dataset, err,
				  "table has %llu entries, expected %lld",
				  (unsigned long long)is, (long long)expected);
	return KVT_OK;
}

static enum kvt_status read_table(struct kvt_h5_in *in, hid_t dataset,
				  enum kvt_h5_int type, int64_t n, void **out,
				  int64_t *count, struct kvt_error *err)
{
	hid_t h5type = kvt_h5_int_type(type);
	enum kvt_status status;
	int64_t nbytes;
	hsize_t dim;
	void *table;

	if ((status = kvt_h5_check_plain(in, dataset, h5type, 1, &dim, err)) ||
	    (status = check_count(in, dataset, dim, n, err)))
		return status;
	/* its bytes are in the file, so this is no large number */
	nbytes = (int64_t)dim * kvt_h5_int_bytes(type);
	if ((status = kvt_h5_spend(in, dataset, nbytes, err)))
		return status;
	table = malloc(nbytes ? (size_t)nbytes : 1);
	if (!table)
		return kvt_no_memory(err, in->path);
	if (dim && H5Dread(dataset, h5type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
			   table) < 0) {
		free(table);
		return kvt_h5_failed(err, KVT_BAD_INPUT, in->path,
				     "cannot read a table");
	}
	*out = table;
	*count = (int64_t)dim;
	return KVT_OK;
}

enum kvt_status kvt_h5_get_table(struct kvt_h5_in *in, hid_t parent,
				 const char *name, enum kvt_h5_int type,
				 int64_t n, void **out, int64_t *count,
				 struct kvt_error *err)
{
	enum kvt_status status;
	hid_t dataset;

	*out = NULL;
	*count = 0;
	status = kvt_h5_child(in, parent, name, H5I_DATASET, &dataset, err);
	if (status || dataset < 0)
		return status;
	status = read_table(in, dataset, type, n, out, count, err);
	kvt_h5_drop(dataset);
	return status;
}

/* ---- tables of strings -------------------------------------------------- */

static enum kvt_status split_texts(struct kvt_h5_in *in, hid_t dataset,
				   const char *raw, size_t nbytes, int64_t n,
				   char **out, struct kvt_error *err)
{
	for (int64_t i = 0; i < n; i++) {
		out[i] = kvt_h5_take_text(raw + (size_t)i * nbytes, nbytes);
		if (!out[i])
			return kvt_no_memory(err, in->path);
		if (!kvt_is_text(out[i]))
			return kvt_h5_bad(in, dataset, err,
					  "string %lld is not UTF-8",
					  (long long)i);
	}
	return KVT_OK;
}

static enum kvt_status read_texts(struct kvt_h5_in *in, hid_t dataset,
				  hid_t type, int64_t expected, char ***out,
				  int64_t *count, struct kvt_error *err)
{
	size_t nbytes = kvt_h5_text_bytes(type);
	enum kvt_status status;
	char *raw, **table;
	hsize_t n;

	if (!nbytes)
		return kvt_h5_bad(in, dataset, err,
				  "table has no strings of fixed length");
	if ((status = kvt_h5_check_plain(in, dataset, type, 1, &n, err)) ||
	    (status = check_count(in, dataset, n, expected, err)) ||
	    /* its bytes are in the file: the product is no large number */
	    (status = kvt_h5_spend(in, dataset, (int64_t)(n * nbytes), err)))
		return status;
	raw = malloc(n ? n * nbytes : 1);
	table = calloc(n ? n : 1, sizeof(*table));
	if (!raw || !table)
		status = kvt_no_memory(err, in->path);
	else if (n && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
			      raw) < 0)
		status = kvt_h5_failed(err, KVT_BAD_INPUT, in->path,
				       "cannot read a table");
	else
		status = split_texts(in, dataset, raw, nbytes, (int64_t)n, table,
				     err);
	free(raw);
	*out = table;
	*count = (int64_t)n;
	return status;
}

static enum kvt_status read_str_table(struct kvt_h5_in *in, hid_t dataset,
				      int64_t expected, char ***out,
				      int64_t *count, struct kvt_error *err)
{
	hid_t type = H5Dget_type(dataset);
	char **table = NULL;
	int64_t n = 0;
	enum kvt_status status;

	status = read_texts(in, dataset, type, expected, &table, &n, err);
	kvt_h5_drop(type);
	if (status) {
		for (int64_t i = 0; table && i < n; i++)
			free(table[i]);
		free(table);
		return status;
	}
	*out = table;
	*count = n;
	return KVT_OK;
}

enum kvt_status kvt_h5_get_str_table(struct kvt_h5_in *in, hid_t parent,
				     const char *name, int64_t n, char ***out,
				     int64_t *count, struct kvt_error *err)
{
	enum kvt_status status;
	hid_t dataset;

	*out = NULL;
	*count = 0;
	status = kvt_h5_child(in, parent, name, H5I_DATASET, &dataset, err);
	if (status || dataset < 0)
		return status;
	status = read_str_table(in, dataset, n, out, count, err);
	kvt_h5_drop(dataset);
	return status;
}

/* ---- writing ------------------------------------------------------------ */

hid_t kvt_h5_object_plist(hid_t class)
{
	hid_t plist = H5Pcreate(class);

	/*
	 * Times would make every file differ.  Attributes stay in the object's
	 * header, where they are small and read at once.
	 */
	H5Pset_obj_track_times(plist, 0);
	H5Pset_attr_phase_change(plist, 64, 32);
	return plist;
}

hid_t kvt_h5_new_group(hid_t parent, const char *name)
{
	hid_t plist = kvt_h5_object_plist(H5P_GROUP_CREATE);
	hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, plist, H5P_DEFAULT);

	kvt_h5_drop(plist);
	return group;
}

static bool put_table(hid_t parent, const char *name, hid_t type,
		      const void *value, int64_t n)
{
	hid_t plist = kvt_h5_object_plist(H5P_DATASET_CREATE);
	hsize_t dim = (hsize_t)n;
	hid_t space = H5Screate_simple(1, &dim, NULL);
	hid_t dataset = H5Dcreate2(parent, name, type, space, H5P_DEFAULT, plist,
				   H5P_DEFAULT);
	bool ok = dataset >= 0 &&
		  (n == 0 || H5Dwrite(dataset, type, H5S_ALL, H5S_ALL,
				      H5P_DEFAULT, value) >= 0);

	kvt_h5_drop(dataset);
	kvt_h5_drop(space);
	kvt_h5_drop(plist);
	return ok;
}

bool kvt_h5_put_table(hid_t parent, const char *name, enum kvt_h5_int type,
		      const void *value, int64_t n)
{
	return put_table(parent, name, kvt_h5_int_type(type), value, n);
}

bool kvt_h5_put_str_table(hid_t parent, const char *name,
			  const char *const *value, int64_t n)
{
	size_t nbytes;
	char *raw = kvt_h5_join_texts(value, n, &nbytes);
	hid_t type = kvt_h5_text_type(nbytes);
	bool ok = raw && put_table(parent, name, type, raw, n);

	kvt_h5_drop(type);
	free(raw);
	return ok;
}
