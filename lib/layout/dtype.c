/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - element types: their names in every format, and their values */
#include "lib/kvt/layout.h"
#include "lib/base/nearest.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum type {
	F32, F16, BF16, F64, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0,
	U8, I8, U16, I16, U32, I32, U64, I64, BOOL, NTYPES
};

static const struct kvt_dtype types[NTYPES] = {
	[F32]      = { "float32",         "F32",         "<f4", 4, true,  F32 },
	[F16]      = { "float16",         "F16",         "<f2", 2, true,  F16 },
	[BF16]     = { "bfloat16",        "BF16",        "<u2", 2, true,  BF16 },
	[F64]      = { "float64",         "F64",         "<f8", 8, true,  F64 },
	[E4M3FN]   = { "float8_e4m3fn",   "F8_E4M3",     "|u1", 1, true,  E4M3FN },
	[E4M3FNUZ] = { "float8_e4m3fnuz", "F8_E4M3FNUZ", "|u1", 1, true,  E4M3FNUZ },
	[E5M2]     = { "float8_e5m2",     "F8_E5M2",     "|u1", 1, true,  E5M2 },
	[E5M2FNUZ] = { "float8_e5m2fnuz", "F8_E5M2FNUZ", "|u1", 1, true,  E5M2FNUZ },
	[E8M0]     = { "float8_e8m0",     "F8_E8M0",     "|u1", 1, true,  E8M0 },
	[U8]       = { "uint8",           "U8",          "|u1", 1, false, U8 },
	[I8]       = { "int8",            "I8",          "|i1", 1, false, I8 },
	[U16]      = { "uint16",          "U16",         "<u2", 2, false, U16 },
	[I16]      = { "int16",           "I16",         "<i2", 2, false, I16 },
	[U32]      = { "uint32",          "U32",         "<u4", 4, false, U32 },
	[I32]      = { "int32",           "I32",         "<i4", 4, false, I32 },
	[U64]      = { "uint64",          "U64",         "<u8", 8, false, U64 },
	[I64]      = { "int64",           "I64",         "<i8", 8, false, I64 },
	[BOOL]     = { "bool",            "BOOL",        "|b1", 1, false, BOOL },
};

/* What engines and formats write besides the two names above. */
static const struct {
	const char *name;
	enum type type;
} aliases[] = {
	{ "float", F32 },	{ "fp32", F32 },
	{ "half", F16 },	{ "fp16", F16 },
	{ "bf16", BF16 },
	{ "double", F64 },	{ "fp64", F64 },
	{ "fp8_e4m3", E4M3FN },	{ "fp8_e4m3fn", E4M3FN },
	{ "F8E4M3FN", E4M3FN },
	{ "fp8_e4m3fnuz", E4M3FNUZ },
	{ "fp8_e5m2", E5M2 },	{ "F8E5M2", E5M2 },
	{ "fp8_e5m2fnuz", E5M2FNUZ },
	{ "e8m0", E8M0 },	{ "float8_e8m0fnu", E8M0 },
	{ "short", I16 },	{ "int", I32 },	{ "long", I64 },
};
enum { NALIASES = sizeof(aliases) / sizeof(aliases[0]) };

/* ---- names -------------------------------------------------------------- */

const struct kvt_dtype *kvt_dtype_find(const char *name)
{
	static const char torch[] = "torch.";

	if (!strncasecmp(name, torch, sizeof(torch) - 1))
		name += sizeof(torch) - 1;
	for (int i = 0; i < NTYPES; i++)
		if (!strcasecmp(name, types[i].name) ||
		    !strcasecmp(name, types[i].safetensors))
			return &types[i];
	for (int i = 0; i < NALIASES; i++)
		if (!strcasecmp(name, aliases[i].name))
			return &types[aliases[i].type];
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
				"dtype '%.40s' is ambiguous: fp8_e4m3, fp8_e4m3fnuz, "
				"fp8_e5m2 or fp8_e5m2fnuz?",
				name);
	kvt_nearest_start(&near, name);
	for (int i = 0; i < NTYPES; i++)
		kvt_nearest_offer(&near, types[i].name);
	for (int i = 0; i < NALIASES; i++)
		kvt_nearest_offer(&near, aliases[i].name);
	return kvt_fail(err, KVT_USAGE, "dtype '%.40s' is not an element type%s", name,
			kvt_nearest_hint(&near, "; see kvtool help dtypes").s);
}

