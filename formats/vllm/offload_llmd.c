/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_llmd.c - the files of llm-d
 *
 *	[block: layer 0, layer 1, ...][block: ...] ...	up to blocks_per_file of them
 *	a layer		'block-bytes' of them, the first of which are its block
 *
 * A file holds some blocks of a group, of each of them all layers, of each of those as
 * many bytes as the engine's tensors have there, which may be more than a block needs.
 * A file with fewer blocks than its range has the last ones.  Facts: as in offload.c.
 */
#include <string.h>

#include "formats/vllm/offload.h"

/* ---- the rank ----------------------------------------------------------- */

static enum kvt_status set_rank(struct kvt_offload *o)
{
	struct kvt_parallel *p = &o->reader->leaf.snapshot.parallel;
	const struct kvt_offload_config *c = &o->config;
	int64_t said = c->tp_size;
	enum kvt_status status;

	if ((status = kvt_fact_int(&said, o->hints, "tp-size", 1, KVT_OFFLOAD_MOST_RANKS,
				   o->err)))
		return status;
	if (said != c->tp_size)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tp_size is %lld, but %lld was given", o->base,
				LL(c->tp_size), LL(said));
	if (kvt_fact(o->hints, "row-align"))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: is a tree of llm-d, which has no row-align", o->base);
	if (o->rank >= c->tp_size * c->pp_size)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: rank %lld of a config with %lld", o->folder, LL(o->rank),
				LL(c->tp_size * c->pp_size));
	p->tp_size = c->tp_size;
	p->tp_rank = o->rank % c->tp_size;
	p->pp_size = c->pp_size;
	p->pp_rank = o->rank / c->tp_size;
	p->dcp_size = c->dcp_size;
	p->dcp_rank = p->tp_rank % c->dcp_size;
	o->reader->leaf.snapshot.has_parallel = c->tp_size * c->pp_size * c->dcp_size > 1;
	return KVT_OK;
}

/* ---- a group ------------------------------------------------------------ */

/* Bytes of a block of a layer: what it needs, or what the user says. */
static enum kvt_status find_row(struct kvt_offload *o, struct kvt_group *group,
				const struct kvt_offload_files *files)
{
	int64_t per_file = o->config.blocks_per_file, most = (int64_t)1 << 40;
	int64_t layers = group->shape.n[KVT_AXIS_L], row, all, given = 0;
	enum kvt_status status;

	if ((status = kvt_offload_page(&row, group, o->err)) ||
	    (status = kvt_fact_int(&given, o->hints, "block-bytes", 1, most, o->err)))
		return status;
	if (row < 1 || row > most || layers > most / row)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: blocks of %lld bytes cannot be those of a cache", o->folder,
				LL(row));
	all = row * layers;
	/* fewer blocks than a range may as well be longer ones */
	if (!given && files->largest % all == 0 && files->largest / all < per_file)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: no file has all %lld blocks of its range, so the size of a block is not known; give --set block-bytes=%lld if blocks of a layer have no padding", o->folder, LL(per_file),
				LL(row));
	if (given ? given < row : files->largest % all || files->largest / all > per_file)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%.200s/%.120s: has %lld bytes, expected 1 to %lld blocks of %lld layers of %lld bytes each; if rows are longer, give --set block-bytes",
				o->folder, files->name, LL(files->largest), LL(per_file),
				LL(layers), LL(row));
	if (given > row)
		group->page_bytes = given;
	return KVT_OK;
}

static int64_t row_bytes(const struct kvt_group *group)
{
	int64_t row = 1;

	if (group->page_bytes)
		return group->page_bytes;
	/* find_row() has done the same */
	return kvt_offload_page(&row, group, NULL) ? 1 : row;
}

/* Engines give all tensors of all groups rows of one length. */
static enum kvt_status same_rows(struct kvt_offload *o)
{
	const struct kvt_snapshot *s = &o->reader->leaf.snapshot;

