/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_content.c - packed contents: names, sizes, which bytes are what, numbers
 *
 * Expected numbers come from loops that know each form by itself, as engines
 * document it, with values that are exact in every type.
 */
#include "lib/kvt/content.h"
#include "lib/kvt/spec.h"
#include "tests/unit/tests.h"

enum { MOST = 64 * 584 };

static struct kvt_shape shape_of(int64_t s, int64_t h, int64_t k, int64_t d)
{
	return (struct kvt_shape){ { 2, 3, s, h, k, d }, 1 };
}

static struct kvt_packing packing_of(const char *name, struct kvt_shape shape,
				     int64_t tokens)
{
	struct kvt_packing packing;
	struct kvt_content content;

	if (!kvt_content_find(&content, name))
		fail_msg("%s is not known", name);
	if (kvt_packing_init(&packing, &content, &shape, tokens, &why))
		fail_msg("%s: %s", name, why.text);
	return packing;
}

/* ---- names -------------------------------------------------------------- */

static void test_names(void)
{
	static const struct {
		const char *given, *is;		/* NULL: not found */
	} rows[] = {
		{ "fp8-ds-mla", "fp8-ds-mla" }, { "FP8-DS-MLA", "fp8-ds-mla" },
		{ "fp8_ds_mla", NULL }, { "FP8_DS_MLA/e4m3fn", NULL },
		{ "fp8-ds-mla/e4m3fn", "fp8-ds-mla" },
		{ "fp8-ds-mla/E4M3FNUZ", "fp8-ds-mla/e4m3fnuz" },
		{ "indexer", "indexer" }, { "indexer/e4m3fn", "indexer/e4m3fn" },
		{ "indexer/", NULL }, { "indexer/e4m3", NULL }, { "indexer/e8m0", NULL },
		{ "indexe", NULL }, { "indexers", NULL }, { "", NULL },
		{ "int8-per-token-head/e4m3fn", NULL }, { "/e4m3fn", NULL },
		{ "dsv4_swa/e5m2fnuz", "dsv4-swa/e5m2fnuz" },
		{ "indexer/32", "indexer/32" }, { "indexer/32/32", NULL },
		{ "indexer/32/e4m3fn", "indexer/e4m3fn/32" },
		{ "nvfp4_plain/128", "nvfp4-plain/128" }, { "nvfp4/128", NULL },
		{ "MLX-affine/4/64/bfloat16", "mlx-affine/4/64/bfloat16" },
		{ "mlx-affine", NULL }, { "mlx-affine/7/64/bfloat16", NULL },
		{ "mlx-affine/4/64", NULL }, { "mlx-affine/4/64/bfloat16/e5m2", NULL },
		{ "transformers-fp8/float16", "transformers-fp8/float16" },
		{ "nvfp4-plain/0", NULL }, { "nvfp4-plain/-1", NULL },
		{ "nvfp4-plain/12345678", NULL }, { "int8-per-token-head/64", NULL },
		{ "Q8_0/Plain", "q8_0/plain" }, { "q8_0/80", "q8_0/80" },
		{ "q5_1/V64/k128", "q5_1/k128/v64" }, { "iq4-nl/k64", "iq4_nl/k64" },
		{ "q8_0/v64/96", "q8_0/96/v64" }, { "q4_1/k96", NULL },
		{ "q4_1/k1", NULL }, { "q4_1/k64/k64", NULL }, { "q4_1/k", NULL },
		{ "q4_1/plain/k64", NULL }, { "q4_1/v64/plain", NULL },
		{ "q4_1/x64", NULL }, { "q4_1/", NULL }, { "mlx-nvfp4/plain", NULL },
	};
	struct kvt_content content, none = { .n = 0 };

	for (size_t i = 0; i < LENGTH(rows); i++) {
		bool found = kvt_content_find(&content, rows[i].given);

		if (found != (rows[i].is != NULL))
			fail_msg("'%s' is%s found", rows[i].given, found ? "" : " not");
		if (found)
			assert_string_equal(kvt_content_name(&content).s, rows[i].is);
	}
	assert_string_equal(kvt_content_name(&none).s, "");
	assert_int_equal(kvt_content_row(&none), 0);
}

