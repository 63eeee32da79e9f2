/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c - raw tiers of Dynamo's KVBM, beside the descriptor of their layout
 *
 * A tier is one file with all blocks, or a file a layer.  Its descriptor, given
 * with --manifest, is the JSON that workers send each other (version 1), or only
 * the config in it; it says widths of elements and not their type.
 *
 *	one file	[block 0][block 1] ...			each its layers
 *	a folder	<..layer number..>  [block 0][block 1] ...	a file a layer
 *	both		behind the last block up to 'alignment' - 1 bytes, or up to
 *			the size of the region in the descriptor: not read
 *
 * Facts: Dynamo's lib/kvbm-physical/src/layout at 049cc229, 090512fc and 106bcffb; the
 * disk tier of kvbm 1.6.1 is the same.  Only layers in buffers of their own are
 * padded.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/kvbm/kvbm.h"
#include "formats/describe/describe.h"
#include "formats/parse/json.h"
#include "formats/parse/layer_names.h"
#include "formats/store/store.h"

enum { MOST_JSON = 16 << 20 };

struct opening {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_kvbm kvbm;
	struct kvt_tree tree;		/* of a folder */
};

/* ---- the group ---------------------------------------------------------- */

static enum kvt_status take_layout(struct opening *o, struct kvt_group *group)
{
	const struct kvt_kvbm *k = &o->kvbm;

	/* without axes the user's are taken with everything else */
	return k->axes[0] ? kvt_layout_parse(&group->layout, k->axes, o->err) : KVT_OK;
}

static enum kvt_status take_heads(struct opening *o, struct kvt_group *group)
{
	const struct kvt_hints said = kvt_hints_of(o->hints, group->id);
	const struct kvt_kvbm *k = &o->kvbm;
	int64_t heads = k->heads;
	enum kvt_status status;

	if (!heads && k->outer == 1 && !said.heads)
		heads = 1;
	if (!heads && (status = kvt_hint_heads(&heads, k->inner, &said,
					       o->hints->manifest, o->err)))
		return status;
	if (k->inner % heads)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tokens have %lld elements, which cannot be divided into %lld heads",
				o->hints->manifest, LL(k->inner), LL(heads));
	group->shape.n[KVT_AXIS_H] = heads;
	group->shape.n[KVT_AXIS_D] = k->inner / heads;
	return KVT_OK;
}

static enum kvt_status describe(struct opening *o)
{
	const struct kvt_kvbm *k = &o->kvbm;
	struct kvt_pages_known known = { .name = o->path, .nbytes = -1 };
	struct kvt_group *group;
	enum kvt_status status;

	if ((status = kvt_manifest_add_group(&group, &o->reader->leaf.snapshot, "g0",
					     o->path, o->err)) ||
	    (status = take_layout(o, group)) || (status = take_heads(o, group)))
		return status;
	group->shape.n[KVT_AXIS_L] = k->layers;
	group->shape.n[KVT_AXIS_B] = k->blocks;
	group->shape.n[KVT_AXIS_K] = k->outer;
	group->block_size = k->page;
	if ((status = kvt_pages_fit(group, &known, o->hints, o->err)))
		return status;
	if (group->dtype->elem != k->width)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: elements have %lld bytes, but dtype %s has %d",
				o->hints->manifest, LL(k->width), group->dtype->name,
				group->dtype->elem);
	return KVT_OK;
}

/* ---- files -------------------------------------------------------------- */

/* What follows the data: what the descriptor's region has, or an alignment. */
static int64_t padding(const struct opening *o, int64_t nbytes, int64_t size)
{
	int64_t align = o->kvbm.alignment, rest = nbytes % align;

	if (size > nbytes && (size == o->kvbm.region ||
			      (rest && size - nbytes == align - rest)))
		return size - nbytes;
	return 0;
}

