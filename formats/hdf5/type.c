/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type.c - element types as HDF5 has them, and what counts as text
 *
 * The attribute 'dtype' says what the elements are.  The HDF5 type is for other
 * readers: a custom float where HDF5 then shows the right values, else integers
 * that carry the bits.
 */
#include "formats/hdf5/hdf5.h"

#include <stdlib.h>
#include <string.h>

static const struct real {
	const char *name;
	size_t bytes, sign, exponent, exponent_bits, fraction_bits, bias;
} reals[] = {
	{ "float16",     2, 15, 10, 5, 10, 15 },
	{ "bfloat16",    2, 15, 7,  8, 7,  127 },
	{ "float8_e5m2", 1, 7,  2,  5, 2,  15 },
	/* e4m3 has numbers where IEEE has infinities: HDF5 would show those */
};

static hid_t real_type(const struct real *real)
{
	hid_t type = H5Tcopy(H5T_IEEE_F32LE);

	/* the fields first: the size may not cut them off */
	if (H5Tset_fields(type, real->sign, real->exponent, real->exponent_bits,
			  0, real->fraction_bits) < 0 ||
	    H5Tset_size(type, real->bytes) < 0 ||
	    H5Tset_ebias(type, real->bias) < 0) {
		kvt_h5_drop(type);
		return -1;
	}
	return type;
}

static hid_t known_type(const struct kvt_dtype *dtype)
{
	const struct {
		const char *name;
		hid_t type;
	} known[] = {
		{ "float32", H5T_IEEE_F32LE }, { "float64", H5T_IEEE_F64LE },
		{ "int16", H5T_STD_I16LE },    { "uint16", H5T_STD_U16LE },
		{ "int32", H5T_STD_I32LE },    { "uint32", H5T_STD_U32LE },
		{ "int64", H5T_STD_I64LE },    { "uint64", H5T_STD_U64LE },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, dtype->name))
			return known[i].type;
	/* bits without a meaning to HDF5 */
	return dtype->elem == 1 ? H5T_STD_U8LE : dtype->elem == 2 ?
	       H5T_STD_U16LE : dtype->elem == 4 ? H5T_STD_U32LE : H5T_STD_U64LE;
}

hid_t kvt_h5_element_type(const struct kvt_dtype *dtype)
{
	for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
		if (!strcmp(reals[i].name, dtype->name))
			return real_type(&reals[i]);
	return H5Tcopy(known_type(dtype));
}

/* ---- text --------------------------------------------------------------- */

hid_t kvt_h5_text_type(size_t nbytes)
{
	hid_t type = H5Tcopy(H5T_C_S1);

	if (type >= 0 && (H5Tset_size(type, nbytes ? nbytes : 1) < 0 ||
			  H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 ||
			  H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
		kvt_h5_drop(type);
		return -1;
	}
	return type;
}

size_t kvt_h5_text_bytes(hid_t type)
{
	if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 ||
	    H5Tget_strpad(type) == H5T_STR_SPACEPAD)
		return 0;
	return H5Tget_size(type);
}

char *kvt_h5_take_text(const char *raw, size_t nbytes)
{
	size_t n = strnlen(raw, nbytes);
	char *s = malloc(n + 1);

	if (s) {
		memcpy(s, raw, n);
		s[n] = '\0';
	}
	return s;
}

char *kvt_h5_join_texts(const char *const *value, int64_t n, size_t *nbytes)
{
	size_t most = 1;
	char *raw;

	for (int64_t i = 0; i < n; i++)
		if (strlen(value[i]) > most)
			most = strlen(value[i]);
	raw = calloc(n > 0 ? (size_t)n : 1, most);
	for (int64_t i = 0; raw && i < n; i++)
		memcpy(raw + (size_t)i * most, value[i], strlen(value[i]));
	*nbytes = most;
	return raw;
}