/* Where the name of a type is that of a spec, both say the same of it. */
static void test_specs(void)
{
	const struct kvt_content_type *type;
	int n = 0, specs = 0;

	for (; (type = kvt_content_type_at(n)); n++) {
		struct kvt_spec_args args = { .block_size = 256, .heads = 2,
					      .head_dim = 64, .latent = 512, .ratio = 4 };
		struct kvt_content content;
		struct kvt_spec spec;
		enum kvt_kind kind;

		assert_true(kvt_content_find(&content, type->name));
		assert_ptr_equal(content.type, type);
		/* only a page of planes has rows of several tokens */
		assert_in_range(type->ratio, type->planar ? 0 : 1,
				type->planar ? 128 : 1);
		/* blocks of ggml, say, are no spec of an engine */
		if (!kvt_spec_kind(&kind, type->name))
			continue;
		specs++;
		ok(kvt_spec_make(&spec, type->name, &args, (struct kvt_rank){ 1, 0 },
				 &why));
		assert_int_equal(spec.planar, type->planar);
		if (type->ratio)
			assert_int_equal(spec.tokens_per_slot.num, type->ratio);
		/* a page of planes of all heads has no heads to deal out */
		if (strcmp(type->name, "nvfp4"))
			assert_int_equal(spec.kind, type->kind);
		if (kvt_content_row(&content))
			assert_int_equal(spec.content_size,
					 kvt_content_row(&content));
	}
	assert_true(n > specs);
	assert_true(specs >= 15);
}

/* ---- every byte --------------------------------------------------------- */

struct form {
	const char *name;
	int64_t s, h, k, d, tokens;
	int64_t rows, row_values;
};

