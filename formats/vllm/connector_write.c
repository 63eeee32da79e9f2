/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector_write.c - requests as folders for vLLM's disk connectors
 *
 * Only requests can be written, each with its tokens in order; a block that two
 * of them share is written twice.  connector.c draws the folders; they take the ids of
 * requests as names: those of a connector are hashes of token ids, which a dump need not
 * know.
 */
#include "formats/vllm/connector.h"

#include <stdlib.h>
#include <string.h>

#include "formats/store/store.h"
#include "formats/tensor/safetensors_header.h"

struct writing {
	struct kvt_writer *writer;
	const struct kvt_group *group;
	const struct kvt_generation *generation;
	struct kvt_layout layout;	/* of the files */
	bool packed;			/* of whose blocks they have rows */
	struct kvt_error *err;
};

/* ---- what can be written ------------------------------------------------ */

/* Layers are the files of a folder, and the reader misses one between others. */
static enum kvt_status check_layers(const struct writing *w)
{
	const char *format = w->writer->options.format;
	int64_t n = w->group->shape.n[KVT_AXIS_L];
	struct kvt_layer *layer;
	enum kvt_status status = kvt_store_check_layers(w->group, format, w->err);

	if (status)
		return status;
	if (!(layer = calloc((size_t)n + 1, sizeof(*layer))))
		return kvt_no_memory(w->err, NULL);
	for (int64_t l = 0; l < n; l++)
		layer[l] = (struct kvt_layer){ w->group->layer_names[l], -1, l };
	if (kvt_layers_sort(layer, n, format, w->err))
		status = KVT_UNSUPPORTED;
	free(layer);
	return status;
}

static enum kvt_status check_names(const struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;

	for (int64_t r = 0; r < s->nrequests; r++)
		if (!kvt_name_is_safe(s->request[r].id))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"request %lld cannot be the name of a folder",
					LL(r));
	for (int64_t l = 0; l < w->group->shape.n[KVT_AXIS_L]; l++)
		if (!kvt_name_is_safe(w->group->layer_names[l]))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"layer %lld cannot be the name of a file", LL(l));
	return KVT_OK;
}

/* Are all tokens of a request there, and their bytes a number? */
static bool is_whole(const struct writing *w, const struct kvt_request *request)
{
	struct kvt_shape shape = w->group->shape;
	int64_t tokens, nbytes;

	if (__builtin_mul_overflow(request->nblocks[0], w->group->block_size, &tokens))
		return false;
	shape.n[KVT_AXIS_L] = shape.n[KVT_AXIS_S] = 1;
	shape.n[KVT_AXIS_B] = tokens;
	return tokens >= request->ntokens && !kvt_shape_nbytes(&nbytes, &shape, NULL);
}

static enum kvt_status check(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;
	const struct kvt_parallel alone = { .tp_size = 1 };
	const char *format = w->writer->options.format;
	enum kvt_status status;
	bool mla;

	w->generation = format ? kvt_generation_find(format) : NULL;
	if (!w->generation)
		return kvt_fail(w->err, KVT_USAGE,
				"give the folder's generation as format: vllm-2025, vllm-2026-05, vllm-2026-07 or vllm-mla");
	if (s->ngroups != 1 || s->group[0].tokens_per_slot != 1)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s holds one group with a slot for each token", format);
	mla = w->generation->rank == 2;
	if (mla != (s->group[0].shape.n[KVT_AXIS_K] == 1) ||
	    (mla && s->group[0].shape.n[KVT_AXIS_H] != 1))
		return kvt_fail(w->err, KVT_UNSUPPORTED, "%s holds %s", format,
				mla ? "latent content only" : "keys and values only");
	if (!s->group[0].dtype->safetensors)
		return kvt_fail(w->err, KVT_UNSUPPORTED, "safetensors has no type for %s",
				s->group[0].dtype->name);
	if (!s->nrequests)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s holds requests, but this dump has none", format);
	w->group = &s->group[0];
	for (int64_t r = 0; r < s->nrequests; r++)
		if (s->request[r].first_token)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"%s holds requests from their first token, but %s begins with token %lld",
					format, s->request[r].id,
					LL(s->request[r].first_token));
		else if (s->request[r].nholes || !is_whole(w, &s->request[r]))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"request %s: not all of its tokens are in the dump",
					s->request[r].id);
	if ((status = kvt_store_check_group(w->group, &alone, mla, format, w->err)) ||
	    (status = check_names(w)))
		return status;
	return check_layers(w);
}

/* ---- one file ----------------------------------------------------------- */

static void set_shape(struct kvt_tensor *out, const struct writing *w, int64_t tokens)
{
	const int64_t *n = w->group->shape.n;
	int64_t h = n[KVT_AXIS_H], d = n[KVT_AXIS_D];
	const int64_t shapes[][4] = {
		{ 2, tokens, h * d }, { tokens, 2, h, d }, { tokens, h, 2 * d },
		{ tokens, d },
	};

	out->rank = w->generation->rank;
	memcpy(out->shape, shapes[w->generation - kvt_generation_at(0)],
	       sizeof(shapes[0]));
	out->end = tokens * h * n[KVT_AXIS_K] * d * w->group->shape.elem;
	strcpy(out->type, w->group->dtype->safetensors);
}

