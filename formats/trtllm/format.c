/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - blocks that TensorRT-LLM has offloaded to files
 *
 *	block_<id>_pool_<p>.bin		layer 0: keys, values;  layer 1: keys, values; ...
 *		keys, values		head, token, element
 *		latents			layer, token, element
 *
 * block_<id>_pool_<p>.bin is what the pool has of one block: all its layers, of
 * each keys and values, of each head the tokens.  Latent content is one vector
 * for each token of a layer.  There is no header: ids and pools are those of the names,
 * and the length must be that of the extents that the user gives.
 *
 * Facts: kvCacheTransferManager.cpp at 03d4aac9 and kvCachePartialCopy.cu, offloading
 * through GDS or POSIX; no dump of the engine itself is among the test data.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/store/store.h"

struct block_file {
	int64_t id, at;			/* at: in the tree */
};

struct opening {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_tree tree;
	struct block_file *file;
	int64_t count;
};

/* Digits without a leading zero, up to 2^31. */
static const char *take_number(int64_t *out, const char *s)
{
	size_t n = strspn(s, "0123456789");

	if (!n || n > 10 || (n > 1 && *s == '0'))
		return NULL;
	*out = strtoll(s, NULL, 10);
	return *out > INT32_MAX ? NULL : s + n;
}

static bool parse_name(int64_t *id, struct kvt_name_part *pool, const char *name)
{
	const char *p, *q;
	int64_t number;

	if (strncmp(name, "block_", 6) || !(p = take_number(id, name + 6)) ||
	    strncmp(p, "_pool_", 6) || !(q = take_number(&number, p + 6)))
		return false;
	*pool = (struct kvt_name_part){ p + 6, (size_t)(q - p - 6) };
	return !strcmp(q, ".bin");
}

static bool find_pool(struct kvt_name_part *pool, const char *name)
{
	int64_t id;

	return parse_name(&id, pool, name);
}

static bool is_block(const char *name)
{
	struct kvt_name_part pool;

	return find_pool(&pool, name);
}

static bool trtllm_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)nhead;
	return !head && kvt_tree_has(path, is_block);
}

/* ---- files -------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
	const struct block_file *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static enum kvt_status choose_files(struct opening *o)
{
	struct kvt_store_choice pool = { .key = "pool", .what = "pools" };
	enum kvt_status status;

	pool.asked = kvt_fact(o->hints, "pool");
	if ((status = kvt_store_keep(&o->tree, &pool, find_pool,
				     "not a block of TensorRT-LLM, expected "
				     "block_ID_pool_POOL.bin",
				     o->err)))
		return status;
	for (; o->count < o->tree.count; o->count++) {
		struct kvt_name_part part;

		o->file[o->count].at = o->count;
		parse_name(&o->file[o->count].id, &part, o->tree.file[o->count].name);
	}
	qsort(o->file, (size_t)o->count, sizeof(*o->file), by_id);
	return KVT_OK;
}

/* ---- the snapshot ------------------------------------------------------- */

static enum kvt_status describe(struct opening *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_pages_known known = { .name = o->path,
		.unnoticed = &o->reader->leaf.unnoticed };
	const struct kvt_hints said = kvt_hints_of(o->hints, "g0");
	struct kvt_group *group;
	enum kvt_status status;

	/* of files of unlike lengths the shorter ones were cut */
	for (int64_t i = 0; i < o->count; i++)
		if (o->tree.file[i].nbytes > known.nbytes)
			known.nbytes = o->tree.file[i].nbytes;
	o->reader->leaf.unlisted = true;
	if ((status = kvt_manifest_add_group(&group, s, "g0", o->path, o->err)) ||
	    (status = kvt_layout_parse(&group->layout, said.content ? "BLSC" :
				       "BLKHSD", o->err)))
		return status;
	group->shape.n[KVT_AXIS_B] = 1;
	status = kvt_pages_fit(group, &known, o->hints, o->err);
	group->shape.n[KVT_AXIS_B] = o->count;
	return status;
}

static enum kvt_status add_blocks(struct opening *o)
{
	struct kvt_group *group = &o->reader->leaf.snapshot.group[0];
	struct kvt_box box = kvt_box_whole(&group->shape);
	enum kvt_status status = KVT_OK;

	group->block_ids = calloc((size_t)o->count + 1, sizeof(*group->block_ids));
	if (!group->block_ids)
		return kvt_no_memory(o->err, o->path);
	for (int64_t b = 0; !status && b < o->count; b++) {
		int file;

		box.begin[KVT_AXIS_B] = b;
		box.end[KVT_AXIS_B] = b + 1;
		group->block_ids[b] = (uint64_t)o->file[b].id;
		(void)((status = kvt_tree_list(&o->reader->files, &file, &o->tree,
					       o->file[b].at, o->err)) ||
		       (status = kvt_pages_add(o->reader, 0, file, &box, 0, 0, o->err)));
	}
	return status;
}

static enum kvt_status trtllm_open(struct kvt_reader *reader, const char *path,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	static const struct kvt_hints none;
	struct opening o = { .reader = reader, .path = path, .err = err,
			     .hints = hints ? hints : &none };
	enum kvt_status status;

	if ((status = kvt_tree_walk(&o.tree, path, err)))
		return status;
	o.file = calloc((size_t)o.tree.count + 1, sizeof(*o.file));
	if (!o.file)
		status = kvt_no_memory(err, path);
	if (!status && !(status = choose_files(&o)) && !(status = describe(&o)))
		status = add_blocks(&o);
	free(o.file);
	kvt_tree_free(&o.tree);
	return status;
}

static const char *const facts[] = { "pool", NULL };

const struct kvt_format kvt_trtllm_format = {
	.info = { "trtllm", "blocks that TensorRT-LLM offloaded, one file for each",
		  .reads = true, .writes = false },
	.facts = facts,
	.checks = "names, lengths",
	.in_layout = kvt_store_in_layout,
	.probe = trtllm_probe,
	.open = trtllm_open,
};
