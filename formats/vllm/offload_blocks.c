/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_blocks.c - blocks of an offload tree: their group, extents, bytes, names
 *
 * In: the files of a tree, whose names have passed kvt_offload_name(), which says the
 * group of a file and the hash of its last block.  A page is what one block has of one
 * layer.
 *
 * A block's own name is that hash where files have one block each; else HASH:PLACE,
 * where PLACE counts in the blocks_per_file of a whole file.  A file may have fewer, and
 * they are the last ones of its range:
 *
 *	blocks_per_file 4	[ 0 | 1 | 2 | 3 ]	HASH:0 .. HASH:3
 *	a file of 2 of them		[ 2 | 3 ]	HASH:2, HASH:3
 */
#include "formats/vllm/offload.h"

#include <string.h>

int kvt_offload_group_of(const struct kvt_offload *o, int64_t i)
{
	struct kvt_name_part hash;
	int number = -1;

	/* names that are none were refused when the files were counted */
	return kvt_offload_name(&hash, &number, o->tree.file[i].name) ? number : -1;
}

enum kvt_status kvt_offload_page(int64_t *out, const struct kvt_group *group,
				 struct kvt_error *err)
{
	struct kvt_shape page = group->shape;

	page.n[KVT_AXIS_L] = page.n[KVT_AXIS_B] = 1;
	return kvt_shape_nbytes(out, &page, err);
}

/* What is known, and what the user adds; extents of one block. */
enum kvt_status kvt_offload_fit(struct kvt_offload *o, struct kvt_group *group,
				int64_t nbytes)
{
	struct kvt_pages_known known = { .name = o->folder, .nbytes = -1,
		.parallel = &o->reader->leaf.snapshot.parallel,
		.unnoticed = &o->reader->leaf.unnoticed };
	struct kvt_group all = *group;
	enum kvt_status status = kvt_pages_fit(&all, &known, o->hints, NULL);

	if (status && nbytes >= 0) {
		known.nbytes = nbytes;
		all = *group;
	}
	if (status && (status = kvt_pages_fit(&all, &known, o->hints, o->err)))
		return status;
	*group = all;
	return kvt_offload_check_canonical(o->config.canonical, group, o->base, o->err);
}

enum kvt_status kvt_offload_name_blocks(struct kvt_offload *o, char **names, int64_t file,
					int64_t n)
{
	int64_t each = o->config.blocks_per_file;
	struct kvt_name_part hash;
	char text[512];
	int number;

	kvt_offload_name(&hash, &number, o->tree.file[file].name);
	for (int64_t i = 0; i < n; i++) {
		int length = (int)hash.n;

		/* of a range of blocks the file has the last ones */
		if (each == 1)
			snprintf(text, sizeof(text), "%.*s", length, hash.s);
		else
			snprintf(text, sizeof(text), "%.*s:%lld", length, hash.s,
				 LL(each - n + i));
		if (!(names[i] = strdup(text)))
			return kvt_no_memory(o->err, o->path);
	}
	return KVT_OK;
}
