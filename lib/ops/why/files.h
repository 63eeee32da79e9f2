/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - is what events tell to be stored in files there? */
#ifndef KVT_WHY_FILES_H
#define KVT_WHY_FILES_H

#include "lib/ops/events/replay.h"

/* Has a file that hash, of that group (-1: any)? */
typedef bool kvt_why_file_fn(void *context, const struct kvt_block_id *id, int64_t group);

struct kvt_why_files {
	int64_t told, found;		/* blocks that are in such a medium at the end */
};

/*
 * Of the media that are files by their names, or of 'medium' alone.  What no file has is
 * told as KVT_CACHE_NO_FILE; where only a later hash of the same event has one, as
 * KVT_CACHE_NOT_ALONE: an offloaded chunk is found by its last hash.
 */
KVT_MUST_CHECK enum kvt_status
kvt_why_files(struct kvt_why_files *out, struct kvt_cache_replay *replay,
	      const char *medium, kvt_why_file_fn *has, void *context,
	      struct kvt_error *err);

#endif
