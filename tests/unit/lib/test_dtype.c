/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c - names of element types, and values written down by hand */
#include <math.h>

#include "lib/kvt/kvt.h"
#include "tests/unit/tests.h"

/* ---- values ------------------------------------------------------------- */

struct value_case {
	const char *what, *dtype;
	unsigned char bytes[8];
	double value;
};

static struct value_case values[] = {
	{ "float32: 1.5", "float32", { 0, 0, 0xc0, 0x3f }, 1.5 },
	{ "float32: least denormal", "float32", { 1 }, 0x1p-149 },
	{ "float32: -inf", "float32", { 0, 0, 0x80, 0xff }, -INFINITY },
	{ "float32: NaN", "float32", { 1, 0, 0x80, 0x7f }, NAN },
	{ "float64: -2", "float64", { 0, 0, 0, 0, 0, 0, 0, 0xc0 }, -2 },
	{ "float64: least denormal", "float64", { 1 }, 0x1p-1074 },
	{ "float16: 1", "float16", { 0, 0x3c }, 1 },
	{ "float16: largest, 65504", "float16", { 0xff, 0x7b }, 65504 },
	{ "float16: least normal", "float16", { 0, 0x04 }, 0x1p-14 },
	{ "float16: largest denormal", "float16", { 0xff, 0x03 }, 0x3ffp-24 },
	{ "float16: least denormal, negative", "float16", { 1, 0x80 }, -0x1p-24 },
	{ "float16: -0", "float16", { 0, 0x80 }, -0.0 },
	{ "float16: inf", "float16", { 0, 0x7c }, INFINITY },
	{ "float16: NaN", "float16", { 1, 0x7c }, NAN },
	{ "bfloat16: -1", "bfloat16", { 0x80, 0xbf }, -1 },
	{ "bfloat16: nearest to pi", "bfloat16", { 0x49, 0x40 }, 3.140625 },
	{ "bfloat16: least denormal", "bfloat16", { 1, 0 }, 0x1p-133 },
	{ "bfloat16: -inf", "bfloat16", { 0x80, 0xff }, -INFINITY },
	{ "bfloat16: NaN", "bfloat16", { 0xc0, 0x7f }, NAN },
	{ "e4m3fn: 1", "float8_e4m3fn", { 0x38 }, 1 },
	{ "e4m3fn: largest, 448, where IEEE has NaN", "float8_e4m3fn", { 0x7e }, 448 },
	{ "e4m3fn: all ones is NaN", "float8_e4m3fn", { 0x7f }, NAN },
	{ "e4m3fn: negative NaN", "float8_e4m3fn", { 0xff }, NAN },
	{ "e4m3fn: least normal", "float8_e4m3fn", { 0x08 }, 0x1p-6 },
	{ "e4m3fn: least denormal", "float8_e4m3fn", { 0x01 }, 0x1p-9 },
	{ "e4m3fn: -0", "float8_e4m3fn", { 0x80 }, -0.0 },
	{ "e4m3fnuz: 1 is half of e4m3fn's 2", "float8_e4m3fnuz", { 0x40 }, 1 },
	{ "e4m3fnuz: largest, 240", "float8_e4m3fnuz", { 0x7f }, 240 },
	{ "e4m3fnuz: NaN stands where -0 would", "float8_e4m3fnuz", { 0x80 }, NAN },
	{ "e4m3fnuz: least denormal", "float8_e4m3fnuz", { 0x01 }, 0x1p-10 },
	{ "e4m3fnuz: 0", "float8_e4m3fnuz", { 0x00 }, 0.0 },
	{ "e5m2: 1", "float8_e5m2", { 0x3c }, 1 },
	{ "e5m2: largest, 57344", "float8_e5m2", { 0x7b }, 57344 },
	{ "e5m2: inf", "float8_e5m2", { 0x7c }, INFINITY },
	{ "e5m2: NaN", "float8_e5m2", { 0x7d }, NAN },
	{ "e5m2: least denormal, negative", "float8_e5m2", { 0x81 }, -0x1p-16 },
	{ "e5m2fnuz: largest, 57344", "float8_e5m2fnuz", { 0x7f }, 57344 },
	{ "e5m2fnuz: NaN stands where -0 would", "float8_e5m2fnuz", { 0x80 }, NAN },
	{ "e5m2fnuz: least denormal", "float8_e5m2fnuz", { 0x01 }, 0x1p-17 },
	{ "e8m0: 1", "float8_e8m0", { 127 }, 1 },
	{ "e8m0: least", "float8_e8m0", { 0 }, 0x1p-127 },
	{ "e8m0: largest", "float8_e8m0", { 254 }, 0x1p127 },
	{ "e8m0: NaN", "float8_e8m0", { 255 }, NAN },
	{ "uint8: 255", "uint8", { 0xff }, 255 },
	{ "int8: -1", "int8", { 0xff }, -1 },
	{ "uint16: 65535", "uint16", { 0xff, 0xff }, 65535 },
	{ "int16: -32768", "int16", { 0, 0x80 }, -32768 },
	{ "uint32: 2^32 - 1", "uint32", { 0xff, 0xff, 0xff, 0xff }, 4294967295. },
	{ "int32: -2", "int32", { 0xfe, 0xff, 0xff, 0xff }, -2 },
	{ "uint64: 2^63", "uint64", { 0, 0, 0, 0, 0, 0, 0, 0x80 }, 0x1p63 },
	{ "int64: -2^63", "int64", { 0, 0, 0, 0, 0, 0, 0, 0x80 }, -0x1p63 },
	{ "bool: 2 is true", "bool", { 2 }, 1 },
};

