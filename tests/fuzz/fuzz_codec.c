/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_codec.c - any bytes as a stored tile: decoding reports an error or gives
 * a tile, and that tile survives another round
 */
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/tile.h"
#include "lib/kvt/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first bytes choose the pipeline, the mask and the size of the tile. */
enum { HEAD = 3, MOST = 1 << 16 };

static void choose_tiling(struct kvt_tiling *tiling, const uint8_t *head)
{
	static const int64_t elem[] = { 1, 2, 4, 8 };

	tiling->shuffle = head[0] & 1;
	tiling->zstd = head[0] & 2;
	tiling->fletcher32 = head[0] & 4;
	tiling->elem = elem[head[0] >> 3 & 3];
	tiling->nbytes = (1 + head[1]) * (MOST / 256);
	tiling->level = 1;
}

/* Both buffers hold MOST bytes. */
static void again(const uint8_t *tile, uint8_t *back,
		  const struct kvt_tiling *tiling,
		  struct kvt_codec_scratch *scratch)
{
	struct kvt_stored stored = { .capacity = kvt_stored_bound(tiling) };

	stored.bytes = malloc((size_t)stored.capacity);
	if (kvt_encode(&stored, tile, tiling, scratch, NULL) ||
	    kvt_stored_check(&stored, tiling, NULL) ||
	    kvt_decode(back, &stored, tiling, scratch, NULL) ||
	    memcmp(tile, back, (size_t)tiling->nbytes))
		abort();
	free(stored.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t tile[MOST], back[MOST];
	struct kvt_tiling tiling = { .level = 1 };
	struct kvt_stored stored = { 0 };
	struct kvt_codec_scratch *scratch;
	enum kvt_status checked, decoded;
	struct kvt_error err;

	if (size < HEAD || kvt_codec_scratch_new(&scratch, NULL))
		return 0;
	choose_tiling(&tiling, data);
	stored.filter_mask = data[2];
	stored.nbytes = stored.capacity = (int64_t)size - HEAD;
	/* exactly as large as it is, so that reading on is noticed */
	stored.bytes = malloc(size - HEAD + (size == HEAD));
	memcpy(stored.bytes, data + HEAD, size - HEAD);

	checked = kvt_stored_check(&stored, &tiling, &err);
	decoded = kvt_decode(tile, &stored, &tiling, scratch, &err);
	/* what the check finds, decoding must find too */
	if (checked && !decoded)
		abort();
	if (!decoded)
		again(tile, back, &tiling, scratch);
	free(stored.bytes);
	kvt_codec_scratch_free(scratch);
	return 0;
}
