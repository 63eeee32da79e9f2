/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_files.c - a folder with a file for each layer, as a loop over kv_caches saves it
 *
 * Each file has one tensor, or one of keys and one of values; its name says which layer
 * that is, as a tensor's does in one file.  So all of them are one list of tensors, which
 * open.c makes a dump of.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/file/tree.h"
#include "formats/parse/npy_header.h"
#include "formats/tensor/safetensors_header.h"

static enum kvt_status read_npy(struct kvt_tensors *out, const struct kvt_file *file,
				struct kvt_error *err)
{
	struct kvt_npy_header h;
	enum kvt_status status = kvt_npy_read(&h, file, err);

	*out = (struct kvt_tensors){ 0 };
	if (status)
		return status;
	if (h.rank > KVT_TENSOR_MAX_RANK)
		return kvt_fail(err, KVT_UNSUPPORTED, "%s: has %d axes, at most %d",
				file->path, h.rank, KVT_TENSOR_MAX_RANK);
	if (!(out->tensor = calloc(1, sizeof(*out->tensor))) ||
	    !(out->tensor->name = strdup("")))
		return kvt_no_memory(err, file->path);
	out->count = 1;
	out->data = h.data;
	out->tensor->dtype = h.dtype;
	out->tensor->elem = h.elem;
	out->tensor->rank = h.rank;
	out->tensor->end = h.nbytes;
	memcpy(out->tensor->shape, h.shape, (size_t)h.rank * sizeof(*h.shape));
	snprintf(out->tensor->type, sizeof(out->tensor->type), "%s", h.descr);
	return KVT_OK;
}

static const struct {
	const char *ending;
	kvt_tensors_fn *read;
} kinds[] = {
	{ ".npy", read_npy }, { ".npz", kvt_npz_read }, { ".pt", kvt_torch_read },
	{ ".pth", kvt_torch_read }, { ".safetensors", kvt_tensors_read },
};
enum { NKINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* -1: it is none of them. */
static int kind_of(const char *name)
{
	for (int i = 0; i < NKINDS; i++)
		if (kvt_path_ends(name, kinds[i].ending))
			return i;
	return -1;
}

/* ---- is it one? ---------------------------------------------------------- */

/* The connectors of vLLM have a name of their own for the tensor of a layer. */
static bool is_connectors(const struct kvt_tree *tree)
{
	struct kvt_files files = { 0 };
	struct kvt_tensors tensors;
	bool is = false;
	int64_t i = 0;
	int file;

	while (i < tree->count && !kvt_path_ends(tree->file[i].name, ".safetensors"))
		i++;
	if (i == tree->count || kvt_tree_list(&files, &file, tree, i, NULL))
		return false;
	if (!kvt_tensors_read(&tensors, &files.file[file], NULL)) {
		is = tensors.count == 1 && kvt_tensors_find(&tensors, "kv_cache");
		kvt_tensors_free(&tensors);
	}
	kvt_files_close(&files);
	return is;
}

/* Is there a file of a kind, and no folder? */
static bool has_kind(const struct kvt_tree *tree)
{
	bool has = false;

	for (int64_t i = 0; i < tree->count; i++) {
		if (strchr(tree->file[i].name, '/'))
			return false;
		has |= kind_of(tree->file[i].name) >= 0;
	}
	return has;
}

static bool layer_files_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	struct kvt_tree tree;
	bool is;

	(void)nhead;
	if (head || !kvt_is_folder(path) || kvt_tree_walk(&tree, path, NULL))
		return false;
	is = has_kind(&tree) && !is_connectors(&tree);
	kvt_tree_free(&tree);
	return is;
}

/* ---- reading ------------------------------------------------------------- */

/* A number behind one of these is that of no layer. */
static const char *const others[] = {
	"rank", "tp", "pp", "dp", "worker", "shard", "gpu", "device", "req", "request",
	"seq", "step", "block", "chunk", "page", "token", "batch",
};

/* The word before a number of the name that is one of them; NULL: there is none. */
static const char *other_than_layer(const char *name)
{
	static const char digits[] = "0123456789";

	for (const char *end = name; (end = strpbrk(end, digits));
	     end += strspn(end, digits)) {
		const char *last = end;

		while (last > name && strchr("-_. ", last[-1]))
			last--;
		for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
			size_t n = strlen(others[i]);
			const char *word = last - n;

			if (last - name >= (ptrdiff_t)n &&
			    !strncasecmp(word, others[i], n) &&
			    (word == name || strchr("-_. ", word[-1])))
				return others[i];
		}
	}
	return NULL;
}

/* "layer_00" of layer_00.pt; with a name of its own where there are two. */
static char *full_name(const char *leaf, const char *tensor, bool single)
{
	size_t stem = strlen(leaf) - strlen(kinds[kind_of(leaf)].ending);
	size_t n = stem + strlen(tensor) + 2;
	char *out = malloc(n);

	if (out)
		snprintf(out, n, "%.*s%s%s", (int)stem, leaf, single ? "" : ".",
			 single ? "" : tensor);
	return out;
}

