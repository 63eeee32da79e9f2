/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reads.h - what this process reads, which nothing that it writes may replace
 *
 * A file is known by device and inode: by whatever name it was opened, by whatever
 * name it would be replaced.  Readers of dumps are counted while they are open, with
 * the folder that was opened, if it is one; other files are added.  stage.c asks,
 * through which every output goes, before it is written and before it gets its name.
 */
#ifndef KVT_READS_H
#define KVT_READS_H

#include <sys/stat.h>

#include "formats/format.h"

/* From now on, until it is left; its files and folder must be known. */
void kvt_reads_enter(struct kvt_reader *reader);
/* Fine for one that never entered. */
void kvt_reads_leave(struct kvt_reader *reader);

/* For a program that is one run: do readers that were closed count to its end? */
void kvt_reads_keep(bool keeps);
/* A file, or a folder, that is read; for good. */
void kvt_reads_add(const struct stat *st);

/* KVT_USAGE if 'path' is a file that is read, or lies in a folder that is. */
KVT_MUST_CHECK enum kvt_status
kvt_reads_refuse(const char *path, struct kvt_error *err);

#endif
