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

struct opening {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_store_files files;	/* by id */
};

/* ---- names -------------------------------------------------------------- */

/* Digits without a leading zero, up to 2^31. */
static const char *take_number(int64_t *out, const char *s)
{
	size_t n = strspn(s, "0123456789");

	if (!n || n > 10 || (n > 1 && *s == '0'))
		return NULL;
	*out = strtoll(s, NULL, 10);
	return *out > INT32_MAX ? NULL : s + n;
}

static bool parse_name(struct kvt_store_file *out, const char *name)
{
	const char *p, *q;
	int64_t pool;

	if (strncmp(name, "block_", 6) || !(p = take_number(&out->number[0], name + 6)) ||
	    strncmp(p, "_pool_", 6) || !(q = take_number(&pool, p + 6)))
		return false;
	out->part = (struct kvt_name_part){ p + 6, (size_t)(q - p - 6) };
	return !strcmp(q, ".bin");
}

static bool is_block(const char *name)
{
	struct kvt_store_file file;

	return parse_name(&file, name);
}

static const struct kvt_store_names names = {
	.key = "pool", .what = "pools", .parse = parse_name,
	.expected = "not a block of TensorRT-LLM, expected block_ID_pool_POOL.bin",
};

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
	for (int64_t i = 0; i < o->files.count; i++)
		if (kvt_store_file(&o->files, i)->nbytes > known.nbytes)
			known.nbytes = kvt_store_file(&o->files, i)->nbytes;
	o->reader->leaf.unlisted = true;
	if ((status = kvt_manifest_add_group(&group, s, "g0", o->path, o->err)) ||
	    (status = kvt_layout_parse(&group->layout, said.content ? "BLSC" :
				       "BLKHSD", o->err)))
		return status;
	group->shape.n[KVT_AXIS_B] = 1;
	status = kvt_pages_fit(group, &known, o->hints, o->err);
	group->shape.n[KVT_AXIS_B] = o->files.count;
	return status;
}

static enum kvt_status add_blocks(struct opening *o)
{
	struct kvt_group *group = &o->reader->leaf.snapshot.group[0];
	struct kvt_box box = kvt_box_whole(&group->shape);
	enum kvt_status status = KVT_OK;

	group->block_ids = calloc((size_t)o->files.count + 1, sizeof(*group->block_ids));
	if (!group->block_ids)
		return kvt_no_memory(o->err, o->path);
	for (int64_t b = 0; !status && b < o->files.count; b++) {
		const struct kvt_store_file *from = &o->files.file[b];
		int file;

		box.begin[KVT_AXIS_B] = b;
		box.end[KVT_AXIS_B] = b + 1;
		group->block_ids[b] = (uint64_t)from->number[0];
		(void)((status = kvt_tree_list(&o->reader->files, &file, &o->files.tree,
					       from->at, o->err)) ||
		       (status = kvt_pages_add(o->reader, 0, file, &box, 0, 0, o->err)));
	}
	return status;
}

static enum kvt_status trtllm_open(struct kvt_reader *reader, const char *path,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .path = path, .hints = hints, .err = err };
	enum kvt_status status;

	if (!(status = kvt_store_list(&o.files, path, &names, hints, err)) &&
	    !(status = describe(&o)))
		status = add_blocks(&o);
	kvt_store_files_free(&o.files);
	return status;
}

static const char *const facts[] = { "pool", NULL };

const struct kvt_format kvt_trtllm_format = {
	.info = { "trtllm", "blocks that TensorRT-LLM offloaded, one file for each",
		  .reads = true, .writes = false },
	.facts = facts,
	.checks = "names, lengths",
	.in_layout = kvt_store_in_layout,
	.holds = is_block,
	.open = trtllm_open,
};