/* 'count' tokens from 'token' on, which are in 'box' of the group. */
static enum kvt_status add_part(struct writing *w, int file, int64_t data,
				const struct kvt_box *box, int64_t token, int64_t tokens)
{
	struct kvt_file_part part = { .file = file, .box = *box };
	const int64_t *n = w->group->shape.n;
	int64_t width = n[KVT_AXIS_H] * n[KVT_AXIS_D] * w->group->shape.elem;
	enum kvt_status status;

	if ((status = kvt_layout_views(&part.views, &w->layout, box,
				       w->group->shape.elem, w->err)) ||
	    (w->packed && (status = kvt_connector_rows(&part.views, w->group, "output",
						       w->err))))
		return status;
	if (w->generation == kvt_generation_at(0))
		kvt_view_set_stride(&part.views.view[0], KVT_AXIS_K, tokens * width);
	else
		width *= n[KVT_AXIS_K];
	for (int i = 0; i < part.views.count; i++)
		part.views.view[i].offset += data + token * width;
	return kvt_flat_add(&w->writer->flat[0], &part, w->err);
}

/* Blocks that follow each other in the pool make one part. */
static enum kvt_status add_parts(struct writing *w, int64_t l, int file, int64_t data,
				  const struct kvt_request *request)
{
	int64_t size = w->group->block_size, tokens = request->ntokens, n;
	const uint32_t *blocks = request->blocks[0];
	struct kvt_box box = kvt_box_whole(&w->group->shape);
	enum kvt_status status;

	box.begin[KVT_AXIS_L] = l;
	box.end[KVT_AXIS_L] = l + 1;
	for (int64_t i = 0; i * size < tokens; i += n) {
		n = 1;
		while ((i + n + 1) * size <= tokens && blocks[i + n] == blocks[i] + n)
			n++;
		box.begin[KVT_AXIS_B] = blocks[i];
		box.end[KVT_AXIS_B] = blocks[i] + n;
		box.end[KVT_AXIS_S] = (i + 1) * size <= tokens ? size : tokens - i * size;
		if ((status = add_part(w, file, data, &box, i * size, tokens)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status create_file(struct writing *w, int64_t l, const char *folder,
				   const struct kvt_request *request)
{
	char *path = kvt_path_join(folder, w->group->layer_names[l], ".safetensors");
	char name[] = "kv_cache", *head = NULL;
	struct kvt_tensor tensor = { .name = name };
	struct kvt_tensors tensors = { .count = 1, .tensor = &tensor };
	struct kvt_files *files = &w->writer->files;
	enum kvt_status status;
	int64_t nhead = 0;
	int index = -1;

	set_shape(&tensor, w, request->ntokens);
	if (!path)
		return kvt_no_memory(w->err, folder);
	(void)((status = kvt_tensors_print(&head, &nhead, &tensors, NULL, w->err)) ||
	       (status = kvt_files_create(files, &index, path, nhead + tensor.end,
					  w->err)) ||
	       (status = kvt_file_write(&files->file[index], head, nhead, 0, w->err)) ||
	       (status = add_parts(w, l, index, nhead, request)));
	if (index >= KVT_CONNECTOR_OPEN_FILES)
		kvt_files_park(files, index);
	free(head);
	free(path);
	return status;
}

/* ---- all of them -------------------------------------------------------- */

static enum kvt_status create_request(struct writing *w,
				      const struct kvt_request *request)
{
	char *folder = kvt_path_join(w->writer->temporary, request->id, "");
	enum kvt_status status;

	if (!folder)
		return kvt_no_memory(w->err, NULL);
	status = kvt_writer_folder(w->writer, folder, w->err);
	for (int64_t l = 0; !status && l < w->group->shape.n[KVT_AXIS_L]; l++)
		status = create_file(w, l, folder, request);
	free(folder);
	return status;
}

/* The connector of a CPU engine reads and writes rows of whole packed blocks. */
static enum kvt_status choose_layout(struct writing *w)
{
	const struct kvt_snapshot *s = &w->writer->head.snapshot;
	int64_t size = w->group->block_size;

	w->packed = w->generation == kvt_generation_find("vllm-2026-07") &&
		    kvt_connector_packs(&w->group->layout);
	if (!w->packed)
		return kvt_layout_parse(&w->layout, w->generation->layout, w->err);
	w->layout = w->group->layout;
	for (int64_t r = 0; r < s->nrequests; r++)
		if (s->request[r].ntokens % size)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"request %s has %lld tokens, and only whole packed blocks of %lld can be stored; relayout --to=nhd first",
					s->request[r].id, LL(s->request[r].ntokens),
					LL(size));
	return KVT_OK;
}

enum kvt_status kvt_connector_create(struct kvt_writer *writer, struct kvt_error *err)
{
	struct writing w = { .writer = writer, .err = err };
	enum kvt_status status;

	if ((status = check(&w)) || (status = choose_layout(&w)) ||
	    (status = kvt_writer_folder(writer, writer->temporary, err)))
		return status;
	for (int64_t r = 0; !status && r < writer->head.snapshot.nrequests; r++)
		status = create_request(&w, &writer->head.snapshot.request[r]);
	return status;
}

/* Each file was complete but for its data. */
enum kvt_status kvt_connector_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	(void)writer;
	(void)err;
	return KVT_OK;
}
