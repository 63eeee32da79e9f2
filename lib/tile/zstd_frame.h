/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstd_frame.h - the three stages of a stored tile: byte shuffle, one zstd
 * frame, Fletcher-32; shared with the HDF5 plugin, so it knows no HDF5
 *
 * Every function is pure in its arguments; a context belongs to one thread.
 */
#ifndef KVT_ZSTD_FRAME_H
#define KVT_ZSTD_FRAME_H

#include <stddef.h>

#include <zstd.h>

#include "lib/kvt/kvt.h"

enum {
	KVT_ZSTD_LEVEL = 1,		/* the default, tuned in zstd_frame.c */
	KVT_FLETCHER32_BYTES = 4,
};

/*
 * HDF5's filter 2: byte p of every element goes to plane p.  'nbytes' is a
 * multiple of 'elem'; the buffers do not overlap.
 */
void kvt_shuffle(void *dst, const void *src, int64_t nbytes, int64_t elem);
void kvt_unshuffle(void *dst, const void *src, int64_t nbytes, int64_t elem);

/*
 * HDF5's filter 3 over 'nbytes' bytes.  HDF5 appends the value in little-endian
 * order.
 */
uint32_t kvt_fletcher32(const void *bytes, int64_t nbytes);
/* The three as on a processor without AVX2: for tests. */
void kvt_shuffle_plain(void *dst, const void *src, int64_t nbytes, int64_t elem);
void kvt_unshuffle_plain(void *dst, const void *src, int64_t nbytes, int64_t elem);
uint32_t kvt_fletcher32_plain(const void *bytes, int64_t nbytes);

/*
 * One standard frame with content size and checksum, in which a block ends
 * where one of the 'nplanes' equal planes of 'src' ends.  'level' is clamped to
 * what zstd has.  Returns the bytes of the frame, or 0 if it does not fit
 * 'capacity' or zstd is out of memory.
 */
int64_t kvt_frame_encode(void *dst, int64_t capacity, const void *src, int64_t nbytes,
			 int64_t nplanes, int level, ZSTD_CCtx *context);

/*
 * Is this exactly one frame that says that it holds 'nbytes' bytes?  Looks at
 * the headers only.
 */
KVT_MUST_CHECK enum kvt_status
kvt_frame_check(const void *frame, int64_t nframe, int64_t nbytes, struct kvt_error *err);

/* What the header says, or -1 if it says nothing or is no frame's. */
int64_t kvt_frame_content(const void *frame, int64_t nframe);

/* Has it a checksum of its content?  Frames need none. */
bool kvt_frame_has_sum(const void *frame, int64_t nframe);

/* kvt_frame_check(), then decodes it; a checksum of the frame must be right. */
KVT_MUST_CHECK enum kvt_status
kvt_frame_decode(void *dst, int64_t nbytes, const void *frame, int64_t nframe,
		 ZSTD_DCtx *context, struct kvt_error *err);

#endif
