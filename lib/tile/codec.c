/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c - plain tile <-> stored tile: the filter pipeline of a snapshot
 * (shuffle, zstd, Fletcher-32) without HDF5, so that any thread may run it
 *
 *	plain		n elements of e bytes
 *	shuffled	byte 0 of all elements, then byte 1 of all, ...
 *	framed		one zstd frame of that, if it is shorter
 *	stored		that, and 4 bytes of Fletcher-32, little-endian
 *
 * A bit of filter_mask says which stages were left out, by their number in the pipeline,
 * as HDF5 counts them.  In and out are the caller's buffers; all lengths are checked
 * against the tiling before anything is decoded, and the checksum before the frame is.
 */
#include "lib/tile/codec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/tile/zstd_frame.h"
#include "lib/base/little_endian.h"

struct kvt_codec_scratch {
	ZSTD_CCtx *compress;
	ZSTD_DCtx *decompress;
	uint8_t *planes;		/* a shuffled tile */
	int64_t capacity;		/* of planes */
};

enum kvt_status kvt_codec_scratch_new(struct kvt_codec_scratch **out,
				      struct kvt_error *err)
{
	struct kvt_codec_scratch *scratch = calloc(1, sizeof(*scratch));

	if (scratch) {
		scratch->compress = ZSTD_createCCtx();
		scratch->decompress = ZSTD_createDCtx();
	}
	if (!scratch || !scratch->compress || !scratch->decompress) {
		kvt_codec_scratch_free(scratch);
		return kvt_no_memory(err, NULL);
	}
	*out = scratch;
	return KVT_OK;
}

void kvt_codec_scratch_free(struct kvt_codec_scratch *scratch)
{
	if (!scratch)
		return;
	ZSTD_freeCCtx(scratch->compress);
	ZSTD_freeDCtx(scratch->decompress);
	free(scratch->planes);
	free(scratch);
}

static enum kvt_status reserve(struct kvt_codec_scratch *scratch,
			       int64_t nbytes, struct kvt_error *err)
{
	uint8_t *planes;

	if (scratch->capacity >= nbytes)
		return KVT_OK;
	planes = malloc((size_t)nbytes);
	if (!planes)
		return kvt_fail(err, KVT_SYSTEM,
				"out of memory for a tile of %lld bytes", LL(nbytes));
	free(scratch->planes);
	scratch->planes = planes;
	scratch->capacity = nbytes;
	return KVT_OK;
}

/* ---- the pipeline ------------------------------------------------------- */

bool kvt_tiling_same_codec(const struct kvt_tiling *a, const struct kvt_tiling *b)
{
	/* The level says how hard zstd tried; any frame means the same. */
	return a->nbytes == b->nbytes && a->elem == b->elem &&
	       a->shuffle == b->shuffle && a->zstd == b->zstd &&
	       a->fletcher32 == b->fletcher32;
}

int64_t kvt_stored_bound(const struct kvt_tiling *tiling)
{
	/* 256: what block headers at plane ends may add to zstd's own bound. */
	return (int64_t)ZSTD_compressBound((size_t)tiling->nbytes) + 256 +
	       KVT_FLETCHER32_BYTES;
}

/* The bits of a filter mask: a stage is numbered by its place in the pipeline. */
struct stages {
	uint32_t shuffle, zstd, fletcher32, all;
};

static struct stages stages_of(const struct kvt_tiling *tiling)
{
	struct stages s = { 0 };
	uint32_t bit = 1;

	if (tiling->shuffle)
		s.shuffle = bit, bit <<= 1;
	if (tiling->zstd)
		s.zstd = bit, bit <<= 1;
	if (tiling->fletcher32)
		s.fletcher32 = bit, bit <<= 1;
	s.all = bit - 1;
	return s;
}

bool kvt_stored_bare(const struct kvt_stored *stored, const struct kvt_tiling *tiling)
{
	struct stages s = stages_of(tiling);
	uint32_t made = s.all & ~stored->filter_mask;

	return !(made & s.fletcher32) &&
	       !((made & s.zstd) && kvt_frame_has_sum(stored->bytes, stored->nbytes));
}

/* ---- decode ------------------------------------------------------------- */

/* Checks and takes off the checksum; 'nbytes' is what stands before it. */
static enum kvt_status check_sum(int64_t *nbytes, const struct kvt_stored *stored,
				 struct kvt_error *err)
{
	int64_t n = stored->nbytes - KVT_FLETCHER32_BYTES;
	uint32_t sum, expected;

	if (n < 0)
		return kvt_fail(err, KVT_BAD_INPUT,
				"stored tile has %lld bytes, too few for its checksum",
				LL(stored->nbytes));
	sum = kvt_fletcher32(stored->bytes, n);
	expected = kvt_le32(stored->bytes + n);
	if (sum != expected)
		return kvt_fail(err, KVT_BAD_INPUT,
				"stored tile is damaged: Fletcher-32 is %08x, expected %08x", sum,
				expected);
	*nbytes = n;
	return KVT_OK;
}

