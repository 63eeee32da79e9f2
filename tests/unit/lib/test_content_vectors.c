/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_content_vectors.c - bytes that engines wrote, and what they stand for
 *
 * Bytes and numbers are those of the writers and readers of vLLM 0.32, SGLang and
 * FlashInfer, some worked out by hand from their byte tables; none comes from
 * lib/layout.  A number that is written with few digits was printed with few.
 */
#include <math.h>

#include "lib/kvt/cast.h"
#include "tests/unit/tests.h"

static int checked;	/* numbers, sizes and offsets held against the engines' */

static struct kvt_packing packing_of(const char *name, int64_t d, int64_t tokens)
{
	const struct kvt_shape shape = { { 1, 1, 1, 1, 1, d }, 1 };
	struct kvt_packing packing = { .nbytes = 0 };
	struct kvt_content content;

	if (kvt_content_parse(&content, name, &why) ||
	    kvt_packing_init(&packing, &content, &shape, tokens, &why) ||
	    kvt_packing_readable(&packing, &why))
		fail_msg("%s: %s", name, why.text);
	return packing;
}

/* ---- numbers ------------------------------------------------------------ */

struct vector {
	const char *what, *content;
	int64_t d, tokens;
	const char *bytes;	/* "AT:HEX" or "ATxTIMES:HEX", the rest zero */
	const char *numbers;	/* "INDEX=VALUE", "FROM..TO=VALUE" */
	double within;		/* of what was printed with few digits; 0: exact */
};

