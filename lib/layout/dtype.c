/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.c - element types: their names in every format, and their values
 *
 * A row of TYPES is all that is known of a type; decoders are compiled of it, one a row.
 *
 *	bit	elem * 8 - 1 .. 0	sign | exponent | fraction	of a float
 *
 * Little-endian.  What an exponent and fraction of all ones is, or a zero with a sign,
 * says enum kvt_number.  An encoder takes the nearest number, of two as near the even
 * one: bits of neighbours differ by 1, so that rounding up is adding 1 to them, over the
 * end of the fraction as well.
 *
 * Facts: names of safetensors, NumPy, PyTorch and ml_dtypes; IEEE 754; OCP's
 * specification of 8-bit floating point (E4M3, E5M2) and of microscaling formats (E8M0).
 */
#include "lib/kvt/layout.h"
#include "lib/base/little_endian.h"
#include "lib/base/nearest.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/*
 * One row a type, which is all that kvtool knows of it.  A row without a column does not
 * compile, nor does one whose bits do not add up.
 *
 *	id, name, safetensors, npy, torch, ml_dtypes, AKA(aliases),
 *	    bits, number, bits of the fraction, bits of the exponent, its bias
 */
#define AKA(...) { __VA_ARGS__ }
#define TYPES(X) \
X(F32, "float32", "F32", "<f4", "float32", NULL, AKA("float", "fp32"), \
	32, KVT_IEEE, 23, 8, 127) \
X(F16, "float16", "F16", "<f2", "float16", NULL, AKA("half", "fp16"), \
	16, KVT_IEEE, 10, 5, 15) \
X(BF16, "bfloat16", "BF16", "<u2", "bfloat16", "bfloat16", AKA("bf16"), \
	16, KVT_IEEE, 7, 8, 127) \
X(F64, "float64", "F64", "<f8", "float64", NULL, AKA("double", "fp64"), \
	64, KVT_IEEE, 52, 11, 1023) \
X(E4M3FN, "float8_e4m3fn", "F8_E4M3", "|u1", "float8_e4m3fn", "float8_e4m3fn", \
	AKA("fp8_e4m3", "fp8_e4m3fn", "F8E4M3FN"), \
	8, KVT_FN, 3, 4, 7) \
X(E4M3FNUZ, "float8_e4m3fnuz", "F8_E4M3FNUZ", "|u1", "float8_e4m3fnuz", \
	"float8_e4m3fnuz", AKA("fp8_e4m3fnuz"), \
	8, KVT_FNUZ, 3, 4, 8) \
X(E5M2, "float8_e5m2", "F8_E5M2", "|u1", "float8_e5m2", "float8_e5m2", \
	AKA("fp8_e5m2", "F8E5M2"), \
	8, KVT_IEEE, 2, 5, 15) \
X(E5M2FNUZ, "float8_e5m2fnuz", "F8_E5M2FNUZ", "|u1", "float8_e5m2fnuz", \
	"float8_e5m2fnuz", AKA("fp8_e5m2fnuz"), \
	8, KVT_FNUZ, 2, 5, 16) \
X(E8M0, "float8_e8m0", "F8_E8M0", "|u1", "float8_e8m0fnu", "float8_e8m0fnu", \
	AKA("e8m0", "float8_e8m0fnu"), \
	8, KVT_POWER, 0, 8, 127) \
X(U8, "uint8", "U8", "|u1", "uint8", NULL, AKA(NULL), 8, KVT_UNSIGNED, 0, 0, 0) \
X(I8, "int8", "I8", "|i1", "int8", NULL, AKA(NULL), 8, KVT_SIGNED, 0, 0, 0) \
X(U16, "uint16", "U16", "<u2", "uint16", NULL, AKA(NULL), 16, KVT_UNSIGNED, 0, 0, 0) \
X(I16, "int16", "I16", "<i2", "int16", NULL, AKA("short"), 16, KVT_SIGNED, 0, 0, 0) \
X(U32, "uint32", "U32", "<u4", "uint32", NULL, AKA(NULL), 32, KVT_UNSIGNED, 0, 0, 0) \
X(I32, "int32", "I32", "<i4", "int32", NULL, AKA("int"), 32, KVT_SIGNED, 0, 0, 0) \
X(U64, "uint64", "U64", "<u8", "uint64", NULL, AKA(NULL), 64, KVT_UNSIGNED, 0, 0, 0) \
X(I64, "int64", "I64", "<i8", "int64", NULL, AKA("long"), 64, KVT_SIGNED, 0, 0, 0) \
X(BOOL, "bool", "BOOL", "|b1", "bool", NULL, AKA(NULL), 8, KVT_TRUTH, 0, 0, 0)

