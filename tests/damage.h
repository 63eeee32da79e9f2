/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage.h - changes to an HDF5 snapshot through HDF5's own calls, so that only
 * what is meant to be wrong is wrong
 */
#ifndef KVT_TESTS_DAMAGE_H
#define KVT_TESTS_DAMAGE_H

#include <hdf5.h>

#include "tests/sample.h"
#include "tests/unit/tests.h"

/*
 * Two layers of five blocks of 16 slots, two heads, keys and values of 64, in
 * tiles of 16 blocks.
 */
static inline void write_good(const char *path, const char *layout)
{
	static const int64_t shape[KVT_NAXES] = { 2, 5, 16, 2, 2, 64 };
	struct kvt_create_options options = { .force = true };
	struct kvt_snapshot snapshot;
	struct kvt_error err = { "" };
	struct kvt_group *group = &snapshot.group[0];
	uint32_t table[] = { 0, 1, 2, 3, 4 };
	struct kvt_request request = { .id = (char[]){ "r" }, .ntokens = 70,
		.blocks[0] = table, .nblocks[0] = 5 };
	char *names[] = { (char[]){ "a" }, (char[]){ "b" } };

	kvt_snapshot_init(&snapshot);
	snapshot.ngroups = 1;
	snapshot.nrequests = 1;
	snapshot.request = &request;
	assert_int_equal(sample_group(group, layout, "bfloat16", shape, &err),
			 KVT_OK);
	group->layer_names = names;
	group->layer_ids = table;
	group->block_valid = table;
	if (sample_write(path, &snapshot, &options, &err))
		fail_msg("%s", err.text);
}

#define G0 "/groups/g0"
#define DATA G0 "/data"

static inline hid_t text_type(size_t nbytes)
{
	hid_t type = H5Tcopy(H5T_C_S1);

	H5Tset_size(type, nbytes);
	H5Tset_strpad(type, H5T_STR_NULLPAD);
	H5Tset_cset(type, H5T_CSET_UTF8);
	return type;
}

/* Puts an attribute in the place of one; n 0: a scalar. */
static inline void put(hid_t file, const char *object, const char *name, hid_t type,
		hsize_t n, const void *value)
{
	hid_t at = H5Oopen(file, object, H5P_DEFAULT), attr;
	hid_t space = n ? H5Screate_simple(1, &n, NULL) : H5Screate(H5S_SCALAR);

	if (H5Aexists(at, name) > 0)
		H5Adelete(at, name);
	attr = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	assert_true(attr >= 0);
	assert_true(H5Awrite(attr, type, value) >= 0);
	H5Aclose(attr);
	H5Sclose(space);
	H5Oclose(at);
}

static inline void put_int(hid_t file, const char *object, const char *name, hid_t type,
		    int64_t value)
{
	put(file, object, name, type, 0, &value);
}

static inline void put_str(hid_t file, const char *object, const char *name,
		    const char *value)
{
	hid_t type = text_type(strlen(value));

	put(file, object, name, type, 0, value);
	H5Tclose(type);
}

static inline void drop_attr(hid_t file, const char *object, const char *name)
{
	hid_t at = H5Oopen(file, object, H5P_DEFAULT);

	assert_true(H5Adelete(at, name) >= 0);
	H5Oclose(at);
}

/* Makes of it what a program of version 1.0 wrote, so that it may be changed. */
static inline void unprove(hid_t file)
{
	put(file, "/", "format_version", H5T_STD_U32LE, 2, (uint32_t[]){ 1, 0 });
	drop_attr(file, "/", "tables_checksum");
}

/* A table in the place of another; chunk 0: contiguous. */
static inline void put_table(hid_t file, const char *name, hid_t type, hsize_t n,
		      hsize_t chunk, const void *value)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), dataset;
	hid_t space = H5Screate_simple(1, &n, NULL);

	H5Ldelete(file, name, H5P_DEFAULT);
	if (chunk)
		H5Pset_chunk(dcpl, 1, &chunk);
	dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl,
			     H5P_DEFAULT);
	assert_true(dataset >= 0);
	if (value)
		H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
	H5Dclose(dataset);
	H5Sclose(space);
	H5Pclose(dcpl);
}

static inline herr_t copy_attr(hid_t from, const char *name, const H5A_info_t *info,
			void *to)
{
	hid_t in = H5Aopen(from, name, H5P_DEFAULT), type = H5Aget_type(in);
	hid_t space = H5Aget_space(in), out;
	char buf[512];

	(void)info;
	assert_true(H5Tget_size(type) * (hsize_t)H5Sget_simple_extent_npoints(space)
		    <= sizeof(buf));
	out = H5Acreate2(*(hid_t *)to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	H5Aread(in, type, buf);
	H5Awrite(out, type, buf);
	if (H5Tis_variable_str(type) > 0)
		H5Dvlen_reclaim(type, space, H5P_DEFAULT, buf);
	H5Aclose(out);
	H5Sclose(space);
	H5Tclose(type);
	H5Aclose(in);
	return 0;
}

/* Data of the same type and attributes, created otherwise. */
static inline void put_data(hid_t file, hid_t dcpl, int rank, const hsize_t *dims)
{
	hid_t old = H5Dopen2(file, DATA, H5P_DEFAULT), type = H5Dget_type(old);
	hid_t space = rank ? H5Screate_simple(rank, dims, NULL) :
			     H5Dget_space(old);
	hid_t data = H5Dcreate2(file, G0 "/new", type, space, H5P_DEFAULT, dcpl,
				H5P_DEFAULT);

	assert_true(data >= 0);
	H5Aiterate2(old, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attr, &data);
	H5Dclose(old);
	H5Dclose(data);
	H5Sclose(space);
	H5Tclose(type);
	H5Pclose(dcpl);
	H5Ldelete(file, DATA, H5P_DEFAULT);
	H5Lmove(file, G0 "/new", file, DATA, H5P_DEFAULT, H5P_DEFAULT);
}

static inline hid_t chunked(hsize_t l, hsize_t b, hsize_t s, hsize_t h, hsize_t k,
		     hsize_t d)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
	hsize_t chunk[] = { l, b, s, h, k, d };

	H5Pset_chunk(dcpl, 6, chunk);
	return dcpl;
}

#endif