/* Page of 64 rows: a data row at 512 * i, scales at 32,768 + 16 * i, and so on. */
static struct vector vectors[] = {
	{ "352 bytes, scales out of order", "nvfp4-ds-mla", 352, 1,
	  "0:21 8:07 255:f0 256:38 319:c0 320x32:38 328:40 351:30",
	  "0=0.5 1=1 2..15=0 16=12 17=0 510=0 511=-3 512=1 513..574=0 575=-2", 0 },
	{ "order of the scales of blocks 0 to 7", "nvfp4-ds-mla", 352, 1,
	  "0x256:22 320:38 328:40 336:44 344:48 321:4a 329:4c 337:4d 345:4e 351:30",
	  "0..15=1 16..31=2 32..47=3 48..63=4 64..79=5 80..95=6 96..111=6.5 112..127=7 "
	  "128..143=0 496..511=0.5", 0 },
	{ "584 bytes, row 0", "dsv4-swa/e4m3fn", 64 * 584, 64,
	  "0x9:fc 9x7:fb 560:9c419c419d419e419e419e419f41a041 "
	  "36864:7a7a79797a7a7b00",
	  "0..8=-12 9..15=-11 504=19.5 507=19.75 510=19.875 511=20", 0 },
	{ "584 bytes, scale of zeros", "dsv4-swa/e4m3fn", 64 * 584, 64,
	  "2880:08 36904x7:69", "2560=0x1p-28 2561=0", 0 },
	{ "584 bytes, block 1, row 2", "dsv4-swa/e4m3fn", 64 * 584, 64,
	  "1152:7c 1216:7c 1280:7c 1344:7c 1408:7c 1472:7c 1536:7c "
	  "36880:7878777778787900",
	  "1024=3 1088=3 1152=1.5 1216=1.5 1280=3 1344=3 1408=6", 0 },
	{ "528 bytes, row 0", "dsv41", 64 * 528, 64,
	  "0x9:fc 9x7:fb 496x16:7a 32768:7a7a7a7979787879797a7a7a7a7b7b7b",
	  "0..8=-12 9..15=-11 496..511=20", 0 },
	{ "528 bytes, block 1, row 2", "dsv41", 64 * 528, 128,
	  "1024x512:38 32800:78787877777676777778787878797979",
	  "1024=0x1p-7 1120=0x1p-8 1184=0x1p-9 1280=0x1p-8 1312=0x1p-7 1535=0x1p-6", 0 },
	{ "528 bytes, scales behind the row", "dsv41-row", 528, 1,
	  "0x9:fc 9x7:fb 496x16:7a 512:7a7a7a7979787879797a7a7a7a7b7b7b",
	  "0..8=-12 9..15=-11 496..511=20", 0 },
	{ "528 bytes without a rotary part", "glm53-nope", 528, 1,
	  "0:38 128:38 256:38 384:b8 512:0000803f 516:0000c03f 520:cdcccc3d 524:00000040",
	  "0=1 128=1.5 256=0.100000001490116119384765625 384=-2 385=0", 0 },
	{ "the same in 656 bytes, the last 128 reserved", "glm53-nope-656", 656, 1,
	  "0:38 512:0000803f 528x128:ff", "0=1 1..511=0", 0 },
	{ "288 bytes, row 2 of 64", "dsv41-fp4", 64 * 288, 64,
	  "512:a2 513:7f 520:21 767:9f 16448x32:38 16449:40 16479:01",
	  "1024=1 1025=-1 1026=-6 1027=6 1028..1039=0 1040=1 1041=2 1042..1533=0 "
	  "1534=-0.01171875 1535=-0.0009765625", 0 },
	{ "288 bytes, scales behind the row", "dsv41-fp4-row", 288, 1,
	  "0:a2 1:7f 8:21 255:9f 256x32:38 257:40 287:01",
	  "0=1 1=-1 2=-6 3=6 16=1 17=2 510=-0.01171875 511=-0.0009765625", 0 },
	{ "384 bytes", "dsv4-nvfp4", 64 * 384, 64, "0:21 224:803f 22528:38",
	  "0=0.5 1=1 2..447=0 448=1 449..511=0", 0 },
	{ "384 bytes, row 3 of a page of 5", "dsv4-nvfp4", 5 * 384, 5,
	  "1056:21 1279:90 1280:00c0 1856:40 1883:01",
	  "1536=1 1537=2 1983=-0x1p-10 1984=-2", 0 },
	{ "indexer of 68 bytes, row 2 of 64", "indexer-mxfp4", 64 * 68, 64,
	  "128x2:dd 4104:7e7d7d7e", "256..259=-1.5 260=0", 0 },
	{ "indexer of 132 bytes, row 2 of 64", "dsv41-indexer/e4m3fn", 64 * 132, 64,
	  "256:fefefd 8200:0000803b", "256..257=-1.75 258=-1.625", 0 },
	{ "indexer of 72 bytes", "indexer-nvfp4", 72, 1, "0:21 63:7f 64:38 71:40",
	  "0=0.5 1=1 126=-12 127=12", 0 },
	{ "pooled key, row 1 of 32", "kpool-indexer", 32 * 132, 128,
	  "128:7a767a767a767a767a767a767a767a767a767a767a767a767a767a767a767a76"
	  "7a767a767a767a767a767a767a767a767a767a767a767a767a767a767a767a76"
	  "7a767a767a767a767a767a767a767a767a767a767a767a767a767a767a767a76"
	  "7a767a767a767a767a767a767a767a767a767a767a767a767a767a767a767a76 "
	  "4100:0000803a", "128=3.0052 129=0.5303 130..255=0", 5e-5 },
	{ "int8 of a head and token", "int8-per-token-head", 12, 1,
	  "0:102030404f5f6f7f 8:0402813d", "0=1.0079 1=2.0157 7=8", 5e-5 },
	{ "fp8 of a head and token", "fp8-per-token-head/e4m3fn", 12, 1,
	  "0:666e7276797a7c7e 8:2549923c",
	  "0=1 1=2 2=2.857 3=4 4=5.143 5=5.714 6=6.857 7=8", 5e-4 },
	{ "int4, 1 to 8", "int4-per-token-head", 8, 1, "0:70756f73 4:d6dd5d40",
	  "0=0.867 1=1.733 2=2.6 3=3.467 4=5.2 5=6.067 6=6.933 7=7.8", 5e-4 },
	{ "int4, all 3", "int4-per-token-head", 8, 1, "0:80808f80 4:c4cccc3f",
	  "0=3 1=3.4 2=3 3=3", 1e-5 },
	{ "turboquant, fp8 keys", "turboquant-k8v4/e4m3fn", 28, 1,
	  "0:38c044c84acc4ed03028b838 16:1032547698badcfe 24:003800c0",
	  "0=1 1=-2 2=3 3=-4 4=5 5=-6 6=7 7=-8 8=0.5 9=0.25 16=-2 17=-1.5 18=-1 31=5.5",
	  0 },
	{ "turboquant, 4-bit keys and values", "turboquant-4bit-nc", 22, 1,
	  "0:f8672789e5586876 8:974b 10:1032547698badcfe 18:003800c0",
	  "0=1.16 1=-2.16 2=3.15 3=-4.15 4=4.97 5=-5.98 6=6.96 7=-7.97 "
	  "16=-2 17=-1.5 18=-1 19=-0.5 20=0 31=5.5", 5e-3 },
};

