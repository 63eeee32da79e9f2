/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - dumps as safetensors
 *
 *	one group	kv_cache, or kv_cache.k and kv_cache.v
 *	several		g0, g1, .. (ids), or g0.k, g0.v, ..
 *	__metadata__	"kvtool": the manifest, as JSON in a text
 *
 * What kvtool writes has a tensor for each group, or two if its keys and values are
 * apart, and the manifest in the header's metadata, so that such a file describes
 * itself.  The widest elements come first, so that all are aligned.  The header's bytes
 * are drawn in safetensors_header.c.
 */
#include "formats/tensor/safetensors_header.h"

/* ---- reading ------------------------------------------------------------- */

static bool safetensors_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	/* a length that no header has is still a damaged header of this kind */
	return nhead >= 10 && head[8] == '{' &&
	       (head[9] == '"' || head[9] == '}' || head[9] == ' ');
}

static enum kvt_status safetensors_open(struct kvt_reader *reader, const char *path,
					const struct kvt_hints *hints,
					struct kvt_error *err)
{
	return kvt_tensors_open(reader, path, hints, kvt_tensors_read, err);
}

/* ---- writing ------------------------------------------------------------- */

/* A tensor to be written, and what goes into it. */
struct part {
	struct kvt_tensor tensor;
	int group;
	int k;				/* -1: keys and values */
};

enum { MAX_PARTS = 2 * KVT_MAX_GROUPS };

static enum kvt_status describe(struct part *out, const struct kvt_snapshot *s, int g,
				int k, struct kvt_error *err)
{
	const struct kvt_group *group = &s->group[g];
	struct kvt_shape shape = group->shape;
	enum kvt_status status;
	char name[40];

	if (!group->dtype->safetensors)
		return kvt_fail(err, KVT_UNSUPPORTED, "safetensors has no type for %s",
				group->dtype->name);
	*out = (struct part){ .group = g, .k = k };
	strcpy(out->tensor.type, group->dtype->safetensors);
	out->tensor.dtype = group->dtype;
	if (k >= 0)
		shape.n[KVT_AXIS_K] = 1;
	if ((status = kvt_group_array_shape(&out->tensor.rank, out->tensor.shape, group,
					    err)) ||
	    (status = kvt_shape_nbytes(&out->tensor.end, &shape, err)))
		return status;
	snprintf(name, sizeof(name), "%s%s", s->ngroups == 1 ? "kv_cache" : group->id,
		 k < 0 ? "" : k ? ".v" : ".k");
	if (!(out->tensor.name = strdup(name)))
		return kvt_no_memory(err, NULL);
	return KVT_OK;
}

/* Widest elements first, so that all are aligned; then by name. */
static int by_width(const void *a, const void *b)
{
	const struct kvt_tensor *s = &((const struct part *)a)->tensor;
	const struct kvt_tensor *t = &((const struct part *)b)->tensor;

	if (s->dtype->elem != t->dtype->elem)
		return s->dtype->elem > t->dtype->elem ? -1 : 1;
	return strcmp(s->name, t->name);
}

static enum kvt_status place(struct part *part, int count, struct kvt_error *err)
{
	int64_t at = 0;

	qsort(part, (size_t)count, sizeof(*part), by_width);
	for (int i = 0; i < count; i++) {
		part[i].tensor.begin = at;
		/* so far 'end' is the size */
		if (__builtin_add_overflow(at, part[i].tensor.end, &at))
			return kvt_fail(err, KVT_UNSUPPORTED, "more than 2^63 bytes");
		part[i].tensor.end = at;
	}
	return KVT_OK;
}