/* Everything but the frame's content; gives the bytes before the checksum. */
static enum kvt_status check_stored(int64_t *nbytes, const struct kvt_stored *stored,
				    const struct kvt_tiling *tiling,
				    struct kvt_error *err)
{
	struct stages s = stages_of(tiling);
	uint32_t skipped = stored->filter_mask;
	enum kvt_status status;

	*nbytes = stored->nbytes;
	if (skipped & ~s.all)
		return kvt_fail(err, KVT_BAD_INPUT,
				"filter mask %#x of a stored tile names a stage beyond the last",
				skipped);
	if ((s.fletcher32 & ~skipped) && (status = check_sum(nbytes, stored, err)))
		return status;
	if (s.zstd & ~skipped)
		return kvt_frame_check(stored->bytes, *nbytes, tiling->nbytes, err);
	if (*nbytes != tiling->nbytes)
		return kvt_fail(err, KVT_BAD_INPUT,
				"uncompressed tile has %lld bytes, expected %lld",
				LL(*nbytes), LL(tiling->nbytes));
	return KVT_OK;
}

/* Which of several files it is that is wrong. */
static enum kvt_status name_file(enum kvt_status status, const struct kvt_stored *stored,
				 const struct kvt_error *why, struct kvt_error *err)
{
	if (!status)
		return KVT_OK;
	return kvt_fail(err, status, "%s%s%.300s", stored->path ? stored->path : "",
			stored->path ? ": " : "", why->text);
}

enum kvt_status kvt_stored_check(const struct kvt_stored *stored,
				 const struct kvt_tiling *tiling, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	int64_t nbytes;

	return name_file(check_stored(&nbytes, stored, tiling, &why), stored, &why, err);
}

static enum kvt_status decode(void *tile, const struct kvt_stored *stored,
			      const struct kvt_tiling *tiling,
			      struct kvt_codec_scratch *scratch, struct kvt_error *err)
{
	struct stages s = stages_of(tiling);
	bool shuffled = s.shuffle & ~stored->filter_mask;
	bool framed = s.zstd & ~stored->filter_mask;
	const void *plain = stored->bytes;
	enum kvt_status status;
	int64_t nbytes;

	if ((status = check_stored(&nbytes, stored, tiling, err)))
		return status;
	if (framed) {
		if (shuffled && (status = reserve(scratch, tiling->nbytes, err)))
			return status;
		plain = shuffled ? scratch->planes : tile;
		status = kvt_frame_decode(shuffled ? scratch->planes : tile,
					  tiling->nbytes, stored->bytes, nbytes,
					  scratch->decompress, err);
		if (status)
			return status;
	}
	if (shuffled)
		kvt_unshuffle(tile, plain, tiling->nbytes, tiling->elem);
	else if (!framed)
		memcpy(tile, plain, (size_t)nbytes);
	return KVT_OK;
}

enum kvt_status kvt_decode(void *tile, const struct kvt_stored *stored,
			   const struct kvt_tiling *tiling,
			   struct kvt_codec_scratch *scratch, struct kvt_error *err)
{
	struct kvt_error why = { "" };

	return name_file(decode(tile, stored, tiling, scratch, &why), stored, &why, err);
}

/* ---- encode ------------------------------------------------------------- */

enum kvt_status kvt_encode(struct kvt_stored *stored, const void *tile,
			   const struct kvt_tiling *tiling,
			   struct kvt_codec_scratch *scratch, struct kvt_error *err)
{
	struct stages s = stages_of(tiling);
	int64_t n = tiling->nbytes, nplanes = tiling->shuffle ? tiling->elem : 1;
	const void *planes = tile;
	enum kvt_status status;

	assert(stored->capacity >= kvt_stored_bound(tiling));
	if (tiling->shuffle) {
		if ((status = reserve(scratch, n, err)))
			return status;
		kvt_shuffle(scratch->planes, tile, n, tiling->elem);
		planes = scratch->planes;
	}
	stored->filter_mask = 0;
	stored->nbytes = 0;
	if (tiling->zstd) {
		stored->nbytes = kvt_frame_encode(stored->bytes,
				stored->capacity, planes, n, nplanes,
				tiling->level, scratch->compress);
		/* No gain: a reader is spared both stages. */
		if (stored->nbytes == 0 || stored->nbytes >= n) {
			stored->filter_mask = s.shuffle | s.zstd;
			planes = tile;
		}
	}
	if (!tiling->zstd || stored->filter_mask) {
		memcpy(stored->bytes, planes, (size_t)n);
		stored->nbytes = n;
	}
	if (tiling->fletcher32) {
		kvt_put_le(stored->bytes + stored->nbytes,
			   kvt_fletcher32(stored->bytes, stored->nbytes),
			   KVT_FLETCHER32_BYTES);
		stored->nbytes += KVT_FLETCHER32_BYTES;
	}
	return KVT_OK;
}
