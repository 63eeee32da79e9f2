/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling.c - chunks as tiles: which ones a new file gets, which ones a
 * foreign file has, and the filters on them
 *
 *	a tile	1 layer  n blocks  all slots  1 head  keys or values  all elements
 *		n: the least power of two that makes 32 KiB
 *
 * Inside it only blocks, slots and elements vary, so its bytes are the same in every
 * layout that has these in that order, and tiles move from file to file as they are
 * stored.  Of a recurrent state heads take the place of blocks, or all of them are in
 * one.
 */
#include "formats/hdf5/hdf5.h"

#include <string.h>

#include "formats/hdf5/zstd_filter.h"
#include "lib/tile/zstd_frame.h"

/*
 * Least bytes of a tile.  Smaller ones compress worse and slower (the table in
 * lib/tile/zstd_frame.c), larger ones make a reader of a few blocks decode more.
 */
#ifndef KVT_TILE_BYTES
#define KVT_TILE_BYTES (32 << 10)
#endif

/* HDF5 keeps the bytes of a chunk in 32 bits. */
static const int64_t MAX_TILE = INT64_C(1) << 31;

/* ---- new files ---------------------------------------------------------- */

/* The smallest power of two of 'unit' that reaches 'least' bytes. */
static int64_t doubled(int64_t unit, int64_t least)
{
	int64_t n = 1;

	while (n * unit < least && 2 * n * unit <= MAX_TILE)
		n *= 2;
	return n;
}

/*
 * A tile larger than all blocks of a head holds nothing more, but takes memory
 * of that size.  The default is the same for all dumps, so that tiles can move.
 */
static int64_t clamp(int64_t asked, const struct kvt_group *group)
{
	const int64_t *n = group->shape.n;
	int64_t most = n[KVT_AXIS_B] * n[KVT_AXIS_S] * n[KVT_AXIS_D] * group->shape.elem;

	if (most < KVT_TILE_BYTES)
		most = KVT_TILE_BYTES;
	if (most > MAX_TILE)
		most = MAX_TILE;
	return asked < most ? asked : most;
}

/*
 * One layer, one head, K and V apart: then only B, S and D vary inside a tile,
 * and its bytes are the same in most layouts.  The block axis may be cut
 * anywhere, as the dataset may grow to whole tiles; the others may not.
 */
static void plain_extents(int64_t n[KVT_NAXES], const struct kvt_group *group,
			  int64_t least)
{
	const int64_t *shape = group->shape.n;
	int64_t block = shape[KVT_AXIS_S] * shape[KVT_AXIS_D] * group->shape.elem;

	for (int a = 0; a < KVT_NAXES; a++)
		n[a] = 1;
	n[KVT_AXIS_S] = shape[KVT_AXIS_S];
	n[KVT_AXIS_D] = shape[KVT_AXIS_D];
	if (group->kind == KVT_MAMBA_SSM) {
		/* one state a request: blocks of states are rarely neighbours */
		n[KVT_AXIS_H] = doubled(block, least);
		if (n[KVT_AXIS_H] > shape[KVT_AXIS_H])
			n[KVT_AXIS_H] = shape[KVT_AXIS_H];
	} else if (group->kind == KVT_MAMBA_CONV) {
		n[KVT_AXIS_H] = shape[KVT_AXIS_H];
	} else {
		n[KVT_AXIS_B] = doubled(block, least);
	}
}

static bool is_split(const struct kvt_layout *layout, enum kvt_axis axis)
{
	for (int p = 0; p < layout->nplanes; p++)
		for (int i = 0; i < layout->plane[p].nparts; i++)
			if (layout->plane[p].part[i].axis == axis &&
			    layout->plane[p].part[i].kind != KVT_WHOLE)
				return true;
	return false;
}

/*
 * Take over the extents of another file's tiles where this shape allows it.
 * Slots of consecutive blocks are consecutive, so it is their number in a tile
 * that counts, however many blocks they are.  No tile holds a part of a block or
 * of a slot's content: a content cell is hashed in its tile.  Tiles of another
 * width, such as those of another group, are no example.
 */
