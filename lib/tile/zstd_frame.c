/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd_frame.c - one standard zstd frame for the byte planes of a tile
 *
 * The planes of floating point numbers differ: exponents compress well, the low
 * bits of mantissas not at all.  Blocks end where planes do, so that each has a
 * code of its own, and leading planes of noise become raw blocks without
 * being tried, but for slots in which one byte repeats.
 */
#define ZSTD_STATIC_LINKING_ONLY	/* experimental parameters, where offered */
#define XXH_INLINE_ALL			/* the plugin links nothing but zstd */
#include "lib/tile/zstd_frame.h"
#include "lib/base/little_endian.h"

#include <string.h>

#include <xxhash.h>

/* ---- parameters --------------------------------------------------------- */

/* What a frame of zstd is for. */
enum want {
	WHOLE,
	REST,				/* to be joined: without a checksum */
};

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
 *
 * Half of that time went into the low bytes, which are noise: a Huffman code for
 * them is made, tried and thrown away.  What is left is the code of the high
 * bytes, at 1.1 to 1.3 GB/s of them: 48 % writing it, 28 % counting.
 */
static void set_parameters(ZSTD_CCtx *context, int level, enum want want)
{
	int max = ZSTD_maxCLevel();

	/* A parameter that this libzstd refuses costs speed, not correctness. */
	ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
	ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel,
			       level < 1 ? 1 : level > max ? max : level);
	ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, want == WHOLE);
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

/* One frame of zstd's own, with a block border at the end of each plane. */
static int64_t encode_planes(void *dst, int64_t capacity, const void *src,
			     int64_t nbytes, int64_t nplanes, int level,
			     enum want want, ZSTD_CCtx *context)
{
	ZSTD_outBuffer out = { dst, (size_t)capacity, 0 };
	ZSTD_inBuffer in = { src, 0, 0 };

