/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twice.c - blocks, heads and layers that hold the same, bit for bit
 *
 * What two tokens leave in a cache depends on all tokens before them, so two blocks in
 * use hold the same only where two requests begin with the same text: both are then the
 * same entry of their tables, and so are those before them.  Of a pool without tables
 * nobody can tell that, so it is said and is no verdict.  Heads and layers are never the
 * same, nor are keys and values.
 *
 * The blocks of a layer are sorted by what they hold, so that equal ones are neighbours.
 */
#include "lib/ops/strange/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST_PAIRS = 64,		/* of blocks that are kept apart */
	MOST_ALIKE = 8,			/* that one is compared with */
	MOST_USES = 64,			/* of a block, to find out whose it is */
	LEAST_BYTES = 64,		/* of a block: less may be the same by chance */
	MOST_HEADS = 512, MOST_LAYERS = 1024,
};

/* ---- blocks ----------------------------------------------------------------- */

struct use {
	int64_t request, entry;		/* entry: of the table from the first token on */
	int64_t before;			/* the block of the entry before; -1: none */
};

struct pair {
	int64_t block[2];
	int64_t layers, first;		/* where they are the same; the first of these */
	bool same_entry;
};

struct hunt {
	const struct strange_seen *seen;
	int64_t *first_use;		/* [B + 2] */
	struct use *use;
	bool tables;			/* some request has blocks */
	struct sorted {
		uint64_t hash;
		int64_t block;
	} *sorted;			/* [B] */
	int npairs;
	struct pair pair[MOST_PAIRS];
	int64_t more;
};

static bool index_uses(struct hunt *h)
{
	const struct kvt_snapshot *s = h->seen->snapshot;
	const int64_t nblocks = h->seen->group->shape.n[KVT_AXIS_B];
	int64_t total = 0;

	for (int64_t r = 0; r < s->nrequests; r++)
		total += s->request[r].nblocks[h->seen->g];
	h->tables = total > 0;
	h->first_use = calloc((size_t)nblocks + 2, sizeof(*h->first_use));
	h->use = calloc((size_t)total + 1, sizeof(*h->use));
	h->sorted = calloc((size_t)nblocks + 1, sizeof(*h->sorted));
	if (!h->first_use || !h->use || !h->sorted)
		return false;
	for (int64_t r = 0; r < s->nrequests; r++)
		for (int64_t i = 0; i < s->request[r].nblocks[h->seen->g]; i++)
			h->first_use[s->request[r].blocks[h->seen->g][i] + 2]++;
	/* counting sort: [b + 1] is where the uses of b begin, then moves on */
	for (int64_t b = 0; b < nblocks; b++)
		h->first_use[b + 2] += h->first_use[b + 1];
	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_table t = kvt_table_of(s, h->seen->g, &s->request[r]);

		for (int64_t i = 0; i < t.nblocks; i++)
			h->use[h->first_use[t.blocks[i] + 1]++] = (struct use){
				r, t.first + i, i ? (int64_t)t.blocks[i - 1] : -1 };
	}
	return true;
}

static uint64_t hash_at(const struct hunt *h, int64_t layer, int64_t block)
{
	return h->seen->page[layer * h->seen->group->shape.n[KVT_AXIS_B] + block];
}

/* Two requests that begin with the same text, as far as this layer can tell. */
static bool is_prefix(const struct hunt *h, int64_t layer, int64_t a, int64_t b,
		      bool *same_entry)
{
	*same_entry = false;
	/* what so many requests have is how all of them begin */
	if (h->first_use[a + 1] - h->first_use[a] > MOST_USES ||
	    h->first_use[b + 1] - h->first_use[b] > MOST_USES)
		return true;
	for (int64_t i = h->first_use[a]; i < h->first_use[a + 1]; i++)
		for (int64_t j = h->first_use[b]; j < h->first_use[b + 1]; j++) {
			const struct use *x = &h->use[i], *y = &h->use[j];

			if (x->entry != y->entry)
				continue;
			*same_entry = true;
			if (x->before == y->before || x->before < 0 || y->before < 0 ||
			    hash_at(h, layer, x->before) == hash_at(h, layer, y->before))
				return true;
		}
	return false;
}

static void add_pair(struct hunt *h, int64_t layer, int64_t a, int64_t b, bool same_entry)
{
	struct pair *p;

	for (int i = 0; i < h->npairs; i++) {
		p = &h->pair[i];
		if (p->block[0] == a && p->block[1] == b) {
			p->layers++;
			return;
		}
	}
	if (h->npairs == MOST_PAIRS) {
		h->more++;
		return;
	}
	h->pair[h->npairs++] = (struct pair){ { a, b }, 1, layer, same_entry };
}