static void like_extents(int64_t n[KVT_NAXES], const struct kvt_group *group,
			 const struct kvt_tiling *like)
{
	const int64_t *shape = group->shape.n;
	int64_t slots = like->n[KVT_AXIS_B] * like->n[KVT_AXIS_S];

	if (like->n[KVT_AXIS_D] != shape[KVT_AXIS_D])
		return;
	for (int a = 0; a < KVT_NAXES; a++) {
		if (a == KVT_AXIS_B || a == KVT_AXIS_S || like->n[a] > shape[a] ||
		    (a == KVT_AXIS_K && group->layout.nplanes == 2) ||
		    is_split(&group->layout, a))
			continue;
		n[a] = like->n[a];
	}
	if (slots % shape[KVT_AXIS_S] == 0)
		n[KVT_AXIS_B] = slots / shape[KVT_AXIS_S];
}

enum kvt_status kvt_h5_choose_tiling(struct kvt_tiling *out,
				     const struct kvt_group *group,
				     const struct kvt_create_options *options,
				     struct kvt_error *err)
{
	int64_t least = options->tile_bytes > 0 ? options->tile_bytes : KVT_TILE_BYTES;
	struct kvt_tiling tiling = {
		.elem = group->shape.elem,
		.shuffle = group->shape.elem > 1,
		.zstd = true,
		.fletcher32 = true,
		.level = options->level ? options->level : KVT_ZSTD_LEVEL,
	};
	struct kvt_shape shape = { .elem = tiling.elem };

	if (tiling.level < 1 || tiling.level > ZSTD_maxCLevel())
		return kvt_fail(err, KVT_USAGE,
				"zstd level is %d, expected 1 to %d",
				tiling.level, ZSTD_maxCLevel());
	plain_extents(tiling.n, group, clamp(least, group));
	if (options->like)
		like_extents(tiling.n, group, options->like);
	memcpy(shape.n, tiling.n, sizeof(shape.n));
	if (kvt_shape_nbytes(&tiling.nbytes, &shape, NULL) || tiling.nbytes > MAX_TILE)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"group %s: a block and head of %lld slots is too large for an HDF5 chunk",
				group->id, LL(group->shape.n[KVT_AXIS_S]));
	*out = tiling;
	return KVT_OK;
}

bool kvt_h5_set_filters(hid_t dcpl, const struct kvt_tiling *tiling)
{
	unsigned level = (unsigned)tiling->level;

	return (!tiling->shuffle || H5Pset_shuffle(dcpl) >= 0) &&
	       (!tiling->zstd ||
		H5Pset_filter(dcpl, KVT_ZSTD_FILTER, H5Z_FLAG_MANDATORY, 1,
			      &level) >= 0) &&
	       (!tiling->fletcher32 || H5Pset_fletcher32(dcpl) >= 0);
}

/* ---- foreign files: filters --------------------------------------------- */

/* Each of these at most once, and in this order. */
static bool take_filter(struct kvt_tiling *tiling, H5Z_filter_t id,
			const unsigned *values, size_t nvalues)
{
	bool *stage = id == H5Z_FILTER_SHUFFLE ? &tiling->shuffle :
		      id == KVT_ZSTD_FILTER ? &tiling->zstd :
		      id == H5Z_FILTER_FLETCHER32 ? &tiling->fletcher32 : NULL;
	bool late = id == H5Z_FILTER_SHUFFLE ?
		    tiling->zstd || tiling->fletcher32 :
		    id == KVT_ZSTD_FILTER && tiling->fletcher32;

	if (!stage || *stage || late)
		return false;
	*stage = true;
	if (id == KVT_ZSTD_FILTER)
		tiling->level = nvalues > 0 ? (int)values[0] : KVT_ZSTD_LEVEL;
	return true;
}

static bool read_filters(struct kvt_tiling *tiling, struct kvt_h5_in *in, hid_t dataset,
			 hid_t dcpl)
{
	enum { VALUES = 8 };
	int count = H5Pget_nfilters(dcpl);

	if (count < 0)
		return kvt_h5_bad(in, dataset, "unreadable filters");
	for (int i = 0; i < count; i++) {
		unsigned flags, config, values[VALUES] = { 0 };
		size_t nvalues = VALUES;
		char name[64] = "";
		H5Z_filter_t id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &nvalues,
						 values, sizeof(name), name, &config);

		if (id < 0)
			return kvt_h5_bad(in, dataset, "unreadable filters");
		/* HDF5 counts them all, also those that found no room */
		if (nvalues > VALUES)
			nvalues = VALUES;
		if (!take_filter(tiling, id, values, nvalues))
			return kvt_h5_refuse(in, dataset, KVT_UNSUPPORTED,
					     "filter %d (%s) as stage %d, expected shuffle, zstd (%d), fletcher32",
					     (int)id, name, i, KVT_ZSTD_FILTER);
		if (id == H5Z_FILTER_SHUFFLE &&
		    (nvalues < 1 || values[0] != (unsigned)tiling->elem))
			return kvt_h5_bad(in, dataset,
					  "shuffle of %u bytes on elements of %lld",
					  values[0], LL(tiling->elem));
	}
	return true;
}

