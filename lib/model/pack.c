/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c - which layers share a block of a pool, as vLLM 0.32 groups them
 *
 * Who is in which group follows from how many layers a cache has: a layer goes to group
 * i mod n, as the engine deals out names.  There are four ways, tried in this order:
 *
 *	one group	all caches merge, or are of one type
 *	mixed pages	B is outermost and pages differ: caches of several sizes lie
 *			side by side in a block, which is as long as the longest group
 *	equal pages	blocks of small pages get more tokens, or padding, until all pages
 *			are as long; caches that merge are dealt to groups of equal length
 *	kept whole	latents and plain windows, whose pages cannot be made equal: the
 *			windows keep all tokens, and all is one group
 */
#include "lib/model/pack_cache.h"

#include <string.h>

/* ---- groups -------------------------------------------------------------- */

/* Of the layers 'begin' to 'begin + n' of a list, those that group i of 'of' gets. */
static int64_t dealt(int64_t begin, int64_t n, int64_t i, int64_t of)
{
	int64_t end = begin + n;

	return (end > i ? (end - i + of - 1) / of : 0) -
	       (begin > i ? (begin - i + of - 1) / of : 0);
}

static bool same_group(const struct kvt_pack_group *a, const struct kvt_pack_group *b)
{
	if (a->nparts != b->nparts)
		return false;
	for (int i = 0; i < a->nparts; i++)
		if (a->part[i].cache != b->part[i].cache ||
		    a->part[i].layers != b->part[i].layers)
			return false;
	return true;
}

/* The next group; KVT_PACK_RUNS are enough for all, see deal(). */
static void add_group(struct kvt_pack *pack, const struct kvt_pack_group *g)
{
	int last = pack->nruns - 1;

	pack->ngroups++;
	if (last >= 0 && same_group(&pack->run[last], g)) {
		pack->run[last].times++;
	} else if (pack->nruns < KVT_PACK_RUNS) {
		pack->run[pack->nruns] = *g;
		pack->run[pack->nruns++].times = 1;
	}
}

static struct kvt_pack_part part_of(const struct cache *c, int64_t layers)
{
	return (struct kvt_pack_part){ c->at, layers, c->block, c->page, -1 };
}

/* The order of a cache in a group: by its first layer there, then by its list. */
static int64_t rank_of(int64_t begin, int64_t i, int64_t of, int list)
{
	int64_t first = begin > i ? (begin - i + of - 1) / of : 0;

	return first * KVT_MODEL_GROUPS + list;
}

/*
 * Deals the layers of a bucket out to 'of' groups.  Layers of caches with one number
 * in 'list' stand in one list.  Along the groups what each cache gives changes twice at
 * most, so that no bucket makes more than 2 runs a cache, and one.
 */
static void deal(struct kvt_pack *pack, const struct caches *all, const struct bucket *b,
		 const int list[KVT_MODEL_GROUPS], int64_t of)
{
	for (int64_t i = 0; i < of; i++) {
		struct kvt_pack_group g = { .nparts = 0 };
		int64_t length[KVT_MODEL_GROUPS] = { 0 }, rank[KVT_MODEL_GROUPS];

		for (int k = 0; k < b->n; k++) {
			const struct cache *c = &all->c[b->cache[k]];
			int64_t begin = length[list[k]];
			int64_t layers = dealt(begin, c->layers, i, of);
			int64_t mine = rank_of(begin, i, of, list[k]);
			int at = g.nparts;

			length[list[k]] += c->layers;
			if (!layers)
				continue;
			for (; at && rank[at - 1] > mine; at--) {
				g.part[at] = g.part[at - 1];
				rank[at] = rank[at - 1];
			}
			g.part[at] = part_of(c, layers);
			rank[at] = mine;
			g.nparts++;
		}
		add_group(pack, &g);
	}
}

static void whole(struct kvt_pack *pack, const struct caches *all, const struct bucket *b)
{
	struct kvt_pack_group g = { .nparts = b->n };

	for (int k = 0; k < b->n; k++)
		g.part[k] = part_of(&all->c[b->cache[k]], all->c[b->cache[k]].layers);
	add_group(pack, &g);
}

static void one_group(struct kvt_pack *pack, const struct caches *all)
{
	struct bucket b = { .n = all->n };

	for (int i = 0; i < all->n; i++)
		b.cache[i] = i;
	whole(pack, all, &b);
}

/* ---- pages of several sizes side by side --------------------------------- */

