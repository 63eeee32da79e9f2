/* SPDX-License-Identifier: Apache-2.0 */
/* test_cast.c - casts of every instruction set are those of plain C, at any length */
#include "lib/kvt/cast.h"
#include "lib/kvt/kernels.h"
#include "lib/layout/content_types.h"
#include "tests/unit/tests.h"

enum { MOST = 3000, GUARD = 16 };

static const char *const names[] = {
	"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
	"float8_e5m2", "float8_e5m2fnuz", "float64",
};
enum { NTYPES = LENGTH(names) };

static uint8_t in[MOST * 8 + GUARD], plain[MOST * 4 + GUARD], other[MOST * 4 + GUARD];

static void fill(void)
{
	uint64_t state = 40;

	for (size_t i = 0; i < sizeof(in); i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		in[i] = (uint8_t)(state >> 56);
	}
}

static void compare(const struct kvt_cast_kernel *kernel, const struct kvt_dtype *to,
		    const struct kvt_dtype *from, int64_t n, float times, float by)
{
	memset(plain, 0xee, sizeof(plain));
	memset(other, 0xee, sizeof(other));
	/* from a byte that no element is aligned to */
	kvt_cpu_cast_with(kvt_cpu_cast_kernel(0), plain + 1, to, in + 1, from, n, times,
			  by);
	kvt_cpu_cast_with(kernel, other + 1, to, in + 1, from, n, times, by);
	assert_memory_equal(plain, other, sizeof(plain));
	assert_int_equal(other[1 + n * to->elem], 0xee);
}

static void test_kernels(void)
{
	static const int64_t lengths[] = { 0, 1, 63, 64, 65, 1023, 1024, 1025, MOST - 1 };

	fill();
	for (int k = 1; kvt_cpu_cast_kernel(k); k++)
	for (int f = 0; f < NTYPES; f++)
	for (int t = 0; t < NTYPES - 1; t++)
	for (size_t i = 0; i < LENGTH(lengths); i++)
		if (kvt_cpu_cast_kernel(k)->runs_here())
			compare(kvt_cpu_cast_kernel(k), kvt_dtype_find(names[t]),
				kvt_dtype_find(names[f]), lengths[i],
				i % 2 ? 1 : 0.75f, i % 3 ? 1 : 0.3f);
}

/* Of NaN nothing else is asked; of any number that the type has, itself. */
static void test_back(void)
{
	for (int t = 1; t < NTYPES - 1; t++) {
		const struct kvt_dtype *type = kvt_dtype_find(names[t]);

		for (uint32_t bits = 0; bits < 1u << (8 * type->elem); bits++) {
			uint16_t element = (uint16_t)bits, again = 0;
			float x;

			kvt_cast_load(&x, type, &element, 1);
			kvt_cast_store(&again, type, &x, 1);
			/* fp8 has no way back to infinity */
			if (x < 1e6f && x > -1e6f)
				assert_int_equal(element, again);
		}
	}
}

static void test_scale(void)
{
	const struct kvt_content none = { .n = 0 };
	struct kvt_caster c;

	assert_int_equal(kvt_caster_init(&c, kvt_dtype_find("fp8_e4m3"), &none, 64, NULL),
			 0);
	assert_true(kvt_caster_scaled(&c));
	assert_true(kvt_caster_scale(&c, 896) == 2 && kvt_caster_scale(&c, 0) == 1);
	assert_int_equal(kvt_caster_init(&c, kvt_dtype_find("fp8_e4m3fnuz"), &none, 64,
					 NULL), 0);
	assert_true(kvt_caster_scale(&c, 448) == 2);
	assert_int_equal(kvt_caster_init(&c, kvt_dtype_find("bf16"), &none, 64, NULL), 0);
	assert_true(!kvt_caster_scaled(&c) && kvt_caster_scale(&c, 448) == 1);
	assert_int_equal(kvt_caster_init(&c, kvt_dtype_find("int8"), &none, 64, NULL),
			 KVT_UNSUPPORTED);
}

/* Rows of numbers of any size, of zeros, of what is no number; of pages two. */
static void put_rows(const struct kvt_caster *c, float *x, int kv, uint64_t *state)
{
	static uint8_t fast[1 << 16], slow[1 << 16];

	for (int64_t r = 0; r < c->packing.rows; r++) {
		for (int64_t i = 0; i < c->n; i++) {
			uint32_t bits;

			*state = *state * 6364136223846793005u + 1442695040888963407u;
			bits = (uint32_t)(*state >> 32);
			/* of the same size, in most rows; blocks hold no others */
			if (r || content_recipe_of(&c->packing.content)->blocks)
				bits = (bits & 0x80ffffff) | 0x3f000000;
			memcpy(&x[i], &bits, sizeof(bits));
		}
		kvt_cast_row(c, fast, r, x, kv, 0.03f);
		kvt_cast_prove(c, slow, r, x, kv, 0.03f);
		ok(kvt_cast_holds(c, fast, x, &why));
	}
	assert_memory_equal(fast, slow, (size_t)c->nbytes);
}

/* Each content is written, in two ways that agree, or it is said why not. */
static void test_contents(void **unused)
{
	static float x[1 << 14];
	const struct content_recipe *recipe;
	uint64_t state = 41;
	int written = 0;

	(void)unused;
	for (int i = 0; (recipe = kvt_content_recipe_at(i)); i++) {
		struct kvt_content content = { .type = &recipe->type, .turn = { 1, 1 } };
		int64_t ratio = recipe->type.ratio ? recipe->type.ratio : 1, dim, page;
		struct kvt_caster c;

		content.fp8 = kvt_content_has_fp8(recipe) ? kvt_dtype_find("fp8_e4m3") :
							    NULL;
		dim = recipe->type.kind != KVT_MLA ? 128 :
		      !strcmp(recipe->type.name, "fp8-ds-mla") ||
		      !strcmp(recipe->type.name, "nvfp4-ds-mla") ? 576 : 512;
		assert_int_equal(!recipe->unwritten, (recipe->write != NULL) +
				 (recipe->tile != NULL) + (recipe->blocks != NULL));
		if (recipe->unwritten) {
			expect(kvt_caster_init(&c, kvt_dtype_find("uint8"), &content, dim,
					       &why), KVT_UNSUPPORTED, recipe->unwritten);
			continue;
		}
		if (kvt_caster_init(&c, kvt_dtype_find("uint8"), &content, dim, &why) ||
		    (recipe->type.planar &&
		     kvt_caster_pages(&c, &page, recipe->page_rows == 2 ? 2 : 4,
				      recipe->type.all_heads ? 2 : 1, ratio, &why)))
			fail_msg("%s: %s", recipe->type.name, why.text);
		for (int n = 0; n < 50; n++)
			put_rows(&c, x, n % 2, &state);
		written++;
	}
	assert_true(written > 70);
}

TESTS("cast",
	TEST(test_kernels), TEST(test_back), TEST(test_scale), WITH(NULL, test_contents))
