/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd_frame.c - byte shuffle, plane-aligned zstd frames, Fletcher-32
 *
 * The inner loops have constant trip counts: that is what gcc and clang need
 * to vectorize them at -O2, and all the SIMD there is.
 */
#define ZSTD_STATIC_LINKING_ONLY	/* experimental parameters, where offered */
#include "formats/zstd_frame.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "words are taken from memory as they are");

/* ---- byte shuffle ------------------------------------------------------- */

enum { RUN = 64 };		/* elements that the inner loops take at once */

/* Even bytes of 2 * RUN to 'even', odd ones to 'odd'. */
static void split(uint8_t *restrict even, uint8_t *restrict odd,
		  const uint8_t *restrict src)
{
	uint16_t word[RUN];

	/* Narrowing words vectorizes; picking every second byte does not. */
	memcpy(word, src, sizeof(word));
	for (int i = 0; i < RUN; i++)
		even[i] = (uint8_t)(word[i] & 0xff);
	for (int i = 0; i < RUN; i++)
		odd[i] = (uint8_t)(word[i] >> 8);
}

static void merge(uint8_t *restrict dst, const uint8_t *restrict even,
		  const uint8_t *restrict odd)
{
	for (int i = 0; i < RUN; i++) {
		dst[2 * i] = even[i];
		dst[2 * i + 1] = odd[i];
	}
}

/*
 * RUN elements of 2, 4 or 8 bytes.  A stage turns each of g groups of bytes
 * into two; group q becomes q and q + g, so that the last stage numbers its
 * groups as the planes, which are 'n' bytes apart.
 */
static void shuffle_run(uint8_t *dst, const uint8_t *src, int64_t n, int elem)
{
	uint8_t buf[2][8 * RUN];
	int half = elem * RUN / 2;

	for (int g = 1, flip = 0; 2 * g < elem; g *= 2, half /= 2, flip ^= 1) {
		uint8_t *out = buf[flip];

		for (int q = 0; q < g; q++)
			for (int i = 0; i < half; i += RUN)
				split(out + q * half + i,
				      out + (q + g) * half + i,
				      src + 2 * (q * half + i));
		src = out;
	}
	for (int q = 0; q < elem / 2; q++)
		split(dst + q * n, dst + (q + elem / 2) * n, src + 2 * q * RUN);
}

static void unshuffle_run(uint8_t *dst, const uint8_t *src, int64_t n, int elem)
{
	uint8_t buf[2][8 * RUN];
	int half = RUN, flip = 0;
	int64_t plane = n;

	for (int g = elem / 2; g > 0; g /= 2, half *= 2, flip ^= 1) {
		uint8_t *out = g == 1 ? dst : buf[flip];

		for (int q = 0; q < g; q++)
			for (int i = 0; i < half; i += RUN)
				merge(out + 2 * (q * half + i),
				      src + q * plane + i,
				      src + (q + g) * plane + i);
		src = out;
		plane = 2 * half;
	}
}

/* Elements that the runs do not take: any size, or the last few. */
static void shuffle_rest(uint8_t *dst, const uint8_t *src, int64_t first,
			 int64_t n, int64_t elem)
{
	for (int64_t p = 0; p < elem; p++)
		for (int64_t i = first; i < n; i++)
			dst[p * n + i] = src[i * elem + p];
}

static void unshuffle_rest(uint8_t *dst, const uint8_t *src, int64_t first,
			   int64_t n, int64_t elem)
{
	for (int64_t i = first; i < n; i++)
		for (int64_t p = 0; p < elem; p++)
			dst[i * elem + p] = src[p * n + i];
}

static bool takes_runs(int64_t elem)
{
	return elem == 2 || elem == 4 || elem == 8;
}

void kvt_shuffle(void *dst, const void *src, int64_t nbytes, int64_t elem)
{
	int64_t n = nbytes / elem, i = 0;

	if (takes_runs(elem))
		for (; i + RUN <= n; i += RUN)
			shuffle_run((uint8_t *)dst + i,
				    (const uint8_t *)src + i * elem, n,
				    (int)elem);
	shuffle_rest(dst, src, i, n, elem);
}

