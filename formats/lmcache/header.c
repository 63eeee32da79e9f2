/* SPDX-License-Identifier: Apache-2.0 */
/*
 * header.c - headers of LMCache chunks: seven integers, or JSON
 *
 *	FS connector, if it is told to	numbers are i32, little-endian
 *	0	bytes that follow the header
 *	4	memory format: a row of fmts[]
 *	8	type: a row of fs_dtype(), and a shape of four	20 bytes
 *	28	the array; of n groups types and shapes of all of them come before, and
 *		the arrays follow at 8 + 20 n
 *
 *	GDS, Weka
 *	0	u64 4088
 *	8	{"kvcache": {"dtype": .., "shape": [..], "data_offsets": [0, n], "fmt": 1,
 *		 "__metadata__": {"lmcache_version": "1"}}}, of several groups "dtypes"
 *		and "shapes", too; then blanks
 *	4096	the array, or arrays, n bytes
 *
 * Either must explain the file to the byte.  How many groups a header of integers has is
 * not in it: it follows from the file's length less what the first number says.  Shapes
 * of fewer than four numbers are filled up with ones in front or zeros behind, by
 * release.  Facts: LMCache 0.5.6, its memory_management.py (MemoryFormat), protocol.py
 * (types) and gds_backend.py; the files it wrote.
 */
#include "formats/lmcache/lmcache.h"

#include "formats/parse/json.h"
#include "lib/base/little_endian.h"

#include <string.h>

/* What a header says of one array, before the format explains it. */
struct said {
	const struct kvt_dtype *dtype;
	int rank;			/* 0: four numbers, padded in some way */
	int64_t shape[4];
};

static const struct fmt {
	const char *axes;		/* NULL: none of a cache */
	const char *name;
	int rank;
	int layers, tokens;		/* where they are; layers -1: nowhere */
	int pair;			/* where keys and values are */
	int64_t npair;			/* how many */
} fmts[] = {
	{ NULL, "UNDEFINED", 0, 0, 0, 0, 0 },
	[KVT_LMCACHE_2LTD] = { "KLBSHD", "KV_2LTD", 4, 1, 2, 0, 2 },
	[KVT_LMCACHE_T2D] = { "LBSKHD", "KV_T2D", 3, -1, 0, 1, 2 },
	[KVT_LMCACHE_2TD] = { "LKBSHD", "KV_2TD", 3, -1, 1, 0, 2 },
	[4] = { NULL, "BINARY", 0, 0, 0, 0, 0 },
	[5] = { NULL, "BINARY_BUFFER", 0, 0, 0, 0, 0 },
	[KVT_LMCACHE_MLA] = { "LBSC", "KV_MLA_FMT", 4, 1, 2, 0, 1 },
};
enum { NFMTS = sizeof(fmts) / sizeof(fmts[0]) };

const char *kvt_lmcache_axes(int64_t fmt)
{
	return fmt >= 0 && fmt < NFMTS ? fmts[fmt].axes : NULL;
}

/* ---- what a format makes of a shape -------------------------------------- */

static enum kvt_status check_fmt(int64_t fmt, const char *name, struct kvt_error *err)
{
	if (fmt < 0 || fmt >= NFMTS)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: memory format %lld is not one that kvtool knows, 1, 2, 3 or 6",
				name, LL(fmt));
	if (!fmts[fmt].axes)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: memory format %lld (%s) is not a KV cache", name, LL(fmt),
				fmts[fmt].name);
	return KVT_OK;
}

/* The 'rank' numbers from 'at' on, as this format has them. */
static bool shape_fits(struct kvt_lmcache_array *out, const struct fmt *fmt,
		       const int64_t *shape, int rank)
{
	/* one layer may be left out of MLA's [1, L, T, C] */
	int drop = fmt->npair == 1 && rank == 3 ? 1 : 0;

	if (rank + drop != fmt->rank)
		return false;
	for (int i = 0; i < rank; i++)
		if (shape[i] < 1)
			return false;
	if (!drop && shape[fmt->pair] != fmt->npair)
		return false;
	out->layers = fmt->layers < 0 ? 1 : shape[fmt->layers - drop];
	out->tokens = shape[fmt->tokens - drop];
	out->width = shape[rank - 1];
	return true;
}

