/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.h - what connectors between engines do with blocks
 *
 * Mapping tokens between block sizes and block tables, the arithmetic of vLLM's
 * connectors and what its receivers do to bytes, the allocation that all layers
 * share, and which backend can have written a cache.  The conventions are those
 * of kvt.h.  Where an engine ignores a contradiction, these functions refuse it.
 */
#ifndef KVT_CONNECT_H
#define KVT_CONNECT_H

#include "lib/kvt/release.h"
#include "lib/kvt/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- block mapping ------------------------------------------------------ */

/* One side: which block of a pool holds which slots of a request. */
struct kvt_block_table {
	const uint32_t *ids;		/* in token order; borrowed */
	int64_t nids;
	int64_t slots;			/* per block */
	int64_t pool;			/* blocks there are; each id is below */
	int64_t first;			/* slot of the request that ids[0] begins with */
};

/* What one call of kvt_block_map_next() puts together. */
enum kvt_block_join {
	KVT_JOIN_NONE,			/* inside one block on both sides */
	KVT_JOIN_BLOCKS,		/* whole blocks, in a row on both sides */
	KVT_JOIN_SLOTS,			/* slots in a row, whatever the block sizes */
};

/*
 * Walks the slots begin..end of a request from one table to another.  Block
 * sizes need not divide each other.  Fill it by kvt_block_map_init() and call
 * kvt_block_map_next() until it is false.
 *
 * JOIN_BLOCKS is for layouts in which blocks follow each other; JOIN_SLOTS for
 * those in which S directly follows B (kernel_split_neutral), where a pool is
 * one row of slots.
 */
struct kvt_block_map {
	struct kvt_block_table src, dst;
	enum kvt_block_join join;
	int64_t at, end;
};

struct kvt_block_span {
	int64_t src_block, src_slot, dst_block, dst_slot;
	int64_t count;			/* slots */
	int64_t nblocks;		/* JOIN_BLOCKS: whole blocks; else 0 */
};

/*
 * Refuses (KVT_BAD_INPUT) ids beyond a pool and tables that do not hold all of
 * the range.  'begin' and 'end' count slots, not tokens (kvt_spec_slots()).
 */
KVT_MUST_CHECK enum kvt_status
kvt_block_map_init(struct kvt_block_map *out, const struct kvt_block_table *src,
		   const struct kvt_block_table *dst, int64_t begin, int64_t end,
		   struct kvt_error *err);

/* The next span; false: the range is through. */
bool kvt_block_map_next(struct kvt_block_map *map, struct kvt_block_span *out);

/*
 * The end of a map that moves whole blocks, as vLLM does: up to the end of the
 * source's last block that holds a slot before 'end', as far as the destination
 * has room.
 */
int64_t kvt_block_map_whole(const struct kvt_block_table *src,
			    const struct kvt_block_table *dst, int64_t end);

/*
 * The table without its first blocks: of a destination that has a prefix of the
 * request already, the last 'nids' blocks of the source remain.
 */
KVT_MUST_CHECK enum kvt_status
kvt_block_table_last(struct kvt_block_table *out, const struct kvt_block_table *in,
		     int64_t nids, struct kvt_error *err);

/*
 * Refuses (KVT_BAD_INPUT) an id beyond the pool or one that comes twice, whose
 * last copy would win.  'seen' is a bitmap of 'pool' bits, which must be 0.
 */
KVT_MUST_CHECK enum kvt_status
kvt_block_ids_check(const uint32_t *ids, int64_t nids, int64_t pool,
		    uint8_t *seen, struct kvt_error *err);

/* ---- connectors --------------------------------------------------------- */

/*
 * vLLM's tp_ratio: local/remote if local is the larger one, else
 * -(remote/local).  The larger must be a multiple of the smaller.
 */
KVT_MUST_CHECK enum kvt_status
kvt_tp_ratio(int64_t *out, int64_t local_ranks, int64_t remote_ranks,
	     struct kvt_error *err);

/* vLLM's block_size_ratio: local/remote, which must divide. */
KVT_MUST_CHECK enum kvt_status
kvt_block_size_ratio(int64_t *out, int64_t local_slots, int64_t remote_slots,
		     struct kvt_error *err);

/*
 * The remote ranks that a local one talks to.  Not all of them give it heads:
 * that is kvt_given()'s to say.
 */
KVT_MUST_CHECK enum kvt_status
kvt_target_ranks(struct kvt_range *out, struct kvt_rank local,
		 int64_t remote_ranks, struct kvt_error *err);

/*
 * In one layer: is B the outermost axis, so that a block is one region?  Do
 * keys and values have regions of their own?  Said of the order; engines say it
 * of a made-up shape.
 */
bool kvt_blocks_first(const struct kvt_layout *layout,
		      const struct kvt_shape *shape);
