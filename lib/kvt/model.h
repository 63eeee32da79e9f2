/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - the caches that a model needs, and what they take on a rank
 *
 * spec.h knows a group of layers; this header knows all groups of a model at
 * once, because those share the memory of a rank and, in hybrids, the size of a
 * page.  The conventions are those of kvt.h.
 */
#ifndef KVT_MODEL_H
#define KVT_MODEL_H

#include "lib/kvt/release.h"
#include "lib/kvt/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layers that cache the same. */
struct kvt_model_group {
	char name[32];			/* "full", "conv" */
	const char *spec;		/* a preset of kvt_spec_make(); never freed */
	int64_t layers;
	/*
	 * A block size of 0 is the deployment's; an element of 0 bytes is the
	 * deployment's cache type, or the preset's own in a state.
	 */
	struct kvt_spec_args args;
};

/*
 * The group, named g0, that "gqa:layers=80,heads=8,head-dim=128" says, and the
 * words for a group.  What is not said is 0, also the layers.
 */
KVT_MUST_CHECK enum kvt_status
kvt_model_group_parse(struct kvt_model_group *out, const char *text,
		      struct kvt_error *err);
struct kvt_group_text {
	char s[512];
};
struct kvt_group_text kvt_model_group_text(const struct kvt_model_group *group);

enum { KVT_MODEL_GROUPS = 16, KVT_MODEL_LAYERS = 4096 };

struct kvt_model {
	const char *layout;		/* of an engine's pool; never freed; NULL: any */
	int64_t state_chunk;		/* tokens whose states vLLM 0.26 keeps, or 0 */
	int ngroups;
	/* As layers come to them; a conv state right before its SSM state. */
	struct kvt_model_group group[KVT_MODEL_GROUPS];
	/* A bit of each layer for each group that it is in; nlayers 0: not known. */
	int64_t nlayers;
	uint16_t layer[KVT_MODEL_LAYERS];
};

/*
 * The group as a cache type has it: another element, or another preset
 * ("int8_per_token_head").  A state and rows of a fixed form stay as they are.
 * KVT_USAGE: no such type; KVT_BAD_INPUT: this cache is never of that type.
 */
KVT_MUST_CHECK enum kvt_status
kvt_model_cached_as(struct kvt_model_group *out, const struct kvt_model_group *in,
		    const char *cache_dtype, struct kvt_error *err);

/*
 * With speculative decoding: each state keeps 'tokens' drafts, and so many layers of the
 * model's own draft (MTP).  KVT_UNSUPPORTED where it is not known what these keep.
 */
KVT_MUST_CHECK enum kvt_status
kvt_model_draft(struct kvt_model *model, int64_t tokens, int64_t layers,
		struct kvt_error *err);
/* The caches of a model that drafts, too: layers that keep the same are one group. */
KVT_MUST_CHECK enum kvt_status
kvt_model_join(struct kvt_model *model, const struct kvt_model *draft,
	       struct kvt_error *err);

/* What an engine is started with. */
struct kvt_deployment {
	int64_t tp, block_size;
	const char *cache_dtype;	/* an element type or a form; not "auto" */
	const char *indexer_dtype;	/* of an indexer's keys, or NULL */
	bool apart;			/* pages of states and tokens need not be equal */
	enum kvt_release release;	/* whose rule makes them equal */
	int64_t dcp;			/* ranks that share tokens; 0 or 1: none */
};

struct kvt_group_size {
	struct kvt_model_group group;	/* as it is cached */
	const char *keeps;		/* the model's preset: what tokens it keeps */
	struct kvt_spec spec;		/* of every rank: all shares are alike */
	int64_t block_size;		/* tokens; 0: there is one of a request */
	int64_t unpadded, page;		/* bytes of a block of a layer */
	int64_t most_blocks;		/* of one request, by its window; 0: any */
	int64_t dealt;			/* ranks that tokens are dealt to, 1 or more */
};

struct kvt_model_size {
	int64_t tp;
	int64_t block_size;		/* of the deployment, raised if a page must be */
	int ngroups;
	struct kvt_group_size group[KVT_MODEL_GROUPS];
	/* A state layer's page holds all of its states, a conv and the SSM state that
	 * follows it; vLLM pads it to a page of tokens.  The largest; 0: no states. */
	int64_t state_page, state_padded;
};

