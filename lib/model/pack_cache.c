/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack_cache.c - the caches of a pool, and which of them vLLM takes to be alike
 *
 * A cache here is what an engine's layer has: one of the groups of a model, or a conv
 * and the SSM state that follows it.  Layers of a cache are alike, so that counting
 * them is enough.  vLLM compares two in three ways, each a method of its specs
 * (kv_cache_interface.py of 0.32):
 *
 *	kvt_pack_equal()	fields are the same: one list of layers
 *	kvt_pack_merges()	merge() of the first's class takes both: one spec
 *	kvt_pack_one_type()	UniformTypeKVCacheSpecs takes both: a group of several
 */
#include "lib/model/pack_cache.h"

#include <string.h>

enum { MOST_LAYERS = 1 << 16 };

/* ---- caches -------------------------------------------------------------- */

static struct cache cache_of(const struct kvt_model_size *size, int at)
{
	const struct kvt_group_size *g = &size->group[at];
	struct cache c = {
		.at = at, .n = kvt_state_groups(size, at), .size = g,
		.is = kvt_spec_class_of(g->keeps, &g->group.args),
		.layers = g->group.layers, .block = g->spec.block_size,
		.page = g->page, .unpadded = g->unpadded,
		.stride = g->group.args.stride ? g->group.args.stride : 1,
	};

	if (!c.n)
		c.n = 1;
	else
		c.block = size->block_size;
	if (c.n > 1) {
		c.page += g[1].page;
		c.unpadded += g[1].unpadded;
	}
	c.padded = c.page != c.unpadded;
	return c;
}

enum kvt_status kvt_pack_caches(struct caches *out, const struct kvt_model_size *size,
			  struct kvt_error *err)
{
	int64_t layers = 0;

	out->n = 0;
	for (int at = 0; at < size->ngroups;) {
		struct cache c = cache_of(size, at);

		at += c.n;
		if (c.is == KVT_CLASS_HOT || c.is == KVT_CLASS_RESIDENT)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: how HiSparse shares a pool is not modelled",
					size->group[c.at].group.name);
		if (c.is == KVT_CLASS_ENCODER)
			continue;
		if (__builtin_add_overflow(layers, c.layers, &layers) ||
		    layers > MOST_LAYERS)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%lld layers or more, expected at most %d in a pool", LL(layers), MOST_LAYERS);
		out->c[out->n++] = c;
	}
	return KVT_OK;
}

/* ---- which of them go together -------------------------------------------- */

/* The fields of an AttentionSpec. */
static bool same_fields(const struct cache *a, const struct cache *b)
{
	const struct kvt_spec *x = &a->size->spec, *y = &b->size->spec;

	return a->block == b->block && a->page == b->page && a->padded == b->padded &&
	       a->stride == b->stride && x->num_heads == y->num_heads &&
	       x->content_size == y->content_size && x->elem == y->elem &&
	       x->ncontent == y->ncontent &&
	       !memcmp(x->content, y->content, sizeof(x->content)) &&
	       x->tokens_per_slot.num == y->tokens_per_slot.num &&
	       x->tokens_per_slot.den == y->tokens_per_slot.den;
}

static bool same_shapes(const struct cache *a, const struct cache *b)
{
	for (int i = 0; i < a->n; i++)
		if (memcmp(a->size[i].spec.content, b->size[i].spec.content,
			   sizeof(a->size->spec.content)) ||
		    a->size[i].spec.elem != b->size[i].spec.elem ||
		    a->size[i].spec.num_heads != b->size[i].spec.num_heads)
			return false;
	return true;
}

/* Every rank has all of such a state. */
static bool is_whole(const struct cache *c)
{
	return c->is == KVT_CLASS_STATE && !strcmp(c->size->group.spec, "conv-whole");
}

