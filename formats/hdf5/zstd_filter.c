/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd_filter.c - HDF5 filter 32015 (zstd), stricter than the ones in use
 *
 * kvtool itself encodes and decodes tiles outside HDF5 (lib/tile/codec.c).  This is for
 * other programs, through the plugin, and because HDF5 creates no dataset whose
 * filters it does not know.
 */
#include "formats/hdf5/zstd_filter.h"

#include <stdlib.h>

#include "lib/tile/zstd_frame.h"

/*
 * Buffers come from HDF5 and go back to it.  The plugin is linked with no HDF5: one that
 * it brought would be a second one wherever the process has its own, as that of h5py's
 * wheel, which nobody else sees.  What is in sight is used, else malloc() and free(), on
 * which HDF5's own functions rest.
 */
#pragma weak H5allocate_memory
#pragma weak H5free_memory

static void *allocate(size_t n)
{
	return H5allocate_memory ? H5allocate_memory(n, false) : malloc(n);
}

static void release(void *memory)
{
	if (H5free_memory)
		H5free_memory(memory);
	else
		free(memory);
}

/*
 * HDF5 gives no bound for what a chunk may decode to, only that a chunk is
 * below 4 GiB; the frame's word is checked against that and against what zstd
 * can do with so few bytes, before anything is allocated.
 */
enum { MAX_RATIO = 1 << 16 };

static void *decode(size_t *n, const void *frame, size_t nframe)
{
	int64_t size = kvt_frame_content(frame, (int64_t)nframe);
	ZSTD_DCtx *context;
	void *plain;

	if (size <= 0 || size > UINT32_MAX || size / MAX_RATIO > (int64_t)nframe)
		return NULL;
	if (kvt_frame_check(frame, (int64_t)nframe, size, NULL))
		return NULL;
	context = ZSTD_createDCtx();
	plain = context ? allocate((size_t)size) : NULL;
	if (plain && kvt_frame_decode(plain, size, frame, (int64_t)nframe,
				      context, NULL)) {
		release(plain);
		plain = NULL;
	}
	ZSTD_freeDCtx(context);
	*n = (size_t)size;
	return plain;
}

static void *encode(size_t *n, const void *plain, size_t nplain, int level)
{
	int64_t bound = (int64_t)ZSTD_compressBound(nplain) + 256;
	ZSTD_CCtx *context = ZSTD_createCCtx();
	void *frame = context ? allocate((size_t)bound) : NULL;
	int64_t size = 0;

	if (frame)
		size = kvt_frame_encode(frame, bound, plain, (int64_t)nplain, 1,
					level, context);
	ZSTD_freeCCtx(context);
	if (size == 0) {
		release(frame);
		return NULL;
	}
	*n = (size_t)size;
	return frame;
}

static size_t filter(unsigned flags, size_t nvalues, const unsigned values[],
		     size_t nbytes, size_t *buf_size, void **buf)
{
	int level = nvalues > 0 ? (int)values[0] : KVT_ZSTD_LEVEL;
	size_t n = 0;
	void *out = flags & H5Z_FLAG_REVERSE ?
		    decode(&n, *buf, nbytes) : encode(&n, *buf, nbytes, level);

	if (!out)
		return 0;	/* *buf stays HDF5's, as it was */
	release(*buf);
	*buf = out;
	*buf_size = n;
	return n;
}

const H5Z_class2_t kvt_zstd_filter = {
	.version         = H5Z_CLASS_T_VERS,
	.id              = KVT_ZSTD_FILTER,
	.encoder_present = 1,
	.decoder_present = 1,
	.name            = "Zstandard (HDF5 filter 32015)",
	.filter          = filter,
};
