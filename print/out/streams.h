/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - "-" for a dump: standard input, standard output
 *
 * A dump is read in any order and written in any order, a pipe is not.  What comes from
 * one is kept in a file without a name; what goes to one is written, verified and then
 * copied.
 */
#ifndef KVTOOL_STREAMS_H
#define KVTOOL_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/kvt/kvt.h"

/* What standard input is opened as. */
extern const char stream_in_path[];

bool is_stream(const char *name);
/* The same of an output, which may be called /dev/stdout, too. */
bool is_stream_out(const char *name);

/*
 * Makes each "-" of these operands stream_in_path, which then is a file that can be
 * read in any order.  Two of them are KVT_USAGE, and so is a terminal.  A pipe is kept
 * in the folder that TMPDIR names, or /tmp: KVT_SYSTEM if it has no room.
 */
KVT_MUST_CHECK enum kvt_status stream_in(int n, char **operands, struct kvt_error *err);

/*
 * The path under which a dump for standard output is staged, never to be published.
 * KVT_USAGE if that is a terminal.
 */
KVT_MUST_CHECK enum kvt_status
stream_out_path(char *path, size_t room, struct kvt_error *err);

/* Copies a staged file to standard output; a folder is KVT_USAGE. */
KVT_MUST_CHECK enum kvt_status stream_out(const char *staged, struct kvt_error *err);

#endif