bool kvt_splits_k_and_v(const struct kvt_layout *layout,
			const struct kvt_shape *shape);

/* What vLLM's receivers do to a block whose bytes came as the sender had them. */
enum kvt_receive {
	KVT_RECEIVE_LAYOUT,		/* [H][S] becomes [S][H] */
	KVT_RECEIVE_BLOCKS,		/* r times [H][S/r] becomes [H][S] */
	KVT_RECEIVE_BOTH,		/* r times [H][S/r] becomes [S][H] */
	KVT_NRECEIVES
};
const char *kvt_receive_name(enum kvt_receive which);	/* vLLM's function */

/* A received block: heads, slots, bytes of a (slot, head), small blocks. */
struct kvt_receive_block {
	int64_t heads, slots, content, ratio;
};

/*
 * The copy from received to wanted bytes of one block, or back.  Keys and values
 * that are apart are two such blocks.  Not in place.
 */
KVT_MUST_CHECK enum kvt_status
kvt_receive_plan(struct kvt_plan *out, enum kvt_receive which,
		 const struct kvt_receive_block *block, bool back,
		 struct kvt_error *err);

/*
 * Can copy_kv_blocks() do this?  vLLM returns silently from empty lists and from
 * lists of unequal length; here those are KVT_BAD_INPUT.  'seen' as in
 * kvt_block_ids_check(), for the destination's pool.
 */
KVT_MUST_CHECK enum kvt_status
kvt_copy_blocks_check(const struct kvt_block_table *src,
		      const struct kvt_block_table *dst, uint8_t *seen,
		      struct kvt_error *err);

/* ---- tokens that ranks deal out ----------------------------------------- */

/*
 * Decode context parallelism: chunks of so many tokens go round 'size' ranks, and each
 * keeps its own densely.  Size 0 or 1: all tokens are here.
 */
struct kvt_deal {
	int64_t size, rank, chunk;
};
int64_t kvt_deal_size(const struct kvt_deal *deal);	/* 1 or more */
/* How many of the first n tokens are here; so token n, if it is, is that slot. */
int64_t kvt_deal_count(const struct kvt_deal *deal, int64_t n);
bool kvt_deal_has(const struct kvt_deal *deal, int64_t token);
/* The end of the chunk that a token is in. */
int64_t kvt_deal_end(const struct kvt_deal *deal, int64_t token);

/* ---- what workers report ------------------------------------------------ */

/*
 * A request is finished when enough workers have said so, of sending and of
 * receiving apart: vLLM's KVOutputAggregator.  It counts reports and does not
 * ask who they come from.
 */
enum kvt_direction { KVT_SENDING, KVT_RECVING, KVT_NDIRECTIONS };
const char *kvt_direction_name(enum kvt_direction d);	/* "finished_sending" */

/* Of one request and direction; zeroed where nothing was reported so far. */
struct kvt_countdown {
	int64_t left;			/* reports that are missing; 0: none runs */
	int64_t expected;		/* when it began */
	int64_t rounds;			/* how often it has ended */
};

/*
 * A report.  The first one of a round begins with 'expected' reports, and later
 * ones keep to that.  True if it was the last one.
 */
bool kvt_countdown_report(struct kvt_countdown *countdown, int64_t expected);

/*
 * The count for ids that are first seen from now on.  What a worker sends along
 * counts before its own ids, for good; 0 is nothing.
 */
int64_t kvt_expected_reports(int64_t now, int64_t from_worker);

/* ---- one allocation for all layers -------------------------------------- */

/*
 * Hybrid models allocate one tensor per position, shared by a layer of each
 * group.  vLLM #37885 puts the positions side by side in one tensor of
 * [blocks, page * positions], so that a block is one run over all layers.
 */

/* What a backend says of its cache of one layer. */
struct kvt_backend_order {
	const char *name;
	const char *shape;		/* its axes, as it numbers them: "BHSC" */
	int norder;			/* 0: it defines none with layers */
	int order[KVT_NAXES + 1];	/* with layers; L is axis 0 of it */
};

struct kvt_canonical_group {
	const struct kvt_spec *spec;
	bool mixed;			/* layers of several kinds, padded alike */
	int64_t kernel_block;		/* tokens; 0: the spec's block_size */
	int nbackends;
	const struct kvt_backend_order *backend;
};

struct kvt_canonical_request {
	bool has_connector, prefers_cross_layer, supports_hma;
	int ngroups;
	const struct kvt_canonical_group *group;
	int64_t npositions;
	const int64_t *tensor_nbytes;	/* [npositions] */
	int64_t nblocks;
	int64_t row_bytes;		/* at least; 0: what the pages need */
};

