/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_format.c - tensors that torch.save() wrote, in dicts, lists and tuples
 *
 * A zip archive: data.pkl says what there is, and each storage is a member of
 * its own.  A tensor gets the name of its way through the dicts and lists.
 */
#include "formats/pickle.h"
#include "formats/tensors.h"
#include "formats/zip_file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PICKLE = 16 << 20, MAX_PATH = 4096, MAX_DEPTH = 16, MAX_STEPS = 1 << 20 };

/* What torch wrote before version 1.6: a pickle of this number, and no zip. */
static const uint8_t legacy[] = { 0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20,
				  0x6a, 0xa8, 0x50, 0x19 };

static bool is_legacy(const uint8_t *head, int64_t nhead)
{
	return nhead >= (int64_t)sizeof(legacy) && !memcmp(head, legacy, sizeof(legacy));
}

static bool torch_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	return kvt_zip_probe(head, nhead) || is_legacy(head, nhead);
}

/* ---- from the tree to a list -------------------------------------------- */

struct walk {
	const struct kvt_file *file;
	const struct kvt_zip *zip;
	const char *prefix;		/* of all members */
	int nprefix;
	struct kvt_pickle pickle;
	struct kvt_tensors *out;
	struct kvt_error *err;
	char path[MAX_PATH];
	int steps;
};

static enum kvt_status find_storage(const struct kvt_zip_member **out,
				    const struct walk *w,
				    const struct kvt_pickle_tensor *t)
{
	char name[MAX_PATH];
	const struct kvt_zip_member *m;

	snprintf(name, sizeof(name), "%.*s/data/%.*s", w->nprefix, w->prefix,
		 t->nkey < 64 ? t->nkey : 64, t->key);
	if (!(m = kvt_zip_find(w->zip, name)))
		return kvt_fail(w->err, KVT_BAD_INPUT, "%s: no member %.100s for %.100s",
				w->file->path, name, w->path);
	if (m->nbytes != t->nbytes)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: member %.100s has %lld bytes, but its storage %lld",
				w->file->path, name, (long long)m->nbytes,
				(long long)t->nbytes);
	*out = m;
	return KVT_OK;
}

static enum kvt_status add_tensor(struct walk *w, int32_t node)
{
	struct kvt_tensors *out = w->out;
	const struct kvt_zip_member *m = NULL;
	struct kvt_pickle_tensor t;
	struct kvt_tensor *tensor;
	enum kvt_status status;

	if ((status = kvt_pickle_tensor(&t, &w->pickle, node, w->file->path, w->err)) ||
	    (status = find_storage(&m, w, &t)))
		return status;
	/* full whenever the count is a power of two */
	if (!(out->count & (out->count - 1))) {
		size_t room = out->count ? 2 * (size_t)out->count : 1;

		if (!(tensor = realloc(out->tensor, room * sizeof(*tensor))))
			return kvt_fail(w->err, KVT_SYSTEM, "%s: out of memory",
					w->file->path);
		out->tensor = tensor;
	}
	tensor = &out->tensor[out->count];
	*tensor = (struct kvt_tensor){
		.name = strdup(w->path[0] ? w->path : "tensor"), .dtype = t.dtype,
		.rank = t.rank, .begin = m->data + t.offset,
		.end = m->data + t.offset + t.size, .strided = t.strided };
	memcpy(tensor->shape, t.shape, sizeof(t.shape));
	memcpy(tensor->stride, t.stride, sizeof(t.stride));
	snprintf(tensor->type, sizeof(tensor->type), "%s", t.type);
	if (!tensor->name)
		return kvt_fail(w->err, KVT_SYSTEM, "%s: out of memory", w->file->path);
	out->count++;
	return KVT_OK;
}

/* Adds a name to the path; returns where it ended before, or -1. */
static int descend(struct walk *w, const char *name, int n)
{
	int used = (int)strlen(w->path);

	for (int i = 0; i < n; i++)
		if (!(name[i] & ~0x1f) || name[i] == 0x7f)
			return -1;
	if (used + n + 2 > MAX_PATH)
		return -1;
	snprintf(w->path + used, sizeof(w->path) - (size_t)used, "%s%.*s",
		 used ? "." : "", n, name);
	return used;
}

static int descend_number(struct walk *w, int64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)number);
	return descend(w, text, (int)strlen(text));
}

/* (keys, values) of a layer, as transformers had them in tuples of tuples. */
static bool is_pair(const struct walk *w, const struct kvt_pickle_node *n)
{
	return n->kind == KVT_PICKLE_TUPLE && n->items.count == 2 && w->path[0] &&
	       w->pickle.node[n->items.node[0]].kind == KVT_PICKLE_TENSOR &&
	       w->pickle.node[n->items.node[1]].kind == KVT_PICKLE_TENSOR;
}

static enum kvt_status walk_node(struct walk *w, int32_t node, int depth);

static enum kvt_status walk_items(struct walk *w, const struct kvt_pickle_node *n,
				  int depth)
{
	bool dict = n->kind == KVT_PICKLE_DICT, pair = is_pair(w, n);
	enum kvt_status status = KVT_OK;

	for (int32_t i = 0; !status && i < n->items.count; i += 1 + dict) {
		const struct kvt_pickle_node *key = &w->pickle.node[n->items.node[i]];
		int end = -1;

		if (!dict)
			end = pair ? descend(w, i ? "v" : "k", 1) : descend_number(w, i);
		else if (key->kind == KVT_PICKLE_STRING)
			end = descend(w, key->text, key->ntext);
		else if (key->kind == KVT_PICKLE_INT)
			end = descend_number(w, key->number);
		if (end < 0)
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"%s: a dict has keys that are neither plain strings nor integers",
					w->file->path);
		status = walk_node(w, n->items.node[i + dict], depth + 1);
		w->path[end] = '\0';
	}
	return status;
}

