/* SPDX-License-Identifier: Apache-2.0 */
/* text_file.h - small files of text, read and written whole */
#ifndef KVTOOL_TEXT_FILE_H
#define KVTOOL_TEXT_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "formats/stage.h"
#include "lib/kvt/kvt.h"

/* What messages call an input: "-" is standard input, for all that read text. */
const char *text_file_name(const char *path);

/* NULL: errno says why.  An input from here on.  Closed with text_file_close(). */
FILE *text_file_open(const char *path);
void text_file_close(FILE *file);

/* malloc()ed.  More than 'most' bytes are KVT_BAD_INPUT. */
KVT_MUST_CHECK enum kvt_status
text_file_read(char **out, size_t *nbytes, const char *path, size_t most,
	       struct kvt_error *err);

/*
 * The same of what the program keeps for itself and may write anew: all else that is
 * read is an input, which no output replaces (formats/file/reads.h).
 */
KVT_MUST_CHECK enum kvt_status
text_file_read_own(char **out, size_t *nbytes, const char *path, size_t most,
		   struct kvt_error *err);

/*
 * May 'path' be written?  Asked before work that would be in vain; it is asked again
 * when it is written.  'inputs' are named, and opened later.  NULL is fine.
 */
KVT_MUST_CHECK enum kvt_status
text_file_check(const char *path, char *const *inputs, int n, bool force,
		struct kvt_error *err);

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
 * replaced only with 'force'.  What is no regular file, a pipe say, is written to;
 * "-" is standard output.
 */
KVT_MUST_CHECK enum kvt_status
text_files_write(const struct text_output *out, int n, bool force, struct kvt_error *err);

/*
 * What a long text is printed to: from here on standard output is that file, which gets
 * its name when the end is reached without an error.  A path of NULL or "-" changes
 * nothing.  After a signal printing fails, so that who prints ends.
 */
struct text_diversion {
	const char *path;
	FILE *stream, *before;		/* NULL: nothing was changed */
	int fd, why;			/* errno of the write that failed */
	struct kvt_stage stage;		/* none of a stream */
	bool staged;
};
KVT_MUST_CHECK enum kvt_status
text_divert(struct text_diversion *out, const char *path, bool force,
	    struct kvt_error *err);
/* 'status' is that of printing, and comes back if it is a failure. */
KVT_MUST_CHECK enum kvt_status
text_divert_end(struct text_diversion *diversion, enum kvt_status status,
		struct kvt_error *err);

/* One of them. */
KVT_MUST_CHECK enum kvt_status
text_file_write(const char *path, const char *text, size_t nbytes, bool force,
		struct kvt_error *err);

#endif