/*
 * What the model takes on one of 'tp' ranks.  Where states and tokens share pages, a
 * block gets as many more tokens, 16 or 'block_size' at a time, as its page needs to
 * hold a state, and the padding is counted with the last of a state.  With latents
 * vLLM 0.32 adds at least 128; vLLM 0.26 whole chunks where it keeps a state of each.
 * Pages are those of attention; an indexer's go beside them.
 * KVT_BAD_INPUT: 'dcp' ranks cannot hold the same heads.
 */
KVT_MUST_CHECK enum kvt_status
kvt_model_size(struct kvt_model_size *out, const struct kvt_model *model,
	       const struct kvt_deployment *deployment, struct kvt_error *err);

/* The groups from 'i' on that are one state of a layer: 2, 1, or 0 of tokens. */
int kvt_state_groups(const struct kvt_model_size *size, int i);

/* Bytes of one request on a rank; INT64_MAX if they are more than that. */
int64_t kvt_model_request(const struct kvt_model_size *size, int64_t tokens);

/*
 * The most tokens of a request that takes at most this many bytes; -1 if not
 * even the states fit, KVT_ANY_TOKENS if more tokens take no more.
 */
enum { KVT_ANY_TOKENS = 1 << 30 };
int64_t kvt_model_tokens(const struct kvt_model_size *size, int64_t nbytes);

/* The same of each of so many requests, 1 or more, that share the bytes evenly. */
int64_t kvt_model_fit(const struct kvt_model_size *size, int64_t nbytes,
		      int64_t requests);

/*
 * Bytes on a rank by what they grow with.  Those of a token need not be whole: a
 * block is shared out among its tokens.
 */
struct kvt_model_sums {
	double token;			/* of every further token */
	double window;			/* of a token that is in all windows, besides */
	double all_ranks;		/* 'token' on all ranks together */
	double unique;			/* the same without what ranks replicate */
	int64_t windows, states;	/* of a request, at most */
};
struct kvt_model_sums kvt_model_sums(const struct kvt_model_size *size);

/* ---- one pool for all groups -------------------------------------------- */

/* Layers of a cache in one group. */
struct kvt_pack_part {
	int cache;			/* the first of its groups of kvt_model_size */
	int64_t layers;
	int64_t block_size, page;	/* which the engine may have made larger */
	int64_t offset;			/* in a block of the pool; -1: it has no runs */
};

/* Groups that follow each other and have the same parts; each has its block table. */
struct kvt_pack_group {
	int64_t times;
	int64_t nbytes;			/* of a block */
	int nparts;
	struct kvt_pack_part part[KVT_MODEL_GROUPS];
};

enum { KVT_PACK_RUNS = 3 * KVT_MODEL_GROUPS };

/*
 * A pool of blocks, as vLLM 0.32 makes it: a block belongs to one group at a time, so
 * all groups begin at byte 0, and a block has room for the largest.
 */
struct kvt_pack {
	int64_t block_nbytes;		/* of one block id, with all of its layers */
	int64_t ngroups;		/* 'times' of all */
	int nruns;
	struct kvt_pack_group run[KVT_PACK_RUNS];
};

/*
 * 'layout' is the pool's: B outermost lets pages of several sizes stand side by side,
 * else all become as large as the largest: by more tokens, or by padding.
 * KVT_BAD_INPUT: this layout, or vLLM, cannot keep these caches in one pool;
 * KVT_UNSUPPORTED: vLLM allocates them in a way that is not modelled here (HiSparse).
 */
KVT_MUST_CHECK enum kvt_status
kvt_model_pack(struct kvt_pack *out, const struct kvt_model_size *size,
	       const struct kvt_layout *layout, struct kvt_error *err);

/* The most block ids of a request in each group of a run, and in all groups. */
KVT_MUST_CHECK enum kvt_status
kvt_pack_blocks(int64_t *out, const struct kvt_model_size *size,
		const struct kvt_pack_group *run, const struct kvt_demand *demand,
		struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_pack_request(int64_t *out, const struct kvt_model_size *size,
		 const struct kvt_pack *pack, const struct kvt_demand *demand,
		 struct kvt_error *err);

#ifdef __cplusplus
}
#endif

#endif
