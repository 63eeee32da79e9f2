/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.c - tensors that torch.save() wrote, in dicts, lists and tuples
 *
 *	NAME/data.pkl		what there is, a pickle (parse/pickle.c)
 *	NAME/data/0, 1, ..	the bytes of each storage
 *	NAME/byteorder		"little"; not there in older files
 *	NAME/version, ..	of no matter
 *
 * A zip archive (parse/zip.c).  A tensor is a storage, a place in it, extents and
 * strides, and gets the name of its way through the dicts and lists
 * (formats/tensor/torch_walk.c).  Refused by their first bytes: what torch wrote before
 * 1.6, what pickle.dump() writes, programs (constants.pkl).
 */
#include "formats/tensor/torch_walk.h"

#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"

enum { MAX_PICKLE = 16 << 20 };

/* What torch wrote before version 1.6: a pickle of this number, and no zip. */
static const uint8_t legacy[] = { 0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20,
				  0x6a, 0xa8, 0x50, 0x19 };

static bool is_legacy(const uint8_t *head, int64_t nhead)
{
	return nhead >= (int64_t)sizeof(legacy) && !memcmp(head, legacy, sizeof(legacy));
}

/* What pickle.dump() writes of tensors, in a frame; torch.load() does not read it. */
static bool is_bare(const uint8_t *head, int64_t nhead)
{
	static const char module[] = "torch";

	if (nhead < 11 || head[0] != 0x80 || (head[1] != 4 && head[1] != 5) ||
	    head[2] != 0x95)
		return false;
	for (int64_t i = 3; i + 5 <= nhead; i++)
		if (!memcmp(head + i, module, 5))
			return true;
	return false;
}

static bool torch_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	return kvt_zip_probe(head, nhead) || is_legacy(head, nhead) ||
	       is_bare(head, nhead);
}

/* ---- the archive -------------------------------------------------------- */

static enum kvt_status find_pickle(const struct kvt_zip_member **out,
				   struct torch_walk *w)
{
	*out = NULL;
	for (int64_t i = 0; i < w->zip->count; i++) {
		const struct kvt_zip_member *m = &w->zip->member[i];

		if (kvt_path_ends(m->name, "/constants.pkl"))
			return kvt_fail(w->err, KVT_UNSUPPORTED,
					"%s: a program (TorchScript), not tensors",
					w->file->path);
		if (!kvt_path_ends(m->name, "/data.pkl"))
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

static enum kvt_status check_byte_order(const struct torch_walk *w)
{
	const struct kvt_zip_member *m;
	char name[TORCH_MAX_PATH], order[7];
	enum kvt_status status;

	snprintf(name, sizeof(name), "%.*s/byteorder", w->nprefix, w->prefix);
	if (!(m = kvt_zip_find(w->zip, name)))
		return KVT_OK;	/* before it was written down there was one only */
	if (m->nbytes == 6) {
		if ((status = kvt_torch_take(w, order, 6, m->data)))
			return status;
		if (!memcmp(order, "little", 6))
			return KVT_OK;
	}
	return kvt_fail(w->err, KVT_UNSUPPORTED, "%s: elements are not little-endian",
			w->file->path);
}

static enum kvt_status read_pickle(struct torch_walk *w, const struct kvt_zip_member *m)
{
	enum kvt_status status;
	uint8_t *bytes;

	if (m->nbytes > MAX_PICKLE)
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: %.100s has %lld bytes, at most %d are supported",
				w->file->path, m->name, LL(m->nbytes), MAX_PICKLE);
	if (!(bytes = malloc((size_t)m->nbytes + 1)))
		return kvt_no_memory(w->err, w->file->path);
	if (!(status = kvt_torch_take(w, bytes, m->nbytes, m->data)) &&
	    !(status = kvt_pickle_read(&w->pickle, bytes, m->nbytes, w->file->path,
				       w->err))) {
		status = kvt_torch_walk(w);
		kvt_pickle_free(&w->pickle);
	}
	free(bytes);
	return status;
}

static enum kvt_status refuse_legacy(const struct kvt_file *file, struct kvt_error *err)
{
	uint8_t head[4096];
	const int64_t most = sizeof(head), n = file->nbytes < most ? file->nbytes : most;
	enum kvt_status status;

	if ((status = kvt_file_read(file, head, n, 0, err)))
		return status;
	if (is_bare(head, n))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: tensors that pickle.dump() wrote; load them there and save them with torch.save()",
				file->path);
	if (is_legacy(head, n))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: written in torch's format before 1.6; load and save it again",
				file->path);
	return KVT_OK;
}

enum kvt_status kvt_torch_read(struct kvt_tensors *out, const struct kvt_file *file,
			       struct kvt_error *err)
{
	struct kvt_file proven = *file;
	struct torch_walk w = { .file = &proven, .out = out, .err = err };
	const struct kvt_zip_member *data;
	enum kvt_status status;
	struct kvt_zip zip;

	*out = (struct kvt_tensors){ 0 };
	if ((status = refuse_legacy(file, err)) ||
	    (status = kvt_zip_read(&zip, file, err)))
		return status;
	w.zip = &zip;
	status = kvt_tensors_sums(out, &zip, true, err);
	proven.proof = out->proof;
	if (!status && !(status = find_pickle(&data, &w)) &&
	    !(status = check_byte_order(&w)) &&
	    !(status = read_pickle(&w, data)))
		status = kvt_tensors_index(out, file->path, err);
	kvt_zip_free(&zip);
	if (status)
		kvt_tensors_free(out);
	return status;
}

/* Layers of a cache in a list may hold codes, too. */
static bool has_codes(const struct kvt_tensors *tensors)
{
	for (int64_t i = 0; i < tensors->count; i++)
		if (tensors->tensor[i].coded)
			return true;
	return false;
}

/* For blocks of an engine: what is a cache of another shape says so. */
static enum kvt_status read_blocks(struct kvt_tensors *out, const struct kvt_file *file,
				   struct kvt_error *err)
{
	enum kvt_status status = kvt_torch_read(out, file, err);

	if (status || (!out->ncaches && !has_codes(out)))
		return status;
	kvt_tensors_free(out);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: a cache of transformers as an object; give --from=transformers",
			file->path);
}

static enum kvt_status torch_open(struct kvt_reader *reader, const char *path,
				  const struct kvt_hints *hints, struct kvt_error *err)
{
	return kvt_tensors_open(reader, path, hints, read_blocks, err);
}

const struct kvt_format kvt_torch_format = {
	.info = { "torch", "tensors of torch.save(), in dicts, lists and tuples",
		  .reads = true, .writes = false },
	.in_layout = kvt_tensors_in_layout,
	.facts = kvt_tensors_facts,
	.tell = kvt_tell_padding,
	.checks = "pickle, extents, lengths",
	.takes = KVT_TAKES_MANIFEST,
	.probe = torch_probe,
	.open = torch_open,
	.close = kvt_tensors_close,
};