#define ID(id, ...) id,
enum type { TYPES(ID) NTYPES };

#define ROW(id, named, tensors, array, pytorch, ml, aka, bits, is, low, high, middle) \
[id] = { .name = named, .safetensors = tensors, .npy = array, .torch = pytorch, \
	 .ml_dtypes = ml, .alias = aka, .elem = (bits) / 8, .index = id, \
	 .is_float = is <= KVT_POWER, .number = is, .fraction = low, \
	 .exponent = high, .bias = middle },
static const struct kvt_dtype types[NTYPES] = { TYPES(ROW) };

#define ADDS_UP(id, named, tensors, array, torchs, ml, aka, bits, is, low, high, middle) \
_Static_assert((bits) % 8 == 0 && (is >= KVT_POWER ? low == 0 : 1 + low + high == bits), \
	       named ": sign, exponent and fraction are not as many bits");
TYPES(ADDS_UP)

/* ---- names -------------------------------------------------------------- */

static bool is_called(const struct kvt_dtype *type, const char *name)
{
	for (const char *const *alias = type->alias; *alias; alias++)
		if (!strcasecmp(name, *alias))
			return true;
	return !strcasecmp(name, type->name) ||
	       (type->safetensors && !strcasecmp(name, type->safetensors));
}

const struct kvt_dtype *kvt_dtype_find(const char *name)
{
	static const char torch[] = "torch.";

	if (!strncasecmp(name, torch, sizeof(torch) - 1))
		name += sizeof(torch) - 1;
	for (int i = 0; i < NTYPES; i++)
		if (is_called(&types[i], name))
			return &types[i];
	return NULL;
}

enum kvt_status kvt_dtype_parse(const struct kvt_dtype **out, const char *name,
				struct kvt_error *err)
{
	struct kvt_nearest near;

	if ((*out = kvt_dtype_find(name)))
		return KVT_OK;
	/* fp8 alone is four types */
	if (!strcasecmp(name, "fp8") || !strcasecmp(name, "float8"))
		return kvt_fail(err, KVT_USAGE,
				"dtype '%.40s' is ambiguous: fp8_e4m3, fp8_e4m3fnuz, fp8_e5m2 or fp8_e5m2fnuz?",
				name);
	near = kvt_nearest_start(name);
	for (int i = 0; i < NTYPES; i++)
		kvt_nearest_offer(&near, types[i].name);
	for (int i = 0; i < NTYPES; i++)
		for (const char *const *alias = types[i].alias; *alias; alias++)
			kvt_nearest_offer(&near, *alias);
	return kvt_fail(err, KVT_USAGE, "dtype '%.40s' is not an element type%s", name,
			kvt_nearest_hint(&near, "; see kvtool help dtypes").s);
}

const struct kvt_dtype *kvt_dtype_at(int i)
{
	return i >= 0 && i < NTYPES ? &types[i] : NULL;
}

/* ---- values ------------------------------------------------------------- */

