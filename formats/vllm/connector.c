/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connector.c - folders that vLLM's disk connectors write
 *
 *	<folder>/<request>/<layer>.safetensors	one tensor, "kv_cache", of one layer:
 *						the tokens of the request in order
 *
 * Which axes it has, and when it had others, is in connector_generation.c.  Tokens become
 * blocks again, numbered from request to request: block b of a request has tokens
 * b * size to (b + 1) * size.
 *
 * Facts: SharedStorageConnector and ExampleConnector of vLLM, from early 2025 to
 * 0.32.0; a folder that 0.32.0 wrote is in testdata/engines.
 */
#include "formats/vllm/connector.h"

#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/parse/layer_names.h"
#include "formats/tensor/safetensors_header.h"

/* ---- files -------------------------------------------------------------- */

static enum kvt_status read_source(struct kvt_connector *o,
				   struct kvt_connector_file *out,
				   const char *folder, const char *layer)
{
	char *path = kvt_path_join(folder, layer, ".safetensors");
	struct kvt_tensors tensors;
	const struct kvt_tensor *t;
	enum kvt_status status;

	if (!path)
		return kvt_no_memory(o->err, folder);
	status = kvt_files_open(&o->reader->files, &out->file, path, o->err);
	if (!status)
		status = kvt_tensors_read(&tensors,
					  &o->reader->files.file[out->file], o->err);
	if (!status) {
		t = kvt_tensors_find(&tensors, "kv_cache");
		if (!t || tensors.count != 1)
			status = kvt_fail(o->err, KVT_BAD_INPUT,
					  "%s: has %lld tensors, expected only kv_cache",
					  path, LL(tensors.count));
		else
			out->tensor = *t;
		out->tensor.name = NULL;
		out->data = tensors.data;
		kvt_tensors_free(&tensors);
		if (out->file >= KVT_CONNECTOR_OPEN_FILES)
			kvt_files_park(&o->reader->files, out->file);
	}
	free(path);
	return status;
}

/* Every request must have the layers of the first one. */
static enum kvt_status same_layers(const struct kvt_connector *o, const char *folder,
				   const struct kvt_connector_names *here)
{
	for (int64_t i = 0; i < o->layers.count || i < here->count; i++) {
		const char *a = i < o->layers.count ? o->layers.name[i] : NULL;
		const char *b = i < here->count ? here->name[i] : NULL;
		int order = !a ? 1 : !b ? -1 : strcmp(a, b);

		if (order)
			return kvt_fail(o->err, KVT_BAD_INPUT,
					"%.200s: %s layer file %.100s.safetensors, unlike %.60s",
					folder, order < 0 ? "lacks" : "has",
					order < 0 ? a : b, o->requests.name[0]);
	}
	return KVT_OK;
}

static enum kvt_status read_request(struct kvt_connector *o, int64_t r,
				    const char *folder)
{
	struct kvt_connector_names layers, folders;
	enum kvt_status status = kvt_connector_scan(&layers, &folders, folder, o->err);

	if (status)
		return status;
	kvt_connector_names_free(&folders);
	status = same_layers(o, folder, &layers);
	kvt_connector_names_free(&layers);
	for (int64_t l = 0; !status && l < o->layers.count; l++)
		status = read_source(o, &o->source[r * o->layers.count + l], folder,
				     o->layer[l].name);
	return status;
}

/* Layers of the first request, in the order of the model. */
static enum kvt_status list_layers(struct kvt_connector *o, const char *folder)
{
	struct kvt_connector_names folders;
	enum kvt_status status = kvt_connector_scan(&o->layers, &folders, folder, o->err);
	int64_t n = o->layers.count, total;

	if (status)
		return status;
	kvt_connector_names_free(&folders);
	if (!n)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has no file of a layer (*.safetensors)", folder);
	if (__builtin_mul_overflow(n, o->requests.count, &total) || total > INT32_MAX)
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: too many files", o->path);
	o->layer = calloc((size_t)n, sizeof(*o->layer));
	if (!o->layer)
		return kvt_no_memory(o->err, o->path);
	for (int64_t i = 0; i < n; i++)
		o->layer[i] = (struct kvt_layer){ o->layers.name[i], -1, i };
	return kvt_layers_sort(o->layer, n, folder, o->err);
}

static enum kvt_status read_requests(struct kvt_connector *o, bool single)
{
	enum kvt_status status = KVT_OK;

	for (int64_t r = 0; !status && r < o->requests.count; r++) {
		char *folder = single ? strdup(o->path) :
			       kvt_path_join(o->path, o->requests.name[r], "");

		if (!folder)
			return kvt_no_memory(o->err, o->path);
		if (r == 0 && !(status = list_layers(o, folder))) {
			o->source = calloc((size_t)(o->requests.count * o->layers.count),
					   sizeof(*o->source));
			if (!o->source)
				status = kvt_no_memory(o->err, o->path);
		}
		if (!status)
			status = read_request(o, r, folder);
		free(folder);
	}
	return status;
}