static struct form forms[] = {
	{ "fp8-ds-mla", 64, 1, 1, 656, 1, 1, 576 },
	{ "indexer/e4m3fn", 1, 1, 1, 64 * 132, 64, 64, 128 },
	{ "indexer", 1, 1, 1, 64 * 132, 64, 64, 0 },
	{ "dsv4-indexer/e4m3fn", 1, 1, 1, 64 * 132, 256, 64, 128 },
	{ "dsv4-c4a/e4m3fn", 1, 1, 1, 64 * 584, 256, 64, 512 },
	{ "dsv4-c128a/e4m3fnuz", 1, 1, 1, 2 * 584, 256, 2, 512 },
	{ "dsv4-swa/e4m3fn", 1, 1, 1, 64 * 584, 64, 64, 512 },
	{ "int8-per-token-head", 16, 4, 2, 132, 1, 1, 128 },
	{ "fp8-per-token-head/e5m2", 16, 4, 2, 12, 1, 1, 8 },
	{ "int8-per-token-head", 16, 4, 1, 5, 1, 1, 1 },
	{ "int4-per-token-head", 16, 4, 2, 68, 1, 1, 128 },
	{ "int4-per-token-head", 16, 4, 2, 5, 1, 1, 2 },
	{ "mlx-affine/2/128/bfloat16", 16, 4, 2, 72, 1, 1, 256 },
	{ "mlx-affine/3/32/float16", 16, 4, 2, 32, 1, 1, 64 },
	{ "mlx-affine/5/64/float32", 16, 4, 2, 48, 1, 1, 64 },
	{ "mlx-affine/6/32/bfloat16", 16, 4, 2, 28, 1, 1, 32 },
	{ "mlx-affine/8/32/bfloat16", 16, 4, 1, 36, 1, 1, 32 },
	{ "mlx-nvfp4", 16, 4, 2, 36, 1, 1, 64 },
	{ "transformers-fp8/float32", 16, 4, 2, 36, 1, 1, 32 },
	{ "nvfp4-ds-mla", 64, 1, 1, 352, 1, 1, 576 },
	{ "glm53-nope", 64, 1, 1, 528, 1, 1, 512 },
	{ "glm53-nope-656", 64, 1, 1, 656, 1, 1, 512 },
	{ "mla-fp8", 64, 1, 1, 576, 1, 1, 576 },
	{ "dsv4-fp8", 64, 1, 1, 512, 1, 1, 512 },
	{ "dsv4/e4m3fn", 1, 1, 1, 32 * 584, 64, 32, 512 },
	{ "dsv41", 1, 1, 1, 32 * 528, 64, 32, 512 },
	{ "dsv41-row", 64, 1, 1, 528, 1, 1, 512 },
	{ "dsv41-fp4", 1, 1, 1, 32 * 288, 32, 32, 512 },
	{ "dsv41-fp4-row", 64, 1, 1, 288, 1, 1, 512 },
	{ "dsv4-nvfp4", 2, 1, 1, 2 * 384, 8, 2, 512 },
	{ "indexer-mxfp4", 1, 1, 1, 64 * 68, 128, 64, 128 },
	{ "indexer-nvfp4", 128, 1, 1, 72, 1, 1, 128 },
	{ "kpool-indexer", 9, 1, 1, 32 * 132, 128, 32, 128 },
	{ "kpool-tail", 1, 1, 1, 4 * 512, 4, 4, 256 },
	{ "dsv41-ring", 8, 1, 1, 4096, 1, 1, 1024 },
	{ "qsa-ring", 4, 1, 1, 280, 1, 1, 128 },
	{ "nvfp4-plain/128", 1, 1, 1, 4608, 16, 32, 256 },
	{ "nvfp4-sm100/64", 1, 1, 1, 2304, 16, 32, 128 },
	{ "nvfp4-plain", 1, 1, 1, 4608, 16, 1, 0 },
	{ "ultraquant-4bit", 16, 4, 1, 136, 1, 1, 256 },
	{ "turboquant-k8v4/e4m3fn", 16, 4, 1, 196, 1, 1, 256 },
	{ "turboquant-k3v4-nc", 16, 4, 1, 14, 1, 1, 16 },
	{ "mla-per-token-head", 16, 1, 1, 1160, 1, 1, 0 },
	{ "nvfp4", 1, 1, 1, 2304, 16, 16, 0 },
	{ "q4_0", 16, 4, 2, 36, 1, 1, 0 },
	{ "q8_0", 16, 4, 1, 68, 1, 1, 0 },
	{ "q8_0", 16, 4, 1, 102, 1, 1, 96 },
	{ "q8_0/80", 16, 1, 2, 170, 1, 1, 160 },
	{ "q4_0/plain", 16, 4, 2, 36, 1, 1, 64 },
	{ "q4_1/k64", 16, 4, 2, 80, 1, 1, 128 },
	{ "q5_0/v64", 16, 4, 2, 44, 1, 1, 64 },
	{ "q5_1/k128/v64", 16, 1, 2, 96, 1, 1, 128 },
	{ "iq4_nl", 16, 1, 2, 18, 1, 1, 32 },
	{ "turboquant-k8v4", 16, 4, 1, 196, 1, 1, 0 },
	{ "turboquant-4bit-nc", 16, 4, 1, 134, 1, 1, 256 },
	{ "turboquant-k3v4-nc", 16, 4, 1, 118, 1, 1, 256 },
	{ "turboquant-3bit-nc", 16, 4, 1, 102, 1, 1, 256 },
};

/* The byte in which it begins, from what is documented of the order of scales. */
static int64_t byte_of(const struct kvt_field *field, int64_t row, int64_t i)
{
	if (field->order == KVT_SCALES_BY_FOUR)
		return field->at + row * field->stride + 8 * (i & 3) + (i >> 2);
	if (field->order == KVT_SCALES_BY_ROWS)
		return field->at + row / 4 * 4 * field->stride + 4 * i + row % 4;
	if (field->order == KVT_NIBBLES_APART)
		return field->at + i / 32 * field->step + i % 16;
	if (field->block)
		return field->at + i / field->block * field->step +
		       i % field->block * field->bits / 8;
	return field->at + row * field->stride + i * field->bits / 8;
}

