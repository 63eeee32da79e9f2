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
static bool check_dataset(struct kvt_h5_in *in, hid_t dataset, const char *name)
{
	hid_t dcpl = H5Dget_create_plist(dataset);
	H5D_layout_t layout = H5Pget_layout(dcpl);
	int external = H5Pget_external_count(dcpl);
	/* virtual.c looks at what they are of */
	bool data = !strncmp(name, "data", 4) && layout == H5D_VIRTUAL &&
		    kvt_h5_virtual_fixed(dcpl);

	kvt_h5_drop(dcpl);
	if (external != 0)
		return kvt_h5_bad(in, dataset, "dataset keeps its data in other files");
	if (layout == H5D_VIRTUAL && !data)
		return kvt_h5_refuse(in, dataset, KVT_UNSUPPORTED,
				     "virtual datasets are read only as kvtool reduce writes them; use its --one-file");
	if (layout < 0)
		return kvt_h5_bad(in, dataset, "dataset has no layout");
	return true;
}

hid_t kvt_h5_child(struct kvt_h5_in *in, hid_t parent, const char *name, H5I_type_t type)
{
	hid_t object = -1;
	H5L_info_t link;

	if (!kvt_h5_has_link(in, parent, name))
		return -1;
	if (H5Lget_info(parent, name, &link, H5P_DEFAULT) < 0 ||
	    link.type != H5L_TYPE_HARD)
		kvt_h5_bad(in, parent, "%s is a link to another object", name);
	else if ((object = H5Oopen(parent, name, H5P_DEFAULT)) < 0 ||
		 H5Iget_type(object) != type)
		kvt_h5_bad(in, parent, "%s is not a %s", name,
			   type == H5I_GROUP ? "group" : "dataset");
	else if (type != H5I_DATASET || check_dataset(in, object, name))
		return object;
	kvt_h5_drop(object);
	return -1;
}

hid_t kvt_h5_need(struct kvt_h5_in *in, hid_t parent, const char *name, H5I_type_t type)
{
	hid_t object = kvt_h5_child(in, parent, name, type);

	if (object < 0)
		kvt_h5_bad(in, parent, "%s %s is missing",
			   type == H5I_GROUP ? "group" : "dataset", name);
	return object;
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

bool kvt_h5_check_plain(struct kvt_h5_in *in, hid_t dataset, hid_t type, int rank,
			hsize_t *dims)
{
	hid_t is = H5Dget_type(dataset);
	bool same = H5Tequal(is, type) > 0;
	uint64_t nbytes = H5Tget_size(type);

	kvt_h5_drop(is);
	if (!same)
		return kvt_h5_bad(in, dataset, "wrong element type");
	if (!get_dims(dataset, rank, dims))
		return kvt_h5_bad(in, dataset, "expected rank %d", rank);
	if (!plain_layout(dataset))
		return kvt_h5_bad(in, dataset, "table is chunked, expected contiguous");
	for (int i = 0; i < rank; i++)
		if (__builtin_mul_overflow(nbytes, dims[i], &nbytes))
			return kvt_h5_bad(in, dataset, "table is too large");
	if (H5Dget_storage_size(dataset) != nbytes)
		return kvt_h5_bad(in, dataset,
				  "table has %llu bytes in the file, expected %llu",
				  (unsigned long long)H5Dget_storage_size(dataset),
				  (unsigned long long)nbytes);
	return true;
}

/* ---- tables ------------------------------------------------------------- */

/* All of it as it is in the file, to be freed. */
static void *read_table(struct kvt_h5_in *in, hid_t dataset, hid_t type, int64_t expected,
			int64_t *count)
{
	size_t nbytes;
	hsize_t n;
	void *table;

	if (!kvt_h5_check_plain(in, dataset, type, 1, &n))
		return NULL;
	if (expected >= 0 && n != (hsize_t)expected) {
		kvt_h5_bad(in, dataset, "table has %llu entries, expected %lld",
			   (unsigned long long)n, LL(expected));
		return NULL;
	}
	/* its bytes are in the file, so this is no large number */
	nbytes = n * H5Tget_size(type);
	if (!kvt_h5_spend(in, dataset, (int64_t)nbytes))
		return NULL;
	table = malloc(nbytes ? nbytes : 1);
	if (!table)
		in->status = kvt_no_memory(in->err, in->path);
	else if (n && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, table) < 0)
		in->status = kvt_h5_failed(in->err, KVT_BAD_INPUT, in->path,
					   "cannot read a table");
	else
		*count = (int64_t)n;
	if (!in->status)
		return table;
	free(table);
	return NULL;
}

void *kvt_h5_get_table(struct kvt_h5_in *in, hid_t parent, const char *name,
		       enum kvt_h5_int type, int64_t n, int64_t *count)
{
	hid_t dataset = kvt_h5_child(in, parent, name, H5I_DATASET);
	void *table = NULL;

	*count = 0;
	if (dataset >= 0)
		table = read_table(in, dataset, kvt_h5_int_type(type), n, count);
	kvt_h5_drop(dataset);
	return table;
}

static char **split_texts(struct kvt_h5_in *in, hid_t dataset, const char *raw,
			  size_t nbytes, int64_t n)
{
	char **out = calloc(n ? (size_t)n : 1, sizeof(*out));

	if (!out)
		in->status = kvt_no_memory(in->err, in->path);
	for (int64_t i = 0; i < n && !in->status; i++) {
		out[i] = kvt_h5_take_text(raw + (size_t)i * nbytes, nbytes);
		if (!out[i])
			in->status = kvt_no_memory(in->err, in->path);
		else if (!kvt_is_text(out[i]))
			kvt_h5_bad(in, dataset, "string %lld is not UTF-8", LL(i));
	}
	if (!in->status)
		return out;
	kvt_names_free(out, n);
	return NULL;
}

char **kvt_h5_get_str_table(struct kvt_h5_in *in, hid_t parent, const char *name,
			    int64_t n, int64_t *count)
{
	hid_t dataset = kvt_h5_child(in, parent, name, H5I_DATASET), type;
	char *raw = NULL, **table = NULL;
	size_t nbytes;

	*count = 0;
	if (dataset < 0)
		return NULL;
	type = H5Dget_type(dataset);
	nbytes = kvt_h5_text_bytes(type);
	if (!nbytes)
		kvt_h5_bad(in, dataset, "table has no strings of fixed length");
	else if ((raw = read_table(in, dataset, type, n, count)))
		table = split_texts(in, dataset, raw, nbytes, *count);
	if (!table)
		*count = 0;
	free(raw);
	kvt_h5_drop(type);
	kvt_h5_drop(dataset);
	return table;
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