/* A bucket by the sizes of its pages: 'list' of each cache, and layers of a list. */
struct pages {
	int n;
	int list[KVT_MODEL_GROUPS];
	int64_t page[KVT_MODEL_GROUPS], layers[KVT_MODEL_GROUPS];
	int64_t most, total;		/* layers of the longest list, and of all */
	bool balanced;			/* all lists are as long */
};

static struct pages pages_of(const struct caches *all, const struct bucket *b)
{
	struct pages p = { .balanced = true };

	for (int k = 0; k < b->n; k++) {
		const struct cache *c = &all->c[b->cache[k]];
		int i = 0;

		while (i < p.n && p.page[i] != c->page)
			i++;
		p.n += i == p.n;
		p.page[i] = c->page;
		p.layers[i] += c->layers;
		p.list[k] = i;
		p.total += c->layers;
	}
	for (int i = 0; i < p.n; i++) {
		p.most = p.layers[i] > p.most ? p.layers[i] : p.most;
		p.balanced &= p.layers[i] == p.layers[0];
	}
	return p;
}

/* The length, at least 'least', that the balanced lists fill with the least padding. */
static int64_t repeats_of(const struct pages *p, int n, int64_t least)
{
	int64_t most = 0, best = least, best_pad = -1;

	for (int i = 0; i < n; i++)
		if (p[i].balanced && p[i].most > most)
			most = p[i].most;
	for (int64_t d = least; d <= most; d++) {
		int64_t pad = 0;

		for (int i = 0; i < n; i++)
			if (p[i].balanced)
				pad += kvt_ceil_div(p[i].most, d) * d - p[i].most;
		if (best_pad < 0 || pad <= best_pad) {
			best_pad = pad;
			best = d;
		}
	}
	return best;
}

static int64_t widest(const struct pages *p, int64_t groups)
{
	int64_t sum = 0;

	for (int i = 0; i < p->n; i++)
		sum += kvt_ceil_div(p->layers[i], groups) * p->page[i];
	return sum;
}

/* Buckets that may be cut as small as one layer a group. */
static bool is_loose(const struct cache *first, int64_t repeats)
{
	return first->is == KVT_CLASS_STATE || first->is == KVT_CLASS_RING ||
	       (!repeats && is_window(first));
}

static enum kvt_status add_packed(struct kvt_pack *pack, const struct caches *all,
				  const struct bucket *b, const struct pages *p,
				  int64_t groups, struct kvt_error *err)
{
	if (groups == 1) {
		whole(pack, all, b);
		return KVT_OK;
	}
	if (!p->balanced || groups > p->most)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: vLLM 0.32 would leave layers without a cache, or groups without layers: it cuts pages of several sizes into too many groups",
				all->c[b->cache[0]].size->group.name);
	deal(pack, all, b, p->list, groups);
	return KVT_OK;
}

/* All groups repeat a pattern as often, and states fill what attention needs anyhow. */
static enum kvt_status pack_mixed(struct kvt_pack *pack, const struct caches *all,
				  struct kvt_error *err)
{
	struct pages p[KVT_MODEL_GROUPS];
	struct buckets to;
	int64_t least = 0, repeats = 0, anchor = 0;
	enum kvt_status status = KVT_OK;

	kvt_pack_sort(&to, all, kvt_pack_one_type, false);
	for (int i = 0; i < to.n; i++) {
		p[i] = pages_of(all, &to.b[i]);
		if (p[i].balanced && p[i].n > 1 && p[i].most > least)
			least = p[i].most;
	}
	if (least)
		repeats = repeats_of(p, to.n, least);
	for (int i = 0; i < to.n; i++) {
		bool loose = is_loose(&all->c[to.b[i].cache[0]], repeats);
		int64_t n = loose ? p[i].total : p[i].balanced && repeats ?
			    kvt_ceil_div(p[i].most, repeats) : 1;

		anchor = widest(&p[i], n) > anchor ? widest(&p[i], n) : anchor;
	}
	for (int i = 0; !status && i < to.n; i++) {
		const struct cache *first = &all->c[to.b[i].cache[0]];
		int64_t n = p[i].balanced && repeats ?
			    kvt_ceil_div(p[i].most, repeats) : 1;
		int64_t fit = anchor / first->page > 1 ? anchor / first->page : 1;

		if (is_loose(first, repeats) && kvt_ceil_div(p[i].total, fit) > n)
			n = kvt_ceil_div(p[i].total, fit);
		status = add_packed(pack, all, &to.b[i], &p[i], n, err);
	}
	for (int i = 0; !status && i < all->n; i++) {
		struct kvt_pack_group g = { .nparts = 1 };

		g.part[0] = part_of(&all->c[i], 1);
		for (int64_t k = 0; all->c[i].is == KVT_CLASS_HIDDEN &&
		     k < all->c[i].layers; k++)
			add_group(pack, &g);
	}
	return status;
}

