/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attr.c - attributes: integers and strings, one or a list
 *
 * What an attribute is must be exactly what the schema says: HDF5 would
 * convert almost anything, and a converted value is a wrong one.
 */
#include "formats/hdf5/hdf5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types -------------------------------------------------------------- */

hid_t kvt_h5_int_type(enum kvt_h5_int type)
{
	switch (type) {
	case KVT_H5_U8:  return H5T_STD_U8LE;
	case KVT_H5_U32: return H5T_STD_U32LE;
	case KVT_H5_I32: return H5T_STD_I32LE;
	case KVT_H5_U64: return H5T_STD_U64LE;
	case KVT_H5_I64: return H5T_STD_I64LE;
	case KVT_H5_F32: return H5T_IEEE_F32LE;
	}
	return -1;
}

static int int_bytes(enum kvt_h5_int type)
{
	return type == KVT_H5_U8 ? 1 :
	       type == KVT_H5_U32 || type == KVT_H5_I32 || type == KVT_H5_F32 ? 4 : 8;
}

/* ---- opening ------------------------------------------------------------ */

struct attr {
	hid_t id, type;
	bool list;			/* else one value */
	int64_t n;
};

/* Keeps the first time that HDF5 could not tell. */
static bool is_there(htri_t answer, struct kvt_h5_in *in, const char *name)
{
	if (answer < 0 && !in->untold) {
		char what[80];

		snprintf(what, sizeof(what), "cannot look for %.40s", name);
		in->untold = kvt_h5_failed(&in->why, KVT_BAD_INPUT, in->path, what);
	}
	return answer > 0;
}

bool kvt_h5_has_attr(struct kvt_h5_in *in, hid_t object, const char *name)
{
	return !in->status && is_there(H5Aexists(object, name), in, name);
}

bool kvt_h5_has_link(struct kvt_h5_in *in, hid_t parent, const char *name)
{
	return !in->status && is_there(H5Lexists(parent, name, H5P_DEFAULT), in, name);
}

static bool measure(struct attr *attr)
{
	hid_t space = H5Aget_space(attr->id);
	H5S_class_t class = H5Sget_simple_extent_type(space);
	bool simple = class == H5S_SIMPLE && H5Sget_simple_extent_ndims(space) == 1;

	attr->list = class == H5S_SIMPLE;
	attr->n = H5Sget_simple_extent_npoints(space);
	kvt_h5_drop(space);
	return attr->n >= 0 && (simple || class == H5S_SCALAR);
}

/* One value if 'most' is 0, else a list of 1 to so many. */
static bool open_attr(struct attr *attr, struct kvt_h5_in *in, hid_t object,
		      const char *name, int most)
{
	if (!kvt_h5_has_attr(in, object, name))
		return kvt_h5_bad(in, object, "attribute %s is missing", name);
	attr->id = H5Aopen(object, name, H5P_DEFAULT);
	attr->type = attr->id < 0 ? -1 : H5Aget_type(attr->id);
	if (attr->type < 0 || !measure(attr))
		return kvt_h5_bad(in, object,
				  "attribute %s is neither a value nor a list", name);
	if (!most && attr->list)
		return kvt_h5_bad(in, object,
				  "attribute %s is a list, expected one value", name);
	if (most && (!attr->list || attr->n < 1 || attr->n > most))
		return kvt_h5_bad(in, object,
				  "attribute %s is %s of %lld values, expected a list of 1 to %d",
				  name, attr->list ? "a list" : "not a list",
				  LL(attr->n), most);
	return true;
}

/* ---- integers ----------------------------------------------------------- */

static bool widen(int64_t *out, const uint8_t *raw, enum kvt_h5_int type)
{
	union { uint8_t u8; uint32_t u32; int32_t i32; uint64_t u64; int64_t i64; } v;

	memcpy(&v, raw, (size_t)int_bytes(type));
	switch (type) {
	case KVT_H5_U8:  *out = v.u8;  return true;
	case KVT_H5_F32: return false;
	case KVT_H5_U32: *out = v.u32; return true;
	case KVT_H5_I32: *out = v.i32; return true;
	case KVT_H5_I64: *out = v.i64; return true;
	case KVT_H5_U64: *out = (int64_t)v.u64; return v.u64 <= INT64_MAX;
	}
	return false;
}

enum { MAX_LIST = 64 };

static bool read_ints(struct kvt_h5_in *in, hid_t object, const struct attr *attr,
		      const char *name, enum kvt_h5_int type, int64_t *out)
{
	int size = int_bytes(type);
	uint8_t raw[MAX_LIST * 8];

	if (H5Tequal(attr->type, kvt_h5_int_type(type)) <= 0)
		return kvt_h5_bad(in, object,
				  "attribute %s is not a little-endian integer of %d bytes, %s",
				  name, size, type == KVT_H5_I32 || type == KVT_H5_I64 ?
				  "signed" : "unsigned");
	if (H5Aread(attr->id, attr->type, raw) < 0)
		return kvt_h5_bad(in, object, "attribute %s cannot be read", name);
	for (int64_t i = 0; i < attr->n; i++)
		if (!widen(&out[i], raw + i * size, type))
			return kvt_h5_bad(in, object, "attribute %s is above 2^63", name);
	return true;
}

/* ---- strings ------------------------------------------------------------ */

