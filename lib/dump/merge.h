/* SPDX-License-Identifier: Apache-2.0 */
/* merge.h - the files of all ranks as one source */
#ifndef KVTOOL_JOINED_H
#define KVTOOL_JOINED_H

#include "lib/dump/map.h"

/* One file of several, for the messages too. */
struct rank_file {
	const char *name;
	struct kvt_dump *reader;
};

/*
 * Sorts the files by rank.  Ranks that are missing or there twice, or that say
 * different things about the same model, are KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
rank_files_check(struct rank_file *files, int nfiles, struct kvt_error *err);

/*
 * After that: what several ranks hold comes from the first of them.  The source
 * must be freed; 'readers' has room for all files and must outlive it.
 */
KVT_MUST_CHECK enum kvt_status
join_source(struct source *out, struct kvt_dump **readers,
	    const struct rank_file *files, int nfiles, struct kvt_error *err);

/* KVT_MISMATCH names the first element that two ranks hold differently. */
KVT_MUST_CHECK enum kvt_status
replicas_check(const struct rank_file *files, int nfiles,
	       const struct kvt_run *run, struct kvt_error *err);

#endif