/* The folder itself, if it holds layers, or all folders in it. */
static enum kvt_status list_requests(struct kvt_connector *o, bool *single)
{
	struct kvt_connector_names tensors;
	enum kvt_status status = kvt_connector_scan(&tensors, &o->requests, o->path,
						    o->err);
	const char *slash = strrchr(o->path, '/');

	if (status)
		return status;
	*single = tensors.count > 0;
	kvt_connector_names_free(&tensors);
	if (*single) {
		kvt_connector_names_free(&o->requests);
		o->requests.name = calloc(1, sizeof(char *));
		if (!o->requests.name ||
		    !(o->requests.name[0] = strdup(slash && slash[1] ? slash + 1 :
								     o->path)))
			return kvt_no_memory(o->err, o->path);
		o->requests.count = 1;
	}
	if (!o->requests.count)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: holds neither layers (*.safetensors) nor requests",
				o->path);
	return KVT_OK;
}

/* ---- the snapshot -------------------------------------------------------- */

static bool alike(const struct kvt_connector *o, int64_t r,
		  const struct kvt_tensor *t, const struct kvt_tensor *first)
{
	bool same = t->rank == first->rank && !strcmp(t->type, first->type);

	for (int i = 0; same && i < t->rank; i++)
		same = t->shape[i] == (i == kvt_connector_token_axis(o) ?
				       kvt_connector_ntokens(o, r) : first->shape[i]);
	return same;
}

/* All tensors have one shape, but for the number of tokens of a request. */
static enum kvt_status check_alike(const struct kvt_connector *o)
{
	const struct kvt_tensor *first = &kvt_connector_file_of(o, 0, 0)->tensor;

	for (int64_t r = 0; r < o->requests.count; r++)
		for (int64_t l = 0; l < o->layers.count; l++) {
			const struct kvt_connector_file *source =
				kvt_connector_file_of(o, r, l);

			if (!alike(o, r, &source->tensor, first))
				return kvt_fail(o->err, KVT_BAD_INPUT,
						"%s: differs in shape or type from the others",
						o->reader->files.file[source->file].path);
		}
	return KVT_OK;
}

static enum kvt_status take_blocks(struct kvt_connector *o, struct kvt_group *group)
{
	int64_t *blocks = &group->shape.n[KVT_AXIS_B];

	*blocks = 0;
	for (int64_t r = 0; r < o->requests.count; r++)
		if (__builtin_add_overflow(*blocks, kvt_connector_nblocks(o, r),
					   blocks) ||
		    *blocks > UINT32_MAX)
			return kvt_fail(o->err, KVT_BAD_INPUT, "%s: too many blocks",
					o->path);
	group->shape.n[KVT_AXIS_L] = o->layers.count;
	group->shape.n[KVT_AXIS_S] = o->block_size;
	group->block_size = o->block_size;
	group->tokens_per_slot = 1;
	return KVT_OK;
}

static enum kvt_status describe(struct kvt_connector *o)
{
	const struct kvt_tensor *t = &kvt_connector_file_of(o, 0, 0)->tensor;
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	struct kvt_group *group;
	enum kvt_status status;

	if ((status = kvt_manifest_add_group(&group, s, "g0", o->path, o->err)) ||
	    (status = kvt_connector_width(o, group)) ||
	    (status = take_blocks(o, group)))
		return status;
	group->layout = o->layout;
	if (!t->dtype)
		return kvt_fail(o->err, KVT_UNSUPPORTED, "%s: elements of %s", o->path,
				t->type);
	group->dtype = kvt_hint_dtype(t->dtype, o->hints, group->id);
	group->shape.elem = group->dtype->elem;
	group->kind = group->shape.n[KVT_AXIS_K] == 1 ? KVT_MLA : KVT_FULL_ATTENTION;
	kvt_snapshot_hint_content(s, o->hints);
	if ((status = kvt_manifest_finish_group(group, &s->parallel, o->path, o->err)))
		return status;
	o->reader->leaf.unlisted = true;
	return kvt_layers_tables(group, o->layer, o->layers.count, o->path, o->err);
}

/* Blocks are numbered from request to request. */
static enum kvt_status add_requests(struct kvt_connector *o)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	uint32_t next = 0;

	s->request = calloc((size_t)o->requests.count, sizeof(*s->request));
	if (!s->request)
		return kvt_no_memory(o->err, o->path);
	for (int64_t r = 0; r < o->requests.count; r++) {
		struct kvt_request *request = &s->request[s->nrequests++];
		int64_t n = kvt_connector_nblocks(o, r);

		request->id = strdup(o->requests.name[r]);
		request->ntokens = kvt_connector_ntokens(o, r);
		request->blocks[0] = calloc(n ? (size_t)n : 1, sizeof(uint32_t));
		if (!request->id || !request->blocks[0])
			return kvt_no_memory(o->err, o->path);
		request->nblocks[0] = n;
		for (int64_t i = 0; i < n; i++)
			request->blocks[0][i] = next++;
	}
	return KVT_OK;
}