/* Why it does not apply, in the order in which vLLM asks. */
enum kvt_canonical_reason {
	KVT_NO_CONNECTOR,
	KVT_CONNECTOR_PREFERS_PER_LAYER,
	KVT_CONNECTOR_NO_HMA,
	KVT_NO_GROUPS,
	KVT_NON_ATTENTION_GROUP,
	KVT_PAGE_SIZE_DIFFERS,
	KVT_TENSOR_SIZE_DIFFERS,
	KVT_NO_STRIDE_ORDER,
	KVT_LAYER_AXIS_MISSING,
	KVT_BLOCKS_NOT_OUTERMOST,
	KVT_STRIDE_ORDER_DIFFERS,
	KVT_NO_BACKEND,
	KVT_NCANONICAL_REASONS
};
const char *kvt_canonical_reason_name(enum kvt_canonical_reason reason);

/*
 * All reasons (bit 1u << reason), 0 if it applies.  'first' is the one that
 * vLLM stops at, which need not be the lowest: it asks backend by backend.
 */
struct kvt_canonical_verdict {
	unsigned reasons;
	enum kvt_canonical_reason first;
};
struct kvt_canonical_verdict
kvt_canonical_check(const struct kvt_canonical_request *request);

/* One tensor; each group refers to all of a row of it. */
struct kvt_canonical {
	int64_t nblocks, page, npositions;
	int64_t row;			/* bytes of a block: page * npositions, or more */
	int64_t nbytes;
};

/*
 * KVT_UNSUPPORTED with the first reason if it does not apply; KVT_BAD_INPUT if
 * the tensors are not what pages and blocks make.
 */
KVT_MUST_CHECK enum kvt_status
kvt_canonical_init(struct kvt_canonical *out,
		   const struct kvt_canonical_request *request,
		   struct kvt_error *err);

/* The layer of a group at a position; layers at one position share bytes. */
KVT_MUST_CHECK enum kvt_status
kvt_canonical_layer(struct kvt_view *out,
		    const struct kvt_canonical_request *request, int group,
		    int64_t position, struct kvt_error *err);

/* ---- backends ----------------------------------------------------------- */

/*
 * vLLM's attention backends, all 46 names of release 0.32 in its order; earlier ones
 * had fewer.  What depends on what is installed, on a device of ROCm or on a query is
 * not known here: it counts as supported.
 */
struct kvt_backend;
const struct kvt_backend *kvt_backend_at(int i);	/* NULL past the last */
const struct kvt_backend *kvt_backend_find(const char *name);
const char *kvt_backend_name(const struct kvt_backend *backend);
/* Has the release code for it? */
bool kvt_backend_in(const struct kvt_backend *backend, enum kvt_release release);

/* vLLM's supports_kv_connector(); false where the release has no such backend. */
bool kvt_backend_has_connector(const struct kvt_backend *backend,
			       enum kvt_release release);

/* Of which release, and what a cache is to be used for; 0, NULL, false: not asked. */
struct kvt_backend_config {
	enum kvt_release release;
	int64_t head_size;
	const char *dtype;		/* of the model */
	const char *cache_dtype;	/* vLLM's name: "auto", "fp8_e4m3", ... */
	int64_t block_size;
	const char *type;		/* "encoder", "encoder_only", "encoder_decoder" */
	int capability;			/* of CUDA: 90 is 9.0 */
	bool rocm;			/* on ROCm, which has no capability of CUDA */
	bool mla, sparse;		/* always asked */
	bool sinks, sliding_window, connector, mm_prefix, head_scales, rswa;
	bool non_causal, batch_invariant, pcp, dcp, adaptive_verification;
	bool shuffle;			/* of AITER: VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT */
};

/*
 * The kind of layers that it is, in those words of vLLM's KVCacheSpecKind that can be
 * keys of its attention_config.backend_per_kind: get_attn_spec_kind().
 */
const char *kvt_backend_kind(const struct kvt_backend_config *config);
const char *kvt_backend_kind_at(int i);		/* all of them; NULL past the last */

