/* SPDX-License-Identifier: Apache-2.0 */
/* test_codec.c - stored tiles: every pipeline, every damage */
#include "lib/kvt/write.h"
#include "lib/tile/codec.h"
#include "lib/tile/zstd_frame.h"
#include "tests/unit/tests.h"

enum { N = 16384 };

struct tile {
	uint8_t plain[N], out[N];
	struct kvt_tiling tiling;
	struct kvt_stored stored;
	struct kvt_codec_scratch *scratch;
};

static void fill(struct tile *t, bool compressible)
{
	uint32_t x = 99;

	for (int i = 0; i < N; i++) {
		x = x * 1664525u + 1013904223u;
		t->plain[i] = (uint8_t)(x >> 24);
		if (compressible && i % 2)
			t->plain[i] = (uint8_t)(0x3c | (x >> 30));
	}
}

static int make_tile(void **state)
{
	struct tile *t = calloc(1, sizeof(*t));

	t->tiling = (struct kvt_tiling){ .n = { 1, 1, 1, 1, 1, N / 2 },
		.nbytes = N, .elem = 2, .shuffle = true, .zstd = true,
		.fletcher32 = true, .level = 1 };
	t->stored.capacity = kvt_stored_bound(&t->tiling);
	t->stored.bytes = calloc(1, (size_t)t->stored.capacity);
	fill(t, true);
	*state = t;
	return kvt_codec_scratch_new(&t->scratch, NULL) ? -1 : 0;
}

static int free_tile(void **state)
{
	struct tile *t = *state;

	kvt_codec_scratch_free(t->scratch);
	free(t->stored.bytes);
	free(t);
	return 0;
}

static enum kvt_status encode(struct tile *t)
{
	return kvt_encode(&t->stored, t->plain, &t->tiling, t->scratch, NULL);
}

static enum kvt_status decode(struct tile *t, struct kvt_error *err)
{
	memset(t->out, 0x5a, N);
	return kvt_decode(t->out, &t->stored, &t->tiling, t->scratch, err);
}

static enum kvt_status check(struct tile *t)
{
	return kvt_stored_check(&t->stored, &t->tiling, NULL);
}

static void every_pipeline(void **state)
{
	static const int64_t elems[] = { 1, 2, 4, 8 };
	struct tile *t = *state;

	for (int i = 0; i < 64; i++) {
		t->tiling.shuffle = i & 1;
		t->tiling.zstd = i & 2;
		t->tiling.fletcher32 = i & 4;
		t->tiling.elem = elems[i >> 4];
		fill(t, i & 8);
		ok(encode(t));
		assert_true(t->stored.nbytes <= kvt_stored_bound(&t->tiling));
		ok(check(t));
		ok(decode(t, NULL));
		assert_memory_equal(t->plain, t->out, N);
	}
}

static void noise_is_stored_as_it_is(void **state)
{
	struct tile *t = *state;

	fill(t, false);
	ok(encode(t));
	assert_int_equal(t->stored.filter_mask, 3);
	assert_int_equal(t->stored.nbytes, N + 4);
	assert_memory_equal(t->stored.bytes, t->plain, N);

	t->tiling.shuffle = false;
	ok(encode(t));
	assert_int_equal(t->stored.filter_mask, 1);
}

static void the_same_bytes_again(void **state)
{
	struct tile *t = *state;
	uint8_t *first = malloc((size_t)t->stored.capacity);
	int64_t n;

	ok(encode(t));
	n = t->stored.nbytes;
	memcpy(first, t->stored.bytes, (size_t)n);
	/* whatever the scratch was used for in between */
	fill(t, false);
	ok(encode(t));
	fill(t, true);
	ok(encode(t));
	assert_int_equal(t->stored.nbytes, n);
	assert_memory_equal(t->stored.bytes, first, (size_t)n);
	free(first);
}

static void every_filter_mask(void **state)
{
	struct tile *t = *state;

	/* by hand, what other writers may leave out */
	for (uint32_t mask = 0; mask < 8; mask++) {
		struct kvt_tiling part = t->tiling, whole = t->tiling;

		part.shuffle = !(mask & 1);
		part.zstd = !(mask & 2);
		part.fletcher32 = !(mask & 4);
		ok(kvt_encode(&t->stored, t->plain, &part, t->scratch, NULL));
		assert_int_equal(t->stored.filter_mask, 0);
		t->stored.filter_mask = mask;
		ok(kvt_decode(t->out, &t->stored, &whole, t->scratch, NULL));
		assert_memory_equal(t->plain, t->out, N);
	}
	t->stored.filter_mask = 8;
	assert_int_equal(decode(t, NULL), KVT_BAD_INPUT);
	assert_int_equal(check(t), KVT_BAD_INPUT);
}

/* Fletcher-32 takes 0x0000 and 0xffff for the same word; the frame does not. */
static void every_flipped_bit(void **state)
{
	struct tile *t = *state;

	ok(encode(t));
	for (int64_t bit = 0; bit < 8 * t->stored.nbytes; bit++) {
		uint8_t *p = &t->stored.bytes[bit / 8];

		if (bit > 4000 && bit < 8 * t->stored.nbytes - 400 && bit % 61)
			continue;
		*p ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(check(t), KVT_BAD_INPUT);
		assert_int_equal(decode(t, NULL), KVT_BAD_INPUT);
		*p ^= (uint8_t)(1 << bit % 8);
	}
	ok(decode(t, NULL));
}

