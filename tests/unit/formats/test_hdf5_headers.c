/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hdf5_headers.c - snapshots whose headers lie: each is refused with the
 * right status and a sentence that says why, before any data is read
 */
#include <unistd.h>

#include "tests/damage.h"
#include "tests/temporary.h"
#include "tests/unit/tests.h"

static char path[TEMPORARY_NAME];

static int make_names(void **state)
{
	(void)state;
	temporary_file(path, "headers");
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

/* ---- the root ----------------------------------------------------------- */

static void format_missing(hid_t f) { drop_attr(f, "/", "format"); }
static void format_other(hid_t f) { put_str(f, "/", "format", "keras"); }
static void format_number(hid_t f) { put_int(f, "/", "format", H5T_STD_U32LE, 1); }
static void incomplete(hid_t f) { drop_attr(f, "/", "complete"); }
static void complete_0(hid_t f) { put_int(f, "/", "complete", H5T_STD_U8LE, 0); }
static void complete_wide(hid_t f) { put_int(f, "/", "complete", H5T_STD_I32LE, 1); }
static void no_groups(hid_t f) { H5Ldelete(f, "/groups", H5P_DEFAULT); }
static void empty_groups(hid_t f) { H5Ldelete(f, G0, H5P_DEFAULT); }

static void version_2(hid_t f)
{
	put(f, "/", "format_version", H5T_STD_U32LE, 2, (uint32_t[]){ 2, 0 });
}

static void version_long(hid_t f)
{
	put(f, "/", "format_version", H5T_STD_U32LE, 3, (uint32_t[]){ 1, 0, 0 });
}

static void features(hid_t f)
{
	hid_t type = text_type(11);

	/* the first is known */
	put(f, "/", "required_features", type, 2, "first_tokentime-travel");
	H5Tclose(type);
}

static void group_is_table(hid_t f)
{
	H5Ldelete(f, G0, H5P_DEFAULT);
	put_table(f, G0, H5T_STD_U8LE, 1, 0, "");
}

static void soft_link(hid_t f)
{
	H5Lmove(f, G0, f, "/elsewhere", H5P_DEFAULT, H5P_DEFAULT);
	H5Lcreate_soft("/elsewhere", f, G0, H5P_DEFAULT, H5P_DEFAULT);
}

static void external_link(hid_t f)
{
	H5Ldelete(f, DATA, H5P_DEFAULT);
	H5Lcreate_external("/etc/passwd", "/", f, DATA, H5P_DEFAULT, H5P_DEFAULT);
}

/* ---- a group ------------------------------------------------------------ */

static void kind_number(hid_t f) { put_int(f, G0, "kind", H5T_STD_U32LE, 1); }
static void kind_new(hid_t f) { put_str(f, G0, "kind", "tele\033pathy"); }
static void dtype_new(hid_t f) { put_str(f, G0, "dtype", "posit16"); }
static void dtype_lie(hid_t f) { put_str(f, G0, "dtype", "float16"); }
static void dtype_wide(hid_t f) { put_str(f, G0, "dtype", "float32"); }
static void size_short(hid_t f) { put_int(f, G0, "block_size", H5T_STD_U32LE, 16); }
static void size_missing(hid_t f) { drop_attr(f, G0, "block_size"); }
static void size_lie(hid_t f) { put_int(f, G0, "block_size", H5T_STD_U64LE, 32); }
static void size_huge(hid_t f) { put_int(f, G0, "block_size", H5T_STD_U64LE, -1); }
static void heads_lie(hid_t f) { put_int(f, G0, "num_heads", H5T_STD_U64LE, 4); }
static void slot_lie(hid_t f)
{
	put_int(f, G0, "state_content_size", H5T_STD_U64LE, 1);
}
static void axes_hnd(hid_t f) { put_str(f, G0, "axes", "LBHSC"); }
static void axes_nonsense(hid_t f) { put_str(f, G0, "axes", "L\033[2J"); }
static void axes_planes(hid_t f) { put_str(f, G0, "axes", "K:LBSHD V:LBSHD"); }
static void data_axes_lie(hid_t f) { put_str(f, DATA, "axes", "LBHSKD"); }
static void data_axes_missing(hid_t f) { drop_attr(f, DATA, "axes"); }
static void tuple_bare(hid_t f) { drop_attr(f, DATA, "stride_order_convention"); }

static void kind_vlen(hid_t f)
{
	hid_t type = text_type(H5T_VARIABLE);

	put(f, G0, "kind", type, 0, (const char *[]){ "full_attention" });
	H5Tclose(type);
}

static void kind_not_utf8(hid_t f) { put_str(f, G0, "kind", "full\xc3"); }


static void size_list(hid_t f)
{
	put(f, G0, "block_size", H5T_STD_U64LE, 1, (uint64_t[]){ 16 });
}

static void content_lie(hid_t f)
{
	put(f, G0, "content_shape", H5T_STD_U64LE, 2, (uint64_t[]){ 2, 65 });
}

static void content_overflow(hid_t f)
{
	put(f, G0, "content_shape", H5T_STD_U64LE, 2,
	    (uint64_t[]){ INT64_MAX, INT64_MAX });
}

static void tuple_lie(hid_t f)
{
	put(f, DATA, "stride_order", H5T_STD_U32LE, 5,
	    (uint32_t[]){ 0, 1, 3, 2, 4 });
}

/* ---- tables ------------------------------------------------------------- */

static const uint32_t many[8] = { 0, 1, 2, 3, 99, 5, 6, 7 };

static void ids_short(hid_t f)
{
	put_table(f, G0 "/layer_ids", H5T_STD_U32LE, 1, 0, many);
}
static void ids_signed(hid_t f)
{
	put_table(f, G0 "/layer_ids", H5T_STD_I32LE, 2, 0, many);
}
static void ids_chunked(hid_t f)
{
	put_table(f, G0 "/layer_ids", H5T_STD_U32LE, 2, 2, many);
}
static void ids_not_there(hid_t f)
{
	put_table(f, G0 "/layer_ids", H5T_STD_U32LE, 2, 0, NULL);
}
static void valid_above(hid_t f)
{
	put_table(f, G0 "/block_valid", H5T_STD_U32LE, 5, 0, many);
}
static void block_outside(hid_t f)
{
	put_table(f, "/requests/0/block_table/g0", H5T_STD_U32LE, 5, 0, many);
}
static void tokens_everywhere(hid_t f)
{
	/* no data behind it: only the header says that it is large */
	put_table(f, "/requests/0/token_ids", H5T_STD_I32LE, 1 << 30, 0, NULL);
}
static void cells_short(hid_t f)
{
	hid_t old = H5Dopen2(f, G0 "/content_digest", H5P_DEFAULT), new;
	hid_t space = H5Screate_simple(4, (hsize_t[]){ 2, 5, 2, 1 }, NULL);

	new = H5Dcreate2(f, G0 "/n", H5T_STD_U64LE, space, H5P_DEFAULT,
			 H5P_DEFAULT, H5P_DEFAULT);
	H5Aiterate2(old, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attr, &new);
	H5Dwrite(new, H5T_STD_U64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
		 (uint64_t[20]){ 0 });
	H5Sclose(space);
	H5Dclose(old);
	H5Dclose(new);
	H5Ldelete(f, G0 "/content_digest", H5P_DEFAULT);
	H5Lmove(f, G0 "/n", f, G0 "/content_digest", H5P_DEFAULT, H5P_DEFAULT);
}

static void names_not_utf8(hid_t f)
{
	hid_t type = text_type(2);

	put_table(f, G0 "/layer_names", type, 2, 0, "ok\xc3(");
	H5Tclose(type);
}

/* ---- data --------------------------------------------------------------- */

static void deflate(hid_t f)
{
	hid_t dcpl = chunked(1, 1, 16, 1, 1, 64);

	H5Pset_deflate(dcpl, 1);
	put_data(f, dcpl, 0, NULL);
}

static void filters_turned(hid_t f)
{
	hid_t dcpl = chunked(1, 1, 16, 1, 1, 64);

	H5Pset_fletcher32(dcpl);
	H5Pset_shuffle(dcpl);
	put_data(f, dcpl, 0, NULL);
}

static void rank_5(hid_t f)
{
	put_data(f, H5Pcreate(H5P_DATASET_CREATE), 5,
		 (hsize_t[]){ 2, 5, 16, 2, 128 });
}

static void external_data(hid_t f)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);

	H5Pset_external(dcpl, "/etc/passwd", 0, H5F_UNLIMITED);
	put_data(f, dcpl, 6, (hsize_t[]){ 2, 5, 16, 2, 2, 64 });
}

