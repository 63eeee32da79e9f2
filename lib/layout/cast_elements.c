/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_elements.c - elements of a type as float32, and back
 *
 * A loop for each type that is cast often, made of the conversions of cast_bits.h; other
 * types go through kvt_dtype_decode() and kvt_dtype_encode(), one by one.
 */
#include "lib/kvt/cast.h"
#include "lib/layout/cast_bits.h"

#include <string.h>

#define LOOP(id, name, type) \
static void load_##id(float *out, const void *from, int64_t n) \
{ \
	const unsigned char *byte = from; \
	\
	for (int64_t i = 0; i < n; i++) { \
		type element; \
		\
		memcpy(&element, byte + i * (int64_t)sizeof(element), sizeof(element)); \
		out[i] = cast_from_##id(element); \
	} \
} \
static void store_##id(void *to, const float *in, int64_t n) \
{ \
	unsigned char *byte = to; \
	\
	for (int64_t i = 0; i < n; i++) { \
		type element = (type)cast_to_##id(in[i]); \
		\
		memcpy(byte + i * (int64_t)sizeof(element), &element, sizeof(element)); \
	} \
}
CAST_ELEMENTS(LOOP)

static const struct loop {
	const char *name;
	size_t elem;
	void (*load)(float *out, const void *from, int64_t n);
	void (*store)(void *to, const float *in, int64_t n);
} loops[CAST_NELEMENTS] = {
#define ROW(id, named, type) { named, sizeof(type), load_##id, store_##id },
	CAST_ELEMENTS(ROW)
};

int kvt_cast_element(const struct kvt_dtype *dtype)
{
	for (int i = 0; i < CAST_NELEMENTS; i++)
		if (loops[i].elem == (size_t)dtype->elem &&
		    !strcmp(loops[i].name, dtype->name))
			return i;
	return -1;
}

static const struct loop *loop_of(const struct kvt_dtype *dtype)
{
	int i = kvt_cast_element(dtype);

	return i < 0 ? NULL : &loops[i];
}

void kvt_cast_load(float *out, const struct kvt_dtype *from, const void *elements,
		   int64_t n)
{
	const struct loop *loop = loop_of(from);
	const unsigned char *byte = elements;

	if (loop) {
		loop->load(out, elements, n);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		out[i] = (float)kvt_dtype_decode(from, byte + i * from->elem);
}

void kvt_cast_store(void *elements, const struct kvt_dtype *to, const float *in,
		    int64_t n)
{
	const struct loop *loop = loop_of(to);
	unsigned char *byte = elements;

	if (loop) {
		loop->store(elements, in, n);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		kvt_dtype_encode(to, byte + i * to->elem, (double)in[i]);
}
