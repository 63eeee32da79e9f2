/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.c - one numpy array, and a manifest that says what it means
 *
 *	X.npy	header (parse/npy_header.c), then the elements up to the end
 *	X.json	the manifest (manifest/write.c)
 *
 * numpy has no bfloat16 or float8 and no names for axes: both come from the
 * manifest or the user.  What has no type there is written as integers of its width.
 */
#include "formats/parse/npy_header.h"

#include <string.h>

static bool npy_probe(const char *path, const uint8_t *head, int64_t nhead)
{
	(void)path;
	return nhead >= 6 && !memcmp(head, "\x93NUMPY", 6);
}

/* ---- reading ------------------------------------------------------------ */

enum kvt_status kvt_npy_read(struct kvt_npy_header *out, const struct kvt_file *file,
			     struct kvt_error *err)
{
	int64_t nhead = file->nbytes;
	uint8_t head[KVT_NPY_MAX_HEAD];
	enum kvt_status status;

	if (nhead > KVT_NPY_MAX_HEAD)
		nhead = KVT_NPY_MAX_HEAD;
	if ((status = kvt_file_read(file, head, nhead, 0, err)) ||
	    (status = kvt_npy_parse(out, head, nhead, file->path, err)))
		return status;
	if (out->nbytes != file->nbytes - out->data)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has %lld bytes after the header, but its shape makes %lld",
				file->path, LL(file->nbytes - out->data),
				LL(out->nbytes));
	return KVT_OK;
}

static enum kvt_status check_manifest(const struct kvt_manifest *manifest,
				      const struct kvt_npy_header *header,
				      const char *path, struct kvt_error *err)
{
	if (manifest->npy_dtype[0] && strcmp(manifest->npy_dtype, header->descr))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: elements are %s, but npy_dtype is %s", path,
				header->descr, manifest->npy_dtype);
	if (manifest->skip && manifest->skip != header->data)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: data begins at byte %lld, not at %lld", path,
				LL(header->data), LL(manifest->skip));
	return KVT_OK;
}

static enum kvt_status fit(struct kvt_reader *reader, struct kvt_manifest *manifest,
			   const struct kvt_npy_header *header, int index,
			   struct kvt_error *err)
{
	struct kvt_array array = {
		.name = reader->leaf.path, .rank = header->rank, .elem = header->elem,
		.dtype = header->dtype, .nbytes = header->nbytes,
	};
	enum kvt_status status;

	memcpy(array.shape, header->shape, sizeof(array.shape));
	if ((status = check_manifest(manifest, header, reader->leaf.path, err)) ||
	    (status = kvt_manifest_fit(manifest, &array, err)) ||
	    (status = kvt_flats_whole(reader->flat, &manifest->snapshot,
				      manifest->pages, index, header->data, err)))
		return status;
	return kvt_manifest_adopt(reader, manifest, err);
}

static enum kvt_status npy_open(struct kvt_reader *reader, const char *path,
				const struct kvt_hints *hints, struct kvt_error *err)
{
	struct kvt_manifest manifest;
	struct kvt_npy_header header;
	enum kvt_status status;
	bool found;
	int index;

	if ((status = kvt_files_open(&reader->files, &index, path, err)) ||
	    (status = kvt_npy_read(&header, &reader->files.file[index], err)) ||
	    (status = kvt_manifest_load(&manifest, &found, &reader->files.file[index],
					hints, err)))
		return status;
	if (hints && hints->skip && hints->skip != header.data)
		status = kvt_hint_denied(err, KVT_BAD_INPUT, path, "skip", hints,
					 "data begins at byte %lld", LL(header.data));
	else
		status = fit(reader, &manifest, &header, index, err);
	kvt_manifest_free(&manifest);
	return status;
}

/* ---- writing ------------------------------------------------------------ */

static enum kvt_status npy_create(struct kvt_writer *writer, struct kvt_error *err)
{
	const struct kvt_snapshot *s = &writer->head.snapshot;
	int64_t shape[8], nbytes, nhead;
	uint8_t head[KVT_NPY_MAX_HEAD];
	const struct kvt_dtype *dtype;
	enum kvt_status status;
	int rank, index;

	if ((status = kvt_snapshot_file_shape(&rank, shape, &dtype, s, "npy", err)) ||
	    (status = kvt_snapshot_file_bytes(&nbytes, s, kvt_snapshot_has_pages(s),
					      err)))
		return status;
	nhead = kvt_npy_print(head, dtype->npy, rank, shape);
	if (nbytes > INT64_MAX - nhead)
		return kvt_fail(err, KVT_UNSUPPORTED, "%s: larger than 2^63 bytes",
				writer->path);
	if ((status = kvt_files_create(&writer->files, &index, writer->temporary,
				       nhead + nbytes, err)) ||
	    (status = kvt_file_write(&writer->files.file[index], head, nhead, 0, err)))
		return status;
	return kvt_flats_whole(writer->flat, s, kvt_snapshot_has_pages(s), index, nhead,
			       err);
}

static enum kvt_status npy_finish(struct kvt_writer *writer, struct kvt_error *err)
{
	const struct kvt_dtype *dtype;
	enum kvt_status status;
	int64_t shape[8];
	int rank;

	if ((status = kvt_snapshot_file_shape(&rank, shape, &dtype,
					      &writer->head.snapshot,
					      "npy", err)))
		return status;
	return kvt_sidecar_write(writer, dtype->npy, rank, shape, err);
}

static const char *const npy_endings[] = { ".npy", NULL };

const struct kvt_format kvt_npy_format = {
	.info = { "npy", "a numpy array, beside a JSON manifest",
		  .reads = true, .writes = true, .keeps_scales = true },
	.endings = npy_endings,
	.checks = "header, length",
	.sidecar = true,
	.takes = KVT_TAKES_MANIFEST | KVT_TAKES_SKIP,
	.probe = npy_probe,
	.open = npy_open,
	.create = npy_create,
	.finish = npy_finish,
};
