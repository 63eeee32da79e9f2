/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sidecar.c - manifests as files: beside what is written, part of what is read
 *
 * Written last, when the data is complete, for it holds a checksum of samples: of what
 * is in the file, read back, not of what was meant to be there.  A manifest of another
 * file that has this name already is not replaced.  A dump of many files has no checksum
 * in its manifest: none of them can stand for all.
 */
#include "formats/manifest/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/file/reads.h"
#include "formats/file/tree.h"

/* ---- beside what is written --------------------------------------------- */

enum kvt_status kvt_sidecar_write(struct kvt_writer *writer, const char *npy_dtype,
				  int rank, const int64_t *shape, struct kvt_error *err)
{
	struct kvt_file_sum sum;
	const struct kvt_data_file file = {
		.name = kvt_path_base(writer->path), .sum = &sum, .npy_dtype = npy_dtype,
		.tensor = writer->tensor,
		.rank = rank, .shape = shape,
	};
	enum kvt_status status;
	size_t nbytes;
	char *text;
	int index;

	/* of what is in the file, not of what was meant to be there */
	if ((status = kvt_file_sum(&sum, &writer->files.file[0], err)))
		return status;
	if (!(text = kvt_manifest_text(&writer->head.snapshot, &file)))
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot make a manifest",
				writer->path);
	nbytes = strlen(text);
	text[nbytes] = '\n';	/* in place of the NUL */
	if (!(status = kvt_files_create(&writer->files, &index,
					writer->sidecar_temporary, 0, err)))
		status = kvt_file_write(&writer->files.file[index], text,
					(int64_t)nbytes + 1, 0, err);
	free(text);
	return status;
}

enum kvt_status kvt_sidecar_check(const char *sidecar, const char *path,
				  struct kvt_error *err)
{
	struct kvt_manifest manifest;
	enum kvt_status status;
	char *name;
	bool other, there;

	if ((status = kvt_manifest_there(&there, sidecar, err)) || !there)
		return status;
	if (!(name = strdup(sidecar)))
		return kvt_no_memory(err, path);
	/* what is no manifest belongs to no file */
	if ((status = kvt_manifest_read(&manifest, name, err)))
		return status == KVT_BAD_INPUT ? KVT_OK : status;
	status = kvt_manifest_of_other(&other, &manifest, path, err);
	if (!status && other)
		status = kvt_fail(err, KVT_SYSTEM,
				  "%s: is the manifest of %.200s beside it; give the output another name",
				  sidecar, manifest.file);
	kvt_manifest_free(&manifest);
	return status;
}

/* ---- of what was read --------------------------------------------------- */

static enum kvt_status write_new(const char *path, const char *text,
				 struct kvt_error *err)
{
	struct kvt_files files = { .count = 0 };
	enum kvt_status status = kvt_reads_refuse(path, err);
	int index;

	if (status || (status = kvt_files_create(&files, &index, path, 0, err)))
		return status;
	status = kvt_file_write(&files.file[index], text, (int64_t)strlen(text), 0, err);
	if (!status && fsync(files.file[index].fd))
		status = kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	kvt_files_close(&files);
	if (status)
		unlink(path);
	return status;
}

enum kvt_status kvt_write_manifest(const struct kvt_dump *dump, const char *path,
				   struct kvt_error *err)
{
	const struct kvt_reader *reader = kvt_reader_of(dump);
	struct kvt_data_file file = {
		.name = kvt_path_base(reader->leaf.path), .skip = reader->skip,
	};
	const struct kvt_file *data = reader->files.file;
	struct kvt_file_sum sum;
	enum kvt_status status;
	char *text;

	/* of a dump of many files none can stand for all */
	if (reader->files.count && !strcmp(data->path, reader->leaf.path)) {
		if ((status = kvt_file_sum(&sum, data, err)))
			return status;
		file.sum = &sum;
	}
	if (!(text = kvt_manifest_text(&reader->leaf.snapshot, &file)))
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot make a manifest", path);
	status = write_new(path, text, err);
	free(text);
	return status;
}

enum kvt_status kvt_manifest_adopt(struct kvt_reader *reader,
				   struct kvt_manifest *manifest, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int index;

	kvt_snapshot_free(&reader->leaf.snapshot);
	reader->leaf.snapshot = manifest->snapshot;
	kvt_snapshot_init(&manifest->snapshot);
	reader->leaf.proof = manifest->proof;
	reader->skip = manifest->skip;
	reader->leaf.manifest = manifest->path;
	manifest->path = NULL;
	if (reader->leaf.manifest)
		status = kvt_files_open(&reader->files, &index, reader->leaf.manifest,
					err);
	kvt_manifest_free(manifest);
	return status;
}
