/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hicache_pools.c - do the pools and ranks of a HiCache folder belong together?
 *
 * A page is restored if each rank has its keys and values, and each pool that goes with
 * all pages has it, too (batch_exists_v2 of SGLang 0.5.23).  Releases before took the
 * least number of pages of all pools instead: with a hole, pages of other requests.
 * Names alone are looked at, and lengths, so no geometry need be known.
 *
 * Files of one model, pool and rank are a set; those of a number of ranks belong
 * together.  Which pools go with all pages is the engine's choice at run time and in no
 * file: those that by their kind may, and have most of them.  States and windows are
 * kept for the last pages of a prefix, so theirs may have holes.
 */
#include "formats/sglang/hicache.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SETS = 256, NSIZES = 8 };

struct set {
	struct kvt_hicache_name name;	/* of its first file */
	bool kv, every;			/* every: its kind may go with all pages */
	int world;			/* the keys and values it is held against */
	int64_t files, has, of;		/* has: of the 'of' pages of its world */
	int64_t size[NSIZES], count[NSIZES];
	int nsizes, usual;
};

struct page {
	struct kvt_name_part hash;
	int32_t file, set;
};

struct pools {
	const struct kvt_tree *tree;
	const struct kvt_hints *hints;
	struct set *set;		/* owned; nsets */
	int nsets;
	struct page *page;		/* owned; by hash, then set */
	int64_t npages;
};

static bool same(const struct kvt_name_part *a, const struct kvt_name_part *b)
{
	return a->n == b->n && !memcmp(a->s, b->s, a->n);
}

/* Windows and states are of the last pages alone. */
static bool goes_with_all(const struct kvt_name_part *pool)
{
	static const char *const rows[] = {
		"indexer", "deepseek_v4_c1", "deepseek_v4_c2", "deepseek_v4_c4",
		"deepseek_v4_c128", "draft", "draft_indexer",
	};
	static const char *const endings[] = { "_indexer", "_scale", "_rope" };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (kvt_name_part_equal(pool, rows[i]))
			return true;
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		if (pool->n > strlen(endings[i]) &&
		    !memcmp(pool->s + pool->n - strlen(endings[i]), endings[i],
			    strlen(endings[i])))
			return true;
	return false;
}

/* ---- sets ---------------------------------------------------------------- */

static int find_set(struct pools *o, const struct kvt_hicache_name *name, int last)
{
	for (int i = -1; i < o->nsets; i++) {
		int at = i < 0 ? last : i;
		const struct kvt_hicache_name *n = &o->set[at].name;

		if (at < o->nsets && same(&n->pool, &name->pool) &&
		    same(&n->rank, &name->rank) && same(&n->model, &name->model) &&
		    n->half == name->half)
			return at;
	}
	if (o->nsets == MAX_SETS)
		return -1;
	o->set[o->nsets] = (struct set){ .name = *name, .world = -1,
		.kv = kvt_name_part_equal(&name->pool, "kv"),
		.every = goes_with_all(&name->pool) };
	return o->nsets++;
}

static void count_size(struct set *set, int64_t nbytes)
{
	int i = 0;

	set->files++;
	while (i < set->nsizes && set->size[i] != nbytes)
		i++;
	if (i == NSIZES)
		return;
	set->nsizes += i == set->nsizes;
	set->size[i] = nbytes;
	set->count[i]++;
	if (set->count[i] > set->count[set->usual] ||
	    (set->count[i] == set->count[set->usual] && nbytes > set->size[set->usual]))
		set->usual = i;
}

static bool same_ranks(const struct kvt_hicache_name *a, const struct kvt_hicache_name *b)
{
	return same(&a->model, &b->model) && a->pp_size == b->pp_size &&
	       a->cp_size == b->cp_size && a->dcp_size == b->dcp_size &&
	       a->page == b->page && a->tp_size == b->tp_size;
}

/* Latents are of no rank, although the states beside them are of several. */
static bool may_serve(const struct kvt_hicache_name *kv, const struct kvt_hicache_name *b)
{
	return same(&kv->model, &b->model) && kv->tp_size == 1 && !kv->rank.n;
}

