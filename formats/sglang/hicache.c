/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hicache.c - folders of SGLang's HiCache: a file without a header a page, or one of
 * keys and one of values
 *
 *	<hash>[.<pool>]_<model>[_<rank>].bin	a page of a pool and rank, and no more:
 *
 *	hicache-layer-first,		keys: layer, token, head, element; then values
 *	hicache-page-first-direct	(of one page the same)
 *	hicache-page-first		keys: token, layer, head, element; then values
 *	hicache-page-head		keys: head, token, layer, element; then values
 *	mla, BSLC			layer, token, element; token, layer, element
 *
 * Names (hicache_name.c) say model, rank and pool; what a page holds, and in which of
 * four orders, is known to the engine alone and has to be said.  NIXL keeps keys and
 * values of a page in two files, halves of the same; with decode context parallelism
 * each rank has the tokens t with t % size == rank.  Facts: pages that SGLang 0.5.23
 * wrote (testdata/engines), and its hicache_storage.py.
 */
#include "formats/sglang/hicache.h"

#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"

struct opening {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_tree tree;
	int64_t *file;			/* those of the tree that are pages of it */
	int64_t count;
	struct kvt_hicache_name name;	/* of the first of them */
	int64_t shards;			/* files of a page: 1, 2 halves, all DCP ranks */
	bool halves;
};

static bool is_page(const char *name)
{
	struct kvt_hicache_name parsed;

	return kvt_hicache_find(&parsed, name);
}

/* ---- which files -------------------------------------------------------- */

/* Shards of the same pages, but for the DCP rank. */
static bool same_cut(const struct kvt_hicache_name *a, const struct kvt_hicache_name *b)
{
	return a->dcp_size > 1 && kvt_name_part_equal(&a->pool, "kv") &&
	       a->dcp_size == b->dcp_size && a->page == b->page &&
	       a->tp_size == b->tp_size && a->pp_size == b->pp_size &&
	       a->pp_rank == b->pp_rank && a->cp_size == b->cp_size &&
	       a->cp_rank == b->cp_rank;
}

enum { MODEL, POOL, RANK, NCHOICES };

static enum kvt_status choose_page(const struct opening *o, bool *skip,
				   struct kvt_store_choice choice[NCHOICES],
				   const struct kvt_hicache_name *name)
{
	const struct kvt_name_part *parts[] = { &name->model, &name->pool,
						   &name->rank };
	enum kvt_status status = KVT_OK;

	*skip = false;
	for (int i = 0; !status && !*skip && i < NCHOICES; i++) {
		if (i == RANK && !choice[i].asked && o->count && same_cut(&o->name, name))
			break;
		status = kvt_store_choose(skip, &choice[i], parts[i], o->path, o->err);
	}
	return status;
}

static enum kvt_status choose_pages(struct opening *o)
{
	struct kvt_store_choice choice[NCHOICES] = {
		[MODEL] = { .key = "model", .what = "models" },
		[POOL] = { .key = "pool", .what = "pools" },
		[RANK] = { .key = "rank", .what = "ranks" },
	};
	enum kvt_status status;
	bool several = false;

	for (int i = 0; i < NCHOICES; i++)
		choice[i].asked = kvt_fact(o->hints, choice[i].key);
	for (int64_t i = 0; i < o->tree.count; i++) {
		struct kvt_hicache_name name;
		bool skip;

		if (!kvt_hicache_find(&name, o->tree.file[i].name))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s/%.200s: is not a HiCache page, expected HASH[.POOL]_MODEL[_RANK_SIZE].bin or what NIXL or SeaweedFS make of it",
					o->path, o->tree.file[i].name);
		if ((status = choose_page(o, &skip, choice, &name)))
			return status;
		if (skip)
			continue;
		if (!o->count)
			o->name = name;
		if (name.store != o->name.store || (name.half < 0) != (o->name.half < 0))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s: %.200s and %.200s are pages of different stores; give the folder of one",
					o->path, o->tree.file[o->file[0]].name,
					o->tree.file[i].name);
		o->halves |= name.half == 1;
		several |= name.dcp_rank != o->name.dcp_rank;
		o->file[o->count++] = i;
	}
	for (int i = 0; i < NCHOICES; i++)
		if ((status = kvt_store_chosen(&choice[i], o->path, o->err)))
			return status;
	if (!o->count)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: holds no HiCache page",
				o->path);
	/* shards of one rank alone are read as that, those of several only together */
	o->shards = several ? o->name.dcp_size : o->halves ? 2 : 1;
	return KVT_OK;
}