/* Each byte belongs to one element of one field, and nothing overlaps. */
static void test_bytes(void **state)
{
	const struct form *f = *state;
	struct kvt_packing p = packing_of(f->name, shape_of(f->s, f->h, f->k, f->d),
					  f->tokens);
	int64_t bytes = 0;

	assert_int_equal(p.rows, f->rows);
	assert_int_equal(p.row_values, f->row_values);
	assert_int_equal(p.nbytes, f->d);
	for (int i = 0; i < p.nfields; i++)
		bytes += p.rows * kvt_field_bytes(&p.field[i]);
	assert_int_equal(bytes, f->d);
	for (int64_t b = 0; b < f->d; b++) {
		struct kvt_packed_element place;
		const struct kvt_field *field;
		int64_t begin;

		if (!kvt_packing_find(&place, &p, b))
			fail_msg("byte %lld is nothing", (long long)b);
		field = &p.field[place.field];
		begin = byte_of(field, place.row, place.element);
		/* of those below a byte the first that begins in it */
		assert_true(begin <= b && 8 * b < 8 * begin + (field->bits < 8 ? 8 :
							       field->bits));
		if (field->bits < 8 && place.element && !field->block)
			assert_true(byte_of(field, place.row, place.element - 1) < b);
		assert_true(place.row < p.rows && place.element < field->count);
	}
	for (int64_t v = 0; v < kvt_packing_values(&p); v++) {
		struct kvt_packed_element place;

		assert_true(kvt_packing_find(&place, &p, kvt_packing_at(&p, v)));
		assert_int_equal(p.field[place.field].role, KVT_FIELD_VALUES);
		assert_int_equal(place.row, v / p.row_values);
	}
}

/* ---- numbers ------------------------------------------------------------ */

static void put_float(uint8_t *to, float value)
{
	memcpy(to, &value, sizeof(value));
}

/* bfloat16 of a number that has no more digits */
static void put_bf16(uint8_t *to, float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	to[0] = (uint8_t)(bits >> 16);
	to[1] = (uint8_t)(bits >> 24);
}

/* 1, 1.125, ... 1.875 and their negatives, in e4m3fn. */
static double fp8_number(int64_t i)
{
	return (i % 16 < 8 ? 1 : -1) * (1 + (double)(i % 8) / 8);
}
static uint8_t fp8_bits(int64_t i)
{
	return (uint8_t)((i % 16 < 8 ? 0x38 : 0xb8) + i % 8);
}

/* Half a step of the type, times the scale. */
static void test_rounding(void)
{
	struct kvt_packing ds = packing_of("fp8-ds-mla", shape_of(64, 1, 1, 656), 1);
	struct kvt_packing int8 = packing_of("int8-per-token-head",
					     shape_of(16, 4, 2, 34), 1);
	uint8_t row[656] = { 0x38, 0x38, 1, 0xf8 };	/* 1, 1, least, -256 */
	double out[4];

	put_float(row + 512, 8);
	put_float(row + 516, -2);
	row[129] = 0xb8;
	put_bf16(row + 528, 1);
	kvt_packing_rounding(out, &ds, 0, row, 1, 3);
	assert_true(out[0] == 8 / 16. && out[1] == 8 * 0x1p-10 && out[2] == 8 * 16.);
	kvt_packing_rounding(out, &ds, 0, row, 129, 1);
	assert_true(out[0] == 2 / 16.);
	kvt_packing_rounding(out, &ds, 0, row, 512, 1);
	assert_true(out[0] == 0x1p-8);
	put_float(row + 30, 0.25f);
	kvt_packing_rounding(out, &int8, 0, row, 28, 2);
	assert_true(out[0] == 0.125 && out[1] == 0.125);
}

static void check_numbers(const struct kvt_packing *p, const uint8_t *bytes,
			  const double *expected)
{
	int64_t n = kvt_packing_values(p);
	double *out = malloc(((size_t)n + 1) * sizeof(*out));

	/* from any number on, of any count */
	for (int64_t first = 0; first < n; first += 1 + first / 3)
		for (int64_t count = 0; count <= n - first; count += 1 + count * 2) {
			out[count] = 12345;
			kvt_packing_decode(out, p, 0, bytes, first, count);
			for (int64_t i = 0; i < count; i++)
				if (out[i] != expected[first + i])
					fail_msg("number %lld is %g, expected %g",
						 (long long)(first + i), out[i],
						 expected[first + i]);
			assert_true(out[count] == 12345);
		}
	free(out);
}

static void test_ds_mla(void)
{
	struct kvt_packing p = packing_of("fp8-ds-mla", shape_of(64, 1, 1, 656), 1);
	uint8_t row[656];
	double expected[576];

	for (int i = 0; i < 512; i++) {
		row[i] = fp8_bits(i);
		expected[i] = fp8_number(i) * (i / 128 + 3);
	}
	for (int i = 0; i < 4; i++)
		put_float(row + 512 + 4 * i, (float)(i + 3));
	for (int i = 0; i < 64; i++) {
		put_bf16(row + 528 + 2 * i, (float)(i - 30) / 4);
		expected[512 + i] = (double)(i - 30) / 4;
	}
	check_numbers(&p, row, expected);
}