void kvt_unshuffle(void *dst, const void *src, int64_t nbytes, int64_t elem)
{
	int64_t n = nbytes / elem, i = 0;

	if (takes_runs(elem))
		for (; i + RUN <= n; i += RUN)
			unshuffle_run((uint8_t *)dst + i * elem,
				      (const uint8_t *)src + i, n, (int)elem);
	unshuffle_rest(dst, src, i, n, elem);
}

/* ---- Fletcher-32 -------------------------------------------------------- */

/*
 * HDF5 adds up big-endian words and folds carries back every 360 words.  That
 * leaves each sum as its residue modulo 65535, where 0 stands for a sum of
 * nothing but zeros and any other multiple of 65535 is 0xffff.  So the words
 * may be added in any grouping; and as a byte swap is a multiplication by 256
 * modulo 65535, it is done once, at the end.
 */
struct sums {
	uint64_t s1, s2;	/* residues below 65535 */
	bool nonzero;
};

enum {
	LANES = 16,
	STEPS = 360,		/* 0xffff * 360 * 361 / 2 fits 32 bits */
};

/* LANES words in each of 'steps' steps. */
static void add_steps(struct sums *sums, const uint8_t *bytes, int64_t steps)
{
	uint32_t a[LANES] = { 0 }, b[LANES] = { 0 };
	uint64_t t1 = 0, t2 = 0;

	for (int64_t j = 0; j < steps; j++) {
		uint16_t word[LANES];

		memcpy(word, bytes + j * (int64_t)sizeof(word), sizeof(word));
		for (int i = 0; i < LANES; i++) {
			a[i] += word[i];
			b[i] += a[i];
		}
	}
	/* b counts a word once a step; the second sum does once a word. */
	for (int i = 0; i < LANES; i++) {
		t1 += a[i];
		t2 += (uint64_t)LANES * b[i] - (uint64_t)i * a[i];
	}
	sums->s2 = (sums->s2 + (uint64_t)(steps * LANES) * sums->s1 + t2) % 65535;
	sums->s1 = (sums->s1 + t1) % 65535;
	sums->nonzero |= t1 != 0;
}

static void add_word(struct sums *sums, uint16_t word)
{
	sums->s1 = (sums->s1 + word) % 65535;
	sums->s2 = (sums->s2 + sums->s1) % 65535;
	sums->nonzero |= word != 0;
}

static uint32_t folded(uint64_t residue, bool nonzero)
{
	uint32_t sum = (uint32_t)(residue * 256 % 65535);

	return nonzero && sum == 0 ? 0xffff : sum;
}

uint32_t kvt_fletcher32(const void *bytes, int64_t nbytes)
{
	const uint8_t *p = bytes;
	struct sums sums = { 0 };
	int64_t left = nbytes;

	while (left >= 2 * LANES) {
		int64_t steps = left / (2 * LANES);

		steps = steps < STEPS ? steps : STEPS;
		add_steps(&sums, p, steps);
		p += steps * 2 * LANES;
		left -= steps * 2 * LANES;
	}
	for (; left >= 2; p += 2, left -= 2)
		add_word(&sums, (uint16_t)(p[0] | p[1] << 8));
	if (left)
		add_word(&sums, p[0]);	/* the high byte, before the swap */
	return folded(sums.s2, sums.nonzero) << 16 |
	       folded(sums.s1, sums.nonzero);
}

/* ---- frames ------------------------------------------------------------- */

/*
 * The parameters of level 1, by bench/bench_codec.c: ratio, and GB/s a core of
 * encoding and decoding, zstd alone on the byte planes of bfloat16 (libzstd
 * 1.5.4, one busy virtual core: compare columns, not machines).
 *
 *	                          synthetic K/V    gqa64, real      s260k, real
 *	32 KiB  level 3           1.403 .25 1.39   1.581 .29 1.70   1.530 .25 1.57
 *	        level 1           1.431 .33 1.67   1.612 .37 2.02   1.522 .34 1.69
 *	        minMatch 7,
 *	        hashLog 10        1.449 .69 2.41   1.631 .62 2.50   1.516 .51 1.95
 *	        tuned             1.451 1.0 2.41   1.525 1.1 2.74   1.417 1.2 2.69
 *	16 KiB  tuned             1.448 .88 2.07   1.490 .97 2.34   1.418 1.0 2.41
 *	64 KiB  tuned             1.452 1.1 2.73   1.536 1.3 3.05   1.417 1.3 3.00
 *	128 KiB tuned             1.453 1.2 2.90   1.566 1.3 3.34   1.415 1.4 3.11
 *
 * Tuned looks for few matches (there are hardly any in K/V) and always codes
 * literals with Huffman, which is where the gain is.  s260k has heads of 8
 * elements; its short repeats are what the search would still find.
 */
