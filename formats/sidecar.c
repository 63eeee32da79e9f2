/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.c - manifests as files: beside what is written, part of what is read */
#include "formats/format.h"

#include <stdlib.h>
#include <string.h>

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