static void put_bytes(uint8_t *to, int64_t room, const char *text)
{
	while (*text) {
		char *end;
		long long at = strtoll(text, &end, 10), times = 1;
		unsigned byte;
		const char *hex;

		if (*end == 'x')
			times = strtoll(end + 1, &end, 10);
		assert_true(*end == ':');
		while (times--)
			for (hex = end + 1; sscanf(hex, "%2x", &byte) == 1 && *hex != ' ';
			     hex += 2) {
				assert_true(at < room);
				to[at++] = (uint8_t)byte;
			}
		text = end + 1 + strcspn(end + 1, " ");
		text += *text == ' ';
	}
}

static void check_number(const struct vector *v, const struct kvt_packing *p,
			 const uint8_t *bytes, int64_t i, double expected)
{
	double got;

	assert_true(i < kvt_packing_values(p));
	kvt_packing_decode(&got, p, 0, bytes, i, 1);
	if (v->within > 0 ? !(fabs(got - expected) <= v->within) : got != expected)
		fail_msg("number %lld is %.17g, expected %.17g", (long long)i, got,
			 expected);
	checked++;
}

static void test_vector(void **state)
{
	const struct vector *v = *state;
	struct kvt_packing p = packing_of(v->content, v->d, v->tokens);
	uint8_t *bytes = calloc((size_t)v->d, 1);
	const char *text = v->numbers;

	assert_non_null(bytes);
	put_bytes(bytes, v->d, v->bytes);
	while (*text) {
		char *end;
		long long from = strtoll(text, &end, 10), to = from;
		double expected;

		if (end[0] == '.')
			to = strtoll(end + 2, &end, 10);
		assert_true(*end == '=');
		expected = strtod(end + 1, &end);
		for (long long i = from; i <= to; i++)
			check_number(v, &p, bytes, i, expected);
		text = end + (*end == ' ');
	}
	free(bytes);
}

/* ---- codes -------------------------------------------------------------- */

/* Two numbers a byte, the first in the lower half, in all 4-bit forms. */
static void test_codes(void)
{
	static const double e2m1[16] = { 0, .5, 1, 1.5, 2, 3, 4, 6,
					 -0., -.5, -1, -1.5, -2, -3, -4, -6 };
	struct kvt_packing p = packing_of("indexer-nvfp4", 72, 1);
	uint8_t row[72] = { 0 };
	double out[128];

	memset(row + 64, 0x38, 8);
	for (int i = 0; i < 16; i++)
		row[i] = (uint8_t)(i << 4 | (15 - i));
	kvt_packing_decode(out, &p, 0, row, 0, 128);
	for (int i = 0; i < 16; i++) {
		assert_true(out[2 * i] == e2m1[15 - i] && out[2 * i + 1] == e2m1[i]);
		checked += 2;
	}
}