static void test_indexer(void)
{
	struct kvt_packing p = packing_of("indexer/e4m3fn",
					  shape_of(1, 1, 1, 16 * 132), 16);
	uint8_t page[16 * 132];
	double expected[16 * 128];

	for (int t = 0; t < 16; t++) {
		for (int d = 0; d < 128; d++) {
			page[t * 128 + d] = fp8_bits(t + d);
			expected[t * 128 + d] = fp8_number(t + d) * (t + 0.5);
		}
		put_float(page + 16 * 128 + 4 * t, (float)t + 0.5f);
	}
	check_numbers(&p, page, expected);
}

static void test_dsv4(void)
{
	struct kvt_packing p = packing_of("dsv4-c4a/e4m3fn",
					  shape_of(1, 1, 1, 64 * 584), 256);
	uint8_t *page = calloc(MOST, 1);
	double *expected = calloc(64 * 512, sizeof(*expected));

	for (int t = 0; t < 64; t++) {
		for (int d = 0; d < 448; d++) {
			page[t * 576 + d] = fp8_bits(t * 3 + d);
			expected[t * 512 + d] = fp8_number(t * 3 + d) *
						(double)(1 << (d / 64 + t % 4));
		}
		for (int d = 0; d < 64; d++) {
			put_bf16(page + t * 576 + 448 + 2 * d, (float)(t - d));
			expected[t * 512 + 448 + d] = t - d;
		}
		for (int i = 0; i < 7; i++)
			page[64 * 576 + t * 8 + i] = (uint8_t)(127 + i + t % 4);
		page[64 * 576 + t * 8 + 7] = 0xff;	/* is no scale */
	}
	check_numbers(&p, page, expected);
	free(page);
	free(expected);
}

static void test_per_token_head(void)
{
	struct kvt_packing int8 = packing_of("int8-per-token-head",
					     shape_of(16, 4, 2, 34), 1);
	struct kvt_packing fp8 = packing_of("fp8-per-token-head/e4m3fn",
					    shape_of(16, 4, 2, 34), 1);
	uint8_t row[34];
	double expected[30];

	for (int d = 0; d < 30; d++) {
		row[d] = (uint8_t)(d * 8 - 128);
		expected[d] = (d * 8 - 128) * 0.25;
	}
	put_float(row + 30, 0.25f);	/* at no multiple of 4 */
	check_numbers(&int8, row, expected);
	for (int d = 0; d < 30; d++) {
		row[d] = fp8_bits(d);
		expected[d] = fp8_number(d) * 0.25;
	}
	check_numbers(&fp8, row, expected);
}

static void test_readable(void)
{
	static const struct {
		const char *name;
		int64_t d, tokens;
		enum kvt_status status;
	} rows[] = {
		{ "fp8-ds-mla", 656, 1, KVT_OK },
		{ "indexer", 132, 1, KVT_BAD_INPUT },
		{ "indexer/e5m2", 132, 1, KVT_OK },
		{ "dsv4-swa", 584, 1, KVT_BAD_INPUT },
		{ "fp8-per-token-head", 68, 1, KVT_BAD_INPUT },
		{ "int8-per-token-head", 68, 1, KVT_OK },
		{ "int4-per-token-head", 68, 1, KVT_OK },
		{ "int4-per-token-head", 516, 1, KVT_UNSUPPORTED },
		{ "int4-per-token-head", 516 - 64, 1, KVT_OK },
		{ "mla-per-token-head", 1160, 1, KVT_UNSUPPORTED },
		{ "nvfp4", 144, 1, KVT_UNSUPPORTED },
		{ "nvfp4-plain", 144, 1, KVT_BAD_INPUT },
		{ "nvfp4-plain/128", 144, 1, KVT_OK },
		{ "nvfp4-sm100/128", 144, 1, KVT_UNSUPPORTED },
		{ "nvfp4-sm100/32", 4 * 36, 4, KVT_UNSUPPORTED },
		{ "nvfp4-sm100/64", 4 * 72, 4, KVT_OK },
		{ "turboquant-3bit-nc", 102, 1, KVT_OK },
		{ "turboquant-3bit-nc", 78, 1, KVT_UNSUPPORTED },
		{ "turboquant-k8v4", 196, 1, KVT_BAD_INPUT },
		{ "ultraquant-4bit", 102, 1, KVT_UNSUPPORTED },
		{ "q8_0", 34, 1, KVT_OK },
		{ "q8_0", 68, 1, KVT_BAD_INPUT },
		{ "q8_0/80", 340, 1, KVT_OK },
		{ "q8_0/64", 340, 1, KVT_BAD_INPUT },
		{ "q8_0/plain", 68, 1, KVT_OK },
		{ "q8_0/v32", 68, 1, KVT_OK },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_packing p = packing_of(rows[i].name,
						  shape_of(1, 1, 1, rows[i].d),
						  rows[i].tokens);

		assert_int_equal(kvt_packing_readable(&p, NULL), rows[i].status);
		assert_int_equal(p.row_values > 0, !rows[i].status);
	}
}