/* ---- parts ------------------------------------------------------------- */

/* Tokens of one layer and request that fill 'box', the first at 'token'. */
static enum kvt_status add_part(struct kvt_connector *o,
				 const struct kvt_connector_file *source,
				 const struct kvt_box *box, int64_t token)
{
	const struct kvt_group *group = &o->reader->leaf.snapshot.group[0];
	struct kvt_file_part part = { .file = source ? source->file : -1, .box = *box };
	int64_t width = group->shape.n[KVT_AXIS_H] * group->shape.n[KVT_AXIS_D] *
			group->shape.elem;
	enum kvt_status status;

	if (!source)
		return kvt_flat_add(&o->reader->flat[0], &part, o->err);
	if ((status = kvt_layout_views(&part.views, &group->layout, box,
				       group->shape.elem, o->err)) ||
	    (o->packed && (status = kvt_connector_rows(&part.views, group, o->path,
						       o->err))))
		return status;
	if (kvt_connector_token_axis(o))
		kvt_view_set_stride(&part.views.view[0], KVT_AXIS_K,
				    source->tensor.shape[1] * width);
	else
		width *= group->shape.n[KVT_AXIS_K];
	for (int i = 0; i < part.views.count; i++)
		part.views.view[i].offset += source->data + token * width;
	return kvt_flat_add(&o->reader->flat[0], &part, o->err);
}

/* Whole blocks in one run; of a last block that is not full, the rest is 0. */
static enum kvt_status add_layer(struct kvt_connector *o, int64_t r, int64_t l,
				 int64_t first)
{
	const struct kvt_connector_file *source = kvt_connector_file_of(o, r, l);
	struct kvt_box box = kvt_box_whole(&o->reader->leaf.snapshot.group[0].shape);
	int64_t full = kvt_connector_ntokens(o, r) / o->block_size;
	int64_t rest = kvt_connector_ntokens(o, r) % o->block_size;
	enum kvt_status status = KVT_OK;

	box.begin[KVT_AXIS_L] = l;
	box.end[KVT_AXIS_L] = l + 1;
	box.begin[KVT_AXIS_B] = first;
	box.end[KVT_AXIS_B] = first + full;
	if (full && (status = add_part(o, source, &box, 0)))
		return status;
	if (!rest)
		return KVT_OK;
	box.begin[KVT_AXIS_B] = first + full;
	box.end[KVT_AXIS_B] = first + full + 1;
	box.end[KVT_AXIS_S] = rest;
	if ((status = add_part(o, source, &box, full * o->block_size)))
		return status;
	box.begin[KVT_AXIS_S] = rest;
	box.end[KVT_AXIS_S] = o->block_size;
	return add_part(o, NULL, &box, 0);
}

static enum kvt_status add_parts(struct kvt_connector *o)
{
	enum kvt_status status = KVT_OK;
	int64_t first = 0;

	for (int64_t r = 0; !status && r < o->requests.count; r++) {
		for (int64_t l = 0; !status && l < o->layers.count; l++)
			status = add_layer(o, r, l, first);
		first += kvt_connector_nblocks(o, r);
	}
	return status;
}

/* ---- the format --------------------------------------------------------- */

static bool folder_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)nhead;
	return !head && kvt_is_folder(path);
}

static enum kvt_status open_folder(struct kvt_connector *o)
{
	enum kvt_status status;
	bool single;

	o->block_size = o->hints->block_size > 0 ? o->hints->block_size : 0;
	if ((status = list_requests(o, &single)) ||
	    (status = read_requests(o, single)) ||
	    (status = kvt_connector_choose(o)) ||
	    (status = check_alike(o)) ||
	    (status = describe(o)) ||
	    (status = add_requests(o)))
		return status;
	return add_parts(o);
}

static enum kvt_status folder_open(struct kvt_reader *reader, const char *path,
				   const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_hints told = kvt_hints_of(hints, "g0");
	struct kvt_connector o = { .reader = reader, .path = path, .err = err,
			     .hints = &told };
	enum kvt_status status = kvt_hints_take_spec(&told, NULL, err);

	if (!status)
		status = open_folder(&o);
	kvt_connector_names_free(&o.requests);
	kvt_connector_names_free(&o.layers);
	free(o.layer);
	free(o.source);
	return status;
}

static const char *const presets[] = {
	"vllm-2025", "vllm-2026-05", "vllm-2026-07", "vllm-mla", NULL,
};

const struct kvt_format kvt_folder_format = {
	.info = { "folder", "folders of vLLM's disk connectors",
		  .reads = true, .writes = true },
	.presets = presets,
	.checks = "names, headers, lengths",
	.directory = true,
	.probe = folder_probe,
	.open = folder_open,
	.create = kvt_connector_create,
	.finish = kvt_connector_finish,
};
