/* SPDX-License-Identifier: Apache-2.0 */
/* text_file.h - small files of text, read and written whole */
#ifndef KVTOOL_TEXT_FILE_H
#define KVTOOL_TEXT_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "lib/kvt/kvt.h"

/* malloc()ed.  More than 'most' bytes are KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
text_file_read(char **out, size_t *nbytes, const char *path, size_t most,
	       struct kvt_error *err);

/* KVT_USAGE if 'path' is one of these files, whatever --force allows. */
KVT_MUST_CHECK enum kvt_status
text_file_refuse(const char *path, char *const *inputs, int n, struct kvt_error *err);

/* A text to be written; owned, NULL until it was made. */
struct text_output {
	const char *path;
	char *text;
	size_t nbytes;
};

/*
 * A stream that makes the text; unlike open_memstream()'s it remembers that memory
 * was short.  False from text_output_close() if that, or anything else, failed.
 */
FILE *text_output_open(struct text_output *out);
bool text_output_close(FILE *stream);

/*
 * Under their names only when all of them are complete, or none; old ones are
 * replaced only with 'force'.  What is no regular file, a pipe say, is written to.
 */
KVT_MUST_CHECK enum kvt_status
text_files_write(const struct text_output *out, int n, bool force, struct kvt_error *err);

/* One of them. */
KVT_MUST_CHECK enum kvt_status
text_file_write(const char *path, const char *text, size_t nbytes, bool force,
		struct kvt_error *err);

#endif