	set_parameters(context, level, want);
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

/* ---- planes of noise ---------------------------------------------------- */

/*
 * A frame that we put together is one segment: a decoder in parts needs all of
 * it at once, and 8 MiB is what every decoder has to take.
 */
enum { SAMPLES = 32, SAMPLE = 64, BLOCK = 128 << 10, MOST = 8 << 20 };

/* Slots without a token are zeros, or what an engine or a transfer filled them with. */
static bool is_one_byte(const uint8_t *p, int64_t n)
{
	return !memcmp(p, p + 1, (size_t)n - 1);
}

/*
 * But for places where one byte repeats, would a code for single bytes save less than
 * zstd asks for, 1/64, after the table that it needs?  The chi-square of a sample
 * against equal frequencies, less its 255 degrees of freedom, is about 2 n ln 2 times the
 * bits that a byte is short of 8; the bound is 2 % of 8 bits.
 */
static bool is_flat(const uint8_t *plane, int64_t n)
{
	/* odd, so that rows of slots do not show the same channels each time */
	int64_t step = ((n - SAMPLE) / (SAMPLES - 1) - 1) | 1, squares = 0, seen = 0;
	uint16_t count[256] = { 0 };

	if (n < 2 * SAMPLES * SAMPLE)
		return false;
	for (int64_t r = 0; r < SAMPLES; r++) {
		const uint8_t *sample = plane + r * step;

		if (is_one_byte(sample, SAMPLE))
			continue;
		for (int64_t i = 0; i < SAMPLE; i++)
			count[sample[i]]++;
		seen += SAMPLE;
	}
	for (int i = 0; i < 256; i++)
		squares += count[i] * count[i];
	return seen >= SAMPLES * SAMPLE / 2 &&
	       256 * squares / seen - seen < 255 + seen * 22 / 100;
}

/*
 * Are there matches in noise?  Then whole rows of slots repeat themselves: 8
 * bytes in 32 are a sample that meets them, or one in four where rows are shorter.
 */
static bool repeats(const uint8_t *plane, int64_t n)
{
	enum { STEP = 32, LOG_BUCKETS = 11 };
	uint64_t bucket[1 << LOG_BUCKETS] = { 0 }, word, *seen;
	int64_t found = 0;

	for (int64_t i = 0; i <= n - 8; i += STEP) {
		memcpy(&word, plane + i, 8);
		if (word == (word << 8 | (word & 0xff)))
			continue;	/* one byte: is_flat() */
		seen = &bucket[word * 0x9e3779b97f4a7c15u >> (64 - LOG_BUCKETS)];
		found += *seen == word;
		*seen = word;
	}
	return found * STEP * 32 > n;
}

/* How many planes, but never all, start with neither a code nor matches. */
static int64_t count_noise(const uint8_t *src, int64_t n, int64_t nplanes, int level)
{
	int64_t p = 0;

	while (level == KVT_ZSTD_LEVEL && p < nplanes - 1 && n <= MOST / nplanes &&
	       is_flat(src + p * n, n) && !repeats(src + p * n, n))
		p++;
	return p;
}

/* Magic number; one segment, checksum, content size in 4 bytes. */
static int64_t put_header(uint8_t *dst, int64_t nbytes)
{
	kvt_put_le(dst, ZSTD_MAGICNUMBER, 4);
	dst[4] = 2 << 6 | 1 << 5 | 1 << 2;
	kvt_put_le(dst + 5, (uint32_t)nbytes, 4);
	return 9;
}

/* Not the last block: type 0 is raw, 1 one byte that repeats. */
static int64_t put_block_header(uint8_t *dst, int64_t nbytes, unsigned type)
{
	kvt_put_le(dst, (uint32_t)nbytes << 3 | type << 1, 3);
	return 3;
}

enum { SPAN = 512 };			/* where one byte repeats, of at least so many */

/* The end of what begins at 'at' of n bytes: a run of one byte, or what is not. */
static int64_t run_end(bool *repeats, const uint8_t *src, int64_t at, int64_t n)
{
	int64_t end = at + SPAN;

	*repeats = end <= n && is_one_byte(src + at, SPAN);
	while (end + SPAN <= n && end + SPAN - at <= BLOCK &&
	       (*repeats ? is_one_byte(src + end - 1, SPAN + 1) :
			   !is_one_byte(src + end, SPAN)))
		end += SPAN;
	/* the rest is too short to be told apart */
	if (!*repeats && end + SPAN > n)
		end = n - at <= BLOCK ? n : at + BLOCK;
	return end;
}

static int64_t put_noise(uint8_t *dst, const uint8_t *src, int64_t n)
{
	uint8_t *to = dst;
	bool repeats;

	for (int64_t at = 0, end; at < n; at = end) {
		end = run_end(&repeats, src, at, n);
		to += put_block_header(to, end - at, repeats);
		memcpy(to, src + at, (size_t)(repeats ? 1 : end - at));
		to += repeats ? 1 : end - at;
	}
	return to - dst;
}

/*
 * Blocks of our own for the noise, the blocks of a frame of zstd's own for the rest.
 * Ours leave a decoder's state as it begins, which is what the others were made for.
 */
static int64_t join(uint8_t *dst, int64_t capacity, const uint8_t *src, int64_t nbytes,
		    int64_t nplanes, int64_t noise, int level, ZSTD_CCtx *context)
{
	int64_t raw = nbytes / nplanes * noise, at, n;
	size_t header;

	/* 9 and 4: the header and the checksum */
	if (capacity < raw + 3 * (raw / BLOCK + 1) + 9 + 4)
		return 0;
	at = put_header(dst, nbytes);
	at += put_noise(dst + at, src, raw);
	n = encode_planes(dst + at, capacity - at - 4, src + raw, nbytes - raw,
			  nplanes - noise, level, REST, context);
	header = n ? ZSTD_frameHeaderSize(dst + at, (size_t)n) : 0;
	if (!n || ZSTD_isError(header))
		return 0;
	n -= (int64_t)header;
	memmove(dst + at, dst + at + header, (size_t)n);
	kvt_put_le(dst + at + n, (uint32_t)XXH64(src, (size_t)nbytes, 0), 4);
	return at + n + 4;
}

/* ---- frames ------------------------------------------------------------- */

int64_t kvt_frame_encode(void *dst, int64_t capacity, const void *src, int64_t nbytes,
			 int64_t nplanes, int level, ZSTD_CCtx *context)
{
	int64_t noise = count_noise(src, nbytes / nplanes, nplanes, level);

	if (noise)
		return join(dst, capacity, src, nbytes, nplanes, noise, level, context);
	return encode_planes(dst, capacity, src, nbytes, nplanes, level, WHOLE, context);
}

int64_t kvt_frame_content(const void *frame, int64_t nframe)
{
	unsigned long long n = ZSTD_getFrameContentSize(frame, (size_t)nframe);

	/* The two error values are the largest there are. */
	return n > INT64_MAX ? -1 : (int64_t)n;
}

bool kvt_frame_has_sum(const void *frame, int64_t nframe)
{
	/* a bit of the descriptor, which follows the magic number */
	return nframe > 4 && ((const uint8_t *)frame)[4] & 1 << 2;
}

enum kvt_status kvt_frame_check(const void *frame, int64_t nframe,
				int64_t nbytes, struct kvt_error *err)
{
	int64_t content;
	size_t size;

	if (nframe < 4 || ZSTD_isError(size = ZSTD_findFrameCompressedSize(
						frame, (size_t)nframe)))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld bytes are not a whole zstd frame", LL(nframe));
	if (size != (size_t)nframe)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld bytes follow the zstd frame",
				LL(nframe - (int64_t)size));
	content = kvt_frame_content(frame, nframe);
	if (content < 0)
		return kvt_fail(err, KVT_BAD_INPUT, "zstd frame has no content size");
	if (content != nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"zstd frame says it holds %lld bytes, expected %lld", LL(content),
				LL(nbytes));
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
	got = ZSTD_decompressDCtx(context, dst, (size_t)nbytes, frame, (size_t)nframe);
	if (ZSTD_isError(got))
		return kvt_fail(err, KVT_BAD_INPUT, "zstd frame is damaged (%s)",
				ZSTD_getErrorName(got));
	if (got != (size_t)nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"zstd frame holds %zu bytes, expected %lld",
				got, LL(nbytes));
	return KVT_OK;
}