/* Is there a bit whose flip makes other values of the tile? */
static bool misses_a_bit(struct tile *t)
{
	bool missed = false;

	for (int64_t bit = 0; !missed && bit < 8 * t->stored.nbytes; bit += 509) {
		t->stored.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		missed = !decode(t, NULL) && memcmp(t->plain, t->out, N);
		t->stored.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	return missed;
}

/* Bare are just those tiles that a wrong bit is not noticed in. */
static void bare_tiles(void **state)
{
	struct tile *t = *state;

	for (int i = 0; i < 64; i++) {
		t->tiling.shuffle = i & 1;
		t->tiling.zstd = i & 2;
		t->tiling.fletcher32 = i & 4;
		fill(t, i & 8);
		ok(encode(t));
		if (i & 16)	/* another writer leaves out the last stage */
			t->stored.filter_mask |= i & 4 ? 1u << (i & 1) << (i >> 1 & 1) :
							 0;
		if (i & 16 && i & 4)
			t->stored.nbytes -= 4;
		ok(decode(t, NULL));
		assert_int_equal(kvt_stored_bare(&t->stored, &t->tiling),
				 misses_a_bit(t));
	}
	/* a frame of another writer */
	t->tiling = (struct kvt_tiling){ .nbytes = N, .elem = 1, .zstd = true };
	fill(t, false);
	t->stored.filter_mask = 0;
	t->stored.nbytes = (int64_t)ZSTD_compress(t->stored.bytes,
				(size_t)t->stored.capacity, t->plain, N, 1);
	assert_true(kvt_stored_bare(&t->stored, &t->tiling));
	assert_true(misses_a_bit(t));
}

static void a_flipped_bit_in_the_mask(void **state)
{
	struct tile *t = *state;

	ok(encode(t));
	for (int bit = 1; bit < 32; bit++) {
		t->stored.filter_mask = 1u << bit;
		assert_int_equal(decode(t, NULL), KVT_BAD_INPUT);
	}
	/*
	 * Nothing in the tile says that it was shuffled: HDF5's index, which
	 * has checksums of its own, is trusted with that bit.
	 */
	t->stored.filter_mask = 1;
	ok(check(t));
}

static void every_length_but_one(void **state)
{
	struct tile *t = *state;
	int64_t n;

	ok(encode(t));
	n = t->stored.nbytes;
	for (int64_t m = 0; m <= n + 64; m += m < 64 || m > n - 64 ? 1 : 131) {
		t->stored.nbytes = m;
		assert_int_equal(check(t), m == n ? KVT_OK : KVT_BAD_INPUT);
		assert_int_equal(decode(t, NULL), m == n ? KVT_OK : KVT_BAD_INPUT);
	}
}

/* A right checksum over a wrong frame. */
static void seal(struct tile *t, int64_t n)
{
	uint32_t sum = kvt_fletcher32(t->stored.bytes, n);

	memcpy(t->stored.bytes + n, &sum, 4);
	t->stored.nbytes = n + 4;
}

static void frames_that_lie(void **state)
{
	struct tile *t = *state;
	int64_t n;

	/* a smaller tile, a larger one */
	for (int64_t m = N / 2; m <= 2 * N; m *= 4) {
		uint8_t *other = calloc(1, (size_t)m);

		n = (int64_t)ZSTD_compress(t->stored.bytes,
				(size_t)t->stored.capacity - 4, other,
				(size_t)m, 1);
		seal(t, n);
		assert_int_equal(check(t), KVT_BAD_INPUT);
		expect(decode(t, &why), KVT_BAD_INPUT, "expected 16384");
		free(other);
	}
	/* bytes after the frame */
	ok(encode(t));
	n = t->stored.nbytes - 4;
	t->stored.bytes[n] = 0;
	seal(t, n + 1);
	assert_int_equal(check(t), KVT_BAD_INPUT);
	expect(decode(t, &why), KVT_BAD_INPUT, NULL);

	/* raw bytes of another size */
	t->stored.filter_mask = 3;
	seal(t, N - 1);
	assert_int_equal(check(t), KVT_BAD_INPUT);
	expect(decode(t, &why), KVT_BAD_INPUT, "16383 bytes, expected 16384");
}

static void same_codec(void **state)
{
	struct tile *t = *state;
	struct kvt_tiling a = t->tiling, b = a;

	b.level = 19;
	b.n[KVT_AXIS_B] = 2;
	assert_true(kvt_tiling_same_codec(&a, &b));
	b = a;
	b.elem = 4;
	assert_false(kvt_tiling_same_codec(&a, &b));
	b = a;
	b.nbytes *= 2;
	assert_false(kvt_tiling_same_codec(&a, &b));
	b = a;
	b.fletcher32 = false;
	assert_false(kvt_tiling_same_codec(&a, &b));
	b = a;
	b.shuffle = false;
	assert_false(kvt_tiling_same_codec(&a, &b));
	b = a;
	b.zstd = false;
	assert_false(kvt_tiling_same_codec(&a, &b));
}

#define TILE(test) AROUND(test, make_tile, free_tile)

TESTS("codec",
	TILE(every_pipeline),
	TILE(noise_is_stored_as_it_is),
	TILE(the_same_bytes_again),
	TILE(every_filter_mask),
	TILE(every_flipped_bit),
	TILE(bare_tiles),
	TILE(a_flipped_bit_in_the_mask),
	TILE(every_length_but_one),
	TILE(frames_that_lie),
	TILE(same_codec))
