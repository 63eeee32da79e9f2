/* SPDX-License-Identifier: Apache-2.0 */
/* merge.h - the files of all ranks: do they belong together, and as one dump */
#ifndef KVT_MERGE_H
#define KVT_MERGE_H

#include "lib/derived/derive.h"

/* One file of several, for the messages too. */
struct rank_file {
	const char *name;
	struct kvt_dump *reader;	/* borrowed */
};

/*
 * Sorts the files by rank.  Ranks that are missing or there twice, or that say
 * different things about the same model, are KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
rank_files_check(struct rank_file *files, int nfiles, struct kvt_error *err);

/* After that: kvt_dump_merge() without looking again. */
KVT_MUST_CHECK enum kvt_status
rank_files_join(struct kvt_dump **out, const struct rank_file *files, int nfiles,
		struct kvt_error *err);

#endif