static void test_value(void **state)
{
	const struct value_case *c = *state;
	const struct kvt_dtype *dtype = kvt_dtype_find(c->dtype);
	unsigned char odd[9];
	double got;

	assert_non_null(dtype);
	memcpy(odd + 1, c->bytes, sizeof(c->bytes));	/* not aligned */
	got = kvt_dtype_decode(dtype, odd + 1);
	if (isnan(c->value)) {
		assert_true(isnan(got));
		return;
	}
	if (got != c->value || !signbit(got) != !signbit(c->value))
		fail_msg("%a, expected %a", got, c->value);
}

/* ---- names -------------------------------------------------------------- */

struct name_case {
	const char *what, *name, *dtype;	/* dtype NULL: not found */
	const char *safetensors, *npy;
	int elem;
};

static struct name_case names[] = {
	{ "torch prefix", "torch.float16", "float16", "F16", "<f2", 2 },
	{ "half", "half", "float16", "F16", "<f2", 2 },
	{ "bf16 has no npy type of its own", "bf16", "bfloat16", "BF16", "<u2", 2 },
	{ "fp8_e4m3 is e4m3fn", "fp8_e4m3", "float8_e4m3fn", "F8_E4M3", "|u1", 1 },
	{ "F8_E4M3 is e4m3fn", "F8_E4M3", "float8_e4m3fn", "F8_E4M3", "|u1", 1 },
	{ "LMCache's F8E4M3FN", "F8E4M3FN", "float8_e4m3fn", "F8_E4M3", "|u1", 1 },
	{ "fp8_e5m2", "fp8_e5m2", "float8_e5m2", "F8_E5M2", "|u1", 1 },
	{ "fp8_e4m3fnuz", "fp8_e4m3fnuz", "float8_e4m3fnuz", "F8_E4M3FNUZ", "|u1", 1 },
	{ "e8m0", "e8m0", "float8_e8m0", "F8_E8M0", "|u1", 1 },
	{ "torch's e8m0", "torch.float8_e8m0fnu", "float8_e8m0", "F8_E8M0", "|u1", 1 },
	{ "case does not matter", "TORCH.BFloat16", "bfloat16", "BF16", "<u2", 2 },
	{ "double", "double", "float64", "F64", "<f8", 8 },
	{ "float", "float", "float32", "F32", "<f4", 4 },
	{ "torch.long", "torch.long", "int64", "I64", "<i8", 8 },
	{ "BOOL", "BOOL", "bool", "BOOL", "|b1", 1 },
	{ "auto is no type", "auto", NULL, NULL, NULL, 0 },
	{ "fp8 is no single type", "fp8", NULL, NULL, NULL, 0 },
	{ "float8_e4m3 is another type than e4m3fn", "float8_e4m3", NULL, NULL, NULL, 0 },
	{ "empty", "", NULL, NULL, NULL, 0 },
	{ "torch. alone", "torch.", NULL, NULL, NULL, 0 },
};