/*
 * Shapes of fewer than four numbers have been padded with ones in front or with
 * zeros after.  No shape can be both: an array has no extent of 0.
 */
static bool padded_fits(struct kvt_lmcache_array *out, const struct fmt *fmt,
			const int64_t shape[4])
{
	int first = 0, last = 4;

	if (shape_fits(out, fmt, shape, 4))
		return true;
	while (last > 1 && !shape[last - 1])
		last--;
	if (last == 4)
		while (first < 3 && 4 - first > fmt->rank && shape[first] == 1)
			first++;
	return shape_fits(out, fmt, shape + first, last - first);
}

static enum kvt_status take_array(struct kvt_lmcache_header *h, const struct said *said,
				  const char *name, struct kvt_error *err)
{
	const struct fmt *fmt = &fmts[h->fmt];
	struct kvt_lmcache_array *array = &h->array[h->narrays];
	const int64_t *s = said->shape;

	array->dtype = said->dtype;
	if (!(said->rank ? shape_fits(array, fmt, s, said->rank) :
			   padded_fits(array, fmt, s)))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: shape %lld x %lld x %lld x %lld of array %d is none of %s",
				name, LL(s[0]), LL(s[1]), LL(s[2]), LL(s[3]), h->narrays,
				fmt->name);
	if (array->tokens != h->array[0].tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: array %d has %lld tokens, array 0 has %lld", name,
				h->narrays, LL(array->tokens), LL(h->array[0].tokens));
	h->narrays++;
	return KVT_OK;
}

static bool array_bytes(int64_t *out, const struct kvt_lmcache_array *a, int64_t pair)
{
	*out = a->dtype->elem * pair;
	return !__builtin_mul_overflow(*out, a->layers, out) &&
	       !__builtin_mul_overflow(*out, a->tokens, out) &&
	       !__builtin_mul_overflow(*out, a->width, out);
}

/* The arrays must be the payload, to the byte. */
static enum kvt_status check_payload(const struct kvt_lmcache_header *h, int64_t payload,
				     const char *name, struct kvt_error *err)
{
	int64_t sum = 0, n;

	for (int i = 0; i < h->narrays; i++)
		if (!array_bytes(&n, &h->array[i], fmts[h->fmt].npair) ||
		    __builtin_add_overflow(sum, n, &sum))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: array %d has more than 2^63 bytes", name, i);
	if (sum != payload)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: shapes in the header make %lld bytes, but %lld follow it",
				name, LL(sum), LL(payload));
	return KVT_OK;
}

bool kvt_lmcache_shape(struct kvt_lmcache_part *part, const char *name,
		       const int64_t *shape, int rank)
{
	int64_t nbytes;

	for (int64_t f = 0; f < NFMTS; f++)
		if (fmts[f].axes && !strcmp(fmts[f].name, name) &&
		    shape_fits(&part->said, &fmts[f], shape, rank) &&
		    array_bytes(&nbytes, &part->said, fmts[f].npair) &&
		    nbytes == part->nbytes)
			part->fmt = f;
	return part->fmt;
}

/* ---- the FS connector ---------------------------------------------------- */

static int32_t i32_at(const uint8_t *p)
{
	return (int32_t)kvt_le32(p);
}

static enum kvt_status fs_dtype(const struct kvt_dtype **out, int32_t number,
				const char *name, struct kvt_error *err)
{
	static const char *const names[] = {
		NULL, "float16", "float16", "bfloat16", "float32", "float64", "uint8",
		"float8_e4m3fn", "float8_e5m2",
	};

	if (number < 1 || number > 8)
		return kvt_fail(err, number ? KVT_UNSUPPORTED : KVT_BAD_INPUT,
				"%s: element type %d is not one that kvtool knows, 1 to 8",
				name, (int)number);
	*out = kvt_dtype_find(names[number]);
	return KVT_OK;
}

/* Arrays of a header whose payload begins at h->data. */
static enum kvt_status fs_arrays(struct kvt_lmcache_header *h, const uint8_t *head,
				 const char *name, struct kvt_error *err)
{
	enum kvt_status status;

	h->fmt = i32_at(head + 4);
	if ((status = check_fmt(h->fmt, name, err)))
		return status;
	for (const uint8_t *p = head + 8; p < head + h->data; p += 20) {
		struct said said = { .rank = 0 };

		if ((status = fs_dtype(&said.dtype, i32_at(p), name, err)))
			return status;
		for (int i = 0; i < 4; i++)
			said.shape[i] = i32_at(p + 4 + 4 * i);
		if ((status = take_array(h, &said, name, err)))
			return status;
	}
	return check_payload(h, i32_at(head), name, err);
}