/* ---- pages of one size --------------------------------------------------- */

static int64_t largest(const struct caches *all)
{
	int64_t page = 0;

	for (int i = 0; i < all->n; i++)
		if (all->c[i].page > page)
			page = all->c[i].page;
	return page;
}

static bool mixed(const struct caches *all)
{
	for (int i = 1; i < all->n; i++)
		if (all->c[i].page != all->c[0].page)
			return true;
	return false;
}

static int64_t alignment_of(const struct cache *c)
{
	return c->size->spec.alignment > 1 ? c->size->spec.alignment : 1;
}

/* More tokens a block; false: vLLM's padding of rows does not follow. */
static bool grow(struct cache *c, int64_t page)
{
	struct cache grown = *c;
	int64_t align = alignment_of(c);

	grown.block *= page / c->page;
	grown.unpadded *= page / c->page;
	grown.page = kvt_ceil_div(grown.unpadded, align) * align;
	grown.padded = grown.page != grown.unpadded;
	if (grown.page != page || (c->padded && !grown.padded))
		return false;
	*c = grown;
	return true;
}

enum unified { UNIFIED, CANNOT_BE, ENDS };

/* In the order of the layers: the first that cannot be so large says how it ends. */
static enum unified unify(struct caches *all, int *at)
{
	int64_t page = largest(all);

	for (int i = 0; i < all->n; i++) {
		struct cache *c = &all->c[i];

		*at = i;
		if (c->page == page)
			continue;
		if (c->is != KVT_CLASS_STATE && page % c->page == 0) {
			if (!grow(c, page))
				return ENDS;
			continue;
		}
		if (is_latent(c))
			return CANNOT_BE;
		/* its own padding is put in again, in place of this one */
		if (c->is != KVT_CLASS_STATE && c->unpadded % alignment_of(c))
			return ENDS;
		c->page = page;
		c->padded = true;
	}
	return UNIFIED;
}

/*
 * Where latents stand beside plain windows: the windows keep all tokens, as full
 * attention does, in blocks of its size.
 */
static bool keep_all(struct caches *all)
{
	const struct cache *full = NULL;
	bool latents = false, windows = false;

	for (int i = 0; i < all->n; i++) {
		struct cache *c = &all->c[i];

		if (c->is == KVT_CLASS_WINDOW_MLA || c->is == KVT_CLASS_CHUNK ||
		    c->is == KVT_CLASS_HIDDEN)
			return false;
		windows |= c->is == KVT_CLASS_WINDOW;
		latents |= c->is == KVT_CLASS_MLA;
		if (kvt_class_rule(c->is)->base == KVT_CLASS_FULL)
			full = !full || full->block == c->block ? c : full;
	}
	for (int i = 0; latents && windows && i < all->n; i++) {
		struct cache *c = &all->c[i];
		int64_t page = c->unpadded * full->block / c->block;

		if (c->is != KVT_CLASS_WINDOW)
			continue;
		c->page = c->padded && c->page > page ? c->page : page;
		c->unpadded = page;
		c->block = full->block;
		c->is = KVT_CLASS_FULL;
	}
	return latents && windows && kvt_pack_all(all, kvt_pack_one_type);
}

/* Layers of equal specs are one list, which stands where the first of them does. */
static void join_equal(struct caches *all)
{
	for (int i = 0; i < all->n; i++)
		for (int k = i + 1, to = i + 1; k < all->n; k++) {
			struct cache c = all->c[k];

			if (!kvt_pack_equal(&all->c[i], &c))
				continue;
			memmove(&all->c[to + 1], &all->c[to],
				(size_t)(k - to) * sizeof(c));
			all->c[to++] = c;
		}
}

static enum kvt_status pack_equal(struct kvt_pack *pack, struct caches *all,
				  struct kvt_error *err)
{
	static const int one_list[KVT_MODEL_GROUPS] = { 0 };
	struct caches before = *all;
	int64_t layers[KVT_MODEL_GROUPS] = { 0 }, least = INT64_MAX, most = 0;
	struct buckets to;
	enum unified how;
	int at;

