/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_file.c - the header of a GGUF, read as far as it goes and no further
 *
 * How long a header is stands nowhere: a vocabulary makes it some MiB.  So a first part
 * of the file is read, and a longer one as long as that did not hold all of the keys.
 */
#include "formats/format.h"
#include "formats/model/config.h"
#include "formats/model/gguf.h"
#include "formats/parse/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIRST = 1 << 20, MOST = 64 << 20 };

bool kvt_gguf_is(const char *path)
{
	struct stat st;
	FILE *file = stat(path, &st) || !S_ISREG(st.st_mode) ? NULL : fopen(path, "re");
	char magic[4];
	bool is = file && fread(magic, 1, sizeof(magic), file) == sizeof(magic) &&
		  !memcmp(magic, "GGUF", sizeof(magic));

	if (file)
		fclose(file);
	return is;
}

/* *more as kvt_gguf_parse() has it. */
static enum kvt_status read_part(uint8_t **head, struct kvt_gguf *out, bool *more,
				 int64_t nhead, const struct kvt_file *file,
				 struct kvt_error *err)
{
	enum kvt_status status;

	*more = false;
	if (!(*head = malloc(nhead ? (size_t)nhead : 1)))
		return kvt_no_memory(err, NULL);
	if ((status = kvt_file_pread(file, *head, nhead, 0, err)))
		return status;
	return kvt_gguf_parse(out, more, *head, nhead, file->nbytes, file->path, err);
}

enum kvt_status kvt_gguf_header(uint8_t **head, struct kvt_gguf *out,
				const struct kvt_file *file, struct kvt_error *err)
{
	enum kvt_status status;
	bool more = true;

	*out = (struct kvt_gguf){ .nkeys = 0 };
	for (int64_t n = FIRST; ; n *= 4) {
		status = read_part(head, out, &more, n < file->nbytes ? n : file->nbytes,
				   file, err);
		if (!more || n == MOST)
			break;
		free(*head);
	}
	return more ? kvt_fail(err, KVT_UNSUPPORTED,
			       "%s: its header is longer than 64 MiB, and no more of it is read",
			       file->path) : status;
}

enum kvt_status kvt_gguf_read(struct kvt_model_config *out, const struct kvt_file *file,
			      struct kvt_error *err)
{
	struct kvt_gguf gguf;
	uint8_t *head = NULL;
	enum kvt_status status = kvt_gguf_header(&head, &gguf, file, err);

	if (!status)
		status = kvt_gguf_model(out, &gguf, err);
	kvt_gguf_free(&gguf);
	free(head);
	return status;
}