static struct kvt_hicache_name name_of(const struct opening *o, int64_t i)
{
	struct kvt_hicache_name name;

	kvt_hicache_find(&name, o->tree.file[o->file[i]].name);
	return name;
}

static enum kvt_status lacks_shard(const struct opening *o, int64_t i, int64_t rank)
{
	struct kvt_hicache_name name = name_of(o, i);

	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%.120s: page %.*s has no shard of DCP rank %lld of %lld; --set rank=%.*s reads only one rank",
			o->path, (int)name.hash.n, name.hash.s, LL(rank),
			LL(o->shards), (int)name.rank.n, name.rank.s);
}

/*
 * Names are sorted and begin with the hash, so all files of a page are neighbours;
 * theirs become the order of ranks.
 */
static enum kvt_status gather_shards(struct opening *o)
{
	int64_t n = o->shards, *ranked = calloc((size_t)n + 1, sizeof(*ranked)), i, r;
	enum kvt_status status = KVT_OK;

	if (!ranked)
		return kvt_no_memory(o->err, o->path);
	for (i = 0; !status && i < o->count; i += n) {
		const struct kvt_hicache_name page = name_of(o, i);

		for (r = 0; r < n; r++)
			ranked[r] = -1;
		for (r = i; r < o->count && r < i + n; r++) {
			const struct kvt_hicache_name here = name_of(o, r);

			if (here.hash.n == page.hash.n &&
			    !memcmp(here.hash.s, page.hash.s, page.hash.n))
				ranked[here.dcp_rank] = o->file[r];
		}
		for (r = 0; !status && r < n; r++)
			if (ranked[r] < 0)
				status = lacks_shard(o, i, r);
		if (!status)
			memcpy(&o->file[i], ranked, (size_t)n * sizeof(*ranked));
	}
	free(ranked);
	return status;
}

struct half {
	struct kvt_name_part hash;
	int half;
	int64_t file;
};

static int by_page(const void *a, const void *b)
{
	const struct half *x = a, *y = b;
	int order = x->hash.n == y->hash.n ? memcmp(x->hash.s, y->hash.s, x->hash.n) :
		    x->hash.n < y->hash.n ? -1 : 1;

	return order ? order : x->half - y->half;
}

static enum kvt_status check_pair(const struct opening *o, const struct half *a,
				  const struct half *b)
{
	if (b && !a->half && b->half && a->hash.n == b->hash.n &&
	    !memcmp(a->hash.s, b->hash.s, a->hash.n))
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT, "%.160s: page %.*s has %s", o->path,
			(int)a->hash.n, a->hash.s, a->half ? "values, but no keys" :
			"keys, but no values");
}

/* Keys and values of NIXL lie in folders by the hash of their names. */
static enum kvt_status gather_halves(struct opening *o)
{
	struct half *half = calloc((size_t)o->count + 1, sizeof(*half));
	enum kvt_status status = KVT_OK;

	if (!half)
		return kvt_no_memory(o->err, o->path);
	for (int64_t i = 0; i < o->count; i++) {
		struct kvt_hicache_name name = name_of(o, i);

		half[i] = (struct half){ name.hash, name.half, o->file[i] };
	}
	qsort(half, (size_t)o->count, sizeof(*half), by_page);
	for (int64_t i = 0; !status && i < o->count; i++) {
		o->file[i] = half[i].file;
		if (!(i % 2))
			status = check_pair(o, &half[i], i + 1 < o->count ? &half[i + 1] :
									    NULL);
	}
	free(half);
	return status;
}

static enum kvt_status gather(struct opening *o)
{
	return o->halves ? gather_halves(o) : o->shards > 1 ? gather_shards(o) : KVT_OK;
}

/* ---- the snapshot ------------------------------------------------------- */

static enum kvt_status name_group(struct opening *o, struct kvt_group *group)
{
	const struct kvt_name_part *pool = &o->name.pool;