const struct kvt_dtype *kvt_dtype_at(int i)
{
	return i >= 0 && i < NTYPES ? &types[i] : NULL;
}

/* ---- values ------------------------------------------------------------- */

/*
 * IEEE has infinities and NaNs in the largest exponent.  FN has no infinity and
 * one NaN per sign, all ones.  FNUZ has one NaN in all, where -0 would be.
 */
static const struct real {
	enum { IEEE, FN, FNUZ } special;
	int mantissa, exponent, bias;	/* bits, bits, value */
	double least;			/* the smallest value above 0 */
} reals[NTYPES] = {
	[F32]      = { IEEE, 23, 8, 127, 0x1p-149 },
	[F16]      = { IEEE, 10, 5, 15, 0x1p-24 },
	[BF16]     = { IEEE,  7, 8, 127, 0x1p-133 },
	[F64]      = { IEEE, 52, 11, 1023, 0x1p-1074 },
	[E4M3FN]   = { FN,    3, 4, 7,  0x1p-9 },
	[E4M3FNUZ] = { FNUZ,  3, 4, 8,  0x1p-10 },
	[E5M2]     = { IEEE,  2, 5, 15, 0x1p-16 },
	[E5M2FNUZ] = { FNUZ,  2, 5, 16, 0x1p-17 },
};

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

static double decode_real(const struct real *real, uint64_t bits)
{
	int width = real->mantissa + real->exponent;
	uint64_t sign = bits >> width, one = 1;
	uint64_t magnitude = bits & ((one << width) - 1);
	uint64_t fraction = magnitude & ((one << real->mantissa) - 1);
	uint64_t largest = (one << real->exponent) - 1;
	uint64_t exponent = magnitude >> real->mantissa;
	double value;

	if (real->special == IEEE && exponent == largest)
		value = fraction ? NAN : INFINITY;
	else if (real->special == FN && magnitude == (one << width) - 1)
		value = NAN;
	else if (real->special == FNUZ && sign && !magnitude)
		value = NAN;
	else if (exponent)
		value = compose((int)exponent - real->bias,
				fraction << (52 - real->mantissa));
	else
		value = (double)fraction * real->least;
	return sign ? -value : value;
}

/* Compilers make one load of each. */
static uint64_t bits_of(const unsigned char *b, int elem)
{
	uint64_t bits = b[0];

	if (elem == 2)
		return bits | (uint64_t)b[1] << 8;
	for (int i = 1; i < elem; i++)
		bits |= (uint64_t)b[i] << (8 * i);
	return bits;
}

double kvt_dtype_decode(const struct kvt_dtype *dtype, const void *element)
{
	uint64_t bits = bits_of(element, dtype->elem);

	switch ((enum type)dtype->index) {
	case F64:
		return float64_of(bits);
	case F32:
		return float32_of((uint32_t)bits);
	case BF16:
		return float32_of((uint32_t)bits << 16);
	case F16:		/* most frequent: its row is known to the compiler */
		return decode_real(&reals[F16], bits);
	case E8M0:
		return bits == 0xff ? NAN : compose((int)bits - 127, 0);
	case U8: case U16: case U32: case U64:
		return (double)bits;
	case I8:
		return (double)(int8_t)bits;
	case I16:
		return (double)(int16_t)bits;
	case I32:
		return (double)(int32_t)bits;
	case I64:
		return (double)(int64_t)bits;
	case BOOL:
		return bits ? 1.0 : 0.0;
	default:
		return decode_real(&reals[dtype->index], bits);
	}
}

double kvt_dtype_rounding(const struct kvt_dtype *dtype, double value)
{
	const struct real *real = &reals[dtype->index];
	double gap;
	int exponent;

	if (!isfinite(value))
		return 0;
	if (dtype->index == E8M0)	/* powers of two: the one above is the farther */
		return fabs(value) / 2;
	if (!real->mantissa)
		return 0.5;
	frexp(value, &exponent);
	gap = value < 0 || value > 0 ? ldexp(1, exponent - 1 - real->mantissa) : 0;
	return (gap > real->least ? gap : real->least) / 2;
}
