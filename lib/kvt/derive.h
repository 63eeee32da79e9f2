/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive.h - dumps made of dumps
 *
 * All of these look at metadata only and compose: any dump may be the source of
 * any other.  The result holds the leaves it needs; its sources may be closed.
 * Time and memory: layers + blocks + spans of the result, each times the parts.
 * What is refused is said before any data is read; *out is set on KVT_OK only.
 */
#ifndef KVT_DERIVE_H
#define KVT_DERIVE_H

#include "lib/kvt/dump.h"

struct kvt_names {
	int n;				/* 0: all */
	const char *const *s;		/* borrowed */
};
struct kvt_ranges {
	int n;				/* 0: all */
	const struct kvt_range *range;	/* ids of the model or of the pool, borrowed */
};

/* ---- slice: a part with its coordinates in the model ------------------------ */

/*
 * Layers, blocks and heads are named by their ids in the model and in the engine's
 * pool, as digest prints them, so that a part of a part is named as it was in the
 * whole.
 */
struct kvt_slice_options {
	struct kvt_ranges layers, blocks;
	struct kvt_ranges heads, tokens;	/* one range each at most */
	struct kvt_names requests, components;
	struct kvt_rank rank;		/* the share of this one; size 0: all */
	struct kvt_rank to;		/* what 'rank' gives to this one; size 0: all */
	int64_t mamba_groups;		/* of B and C in the model; 0: not known */
};
/*
 * What is named and not there is KVT_BAD_INPUT.  A rank that gives nothing to
 * another ('to') is a dump without groups.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_slice(struct kvt_dump **out, const struct kvt_dump *dump,
	       const struct kvt_slice_options *options, struct kvt_error *err);

/* All of it; request r is called name[r], which no two are. */
KVT_MUST_CHECK enum kvt_status
kvt_dump_rename(struct kvt_dump **out, const struct kvt_dump *dump,
		const char *const *name, struct kvt_error *err);
/* All of it; layers have the numbers that 'as' has of them, whose groups are these. */
KVT_MUST_CHECK enum kvt_status
kvt_dump_renumber(struct kvt_dump **out, const struct kvt_dump *dump,
		  const struct kvt_snapshot *as, struct kvt_error *err);

/* ---- merge: all ranks of a model ------------------------------------------- */

/*
 * Of n >= 1 dumps in any order; the result has them by rank.  Missing or doubled
 * ranks, and ranks that say different things of one model, are KVT_BAD_INPUT, with
 * names[i] in the message.  What several ranks hold comes from the first; whether the
 * others hold the same is a question to the data (lib/ops/compare).
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_merge(struct kvt_dump **out, const struct kvt_dump *const *dumps,
	       const char *const *names, int n, struct kvt_error *err);

/* ---- decode: the numbers that bytes stand for -------------------------------- */

/*
 * All groups as 'dtype', a float of two bytes or more: quantised numbers times their
 * scales, in the basis of the model, rounded once; times scale[0] if they are keys, or
 * neither, scale[1] if they are values (NULL: ones).  A page of planes becomes a slot
 * for each row.  KVT_BAD_INPUT or KVT_UNSUPPORTED, with the group, if numbers of one
 * cannot be read; reading is KVT_BAD_INPUT where one is too large for 'dtype'.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_decode(struct kvt_dump **out, const struct kvt_dump *dump,
		const struct kvt_dtype *dtype, const double scale[2],
		struct kvt_error *err);

/* The same of contents only, to float32; others stay as they are. */
KVT_MUST_CHECK enum kvt_status
kvt_dump_decode_contents(struct kvt_dump **out, const struct kvt_dump *dump,
			 struct kvt_error *err);

/* ---- cast: the same numbers, as far as another type has them ------------------ */

