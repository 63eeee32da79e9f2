/* SPDX-License-Identifier: Apache-2.0 */
/* test_zstd_frame.c - shuffle, Fletcher-32 and frames, each against plain code */
#include "lib/tile/zstd_frame.h"
#include "tests/unit/tests.h"

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void fill(uint8_t *p, int64_t n, uint32_t seed)
{
	for (int64_t i = 0; i < n; i++)
		/* the low bits repeat after 64 KiB */
		p[i] = (uint8_t)(next_random(&seed) >> 16);
}

/* ---- shuffle ------------------------------------------------------------ */

typedef void shuffle_fn(void *dst, const void *src, int64_t nbytes, int64_t elem);

static void check_shuffle(int64_t n, int64_t elem, shuffle_fn *shuffle,
			  shuffle_fn *unshuffle)
{
	int64_t nbytes = n * elem;
	uint8_t *in = malloc((size_t)nbytes + 1);
	uint8_t *mid = malloc((size_t)nbytes + 1);
	uint8_t *out = malloc((size_t)nbytes + 1);

	fill(in, nbytes, (uint32_t)(elem * 1000 + n));
	mid[nbytes] = out[nbytes] = 0xa5;
	shuffle(mid, in, nbytes, elem);
	for (int64_t i = 0; i < n; i++)
		for (int64_t p = 0; p < elem; p++)
			assert_int_equal(mid[p * n + i], in[i * elem + p]);
	unshuffle(out, mid, nbytes, elem);
	assert_memory_equal(in, out, (size_t)nbytes);
	assert_int_equal(mid[nbytes], 0xa5);
	assert_int_equal(out[nbytes], 0xa5);
	free(in);
	free(mid);
	free(out);
}

/* With and without the instructions of this processor. */
static void shuffles(void)
{
	static const int64_t elems[] = { 1, 2, 3, 4, 5, 8, 16 };
	static const int64_t counts[] = { 0, 1, 63, 64, 65, 127, 128, 1000 };

	for (size_t e = 0; e < LENGTH(elems); e++)
		for (size_t c = 0; c < LENGTH(counts); c++) {
			check_shuffle(counts[c], elems[e], kvt_shuffle, kvt_unshuffle);
			check_shuffle(counts[c], elems[e], kvt_shuffle_plain,
				      kvt_unshuffle_plain);
		}
}

/* ---- Fletcher-32 -------------------------------------------------------- */

static uint32_t fold(uint32_t x)
{
	return (x & 0xffff) + (x >> 16);
}

/* Word by word, with the folds where HDF5 has them. */
static uint32_t plain_fletcher32(const uint8_t *p, int64_t nbytes)
{
	uint32_t s1 = 0, s2 = 0;
	int64_t words = 0;

	for (int64_t i = 0; i < nbytes; i += 2) {
		s1 += (uint32_t)p[i] << 8 | (i + 1 < nbytes ? p[i + 1] : 0);
		s2 += s1;
		if (++words % 360 == 0) {
			s1 = fold(s1);
			s2 = fold(s2);
		}
	}
	return fold(fold(s2)) << 16 | fold(fold(s1));
}

/* At any alignment, with and without the instructions of this processor. */
static void check_fletcher32(const uint8_t *p, int64_t n)
{
	uint32_t sum = plain_fletcher32(p, n);

	assert_int_equal(kvt_fletcher32(p, n), sum);
	assert_int_equal(kvt_fletcher32_plain(p, n), sum);
}