	if (kvt_name_part_equal(pool, "kv"))
		return KVT_OK;
	if (pool->n >= sizeof(group->id))
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: pool '%.*s' has too long a name", o->path,
				(int)pool->n, pool->s);
	memcpy(group->id, pool->s, pool->n);
	group->id[pool->n] = '\0';
	return KVT_OK;
}

/*
 * Ranks of prefill context parallelism hold a slice of each page, too, and have
 * the same place; nothing says which slice.  Latents are alike on all TP ranks:
 * shards of all DCP ranks are of none of them.
 */
static enum kvt_status take_ranks(struct opening *o)
{
	const struct kvt_hicache_name *name = &o->name;
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	bool dcp = name->dcp_size > 1, whole = dcp && o->shards > 1;

	if (dcp && name->cp_size > 1)
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: pages are divided by two kinds of context parallelism, %.*s",
				o->path, (int)name->rank.n, name->rank.s);
	s->parallel = (struct kvt_parallel){
		.tp_size = whole ? 1 : name->tp_size,
		.tp_rank = whole ? 0 : name->tp_rank,
		.pp_size = name->pp_size, .pp_rank = name->pp_rank, .dp_size = 1,
		.dcp_size = whole ? 1 : dcp ? name->dcp_size : name->cp_size,
		.dcp_rank = whole ? 0 : dcp ? name->dcp_rank : name->cp_rank,
	};
	s->has_parallel = whole ? name->pp_size > 1 : name->rank.n > 0;
	return KVT_OK;
}

/* Tokens of a page of this rank, or of all, where names say it. */
static enum kvt_status take_page(struct opening *o, struct kvt_group *group)
{
	if (o->name.dcp_size == 1 || !kvt_name_part_equal(&o->name.pool, "kv"))
		return KVT_OK;
	return kvt_manifest_extent(group, KVT_AXIS_S,
				   o->name.page / (o->shards > 1 ? 1 : o->name.dcp_size),
				   "the file names", o->path, o->err);
}

static enum kvt_status describe(struct opening *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_pages_known known = { .name = o->path,
					 .parallel = &s->parallel,
					 .unnoticed = &o->reader->leaf.unnoticed };
	struct kvt_group *group;
	enum kvt_status status;
	int64_t largest = 0;

	/* of files of unlike lengths the shorter ones were cut */
	for (int64_t i = 0; i < o->count; i++)
		if (o->tree.file[o->file[i]].nbytes > largest)
			largest = o->tree.file[o->file[i]].nbytes;
	o->reader->leaf.unlisted = true;
	if (__builtin_mul_overflow(largest, o->shards, &known.nbytes))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: pages have more than 2^63 bytes", o->path);
	if ((status = take_ranks(o)) ||
	    (status = kvt_manifest_add_group(&group, s, "g0", o->path, o->err)) ||
	    (status = name_group(o, group)) || (status = take_page(o, group)) ||
	    (status = kvt_store_layout(group, o->hints, false, o->err)))
		return status;
	if (group->layout.nplanes && !kvt_hicache_layout(&group->layout))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: HiCache has no pages in layout %s, but in hicache-layer-first, -page-first, -page-first-direct, -page-head, mla and BSLC",
				o->path, o->hints->layout);
	group->shape.n[KVT_AXIS_B] = 1;
	if ((status = kvt_pages_fit(group, &known, o->hints, o->err)))
		return status;
	if (o->halves && group->shape.n[KVT_AXIS_K] != 2)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: holds keys and values (_k and _v), no latents: give --heads and --head-dim instead",
				o->path);
	group->shape.n[KVT_AXIS_B] = o->count / o->shards;
	if (o->name.model.n && !(s->model = kvt_name_part_copy(&o->name.model)))
		return kvt_no_memory(o->err, o->path);
	return KVT_OK;
}