	for (int g = 1; g < s->ngroups; g++)
		if (row_bytes(&s->group[g]) != row_bytes(&s->group[0]))
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%s: blocks of a layer have %lld bytes in %s and %lld in %s, expected one number; give --set block-bytes, or one --set group",
					o->folder, LL(row_bytes(&s->group[0])),
					s->group[0].id, LL(row_bytes(&s->group[g])),
					s->group[g].id);
	return KVT_OK;
}

/* Blocks first, then layers, whatever they are in the engine. */
static enum kvt_status fit_group(struct kvt_offload *o, struct kvt_group *group,
				 const struct kvt_offload_files *files)
{
	int64_t nbytes = o->config.blocks_per_file == 1 ? files->largest : -1;
	enum kvt_status status;

	/* where a file holds one block, its size may tell the rest */
	if ((status = kvt_store_layout(group, o->hints, true, o->err)) ||
	    (status = kvt_offload_fit(o, group, nbytes)))
		return status;
	return find_row(o, group, files);
}

/* ---- blocks ------------------------------------------------------------- */

static enum kvt_status add_file(struct kvt_offload *o, int g, int64_t i, int64_t *block)
{
	struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	int64_t each = row_bytes(group) * group->shape.n[KVT_AXIS_L];
	int64_t n = o->tree.file[i].nbytes / each;
	struct kvt_box box = kvt_box_whole(&group->shape);
	enum kvt_status status;
	int file;

	box.begin[KVT_AXIS_B] = *block;
	box.end[KVT_AXIS_B] = *block + n;
	if ((status = kvt_offload_name_blocks(o, group->block_names + *block, i, n)) ||
	    (status = kvt_tree_list(&o->reader->files, &file, &o->tree, i, o->err)))
		return status;
	*block += n;
	return kvt_pages_add(o->reader, g, file, &box, 0, 0, o->err);
}

/* Blocks of all files of a group; each file has some, all of them whole. */
static enum kvt_status count_blocks(struct kvt_offload *o, int number, int64_t each,
				    int64_t *out)
{
	int64_t per_file = o->config.blocks_per_file;

	*out = 0;
	for (int64_t i = 0; i < o->tree.count; i++) {
		const struct kvt_tree_file *f = &o->tree.file[i];

		if (kvt_offload_group_of(o, i) != number)
			continue;
		if (!f->nbytes || f->nbytes % each || f->nbytes / each > per_file)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s/%.120s: has %lld bytes, expected 1 to %lld blocks of %lld bytes",
					o->folder, f->name, LL(f->nbytes), LL(per_file),
					LL(each));
		*out += f->nbytes / each;
		if (f->nbytes / each == per_file)
			continue;
		o->reader->leaf.unnoticed =
			"a file may have fewer blocks than its range, and then has the last ones: a cut file cannot be noticed";
		kvt_tell(o->hints, "file.short",
			 "%.200s has %lld of %lld blocks, taken for the last ones of its range",
			 f->name, LL(f->nbytes / each), LL(per_file));
	}
	return KVT_OK;
}

static enum kvt_status add_files(struct kvt_offload *o, int g)
{
	struct kvt_group *group = &o->reader->leaf.snapshot.group[g];
	int number = o->number[g];
	int64_t each = row_bytes(group) * group->shape.n[KVT_AXIS_L], n, block = 0;
	enum kvt_status status;

	if ((status = count_blocks(o, number, each, &n)))
		return status;
	group->shape.n[KVT_AXIS_B] = n;
	if ((status = kvt_store_new_names(group, o->err)))
		return status;
	for (int64_t i = 0; !status && i < o->tree.count; i++)
		if (kvt_offload_group_of(o, i) == number)
			status = add_file(o, g, i, &block);
	return status;
}

const struct kvt_offload_kind kvt_offload_llmd = {
	.checks = "digest of the config, names, lengths",
	.start = set_rank, .fit = fit_group, .ready = same_rows, .add = add_files,
};
