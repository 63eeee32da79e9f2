/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.h - what a group of layers caches, and which rank holds what
 *
 * kvt.h knows where bytes are; this header knows whose they are: specs, tensor
 * parallel shares, the slices that two ranks exchange and the proof that all of
 * them together lose nothing.  The conventions are those of kvt.h.
 */
#ifndef KVT_SPEC_H
#define KVT_SPEC_H

#include "lib/kvt/kvt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ownership ---------------------------------------------------------- */

/*
 * Units (heads, groups of channels) are dealt to ranks in order.  With more
 * ranks than units, neighbours hold the same one: ranks 0 and 1 of 8 hold head
 * 0 of 4.  If neither number divides the other it is not known who holds what:
 * KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_owned(struct kvt_range *out, int64_t units, struct kvt_rank rank,
	  struct kvt_error *err);

/* More ranks than units; as many ranks as units is no replication. */
bool kvt_is_replicated(int64_t units, int64_t ranks);

/*
 * The units that 'src' gives to 'dst'; an empty range if they are no pair.
 * Over all source ranks each unit of 'dst' is given exactly once: by the rank
 * at the same index if dst has at least as many ranks, else by the first of its
 * q = src/dst ranks that holds it.  Where the sizes do not divide, by the first
 * rank that holds it at all.
 */
KVT_MUST_CHECK enum kvt_status
kvt_given(struct kvt_range *out, int64_t units, struct kvt_rank src,
	  struct kvt_rank dst, struct kvt_error *err);

/* The only source ranks that may give something to 'dst'. */
KVT_MUST_CHECK enum kvt_status
kvt_candidates(struct kvt_range *out, int64_t units, int64_t src_ranks,
	       struct kvt_rank dst, struct kvt_error *err);

/* ---- specs -------------------------------------------------------------- */

/* Tokens per slot as a fraction; -1/1: one slot stands for all tokens. */
struct kvt_ratio {
	int64_t num, den;
};

/* A range of the channels of a convolution state: x, B and C, or q, k and v. */
struct kvt_spec_part {
	const char *name;
	int64_t units;			/* of the model, dealt out like heads */
	int64_t rows;			/* channels of a unit */
	bool no_replicas;		/* the units must be divisible by the ranks */
};

enum { KVT_MAX_SPEC_PARTS = 3, KVT_MAX_CONTENT = 3 };

/*
 * One rank's share of a group of layers: the engines' KVCacheSpec and what it
 * lacks.  num_slots is not in here: it follows at allocation (kvt_spec_size()).
 */
struct kvt_spec {
	enum kvt_kind kind;
	int64_t block_size;		/* tokens */
	int64_t num_heads;		/* on this rank; 1 if headless */
	int64_t total_heads;		/* of the model */
	int64_t head_start;		/* first head of this rank */
	int64_t replication;		/* ranks that hold the same heads */
	bool no_replicas;		/* heads must be divisible by the ranks */
	struct kvt_ratio tokens_per_slot;
	int64_t content_size;		/* bytes per slot per head */

	/* The content of a (slot, head); ncontent 0: only its size is known. */
	int ncontent;
	int64_t content[KVT_MAX_CONTENT], elem;
	bool planar;			/* a slot is no run: move whole blocks */

	int64_t page_size_padded;	/* 0: not given */
	int64_t alignment;		/* of a page; 0 or 1: none */
	int64_t window;			/* tokens that matter: kvt_dead_tokens() */

	/*
	 * KVT_MAMBA_CONV: content is { channels on this rank, taps }, and these
	 * follow each other along the channels (axis D of the view, whose S
	 * counts taps).  Others have none.
	 */
	int nparts;
	struct kvt_spec_part part[KVT_MAX_SPEC_PARTS];
};

/* Numbers of a model; a preset refuses what it needs and does not get. */
struct kvt_spec_args {
	int64_t block_size;		/* 0: the preset's own, if it has one */
	int64_t elem;			/* bytes of an element; 0: 2, states 4 */
	int64_t heads;			/* KV heads, SSM heads, GDN value heads */
	int64_t head_dim, head_dim_v;	/* head_dim_v 0: as head_dim */
	int64_t latent;			/* elements of an MLA row */
	int64_t ratio;			/* tokens a compressed slot, pooled: 1/ratio */
	int64_t window;
	int64_t inter;			/* channels of x */
	int64_t groups, state_size;	/* of B and C */
	int64_t key_heads, key_dim;	/* gated delta net: q and k */
	int64_t kernel, spec_tokens;	/* taps = kernel - 1 + spec_tokens */
	int64_t retained;		/* tokens that a window keeps besides */
	int64_t blocks;			/* that a request owns, of HiSparse */
	int64_t drafts;			/* recurrent states of a request but its own */
	int64_t stride;			/* steps between blocks are a multiple of it */
	/* 1, or 0: an indexer goes with it; its window is computed anew, not cached */
	int64_t leader, replay;
};

