/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - the operations that move a KV cache between two deployments
 *
 * spec.h says which heads go from which rank to which, connect.h which
 * slots go from which block to which.  Here both meet the bytes of the two
 * layouts: how many operations of what size, in which order, and why not fewer.
 *
 * The conventions are those of kvt.h.  In addition:
 *
 *   - A transfer is of ONE group of layers between all ranks of both sides.  A
 *     hybrid model is several transfers; an op never spans two.
 *   - Offsets count from the start of the allocation of one rank.
 *   - An op is a run of bytes that is contiguous on both sides and as long as
 *     the scope allows, inside one rank pair.
 *   - Nothing is stored per op: regions and ops come from iterators, counts and
 *     sizes from the structure of the transfer.
 *   - Arrays are the caller's and borrowed; they must outlive what uses them.
 *
 * How the parts go together, for one group:
 *
 *	kvt_xfer_side_init()	what a rank of each side allocates
 *	kvt_xfer_entries()	which slots go where
 *	kvt_xfer_init()		both sides, checked against each other
 *	kvt_xfer_prove()	every byte arrives exactly once
 *	kvt_pair_next()		for each pair of ranks that exchanges anything:
 *	    kvt_nest_init()	    its loops
 *	    kvt_pair_tally()	    ops, bytes, sizes and breaks, without a walk
 *	    kvt_op_next()	    the ops themselves, by ascending source offset
 *	    kvt_xfer_region_next()  the same bytes as few strided copies
 */
#ifndef KVT_TRANSFER_H
#define KVT_TRANSFER_H

#include "lib/kvt/connect.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a transfer --------------------------------------------------------- */

/* Who holds the same heads if there are more ranks than heads. */
enum kvt_replicas {
	KVT_GROUPED,			/* neighbours: 0 0 1 1 */
	KVT_MODULO,			/* every so many: 0 1 0 1 */
};

/* Of a side.  Pairs are walked one by one, and so may layers be. */
enum { KVT_MAX_RANKS = 4096, KVT_MAX_XFER_LAYERS = 65536 };

/* One side; its ranks all allocate alike. */
struct kvt_xfer_side {
	struct kvt_spec spec;		/* of rank 0 */
	int64_t ranks;
	/*
	 * Of an engine whose context parallel ranks deal tokens out, a side is those that
	 * have the same tokens: each deal-th rank, from deal_rank on.  0: all of them.
	 */
	int64_t deal, deal_rank;
	enum kvt_replicas replicas;
	/*
	 * One rank's array: all layers, all blocks of the pool, its own heads.
	 * Strides and offset may be those of a descriptor: of packed pages, of
	 * groups that share an allocation.
	 */
	struct kvt_views views;
};

/*
 * 'spec' is of any rank; the share of rank 0 is taken.  'strides' may be NULL;
 * else strides[axis] replaces the stride of an unsplit axis where it is not 0.
 * 'offset' is where the group begins in the allocation.
 */
KVT_MUST_CHECK enum kvt_status
kvt_xfer_side_init(struct kvt_xfer_side *out, const struct kvt_spec *spec,
		   int64_t ranks, const struct kvt_layout *layout,
		   int64_t layers, int64_t pool, const int64_t strides[KVT_NAXES],
		   int64_t offset, struct kvt_error *err);

/* Of the engine, also those that have other tokens. */
int64_t kvt_xfer_side_ranks(const struct kvt_xfer_side *side);

/*
 * The entries of a block mapping: slots that lie in one block on both sides,
 * nblocks 0.  Attention maps slots of tokens; a recurrent state is one slot
 * that fills its block.  Appends those of the slots begin..end to entry[*n],
 * of which there are 'room' (KVT_SYSTEM if they do not suffice);
 * kvt_xfer_entries_most() is enough room.
 */
int64_t kvt_xfer_entries_most(const struct kvt_block_table *src,
			      const struct kvt_block_table *dst);
KVT_MUST_CHECK enum kvt_status
kvt_xfer_entries(struct kvt_block_span *entry, int64_t *n, int64_t room,
		 const struct kvt_block_table *src,
		 const struct kvt_block_table *dst, int64_t begin, int64_t end,
		 struct kvt_error *err);

/* One group, both sides.  Made by kvt_xfer_init() alone. */
struct kvt_xfer {
	struct kvt_xfer_side src, dst;
	int64_t layers;
	const struct kvt_block_span *entry;	/* by source block and slot */
	int64_t nentries;
	int64_t slots;			/* that are moved */
};