bool kvt_pack_equal(const struct cache *a, const struct cache *b)
{
	if (a->is == KVT_CLASS_STATE)
		return b->is == a->is && a->n == b->n && a->block == b->block &&
		       a->page == b->page && a->padded == b->padded &&
		       is_whole(a) == is_whole(b) && same_shapes(a, b);
	/* gqa and pooled of one slot a token are one spec of vLLM's */
	return a->is == b->is && same_fields(a, b) &&
	       (a->is == KVT_CLASS_FULL ||
		!strcmp(a->size->group.spec, b->size->group.spec)) &&
	       args_of(a)->window == args_of(b)->window &&
	       args_of(a)->retained == args_of(b)->retained &&
	       args_of(a)->replay == args_of(b)->replay &&
	       args_of(a)->leader == args_of(b)->leader;
}

/*
 * vLLM compares no width of these, nor their pages and blocks, which differ only where
 * it would mistake one for the other; then they are kept apart here.
 */
static bool same_windows(const struct cache *a, const struct cache *b)
{
	const struct kvt_spec_args *x = args_of(a), *y = args_of(b);

	return a->is == b->is && a->page == b->page && a->block == b->block &&
	       a->stride == b->stride && x->window == y->window &&
	       x->retained == y->retained && x->replay == y->replay &&
	       a->size->spec.tokens_per_slot.num == b->size->spec.tokens_per_slot.num &&
	       !strcmp(a->size->group.spec, b->size->group.spec);
}

int64_t kvt_pack_window(const struct cache *c)
{
	bool noted = c->is == KVT_CLASS_FULL || c->is == KVT_CLASS_SINK;

	return noted ? args_of(c)->window : 0;
}

bool kvt_pack_merges(const struct cache *first, const struct cache *other)
{
	switch (first->is) {
	case KVT_CLASS_FULL:
	case KVT_CLASS_SINK:
		return is_plain_full(other) && same_fields(first, other);
	case KVT_CLASS_RSWA:
		return other->is == first->is && same_fields(first, other) &&
		       args_of(first)->window == args_of(other)->window;
	case KVT_CLASS_MLA:
	case KVT_CLASS_HIDDEN:
		return is_latent(other) && same_fields(first, other) &&
		       args_of(first)->leader == args_of(other)->leader &&
		       (first->is != other->is ||
			!strcmp(first->size->group.spec, other->size->group.spec));
	case KVT_CLASS_WINDOW_MLA:
		return same_windows(first, other);
	default:
		return kvt_pack_equal(first, other);
	}
}

bool kvt_pack_one_type(const struct cache *first, const struct cache *other)
{
	if (first->block != other->block)
		return false;
	switch (first->is) {
	case KVT_CLASS_WINDOW:
		return is_window(other) &&
		       args_of(first)->window == args_of(other)->window;
	case KVT_CLASS_WINDOW_MLA:
		return other->is == first->is &&
		       args_of(first)->window == args_of(other)->window &&
		       args_of(first)->replay == args_of(other)->replay;
	case KVT_CLASS_CHUNK:
		return other->is == first->is &&
		       args_of(first)->window == args_of(other)->window;
	case KVT_CLASS_STATE:
		return other->is == first->is && first->page == other->page &&
		       is_whole(first) == is_whole(other);
	default:
		return kvt_class_rule(first->is)->base == kvt_class_rule(other->is)->base;
	}
}

bool kvt_pack_all(const struct caches *all,
	    bool (*go)(const struct cache *, const struct cache *))
{
	for (int i = 1; i < all->n; i++)
		if (!go(&all->c[0], &all->c[i]))
			return false;
	return true;
}

void kvt_pack_sort(struct buckets *out, const struct caches *all,
	       bool (*go)(const struct cache *, const struct cache *), bool windows)
{
	out->n = 0;
	for (int i = 0; i < all->n; i++) {
		int64_t mine = windows ? kvt_pack_window(&all->c[i]) : 0, seen;
		struct bucket *b = out->b;

		if (all->c[i].is == KVT_CLASS_HIDDEN)
			continue;
		for (; b < out->b + out->n; b++) {
			seen = 0;
			for (int k = 0; windows && k < b->n && !seen; k++)
				seen = kvt_pack_window(&all->c[b->cache[k]]);
			if (go(&all->c[b->cache[0]], &all->c[i]) &&
			    (!mine || !seen || mine == seen))
				break;
		}
		if (b == out->b + out->n)
			out->b[out->n++] = (struct bucket){ .n = 0 };
		b->cache[b->n++] = i;
	}
}