static int by_hash(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (x->block > y->block) - (x->block < y->block);
}

/* sorted[i] is like some from 'first' on, which come before it. */
static void judge_alike(struct hunt *h, int64_t layer, int64_t first, int64_t i)
{
	int64_t b = h->sorted[i].block, from = i - MOST_ALIKE;
	bool same_entry, ignored;

	for (int64_t j = from > first ? from : first; j < i; j++)
		if (is_prefix(h, layer, h->sorted[j].block, b, &ignored))
			return;
	if (h->tables && !is_prefix(h, layer, h->sorted[first].block, b, &same_entry))
		add_pair(h, layer, h->sorted[first].block, b, same_entry);
	else if (!h->tables)
		add_pair(h, layer, h->sorted[first].block, b, false);
}

static void hunt_layer(struct hunt *h, int64_t layer)
{
	const struct kvt_shape *shape = &h->seen->group->shape;
	int64_t row = shape->n[KVT_AXIS_H] * shape->n[KVT_AXIS_K] *
		      shape->n[KVT_AXIS_D] * shape->elem, n = 0, first = 0;

	for (int64_t b = 0; b < shape->n[KVT_AXIS_B]; b++)
		if (hash_at(h, layer, b) && h->seen->full[b] >= LEAST_BYTES / row)
			h->sorted[n++] = (struct sorted){ hash_at(h, layer, b), b };
	qsort(h->sorted, (size_t)n, sizeof(*h->sorted), by_hash);
	for (int64_t i = 1; i < n; i++) {
		if (h->sorted[i].hash != h->sorted[first].hash)
			first = i;
		else
			judge_alike(h, layer, first, i);
	}
}

/* "request A, entry 3": the first that has it; "" without tables. */
static struct kvt_text whose(const struct hunt *h, int64_t block)
{
	struct kvt_text out = { "" };
	const struct use *use = &h->use[h->first_use[block]];

	if (h->first_use[block] < h->first_use[block + 1])
		snprintf(out.s, sizeof(out.s), " (entry %lld of request %.60s)",
			 LL(use->entry), h->seen->snapshot->request[use->request].id);
	return out;
}

static void tell_pair(struct kvt_strangeness *out, const struct hunt *h,
		      const struct pair *p)
{
	const struct kvt_group *group = h->seen->group;
	int64_t layers = group->shape.n[KVT_AXIS_L];
	struct kvt_strange found = { .kind = KVT_STRANGE_TWICE,
				     .sure = h->tables ? KVT_LIKELY : KVT_PERHAPS };
	unsigned long long id[2];
	char where[64];

	/* the keys of the first layer are of the token and its place alone */
	if (p->layers == 1 && layers > 1 && p->same_entry &&
	    kvt_layer_id(group, p->first) == 0)
		return;
	found.score = (double)p->layers;
	for (int i = 0; i < 2; i++)
		id[i] = (unsigned long long)kvt_block_id(group, p->block[i]);
	snprintf(where, sizeof(where), p->layers == layers ? "all layers" :
		 p->layers > 1 ? "%lld of %lld layers" : "layer %lld",
		 p->layers > 1 ? LL(p->layers) : LL(kvt_layer_id(group, p->first)),
		 LL(layers));
	snprintf(found.at, sizeof(found.at), "group=%.64s,block=%llu", group->id, id[1]);
	snprintf(found.text, sizeof(found.text),
		 "blocks %llu%.90s and %llu%.90s hold the same in %s, and %s",
		 id[0], whose(h, p->block[0]).s, id[1], whose(h, p->block[1]).s, where,
		 h->tables ? "their requests do not begin alike" :
			     "no block table says whether two requests begin alike");
	strange_add(out, &found);
}

static bool hunt_blocks(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	struct hunt *h = calloc(1, sizeof(*h));
	bool all = false;

	if (!h)
		return false;
	h->seen = seen;
	if ((all = index_uses(h)))
		for (int64_t l = 0; l < seen->group->shape.n[KVT_AXIS_L]; l++)
			hunt_layer(h, l);
	for (int i = 0; i < h->npairs; i++)
		tell_pair(out, h, &h->pair[i]);
	out->count += h->more;
	free(h->first_use);
	free(h->use);
	free(h->sorted);
	free(h);
	return all;
}

/* ---- heads, keys and values, layers ----------------------------------------- */

