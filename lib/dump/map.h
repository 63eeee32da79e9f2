/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - where a rewritten dump comes from: a file, a part of one, or several
 *
 * A source looks like a reader.  Behind it, layers and blocks are looked up in
 * lists, and heads, channels and some of the blocks come from the reader that
 * holds them.  What is not wanted is not read, and a stored tile that is wanted
 * as it is can still move undecoded.
 */
#ifndef KVTOOL_SOURCE_H
#define KVTOOL_SOURCE_H

#include "lib/dump/pipeline.h"

/* Positions from, from + 1, ... of the reader stand at, at + 1, ... here. */
struct source_run {
	int64_t at, from, count;
};

/* What one reader gives to a group. */
struct source_part {
	int reader;
	struct source_run heads;
	struct source_run kv;		/* keys, values, or both */
	int nruns;			/* along D: one, or the parts of a conv state */
	struct source_run run[KVT_MAX_COMPONENTS];
};

/* States of a block here that follow each other in a block of the reader. */
struct source_span {
	uint32_t block, state;		/* in the reader */
	uint32_t at, count;		/* in the block here */
};

struct source_group {
	int from;			/* number of the group in the readers */
	int64_t *layer, *block;		/* indices in the readers, ascending */
	/*
	 * Blocks of another size: b is span[first[b]] to before
	 * span[first[b + 1]], by 'at', and zeros elsewhere.  One part then has
	 * all heads, and 'layer' all layers.  NULL: 'block' says which.
	 */
	int64_t *first;
	struct source_span *span;
	int nparts;
	struct source_part *part;
	/*
	 * Blocks that come from another dump of the same states instead: the
	 * same again, with -1 in 'block' where they do not.  NULL: none.
	 */
	struct source_group *graft;
	bool has_cells, cells_proven;	/* filled by source_seal() */
	struct kvt_tiling tiling;
};

/* Data of a group that stand in for the readers', all of it, in one order. */
struct overlay {
	int group;
	const struct kvt_layout *layout;
	uint8_t *bytes;
};

struct source {
	int nreaders;
	struct kvt_dump **reader;	/* the caller closes them */
	bool whole;			/* one reader as it is; nothing below is used */
	struct kvt_snapshot snapshot;
	struct source_group group[KVT_MAX_GROUPS];
	const struct overlay *overlay;	/* borrowed; NULL: none */
};

/*
 * Options that describe a file are for files that do not describe themselves: of
 * several inputs each may have a layout of its own.  Facts say which part of a file
 * is meant, and in what order: they count for each whose format knows them.
 */
KVT_MUST_CHECK enum kvt_status
open_as_told(struct kvt_dump **out, const char *name, const struct kvt_hints *hints,
	     struct kvt_error *err);

/* Whatever --force allows: KVT_USAGE if 'path' is a file of this input. */
KVT_MUST_CHECK enum kvt_status
refuse_own_file(const char *path, const struct kvt_dump *reader, struct kvt_error *err);

/* All of a reader.  '*reader' must outlive the source. */
struct source source_whole(struct kvt_dump **reader);

/* All of group 'index' of the first reader, for a source of several groups. */
KVT_MUST_CHECK enum kvt_status
source_map_whole(struct source_group *map, const struct kvt_group *group, int index,
		 struct kvt_error *err);

/*
 * Call when snapshot and groups are filled: finds out whether heads and content
 * leave the readers' tiles as they are.
 */
void source_seal(struct source *source);

/* Frees the snapshot and the lists. */
void source_free(struct source *source);

/* As the functions of a reader, see lib/kvt/snapshot.h and lib/dump/pipeline.h. */
const struct kvt_snapshot *source_snapshot(const struct source *source);
const struct kvt_tiling *source_tiling(const struct source *source, int group);
/*
 * Is each of those tiles in the box, by layers and blocks, one of the reader?
 * Where a list cuts tiles or joins them it is not, and must be read.
 */
bool source_has_tiles(const struct source *source, int group,
		      const struct kvt_box *box);
bool source_has_cells(const struct source *source, int group);
/* Are they those that were stored?  Others must be made again, not copied. */
bool source_cells_proven(const struct source *source, int group);
/* Do blocks that are neighbours here come from tiles all over the reader? */
bool source_is_scattered(const struct source *source, int group);