static void test_name(void **state)
{
	const struct name_case *c = *state;
	const struct kvt_dtype *dtype = kvt_dtype_find(c->name);

	if (!c->dtype) {
		assert_null(dtype);
		return;
	}
	assert_non_null(dtype);
	assert_string_equal(dtype->name, c->dtype);
	assert_string_equal(dtype->safetensors, c->safetensors);
	assert_string_equal(dtype->npy, c->npy);
	assert_int_equal(dtype->elem, c->elem);
}

static void test_table(void)
{
	const struct kvt_dtype *dtype;
	int i;

	for (i = 0; (dtype = kvt_dtype_at(i)); i++) {
		const char *const *alias = dtype->alias;

		assert_int_equal(dtype->index, i);
		assert_ptr_equal(kvt_dtype_find(dtype->name), dtype);
		if (dtype->safetensors)
			assert_ptr_equal(kvt_dtype_find(dtype->safetensors), dtype);
		if (dtype->torch)
			assert_ptr_equal(kvt_dtype_find(dtype->torch), dtype);
		if (dtype->ml_dtypes)
			assert_ptr_equal(kvt_dtype_find(dtype->ml_dtypes), dtype);
		for (; *alias; alias++)
			assert_ptr_equal(kvt_dtype_find(*alias), dtype);
		assert_true(alias - dtype->alias <= KVT_DTYPE_ALIASES);
		assert_int_equal(dtype->npy[2] - '0', dtype->elem);
		assert_true(dtype->ml_dtypes || strchr("fiub", dtype->npy[1]));
	}
	assert_true(i > 0);
	assert_null(kvt_dtype_at(-1));
}

/* ---- rounding ----------------------------------------------------------- */

/* Half of the way to the next number, for each one that has a next. */
static void test_rounding(void)
{
	static const char *const floats[] = {
		"float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
		"float8_e5m2", "float8_e5m2fnuz", "float8_e8m0",
	};

	for (size_t i = 0; i < LENGTH(floats); i++) {
		const struct kvt_dtype *dtype = kvt_dtype_find(floats[i]);
		unsigned count = dtype->elem == 1 ? 0x7f : 0x7fff;

		for (unsigned bits = 0; bits < count; bits++) {
			const unsigned char a[2] = { (unsigned char)bits,
						     (unsigned char)(bits >> 8) };
			const unsigned char b[2] = { (unsigned char)(bits + 1),
						     (unsigned char)((bits + 1) >> 8) };
			double x = kvt_dtype_decode(dtype, a);
			double next = kvt_dtype_decode(dtype, b);

			if (!isfinite(next))
				break;
			if (kvt_dtype_rounding(dtype, x) != (next - x) / 2 ||
			    kvt_dtype_rounding(dtype, -x) != (next - x) / 2)
				fail_msg("%s: %a at %a, expected %a", floats[i],
					 kvt_dtype_rounding(dtype, x), x, (next - x) / 2);
		}
	}
	assert_true(kvt_dtype_rounding(kvt_dtype_find("float32"), 1) == 0x1p-24);
	assert_true(kvt_dtype_rounding(kvt_dtype_find("float64"), -3) == 0x1p-52);
	assert_true(kvt_dtype_rounding(kvt_dtype_find("float64"), 0) == 0);
	assert_true(kvt_dtype_rounding(kvt_dtype_find("int8"), 7) == 0.5);
	assert_true(kvt_dtype_rounding(kvt_dtype_find("float32"), NAN) == 0);
	assert_true(kvt_dtype_rounding(kvt_dtype_find("float16"), -INFINITY) == 0);
}