/* ---- refusals ----------------------------------------------------------- */

struct refusal {
	const char *what, *name;
	struct kvt_shape shape;
	int64_t tokens;
	const char *says;
};

#define SHAPE(s, h, k, d, e) { { 2, 3, s, h, k, d }, e }
static struct refusal refusals[] = {
	{ "a byte too few", "fp8-ds-mla", SHAPE(64, 1, 1, 655, 1), 1,
	  "1 rows of fp8-ds-mla have 655 bytes, expected 656 each" },
	{ "two rows", "fp8-ds-mla", SHAPE(64, 1, 1, 1312, 1), 1, "expected 656 each" },
	{ "heads of a latent", "fp8-ds-mla", SHAPE(64, 2, 1, 656, 1), 1, "has no heads" },
	{ "keys apart from values", "fp8-ds-mla", SHAPE(64, 1, 2, 656, 1), 1,
	  "keys and values are separate" },
	{ "elements of two bytes", "fp8-ds-mla", SHAPE(64, 1, 1, 656, 2), 1, "is bytes" },
	{ "rows of another ratio as slots", "dsv41", SHAPE(64, 1, 1, 528, 1), 2,
	  "one page of planes, so one slot, not 64" },
	{ "rows as slots", "indexer", SHAPE(64, 1, 1, 132, 1), 1,
	  "one page of planes, so one slot, not 64" },
	{ "a page of 63 rows", "indexer", SHAPE(1, 1, 1, 63 * 132, 1), 64,
	  "64 rows of indexer have 8316 bytes, expected 132 each" },
	{ "a byte behind the page", "indexer", SHAPE(1, 1, 1, 64 * 132 + 1, 1), 64,
	  "expected 132 each" },
	{ "tokens that make no row", "dsv4-c4a", SHAPE(1, 1, 1, 584, 1), 6,
	  "holds 6 tokens, expected a multiple of 4" },
	{ "no tokens", "indexer", SHAPE(1, 1, 1, 132, 1), 0, "holds 0 tokens" },
	{ "one slot for all", "indexer", SHAPE(1, 1, 1, 132, 1), -1, "holds -1 tokens" },
	{ "a scale alone", "int8-per-token-head", SHAPE(16, 4, 2, 4, 1), 1,
	  "have 4 bytes, expected at least 5 each" },
	{ "half a block of ggml", "q8_0", SHAPE(16, 4, 1, 51, 1), 1,
	  "that of no head vector" },
	{ "heads that fill no row", "q8_0/80", SHAPE(16, 1, 1, 68, 1), 1,
	  "64 numbers, which are no vectors of 80" },
	{ "rotated by more than a head has", "q8_0/k128/v64", SHAPE(16, 1, 2, 68, 1), 1,
	  "q8_0/k128/v64: vectors of 64 numbers cannot be rotated by 128" },
	{ "rotated by what does not divide a head", "q8_0/80/v64",
	  SHAPE(16, 1, 2, 340, 1), 1, "vectors of 80 numbers cannot be rotated by 64" },
	{ "rotated by too many", "q8_0/k2048", SHAPE(16, 1, 1, 4 * 544, 1), 1,
	  "of 1024 at most" },
	{ "an odd slot", "turboquant-k8v4", SHAPE(16, 4, 1, 195, 1), 1,
	  "that of no head vector" },
	{ "an even slot of no head", "turboquant-4bit-nc", SHAPE(16, 4, 1, 136, 1), 1,
	  "that of no head vector" },
	{ "half a word", "int4-per-token-head", SHAPE(16, 4, 2, 4, 1), 1,
	  "at least 5 each" },
	{ "half a row of a page", "dsv41", SHAPE(1, 1, 1, 528 * 3 / 2, 1), 64,
	  "1 rows of dsv41 have 792 bytes, expected 528" },
	{ "more rows than tokens", "dsv41", SHAPE(1, 1, 1, 64 * 528, 1), 32,
	  "expected a multiple of its 64 rows" },
	{ "no row", "dsv41-fp4", SHAPE(1, 1, 1, 200, 1), 32, "less than a row" },
	{ "not the rows that were said", "indexer-mxfp4/32",
	  SHAPE(1, 1, 1, 64 * 68, 1), 64,
	  "64 rows, but 32 were said" },
	{ "heads of another size", "nvfp4-plain/64", SHAPE(1, 1, 1, 16 * 108, 1), 16,
	  "expected 72 each" },
	{ "heads that fill no scale", "nvfp4-plain/40", SHAPE(1, 1, 1, 4608, 1), 16,
	  "a multiple of 16 numbers, not 40" },
	{ "too little for a head", "nvfp4-plain/128", SHAPE(1, 1, 1, 128, 1), 16,
	  "less than a row" },
	{ "an enormous row", "ultraquant-4bit", SHAPE(1, 1, 1, INT64_MAX, 1), 1,
	  "that of no head vector" },
	{ "an enormous page", "nvfp4-plain/9999999", SHAPE(1, 1, 1, INT64_MAX, 1),
	  INT64_MAX, "less than a row" },
	{ "a ring with heads", "qsa-ring", SHAPE(4, 2, 1, 280, 1), 1, "has no heads" },
	{ "no multiple of 18", "nvfp4", SHAPE(1, 1, 1, 16 * 143, 1), 16,
	  "in steps of 18" },
};