/* Centroids are in proportion to those that vLLM has for vectors of 128. */
static void test_centroids(void)
{
	static const double three[4] = { 0.021654, 0.066790, 0.118721, 0.190066 };
	static const double four[8] = { 0.011352, 0.034307, 0.058061, 0.083301, 0.111039,
					0.143002, 0.182827, 0.241382 };
	struct kvt_packing p4 = packing_of("turboquant-4bit-nc", 134, 1);
	struct kvt_packing p3 = packing_of("turboquant-k3v4-nc", 118, 1);
	uint8_t row[134] = { 0 };

	for (int i = 0; i < 16; i++) {
		double want = (i < 8 ? -1 : 1) * four[i < 8 ? 7 - i : i - 8];

		row[0] = (uint8_t)i;
		assert_true(fabs(kvt_field_number(&p4.field[0], row, 0, 0) / sqrt(128) -
				 want) < 6e-7);
		checked++;
	}
	for (int i = 0; i < 8; i++) {
		double want = (i < 4 ? -1 : 1) * three[i < 4 ? 3 - i : i - 4];

		row[0] = (uint8_t)(i << 6);	/* bits 6, 7 and 8: number 2 */
		row[1] = (uint8_t)(i >> 2);
		assert_true(fabs(kvt_field_number(&p3.field[0], row, 0, 2) / sqrt(128) -
				 want) < 6e-7);
		checked++;
	}
}

/* ---- writing ------------------------------------------------------------ */

/* By hand: the farthest number is exact; what is between is cut at its half. */
static void test_written(void)
{
	static const struct {
		const char *content;
		double first, second, other, scale, minimum;
		int64_t at;		/* of the first code's byte */
		uint8_t bytes[2];	/* that, and the next */
	} rows[] = {
		/* -8 and 3.5 of a scale of 1: codes 0, 11.5 + .5; zeros are 8 */
		{ "q4_0", -8, 3.5, 0, 1, 0, 2, { 0x80, 0x8c } },
		/* the positive one makes the scale negative: -8 would be code 16 */
		{ "q4_0", 8, -8, 0, -1, 0, 2, { 0x80, 0x8f } },
		{ "q5_0", 16, 1, 0, -1, 0, 6, { 0x00, 0x0f } },
		/* from 1 to 16 in steps of 1 */
		{ "q4_1", 16, 8.5, 1, 1, 1, 4, { 0x0f, 0x08 } },
		{ "q5_1", 32, 1.5, 1, 1, 1, 8, { 0x0f, 0x01 } },
		/* ties to even */
		{ "q8_0", 127, 2.5, 0, 1, 0, 2, { 127, 2 } },
		{ "q8_0", -254, 3, 0, 2, 0, 2, { 0x81, 2 } },
		/* -127 is the first of the book; 1 the nearest to 0 */
		{ "iq4_nl", 127, 0, 0, -1, 0, 2, { 0x80, 0x88 } },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_content content;
		struct kvt_packing p;
		double out[32], scale, minimum;
		float x[32];
		uint8_t row[34];

		assert_true(kvt_content_find(&content, rows[i].content));
		p = packing_of(rows[i].content, kvt_content_row_of(&content, 32), 1);
		for (int j = 0; j < 32; j++)
			x[j] = j ? j == 1 ? rows[i].second : rows[i].other :
			       rows[i].first;
		kvt_cast_row(&(struct kvt_caster){ .packing = p, .n = 32 }, row, 0, x, 0,
			     1);
		scale = kvt_field_number(&p.field[0], row, 0, 0);
		minimum = kvt_field_number(&p.field[1], row, 0, 0);
		assert_true(scale == rows[i].scale);
		assert_true(rows[i].content[3] != '1' || minimum == rows[i].minimum);
		assert_memory_equal(row + rows[i].at, rows[i].bytes, 2);
		kvt_packing_decode(out, &p, 0, row, 0, 32);
		for (int j = 0; j < 32; j++)
			assert_true(fabs(out[j] - (double)x[j]) <= fabs(scale));
		checked += 3;
	}
}

/* ---- bytes -------------------------------------------------------------- */

