/* SPDX-License-Identifier: Apache-2.0 */
/* codec.h - what of stored tiles only the engine asks; the rest is lib/kvt/tile.h */
#ifndef KVT_TILE_CODEC_H
#define KVT_TILE_CODEC_H

#include "lib/kvt/tile.h"

/*
 * Has it neither a Fletcher-32 nor a frame with a checksum?  Other programs make such
 * tiles, and a filter mask may leave both out: a wrong bit then decodes like any other.
 */
bool kvt_stored_bare(const struct kvt_stored *stored, const struct kvt_tiling *tiling);

#endif