static enum kvt_status add_range(struct kvt_writer *writer, const struct part *part,
				 int file, int64_t data, struct kvt_error *err)
{
	const struct kvt_group *group = &writer->head.snapshot.group[part->group];
	struct kvt_box box = kvt_box_whole(&group->shape);
	int64_t at = data + part->tensor.begin;
	struct kvt_file_part range;
	enum kvt_status status;

	if (part->k >= 0) {
		box.begin[KVT_AXIS_K] = part->k;
		box.end[KVT_AXIS_K] = part->k + 1;
		/* in the whole, values follow the keys */
		at -= part->k * (part->tensor.end - part->tensor.begin);
	}
	if ((status = kvt_file_part_init(&range, group, &box, false, file, at, err)))
		return status;
	return kvt_flat_add(&writer->flat[part->group], &range, err);
}

static enum kvt_status print_header(char **head, int64_t *nhead,
				    const struct part *part, int count,
				    const struct kvt_snapshot *s, struct kvt_error *err)
{
	char *manifest = kvt_manifest_text(s, &(struct kvt_data_file){ .rank = 0 });
	struct kvt_tensor tensor[MAX_PARTS];
	struct kvt_tensors tensors = { .count = count, .tensor = tensor };
	enum kvt_status status;

	if (!manifest)
		return kvt_fail(err, KVT_SYSTEM, "cannot make a manifest");
	for (int i = 0; i < count; i++)
		tensor[i] = part[i].tensor;
	status = kvt_tensors_print(head, nhead, &tensors, manifest, err);
	free(manifest);
	return status;
}

static enum kvt_status write_parts(struct kvt_writer *writer, struct part *part,
				   int count, struct kvt_error *err)
{
	int64_t nhead = 0, ndata;
	enum kvt_status status;
	char *head = NULL;
	int index;

	if ((status = place(part, count, err)) ||
	    (status = print_header(&head, &nhead, part, count, &writer->head.snapshot,
				   err)))
		return status;
	ndata = part[count - 1].tensor.end;
	if (ndata > INT64_MAX - nhead)
		status = kvt_fail(err, KVT_UNSUPPORTED, "%s: more than 2^63 bytes",
				  writer->path);
	else if (!(status = kvt_files_create(&writer->files, &index, writer->temporary,
					     nhead + ndata, err)))
		status = kvt_file_write(&writer->files.file[index], head, nhead, 0, err);
	free(head);
	for (int i = 0; !status && i < count; i++)
		status = add_range(writer, &part[i], index, nhead, err);
	return status;
}

static enum kvt_status safetensors_create(struct kvt_writer *writer,
					  struct kvt_error *err)
{
	const struct kvt_snapshot *s = &writer->head.snapshot;
	struct part part[MAX_PARTS];
	enum kvt_status status = KVT_OK;
	int count = 0;

	for (int g = 0; !status && g < s->ngroups; g++) {
		bool apart = kvt_layout_apart(&s->group[g].layout);

		for (int k = apart ? 0 : -1; !status && k < (apart ? 2 : 0); k++)
			if (!(status = describe(&part[count], s, g, k, err)))
				count++;
	}
	if (!status)
		status = write_parts(writer, part, count, err);
	for (int i = 0; i < count; i++)
		free(part[i].tensor.name);
	return status;
}

/* The header was complete before the data. */
static enum kvt_status safetensors_finish(struct kvt_writer *writer,
					  struct kvt_error *err)
{
	(void)writer;
	(void)err;
	return KVT_OK;
}

/* ---- the format ---------------------------------------------------------- */

static const char *const endings[] = { ".safetensors", NULL };

const struct kvt_format kvt_safetensors_format = {
	.info = { "safetensors", "tensors with a JSON header that describes them",
		  .reads = true, .writes = true, .keeps_scales = true },
	.endings = endings,
	.checks = "header, length",
	.in_layout = kvt_tensors_in_layout,
	.facts = kvt_tensors_facts,
	.tell = kvt_tell_padding,
	.takes = KVT_TAKES_MANIFEST,
	.probe = safetensors_probe,
	.open = safetensors_open,
	.create = safetensors_create,
	.finish = safetensors_finish,
};