static void test_rows(void)
{
	static const struct {
		const char *name;
		int64_t bytes;
	} rows[] = {
		{ "fp8-ds-mla", 656 }, { "mla-fp8", 576 }, { "nvfp4-ds-mla", 352 },
		{ "dsv4", 584 },
		{ "dsv4-c4a", 584 }, { "dsv4-c128a", 584 }, { "dsv4-swa", 584 },
		{ "dsv4-nvfp4", 384 }, { "dsv41", 528 }, { "dsv41-fp4", 288 },
		{ "dsv41-row", 528 }, { "dsv41-fp4-row", 288 }, { "dsv4-fp8", 512 },
		{ "glm53-nope", 528 }, { "glm53-nope-656", 656 }, { "indexer", 132 },
		{ "dsv41-indexer", 132 }, { "indexer-mxfp4", 68 },
		{ "indexer-nvfp4", 72 }, { "kpool-indexer", 132 },
		{ "qsa-ring", 280 }, { "kpool-tail", 512 }, { "dsv41-ring", 4096 },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_content content;

		assert_true(kvt_content_find(&content, rows[i].name));
		if (kvt_content_row(&content) != rows[i].bytes)
			fail_msg("%s has rows of %lld bytes, expected %lld", rows[i].name,
				 (long long)kvt_content_row(&content),
				 (long long)rows[i].bytes);
		checked++;
	}
}

/* Of heads of 64, 96, 128, 256 and 512 numbers; of pairs twice the row. */
static void test_head_rows(void)
{
	static const int64_t dims[] = { 64, 96, 128, 256, 512 };
	static const struct {
		const char *name;
		int64_t bytes[5];		/* 0: not said */
	} rows[] = {
		{ "turboquant-k8v4", { 100, 148, 196, 388, 0 } },
		{ "turboquant-4bit-nc", { 70, 102, 134, 262, 0 } },
		{ "turboquant-k3v4-nc", { 62, 90, 118, 230, 0 } },
		{ "turboquant-3bit-nc", { 54, 78, 102, 198, 0 } },
		{ "ultraquant-4bit", { 68, 0, 136, 272, 0 } },
		{ "nvfp4-plain", { 2 * 36, 0, 2 * 72, 2 * 144, 2 * 288 } },
		{ "int4-per-token-head", { 72 / 2, 0, 136 / 2, 0, 0 } },
		{ "int8-per-token-head", { 0, 0, 264 / 2, 0, 0 } },
		{ "fp8-per-token-head", { 0, 0, 264 / 2, 0, 0 } },
		{ "q4_0", { 36, 54, 72, 144, 288 } },
		{ "q8_0", { 68, 102, 136, 272, 544 } },
	};

	for (size_t i = 0; i < LENGTH(rows); i++)
		for (int d = 0; d < 5; d++) {
			struct kvt_content content;

			assert_true(kvt_content_find(&content, rows[i].name));
			if (!rows[i].bytes[d])
				continue;
			assert_int_equal(kvt_content_row_of(&content, dims[d]),
					 rows[i].bytes[d]);
			checked++;
		}
}

/* Planes of pages: where row 0 begins, and from row to row. */
static void test_planes(void)
{
	static const struct {
		const char *name;
		int64_t d, tokens;
		int field;
		int64_t at, stride;
	} planes[] = {
		{ "dsv4-swa", 64 * 584, 64, 2, 36864, 8 },
		{ "dsv41", 64 * 528, 64, 1, 32768, 16 },
		{ "dsv41-fp4", 64 * 288, 64, 1, 16384, 32 },
		{ "dsv4-nvfp4", 7 * 384, 7, 2, 7 * 352, 32 },
		{ "indexer-mxfp4", 64 * 68, 64, 1, 4096, 4 },
		{ "dsv41-indexer", 64 * 132, 64, 1, 8192, 4 },
		{ "kpool-indexer", 32 * 132, 128, 1, 4096, 4 },
		{ "kpool-tail", 4 * 512, 4, 1, 1024, 256 },
		{ "nvfp4-plain/128", 4608, 16, 0, 0, 64 },
		{ "nvfp4-plain/128", 4608, 16, 1, 2048, 8 },
		{ "nvfp4-plain/128", 4608, 16, 2, 2304, 64 },
		{ "nvfp4-sm100/128", 4608, 16, 3, 4352, 8 },
	};

	for (size_t i = 0; i < LENGTH(planes); i++) {
		const struct kvt_shape shape = { { 1, 1, 1, 1, 1, planes[i].d }, 1 };
		struct kvt_content content;
		struct kvt_packing p;

		assert_true(kvt_content_find(&content, planes[i].name));
		ok(kvt_packing_init(&p, &content, &shape, planes[i].tokens, NULL));
		assert_int_equal(p.field[planes[i].field].at, planes[i].at);
		assert_int_equal(p.field[planes[i].field].stride, planes[i].stride);
		checked += 2;
	}
}