static void fletcher32_of_known_bytes(void)
{
	static const struct {
		uint8_t bytes[8];
		int n;
		uint32_t sum;
	} rows[] = {
		{ { 0 }, 0, 0 },
		{ { 0, 0, 0, 0 }, 4, 0 },
		/* a multiple of 65535 that is not all zeros is no zero */
		{ { 0xff, 0xff }, 2, 0xffffffff },
		{ { 0xff, 0xff, 0xff, 0xff }, 4, 0xffffffff },
		{ { 0x01 }, 1, 0x01000100 },
		{ { 0x00, 0x01 }, 2, 0x00010001 },
		{ { 0x00, 0x01, 0x00, 0x02 }, 4, 0x00040003 },
		{ { 0xff, 0xfe, 0x00, 0x01 }, 4, 0xfffeffff },
	};

	for (size_t i = 0; i < LENGTH(rows); i++)
		assert_int_equal(kvt_fletcher32(rows[i].bytes, rows[i].n),
				 rows[i].sum);
	for (size_t i = 0; i < LENGTH(rows); i++)
		check_fletcher32(rows[i].bytes, rows[i].n);
}

static void fletcher32_of_any_length(void)
{
	enum { MOST = 40000 };
	uint8_t *p = malloc(MOST);
	uint32_t seed = 7;

	for (int pass = 0; pass < 3; pass++) {
		fill(p, MOST, 5);
		if (pass)
			memset(p, pass == 1 ? 0xff : 0, MOST);
		for (int n = 0; n < 200; n++)
			check_fletcher32(p + n % 67, n);
		for (int i = 0; i < 100; i++) {
			int n = (int)(next_random(&seed) % (MOST - 64));

			check_fletcher32(p + i % 64, n);
		}
	}
	free(p);
}

/* ---- frames ------------------------------------------------------------- */

enum { N = 32768, ROOM = 2 * N };

struct frame {
	uint8_t in[N], out[N], frame[ROOM];
	int64_t n;
	ZSTD_CCtx *c;
	ZSTD_DCtx *d;
};

/* Of two planes, one compresses. */
static int make_plane(void **state, int plane)
{
	struct frame *f = calloc(1, sizeof(*f));

	f->c = ZSTD_createCCtx();
	f->d = ZSTD_createDCtx();
	fill(f->in, N, 3);
	for (int i = 0; i < N / 2; i++)
		f->in[plane * N / 2 + i] &= 0x0f;
	f->n = kvt_frame_encode(f->frame, ROOM, f->in, N, 2, KVT_ZSTD_LEVEL, f->c);
	*state = f;
	return f->n > 0 ? 0 : -1;
}

static int make_frame(void **state)
{
	return make_plane(state, 0);
}

/* As floating point has it; the frame is put together then. */
static int make_noise(void **state)
{
	return make_plane(state, 1);
}

static int free_frame(void **state)
{
	struct frame *f = *state;

	ZSTD_freeCCtx(f->c);
	ZSTD_freeDCtx(f->d);
	free(f);
	return 0;
}

static void frame_is_standard(void **state)
{
	struct frame *f = *state;

	/* zstd's own one-shot decoder, as any other reader would call it */
	assert_int_equal(ZSTD_getFrameContentSize(f->frame, (size_t)f->n), N);
	assert_int_equal(ZSTD_decompress(f->out, N, f->frame, (size_t)f->n), N);
	assert_memory_equal(f->in, f->out, N);
	assert_true(f->n < N * 4 / 5);
	/* bit 2 of the descriptor: a checksum follows */
	assert_true(f->frame[4] & 4);
}

/* What follows the header of 9 bytes. */
static void noise_is_raw(void **state)
{
	struct frame *f = *state;

	assert_memory_equal(f->frame + 9, ((uint8_t[]){ 0, 0, 2 }), 3);
	assert_memory_equal(f->frame + 12, f->in, N / 2);
}

/* The decoder for streams is the stricter one of zstd's. */
static void check_stream(struct frame *f, const uint8_t *frame, int64_t nframe,
			 const uint8_t *expected, uint8_t *out, int64_t n)
{
	ZSTD_inBuffer from = { frame, (size_t)nframe, 0 };
	ZSTD_outBuffer to = { out, 0, 0 };

	memset(out, 0, (size_t)n);
	while (to.size < (size_t)n) {
		to.size += 100000;
		to.size = to.size < (size_t)n ? to.size : (size_t)n;
		assert_false(ZSTD_isError(ZSTD_decompressStream(f->d, &to, &from)));
	}
	assert_int_equal(to.pos, n);
	assert_memory_equal(out, expected, (size_t)n);
}