/* ---- foreign files: extents --------------------------------------------- */

/* A chunk is a tile if it is a box of L B S H K D: no cut through a split. */
static bool read_extents(struct kvt_tiling *tiling, struct kvt_h5_in *in, hid_t dataset,
			 const hsize_t *chunk, const struct kvt_h5_axes *axes)
{
	for (int a = 0; a < KVT_NAXES; a++)
		tiling->n[a] = 1;
	for (int i = 0; i < axes->rank; i++) {
		const struct kvt_part *part = &axes->part[i];
		hsize_t most = (hsize_t)axes->extent[i];

		if (part->kind == KVT_INNER && chunk[i] != most)
			return kvt_h5_refuse(in, dataset, KVT_UNSUPPORTED,
					     "chunks cut %s, which has %llu, into %llu",
					     kvt_h5_label(axes, i),
					     (unsigned long long)most,
					     (unsigned long long)chunk[i]);
		if (part->kind == KVT_INNER)
			continue;
		if (part->axis != KVT_AXIS_B && most > 0 && chunk[i] > most)
			return kvt_h5_refuse(in, dataset, KVT_UNSUPPORTED,
					     "chunks of %llu along %s, which has %llu",
					     (unsigned long long)chunk[i],
					     kvt_h5_label(axes, i),
					     (unsigned long long)most);
		/* below 2^32 times a split that divides a checked extent */
		tiling->n[part->axis] = (int64_t)chunk[i] * axes->split[i];
	}
	return true;
}

/*
 * Every tile is in a complete file, with an entry of the index for it, and zstd
 * makes at most 128 KiB out of 4 bytes.  A file that promises more than it can
 * hold would only make its reader ask for memory.
 */
static bool check_plausible(const struct kvt_tiling *tiling, struct kvt_h5_in *in,
			    hid_t dataset, const struct kvt_shape *shape)
{
	int64_t ntiles = 1, least = tiling->zstd ? tiling->nbytes >> 15 : tiling->nbytes;

	for (int a = 0; a < KVT_NAXES; a++) {
		int64_t n = shape->n[a] / tiling->n[a] +
			    (shape->n[a] % tiling->n[a] != 0);

		if (__builtin_mul_overflow(ntiles, n, &ntiles))
			ntiles = INT64_MAX;
	}
	if (least < 8)
		least = 8;
	return ntiles <= in->nbytes / least ||
	       kvt_h5_bad(in, dataset,
			  "%lld tiles of %lld bytes are not in a file of %lld bytes",
			  LL(ntiles), LL(tiling->nbytes), LL(in->nbytes));
}

bool kvt_h5_read_tiling(struct kvt_tiling *out, struct kvt_h5_in *in, hid_t dataset,
			hid_t dcpl, const struct kvt_group *group,
			const struct kvt_h5_axes *axes)
{
	struct kvt_tiling tiling = { .elem = group->shape.elem };
	struct kvt_shape shape = { .elem = group->shape.elem };
	hsize_t chunk[KVT_MAX_PARTS];

	if (H5Pget_chunk(dcpl, axes->rank, chunk) != axes->rank)
		return kvt_h5_bad(in, dataset, "unreadable chunk extents");
	if (!read_extents(&tiling, in, dataset, chunk, axes) ||
	    !read_filters(&tiling, in, dataset, dcpl))
		return false;
	memcpy(shape.n, tiling.n, sizeof(shape.n));
	if (kvt_shape_nbytes(&tiling.nbytes, &shape, NULL) ||
	    tiling.nbytes < 1 || tiling.nbytes > UINT32_MAX)
		return kvt_h5_bad(in, dataset, "chunks of 4 GiB or more");
	*out = tiling;
	return check_plausible(&tiling, in, dataset, &group->shape);
}
