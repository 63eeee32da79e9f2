/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.c - the 304 bytes before the data of a tensor object
 *
 *	  0 "NOOM"		  4 u16 version: 1	  6 u16 304
 *	  8 i32 type: a row of names[]			 12 i32 rank: up to 8
 *	 16 u32 1: a shard	 24 i64 where data begin	 32 i64 bytes of data
 *	 40 8 i64: the whole's shape			104 8 i64: the shape of these data
 *	168 u32 axes: up to 4	176 4 of 32 bytes: i32 kind (data, tensor, expert or
 *				pipeline parallel, other), 8 i32 rank, 12 i32 of how
 *				many, 16 i32 which extent is divided, or -1
 *	304 ...			data, which end the object
 *
 * Little-endian; extents behind the rank are -1.  The checks are those of
 * Mooncake's integration_utils.h, and that the local shape makes the bytes of data.
 */
#include "formats/mooncake/mooncake.h"

#include "lib/base/little_endian.h"

enum {
	MAGIC = 0x4d4f4f4e,
	/* where things are */
	VERSION = 4, SIZE = 6, DTYPE = 8, RANK = 12, KIND = 16, DATA = 24, NBYTES = 32,
	WHOLE = 40, LOCAL = 104, NAXES = 168, AXES = 176, AXIS = 32,
};

/* An object while it is looked at. */
struct look {
	const uint8_t *head;
	const char *name;
	struct kvt_error *err;
};

static int64_t i32_at(const struct look *o, int at)
{
	return (int32_t)kvt_le32(o->head + at);
}

static int64_t i64_at(const struct look *o, int at)
{
	return (int64_t)kvt_le64(o->head + at);
}

bool kvt_mooncake_is_tensor(const uint8_t *head, int64_t nhead)
{
	return nhead >= 4 && kvt_le32(head) == MAGIC;
}

/* 'value' of a field must be least to most. */
static enum kvt_status in_range(const struct look *o, const char *what, int64_t value,
				int64_t least, int64_t most)
{
	if (value >= least && value <= most)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: %s of the tensor is %lld, expected %lld to %lld", o->name, what,
			LL(value), LL(least), LL(most));
}

static enum kvt_status take_dtype(struct kvt_mooncake_tensor *t, const struct look *o)
{
	static const char *const names[] = {
		"float32", "float64", "int8", "uint8", "int16", "uint16", "int32",
		"uint32", "int64", "uint64", "bool", "float16", "bfloat16",
		"float8_e4m3fn", "float8_e5m2",
	};
	enum { NDTYPES = sizeof(names) / sizeof(names[0]) };
	enum kvt_status status = in_range(o, "element type", i32_at(o, DTYPE), 0,
					  NDTYPES - 1);

	if (status)
		return status;
	t->dtype = kvt_dtype_find(names[i32_at(o, DTYPE)]);
	return KVT_OK;
}

/* Extents that are not used must be -1: a producer checks that too. */
static enum kvt_status take_shape(int64_t *out, const struct look *o, int at, int rank)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < KVT_MOONCAKE_DIMS; i++) {
		out[i] = i64_at(o, at + 8 * i);
		status = in_range(o, "extent", out[i], i < rank ? 0 : -1,
				  i < rank ? INT64_MAX : -1);
	}
	return status;
}

/* A shard is no larger than what it is cut from. */
static enum kvt_status check_shapes(const struct kvt_mooncake_tensor *t,
				    const struct look *o)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < t->rank; i++)
		status = in_range(o, "local extent", t->local[i],
				  t->shard ? 0 : t->whole[i], t->whole[i]);
	return status;
}

static enum kvt_status take_axes(struct kvt_mooncake_tensor *t, const struct look *o)
{
	enum kvt_status status = in_range(o, "axis count", kvt_le32(o->head + NAXES), 0,
					  KVT_MOONCAKE_AXES);

