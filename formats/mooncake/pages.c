/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c - pages that SGLang's HiCache keeps in Mooncake
 *
 *	[TAG_]HASH_RANK[_STAGE][_POOL]_k	keys of a page, and _v values
 *	[TAG_]HASH_[STAGE][_POOL]_k		latents
 *
 * A value is half of what a file of HiCache holds: in its layouts keys come before all
 * values, so each half is in the same order.  Nothing says how many ranks there are.
 * Facts: mooncake_store.py of SGLang 0.5.23.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/mooncake/mooncake.h"
#include "formats/store/store.h"

enum { DIGITS = 64 };

struct page_name {
	struct kvt_name_part page;	/* tag, hash and rank: the name of its request */
	struct kvt_name_part rank, pool;
	bool values;
};

/* The hash: 64 digits at the beginning, or behind a bar. */
static const char *find_hash(const char *key)
{
	for (const char *p = key; p; p = strchr(p, '_')) {
		p += *p == '_';
		if (strspn(p, "0123456789abcdef") == DIGITS && p[DIGITS] == '_')
			return p;
	}
	return NULL;
}

/* "0", "dcp1", "cp0", or nothing. */
static bool is_rank(const char *s, size_t n)
{
	static const char *const words[] = { "dcp", "cp" };
	const char *end = s + n;

	for (int i = 0; i < 2; i++)
		if (n > strlen(words[i]) && !strncmp(s, words[i], strlen(words[i]))) {
			s += strlen(words[i]);
			break;
		}
	while (s < end && isdigit((unsigned char)*s))
		s++;
	return s == end;
}

static bool parse(struct page_name *out, const char *key)
{
	const char *hash = find_hash(key), *end = key + strlen(key) - 2, *at, *ranks;

	if (!hash || end < hash + DIGITS + 1 || *end != '_' ||
	    (end[1] != 'k' && end[1] != 'v'))
		return false;
	out->values = end[1] == 'v';
	out->rank.s = at = ranks = hash + DIGITS + 1;
	while (at < end) {
		size_t n = strcspn(at, "_"), left = (size_t)(end - at);

		n = n < left ? n : left;
		if (!is_rank(at, n))
			break;
		ranks = at + n;
		at = ranks + (ranks < end);
	}
	out->rank.n = (size_t)(ranks - out->rank.s);
	/* latents have no rank, but the bar before it */
	out->page = (struct kvt_name_part){ key, (size_t)(ranks - key) - !out->rank.n };
	out->pool = at < end ? (struct kvt_name_part){ at, (size_t)(end - at) } :
			       (struct kvt_name_part){ "kv", 2 };
	return true;
}

bool kvt_mooncake_is_page(const struct kvt_mooncake_value *value)
{
	struct page_name name;

	return parse(&name, value->key);
}

enum { RANK, POOL, NCHOICES };

/* Is it of the rank and pool that are read?  Parts lie in the texts of values. */
static enum kvt_status is_chosen(const struct kvt_mooncake *o, bool *out,
				 struct kvt_store_choice choice[NCHOICES],
				 const struct page_name *name)
{
	enum kvt_status status;
	bool skip;

	*out = false;
	if ((status = kvt_store_choose(&skip, &choice[POOL], &name->pool, o->path,
				       o->err)) || skip)
		return status;
	status = kvt_store_choose(&skip, &choice[RANK], &name->rank, o->path, o->err);
	*out = !skip;
	return status;
}

static enum kvt_status choose(struct kvt_mooncake *o, bool *values)
{
	struct kvt_store_choice choice[NCHOICES] = {
		[RANK] = { .key = "rank", .what = "ranks" },
		[POOL] = { .key = "pool", .what = "pools" },
	};
	struct kvt_mooncake_value *v = o->values.value;
	enum kvt_status status = KVT_OK;
	int64_t n = 0;

	*values = false;
	for (int i = 0; i < NCHOICES; i++)
		choice[i].asked = kvt_fact(o->hints, choice[i].key);
	for (int64_t i = 0; !status && i < o->values.count; i++) {
		struct kvt_mooncake_value here = v[i];
		struct page_name name;
		bool chosen;

		parse(&name, here.key);
		if ((status = is_chosen(o, &chosen, choice, &name)) || !chosen)
			continue;
		/* what is left out stays behind those, until it can be freed */
		*values |= name.values;
		v[i] = v[n];
		v[n++] = here;
	}
	for (int i = 0; !status && i < NCHOICES; i++)
		status = kvt_store_chosen(&choice[i], o->path, o->err);
	while (!status && o->values.count > n)
		free(v[--o->values.count].text);
	return status;
}

/* Values are in the order of their keys: the two of a page follow each other. */
static enum kvt_status check_halves(const struct kvt_mooncake *o, int64_t i,
				    const struct page_name *name)
{
	const struct kvt_mooncake_value *v = &o->values.value[i], *twin = v + 1;
	size_t n = strlen(v->key);

	if (name->values || i + 1 == o->values.count || strlen(twin->key) != n ||
	    memcmp(v->key, twin->key, n - 1))
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: page %.*s has %s", o->path,
				(int)name->page.n, name->page.s, name->values ?
				"values, but no keys" : "keys, but no values");
	if (v->nbytes != twin->nbytes)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: page %.*s has %lld bytes of keys and %lld of values",
				o->path, (int)name->page.n, name->page.s, LL(v->nbytes),
				LL(twin->nbytes));
	return KVT_OK;
}

/* Keys and values of a page become one chunk; latents are one already. */
static enum kvt_status add_pages(struct kvt_mooncake *o)
{
	bool twin = true;

	for (int64_t i = 0; i < o->values.count; i++) {
		const struct kvt_mooncake_value *v = &o->values.value[i];
		struct page_name name;
		enum kvt_status status;

		parse(&name, v->key);
		if (o->chunks.halves && !(twin = !twin) &&
		    (status = check_halves(o, i, &name)))
			return status;
		/* both halves have the name of the page, and each a copy of it */
		v->key[name.page.n] = '\0';
		if ((status = kvt_chunks_add(&o->chunks, &(struct kvt_chunk){
				v->key, o->chunks.halves ? name.values : -1, v->file,
				v->offset, v->nbytes, -1, NULL, NULL, 0 }, o->err)))
			return status;
	}
	return KVT_OK;
}

enum kvt_status kvt_mooncake_pages(struct kvt_mooncake *o, struct kvt_group *group)
{
	enum kvt_status status = choose(o, &o->chunks.halves);

	if (status)
		return status;
	group->dtype = kvt_hint_dtype(NULL, o->hints, group->id);
	if ((status = kvt_chunks_page_layout(group, o->chunks.halves, o->hints,
					     o->err)) ||
	    (status = kvt_chunks_said(group, -1, o->hints, o->values.value[0].key,
				      o->err)))
		return status;
	if (o->chunks.halves && group->shape.n[KVT_AXIS_K] != 2)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: holds keys and values (_k and _v), no latents: give --heads and --head-dim instead",
				o->path);
	if (!o->chunks.halves && group->shape.n[KVT_AXIS_K] == 2)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: holds no values beside its keys (_v beside _k): give --content, if these are latents",
				o->path);
	if (group->shape.n[KVT_AXIS_K] == 1)
		group->kind = KVT_MLA;
	return add_pages(o);
}