/* Planes and noise of every number, and of sizes around a block of zstd. */
static void noise_of_any_size(void **state)
{
	static const int64_t size[] = { 1, 64, 4095, 4096, 4097, 131071, 131072,
					131073, 300000 };
	enum { MOST = 8 * 300000 };
	uint8_t *in = malloc(MOST), *out = malloc(MOST), *frame = malloc(2 * MOST);
	struct frame *f = *state;

	for (size_t i = 0; i < LENGTH(size); i++)
	for (int64_t planes = 2; planes <= 8; planes *= 2)
	for (int64_t noise = 0; noise <= planes; noise++) {
		int64_t n = planes * size[i], got;

		fill(in, n, (uint32_t)noise + 1);
		for (int64_t j = noise * size[i]; j < n; j++)
			in[j] &= 0x33;
		got = kvt_frame_encode(frame, 2 * MOST, in, n, planes,
				       KVT_ZSTD_LEVEL, f->c);
		/* half of what is no noise goes, but for tables and headers */
		assert_true(got > 0 && got <= noise * size[i] + 200 * planes +
			    (planes - noise) * size[i] * 11 / 20);
		check_stream(f, frame, got, in, out, n);
		memset(out, 0, (size_t)n);
		ok(kvt_frame_decode(out, n, frame, got, f->d, NULL));
		assert_memory_equal(in, out, n);
	}
	free(in);
	free(out);
	free(frame);
}

/*
 * Noise in which one byte repeats for a while, at its ends and anywhere: what repeats
 * takes next to nothing, and a whole plane of it is no noise.
 */
static void noise_with_gaps(void **state)
{
	static const struct {
		int64_t from, to;
	} gap[] = { { 0, 1024 }, { 5000, 6100 }, { 16384, 24576 }, { 31744, 32768 },
		    { 32000, 32768 }, { 0, 32768 }, { 7, 1000 }, { 512, 1024 } };
	enum { PLANE = 32768, N2 = 2 * PLANE };
	uint8_t *in = malloc(N2), *out = malloc(N2), *frame = malloc(2 * N2);
	struct frame *f = *state;

	for (size_t i = 0; i < LENGTH(gap); i++)
	for (size_t j = 0; j <= i; j++) {
		int64_t got, whole = 0;

		fill(in, N2, (uint32_t)(i * 8 + j + 1));
		memset(in + PLANE, 7, PLANE);
		memset(in + gap[j].from, 0xcc, (size_t)(gap[j].to - gap[j].from));
		memset(in + gap[i].from, 0, (size_t)(gap[i].to - gap[i].from));
		for (int64_t at = 0; at < PLANE; at += 512)
			whole += !memcmp(in + at, in + at + 1, 511);
		got = kvt_frame_encode(frame, 2 * N2, in, N2, 2, KVT_ZSTD_LEVEL, f->c);
		assert_in_range(got, 1, PLANE - 512 * whole + 200);
		check_stream(f, frame, got, in, out, N2);
		ok(kvt_frame_decode(out, N2, frame, got, f->d, NULL));
		assert_memory_equal(in, out, N2);
	}
	free(in);
	free(out);
	free(frame);
}

/* The same bytes again are no noise, however evenly they are spread. */
static void repeats_are_found(void **state)
{
	struct frame *f = *state;

	memcpy(f->in + N / 4, f->in, N / 4);
	f->n = kvt_frame_encode(f->frame, ROOM, f->in, N, 2, KVT_ZSTD_LEVEL, f->c);
	assert_in_range(f->n, 1, N / 4 + N / 3 - 1);
	ok(kvt_frame_decode(f->out, N, f->frame, f->n, f->d, NULL));
	assert_memory_equal(f->in, f->out, N);
}