static void set_parameters(ZSTD_CCtx *context, int level)
{
	int max = ZSTD_maxCLevel();

	/* A parameter that this libzstd refuses costs speed, not correctness. */
	ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel,
			       level < 1 ? 1 : level > max ? max : level);
	ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
	if (level == KVT_ZSTD_LEVEL) {
		ZSTD_CCtx_setParameter(context, ZSTD_c_minMatch, 7);
#ifdef ZSTD_c_literalCompressionMode
		ZSTD_CCtx_setParameter(context, ZSTD_c_hashLog, 14);
		ZSTD_CCtx_setParameter(context, ZSTD_c_targetLength, 64);
		ZSTD_CCtx_setParameter(context, ZSTD_c_literalCompressionMode,
				       ZSTD_lcm_huffman);
#else
		ZSTD_CCtx_setParameter(context, ZSTD_c_hashLog, 10);
#endif
	}
#if defined(ZSTD_c_stableInBuffer) && ZSTD_VERSION_NUMBER >= 10504
	/* Saves copies inside zstd; before 1.5.4 it forbade growing the input. */
	ZSTD_CCtx_setParameter(context, ZSTD_c_stableInBuffer, 1);
	ZSTD_CCtx_setParameter(context, ZSTD_c_stableOutBuffer, 1);
#endif
}

int64_t kvt_frame_encode(void *dst, int64_t capacity, const void *src,
			 int64_t nbytes, int64_t nplanes, int level,
			 ZSTD_CCtx *context)
{
	ZSTD_outBuffer out = { dst, (size_t)capacity, 0 };
	ZSTD_inBuffer in = { src, 0, 0 };

	set_parameters(context, level);
	if (ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context, (size_t)nbytes)))
		return 0;
	for (int64_t p = 1; p <= nplanes; p++) {
		bool last = p == nplanes;
		size_t left;

		in.size = (size_t)(last ? nbytes : nbytes / nplanes * p);
		left = ZSTD_compressStream2(context, &out, &in,
					    last ? ZSTD_e_end : ZSTD_e_flush);
		if (left)	/* an error, or dst is full */
			return 0;
	}
	return (int64_t)out.pos;
}

int64_t kvt_frame_content(const void *frame, int64_t nframe)
{
	unsigned long long n = ZSTD_getFrameContentSize(frame, (size_t)nframe);

	/* The two error values are the largest there are. */
	return n > INT64_MAX ? -1 : (int64_t)n;
}

enum kvt_status kvt_frame_check(const void *frame, int64_t nframe,
				int64_t nbytes, struct kvt_error *err)
{
	int64_t content;
	size_t size;

	if (nframe < 4 || ZSTD_isError(size = ZSTD_findFrameCompressedSize(
						frame, (size_t)nframe)))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld bytes are not a whole zstd frame",
				(long long)nframe);
	if (size != (size_t)nframe)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld bytes follow the zstd frame",
				(long long)(nframe - (int64_t)size));
	content = kvt_frame_content(frame, nframe);
	if (content < 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"zstd frame has no content size");
	if (content != nbytes)
		return kvt_fail(err, KVT_BAD_INPUT, "zstd frame says it holds "
				"%lld bytes, expected %lld", (long long)content,
				(long long)nbytes);
	return KVT_OK;
}

enum kvt_status kvt_frame_decode(void *dst, int64_t nbytes, const void *frame,
				 int64_t nframe, ZSTD_DCtx *context,
				 struct kvt_error *err)
{
	enum kvt_status status = kvt_frame_check(frame, nframe, nbytes, err);
	size_t got;

	if (status)
		return status;
	got = ZSTD_decompressDCtx(context, dst, (size_t)nbytes, frame,
				  (size_t)nframe);
	if (ZSTD_isError(got))
		return kvt_fail(err, KVT_BAD_INPUT, "zstd frame is damaged (%s)",
				ZSTD_getErrorName(got));
	if (got != (size_t)nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"zstd frame holds %zu bytes, expected %lld",
				got, (long long)nbytes);
	return KVT_OK;
}
