/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - what a derived dump is, and how dumps are made of dumps
 *
 * Element (l, b, s, h, k, d) of a group is, in the part that has it,
 *
 *	leaf[layer[l], block, slot, h - heads.at + heads.from, ...]
 *
 * with (block, slot) from blocks[b] and s, or from the spans of b.  Parts are
 * disjoint; what none has is zero.  A leaf as it is: one part with NULL lists.
 *
 * Parts are closed under composition.  Deriving D from M meets each part of D with
 * each part of M:
 *
 *	layers, blocks			list of list
 *	heads, kv, channels		overlap of segments
 *	spans of blocks, blocks of spans, spans of spans	spans, split where M's end
 *
 * and spans that are whole blocks become blocks again, so that stored tiles of a
 * group that was cut and joined again move undecoded.
 *
 * Cost: layers + blocks + spans of the result, times the parts; lists that several
 * parts share exist once.
 */
#ifndef KVT_MAP_H
#define KVT_MAP_H

#include "lib/dump/read.h"

/* An index of the source for each here; -1: the part does not have it. */
struct map_list {
	_Atomic int refs;
	int64_t n;
	int64_t at[];
};

/* Block b is span[first[b]] to before span[first[b + 1]], by 'at'. */
struct map_spans {
	_Atomic int refs;
	int64_t nblocks;
	int64_t *first;
	struct map_span *span;
};

struct map_part {
	struct kvt_leaf *leaf;		/* one of the dump's */
	int group;			/* of the leaf */
	struct map_list *layers;	/* NULL: as they are */
	struct map_list *blocks;	/* NULL: as they are, or spans */
	struct map_spans *spans;	/* NULL: whole blocks */
	struct kvt_segment heads, kv;
	int nchannels;
	struct kvt_segment *channels;	/* owned */
	/* found by map_seal(): what tiles of the leaf are here; nbytes 0: cut */
	struct kvt_tiling tiling;
};

struct map_group {
	int nparts;
	struct map_part *part;		/* owned */
	bool whole;			/* one part, all of a leaf's group as it is */
	bool sparse;			/* there are elements that no part has */
	/* found by map_seal() */
	struct kvt_tiling tiling;
	bool has_cells, cells_proven;
};

struct kvt_dump {
	struct kvt_snapshot snapshot;	/* of a leaf: empty, its own is in the leaf */
	bool is_leaf;
	int nleaves;
	struct kvt_leaf **leaf;		/* a reference each */
	struct map_group group[KVT_MAX_GROUPS];
};

/* ---- making them ----------------------------------------------------------- */

/* What one source gives to a group: a product of layers, blocks and segments. */
struct step_part {
	int source;			/* index of the sources */
	struct kvt_segment heads, kv;
	int nchannels;
	struct kvt_segment channel[KVT_MAX_COMPONENTS];
};

struct step_group {
	int from;			/* number of the group in the sources */
	int64_t *layer;			/* [L] indices; NULL: as they are */
	int64_t *block;			/* [B] likewise; not both of block and first */
	int64_t *first;			/* [B + 1] into span; NULL: 'block' says which */
	struct map_span *span;
	int nparts;
	struct step_part *part;
	struct step_group *next;	/* other elements; owned, NULL: none */
};

/*
 * Adds what one product has of the parts of the sources; 'there' is the group in them.
 * False: out of memory.
 */
bool map_compose(struct map_group *to, const struct step_group *step,
		 const struct kvt_group *here, const struct kvt_group *there,
		 const struct kvt_dump *const *source);
/* Finds what the parts say together: sparse, tiles, cells. */
void map_seal(struct kvt_dump *dump, const struct kvt_snapshot *snapshot);
/* As kvt_dump_has_tiles(). */
bool map_has_tiles(const struct map_group *map, const struct kvt_group *here,
		   const struct kvt_box *box);

void map_part_free(struct map_part *part);
static inline const struct kvt_group *part_group(const struct map_part *part)
{
	return &part->leaf->snapshot.group[part->group];
}

static inline const struct kvt_tiling *leaf_tiling(const struct kvt_leaf *leaf, int group)
{
	return leaf->tiling[group].nbytes ? &leaf->tiling[group] : NULL;
}

static inline const struct kvt_tiling *part_tiling(const struct map_part *part)
{
	return leaf_tiling(part->leaf, part->group);
}

/* What of a segment is inside the box. */
static inline struct kvt_segment segment_clip(const struct kvt_segment *s,
					      const struct kvt_box *box,
					      enum kvt_axis axis)
{
	int64_t begin = s->at > box->begin[axis] ? s->at : box->begin[axis];
	int64_t end = s->at + s->count < box->end[axis] ? s->at + s->count :
							  box->end[axis];

	return (struct kvt_segment){ begin, s->from + begin - s->at,
				     end > begin ? end - begin : 0 };
}

/* All of dst; its order may be another than the leaf's: leaf_read.c. */
KVT_MUST_CHECK enum kvt_status
read_leaf(struct kvt_worker *worker, const struct kvt_leaf *leaf, int group,
	  const struct placed *dst, struct kvt_error *err);
/*
 * A box of a leaf with tiles, without a range between: to dst, where indices differ by
 * 'shift'.
 */
KVT_MUST_CHECK enum kvt_status
read_tiles(struct kvt_worker *worker, const struct kvt_leaf *leaf, int group,
	   const struct kvt_box *box, const struct placed *dst,
	   const int64_t shift[KVT_NAXES], struct kvt_error *err);
/* A stored tile of the leaf. */
KVT_MUST_CHECK enum kvt_status
leaf_load_tile(const struct kvt_leaf *leaf, int group, const int64_t begin[KVT_NAXES],
	       struct kvt_stored *out, struct kvt_error *err);

/*
 * leaf_held.c: a tile that was loaded and has no checksum; a box of an array that has
 * none.  KVT_UNSUPPORTED if the leaf has no cells to hold them against.
 */
KVT_MUST_CHECK enum kvt_status
held_tile(const struct kvt_leaf *leaf, int group, const int64_t begin[KVT_NAXES],
	  const struct kvt_stored *stored, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
held_box(const struct kvt_leaf *leaf, int group, const struct kvt_box *box, void *buf,
	 struct kvt_error *err);

/* kvt_read() of a part that has spans: read_slots.c. */
KVT_MUST_CHECK enum kvt_status
read_spans(struct kvt_worker *worker, const struct map_part *part,
	   const struct placed *dst, struct kvt_error *err);

static inline int64_t list_at(const struct map_list *list, int64_t i)
{
	return list ? list->at[i] : i;
}

#endif
