/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_cache.h - the caches of a pool, and which of them vLLM takes to be alike
 */
#ifndef KVT_MODEL_PACK_CACHE_H
#define KVT_MODEL_PACK_CACHE_H

#include "lib/kvt/model.h"

struct cache {
	int at, n;			/* groups of kvt_model_size */
	enum kvt_spec_class is;
	int64_t layers, block, page, unpadded, stride;
	bool padded;
	const struct kvt_group_size *size;
};

struct caches {
	int n;
	struct cache c[KVT_MODEL_GROUPS];
};

/* Caches whose layers may be of one group, in the order of the model. */
struct bucket {
	int n;
	int cache[KVT_MODEL_GROUPS];
};

struct buckets {
	int n;
	struct bucket b[KVT_MODEL_GROUPS];
};

static inline const struct kvt_spec_args *args_of(const struct cache *c)
{
	return &c->size->group.args;
}

static inline bool is_plain_full(const struct cache *c)
{
	return c->is == KVT_CLASS_FULL || c->is == KVT_CLASS_RSWA ||
	       c->is == KVT_CLASS_SINK;
}

static inline bool is_latent(const struct cache *c)
{
	return c->is == KVT_CLASS_MLA || c->is == KVT_CLASS_HIDDEN;
}

/* A window is one of any class beneath SlidingWindowSpec if it comes first. */
static inline bool is_window(const struct cache *c)
{
	return c->is == KVT_CLASS_WINDOW || c->is == KVT_CLASS_WINDOW_MLA;
}

/* The caches of a model, in its order; encoders' have no pool. */
enum kvt_status kvt_pack_caches(struct caches *out, const struct kvt_model_size *size,
			  struct kvt_error *err);

/* Are both one spec of vLLM's? */
bool kvt_pack_equal(const struct cache *a, const struct cache *b);

/* Does vLLM's merge() of the first one's class take both? */
bool kvt_pack_merges(const struct cache *first, const struct cache *other);

/* Do both need the same number of blocks, for which pages need not be equal? */
bool kvt_pack_one_type(const struct cache *first, const struct cache *other);

bool kvt_pack_all(const struct caches *all,
	    bool (*go)(const struct cache *, const struct cache *));

/* The window that full attention is computed with; it frees nothing. */
int64_t kvt_pack_window(const struct cache *c);

/* Into the first bucket that takes it; 'windows': of one noted window at most. */
void kvt_pack_sort(struct buckets *out, const struct caches *all,
	       bool (*go)(const struct cache *, const struct cache *), bool windows);

#endif