static void frame_at_every_level(void **state)
{
	struct frame *f = *state;

	for (int level = -1; level <= 23; level++) {
		f->n = kvt_frame_encode(f->frame, ROOM, f->in, N, 2, level, f->c);
		assert_true(f->n > 0);
		memset(f->out, 0, N);
		ok(kvt_frame_decode(f->out, N, f->frame, f->n, f->d, NULL));
		assert_memory_equal(f->in, f->out, N);
	}
}

static void frame_without_room(void **state)
{
	struct frame *f = *state;

	for (int64_t room = 0; room < f->n; room += 101)
		assert_int_equal(kvt_frame_encode(f->frame, room, f->in, N, 2,
						  KVT_ZSTD_LEVEL, f->c), 0);
	/* and the context is good for the next one */
	assert_int_equal(kvt_frame_encode(f->frame, ROOM, f->in, N, 2,
					  KVT_ZSTD_LEVEL, f->c), f->n);
}

static void refused(struct frame *f, int64_t nbytes, int64_t nframe,
		    const char *part)
{
	expect(kvt_frame_decode(f->out, nbytes, f->frame, nframe, f->d, &why),
	       KVT_BAD_INPUT, part);
}

static void frame_that_lies(void **state)
{
	struct frame *f = *state;
	int64_t n = f->n;

	for (int64_t i = 0; i < n; i += i < 32 ? 1 : 97)
		refused(f, N, i, "not a whole zstd frame");
	refused(f, N, n + 1, "1 bytes follow");
	memcpy(f->frame + n, f->frame, (size_t)n);
	refused(f, N, 2 * n, "follow");
	refused(f, N - 1, n, "expected 32767");

	ZSTD_CCtx_reset(f->c, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(f->c, ZSTD_c_contentSizeFlag, 0);
	n = (int64_t)ZSTD_compress2(f->c, f->frame, ROOM, f->in, N);
	assert_true(n > 0 && n < ROOM);
	assert_int_equal(kvt_frame_content(f->frame, n), -1);
	refused(f, N, n, "no content size");

	/* a skippable frame of 4 bytes holds nothing */
	memcpy(f->frame, "\x50\x2a\x4d\x18\x04\x00\x00\x00", 8);
	refused(f, N, 12, "says it holds 0 bytes");
}

static void frame_with_a_flipped_bit(void **state)
{
	struct frame *f = *state;
	int64_t found = 0, flips = 0;

	/* A few bits have no meaning; no other one may give other data. */
	for (int64_t bit = 0; bit < 8 * f->n; bit += bit < 400 ? 1 : 1009) {
		f->frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		memset(f->out, 0, N);
		if (kvt_frame_decode(f->out, N, f->frame, f->n, f->d, NULL))
			found++;
		else
			assert_memory_equal(f->in, f->out, N);
		f->frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		flips++;
	}
	assert_true(found >= flips - 8);
	ok(kvt_frame_decode(f->out, N, f->frame, f->n, f->d, NULL));
}

#define FRAME(test) AROUND(test, make_frame, free_frame)
#define NOISE(test) NAMED_AROUND(test, make_noise, free_frame, #test " after noise")

TESTS("zstd_frame",
	TEST(shuffles), TEST(fletcher32_of_known_bytes), TEST(fletcher32_of_any_length),
	FRAME(frame_is_standard),
	FRAME(frame_at_every_level),
	FRAME(frame_without_room),
	FRAME(frame_that_lies),
	FRAME(frame_with_a_flipped_bit),
	NOISE(noise_is_raw),
	NOISE(noise_of_any_size),
	NOISE(noise_with_gaps),
	NOISE(repeats_are_found),
	NOISE(frame_is_standard),
	NOISE(frame_at_every_level),
	NOISE(frame_without_room),
	NOISE(frame_that_lies),
	NOISE(frame_with_a_flipped_bit))