struct kvt_spec_preset {
	const char *name, *summary;
};
/* What it makes; false: there is no such preset. */
bool kvt_spec_kind(enum kvt_kind *out, const char *preset);
const struct kvt_spec_preset *kvt_spec_preset_at(int i);  /* NULL past the last */
/* Is this member of kvt_spec_args, "head_dim", one that the preset must be told? */
bool kvt_spec_preset_needs(const char *preset, const char *member);
/* Tokens of a block that only this preset has; 0: any. */
int64_t kvt_spec_preset_block_size(const char *preset);

/* The spec of one rank.  An unknown name is KVT_USAGE. */
KVT_MUST_CHECK enum kvt_status
kvt_spec_make(struct kvt_spec *out, const char *preset,
	      const struct kvt_spec_args *args, struct kvt_rank rank,
	      struct kvt_error *err);

/*
 * What another rank, of another size perhaps, holds of the same model.  A
 * padded page size belongs to an allocation and is not carried over.
 */
KVT_MUST_CHECK enum kvt_status
kvt_spec_share(struct kvt_spec *out, const struct kvt_spec *in,
	       struct kvt_rank rank, struct kvt_error *err);

/* Refuses (KVT_BAD_INPUT) a spec that contradicts itself or its rank. */
KVT_MUST_CHECK enum kvt_status
kvt_spec_check(const struct kvt_spec *spec, struct kvt_rank rank,
	       struct kvt_error *err);

struct kvt_spec_size {
	int64_t num_slots;		/* per block */
	int64_t unpadded, page;		/* bytes of one block of one layer */
};

/* Refuses (KVT_BAD_INPUT) what engines truncate: half a slot in a block. */
KVT_MUST_CHECK enum kvt_status
kvt_spec_size(struct kvt_spec_size *out, const struct kvt_spec *spec,
	      struct kvt_error *err);

/*
 * Extents of the views of this group.  Keys and values of one width are K;
 * everything else is D alone.
 */
KVT_MUST_CHECK enum kvt_status
kvt_spec_shape(struct kvt_shape *out, const struct kvt_spec *spec,
	       int64_t layers, int64_t blocks, struct kvt_error *err);

/* Slots that hold this many tokens; the spec has passed kvt_spec_check(). */
int64_t kvt_spec_slots(const struct kvt_spec *spec, int64_t ntokens);

/* What is dealt out: H (heads), or D (the channels of a conv state). */
enum kvt_axis kvt_spec_axis(const struct kvt_spec *spec);

/* What is dealt out along that axis: the parts, or all heads as one. */
int kvt_spec_parts(struct kvt_spec_part out[KVT_MAX_SPEC_PARTS],
		   const struct kvt_spec *spec);

/* ---- classes ------------------------------------------------------------ */

/* The classes that vLLM 0.32 has of a KVCacheSpec. */
enum kvt_spec_class {
	KVT_CLASS_FULL,
	KVT_CLASS_MLA,
	KVT_CLASS_RSWA,
	KVT_CLASS_SINK,
	KVT_CLASS_HIDDEN,	/* activations beside the caches of attention */
	KVT_CLASS_WINDOW,
	KVT_CLASS_WINDOW_MLA,
	KVT_CLASS_CHUNK,
	KVT_CLASS_CROSS,
	KVT_CLASS_ENCODER,	/* attention of an encoder, which keeps nothing */
	KVT_CLASS_STATE,
	KVT_CLASS_RING,		/* one block of a request, which its tokens go round in */
	KVT_CLASS_HOT, KVT_CLASS_RESIDENT,	/* HiSparse */
	KVT_NCLASSES
};

struct kvt_class_rule {
	const char *name;	/* "SlidingWindowMLASpec" */
	const char *word;	/* of events: "sliding_window_mla", or "unknown" */
	enum kvt_spec_class base;	/* groups of one type are of one base */
	bool cached;		/* blocks are found again by the hash of their tokens */
	bool mapped;		/* a token has a slot that the engine computes */
	bool sharded;		/* context parallel ranks deal its tokens out */
	const char *dead;	/* which tokens nothing computed later looks at */
	const char *moves;	/* what another engine must be sent */
};
const struct kvt_class_rule *kvt_class_rule(enum kvt_spec_class which);

/* What a preset's spec is; its window and its replay decide, too. */
enum kvt_spec_class kvt_spec_class_of(const char *preset,
				     const struct kvt_spec_args *args);
/* Does prefix caching find its blocks again? */
bool kvt_spec_cached(const char *preset, const struct kvt_spec_args *args);