/* ---- encoding ----------------------------------------------------------- */

static double value_at(const struct kvt_dtype *dtype, uint64_t bits)
{
	unsigned char element[8];

	for (int i = 0; i < 8; i++)
		element[i] = (unsigned char)(bits >> (8 * i));
	return kvt_dtype_decode(dtype, element);
}

static uint64_t bits_at(const struct kvt_dtype *dtype, double value)
{
	unsigned char element[8] = { 0 };
	uint64_t bits = 0;

	kvt_dtype_encode(dtype, element, value);
	for (int i = 0; i < 8; i++)
		bits |= (uint64_t)element[i] << (8 * i);
	return bits;
}

static void expect_bits(const struct kvt_dtype *dtype, double value, uint64_t expected)
{
	uint64_t got = bits_at(dtype, value);

	if (got != expected)
		fail_msg("%s: %a is 0x%llx, expected 0x%llx", dtype->name, value,
			 (unsigned long long)got, (unsigned long long)expected);
}

/* All values of small types, and of the others around each power of two. */
static uint64_t pattern(const struct kvt_dtype *dtype, unsigned i)
{
	return dtype->elem <= 2 ? i : (uint64_t)i << (8 * dtype->elem - 16);
}

static void test_encoding(void)
{
	const struct kvt_dtype *dtype;

	for (int t = 0; (dtype = kvt_dtype_at(t)); t++)
		for (unsigned i = 0; i < (dtype->elem == 1 ? 256 : 65536); i++) {
			uint64_t bits = pattern(dtype, i), same;
			double value = value_at(dtype, bits);

			same = bits_at(dtype, value);
			/* NaN is one of many, beyond 2^53 whole numbers are rounded */
			if (isnan(value) ? !isnan(value_at(dtype, same)) :
			    value_at(dtype, same) != value)
				fail_msg("%s 0x%llx: %a", dtype->name,
					 (unsigned long long)bits, value);
			if (dtype->is_float && !isnan(value))
				assert_true(same == bits);
		}
}

/* What lies between two neighbours goes to the nearer one, from half way to the even. */
static void test_nearest(void)
{
	const struct kvt_dtype *dtype;

	for (int t = 0; (dtype = kvt_dtype_at(t)); t++)
		for (unsigned i = 0; i < (dtype->elem == 1 ? 127 : 32767); i++) {
			uint64_t bits = pattern(dtype, i), next = bits + 1;
			double a = value_at(dtype, bits), b = value_at(dtype, next);
			double half = a + (b - a) / 2;

			if (dtype->number == KVT_TRUTH || dtype->elem == 8 ||
			    !isfinite(b) || isnan(a))
				continue;
			expect_bits(dtype, half, bits % 2 ? next : bits);
			expect_bits(dtype, nextafter(half, -INFINITY), bits);
			expect_bits(dtype, nextafter(half, INFINITY), next);
			if (dtype->number < KVT_POWER && a > 0)
				expect_bits(dtype, -half, (bits % 2 ? next : bits) |
					    (uint64_t)1 << (8 * dtype->elem - 1));
		}
}

