/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hicache_format.c - folders of SGLang's HiCache: a file without a header a page
 *
 * Names say model, rank and pool; what a page holds, and in which of four
 * orders, is known to the engine alone and has to be said.
 */
#include "formats/hicache.h"

#include <stdlib.h>
#include <string.h>

#include "formats/manifest.h"

struct opening {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_tree tree;
	int64_t *file;			/* those of the tree that are pages of it */
	int64_t count;
	struct kvt_hicache_name name;	/* of the first of them */
};

static bool is_page(const char *name)
{
	struct kvt_hicache_name parsed;

	return kvt_hicache_parse(&parsed, name);
}

static bool hicache_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)nhead;
	return !head && kvt_tree_has(path, is_page);
}

/* ---- which files -------------------------------------------------------- */

static enum kvt_status choose_pages(struct opening *o)
{
	struct kvt_choice model = { .key = "model", .what = "models" };
	struct kvt_choice pool = { .key = "pool", .what = "pools" };
	struct kvt_choice rank = { .key = "rank", .what = "ranks" };
	enum kvt_status status;

	model.asked = kvt_fact(o->hints, "model");
	pool.asked = kvt_fact(o->hints, "pool");
	rank.asked = kvt_fact(o->hints, "rank");
	for (int64_t i = 0; i < o->tree.count; i++) {
		struct kvt_hicache_name name;
		bool skip[3] = { false };

		if (!kvt_hicache_parse(&name, o->tree.file[i].name))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s/%.200s: is no page of HiCache, expected HASH[.POOL]_MODEL[_RANK_SIZE].bin",
					o->path, o->tree.file[i].name);
		if ((status = kvt_choose(&skip[0], &model, &name.model, o->path, o->err)))
			return status;
		if (!skip[0] && (status = kvt_choose(&skip[1], &pool, &name.pool,
						     o->path, o->err)))
			return status;
		if (!skip[0] && !skip[1] &&
		    (status = kvt_choose(&skip[2], &rank, &name.rank, o->path, o->err)))
			return status;
		if (skip[0] || skip[1] || skip[2])
			continue;
		if (!o->count)
			o->name = name;
		o->file[o->count++] = i;
	}
	if ((status = kvt_chosen(&model, o->path, o->err)) ||
	    (status = kvt_chosen(&pool, o->path, o->err)) ||
	    (status = kvt_chosen(&rank, o->path, o->err)))
		return status;
	if (!o->count)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: holds no page of HiCache",
				o->path);
	return KVT_OK;
}

/* ---- the snapshot ------------------------------------------------------- */

static enum kvt_status name_group(struct opening *o, struct kvt_group *group)
{
	const struct kvt_part_of_name *pool = &o->name.pool;

	if (kvt_part_equal(pool, "kv"))
		return KVT_OK;
	if (pool->n >= sizeof(group->id))
		return kvt_fail(o->err, KVT_UNSUPPORTED,
				"%s: pool '%.*s' has too long a name", o->path,
				(int)pool->n, pool->s);
	memcpy(group->id, pool->s, pool->n);
	group->id[pool->n] = '\0';
	return KVT_OK;
}

static enum kvt_status describe(struct opening *o)
{
	struct kvt_snapshot *s = &o->reader->snapshot;
	struct kvt_parallel *p = &s->parallel;
	const struct kvt_tree_file *first = &o->tree.file[o->file[0]];
	struct kvt_pages_known known = { .name = o->path, .nbytes = first->nbytes,
					 .counted = KVT_AXIS_B, .parallel = p };
	struct kvt_group *group;
	enum kvt_status status;

	p->tp_size = o->name.tp_size;
	p->tp_rank = o->name.tp_rank;
	p->pp_size = o->name.pp_size;
	p->pp_rank = o->name.pp_rank;
	p->dcp_size = o->name.cp_size;
	p->dcp_rank = o->name.cp_rank;
	s->has_parallel = o->name.rank.n > 0;
	if ((status = kvt_manifest_add_group(&group, s, "g0", o->path, o->err)) ||
	    (status = name_group(o, group)) ||
	    (status = kvt_store_layout(&group->layout, o->hints, false, o->err)))
		return status;
	if (group->layout.nplanes && !kvt_hicache_layout(&group->layout))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: HiCache has no pages in layout %s, but in hicache-layer-first, "
				"-page-first, -page-first-direct, -page-head, mla and BSLC",
				o->path, o->hints->layout);
	group->shape.n[KVT_AXIS_B] = 1;
	if ((status = kvt_pages_fit(group, &known, o->hints, o->err)) ||
	    (status = kvt_pages_count(group, KVT_AXIS_B, o->count, o->hints, o->path,
				      o->err)))
		return status;
	if (o->name.model.n && !(s->model = kvt_part_copy(&o->name.model)))
		return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->path);
	return KVT_OK;
}

static enum kvt_status add_pages(struct opening *o)
{
	struct kvt_group *group = &o->reader->snapshot.group[0];
	struct kvt_box box = kvt_box_whole(&group->shape);
	enum kvt_status status = kvt_names_new(group, o->err);

	for (int64_t b = 0; !status && b < o->count; b++) {
		struct kvt_hicache_name name;
		int file;

		box.begin[KVT_AXIS_B] = b;
		box.end[KVT_AXIS_B] = b + 1;
		kvt_hicache_parse(&name, o->tree.file[o->file[b]].name);
		if (!(group->block_names[b] = kvt_part_copy(&name.hash)))
			return kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->path);
		(void)((status = kvt_tree_list(&o->reader->files, &file, &o->tree,
					       o->file[b], o->err)) ||
		       (status = kvt_pages_add(o->reader, 0, file, &box, 0, 0, o->err)));
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
		status = kvt_fail(o->err, KVT_SYSTEM, "%s: out of memory", o->path);
	if (!status && !(status = choose_pages(o)) && !(status = describe(o)))
		status = add_pages(o);
	free(o->file);
	kvt_tree_free(&o->tree);
	return status;
}

static enum kvt_status hicache_open(struct kvt_reader *reader, const char *path,
				    const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .path = path, .err = err };
	struct kvt_hints named = hints ? *hints : (struct kvt_hints){ 0 };

	/* the format's other names are those of layouts */
	if (named.format && strcmp(named.format, "hicache")) {
		if (named.layout && strcmp(named.layout, named.format))
			return kvt_fail(err, KVT_USAGE,
					"--from=%s says the layout, and --layout=%s another one",
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
	.info = { "hicache", "folders of SGLang's HiCache, a file a page", true, true },
	.presets = presets,
	.facts = facts,
	.directory = true,
	.probe = hicache_probe,
	.open = hicache_open,
	.create = kvt_hicache_create,
	.finish = kvt_hicache_finish,
};