/*
 * Sorts 'entry'.  Entries that are equal are kept once: a prefix that several
 * requests share is moved once if they share it on both sides.  Refuses
 * (KVT_BAD_INPUT) sides that contradict each other, a slot outside its pool,
 * one that is read for two destinations or written from two, and
 * strides under which elements overlap; KVT_UNSUPPORTED is what cannot be walked
 * by ascending source offset.
 */
KVT_MUST_CHECK enum kvt_status
kvt_xfer_init(struct kvt_xfer *out, const struct kvt_xfer_side *src,
	      const struct kvt_xfer_side *dst, struct kvt_block_span *entry,
	      int64_t nentries, struct kvt_error *err);

/* Bytes that arrive on all ranks, and of them those that are no replica. */
KVT_MUST_CHECK enum kvt_status
kvt_xfer_nbytes(int64_t *bytes, int64_t *unique, const struct kvt_xfer *xfer,
		struct kvt_error *err);

/*
 * Proof that every byte of the moved slots that a destination rank holds is
 * written exactly once, from the same coordinate of the model, and nothing else.
 * The heads are proved by kvt_moves_prove(), with 'moves' as its room: as many
 * as kvt_xfer_nmoves() says; slots and bytes from tables and strides.
 * KVT_MISMATCH names rank, layer and head, or the block.
 */
int64_t kvt_xfer_nmoves(const struct kvt_xfer *xfer);
KVT_MUST_CHECK enum kvt_status
kvt_xfer_prove(struct kvt_proof *out, const struct kvt_xfer *xfer,
	       struct kvt_move *moves, struct kvt_error *err);

/* ---- pairs of ranks ----------------------------------------------------- */

struct kvt_pair {
	int64_t src_rank, dst_rank;
	int64_t global;			/* first head of the model that moves */
	struct kvt_exchange exchange;	/* positions on each rank */
};

/* By destination rank, then source rank.  Start with a zeroed walk. */
struct kvt_pair_walk {
	int64_t src_rank, dst_rank;	/* of the side, not of the engine */
};
bool kvt_pair_next(struct kvt_pair *out, struct kvt_pair_walk *walk,
		   const struct kvt_xfer *xfer);

/* ---- ops ---------------------------------------------------------------- */

/* What an op may cross. */
enum kvt_scope {
	KVT_SCOPE_MAX,		/* everything but the pair */
	KVT_SCOPE_RFC,		/* slots, heads, layers; one entry and slice */
	KVT_SCOPE_LAYER,	/* slots, heads; one entry, slice and layer */
	KVT_NSCOPES
};
const char *kvt_scope_name(enum kvt_scope scope);		/* "rfc" */

struct kvt_op {
	int64_t src, dst, len;
};

/*
 * The loops of one pair, slowest source stride first.  Built by kvt_nest_init()
 * and read by what follows; no caller needs to look inside.
 */
enum kvt_level_kind {
	KVT_LEVEL_PLAIN,	/* an axis: n steps of src and dst */
	KVT_LEVEL_RANGES,	/* D of a conv state: the parts of the exchange */
	KVT_LEVEL_BLOCK,	/* source blocks, in the order of their ids */
	KVT_LEVEL_SLOT,		/* a part of S, value by value */
	KVT_LEVEL_ENTRY,	/* entries of a block and the slots in them */
	KVT_LEVEL_PLANE,	/* keys, then values, where these lie differently */
};

struct kvt_level {
	enum kvt_level_kind kind;
	enum kvt_axis axis;
	int64_t div, n;		/* of the source's index */
	int64_t src, dst[2];	/* strides; dst of keys and of values */
	bool cut;		/* a slice boundary under scopes rfc and layer */
};

enum { KVT_MAX_LEVELS = 16 };

struct kvt_nest {
	const struct kvt_xfer *xfer;	/* borrowed */
	struct kvt_exchange exchange;
	int nplanes;			/* 1, or 2: level[1] is that of values */
	int nlevels[2];
	struct kvt_level level[2][KVT_MAX_LEVELS];
	int64_t src_offset[2], dst_offset[2];
	int first_plane;		/* 1: values lie before keys */
	int64_t inner[2];		/* bytes that are a run in any case */
	bool taps;			/* S counts taps: a block is one state */
};

/* 'xfer' must outlive it.  KVT_UNSUPPORTED: no loops say what the pair exchanges. */
KVT_MUST_CHECK enum kvt_status
kvt_nest_init(struct kvt_nest *out, const struct kvt_xfer *xfer,
	      const struct kvt_pair *pair, struct kvt_error *err);

