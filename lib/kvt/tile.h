/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.h - stored tiles: how a group is cut into ranges that are encoded one by one
 *
 * The chunks of HDF5.  A tile is fetched, and decoded apart from that, so that many
 * threads can decode and so that a tile can move to another file undecoded.
 */
#ifndef KVT_TILE_H
#define KVT_TILE_H

#include "lib/kvt/kvt.h"

/*
 * How a tiled group is cut and encoded.  A tile covers n[a] entries along each
 * axis, the last one of an axis possibly fewer (the stored tile is padded with
 * zeros to full size).  Its plain bytes are the dense box of the group's layout
 * (kvt_layout_views() with the full-size box).
 */
struct kvt_tiling {
	int64_t n[KVT_NAXES];
	int64_t nbytes;			/* of a plain tile */
	int64_t elem;			/* bytes of one element, for the shuffle */
	bool shuffle;			/* HDF5 filter 2 in the pipeline */
	bool zstd;			/* HDF5 filter 32015 */
	bool fletcher32;		/* HDF5 filter 3 */
	int level;			/* of zstd */
};

/* Do stored tiles of both have the same meaning, byte for byte? */
bool kvt_tiling_same_codec(const struct kvt_tiling *a, const struct kvt_tiling *b);

/* A tile as it lies in the file. */
struct kvt_stored {
	uint8_t *bytes;			/* caller's buffer */
	int64_t capacity;
	int64_t nbytes;
	uint32_t filter_mask;		/* bit i: stage i was skipped */
	const char *path;		/* for messages; whoever loads it sets it */
};

/* Where it lies there. */
struct kvt_extent {
	int64_t offset, nbytes;
	uint32_t filter_mask;
};

/* Room that any stored form of a tile needs (bound of the encoder too). */
int64_t kvt_stored_bound(const struct kvt_tiling *tiling);

/*
 * decode: checks the Fletcher-32, the frame and its checksum; anything wrong is
 * KVT_BAD_INPUT.  encode: never fails on content.  Both are pure functions of
 * their arguments and of 'scratch', of which each thread has its own.
 */
struct kvt_codec_scratch;
KVT_MUST_CHECK enum kvt_status
kvt_codec_scratch_new(struct kvt_codec_scratch **out, struct kvt_error *err);
void kvt_codec_scratch_free(struct kvt_codec_scratch *scratch);

KVT_MUST_CHECK enum kvt_status
kvt_decode(void *tile, const struct kvt_stored *stored,
	   const struct kvt_tiling *tiling, struct kvt_codec_scratch *scratch,
	   struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_encode(struct kvt_stored *stored, const void *tile,
	   const struct kvt_tiling *tiling, struct kvt_codec_scratch *scratch,
	   struct kvt_error *err);
/*
 * What can be known of a stored tile without decoding it: the Fletcher-32 and
 * the frame's declared size.  Called before a tile moves undecoded.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stored_check(const struct kvt_stored *stored,
		 const struct kvt_tiling *tiling, struct kvt_error *err);

#endif