static double float64_of(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static double float32_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

/* (1 + fraction / 2^52) * 2^exponent, put together without arithmetic */
static double compose(int exponent, uint64_t fraction)
{
	return float64_of((uint64_t)(exponent + 1023) << 52 | fraction);
}

static uint64_t ones(int n)
{
	return n ? UINT64_MAX >> (64 - n) : 0;
}

/* Of the largest number, without its sign. */
static uint64_t largest(const struct kvt_dtype *type)
{
	uint64_t all = ones(type->exponent + type->fraction);

	return type->number == KVT_IEEE ? all - ones(type->fraction) - 1 :
	       all - (type->number != KVT_FNUZ);
}

/* Compiled for each row, so that what the row says is known when it runs. */
#define EACH static inline __attribute__((always_inline))

EACH double decode_real(const struct kvt_dtype *type, uint64_t bits)
{
	int width = type->fraction + type->exponent;
	uint64_t sign = bits >> width, magnitude = bits & ones(width);
	uint64_t fraction = magnitude & ones(type->fraction);
	int exponent = (int)(magnitude >> type->fraction);
	double value;

	if (type->exponent == 11)	/* the machine's own, with what is in a NaN */
		return float64_of(bits);
	if (type->exponent == 8)
		return float32_of((uint32_t)(bits << (23 - type->fraction)));
	if (magnitude > largest(type) || (type->number == KVT_FNUZ && sign && !magnitude))
		value = type->number != KVT_IEEE || fraction ? NAN : INFINITY;
	else if (exponent)
		value = compose(exponent - type->bias, fraction << (52 - type->fraction));
	else
		value = (double)fraction * compose(1 - type->bias - type->fraction, 0);
	return sign ? -value : value;
}

EACH double decode(const struct kvt_dtype *type, const unsigned char *byte)
{
	int64_t whole;
	uint64_t bits = 0;

	for (int i = 0; i < type->elem; i++)
		bits |= (uint64_t)byte[i] << (8 * i);
	switch (type->number) {
	case KVT_SIGNED:
		bits <<= 64 - 8 * type->elem;
		memcpy(&whole, &bits, sizeof(whole));
		return (double)(whole >> (64 - 8 * type->elem));
	case KVT_UNSIGNED:
		return (double)bits;
	case KVT_TRUTH:
		return bits ? 1 : 0;
	case KVT_POWER:
		return bits > largest(type) ? NAN : compose((int)bits - type->bias, 0);
	case KVT_IEEE: case KVT_FN: case KVT_FNUZ:
		return decode_real(type, bits);
	}
	return NAN;
}

/* Bits of the nearest number.  Those of two neighbours differ by 1. */
static uint64_t encode_magnitude(const struct kvt_dtype *type, double value)
{
	int least = type->number == KVT_POWER ? -type->bias : 1 - type->bias, exponent;
	double rest, units;
	uint64_t bits;

	if (!isfinite(value))
		return largest(type) + (type->number == KVT_IEEE);
	frexp(value, &exponent);
	exponent = value > 0 && exponent - 1 > least ? exponent - 1 : least;
	rest = modf(ldexp(value, type->fraction - exponent), &units);
	/* an exponent above the least has its first bit in 'units' */
	bits = ((uint64_t)(exponent - least) << type->fraction) + (uint64_t)units;
	if (type->number == KVT_POWER && !bits--)
		return 0;	/* there is nothing below its least */
	bits += rest > .5 || (rest >= .5 && bits % 2);
	return bits > largest(type) ? largest(type) + (type->number == KVT_IEEE) : bits;
}

static uint64_t encode_real(const struct kvt_dtype *type, double value)
{
	int width = type->fraction + type->exponent;
	uint64_t sign = (uint64_t)(signbit(value) != 0) << width, magnitude;

	if (isnan(value) && type->number == KVT_FNUZ)
		return (uint64_t)1 << width;
	if (isnan(value))
		return sign | (ones(width) - ones(type->fraction) / 2 *
			       (type->number == KVT_IEEE));
	magnitude = encode_magnitude(type, fabs(value));
	return magnitude || type->number != KVT_FNUZ ? sign | magnitude : 0;
}

/* Nearest, ties to even; beyond the ends of the type its ends; NaN is 0. */
static uint64_t encode_whole(const struct kvt_dtype *type, double value)
{
	bool sign = type->number == KVT_SIGNED;
	double end = ldexp(1, 8 * type->elem - sign);
	uint64_t top = ones(8 * type->elem - sign);

	value = nearbyint(value);
	if (isnan(value) || (value < 0 && !sign))
		return 0;
	if (value >= end)
		return top;
	if (value <= -end)
		return ~top;
	return value < 0 ? -(uint64_t)-value : (uint64_t)value;
}

static uint64_t encode(const struct kvt_dtype *type, double value)
{
	switch (type->number) {
	case KVT_SIGNED: case KVT_UNSIGNED:
		return encode_whole(type, value);
	case KVT_TRUTH:
		return value < 0 || value > 0 || isnan(value);
	case KVT_POWER:
		return value >= 0 && isfinite(value) ? encode_magnitude(type, value) :
		       ones(8);
	case KVT_IEEE: case KVT_FN: case KVT_FNUZ:
		return encode_real(type, value);
	}
	return 0;
}

/* ---- by the row --------------------------------------------------------- */

#define DECODE(id, ...) \
static double decode_##id(const unsigned char *element) \
{ \
	return decode(&types[id], element); \
}
TYPES(DECODE)

#define DECODER(id, ...) [id] = decode_##id,
static double (*const decoder[NTYPES])(const unsigned char *) = { TYPES(DECODER) };

double kvt_dtype_decode(const struct kvt_dtype *dtype, const void *element)
{
	return decoder[dtype->index](element);
}

void kvt_dtype_encode(const struct kvt_dtype *dtype, void *element, double value)
{
	kvt_put_le(element, encode(dtype, value), dtype->elem);
}

double kvt_dtype_rounding(const struct kvt_dtype *dtype, double value)
{
	double least = ldexp(1, 1 - dtype->bias - dtype->fraction), gap;
	int exponent;

	if (!isfinite(value))
		return 0;
	if (dtype->number == KVT_POWER)	/* the power above is the farther one */
		return fabs(value) / 2;
	if (!dtype->is_float)
		return 0.5;
	frexp(value, &exponent);
	gap = value < 0 || value > 0 ? ldexp(1, exponent - 1 - dtype->fraction) : 0;
	return (gap > least ? gap : least) / 2;
}