/* In the order of vLLM's validate_configuration(), which returns all. */
enum kvt_backend_reason {
	KVT_BACKEND_NO_CODE,		/* to XPU_ONLY: then there is no other */
	KVT_BACKEND_CUDA_ONLY,
	KVT_BACKEND_ROCM_ONLY,
	KVT_BACKEND_CPU_ONLY,
	KVT_BACKEND_XPU_ONLY,
	KVT_BACKEND_HEAD_SIZE,
	KVT_BACKEND_DTYPE,
	KVT_BACKEND_CACHE_DTYPE,
	KVT_BACKEND_BLOCK_SIZE,
	KVT_BACKEND_MM_PREFIX,
	KVT_BACKEND_MLA,
	KVT_BACKEND_NON_MLA,
	KVT_BACKEND_SINKS,
	KVT_BACKEND_SPARSE,
	KVT_BACKEND_NON_SPARSE,
	KVT_BACKEND_HEAD_SCALES,
	KVT_BACKEND_CAPABILITY,
	KVT_BACKEND_ENCODER,
	KVT_BACKEND_ENCODER_ONLY,
	KVT_BACKEND_ENCODER_DECODER,
	KVT_BACKEND_SLIDING_WINDOW,
	KVT_BACKEND_RSWA,
	KVT_BACKEND_NON_CAUSAL,
	KVT_BACKEND_NON_CAUSAL_DCP,
	KVT_BACKEND_INVARIANT,
	KVT_BACKEND_CONNECTOR,
	KVT_BACKEND_PCP,
	KVT_BACKEND_DCP,
	KVT_BACKEND_LENGTHS,
	KVT_BACKEND_OWN,		/* kvt_backend_own_reason() has the text */
	KVT_NBACKEND_REASONS
};
const char *kvt_backend_reason_text(enum kvt_backend_reason reason);

/* Bits 1u << reason; 0: valid. */
unsigned kvt_backend_check(const struct kvt_backend *backend,
			   const struct kvt_backend_config *config);

/*
 * What is wrong together, in the backend's own words; NULL: nothing.  Only what the
 * configuration decides, not what is installed.
 */
const char *kvt_backend_own_reason(const struct kvt_backend *backend,
				   const struct kvt_backend_config *config);

/* Where it is to run. */
struct kvt_backend_platform {
	bool rocm;			/* else CUDA */
	int capability;			/* of CUDA */
	int64_t heads;			/* query heads of a rank; 0: unknown */
	bool aiter;			/* AITER is there and supported */
	bool aiter_mha, aiter_mla, rdna_aiter;	/* and on for these */
};

/*
 * The backends that vLLM asks, the first first; it takes the first that refuses
 * nothing.  Writes at most 'room' of them and returns how many there are (10 at
 * most).  Of the connector, CUDA does not ask; ROCm leaves out ROCM_ATTN.
 */
int kvt_backend_order_of(const struct kvt_backend **out, int room,
			 const struct kvt_backend_config *config,
			 const struct kvt_backend_platform *platform);

/*
 * What a backend takes, under conditions that are bits of lib/vllm/layout.c: layouts by
 * vLLM's names, the one that it prefers first, NULL for any; and where the bytes are
 * then, as presets and axis strings.
 */
struct kvt_backend_layout {
	const char *backend;
	enum kvt_release since, until;
	unsigned when;
	const char *names, *bytes;	/* "LBHNC LHBNC"; one of them may be NULL */
};
const struct kvt_backend_layout *kvt_backend_layout_at(int i);

/*
 * Could the bytes of this shape be where the layout has them, as far as release,
 * device, connector and shuffle are known?  With one head NHD and HND are the same
 * bytes.
 */
bool kvt_backend_writes(const struct kvt_backend *backend,
			const struct kvt_backend_config *config,
			const struct kvt_layout *layout, const struct kvt_shape *shape);

/* The releases in which it could, on any device, as bits 1u << release. */
unsigned kvt_backend_wrote(const struct kvt_backend *backend,
			   const struct kvt_layout *layout,
			   const struct kvt_shape *shape);

/* What it takes where nothing unusual is said; NULL: the release has none. */
const struct kvt_backend_layout *
kvt_backend_layouts(const struct kvt_backend *backend,
		    const struct kvt_backend_config *config);

/*
 * vLLM's is_kv_layout_blocks_first and split_k_and_v, which releases up to 0.24 have;
 * false for later ones.  'backend' may be NULL where there are latents or recurrent
 * states.
 * Said of the shape that the backend gives a cache, not of its memory.
 */
struct kvt_kv_regions {
	bool blocks_first, split;
};
bool kvt_kv_regions(struct kvt_kv_regions *out, enum kvt_release release,
		    const struct kvt_backend *backend, bool mla, bool recurrent,
		    bool cross_layer);

/* What a connector needs of the bytes. */
enum {
	KVT_NEED_BLOCKS_FIRST = 1 << 0,	/* a block is one region of a layer */
	KVT_NEED_K_WITH_V = 1 << 1,	/* both are found by the block's id */
	KVT_NEED_HEADS_FIRST = 1 << 2,	/* unequal TP: heads are runs */
	KVT_NEED_BLOCK_SIZE = 1 << 3,	/* of 16 or a multiple */
};
/*
 * The needs that are not met.  Up to 0.24 keys and values that are apart are regions
 * of their own (split_k_and_v), each of blocks; later ones have no such regions.
 */
unsigned kvt_connector_unmet(enum kvt_release release, const struct kvt_layout *layout,
			     const struct kvt_shape *shape, bool unequal_tp);

#ifdef __cplusplus
}
#endif

#endif