/* ---- names -------------------------------------------------------------- */

static void test_words(void)
{
	static const struct {
		const char *word, *is;		/* NULL: refused, and says */
		const char *says;
	} words[] = {
		{ "int4_per_token_head", "int4-per-token-head", NULL },
		{ "ultraquant_4bit", "ultraquant-4bit", NULL },
		{ "turboquant_k3v4_nc", "turboquant-k3v4-nc", NULL },
		{ "nvfp4_4over6", "nvfp4", NULL }, { "nvfp4", "nvfp4", NULL },
		{ "V41", "dsv41", NULL }, { "V41_NEW", "dsv41-row", NULL },
		{ "v41_new", "dsv41-row", NULL }, { "V41_FP4", "dsv41-fp4", NULL },
		{ "V41_FP4_NEW", "dsv41-fp4-row", NULL },
		{ "V32_NO_ROPE", "glm53-nope", NULL },
		{ "GLM53_NOPE", "glm53-nope", NULL },
		{ "fp8-ds-mla", "fp8-ds-mla", NULL }, { "V32", "fp8-ds-mla", NULL },
		{ "fp8_ds_mla", NULL, "glm53-nope-656, dsv4, dsv4-c4a, dsv4-c128a, "
		  "dsv4-swa, dsv41" },
		{ "FP8_DS_MLA", NULL, "means several contents" },
		{ "fp8_ds_mla/e4m3fn", NULL, "means several contents" },
		{ "nvfp4_ds_mla", NULL, "nvfp4-ds-mla, dsv41-fp4" },
		{ "nvfp4-ds-mla", "nvfp4-ds-mla", NULL },
		{ "528", NULL, "glm53-nope, dsv41-row, dsv41 have" },
		{ "288", NULL, "dsv41-fp4-row, dsv41-fp4, nvfp4-plain (a head vector)" },
		{ "352", NULL, "nvfp4-ds-mla, dsv4-nvfp4 (its data) have" },
		{ "656", NULL, "fp8-ds-mla, glm53-nope-656 have" },
		{ "384", NULL, "dsv4-nvfp4 has" }, { "584", NULL, "dsv4-c4a" },
		{ "132", NULL, "kpool-indexer have" },
		{ "368", NULL, "#37138" }, { "432", NULL, "fork" },
		{ "416", NULL, "#35237" }, { "304", NULL, "GLM_NEXT" },
		{ "b12x", NULL, "fork" }, { "999", NULL, "is no name" },
	};

	for (size_t i = 0; i < LENGTH(words); i++) {
		struct kvt_content content;
		enum kvt_status status = kvt_content_parse(&content, words[i].word, &why);

		if (words[i].is && status)
			fail_msg("'%s': %s", words[i].word, why.text);
		if (words[i].is)
			assert_string_equal(kvt_content_name(&content).s, words[i].is);
		else if (!status || !strstr(why.text, words[i].says))
			fail_msg("'%s' does not say '%s' but '%s'", words[i].word,
				 words[i].says, why.text);
		checked++;
	}
}

static int tell(void **state)
{
	(void)state;
	printf("# %d values checked, %d vectors\n", checked, LENGTH(vectors));
	return 0;
}

TESTS_AROUND("content vectors", NULL, tell,
	TEST(test_codes), TEST(test_centroids), TEST(test_written), TEST(test_rows),
	TEST(test_head_rows), TEST(test_planes), TEST(test_words),
	EACH(vectors, test_vector))