static enum kvt_status add_file(struct opening *o, int file, const struct kvt_box *box)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[0];
	struct kvt_shape shape = kvt_box_shape(box, group->shape.elem);
	enum kvt_status status;
	int64_t nbytes;

	if ((status = kvt_shape_nbytes(&nbytes, &shape, o->err)))
		return status;
	return kvt_pages_add(o->reader, 0, file, box, 0,
			     padding(o, nbytes, o->reader->files.file[file].nbytes),
			     o->err);
}

static enum kvt_status add_single(struct opening *o)
{
	struct kvt_box box = kvt_box_whole(&o->reader->leaf.snapshot.group[0].shape);
	enum kvt_status status;
	int file;

	if ((status = kvt_files_open(&o->reader->files, &file, o->path, o->err)))
		return status;
	return add_file(o, file, &box);
}

/* A file a layer, by the number in its name. */
static enum kvt_status add_layers(struct opening *o)
{
	struct kvt_box box = kvt_box_whole(&o->reader->leaf.snapshot.group[0].shape);
	int64_t n = o->tree.count;
	struct kvt_layer *layer = calloc((size_t)n + 1, sizeof(*layer));
	enum kvt_status status;

	if (!layer)
		return kvt_no_memory(o->err, o->path);
	for (int64_t i = 0; i < n; i++)
		layer[i] = (struct kvt_layer){ o->tree.file[i].name, -1, i };
	status = kvt_layers_sort(layer, n, o->path, o->err);
	for (int64_t l = 0; !status && l < n; l++) {
		int file;

		box.begin[KVT_AXIS_L] = l;
		box.end[KVT_AXIS_L] = l + 1;
		(void)((status = kvt_tree_list(&o->reader->files, &file, &o->tree,
					       layer[l].index, o->err)) ||
		       (status = add_file(o, file, &box)));
	}
	free(layer);
	return status;
}

static enum kvt_status add_folder(struct opening *o)
{
	struct kvt_box box = kvt_box_whole(&o->reader->leaf.snapshot.group[0].shape);
	int64_t expected = o->kvbm.separate ? o->kvbm.layers : 1;
	enum kvt_status status;
	int file;

	if ((status = kvt_tree_walk(&o->tree, o->path, o->err)))
		return status;
	if (o->tree.count != expected)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has %lld files, expected %lld", o->path,
				LL(o->tree.count), LL(expected));
	if (o->kvbm.separate)
		return add_layers(o);
	if ((status = kvt_tree_list(&o->reader->files, &file, &o->tree, 0, o->err)))
		return status;
	return add_file(o, file, &box);
}

/* ---- the format --------------------------------------------------------- */

static enum kvt_status read_descriptor(struct opening *o)
{
	enum kvt_status status;
	size_t nbytes;
	char *text;

	if (!o->hints->manifest)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: a raw tier has no description; give the JSON of its layout descriptor with --manifest",
				o->path);
	if ((status = kvt_tree_text(&text, &nbytes, &o->reader->files, o->hints->manifest,
				    MOST_JSON, o->err)))
		return status;
	status = kvt_kvbm_parse(&o->kvbm, text, nbytes, o->hints->manifest, o->err);
	free(text);
	return status;
}

static enum kvt_status kvbm_open(struct kvt_reader *reader, const char *path,
				 const struct kvt_hints *hints, struct kvt_error *err)
{
	struct opening o = { .reader = reader, .path = path, .hints = hints, .err = err };
	enum kvt_status status;

	if (!(status = read_descriptor(&o)) && !(status = describe(&o)))
		status = kvt_is_folder(path) ? add_folder(&o) : add_single(&o);
	kvt_tree_free(&o.tree);
	return status;
}

const struct kvt_format kvt_kvbm_format = {
	.info = { "kvbm", "raw tiers of Dynamo's KVBM, with their descriptor",
		  .reads = true, .writes = false },
	.checks = "descriptor, lengths",
	.takes = KVT_TAKES_MANIFEST,
	.open = kvbm_open,
};
