/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.h - reading dumps through a worker, and the boxes that this is made of
 *
 * Every read takes a target layout: the one copy from leaf to buffer puts elements
 * where they are wanted.
 */
#ifndef KVT_READ_H
#define KVT_READ_H

#include "lib/kvt/derive.h"
#include "lib/run/leaf.h"
#include "lib/run/pipeline.h"

/* ---- boxes ------------------------------------------------------------------ */

/* The box of the tile at begin: full size, and cut to what exists. */
struct kvt_box tile_box(const struct kvt_tiling *tiling, const int64_t begin[KVT_NAXES]);
struct kvt_box box_cut(const struct kvt_box *box, const struct kvt_shape *shape);
/* The part that both have; false if there is none. */
bool box_common(struct kvt_box *out, const struct kvt_box *a, const struct kvt_box *b);
/* 'inner' counted from the beginning of 'outer'. */
struct kvt_box box_inside(const struct kvt_box *inner, const struct kvt_box *outer);

static inline void box_take(struct kvt_box *box, enum kvt_axis axis, int64_t begin,
			    int64_t count)
{
	box->begin[axis] = begin;
	box->end[axis] = begin + count;
}

/* A dense box of some layout in memory. */
struct placed {
	const struct kvt_layout *layout;
	struct kvt_box box;
	uint8_t *bytes;
};

/*
 * Copies the part that both have from one to the other.  'worker' may have a device
 * for that; NULL: it has none.
 */
KVT_MUST_CHECK enum kvt_status
copy_box(struct kvt_worker *worker, const struct placed *dst, const struct placed *src,
	 const struct kvt_box *part, int64_t elem, struct kvt_error *err);
/* The same out of 'src', views over 'bytes', of which 'from' is taken. */
KVT_MUST_CHECK enum kvt_status
copy_views(struct kvt_worker *worker, const struct placed *dst, const struct kvt_box *to,
	   const struct kvt_views *src, const struct kvt_box *from, const uint8_t *bytes,
	   int64_t elem, struct kvt_error *err);
/* The same where the part has other indices in the source: 'from'. */
KVT_MUST_CHECK enum kvt_status
copy_part(struct kvt_worker *worker, const struct placed *dst, const struct kvt_box *to,
	  const struct placed *src, const struct kvt_box *from, int64_t elem,
	  struct kvt_error *err);