/* A header that is right by itself, whose file has another length than it says. */
static enum kvt_status fs_cut(const uint8_t *head, int64_t nhead, int64_t nbytes,
			      const char *name, struct kvt_error *err)
{
	for (int64_t data = 28; data <= nhead; data += 20) {
		struct kvt_lmcache_header h = { .data = data };

		if (!fs_arrays(&h, head, name, NULL))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: its header says that %d bytes follow it, but %lld do: the file was %s",
					name, (int)i32_at(head), LL(nbytes - data),
					nbytes - data < i32_at(head) ? "cut" :
								       "extended");
	}
	return KVT_OK;
}

enum kvt_status kvt_lmcache_fs_parse(struct kvt_lmcache_header *out, bool *found,
				     const uint8_t *head, int64_t nhead, int64_t nbytes,
				     const char *name, struct kvt_error *err)
{
	struct kvt_lmcache_header h = { .data = 0 };
	int64_t payload, groups;
	enum kvt_status status;

	*found = false;
	if (nhead < 28)
		return KVT_OK;
	payload = i32_at(head);
	h.data = nbytes - payload;
	groups = (h.data - 8) / 20;
	if (payload < 0 || h.data != 8 + 20 * groups || groups < 1 ||
	    groups > KVT_MAX_GROUPS || h.data > nhead)
		return fs_cut(head, nhead, nbytes, name, err);
	*found = true;
	if ((status = fs_arrays(&h, head, name, err)))
		return status;
	*out = h;
	return KVT_OK;
}

/* ---- GDS and Weka -------------------------------------------------------- */

enum { GDS_TEXT = KVT_LMCACHE_GDS_HEADER - 8 };

bool kvt_lmcache_is_gds(const uint8_t *head, int64_t nhead)
{
	static const char mark[] = "{\"kvcache\"";

	return nhead >= KVT_LMCACHE_GDS_HEADER && kvt_le64(head) == GDS_TEXT &&
	       !memcmp(head + 8, mark, sizeof(mark) - 1);
}

static enum kvt_status gds_dtype(const struct kvt_dtype **out, const char *text,
				 const char *name, struct kvt_error *err)
{
	*out = text ? kvt_dtype_find(text) : NULL;
	if (text && !*out)
		return kvt_fail(err, KVT_UNSUPPORTED, "%s: elements of '%.40s'", name,
				text);
	if (!text)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: dtype is missing", name);
	return KVT_OK;
}

static enum kvt_status gds_shape(struct said *out, const struct kvt_json *in,
				 const char *key, const json_t *array)
{
	size_t n = json_array_size(array);
	enum kvt_status status;

	if (n < 1 || n > 4)
		return kvt_json_bad(in, "%s has %zu extents, expected 1 to 4", key, n);
	for (size_t i = 0; i < n; i++)
		if ((status = kvt_json_int_at(&out->shape[i], in, key, array, i, 0,
					      INT64_MAX)))
			return status;
	out->rank = (int)n;
	return KVT_OK;
}