/*
 * Ranks in a row that hold the same, as vLLM's specs count them: 'tp' for most latents,
 * 1 where they do not say, as for replicated heads and DeepSeek V4.1, or deal tokens out
 * to 'dcp' ranks.  Of a model it is the greatest common divisor.
 */
int64_t kvt_spec_copies(const char *preset, int64_t tp, int64_t dcp);

/* What a request may ask of an engine. */
struct kvt_demand {
	int64_t tokens;			/* of the longest request */
	int64_t in_flight;		/* tokens of the steps that are not settled */
	int64_t dcp;			/* context parallel ranks of decoding; 0: 1 */
	int64_t encoder;		/* tokens of an encoder */
	int64_t drafts;			/* recurrent states for draft tokens, besides */
	bool align;			/* ... and for the ends of blocks */
	int64_t checkpoints;		/* ... of a prefill, then */
};

/*
 * The most blocks that one request holds, and the entries of its block table, as
 * vLLM 0.32 counts them for memory; 'args' have a block size.  KVT_BAD_INPUT: a
 * window or chunk that context parallel ranks would have to share, or no block size.
 */
KVT_MUST_CHECK enum kvt_status
kvt_spec_blocks(int64_t *most, int64_t *table, const char *preset,
		const struct kvt_spec_args *args, const struct kvt_demand *demand,
		struct kvt_error *err);

/* ---- slices ------------------------------------------------------------- */

/* One end of a transfer. */
struct kvt_side {
	const struct kvt_spec *spec;
	struct kvt_rank rank;
};

/* Positions along the axis that is dealt out, on each side's own rank. */
struct kvt_exchange_range {
	const char *part;		/* "head", "x", "B", ... */
	int64_t src, dst, count;
};

/* What one source rank gives to one destination rank. */
struct kvt_exchange {
	enum kvt_axis axis;
	int count;			/* 0: this pair exchanges nothing */
	struct kvt_exchange_range range[KVT_MAX_SPEC_PARTS];
};

/* Refuses a spec that is not of its rank, and two that are not of one model. */
KVT_MUST_CHECK enum kvt_status
kvt_exchange_init(struct kvt_exchange *out, const struct kvt_side *src,
		  const struct kvt_side *dst, struct kvt_error *err);

/* ---- proof -------------------------------------------------------------- */

/* All ranks of both sides.  The specs may be those of any rank. */
struct kvt_transfer {
	const struct kvt_spec *src, *dst;
	int64_t src_ranks, dst_ranks;
	int64_t layers;
};

/* A range of layers and of positions that goes from one rank to another. */
struct kvt_move {
	int64_t src_rank, dst_rank;
	struct kvt_range layers;
	int64_t src, dst, count;
};

/*
 * Every move of the transfer by destination rank, then source rank.  Call until
 * false; start with a zeroed walk.  A transfer that cannot be cut fails in
 * kvt_transfer_check(), which must be called before.
 */
struct kvt_move_walk {
	int64_t src_rank, dst_rank;
	int range;
};
bool kvt_move_next(struct kvt_move *out, struct kvt_move_walk *walk,
		   const struct kvt_transfer *transfer);
KVT_MUST_CHECK enum kvt_status
kvt_transfer_check(const struct kvt_transfer *transfer, struct kvt_error *err);

enum kvt_flaw {
	KVT_FLAW_NONE,
	KVT_FLAW_HOLE,			/* never written */
	KVT_FLAW_DOUBLE,		/* written twice */
	KVT_FLAW_MISPLACED,		/* written from another coordinate */
	KVT_FLAW_FOREIGN,		/* read where the source rank holds nothing */
	KVT_FLAW_SPILL,			/* written where the destination holds nothing */
};

/* The first flaw, and what moved if there is none. */
struct kvt_proof {
	enum kvt_flaw flaw;
	int64_t src_rank;		/* of the move; -1 for a hole */
	int64_t dst_rank, layer;
	int64_t position;		/* on the destination rank */
	const char *part;		/* there; NULL if outside */
	int64_t global;			/* head, or channel of the part, of the model */
	int64_t moved;			/* positions times layers that arrive */
	int64_t unique;			/* of them, different ones */
};

/*
 * Proof that 'moves' give every destination rank all that it holds, exactly
 * once and from the same coordinate of the model.  Coordinates come from the
 * specs and ranks alone, not from the code that makes moves.  'moves' are
 * sorted in place.  KVT_MISMATCH names what is wrong, also in 'out'.
 */
KVT_MUST_CHECK enum kvt_status
kvt_moves_prove(struct kvt_proof *out, const struct kvt_transfer *transfer,
		struct kvt_move *moves, int64_t nmoves, struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
