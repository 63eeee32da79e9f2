/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.c - names of axes, sizes of shapes, boxes
 *
 * Sizes are products of extents from files: each is checked, also where another one is 0.
 */
#include "lib/kvt/layout.h"

#include <string.h>

static const struct {
	char letter;
	const char *name;
} axis_names[KVT_NAXES] = {
	[KVT_AXIS_L] = { 'L', "layer" }, [KVT_AXIS_B] = { 'B', "block" },
	[KVT_AXIS_S] = { 'S', "slot" }, [KVT_AXIS_H] = { 'H', "head" },
	[KVT_AXIS_K] = { 'K', "kv" },    [KVT_AXIS_D] = { 'D', "dim" },
};

char kvt_axis_letter(enum kvt_axis axis)
{
	return axis_names[axis].letter;
}

const char *kvt_axis_name(enum kvt_axis axis)
{
	return axis_names[axis].name;
}

enum kvt_status kvt_shape_nbytes(int64_t *out, const struct kvt_shape *shape,
				 struct kvt_error *err)
{
	int64_t nbytes = shape->elem;
	bool empty = false;

	if (shape->elem < 1)
		return kvt_fail(err, KVT_BAD_INPUT,
				"element size is %lld bytes, expected at least 1",
				LL(shape->elem));
	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t n = shape->n[a];

		if (n < 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s extent is %lld, expected 0 or more",
					kvt_axis_name(a), LL(n));
		/* an extent of 0 must not hide that the others overflow */
		empty |= n == 0;
		if (__builtin_mul_overflow(nbytes, n ? n : 1, &nbytes))
			return kvt_fail(err, KVT_BAD_INPUT,
					"shape is larger than 2^63 bytes");
	}
	*out = empty ? 0 : nbytes;
	return KVT_OK;
}

struct kvt_box kvt_box_whole(const struct kvt_shape *shape)
{
	struct kvt_box box = { { 0 }, { 0 } };

	memcpy(box.end, shape->n, sizeof(box.end));
	return box;
}

struct kvt_shape kvt_box_shape(const struct kvt_box *box, int64_t elem)
{
	struct kvt_shape shape = { .elem = elem };

	for (int a = 0; a < KVT_NAXES; a++)
		shape.n[a] = box->end[a] - box->begin[a];
	return shape;
}