/* Row i of the shard of a rank is token i * shards + rank of the page. */
static enum kvt_status add_shard(struct opening *o, int file, int64_t block, int64_t rank)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[0];
	struct kvt_group part = *group;
	int64_t rows = part.shape.n[KVT_AXIS_S] / o->shards, nbytes;
	enum kvt_status status;

	part.shape.n[KVT_AXIS_B] = 1;
	part.shape.n[KVT_AXIS_S] = rows;
	if ((status = kvt_shape_nbytes(&nbytes, &part.shape, o->err)) ||
	    (status = kvt_pages_expect(&o->reader->files.file[file], 0, nbytes, 0,
				       o->err)))
		return status;
	for (int64_t i = 0; !status && i < rows; i++) {
		struct kvt_box row = kvt_box_whole(&part.shape);
		struct kvt_file_part range;

		row.begin[KVT_AXIS_S] = i;
		row.end[KVT_AXIS_S] = i + 1;
		if ((status = kvt_file_part_init(&range, &part, &row, false, file, 0,
					     o->err)))
			return status;
		range.box.begin[KVT_AXIS_B] = block;
		range.box.end[KVT_AXIS_B] = block + 1;
		range.box.begin[KVT_AXIS_S] = i * o->shards + rank;
		range.box.end[KVT_AXIS_S] = range.box.begin[KVT_AXIS_S] + 1;
		status = kvt_flat_add(&o->reader->flat[0], &range, o->err);
	}
	return status;
}

static enum kvt_status add_file(struct opening *o, int64_t i)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[0];
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t block = i / o->shards;
	enum kvt_status status;
	int file;

	if ((status = kvt_tree_list(&o->reader->files, &file, &o->tree, o->file[i],
				    o->err)))
		return status;
	if (o->halves) {
		box.begin[KVT_AXIS_K] = i % 2;
		box.end[KVT_AXIS_K] = i % 2 + 1;
	} else if (o->shards > 1)
		return add_shard(o, file, block, i % o->shards);
	box.begin[KVT_AXIS_B] = block;
	box.end[KVT_AXIS_B] = block + 1;
	return kvt_pages_add(o->reader, 0, file, &box, 0, 0, o->err);
}

static enum kvt_status add_pages(struct opening *o)
{
	struct kvt_group *group = &o->reader->leaf.snapshot.group[0];
	enum kvt_status status = kvt_store_new_names(group, o->err);

	for (int64_t i = 0; !status && i < o->count; i++) {
		struct kvt_hicache_name name = name_of(o, i);
		char **called = &group->block_names[i / o->shards];

		if (!*called && !(*called = kvt_name_part_copy(&name.hash)))
			return kvt_no_memory(o->err, o->path);
		status = add_file(o, i);
	}
	return status;
}

static enum kvt_status open_pages(struct opening *o)
{
	enum kvt_status status;

	if ((status = kvt_tree_walk(&o->tree, o->path, o->err)))
		return status;
	o->file = calloc((size_t)o->tree.count + 1, sizeof(*o->file));
	if (!o->file)
		status = kvt_no_memory(o->err, o->path);
	else if (o->hints->inspector)
		status = kvt_hicache_check_pools(&o->tree, o->hints, o->err);
	if (!status && !(status = choose_pages(o)) &&
	    !(status = gather(o)) && !(status = describe(o)))
		status = add_pages(o);
	o->reader->named_by = "sglang";
	o->reader->named_unit = o->name.dcp_size > 1 ? o->name.page : 0;
	free(o->file);
	kvt_tree_free(&o->tree);
	return status;
}

static enum kvt_status hicache_open(struct kvt_reader *reader, const char *path,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .path = path, .err = err };
	struct kvt_hints named = *hints;

	/* the format's other names are those of layouts */
	if (named.format && strcmp(named.format, "hicache")) {
		if (named.layout && strcmp(named.layout, named.format))
			return kvt_fail(err, KVT_USAGE,
					"--from=%s and --layout=%s contradict each other",
					named.format, named.layout);
		named.layout = named.format;
	}
	o.hints = &named;
	return open_pages(&o);
}

static const char *const presets[] = {
	"hicache-layer-first", "hicache-page-first", "hicache-page-first-direct",
	"hicache-page-head", NULL,
};
static const char *const facts[] = { "model", "rank", "pool", "total-heads", NULL };

const struct kvt_format kvt_hicache_format = {
	.info = { "hicache", "folders of SGLang's HiCache, one file for each "
			     "page", .reads = true, .writes = true },
	.presets = presets,
	.checks = "names, lengths",
	.facts = facts,
	.in_layout = kvt_store_in_layout,
	.takes = KVT_TAKES_PROMPT,
	.directory = true,
	.holds = is_page,
	.open = hicache_open,
	.create = kvt_hicache_create,
	.finish = kvt_hicache_finish,
};
