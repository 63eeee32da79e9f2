/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c - names of element types, and values written down by hand */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "lib/kvt/kvt.h"

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
enum { NVALUES = sizeof(values) / sizeof(values[0]) };

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
enum { NNAMES = sizeof(names) / sizeof(names[0]) };

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

static void test_table(void **state)
{
	const struct kvt_dtype *dtype;
	int i;

	(void)state;
	for (i = 0; (dtype = kvt_dtype_at(i)); i++) {
		assert_int_equal(dtype->index, i);
		assert_ptr_equal(kvt_dtype_find(dtype->name), dtype);
		assert_ptr_equal(kvt_dtype_find(dtype->safetensors), dtype);
		assert_int_equal(dtype->npy[2] - '0', dtype->elem);
	}
	assert_int_equal(i, 18);
	assert_null(kvt_dtype_at(-1));
}

/* ---- rounding ----------------------------------------------------------- */

/* Half of the way to the next number, for each one that has a next. */
static void test_rounding(void **state)
{
	static const char *const floats[] = {
		"float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
		"float8_e5m2", "float8_e5m2fnuz", "float8_e8m0",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
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

/* ---- kinds -------------------------------------------------------------- */

static void test_kinds(void **state)
{
	enum kvt_kind kind;

	(void)state;
	for (int i = 0; i < KVT_NKINDS; i++) {
		assert_true(kvt_kind_find(&kind, kvt_kind_name((enum kvt_kind)i)));
		assert_int_equal(kind, i);
	}
	assert_string_equal(kvt_kind_name(KVT_MAMBA_CONV), "mamba_conv");
	assert_false(kvt_kind_find(&kind, "full"));
	assert_false(kvt_kind_find(&kind, ""));
}

int main(void)
{
	struct CMUnitTest tests[NVALUES + NNAMES + 3] = {
		{ .name = "rounding is half of the way to the next number",
		  .test_func = test_rounding },
		{ .name = "every row of the table is found by its names",
		  .test_func = test_table },
		{ .name = "kinds are found by their names",
		  .test_func = test_kinds },
	};

	for (int i = 0; i < NVALUES; i++)
		tests[3 + i] = (struct CMUnitTest){ .name = values[i].what,
			.test_func = test_value, .initial_state = &values[i] };
	for (int i = 0; i < NNAMES; i++)
		tests[3 + NVALUES + i] = (struct CMUnitTest){ .name = names[i].what,
			.test_func = test_name, .initial_state = &names[i] };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
