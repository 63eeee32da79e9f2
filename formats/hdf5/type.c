/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type.c - element types as HDF5 has them, and what counts as text
 *
 *	float64, float32		IEEE, little-endian
 *	float16, bfloat16, e5m2		custom: fraction from bit 0, exponent, sign on top
 *	other types of one byte		U8, the bits as they are
 *	whole numbers of 2 to 8 bytes	I or U of that size
 *
 * The attribute 'dtype' says what the elements are; the HDF5 type is for other readers.
 * It is a custom float only where HDF5 then shows the right values: e4m3 has numbers
 * where IEEE has infinities.  Text is of fixed length, UTF-8, padded with NUL.
 */
#include "formats/hdf5/hdf5.h"

#include <stdlib.h>
#include <string.h>

/* e4m3 has numbers where IEEE has infinities: HDF5 would show those. */
static bool is_custom(const struct kvt_dtype *dtype)
{
	return dtype->number == KVT_IEEE && dtype->elem < 4;
}

static hid_t custom_type(const struct kvt_dtype *dtype)
{
	size_t fraction = (size_t)dtype->fraction, exponent = (size_t)dtype->exponent;
	hid_t type = H5Tcopy(H5T_IEEE_F32LE);

	/* the fields first: the size may not cut them off */
	if (H5Tset_fields(type, fraction + exponent, fraction, exponent,
			  0, fraction) < 0 ||
	    H5Tset_size(type, (size_t)dtype->elem) < 0 ||
	    H5Tset_ebias(type, (size_t)dtype->bias) < 0) {
		kvt_h5_drop(type);
		return -1;
	}
	return type;
}

hid_t kvt_h5_element_type(const struct kvt_dtype *dtype)
{
	const hid_t wide[3] = { H5T_STD_U16LE, H5T_STD_U32LE, H5T_STD_U64LE };
	const hid_t sign[3] = { H5T_STD_I16LE, H5T_STD_I32LE, H5T_STD_I64LE };
	int size = dtype->elem == 8 ? 2 : dtype->elem == 4;

	if (is_custom(dtype))
		return custom_type(dtype);
	if (dtype->number == KVT_IEEE)
		return H5Tcopy(size == 2 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
	/* bytes without a meaning to HDF5 */
	if (dtype->elem == 1)
		return H5Tcopy(H5T_STD_U8LE);
	return H5Tcopy((dtype->number == KVT_SIGNED ? sign : wide)[size]);
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