	for (int i = 0; i < all->n; i++)
		if (all->c[i].is == KVT_CLASS_HIDDEN)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: activations in pages of attention are not modelled: give a layout with B outermost",
					all->c[i].size->group.name);
	if ((how = unify(all, &at)) == ENDS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: vLLM 0.32 ends at an assertion when its pages shall have %lld bytes: give a layout with B outermost, such as BLHNC", before.c[at].size->group.name,
				LL(largest(&before)));
	if (how == CANNOT_BE) {
		*all = before;
		if (!keep_all(all))
			return kvt_fail(err, KVT_BAD_INPUT,
					"pages of %lld bytes and others cannot be made equal: give a layout with B outermost, such as BLHNC", LL(largest(&before)));
		one_group(pack, all);
		return KVT_OK;
	}
	join_equal(all);
	kvt_pack_sort(&to, all, kvt_pack_merges, true);
	for (int i = 0; i < to.n; i++) {
		for (int k = 0; k < to.b[i].n; k++)
			layers[i] += all->c[to.b[i].cache[k]].layers;
		least = layers[i] < least ? layers[i] : least;
		most = layers[i] > most ? layers[i] : most;
	}
	/* few more layers are rather padded than split */
	if (2 * most < 3 * least)
		least = most;
	for (int i = 0; i < to.n; i++)
		deal(pack, all, &to.b[i], one_list, kvt_ceil_div(layers[i], least));
	return KVT_OK;
}

/* ---- all of it ------------------------------------------------------------ */

static bool is_outermost(const struct kvt_layout *layout, enum kvt_axis axis)
{
	return layout->plane[0].part[0].axis == axis;
}

/* A page is a run of bytes. */
static bool is_compact(const struct kvt_layout *layout)
{
	const struct kvt_part *p = layout->plane[0].part;

	return (p[0].axis == KVT_AXIS_L && p[1].axis == KVT_AXIS_B) ||
	       (p[0].axis == KVT_AXIS_B && p[1].axis == KVT_AXIS_L);
}

/* Two windows of full attention are an error of vLLM, which it does not catch. */
static enum kvt_status check_windows(const struct caches *all, struct kvt_error *err)
{
	int64_t seen = 0;
	bool plain = true;

	for (int i = 0; i < all->n; i++)
		plain &= is_plain_full(&all->c[i]);
	for (int i = 0; plain && i < all->n; i++) {
		int64_t w = kvt_pack_window(&all->c[i]);

		if (w && seen && w != seen)
			return kvt_fail(err, KVT_BAD_INPUT,
					"full attention with windows of %lld and %lld tokens, which vLLM refuses", LL(seen), LL(w));
		seen = w ? w : seen;
	}
	return KVT_OK;
}

/* A state has none, and the vectors of a ring are some to vLLM. */
static int64_t heads_of(const struct cache *c)
{
	return c->is == KVT_CLASS_STATE ? 1 :
	       c->is == KVT_CLASS_RING ? args_of(c)->heads : c->size->spec.num_heads;
}

static enum kvt_status check_layout(const struct kvt_pack *pack, const struct caches *all,
				    const struct kvt_layout *layout,
				    struct kvt_error *err)
{
	bool compact = is_compact(layout);

	if (mixed(all) && (!compact || (pack->ngroups > 1 &&
					is_outermost(layout, KVT_AXIS_L))))
		return kvt_fail(err, KVT_BAD_INPUT,
				"a layout of %s cannot hold pages of several sizes%s: give one such as BLHNC", kvt_layout_string(layout).s,
				compact ? " in several groups" : "");
	for (int i = 0; !compact && i < all->n; i++)
		if ((all->c[i].padded && heads_of(&all->c[i]) > 1) ||
		    (is_outermost(layout, KVT_AXIS_L) &&
		     all->c[i].page % all->c[i].stride))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: a layout of %s cannot pad its pages",
					all->c[i].size->group.name,
					kvt_layout_string(layout).s);
	return KVT_OK;
}

static const struct cache *find(const struct caches *all, int at)
{
	const struct cache *c = all->c;

	while (c->at != at)
		c++;
	return c;
}

/*
 * Where the parts of a block begin, one after the other; those of equal specs together,
 * where a group keeps the specs of its layers and has not merged them.
 */