static enum kvt_status walk_node(struct walk *w, int32_t node, int depth)
{
	const struct kvt_pickle_node *n = &w->pickle.node[node];

	/* lists may be in each other, and one in many places */
	if (depth > MAX_DEPTH || ++w->steps > MAX_STEPS)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: dicts and lists are nested too deeply, or too many",
				w->file->path);
	switch (n->kind) {
	case KVT_PICKLE_TENSOR:
		return add_tensor(w, node);
	case KVT_PICKLE_DICT: case KVT_PICKLE_LIST: case KVT_PICKLE_TUPLE:
		return walk_items(w, n, depth);
	case KVT_PICKLE_STORAGE: case KVT_PICKLE_GLOBAL: case KVT_PICKLE_MARK:
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: %.100s is a storage or type, expected tensors",
				w->file->path, w->path);
	default:
		return KVT_OK;	/* a number or a string beside the tensors */
	}
}

/* ---- the archive -------------------------------------------------------- */

static bool ends_with(const char *name, const char *ending)
{
	size_t n = strlen(name), m = strlen(ending);

	return n > m && !strcmp(name + n - m, ending);
}

static enum kvt_status find_pickle(const struct kvt_zip_member **out, struct walk *w)
{
	*out = NULL;
	for (int64_t i = 0; i < w->zip->count; i++) {
		const struct kvt_zip_member *m = &w->zip->member[i];

		if (ends_with(m->name, "/constants.pkl"))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"%s: a program (TorchScript), not tensors",
					w->file->path);
		if (!ends_with(m->name, "/data.pkl"))
			continue;
		if (*out)
			return kvt_fail(w->err, KVT_BAD_INPUT, "%s: has %s and %s",
					w->file->path, (*out)->name, m->name);
		*out = m;
	}
	if (!*out)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: a zip archive of neither numpy.savez() nor torch.save()",
				w->file->path);
	w->prefix = (*out)->name;
	w->nprefix = (int)(strlen((*out)->name) - strlen("/data.pkl"));
	return KVT_OK;
}

static enum kvt_status check_byte_order(const struct walk *w)
{
	const struct kvt_zip_member *m;
	char name[MAX_PATH], order[7];
	enum kvt_status status;

	snprintf(name, sizeof(name), "%.*s/byteorder", w->nprefix, w->prefix);
	if (!(m = kvt_zip_find(w->zip, name)))
		return KVT_OK;	/* before it was written down there was one only */
	if (m->nbytes == 6) {
		if ((status = kvt_file_read(w->file, order, 6, m->data, w->err)))
			return status;
		if (!memcmp(order, "little", 6))
			return KVT_OK;
	}
	return kvt_fail(w->err, KVT_UNSUPPORTED, "%s: elements are not little-endian",
			w->file->path);
}

static enum kvt_status read_pickle(struct walk *w, const struct kvt_zip_member *m)
{
	enum kvt_status status;
	uint8_t *bytes;

	if (m->nbytes > MAX_PICKLE)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: %.100s has %lld bytes, at most %d are supported",
				w->file->path, m->name, (long long)m->nbytes, MAX_PICKLE);
	if (!(bytes = malloc((size_t)m->nbytes + 1)))
		return kvt_fail(w->err, KVT_SYSTEM, "%s: out of memory", w->file->path);
	if (!(status = kvt_file_read(w->file, bytes, m->nbytes, m->data, w->err)) &&
	    !(status = kvt_pickle_read(&w->pickle, bytes, m->nbytes, w->file->path,
				       w->err))) {
		status = walk_node(w, w->pickle.root, 0);
		kvt_pickle_free(&w->pickle);
	}
	free(bytes);
	return status;
}

static enum kvt_status refuse_legacy(const struct kvt_file *file, struct kvt_error *err)
{
	uint8_t head[sizeof(legacy)];
	enum kvt_status status;

	if (file->nbytes < (int64_t)sizeof(head))
		return KVT_OK;
	if ((status = kvt_file_read(file, head, sizeof(head), 0, err)))
		return status;
	if (is_legacy(head, sizeof(head)))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: written in torch's format before 1.6; load and save it again",
				file->path);
	return KVT_OK;
}

enum kvt_status kvt_torch_read(struct kvt_tensors *out, const struct kvt_file *file,
			       struct kvt_error *err)
{
	struct walk w = { .file = file, .out = out, .err = err };
	const struct kvt_zip_member *data;
	enum kvt_status status;
	struct kvt_zip zip;

	*out = (struct kvt_tensors){ 0 };
	if ((status = refuse_legacy(file, err)) ||
	    (status = kvt_zip_read(&zip, file, err)))
		return status;
	w.zip = &zip;
	if (!(status = find_pickle(&data, &w)) && !(status = check_byte_order(&w)) &&
	    !(status = read_pickle(&w, data)))
		status = kvt_tensors_index(out, file->path, err);
	kvt_zip_free(&zip);
	if (status)
		kvt_tensors_free(out);
	return status;
}

static enum kvt_status torch_open(struct kvt_reader *reader, const char *path,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	return kvt_tensors_open(reader, path, hints, kvt_torch_read, err);
}

const struct kvt_format kvt_torch_format = {
	.info = { "torch", "tensors of torch.save(), in dicts, lists and tuples", true,
		  false },
	.facts = kvt_tensors_facts,
	.probe = torch_probe,
	.open = torch_open,
};