/* Of a group, borrowed: [L][2][heads] of keys and values, of the model's heads or 1. */
struct kvt_scales {
	const float *scale;
	int64_t heads;
};
struct kvt_cast {
	const struct kvt_dtype *dtype;	/* kvt_cast_parse() */
	struct kvt_content content;
	/* What elements of fp8 are, of each group; NULL: what it says, ones. */
	const struct kvt_scales *from[KVT_MAX_GROUPS];
	/* What they are to be; NULL: ones. */
	const struct kvt_scales *scales[KVT_MAX_GROUPS];
	/* Each number by its coordinates, in another way: slow, to compare with. */
	bool one_by_one;
};

/*
 * All such groups as another type, by the rules of lib/kvt/cast.h; the others as they
 * are.  Each says of what type it was, and its scales where its rows have none.
 * KVT_BAD_INPUT if there is no such group, or numbers of one cannot be read;
 * KVT_UNSUPPORTED as of kvt_caster_init().
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_cast(struct kvt_dump **out, const struct kvt_dump *dump,
	      const struct kvt_cast *cast, struct kvt_error *err);
/* ---- encode: numbers as elements of other types ------------------------------- */

/* What keys become, or values; all zeros: they stay as they are. */
struct kvt_encoding {
	const struct kvt_dtype *dtype;	/* a float of two bytes or more; uint8: blocks */
	struct kvt_content content;	/* blocks of ggml, and what is rotated; or none */
};
struct kvt_encodings {
	struct kvt_encoding half[2];	/* keys, latents, what is neither; values */
};
/*
 * Numbers of group g, decoded in double precision and rounded once, as to[g].  Where keys
 * and values become two types, they are groups of their own, ID.k and ID.v.  With 'pairs'
 * the elements of keys, which have two halves, become pairs of one of each.  from[i] is
 * the group that group i is of.  KVT_BAD_INPUT or KVT_UNSUPPORTED if numbers cannot be
 * read, or written so; reading is KVT_BAD_INPUT where one is too large, or is no number
 * and blocks hold none such.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_encode(struct kvt_dump **out, int from[KVT_MAX_GROUPS],
		const struct kvt_dump *dump,
		const struct kvt_encodings to[KVT_MAX_GROUPS], bool pairs,
		struct kvt_error *err);

/* ---- reblock: blocks of another size --------------------------------------- */

/* What to do with slots that hold no token of a request. */
enum kvt_stale { KVT_STALE_DEFAULT, KVT_STALE_KEEP, KVT_STALE_ZERO };

struct kvt_reblock_options {
	int64_t block_size;		/* tokens */
	bool compact;			/* gather by requests even if nothing forces to */
	enum kvt_stale stale;
	const struct kvt_layout *layout; /* where the group's cannot hold such blocks */
};

/*
 * Either the pool is cut anew where it lies (regrouped: every slot keeps its
 * offset in memory), or the slots of each request are put into blocks of their own
 * (gathered: blocks are numbered in the order of requests and tokens).
 */
enum kvt_reblock_how { KVT_KEPT, KVT_REGROUPED, KVT_GATHERED };

/* What became of a group. */
struct kvt_reblocked {
	enum kvt_reblock_how how;
	struct kvt_error why;		/* it is gathered and not regrouped */
	int64_t size_before, blocks_before, blocks_after;
	int64_t dropped;		/* blocks that no request uses, left out */
	int64_t copied;			/* slots that were shared and no longer are */
	int64_t stale, stale_kept;	/* slots; only where requests are known */
};
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_reblock(struct kvt_dump **out, struct kvt_reblocked said[KVT_MAX_GROUPS],
		 const struct kvt_dump *dump, const struct kvt_reblock_options *options,
		 struct kvt_error *err);

/* ---- graft: some slots are another dump's ---------------------------------- */