/* Its tensors become those of the whole; they are counted from the file's first byte. */
static enum kvt_status take(struct kvt_tensors *all, struct kvt_reader *reader, int file,
			    struct kvt_tensors *from, const char *leaf,
			    struct kvt_error *err)
{
	const char *path = reader->files.file[file].path;

	if (from->ncaches || from->mlx || (from->count && from->tensor->coded))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is a whole cache, not a layer; name the file itself", path);
	if (from->count != 1 && from->count != 2)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld tensors; a file of a layer has one, or keys and values",
				path, LL(from->count));
	for (int64_t i = 0; i < from->count; i++) {
		struct kvt_tensor *t = &all->tensor[all->count];
		char *name = full_name(leaf, from->tensor[i].name, from->count == 1);

		if (!name)
			return kvt_no_memory(err, path);
		*t = from->tensor[i];
		from->tensor[i] = (struct kvt_tensor){ 0 };
		free(t->name);
		t->name = name;
		t->file = file;
		t->begin += from->data;
		t->end += from->data;
		all->count++;
	}
	kvt_tensors_prove(reader, file, from);
	return KVT_OK;
}

static enum kvt_status read_file(struct kvt_tensors *all, struct kvt_reader *reader,
				 const struct kvt_tree *tree, int64_t i,
				 struct kvt_error *err)
{
	const char *leaf = tree->file[i].name, *other = other_than_layer(leaf);
	struct kvt_tensors from = { 0 };
	enum kvt_status status;
	int file;

	if (kvt_path_ends(leaf, ".json"))
		return KVT_OK;
	if (other && !strstr(leaf, "layer"))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s/%s: a number of a %s, not of a layer: files of a folder are its layers; name the file itself",
				tree->path, leaf, other);
	if ((status = kvt_tree_list(&reader->files, &file, tree, i, err)) ||
	    (status = kinds[kind_of(leaf)].read(&from, &reader->files.file[file], err)))
		return status;
	status = take(all, reader, file, &from, leaf, err);
	kvt_tensors_free(&from);
	return status;
}

/* Layers that keep nothing have no file, at equal distances; any other is missing. */
static enum kvt_status check_gaps(const struct kvt_reader *reader, struct kvt_error *err)
{
	const struct kvt_group *g = &reader->leaf.snapshot.group[0];
	uint64_t step = UINT64_MAX;
	int64_t n = g->shape.n[KVT_AXIS_L];

	for (int64_t l = 1; l < n; l++)
		if (kvt_layer_id(g, l) - kvt_layer_id(g, l - 1) < step)
			step = kvt_layer_id(g, l) - kvt_layer_id(g, l - 1);
	for (int64_t l = 1; l < n; l++)
		if (kvt_layer_id(g, l) - kvt_layer_id(g, l - 1) != step)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: has no file of layer %lld, but of those before and after it",
					reader->leaf.path,
					LL(kvt_layer_id(g, l - 1) + step));
	return KVT_OK;
}

/* All are of one kind, but for manifests. */
static enum kvt_status check_kinds(const struct kvt_tree *tree, struct kvt_error *err)
{
	int kind = -1;

	for (int64_t i = 0; kind < 0 && i < tree->count; i++)
		kind = kind_of(tree->file[i].name);
	if (kind < 0 || !has_kind(tree))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has no files of layers, such as layer_0.npy",
				tree->path);
	for (int64_t i = 0; i < tree->count; i++)
		if (!kvt_path_ends(tree->file[i].name, ".json") &&
		    kind_of(tree->file[i].name) != kind)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s/%s: is not a %s file, unlike others of its folder, which would be layers",
					tree->path, tree->file[i].name,
					kinds[kind].ending);
	return KVT_OK;
}

static enum kvt_status layer_files_open(struct kvt_reader *reader, const char *path,
					const struct kvt_hints *hints,
					struct kvt_error *err)
{
	struct kvt_tensors all = { 0 };
	struct kvt_tree tree;
	enum kvt_status status = kvt_tree_walk(&tree, path, err);

	if (status)
		return status;
	if (!(status = check_kinds(&tree, err)) &&
	    !(all.tensor = calloc(2 * (size_t)tree.count + 1, sizeof(*all.tensor))))
		status = kvt_no_memory(err, path);
	for (int64_t i = 0; !status && i < tree.count; i++)
		status = read_file(&all, reader, &tree, i, err);
	kvt_tree_free(&tree);
	reader->leaf.unlisted = true;
	if (!status && !(status = kvt_tensors_index(&all, path, err)) &&
	    !(status = kvt_tensors_make(reader, &all, hints, err)))
		status = check_gaps(reader, err);
	kvt_tensors_free(&all);
	return status;
}

static const char *const facts[] = { "names", NULL };

const struct kvt_format kvt_layer_files_format = {
	.info = { "layers", "a folder of npy, npz, torch or safetensors, a file a layer",
		  .reads = true, .writes = false },
	.in_layout = kvt_tensors_in_layout,
	.facts = facts,
	.checks = "names, headers, lengths",
	.takes = KVT_TAKES_MANIFEST,
	.probe = layer_files_probe,
	.open = layer_files_open,
	.close = kvt_tensors_close,
};