static void find_worlds(struct pools *o)
{
	for (int i = 0; i < o->nsets; i++)
		for (int pass = 0; pass < 2; pass++)
			for (int k = 0; k < o->nsets && o->set[i].world < 0; k++)
				if (o->set[k].kv &&
				    (pass ? may_serve(&o->set[k].name, &o->set[i].name) :
				     same_ranks(&o->set[k].name, &o->set[i].name)))
					o->set[i].world = k;
}

/* ---- pages --------------------------------------------------------------- */

static int by_hash(const void *a, const void *b)
{
	const struct page *x = a, *y = b;
	size_t n = x->hash.n, m = y->hash.n;
	int order = memcmp(x->hash.s, y->hash.s, n < m ? n : m);

	if (!order)
		order = n < m ? -1 : n > m;
	return order ? order : x->set - y->set;
}

static bool take_files(struct pools *o)
{
	int last = 0;

	for (int64_t i = 0; i < o->tree->count; i++) {
		const char *text = o->tree->file[i].name;
		struct kvt_hicache_name name;

		if (!kvt_hicache_find(&name, text))
			continue;
		if ((last = find_set(o, &name, last)) < 0)
			return false;
		count_size(&o->set[last], o->tree->file[i].nbytes);
		o->page[o->npages++] = (struct page){ name.hash, (int32_t)i,
							 last };
	}
	qsort(o->page, (size_t)o->npages, sizeof(*o->page), by_hash);
	return true;
}

/* Pages of one hash: [begin, the result). */
static int64_t run_end(const struct pools *o, int64_t begin)
{
	int64_t end = begin + 1;

	while (end < o->npages && same(&o->page[end].hash, &o->page[begin].hash))
		end++;
	return end;
}

static bool is_in(const struct pools *o, int64_t begin, int64_t end, int set)
{
	while (begin < end && o->page[begin].set != set)
		begin++;
	return begin < end;
}

/* Has any rank of the world of 'set' keys and values of this page? */
static bool has_kv(const struct pools *o, int64_t begin, int64_t end, int set)
{
	int world = o->set[set].world;

	for (int64_t i = begin; i < end && world >= 0; i++)
		if (o->set[o->page[i].set].kv && o->set[o->page[i].set].world == world)
			return true;
	return false;
}

static void count_pages(struct pools *o)
{
	for (int64_t begin = 0, end; begin < o->npages; begin = end) {
		end = run_end(o, begin);
		for (int s = 0; s < o->nsets; s++)
			if (has_kv(o, begin, end, s)) {
				o->set[s].of++;
				o->set[s].has += is_in(o, begin, end, s);
			}
	}
}

/* ---- what is told --------------------------------------------------------- */

/* "pool indexer", "pool kv of rank 1_2", "values of pool kv". */
static const char *set_text(char out[160], const struct set *set)
{
	const struct kvt_hicache_name *n = &set->name;

	snprintf(out, 160, "%spool %.*s%s%.*s", n->half < 0 ? "" : n->half ?
		 "values of " : "keys of ", (int)n->pool.n, n->pool.s,
		 n->rank.n ? " of rank " : "", (int)n->rank.n, n->rank.s);
	return out;
}

static bool is_required(const struct set *s)
{
	return s->kv || (s->every && 2 * s->has > s->of);
}