struct kvt_block_span;			/* connect.h */
struct kvt_exchange;			/* spec.h */
struct kvt_graft {			/* into one group of 'base' */
	int from;			/* its partner in the donor */
	const struct kvt_block_span *span;	/* donor (src) to base (dst), borrowed */
	int64_t nspans;			/* no destination slot twice: KVT_BAD_INPUT */
	/* what of the heads, keys and values, channels; NULL: all of them */
	const struct kvt_exchange *given;
};
/*
 * copy-blocks is whole blocks and all heads.  A transfer is one graft per source
 * rank on a destination rank, or on a constant.  Layers are paired by their ids;
 * the donor must have all of the base's.  Elements that both give come from the
 * donor; the base is not read where it is covered.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_graft(struct kvt_dump **out, const struct kvt_dump *base,
	       const struct kvt_dump *donor, const struct kvt_graft graft[KVT_MAX_GROUPS],
	       struct kvt_error *err);

/* ---- replace: one group in memory stands in for the dump's ------------------ */

/*
 * 'bytes' is the dense array of the group in 'layout' (which need not be the
 * group's), borrowed until the last dump that reads it is closed.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_replace(struct kvt_dump **out, const struct kvt_dump *dump, int group,
		 const struct kvt_layout *layout, const void *bytes,
		 struct kvt_error *err);

/* ---- select: explicit indices, for operations that align two dumps ---------- */

/* Positions from, from + 1, ... of the source stand at, at + 1, ... here. */
struct kvt_segment {
	int64_t at, from, count;
};
struct kvt_select {
	int group;
	int64_t nlayers, nblocks;
	const int64_t *layer, *block;	/* indices in the dump, any order; borrowed */
	struct kvt_segment heads, kv;
	int nchannels;		/* 1; of a conv state up to KVT_MAX_COMPONENTS */
	const struct kvt_segment *channel;	/* borrowed */
};
/*
 * One group with the layout of the dump's, without tables and requests.  A segment
 * that ends behind the dump's heads, K and V or channels, or an element here that no
 * segment fills, is KVT_BAD_INPUT, with the number of elements.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_select(struct kvt_dump **out, const struct kvt_dump *dump,
		const struct kvt_select *select, struct kvt_error *err);

/* ---- one pool: for a tensor that has each block once -------------------------- */

/*
 * Each block id in one group alone: in that whose requests use it, else in the first.
 * Of the null block, which all keep for their tables, nothing remains but zeros, unless
 * one group alone has it.  KVT_BAD_INPUT: requests of two groups use a block, or no
 * table tells whose it is.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_one_pool(struct kvt_dump **out, const struct kvt_dump *dump,
		  struct kvt_error *err);

/* ---- patch and join: a dump in parts, and all of them as one ------------------ */

/*
 * One group, with the ids of its layers and blocks; no requests.  KVT_USAGE: not
 * inside the group.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_patch(struct kvt_dump **out, const struct kvt_dump *dump,
	       const struct kvt_patch *patch, struct kvt_error *err);
/*
 * The dump that 'info' describes, whose patch[i] is group 0 of parts[i].  KVT_BAD_INPUT
 * if a part has another shape than its patch, if two overlap, or if elements are in
 * none.  Takes 8 bytes for each part and layer or block of its group.
 */
KVT_MUST_CHECK enum kvt_status
kvt_dump_join(struct kvt_dump **out, const struct kvt_snapshot *info,
	      const struct kvt_dump *const *parts, const struct kvt_patch *patches,
	      int64_t n, struct kvt_error *err);

/* ---- tokens: a request in a row --------------------------------------------- */

/*
 * The blocks of one group that hold these tokens (positions in the request; an empty
 * range is all of them), in their order, as a dump of one group: its slots in a row,
 * from number *first on, are the tokens.  Of a recurrent group it is the newest state.
 * KVT_USAGE: no such group, request or token; KVT_BAD_INPUT: a token has no slot, as
 * with those that a window has passed.
 */
KVT_API KVT_MUST_CHECK enum kvt_status
kvt_dump_tokens(struct kvt_dump **out, int64_t *first, const struct kvt_dump *dump,
		int group, const char *request, struct kvt_range tokens,
		struct kvt_error *err);

#endif