static const uint64_t *heads_at(const struct strange_seen *seen, int64_t l, int64_t k)
{
	const int64_t *n = seen->group->shape.n;

	return seen->head + (l * n[KVT_AXIS_K] + k) * n[KVT_AXIS_H];
}

/* In how many layers head b holds what a holds; *first is the first of them. */
static int64_t same_heads(const struct strange_seen *seen, int64_t a, int64_t b,
			  int64_t *first)
{
	const int64_t *n = seen->group->shape.n;
	int64_t layers = 0;

	for (int64_t l = 0; l < n[KVT_AXIS_L]; l++) {
		bool same = heads_at(seen, l, 0)[a] != 0;

		for (int64_t k = 0; k < n[KVT_AXIS_K]; k++)
			same &= heads_at(seen, l, k)[a] == heads_at(seen, l, k)[b];
		if (same && !layers++)
			*first = l;
	}
	return layers;
}

static void tell_heads(struct kvt_strangeness *out, const struct strange_seen *seen,
		       int64_t a, int64_t b, int64_t heads, int64_t layers, int64_t first)
{
	const struct kvt_group *group = seen->group;
	struct kvt_strange found = { .kind = KVT_STRANGE_TWICE, .score = (double)layers,
				     .sure = KVT_LIKELY };
	bool every = layers == group->shape.n[KVT_AXIS_L];

	snprintf(found.at, sizeof(found.at), "group=%.64s,head=%lld", group->id,
		 LL(group->head_start + b));
	snprintf(found.text, sizeof(found.text),
		 "heads %lld-%lld hold what heads %lld-%lld hold, in %lld of %lld layers%s",
		 LL(group->head_start + b), LL(group->head_start + b + heads - 1),
		 LL(group->head_start + a), LL(group->head_start + a + heads - 1),
		 LL(layers), LL(group->shape.n[KVT_AXIS_L]),
		 every ? ": one rank twice, or heads that were written twice" : "");
	if (!every)
		snprintf(found.text + strlen(found.text),
			 sizeof(found.text) - strlen(found.text), ", first in layer %lld",
			 LL(kvt_layer_id(group, first)));
	strange_add(out, &found);
}

static void hunt_heads(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	int64_t n = seen->group->shape.n[KVT_AXIS_H];

	for (int64_t b = 1, run; n <= MOST_HEADS && b < n; b += run) {
		int64_t first = 0, layers = 0, a, ignored;

		run = 1;
		for (a = 0; a < b && !(layers = same_heads(seen, a, b, &first)); a++)
			;
		while (layers && b + run < n && a + run < b &&
		       same_heads(seen, a + run, b + run, &ignored) == layers)
			run++;
		if (layers)
			tell_heads(out, seen, a, b, run, layers, first);
	}
}

/* All heads of two layers, or of keys and values of one; zeros are not meant. */
static bool same_rows(const uint64_t *a, const uint64_t *b, int64_t rows)
{
	return a[0] && !memcmp(a, b, (size_t)rows * sizeof(*a));
}

static void hunt_layers(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	const struct kvt_group *group = seen->group;
	const int64_t *n = group->shape.n;
	int64_t rows = n[KVT_AXIS_H] * n[KVT_AXIS_K];

	for (int64_t m = 0; n[KVT_AXIS_L] <= MOST_LAYERS && m < n[KVT_AXIS_L]; m++) {
		struct kvt_strange found = { .kind = KVT_STRANGE_TWICE, .score = 1,
					     .sure = KVT_LIKELY };
		long long id = LL(kvt_layer_id(group, m));
		int64_t l = 0;

		snprintf(found.at, sizeof(found.at), "group=%.64s,layer=%lld", group->id,
			 id);
		if (n[KVT_AXIS_K] == 2 && same_rows(heads_at(seen, m, 0),
						    heads_at(seen, m, 1),
						    n[KVT_AXIS_H])) {
			snprintf(found.text, sizeof(found.text),
				 "keys and values of layer %lld are the same numbers",
				 id);
			strange_add(out, &found);
		}
		while (l < m && !same_rows(heads_at(seen, l, 0),
					   heads_at(seen, m, 0), rows))
			l++;
		if (l == m)
			continue;
		snprintf(found.text, sizeof(found.text),
			 "layer %lld holds what layer %lld holds", id,
			 LL(kvt_layer_id(group, l)));
		strange_add(out, &found);
	}
}

bool strange_find_twice(struct kvt_strangeness *out, const struct strange_seen *seen)
{
	if (!hunt_blocks(out, seen))
		return false;
	hunt_heads(out, seen);
	hunt_layers(out, seen);
	return true;
}