static void place_parts(struct kvt_pack_group *g, const struct caches *all, bool merged)
{
	bool done[KVT_MODEL_GROUPS] = { false };
	int64_t at = 0;

	for (int i = 0; i < g->nparts; i++)
		for (int k = i; k < g->nparts && !done[i]; k++) {
			struct kvt_pack_part *part = &g->part[k];

			if (done[k] || (k > i && merged))
				continue;
			if (k > i && !kvt_pack_equal(find(all, g->part[i].cache),
						     find(all, part->cache)))
				continue;
			part->offset = at;
			at += part->page * part->layers;
			done[k] = k > i;
		}
}

/* Bytes of the groups, of the largest, and where parts begin. */
static enum kvt_status measure(struct kvt_pack *pack, const struct caches *all,
			       const struct kvt_layout *layout, bool merged,
			       struct kvt_error *err)
{
	bool outermost = is_outermost(layout, KVT_AXIS_B);
	int64_t step = 1, n;

	for (int i = 0; outermost && i < all->n; i++) {
		n = all->c[i].stride;
		if (__builtin_mul_overflow(step / kvt_gcd(step, n), n, &step) ||
		    step > 1LL << 40)
			return kvt_fail(err, KVT_BAD_INPUT,
					"strides of %lld bytes and others have no common multiple that could be one", LL(n));
	}
	for (int r = 0; r < pack->nruns; r++) {
		struct kvt_pack_group *g = &pack->run[r];

		for (int k = 0; k < g->nparts; k++) {
			struct kvt_pack_part *part = &g->part[k];
			int64_t by = outermost ? 1 : find(all, part->cache)->stride;

			g->nbytes += kvt_ceil_div(part->page, by) * by * part->layers;
		}
		if (outermost && is_compact(layout))
			place_parts(g, all, merged);
		if (g->nbytes > pack->block_nbytes)
			pack->block_nbytes = g->nbytes;
	}
	pack->block_nbytes = kvt_ceil_div(pack->block_nbytes, step) * step;
	return KVT_OK;
}

/* 'merged': the layers of a group have one spec, even if they had several. */
static enum kvt_status group_all(struct kvt_pack *pack, struct caches *all,
				 bool outermost, bool *merged, struct kvt_error *err)
{
	enum kvt_status status = check_windows(all, err);

	if (status)
		return status;
	*merged = kvt_pack_all(all, kvt_pack_merges);
	if (*merged || kvt_pack_all(all, kvt_pack_one_type)) {
		one_group(pack, all);
		return KVT_OK;
	}
	*merged = !(outermost && mixed(all));
	return outermost && mixed(all) ? pack_mixed(pack, all, err) :
					 pack_equal(pack, all, err);
}

enum kvt_status kvt_model_pack(struct kvt_pack *out, const struct kvt_model_size *size,
			       const struct kvt_layout *layout, struct kvt_error *err)
{
	bool outermost = is_outermost(layout, KVT_AXIS_B);
	struct caches all;
	bool merged;
	enum kvt_status status = kvt_pack_caches(&all, size, err);

	memset(out, 0, sizeof(*out));
	if (status || !all.n)
		return status;
	if ((status = group_all(out, &all, outermost, &merged, err)) ||
	    (status = check_layout(out, &all, layout, err)))
		return status;
	return measure(out, &all, layout, merged, err);
}

/* ---- requests ------------------------------------------------------------- */

enum kvt_status kvt_pack_blocks(int64_t *out, const struct kvt_model_size *size,
				const struct kvt_pack_group *run,
				const struct kvt_demand *demand, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int64_t n, width;

	*out = 0;
	for (int k = 0; !status && k < run->nparts; k++) {
		const struct kvt_group_size *g = &size->group[run->part[k].cache];
		struct kvt_spec_args args = g->group.args;

		args.block_size = run->part[k].block_size;
		status = kvt_spec_blocks(&n, &width, g->keeps, &args, demand, err);
		if (!status && n > *out)
			*out = n;
	}
	return status;
}

enum kvt_status kvt_pack_request(int64_t *out, const struct kvt_model_size *size,
				 const struct kvt_pack *pack,
				 const struct kvt_demand *demand, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int64_t n;

	*out = 0;
	for (int r = 0; !status && r < pack->nruns; r++) {
		status = kvt_pack_blocks(&n, size, &pack->run[r], demand, err);
		*out += status ? 0 : n * pack->run[r].times;
	}
	return status;
}