/* "shapes" and "dtypes", where a chunk is several arrays. */
static enum kvt_status gds_arrays(struct kvt_lmcache_header *h, const struct kvt_json *in,
				  const json_t *shapes, const json_t *dtypes)
{
	size_t n = json_array_size(shapes);
	enum kvt_status status;

	if (n < 1 || n > KVT_MAX_GROUPS || n != json_array_size(dtypes))
		return kvt_json_bad(in,
				    "%zu shapes and %zu dtypes, expected as many, 1 to %d",
				    n, json_array_size(dtypes), KVT_MAX_GROUPS);
	for (size_t i = 0; i < n; i++) {
		struct said said = { .rank = 0 };
		const char *dtype = NULL;

		if (!json_is_array(json_array_get(shapes, i)))
			return kvt_json_bad(in, "shapes[%zu] is not an array", i);
		if ((status = kvt_json_string_at(&dtype, in, "dtypes", dtypes, i)) ||
		    (status = gds_dtype(&said.dtype, dtype, in->name, in->err)) ||
		    (status = gds_shape(&said, in, "shapes",
					json_array_get(shapes, i))) ||
		    (status = take_array(h, &said, in->name, in->err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status gds_version(const struct kvt_json *in)
{
	struct kvt_json metadata = kvt_json_of(in, NULL);
	const char *version = NULL;
	enum kvt_status status;

	if ((status = kvt_json_object(&metadata, in, "__metadata__")) ||
	    (status = kvt_json_string(&version, &metadata, "lmcache_version")))
		return status;
	if (!version || strcmp(version, "1"))
		return kvt_json_refuse(in, version ? KVT_UNSUPPORTED : KVT_BAD_INPUT,
				       "lmcache_version is %s%.20s%s, expected '1'",
				       version ? "'" : "", version ? version : "missing",
				       version ? "'" : "");
	return KVT_OK;
}

static enum kvt_status gds_payload(int64_t *out, const struct kvt_json *in)
{
	const json_t *offsets = NULL;
	enum kvt_status status;
	int64_t begin = 0;

	if ((status = kvt_json_array(&offsets, in, "data_offsets")))
		return status;
	if (json_array_size(offsets) != 2)
		return kvt_json_bad(in, "data_offsets has %zu numbers, expected 2",
				    json_array_size(offsets));
	if ((status = kvt_json_int_at(&begin, in, "data_offsets", offsets, 0, 0, 0)))
		return status;
	return kvt_json_int_at(out, in, "data_offsets", offsets, 1, 0, INT64_MAX);
}

static enum kvt_status gds_tensor(struct kvt_lmcache_header *h, int64_t *payload,
				  const struct kvt_json *in)
{
	const json_t *shape = NULL, *shapes = NULL, *dtypes = NULL;
	struct said said = { .rank = 0 };
	const char *dtype = NULL;
	enum kvt_status status;

	if (!json_object_get(in->object, "fmt"))
		return kvt_json_bad(in, "fmt is missing");
	if ((status = gds_version(in)) || (status = gds_payload(payload, in)) ||
	    (status = kvt_json_int(&h->fmt, in, "fmt", INT32_MIN, INT32_MAX)) ||
	    (status = check_fmt(h->fmt, in->name, in->err)) ||
	    (status = kvt_json_array(&shape, in, "shape")) ||
	    (status = kvt_json_array(&shapes, in, "shapes")) ||
	    (status = kvt_json_array(&dtypes, in, "dtypes")) ||
	    (status = kvt_json_string(&dtype, in, "dtype")) ||
	    (status = gds_dtype(&said.dtype, dtype, in->name, in->err)))
		return status;
	if (shapes || dtypes)
		return gds_arrays(h, in, shapes, dtypes);
	if ((status = gds_shape(&said, in, "shape", shape)))
		return status;
	return take_array(h, &said, in->name, in->err);
}

enum kvt_status kvt_lmcache_gds_parse(struct kvt_lmcache_header *out, const uint8_t *head,
				      int64_t nhead, int64_t nbytes, const char *name,
				      struct kvt_error *err)
{
	struct kvt_lmcache_header h = { .data = KVT_LMCACHE_GDS_HEADER };
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, name, err, &status }, tensor;
	int64_t payload = 0;
	json_t *json;

	if (nhead < h.data || nbytes < h.data)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: has %lld bytes, its header %lld",
				name, LL(nbytes), LL(h.data));
	if (kvt_le64(head) != GDS_TEXT)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: text of %llu bytes, expected %d of an LMCache header",
				name, (unsigned long long)kvt_le64(head), GDS_TEXT);
	if ((status = kvt_json_parse(&json, (const char *)head + 8, GDS_TEXT, name, err)))
		return status;
	in.object = json;
	status = kvt_json_object(&tensor, &in, "kvcache");
	if (!status && (!tensor.object || json_object_size(json) != 1))
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: expected kvcache in the header and nothing else", name);
	if (!status)
		status = gds_tensor(&h, &payload, &tensor);
	json_decref(json);
	if (status || (status = check_payload(&h, payload, name, err)))
		return status;
	if (payload != nbytes - h.data)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: data_offsets end at %lld, but %lld bytes follow the header",
				name, LL(payload), LL(nbytes - h.data));
	*out = h;
	return KVT_OK;
}