static void test_refusal(void **state)
{
	const struct refusal *r = *state;
	struct kvt_content content;
	struct kvt_packing packing;

	assert_true(kvt_content_find(&content, r->name));
	expect(kvt_packing_init(&packing, &content, &r->shape, r->tokens, &why),
	       KVT_BAD_INPUT, r->says);
}

static void test_layouts(void)
{
	static const struct {
		const char *layout;
		int64_t s, h, k, d;
		bool keeps;
	} rows[] = {
		{ "nhd", 16, 4, 2, 132, true }, { "hnd", 16, 4, 2, 132, true },
		{ "kv-first-nhd", 16, 4, 2, 132, true },
		{ "hicache-page-head", 16, 4, 2, 132, true },
		{ "sglang-pool", 16, 4, 2, 132, true },
		{ "K:LBHSD V:L B H S/8 S%8 D", 16, 4, 2, 132, true },
		{ "rocm-paged", 16, 4, 2, 144, false },
		{ "aiter-shuffle", 16, 4, 2, 144, false },
		{ "cpu-vec", 16, 4, 2, 132, false },
		{ "cpu-vec", 1, 4, 2, 132, true },	/* nothing is inside */
		{ "L B H D/x S x", 1, 4, 1, 656, false },
		{ "LBDS", 64, 1, 1, 656, false }, { "mla", 64, 1, 1, 656, true },
	};
	struct kvt_content content, none = { .n = 0 };

	assert_true(kvt_content_find(&content, "int8-per-token-head"));
	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_shape shape = shape_of(rows[i].s, rows[i].h, rows[i].k,
						  rows[i].d);
		struct kvt_layout layout;

		ok(kvt_layout_parse(&layout, rows[i].layout, NULL));
		if (kvt_content_keeps(&content, &layout, &shape, NULL) !=
		    (rows[i].keeps ? KVT_OK : KVT_UNSUPPORTED))
			fail_msg("%s", rows[i].layout);
		ok(kvt_content_keeps(&none, &layout, &shape, NULL));
	}
}

TESTS("content",
	EACH_BY(forms, name, test_bytes),
	EACH(refusals, test_refusal), TEST(test_names), TEST(test_specs),
	TEST(test_ds_mla), TEST(test_indexer), TEST(test_dsv4), TEST(test_per_token_head),
	TEST(test_rounding), TEST(test_readable), TEST(test_layouts))
