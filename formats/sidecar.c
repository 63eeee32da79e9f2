/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.c - manifests as files: beside what is written, part of what is read */
#include "formats/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kvt_status kvt_sidecar_write(struct kvt_writer *writer, const char *file_dtype,
				  int rank, const int64_t *file_shape,
				  struct kvt_error *err)
{
	const char *slash = strrchr(writer->path, '/');
	char *text = kvt_manifest_text(&writer->snapshot,
				       slash ? slash + 1 : writer->path, file_dtype,
				       rank, file_shape);
	enum kvt_status status;
	size_t nbytes;
	int index;

	if (!text)
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot make a manifest",
				writer->path);
	nbytes = strlen(text);
	text[nbytes] = '\n';	/* in place of the end, which nobody needs */
	if (!(status = kvt_files_create(&writer->files, &index,
					writer->sidecar_temporary, 0, err)))
		status = kvt_file_write(&writer->files.file[index], text,
					(int64_t)nbytes + 1, 0, err);
	free(text);
	return status;
}

static enum kvt_status write_new(const char *path, const char *text,
				 struct kvt_error *err)
{
	struct kvt_files files = { .count = 0 };
	enum kvt_status status;
	int index;

	if ((status = kvt_files_create(&files, &index, path, 0, err)))
		return status;
	status = kvt_file_write(&files.file[index], text, (int64_t)strlen(text), 0, err);
	if (!status && fsync(files.file[index].fd))
		status = kvt_fail(err, KVT_SYSTEM, "%s: %s", path, strerror(errno));
	kvt_files_close(&files);
	if (status)
		unlink(path);
	return status;
}

enum kvt_status kvt_write_manifest(const struct kvt_reader *reader, const char *path,
				   struct kvt_error *err)
{
	const char *slash = strrchr(reader->path, '/');
	char *text = kvt_manifest_text(&reader->snapshot,
				       slash ? slash + 1 : reader->path, NULL, 0, NULL);
	enum kvt_status status;

	if (!text)
		return kvt_fail(err, KVT_SYSTEM, "%s: cannot make a manifest", path);
	status = write_new(path, text, err);
	free(text);
	return status;
}

enum kvt_status kvt_manifest_adopt(struct kvt_reader *reader,
				   struct kvt_manifest *manifest,
				   struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	int index;

	kvt_snapshot_free(&reader->snapshot);
	reader->snapshot = manifest->snapshot;
	kvt_snapshot_init(&manifest->snapshot);
	if (manifest->path)
		status = kvt_files_open(&reader->files, &index, manifest->path, err);
	kvt_manifest_free(manifest);
	return status;
}