/* Calls fn for each tile that the box has a part of, in index order. */
typedef enum kvt_status tile_fn(struct kvt_worker *worker, void *context,
				const int64_t begin[KVT_NAXES], struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
each_tile(struct kvt_worker *worker, const struct kvt_tiling *tiling,
	  const struct kvt_box *box, tile_fn *fn, void *context, struct kvt_error *err);

/* ---- boxes of a dump ---------------------------------------------------------- */

/*
 * As kvt_dump_read(), by a worker of a run that kvt_work_reads() was asked for: of
 * boxes of that cut, or parts of them, in that layout.
 */
KVT_MUST_CHECK enum kvt_status
kvt_read(struct kvt_worker *worker, const struct kvt_dump *dump, int group,
	 const struct kvt_box *box, const struct kvt_layout *layout, void *buf,
	 struct kvt_error *err);

/* Adds the room that kvt_read() takes; once for each dump and layout. */
void kvt_work_reads(struct kvt_work *work, const struct kvt_dump *dump, int group,
		    const struct kvt_cut *cut, const struct kvt_layout *layout);

/*
 * The checksums of the tiles that a box needs, which are not decoded; all leaves
 * have tiles.
 */
KVT_MUST_CHECK enum kvt_status
kvt_check_tiles(struct kvt_worker *worker, const struct kvt_dump *dump, int group,
		const struct kvt_box *box, struct kvt_error *err);

/* Room for one tile of this kind; NULL: none. */
void work_needs_tiles(struct kvt_work *work, const struct kvt_tiling *tiling);

/* ---- boxes of a leaf ---------------------------------------------------------- */

/* A dump that is a leaf. */
struct kvt_leaf *leaf_of(const struct kvt_dump *dump);

/*
 * Reads 'box' of a leaf's group, or the whole tiles it lies in, into the worker's
 * RANGE_BUFFER, unless it lies in memory, and says in 'out' what is there.
 */
KVT_MUST_CHECK enum kvt_status
read_around(struct placed *out, struct kvt_worker *worker, const struct kvt_leaf *leaf,
	    int group, const struct kvt_box *box, struct kvt_error *err);
/* Room for read_around() of ranges of up to that many layers and blocks. */
void work_needs_ranges(struct kvt_work *work, const struct kvt_leaf *leaf, int group,
		       int64_t layers, int64_t blocks);

/*
 * Walks a box by layers and blocks that a leaf has together: neighbours, or all in
 * one tile.  Lists that are NULL have every index as it is; entries below 0 are in
 * no leaf and stand alone.
 */
struct ranges {
	struct kvt_box all, here;
	const int64_t *layer, *block;
	int64_t tile[2];		/* of L and B; 0: flat */
};
struct ranges ranges_of(const struct kvt_box *box, const int64_t *layer,
			const int64_t *block, const struct kvt_tiling *tiling);
bool range_next(struct ranges *ranges);
/* The same layers and blocks in the leaf; other axes as in the box. */
struct kvt_box range_there(const struct ranges *ranges);
bool range_is_there(const struct ranges *ranges);

/* ---- slots of a leaf: read_slots.c --------------------------------------------- */

/* Slots of a block here that follow each other in a block of the source. */
struct map_span {
	uint32_t block, slot;		/* in the source */
	uint32_t at, count;		/* in the block here */
};

/* A span of a leaf and the block here that it is for. */
struct target_span {
	struct map_span span;
	int64_t to;
};

/* Spans that were read together, ordered by their place in the leaf. */
struct spans_read {
	struct placed src;
	int64_t layers[2];		/* begin, end; of the leaf */
	const struct target_span *wanted;
	int64_t n;
};
typedef enum kvt_status spans_fn(void *context, const struct spans_read *read,
				 struct kvt_error *err);

/*
 * Reads what is wanted of neighbouring layers and hands it over range by range;
 * sorts 'wanted'.  'rows' bounds the slots of a range and is what room was asked
 * for.
 */
KVT_MUST_CHECK enum kvt_status
each_spans(struct kvt_worker *worker, const struct kvt_leaf *leaf, int group,
	   const int64_t layers[2], struct target_span *wanted, int64_t n, int64_t rows,
	   spans_fn *fn, void *context, struct kvt_error *err);
/*
 * The order of a box in which tiles are runs of bytes: layers, heads, keys and values
 * of which they have one come first, then what a tile holds, as 'layout' has it.
 * Keys and values with orders of their own keep these.
 */
struct kvt_layout tile_runs(const struct kvt_layout *layout,
			    const struct kvt_tiling *tiling,
			    const struct kvt_shape *shape);
/* Is a tile that begins at 'begin' one run of a box with tile_runs()?  Where it is. */
uint8_t *tile_run_at(const struct placed *box, const struct kvt_layout *runs,
		     const struct kvt_tiling *tiling, const int64_t begin[KVT_NAXES]);

/*
 * The layout that keys, values and states are hashed in: slot outer, then
 * content, so that each (layer, block, head, kv) is one run.
 */
extern const struct kvt_layout cell_layout;
/*
 * Are the bytes of a full tile those of its cells, one after the other?  Not asked where
 * keys and values have orders of their own.
 */
bool tile_in_cell_order(const struct kvt_layout *layout, const struct kvt_tiling *tiling);

/*
 * Is all of a group in stored tiles of one head, but for what is in no file?  Reading
 * it head by head decodes no tile twice then.
 */
bool dump_tiles_of_a_head(const struct kvt_dump *dump, int group);
/* How the tiles of the first leaf lie that a group has; NULL: it is an array. */
const struct kvt_tiling *dump_leaf_tiling(const struct kvt_dump *dump, int group);
/* What a box wants of a leaf, allocated; NULL: out of memory. */
typedef struct target_span *wanted_fn(int64_t *n, const void *context,
				      const struct kvt_box *box);
/*
 * Rows of 'tile' blocks, of a leaf of 'nblocks', that the boxes of the first layers of a
 * cut want, all boxes together; -1: out of memory.
 */
int64_t rows_of_cut(const struct kvt_cut *cut, int64_t nblocks, int64_t tile,
		    wanted_fn *wanted_in, const void *context);
/* kvt_cut_rows_fn of reading 'group' of a dump. */
struct dump_rows {
	const struct kvt_dump *dump;
	int group;
};
int64_t dump_rows(const void *context, const struct kvt_cut *cut);

void work_needs_spans(struct kvt_work *work, const struct kvt_leaf *leaf, int group,
		      int64_t layers, int64_t rows);

/* Slots of an inner part of S, which planes may split differently; 0: not split. */
struct splits {
	int64_t least, most;
};
struct splits splits_of(const struct kvt_layout *layout, int64_t elem);

#endif
