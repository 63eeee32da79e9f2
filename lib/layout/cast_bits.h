/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_bits.h - a float32 as a smaller float and back, by its bits; not installed
 *
 * Without a branch and all in 32-bit integers, so that a loop over it is vectors whatever
 * the instruction set: plain C, the kernels of CPUs and those of GPUs are this one text.
 *
 *	float32 bits      smaller float
 *	below its normal  what is left of a sum with the power of two whose last bit is
 *	                  the type's: the adder rounds, to nearest, ties to even
 *	others            half a step less the last bit is added, the rest cut, and the
 *	                  exponent moved; a carry into it is the right one
 *	beyond the top    'over': the largest, as NVIDIA's conversions that saturate and
 *	                  so vLLM's have it; infinity of float16 and bfloat16
 *	NaN               the type's, with its sign
 */
#ifndef KVT_LAYOUT_CAST_BITS_H
#define KVT_LAYOUT_CAST_BITS_H

#include <stdint.h>

#ifndef CAST_FN		/* what device code has in front of a function is its own */
#define CAST_FN static inline __attribute__((always_inline))
#endif

/* What is cast often: id, name, and the type that holds an element. */
#define CAST_ELEMENTS(X) \
X(f32, "float32", float) X(f16, "float16", uint16_t) X(bf16, "bfloat16", uint16_t) \
X(e4m3fn, "float8_e4m3fn", uint8_t) X(e4m3fnuz, "float8_e4m3fnuz", uint8_t) \
X(e5m2, "float8_e5m2", uint8_t)

enum cast_element {
#define CAST_ENTRY(id, name, type) CAST_##id,
	CAST_ELEMENTS(CAST_ENTRY)
#undef CAST_ENTRY
	CAST_NELEMENTS
};

/*
 *	name, bits of an element, of its fraction, bias of its exponent, largest, what
 *	stands for what is larger, NaN, has it a negative 0
 */
#define CAST_TYPES(X) \
X(f16,      16, 10, 15, 0x7bff, 0x7c00, 0x7e00, 1) \
X(e4m3fn,    8,  3,  7,   0x7e,   0x7e,   0x7f, 1) \
X(e4m3fnuz,  8,  3,  8,   0x7f,   0x7f,   0x80, 0) \
X(e5m2,      8,  2, 15,   0x7b,   0x7b,   0x7f, 1)

CAST_FN int32_t cast_bits_of(float value)
{
	int32_t bits;

	__builtin_memcpy(&bits, &value, sizeof(bits));
	return bits;
}

CAST_FN float cast_float_of(int32_t bits)
{
	float value;

	__builtin_memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Of two words, by a mask: compilers make a branch of what looks like one. */
CAST_FN int32_t cast_pick(int condition, int32_t a, int32_t b)
{
	const int32_t mask = -(int32_t)condition;

	return (a & mask) | (b & ~mask);
}

#define CAST_NARROW(name, width, fraction, bias, top, over, nan, minus) \
CAST_FN int32_t cast_to_##name(float value) \
{ \
	const int32_t cut = 23 - (fraction), low = ((int32_t)1 << (cut - 1)) - 1; \
	const int32_t magic = (151 - (bias) - (fraction)) << 23; \
	const int32_t bits = cast_bits_of(value), u = bits & 0x7fffffff; \
	const int32_t sign = (int32_t)((uint32_t)bits >> 31) << ((width) - 1); \
	const int32_t sum = cast_bits_of(cast_float_of(u) + cast_float_of(magic)); \
	/* of a NaN, too, the sum is below 2^32 */ \
	const uint32_t up = (uint32_t)u + (uint32_t)low + ((uint32_t)u >> cut & 1); \
	int32_t is = (int32_t)(up >> cut) - ((127 - (bias)) << (fraction)); \
	\
	is = cast_pick(u < (128 - (bias)) << 23, sum - magic, is); \
	is = (over) > (top) ? cast_pick(is > (top), (over), is) : \
	     is < (top) ? is : (top); \
	/* a NaN is 'over' here */ \
	is += -(int32_t)(u > 0x7f800000) & ((nan) - (over)); \
	return (minus) ? is | sign : cast_pick(is != 0, is | sign, 0); \
} \
CAST_FN float cast_from_##name(int32_t element) \
{ \
	const int32_t all = (1 << ((width) - 1)) - 1, u = element & all; \
	const int32_t sign = (int32_t)((uint32_t)(element >> ((width) - 1)) << 31); \
	const float small = (float)u * cast_float_of((128 - (bias) - (fraction)) << 23); \
	int32_t is = (u << (23 - (fraction))) + ((127 - (bias)) << 23); \
	\
	is = cast_pick(u < 1 << (fraction), cast_bits_of(small), is); \
	is = cast_pick(u > (top), 0x7fc00000, is); \
	if (CAST_INFINITY_##name) \
		is = cast_pick(u == (top) + 1, 0x7f800000, is); \
	is |= sign; \
	if (!(minus)) \
		is = cast_pick(element == (nan), 0x7fc00000, is); \
	return cast_float_of(is); \
}
#define CAST_INFINITY_f16 1
#define CAST_INFINITY_e4m3fn 0
#define CAST_INFINITY_e4m3fnuz 0
#define CAST_INFINITY_e5m2 1
CAST_TYPES(CAST_NARROW)

/* Its exponent is that of a float32, whose upper half it is. */
CAST_FN int32_t cast_to_bf16(float value)
{
	const int32_t bits = cast_bits_of(value), u = bits & 0x7fffffff;
	const int32_t sign = (int32_t)((uint32_t)bits >> 31) << 15;
	const uint32_t up = (uint32_t)u + 0x7fff + ((uint32_t)u >> 16 & 1);
	int32_t is = (int32_t)(up >> 16);

	is = cast_pick(u > 0x7f800000, 0x7fc0, is);
	return is | sign;
}

CAST_FN float cast_from_bf16(int32_t element)
{
	return cast_float_of((int32_t)((uint32_t)element << 16));
}

CAST_FN float cast_from_f32(float value)
{
	return value;
}

CAST_FN float cast_to_f32(float value)
{
	return value;
}

#endif