KVT_MUST_CHECK enum kvt_status
source_fetch_tile(struct worker *worker, const struct source *source, int group,
		  const int64_t begin[KVT_NAXES], struct kvt_stored *out,
		  struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
source_fetch_cells(const struct source *source, int group,
		   const struct kvt_box *box, uint64_t *cells,
		   struct kvt_error *err);

/* The box holds all of S, H, K and D. */
KVT_MUST_CHECK enum kvt_status
source_read_box(struct worker *worker, const struct source *source, int group,
		const struct kvt_box *box, uint8_t *buf, struct kvt_error *err);

/*
 * The checksums of the tiles that a box needs, which are not decoded; all readers
 * have tiles.
 */
KVT_MUST_CHECK enum kvt_status
source_check_tiles(struct worker *worker, const struct source *source, int group,
		   const struct kvt_box *box, struct kvt_error *err);

/* Room for source_read_box() of boxes of this cut. */
void work_needs_source(struct work *work, const struct source *source, int group,
		       const struct cut *cut);

static inline struct kvt_dump *reader_of(const struct source *source,
					   const struct source_part *part)
{
	return source->reader[part->reader];
}

static inline const struct kvt_group *reader_group(const struct kvt_dump *reader,
						   int group)
{
	return &kvt_dump_snapshot(reader)->group[group];
}

/* ---- pieces of a reader: source_read.c ---------------------------------- */

/*
 * Walks a box by layers and blocks that a reader has together: neighbours, or
 * all in one tile.  Entries of the lists below 0 are in no reader and stand
 * alone.
 */
struct pieces {
	struct kvt_box all, here;
	const int64_t *layer, *block;
	int64_t tile[2];		/* of L and B; 0: flat */
};
struct pieces pieces_of(const struct kvt_box *box, const int64_t *layer,
			const int64_t *block, const struct kvt_tiling *tiling);
bool piece_next(struct pieces *pieces);
/* The same layers and blocks in the reader; other axes as in the box. */
struct kvt_box piece_there(const struct pieces *pieces);

static inline bool piece_is_there(const struct pieces *pieces)
{
	return pieces->layer[pieces->here.begin[KVT_AXIS_L]] >= 0 &&
	       pieces->block[pieces->here.begin[KVT_AXIS_B]] >= 0;
}

static inline void box_take(struct kvt_box *box, enum kvt_axis axis, int64_t begin,
			    int64_t count)
{
	box->begin[axis] = begin;
	box->end[axis] = begin + count;
}

/*
 * Reads 'box' of a reader's group, or the whole tiles it lies in, into the
 * worker's SOURCE_BUFFER and says in 'out' what is there.
 */
KVT_MUST_CHECK enum kvt_status
read_around(struct placed *out, struct worker *worker, struct kvt_dump *reader,
	    int group, const struct kvt_box *box, struct kvt_error *err);

/* Room for read_around() of pieces of up to that many layers and blocks. */
void work_needs_pieces(struct work *work, const struct kvt_dump *reader, int group,
		       int64_t layers, int64_t blocks);

/* ---- states of blocks: source_spans.c ----------------------------------- */

/* A span and the block here that it is for. */
struct wanted {
	struct source_span span;
	int64_t to;
};

/* Spans that were read together, ordered by their place in the reader. */
struct spans_read {
	struct placed src;
	int64_t layers[2];		/* begin, end */
	const struct wanted *wanted;
	int64_t n;
};
typedef enum kvt_status spans_fn(void *context, const struct spans_read *read,
				 struct kvt_error *err);

/*
 * Reads what is wanted of some layers and hands it over piece by piece; sorts
 * 'wanted'.  'rows' bounds the states of a piece and is what room was asked for.
 */
KVT_MUST_CHECK enum kvt_status
each_spans(struct worker *worker, struct kvt_dump *reader, int group,
	   const int64_t layers[2], struct wanted *wanted, int64_t n, int64_t rows,
	   spans_fn *fn, void *context, struct kvt_error *err);
void work_needs_spans(struct work *work, const struct kvt_dump *reader, int group,
		      int64_t layers, int64_t rows);

/* source_read_box() of a group that has spans. */
KVT_MUST_CHECK enum kvt_status
read_spans(struct worker *worker, const struct source *source, int group,
	   const struct kvt_box *box, uint8_t *buf, struct kvt_error *err);

/* Is each tile of the source a tile of the reader?  'out': its extents. */
bool spans_keep_tiles(struct kvt_tiling *out, const struct source *source, int group);

#endif
