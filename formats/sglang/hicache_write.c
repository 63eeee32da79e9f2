/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hicache_write.c - pages for SGLang's HiCache, in files that it will find
 *
 * Names and bytes are drawn in hicache_name.c and hicache.c.  A file a block, of the
 * length of its page.  It looks a page up by the hash of its tokens, so blocks must have
 * the names that they came with; and each name is read again, and must come back as what
 * it was.
 */
#include "formats/sglang/hicache.h"

#include <stdlib.h>
#include <string.h>

enum { OPEN_FILES = 16, MAX_NAME = 255 };

struct writing {
	struct kvt_writer *writer;
	struct kvt_group *group;
	struct kvt_error *err;
	char model[128], rank[80], pool[40];
};

bool kvt_hicache_layout(const struct kvt_layout *layout)
{
	static const char *const axes[] = {
		"BKLSHD", "BKSLHD", "BKHSLD", "BLSC", "BSLC",
	};
	struct kvt_layout known, first = kvt_layout_blocks_first(layout, false);

	for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++)
		if (!kvt_layout_parse(&known, axes[i], NULL) &&
		    kvt_layout_equal(&known, &first))
			return true;
	return false;
}

/* ---- names -------------------------------------------------------------- */

static enum kvt_status name_model(struct writing *w)
{
	const char *model = w->writer->head.snapshot.model;

	if (!model)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"names of hicache files contain the model, and this dump has no model name");
	if (snprintf(w->model, sizeof(w->model), "%s", model) >= (int)sizeof(w->model))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"the model's name is too long for that of a file");
	for (char *c = w->model; *c; c++)
		if (*c == '/')
			*c = '-';
	return KVT_OK;
}

/*
 * Only MLA is cut by DCP, whose ranks are TP ranks modulo its size; names of MLA
 * that have no such TP size came from prefill context parallelism.
 */
static void name_rank(struct writing *w)
{
	const struct kvt_parallel *p = &w->writer->head.snapshot.parallel;
	bool mla = w->group->kind == KVT_MLA;
	size_t used = 0, room = sizeof(w->rank);

	if (!mla)
		used += (size_t)snprintf(w->rank, room, "_%d_%d", (int)p->tp_rank,
					 (int)p->tp_size);
	if (p->pp_size > 1)
		used += (size_t)snprintf(w->rank + used, room - used, "_%d_%d",
					 (int)p->pp_size, (int)p->pp_rank);
	if (p->dcp_size < 2)
		return;
	if (mla && p->tp_size % p->dcp_size == 0)
		snprintf(w->rank + used, room - used, "_tp%d_dcp%d_%d_page%lld",
			 (int)p->tp_size, (int)p->dcp_rank, (int)p->dcp_size,
			 LL(w->group->shape.n[KVT_AXIS_S] * p->dcp_size));
	else
		snprintf(w->rank + used, room - used, "_cp%d_%d", (int)p->dcp_rank,
			 (int)p->dcp_size);
}

/* It must come back as what it was, or the engine would not find it either. */
static enum kvt_status name_page(char name[MAX_NAME + 1], const struct writing *w,
				 int64_t block)
{
	const char *hash = w->group->block_names[block];
	struct kvt_hicache_name parsed;

	if (!kvt_name_is_safe(hash) ||
	    snprintf(name, MAX_NAME + 1, "%s%s_%s%s.bin", hash, w->pool, w->model,
		     w->rank) > MAX_NAME ||
	    !kvt_hicache_parse(&parsed, name) || !kvt_name_part_equal(&parsed.hash,
								      hash) ||
	    !kvt_name_part_equal(&parsed.model, w->model))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"block %llu has name '%.80s' and model '%.80s', which cannot be used in a hicache file name",
				(unsigned long long)kvt_block_id(w->group, block), hash,
				w->model);
	return KVT_OK;
}

/* ---- what can be written ------------------------------------------------ */

/* Pages say nothing of layers, which are counted from 0 on then. */
static enum kvt_status check_layers(const struct writing *w)
{
	const uint32_t *ids = w->group->layer_ids;

	for (int64_t l = 0; ids && l < w->group->shape.n[KVT_AXIS_L]; l++)
		if (ids[l] != l && w->writer->head.snapshot.parallel.pp_size < 2)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"hicache counts layers from 0, but layer %lld of this dump is layer %u of the model; write another format",
					LL(l), ids[l]);
	return KVT_OK;
}

static enum kvt_status check(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;
	struct kvt_group *group = w->group = &w->writer->head.snapshot.group[0];
	bool mla = group->shape.n[KVT_AXIS_K] == 1;
	enum kvt_status status;

	if (s->ngroups != 1)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"a hicache folder has one pool, this dump has %d groups",
				s->ngroups);
	if (!kvt_hicache_layout(&group->layout))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"hicache has no pages in layout %s; relayout --to one of hicache-layer-first, hicache-page-first, hicache-page-head, mla and BSLC",
				kvt_layout_string(&group->layout).s);
	if (!group->block_names)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"hicache needs names of blocks, and blocks of this dump have none");
	if ((status = kvt_store_check_group(group, &s->parallel, mla, "hicache",
					    w->err)) ||
	    (status = check_layers(w)))
		return status;
	if (strcmp(group->id, "g0"))
		snprintf(w->pool, sizeof(w->pool), ".%s", group->id);
	name_rank(w);
	return name_model(w);
}

static enum kvt_status create_page(struct writing *w, int64_t block)
{
	struct kvt_files *files = &w->writer->files;
	struct kvt_box box = kvt_box_whole(&w->group->shape);
	struct kvt_shape shape;
	char name[MAX_NAME + 1], *path;
	enum kvt_status status;
	int64_t nbytes;
	int file = -1;

	box.begin[KVT_AXIS_B] = block;
	box.end[KVT_AXIS_B] = block + 1;
	shape = kvt_box_shape(&box, w->group->shape.elem);
	if ((status = name_page(name, w, block)) ||
	    (status = kvt_shape_nbytes(&nbytes, &shape, w->err)))
		return status;
	if (!(path = kvt_path_join(w->writer->temporary, name, "")))
		return kvt_no_memory(w->err, NULL);
	if (!(status = kvt_files_create(files, &file, path, nbytes, w->err)))
		status = kvt_pages_add_part(w->writer->flat, w->group, &box, file, 0,
					     w->err);
	if (file >= OPEN_FILES)
		kvt_files_park(files, file);
	free(path);
	return status;
}

enum kvt_status kvt_hicache_create(struct kvt_writer *writer, struct kvt_error *err)
{
	struct writing w = { .writer = writer, .err = err };
	enum kvt_status status;

	if ((status = check(&w)))
		return status;
	w.group->layout = kvt_layout_blocks_first(&w.group->layout, false);
	w.group->page_bytes = w.group->page_offset = 0;
	status = kvt_writer_folder(writer, writer->temporary, err);
	for (int64_t b = 0; !status && b < w.group->shape.n[KVT_AXIS_B]; b++)
		status = create_page(&w, b);
	return status;
}

/* Each file was complete but for its data. */
enum kvt_status kvt_hicache_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	(void)writer;
	(void)err;
	return KVT_OK;
}
