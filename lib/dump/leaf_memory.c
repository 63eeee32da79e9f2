/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf_memory.c - leaves over buffers of the caller, and over a constant
 *
 * A group is one array in its layout; of a constant no byte exists until it is read.
 */
#include "lib/dump/map.h"

#include <stdlib.h>
#include <string.h>

struct memory_leaf {
	struct kvt_leaf leaf;
	const void *bytes[KVT_MAX_GROUPS];	/* borrowed */
	uint8_t fill;
};

static const void *memory_bytes(const struct kvt_leaf *leaf, int group)
{
	return ((const struct memory_leaf *)leaf)->bytes[group];
}

static enum kvt_status memory_read(const struct kvt_leaf *leaf, int group,
				   const struct kvt_box *box, void *buf,
				   struct kvt_error *err)
{
	const struct kvt_group *g = &leaf->snapshot.group[group];
	struct placed src = { &g->layout, kvt_box_whole(&g->shape),
			      (uint8_t *)(uintptr_t)memory_bytes(leaf, group) };
	struct placed dst = { &g->layout, *box, buf };

	return copy_box(NULL, &dst, &src, box, g->shape.elem, err);
}

static enum kvt_status constant_read(const struct kvt_leaf *leaf, int group,
				     const struct kvt_box *box, void *buf,
				     struct kvt_error *err)
{
	struct kvt_shape shape = kvt_box_shape(box,
					       leaf->snapshot.group[group].shape.elem);
	int64_t nbytes;
	enum kvt_status status = kvt_shape_nbytes(&nbytes, &shape, err);

	if (!status)
		memset(buf, ((const struct memory_leaf *)leaf)->fill, (size_t)nbytes);
	return status;
}

static void memory_close(struct kvt_leaf *leaf)
{
	free(leaf);
}

static const struct kvt_leaf_ops memory_ops = {
	.read_box = memory_read, .bytes = memory_bytes, .close = memory_close,
};
static const struct kvt_leaf_ops constant_ops = {
	.read_box = constant_read, .close = memory_close,
};

enum kvt_status leaf_init(struct kvt_leaf *leaf, const struct kvt_leaf_ops *ops,
			  const char *format, const struct kvt_snapshot *info,
			  struct kvt_error *err)
{
	enum kvt_status status;

	leaf->ops = ops;
	leaf->format = format;
	if ((status = kvt_snapshot_copy(&leaf->snapshot, info, err)) ||
	    (status = kvt_snapshot_check(&leaf->snapshot, err)) ||
	    (status = kvt_snapshot_complete(&leaf->snapshot, err)))
		kvt_snapshot_free(&leaf->snapshot);
	return status;
}

static enum kvt_status make(struct kvt_dump **out, const struct kvt_leaf_ops *ops,
			    const char *format, const struct kvt_snapshot *info,
			    const void *const bytes[], uint8_t fill,
			    struct kvt_error *err)
{
	struct memory_leaf *m = calloc(1, sizeof(*m));
	enum kvt_status status;

	if (!m)
		return kvt_no_memory(err, NULL);
	m->fill = fill;
	for (int g = 0; bytes && g < info->ngroups; g++)
		m->bytes[g] = bytes[g];
	if ((status = leaf_init(&m->leaf, ops, format, info, err))) {
		free(m);
		return status;
	}
	return kvt_dump_of_leaf(out, &m->leaf, err);
}

enum kvt_status kvt_dump_of_memory(struct kvt_dump **out, const struct kvt_snapshot *info,
				   const void *const bytes[], struct kvt_error *err)
{
	return make(out, &memory_ops, "memory", info, bytes, 0, err);
}

enum kvt_status kvt_dump_of_constant(struct kvt_dump **out,
				     const struct kvt_snapshot *info, uint8_t fill,
				     struct kvt_error *err)
{
	return make(out, &constant_ops, "constant", info, NULL, fill, err);
}
