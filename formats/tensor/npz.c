/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npz.c - several numpy arrays in a zip archive, as numpy.savez() writes
 * them
 *
 *	NAME.npy	a member for each array, stored and not packed: the header of a
 *			.npy file (parse/npy_header.c) and its elements
 *
 * Each is a tensor NAME; elements are read where they are in the archive (parse/zip.c).
 */
#include "formats/parse/zip.h"
#include "formats/parse/npy_header.h"
#include "formats/tensor/tensors.h"

#include <stdlib.h>
#include <string.h>

/* torch writes archives too, which begin with no array; keys of ours may have slashes */
static bool npz_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	size_t nname = nhead > 30 ? head[26] + ((size_t)head[27] << 8) : 0;

	(void)path;
	return kvt_zip_probe(head, nhead) && nname > 4 &&
	       nhead >= 30 + (int64_t)nname &&
	       !memcmp(head + 30 + nname - 4, ".npy", 4);
}

static enum kvt_status read_array(struct kvt_tensor *out, const struct kvt_file *file,
				  const struct kvt_zip_member *m, struct kvt_error *err)
{
	int64_t nhead = m->nbytes < KVT_NPY_MAX_HEAD ? m->nbytes : KVT_NPY_MAX_HEAD;
	size_t nname = strlen(m->name);
	uint8_t head[KVT_NPY_MAX_HEAD];
	struct kvt_npy_header header;
	enum kvt_status status;
	struct kvt_error why;

	if (nname < 5 || strcmp(m->name + nname - 4, ".npy"))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: member %.100s is not an array (.npy)",
				file->path, m->name);
	/* without the data: the checksum of both is for when that is read */
	if ((status = kvt_file_pread(file, head, nhead, m->data, err)))
		return status;
	if ((status = kvt_npy_parse(&header, head, nhead, m->name, &why)))
		return kvt_fail(err, status, "%s: %.400s", file->path, why.text);
	if (header.nbytes != m->nbytes - header.data)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %.100s: has %lld bytes after the header, but its shape makes %lld",
				file->path, m->name, LL(m->nbytes - header.data),
				LL(header.nbytes));
	*out = (struct kvt_tensor){
		.dtype = header.dtype, .elem = header.elem, .rank = header.rank,
		.begin = m->data + header.data, .end = m->data + m->nbytes };
	memcpy(out->shape, header.shape, sizeof(out->shape));
	memcpy(out->type, header.descr, sizeof(out->type));
	if (!(out->name = strndup(m->name, nname - 4)))
		return kvt_no_memory(err, file->path);
	return KVT_OK;
}

enum kvt_status kvt_npz_read(struct kvt_tensors *out, const struct kvt_file *file,
			     struct kvt_error *err)
{
	struct kvt_zip zip;
	enum kvt_status status = kvt_zip_read(&zip, file, err);

	*out = (struct kvt_tensors){ 0 };
	if (status)
		return status;
	out->tensor = calloc((size_t)zip.count + 1, sizeof(*out->tensor));
	if (out->tensor)
		status = kvt_tensors_sums(out, &zip, false, err);
	else
		status = kvt_no_memory(err, file->path);
	while (!status && out->count < zip.count) {
		status = read_array(&out->tensor[out->count], file,
				    &zip.member[out->count], err);
		out->count += !status;
	}
	if (!status)
		status = kvt_tensors_index(out, file->path, err);
	kvt_zip_free(&zip);
	if (status)
		kvt_tensors_free(out);
	return status;
}

static enum kvt_status npz_open(struct kvt_reader *reader, const char *path,
				const struct kvt_hints *hints, struct kvt_error *err)
{
	return kvt_tensors_open(reader, path, hints, kvt_npz_read, err);
}

const struct kvt_format kvt_npz_format = {
	.info = { "npz", "numpy arrays in a zip archive, not compressed",
		  .reads = true, .writes = false },
	.in_layout = kvt_tensors_in_layout,
	.facts = kvt_tensors_facts,
	.tell = kvt_tell_padding,
	.checks = "directory, headers, lengths",
	.takes = KVT_TAKES_MANIFEST,
	.probe = npz_probe,
	.open = npz_open,
	.close = kvt_tensors_close,
};