static bool split_texts(struct kvt_h5_in *in, hid_t object, const char *name,
			const char *raw, size_t nbytes, int n, char **out)
{
	for (int i = 0; i < n; i++)
		out[i] = NULL;
	for (int i = 0; i < n && !in->status; i++) {
		out[i] = kvt_h5_take_text(raw + (size_t)i * nbytes, nbytes);
		if (!out[i])
			in->status = kvt_no_memory(in->err, in->path);
		else if (!kvt_is_text(out[i]))
			kvt_h5_bad(in, object, "attribute %s is not UTF-8", name);
	}
	for (int i = 0; i < n && in->status; i++) {
		free(out[i]);
		out[i] = NULL;
	}
	return !in->status;
}

static bool read_texts(struct kvt_h5_in *in, hid_t object, const struct attr *attr,
		       const char *name, char **out)
{
	size_t nbytes = kvt_h5_text_bytes(attr->type);
	bool ok = false;
	char *raw;

	if (!nbytes)
		return kvt_h5_bad(in, object,
				  "attribute %s is not a string of fixed length", name);
	/* at most MAX_LIST, of less than 2^32 bytes each */
	if (!kvt_h5_spend(in, object, (int64_t)nbytes * attr->n))
		return false;
	raw = malloc(nbytes * (size_t)attr->n);
	if (!raw)
		in->status = kvt_no_memory(in->err, in->path);
	else if (H5Aread(attr->id, attr->type, raw) < 0)
		kvt_h5_bad(in, object, "attribute %s cannot be read", name);
	else
		ok = split_texts(in, object, name, raw, nbytes, (int)attr->n, out);
	free(raw);
	return ok;
}

/* ---- either ------------------------------------------------------------- */

/* Strings, or integers where 'text' is NULL; returns how many. */
static int get(struct kvt_h5_in *in, hid_t object, const char *name, int most,
	       char **text, enum kvt_h5_int type, int64_t *number)
{
	struct attr attr = { .id = -1, .type = -1 };
	bool ok = open_attr(&attr, in, object, name, most < MAX_LIST ? most : MAX_LIST) &&
		  (text ? read_texts(in, object, &attr, name, text) :
			  read_ints(in, object, &attr, name, type, number));

	kvt_h5_drop(attr.type);
	kvt_h5_drop(attr.id);
	return ok ? (int)attr.n : 0;
}

int64_t kvt_h5_get_int(struct kvt_h5_in *in, hid_t object, const char *name,
		       enum kvt_h5_int type)
{
	int64_t value = 0;

	return get(in, object, name, 0, NULL, type, &value) ? value : 0;
}

int kvt_h5_get_ints(struct kvt_h5_in *in, hid_t object, const char *name,
		    enum kvt_h5_int type, int64_t *out, int most)
{
	return get(in, object, name, most, NULL, type, out);
}

char *kvt_h5_get_str(struct kvt_h5_in *in, hid_t object, const char *name)
{
	char *text = NULL;

	return get(in, object, name, 0, &text, 0, NULL) ? text : NULL;
}

int kvt_h5_get_strs(struct kvt_h5_in *in, hid_t object, const char *name, char **out,
		    int most)
{
	return get(in, object, name, most, out, 0, NULL);
}

/* ---- writing ------------------------------------------------------------ */

/* n < 0: one value. */
static bool put(hid_t object, const char *name, hid_t type, const void *value, int n)
{
	hsize_t dims = n < 0 ? 1 : (hsize_t)n;
	hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dims, NULL);
	hid_t attr = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	bool ok = attr >= 0 && H5Awrite(attr, type, value) >= 0;

	kvt_h5_drop(attr);
	kvt_h5_drop(space);
	return ok;
}

static bool put_ints(hid_t object, const char *name, enum kvt_h5_int type,
		     const int64_t *value, int count, int n)
{
	int size = int_bytes(type);
	uint8_t raw[MAX_LIST * 8];

	/* little-endian: the first bytes are the low ones */
	for (int i = 0; i < count; i++)
		memcpy(raw + i * size, &value[i], (size_t)size);
	return put(object, name, kvt_h5_int_type(type), raw, n);
}

bool kvt_h5_put_int(hid_t object, const char *name, enum kvt_h5_int type, int64_t value)
{
	return put_ints(object, name, type, &value, 1, -1);
}

bool kvt_h5_put_ints(hid_t object, const char *name, enum kvt_h5_int type,
		     const int64_t *value, int n)
{
	return put_ints(object, name, type, value, n, n);
}

static bool put_texts(hid_t object, const char *name, const char *const *value,
		      int count, int n)
{
	size_t nbytes;
	char *raw = kvt_h5_join_texts(value, count, &nbytes);
	hid_t type = kvt_h5_text_type(nbytes);
	bool ok = raw && put(object, name, type, raw, n);

	kvt_h5_drop(type);
	free(raw);
	return ok;
}

bool kvt_h5_put_str(hid_t object, const char *name, const char *value)
{
	return put_texts(object, name, &value, 1, -1);
}

bool kvt_h5_put_strs(hid_t object, const char *name, const char *const *value, int n)
{
	return put_texts(object, name, value, n, n);
}

bool kvt_h5_put_labels(hid_t dataset, const char *const *label, int n)
{
	hid_t type = H5Tcopy(H5T_C_S1);
	bool ok = H5Tset_size(type, H5T_VARIABLE) >= 0 &&
		  H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
		  put(dataset, "DIMENSION_LABELS", type, label, n);

	kvt_h5_drop(type);
	return ok;
}