/* What a byte belongs to, as far as a scope asks. */
struct kvt_mark {
	int64_t entry, layer, tap;
	int part;
};

/* Where a walk stands in one level; 'at' and on change with each step. */
struct kvt_frame {
	int64_t src, dst[2];		/* of the level; dst of keys and of values */
	int64_t entry, end;		/* entries that are left to it */
	int64_t lo, hi;			/* slots of a block, as far as chosen */
	struct kvt_mark mark;
	int plane;
	int64_t at, slot;		/* next index or entry; slot inside it */
};

/* Further copies of a child, each that far behind the last. */
struct kvt_copies {
	int64_t n, src, dst;
	int64_t layers, taps;		/* so much further, too */
};

/*
 * Every op once, by ascending source offset: the order of the canonical list.
 *
 *	kvt_ops_start(&ops, &nest, KVT_SCOPE_RFC);
 *	while (kvt_op_next(&op, &ops))
 *		...
 */
struct kvt_ops {
	const struct kvt_nest *nest;	/* borrowed */
	enum kvt_scope scope;
	struct kvt_op op;		/* next of a row of equal ones */
	int64_t left, src_step, dst_step;
	struct kvt_op held;		/* may still grow; len 0: none */
	struct kvt_mark mark;
	int depth;			/* -1: there are no more rows */
	struct kvt_frame frame[KVT_MAX_LEVELS + 1];
	struct kvt_copies copies[KVT_MAX_LEVELS];
};
void kvt_ops_start(struct kvt_ops *ops, const struct kvt_nest *nest,
		   enum kvt_scope scope);
bool kvt_op_next(struct kvt_op *out, struct kvt_ops *ops);

/* ---- figures ------------------------------------------------------------ */

/* How many ops have one size. */
struct kvt_size_count {
	int64_t size, count;
};

/* By ascending size.  'room' is how many 'bin' has; 65536 are plenty. */
struct kvt_sizes {
	struct kvt_size_count *bin;
	int n, room;
};

/* The i-th smallest, from 0; (ops - 1) / 2 is the lower median. */
int64_t kvt_sizes_at(const struct kvt_sizes *sizes, int64_t i);

/*
 * Why an op ends where it does, by the axis along which the source goes on.
 * Every op of a pair but the last ends with one break.
 */
enum kvt_break {
	KVT_BREAK_SOURCE,	/* the next byte of the source is not moved */
	KVT_BREAK_DESTINATION,	/* it is, but to another offset */
	KVT_BREAK_BOTH,		/* gaps on both sides */
	KVT_BREAK_SCOPE,	/* adjacent on both sides, but the scope ends */
	KVT_NBREAKS
};

struct kvt_tally {
	int64_t ops, bytes;
	int64_t breaks[KVT_NAXES][KVT_NBREAKS];
};

/*
 * Counts the ops of a pair in a time that depends on blocks, not on ops, and
 * adds them to 'tally' and to 'sizes' (which may be NULL).  The result is that
 * of a walk, exactly; runs that join at corners are found as there.  KVT_BAD_INPUT
 * if a sum passes 2^63; KVT_SYSTEM if 'sizes' has no room.
 */
KVT_MUST_CHECK enum kvt_status
kvt_pair_tally(struct kvt_tally *tally, struct kvt_sizes *sizes,
	       const struct kvt_nest *nest, enum kvt_scope scope,
	       struct kvt_error *err);

/* ---- regions ------------------------------------------------------------ */

/*
 * The same bytes as strided copies: one a plane, a part and a row of entries
 * whose blocks follow each other by constant steps on both sides.  In the order
 * of the entries, not of offsets.  A region is an ordinary plan, to be run on the
 * allocations of two ranks; only where the ids of a side descend has it a loop
 * whose stride is negative there.
 */
struct kvt_xfer_region {
	struct kvt_plan plan;
	int64_t entry, entries;		/* the first one, how many */
	int part, plane;
};
struct kvt_xfer_regions {
	const struct kvt_nest *nest;	/* borrowed */
	int64_t entry, slot;
	int part, plane;
};
void kvt_xfer_regions_start(struct kvt_xfer_regions *regions,
			    const struct kvt_nest *nest);
bool kvt_xfer_region_next(struct kvt_xfer_region *out,
			  struct kvt_xfer_regions *regions);

#ifdef __cplusplus
}
#endif

#endif
