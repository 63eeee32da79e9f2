/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.c - do all workers that share a store of LMCache have the same chunks?
 *
 * One worker looks a chunk up, and all of them load their share of it: one that is not
 * there is a request with a hole.  Keys and lengths alone are looked at.  Workers that
 * have no chunk at all keep theirs elsewhere.
 */
#include "formats/lmcache/lmcache.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WORKERS = 4096 };

static int compare(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

static const char *dtype_of(const struct kvt_lmcache_key *key)
{
	return key->dtype ? key->dtype->name : "";
}

/* Chunks of the workers of one cache. */
static int by_cache(const struct kvt_lmcache_key *x, const struct kvt_lmcache_key *y)
{
	int order = strcmp(x->model, y->model);

	order = order ? order : compare(x->world, y->world);
	order = order ? order : compare(x->group, y->group);
	order = order ? order : strcmp(dtype_of(x), dtype_of(y));
	return order ? order : strcmp(x->tags, y->tags);
}

static int by_chunk(const struct kvt_lmcache_key *x, const struct kvt_lmcache_key *y)
{
	int order = strcmp(x->hash, y->hash);

	return order ? order : compare(x->layer, y->layer);
}

static int by_worker(const void *a, const void *b)
{
	const struct kvt_lmcache_key *x = &(*(struct kvt_lmcache_part *const *)a)->key;
	const struct kvt_lmcache_key *y = &(*(struct kvt_lmcache_part *const *)b)->key;
	int order = by_cache(x, y);

	order = order ? order : by_chunk(x, y);
	return order ? order : compare(x->worker, y->worker);
}

/* One chunk, of the workers that have it; 'has': those that have any. */
static void tell_chunk(const struct kvt_lmcache *o, struct kvt_lmcache_part *const *part,
		       int64_t n, const uint8_t *has)
{
	const struct kvt_lmcache_key *key = &part[0]->key;
	int64_t at = 0;

	for (int64_t w = 0; w < key->world; w++) {
		while (at < n && part[at]->key.worker < w)
			at++;
		if (has[w] && (at == n || part[at]->key.worker != w))
			kvt_tell(o->hints, "pool.missing",
				 "chunk %.130s is of worker %lld, but not of worker %lld",
				 key->hash, LL(key->worker), LL(w));
	}
	for (int64_t i = 1; i < n; i++)
		if (part[i]->nbytes != part[0]->nbytes)
			kvt_tell(o->hints, "pool.size",
				 "chunk %.130s has %lld bytes of worker %lld, %lld of worker %lld",
				 key->hash, LL(part[i]->nbytes), LL(part[i]->key.worker),
				 LL(part[0]->nbytes), LL(key->worker));
}

static void tell_cache(const struct kvt_lmcache *o, struct kvt_lmcache_part *const *part,
		       int64_t n, uint8_t *has)
{
	memset(has, 0, MOST_WORKERS);
	for (int64_t i = 0; i < n; i++)
		has[part[i]->key.worker] = 1;
	for (int64_t begin = 0, end; begin < n; begin = end) {
		for (end = begin + 1; end < n; end++)
			if (by_chunk(&part[begin]->key, &part[end]->key))
				break;
		tell_chunk(o, part + begin, end - begin, has);
	}
}

enum kvt_status kvt_lmcache_check_workers(const struct kvt_lmcache *o)
{
	struct kvt_lmcache_part **part = calloc((size_t)o->count + 1, sizeof(*part));
	uint8_t *has = malloc(MOST_WORKERS);
	enum kvt_status status = KVT_OK;

	if (!part || !has)
		status = kvt_no_memory(o->err, o->path);
	for (int64_t i = 0; !status && i < o->count; i++)
		part[i] = &o->part[i];
	if (!status)
		qsort(part, (size_t)o->count, sizeof(*part), by_worker);
	for (int64_t begin = 0, end; !status && begin < o->count; begin = end) {
		for (end = begin + 1; end < o->count; end++)
			if (by_cache(&part[begin]->key, &part[end]->key))
				break;
		if (part[begin]->key.world > 1 && part[begin]->key.world <= MOST_WORKERS)
			tell_cache(o, part + begin, end - begin, has);
	}
	free(part);
	free(has);
	return status;
}