static void tell_page(const struct pools *o, int64_t begin, int64_t end)
{
	const char *hash = o->page[begin].hash.s;
	int n = (int)o->page[begin].hash.n;
	char a[160];

	for (int s = 0; s < o->nsets; s++)
		if (is_required(&o->set[s]) && has_kv(o, begin, end, s) &&
		    !is_in(o, begin, end, s))
			kvt_tell(o->hints, "pool.missing",
				 "page %.*s is not in %s, which has %lld of %lld pages", n,
				 hash, set_text(a, &o->set[s]), LL(o->set[s].has),
				 LL(o->set[s].of));
	for (int64_t i = begin; i < end; i++) {
		const struct set *set = &o->set[o->page[i].set];
		int64_t nbytes = o->tree->file[o->page[i].file].nbytes;

		if (!set->kv && !has_kv(o, begin, end, o->page[i].set))
			kvt_tell(o->hints, "pool.orphan",
				 "page %.*s is in %s, but has no keys and values", n, hash,
				 set_text(a, set));
		if (nbytes != set->size[set->usual])
			kvt_tell(o->hints, "pool.size",
				 "page %.*s of %s has %lld bytes, most have %lld", n, hash,
				 set_text(a, set), LL(nbytes),
				 LL(set->size[set->usual]));
	}
}

/* Of a pool of one stage, ranks have the same share of each page. */
static bool are_peers(const struct set *x, const struct set *y)
{
	return same(&x->name.pool, &y->name.pool) && same_ranks(&x->name, &y->name) &&
	       x->name.pp_rank == y->name.pp_rank;
}

/* How many of the ranks of 'of' have pages of that size? */
static int count_peers(const struct pools *o, const struct set *of, int64_t size)
{
	int n = 0;

	for (int i = 0; i < o->nsets; i++)
		n += are_peers(of, &o->set[i]) && o->set[i].size[o->set[i].usual] == size;
	return n;
}

/* The rank that most of these agree with, the first of two. */
static const struct set *usual_peer(const struct pools *o, const struct set *of)
{
	const struct set *best = NULL;
	int most = 0;

	for (int i = 0; i < o->nsets; i++) {
		const struct set *s = &o->set[i];
		int n = are_peers(of, s) ? count_peers(o, of, s->size[s->usual]) : 0;

		if (n > most) {
			most = n;
			best = s;
		}
	}
	return best;
}

static void tell_set(const struct pools *o, const struct set *x)
{
	const struct set *y = usual_peer(o, x);
	char a[160], b[160];

	if (x->every && x->has && !is_required(x))
		kvt_tell(o->hints, "pool.partial",
			 "%s has %lld of %lld pages, so it is not compared with them",
			 set_text(a, x), LL(x->has), LL(x->of));
	if (x->size[x->usual] != y->size[y->usual])
		kvt_tell(o->hints, "pool.size",
			 "pages of %s have %lld bytes, those of %s %lld", set_text(a, x), LL(x->size[x->usual]), set_text(b, y),
			 LL(y->size[y->usual]));
}

static void tell_leftover(void *context, const char *name)
{
	size_t n = strlen(name);

	/* .<32 digits>.tmp: a page that was not finished */
	if (n == 37 && *name == '.' && !strcmp(name + 33, ".tmp") &&
	    strspn(name + 1, "0123456789abcdef") == 32)
		kvt_tell(context, "file.leftover", "%s was not finished by a writer",
			 name);
}

enum kvt_status kvt_hicache_check_pools(const struct kvt_tree *tree,
					const struct kvt_hints *hints,
					struct kvt_error *err)
{
	struct pools o = { .tree = tree, .hints = hints };
	enum kvt_status status = KVT_OK;

	o.set = calloc(MAX_SETS, sizeof(*o.set));
	o.page = calloc((size_t)tree->count + 1, sizeof(*o.page));
	if (!o.set || !o.page)
		status = kvt_no_memory(err, tree->path);
	else if (!take_files(&o))
		status = kvt_fail(err, KVT_UNSUPPORTED,
				  "%s: has pages of more than %d pools and ranks; give the folder of fewer",
				  tree->path, MAX_SETS);
	if (!status) {
		find_worlds(&o);
		count_pages(&o);
		for (int i = 0; i < o.nsets; i++)
			tell_set(&o, &o.set[i]);
		for (int64_t begin = 0, end; begin < o.npages; begin = end) {
			end = run_end(&o, begin);
			tell_page(&o, begin, end);
		}
		kvt_tree_each_skipped(tree->path, tell_leftover,
				      (void *)(uintptr_t)hints);
	}
	free(o.set);
	free(o.page);
	return status;
}