static void compact_data(hid_t f)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);

	H5Pset_layout(dcpl, H5D_COMPACT);
	put_data(f, dcpl, 6, (hsize_t[]){ 1, 1, 16, 2, 2, 64 });
}

static void no_place(hid_t f)
{
	put_data(f, H5Pcreate(H5P_DATASET_CREATE), 6,
		 (hsize_t[]){ 2, 5, 16, 2, 2, 64 });
}

static void too_many_tiles(hid_t f)
{
	put_data(f, chunked(1, 1, 16, 1, 1, 64), 6,
		 (hsize_t[]){ 1 << 20, 1 << 20, 16, 2, 2, 64 });
}

static void beyond_2_63(hid_t f)
{
	put_data(f, chunked(1, 1, 16, 1, 1, 64), 6,
		 (hsize_t[]){ 1 << 25, 1 << 25, 16, 2, 2, 64 });
}

/* A tile of 2 GiB in a file of some kilobytes. */
static void huge_tile(hid_t f)
{
	hid_t dcpl = chunked(1024, 512, 16, 2, 1, 64);

	H5Pset_shuffle(dcpl);
	put_data(f, dcpl, 6, (hsize_t[]){ 1024, 512, 16, 2, 2, 64 });
}

static const struct row {
	const char *name;
	void (*damage)(hid_t file);
	enum kvt_status status;
	const char *why;
} rows[] = {
	{ "format_missing", format_missing, 3, "attribute format is missing" },
	{ "format_other", format_other, 3, "format is 'keras'" },
	{ "format_number", format_number, 3, "format is not a string" },
	{ "incomplete", incomplete, 3, "not complete" },
	{ "complete_0", complete_0, 3, "not complete" },
	{ "complete_wide", complete_wide, 3, "complete is not a little-endian" },
	{ "version_2", version_2, 4, "version 2.0" },
	{ "version_long", version_long, 3, "format_version" },
	{ "features", features, 4, "'time-travel'" },
	{ "no_groups", no_groups, 3, "groups is missing" },
	{ "empty_groups", empty_groups, 3, "no groups" },
	{ "group_is_table", group_is_table, 3, "g0 is not a group" },
	{ "soft_link", soft_link, 3, "link to another object" },
	{ "external_link", external_link, 3, "link to another object" },
	{ "kind_number", kind_number, 3, "kind is not a string" },
	{ "kind_new", kind_new, 4, "kind 'tele?pathy'" },
	{ "kind_vlen", kind_vlen, 3, "kind is not a string of fixed length" },
	{ "kind_not_utf8", kind_not_utf8, 3, "kind is not UTF-8" },
	{ "dtype_new", dtype_new, 4, "dtype 'posit16'" },
	{ "dtype_lie", dtype_lie, 3, "does not match float16" },
	{ "dtype_wide", dtype_wide, 3, "does not match float32" },
	{ "size_short", size_short, 3, "block_size is not a little-endian" },
	{ "size_list", size_list, 3, "block_size is a list" },
	{ "size_missing", size_missing, 3, "block_size is missing" },
	{ "size_lie", size_lie, 3, "expected 32" },
	{ "size_huge", size_huge, 3, "block_size is above 2^63" },
	{ "heads_lie", heads_lie, 3, "num_heads is 4" },
	{ "slot_lie", slot_lie, 3, "content_size is 1" },
	{ "content_lie", content_lie, 3, "content_shape" },
	{ "content_overflow", content_overflow, 3, "content_shape" },
	{ "axes_hnd", axes_hnd, 3, "axes are 'LBSHKD', expected 'LBHSKD'" },
	{ "axes_nonsense", axes_nonsense, 3, "axes: layout" },
	{ "axes_planes", axes_planes, 3, "data_k is missing" },
	{ "data_axes_lie", data_axes_lie, 3, "axes are 'LBHSKD'" },
	{ "data_axes_missing", data_axes_missing, 3, "axes is missing" },
	{ "tuple_lie", tuple_lie, 3, "stride_order does not match" },
	{ "tuple_bare", tuple_bare, 3, "stride_order_convention is missing" },
	{ "ids_short", ids_short, 3, "1 entries, expected 2" },
	{ "ids_signed", ids_signed, 3, "wrong element type" },
	{ "ids_chunked", ids_chunked, 3, "chunked" },
	{ "ids_not_there", ids_not_there, 3, "0 bytes in the file" },
	{ "valid_above", valid_above, 3, "99 live slots" },
	{ "block_outside", block_outside, 3, "block table entry 4 is position 99" },
	{ "tokens_everywhere", tokens_everywhere, 3, "0 bytes in the file" },
	{ "cells_short", cells_short, 3, "extents are not those" },
	{ "names_not_utf8", names_not_utf8, 3, "string 1 is not UTF-8" },
	{ "deflate", deflate, 4, "deflate" },
	{ "filters_turned", filters_turned, 4, "as stage 1" },
	{ "rank_5", rank_5, 3, "rank is 5" },
	{ "external_data", external_data, 3, "in other files" },
	{ "compact_data", compact_data, 4, "in the object header" },
	{ "no_place", no_place, 3, "0 bytes in the file" },
	{ "too_many_tiles", too_many_tiles, 3, "are not in a file of" },
	{ "beyond_2_63", beyond_2_63, 3, "2^63" },
	{ "huge_tile", huge_tile, 3, "are not in a file of" },
};

static void opens(const char *name, enum kvt_status status, const char *part)
{
	struct kvt_dump *reader = NULL;
	enum kvt_status is = kvt_open(&reader, path, NULL, &why);

	kvt_dump_close(reader);
	if (is != status || !strstr(why.text, part))
		fail_msg("%s: status %d, expected %d: %s", name, is, status,
			 why.text);
	/* nothing of the file's reaches a terminal as it is */
	for (const char *p = why.text; *p; p++)
		assert_true((unsigned char)*p >= ' ');
}

static void refused(void **state)
{
	const struct row *row = *state;
	hid_t file;

	write_good(path, "nhd");
	file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	assert_true(file >= 0);
	unprove(file);
	row->damage(file);
	H5Fclose(file);
	opens(row->name, row->status, row->why);
}

TESTS_AROUND("hdf5_headers", make_names, remove_files,
	EACH_BY(rows, name, refused))