static void test_ends(void)
{
	static const struct {
		const char *dtype;
		double value;
		uint64_t bits;
	} ends[] = {
		{ "float16", 65519, 0x7bff }, { "float16", 65520, 0x7c00 },
		{ "float16", -1e9, 0xfc00 }, { "float16", INFINITY, 0x7c00 },
		{ "float16", NAN, 0x7e00 }, { "float32", NAN, 0x7fc00000 },
		{ "bfloat16", NAN, 0x7fc0 }, { "float8_e5m2", NAN, 0x7e },
		{ "float64", 1e-320, 2024 }, { "float32", 1e-60, 0 },
		{ "float8_e4m3fn", 1e9, 0x7e }, { "float8_e4m3fn", -INFINITY, 0xfe },
		{ "float8_e4m3fn", NAN, 0x7f }, { "float8_e4m3fn", -0.0, 0x80 },
		{ "float8_e4m3fnuz", 1e9, 0x7f }, { "float8_e4m3fnuz", NAN, 0x80 },
		{ "float8_e4m3fnuz", -0.0, 0 }, { "float8_e4m3fnuz", -1e-9, 0 },
		{ "float8_e5m2", 1e9, 0x7c }, { "float8_e5m2fnuz", -1e9, 0xff },
		{ "float8_e8m0", 0, 0 }, { "float8_e8m0", 0x1p-140, 0 },
		{ "float8_e8m0", 0x1.8p-127, 0 }, { "float8_e8m0", 0x1.8p-126, 2 },
		{ "float8_e8m0", 1e300, 254 }, { "float8_e8m0", INFINITY, 255 },
		{ "float8_e8m0", -1, 255 }, { "float8_e8m0", NAN, 255 },
		{ "uint8", -1, 0 }, { "uint8", 255.5, 255 }, { "uint8", 2.5, 2 },
		{ "int8", -129, 0x80 }, { "int8", 127.4, 127 }, { "int8", NAN, 0 },
		{ "int64", 0x1p63, INT64_MAX }, { "int64", -0x1p63, (uint64_t)1 << 63 },
		{ "uint64", 0x1p64, UINT64_MAX }, { "uint64", 0x1p63, (uint64_t)1 << 63 },
		{ "int32", -1, 0xffffffff }, { "uint16", INFINITY, 0xffff },
		{ "bool", NAN, 1 }, { "bool", -0.0, 0 }, { "bool", 0.25, 1 },
	};

	for (size_t i = 0; i < LENGTH(ends); i++)
		expect_bits(kvt_dtype_find(ends[i].dtype), ends[i].value, ends[i].bits);
}

/* What a row says is what its values do. */
static void test_rows(void)
{
	const struct kvt_dtype *d;

	for (int t = 0; (d = kvt_dtype_at(t)); t++) {
		uint64_t one = (uint64_t)d->bias << d->fraction;
		double least = value_at(d, 1);
		int known = 0;

		for (int i = 0; i < LENGTH(values); i++)
			known += !strcmp(values[i].dtype, d->name);
		if (!known)
			fail_msg("%s: no value of it is written down above", d->name);
		assert_int_equal(d->is_float, d->number <= KVT_POWER);
		if (!d->is_float) {
			assert_true(least == 1);
			continue;
		}
		if (value_at(d, one) != 1)
			fail_msg("%s: the bias does not make 1", d->name);
		if (d->number == KVT_POWER)
			continue;
		if (least != ldexp(1, 1 - d->bias - d->fraction))
			fail_msg("%s: the least is %a", d->name, least);
		assert_true(value_at(d, one + 1) - 1 == ldexp(1, -d->fraction));
	}
}

/* ---- kinds -------------------------------------------------------------- */

static void test_kinds(void)
{
	enum kvt_kind kind;

	for (int i = 0; i < KVT_NKINDS; i++) {
		assert_true(kvt_kind_find(&kind, kvt_kind_name((enum kvt_kind)i)));
		assert_int_equal(kind, i);
	}
	assert_string_equal(kvt_kind_name(KVT_MAMBA_CONV), "mamba_conv");
	assert_false(kvt_kind_find(&kind, "full"));
	assert_false(kvt_kind_find(&kind, ""));
}

TESTS("dtype",
	EACH(values, test_value), EACH(names, test_name),
	NAMED(test_rows, "what a row says is what its values do"),
	NAMED(test_encoding, "encoding gives the bits that were decoded"),
	NAMED(test_nearest, "encoding takes the nearest, ties to even"),
	NAMED(test_ends, "encoding beyond the ends of a type"),
	NAMED(test_rounding, "rounding is half of the way to the next number"),
	NAMED(test_table, "every row of the table is found by its names"),
	NAMED(test_kinds, "kinds are found by their names"))