	if (status)
		return status;
	t->naxes = (int)kvt_le32(o->head + NAXES);
	for (int i = 0; i < t->naxes; i++) {
		struct kvt_mooncake_axis *axis = &t->axis[i];
		int at = AXES + AXIS * i;

		if ((status = in_range(o, "axis kind", i32_at(o, at), 0,
				       KVT_MOONCAKE_OTHER)) ||
		    (status = in_range(o, "shard count", i32_at(o, at + 12), 1,
				       INT32_MAX)) ||
		    (status = in_range(o, "shard rank", i32_at(o, at + 8), 0,
				       i32_at(o, at + 12) - 1)) ||
		    (status = in_range(o, "split dimension", i32_at(o, at + 16), -1,
				       t->rank - 1)))
			return status;
		axis->kind = (unsigned)i32_at(o, at);
		axis->rank = i32_at(o, at + 8);
		axis->count = i32_at(o, at + 12);
		axis->dim = (int)i32_at(o, at + 16);
	}
	return KVT_OK;
}

/* Data end the object, and are what the shape makes of them. */
static enum kvt_status take_data(struct kvt_mooncake_tensor *t, const struct look *o,
				 int64_t nbytes)
{
	int64_t made = t->dtype->elem;
	enum kvt_status status;

	t->data = i64_at(o, DATA);
	if ((status = in_range(o, "data offset", t->data, KVT_MOONCAKE_HEADER, nbytes)))
		return status;
	t->nbytes = i64_at(o, NBYTES);
	if ((status = in_range(o, "data size", t->nbytes, nbytes - t->data,
			       nbytes - t->data)))
		return status;
	for (int i = 0; i < t->rank; i++)
		if (t->local[i] && __builtin_mul_overflow(made, t->local[i], &made))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: extents of the tensor make more than 2^63 bytes",
					o->name);
	for (int i = 0; i < t->rank; i++)
		if (!t->local[i])
			made = 0;
	return in_range(o, "data size", t->nbytes, made, made);
}

enum kvt_status kvt_mooncake_tensor_parse(struct kvt_mooncake_tensor *out,
					  const uint8_t *head, int64_t nhead,
					  int64_t nbytes, const char *name,
					  struct kvt_error *err)
{
	struct kvt_mooncake_tensor t = { .rank = 0 };
	struct look o = { head, name, err };
	enum kvt_status status;

	if (nhead < KVT_MOONCAKE_HEADER || nbytes < KVT_MOONCAKE_HEADER)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes, the header of a tensor %d", name,
				LL(nbytes), KVT_MOONCAKE_HEADER);
	if (!kvt_mooncake_is_tensor(head, nhead))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: magic is 0x%08x, expected 0x%08x", name,
				(unsigned)kvt_le32(head), (unsigned)MAGIC);
	if (kvt_le(head + VERSION, 2) != 1 ||
	    kvt_le(head + SIZE, 2) != KVT_MOONCAKE_HEADER)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: tensor of version %d with a header of %d bytes, expected 1 and %d",
				name, (int)kvt_le(head + VERSION, 2),
				(int)kvt_le(head + SIZE, 2), KVT_MOONCAKE_HEADER);
	if ((status = take_dtype(&t, &o)) ||
	    (status = in_range(&o, "rank", i32_at(&o, RANK), 0, KVT_MOONCAKE_DIMS)) ||
	    (status = in_range(&o, "layout kind", kvt_le32(head + KIND), 0, 1)))
		return status;
	t.rank = (int)i32_at(&o, RANK);
	t.shard = kvt_le32(head + KIND) == 1;
	if ((status = take_shape(t.whole, &o, WHOLE, t.rank)) ||
	    (status = take_shape(t.local, &o, LOCAL, t.rank)) ||
	    (status = check_shapes(&t, &o)) || (status = take_axes(&t, &o)) ||
	    (status = take_data(&t, &o, nbytes)))
		return status;
	*out = t;
	return KVT_OK;
}
