/* SPDX-License-Identifier: Apache-2.0 */
/* file_hashes.h - the hashes that the files of a tree or store are named by */
#ifndef KVT_FILE_HASHES_H
#define KVT_FILE_HASHES_H

#include "formats/file/tree.h"
#include "lib/transfer/cache_event.h"

struct kvt_file_hash {
	char hash[66];			/* as it stands there, "-" before it, too */
	int group;			/* "_g1" of vLLM's folders; -1: not said */
};

struct kvt_file_hashes {
	int64_t files, count, named;	/* files; hashes, sorted; files that have one */
	struct kvt_file_hash *name;
	struct kvt_file_hash **by_end;	/* those of 8 bytes and more, by their last 8 */
	int64_t nends;
	int64_t nconfigs;		/* files called config.json */
	char *config;			/* the path of the first of them; NULL */
};

/* Walks the folder: see kvt_tree_walk().  Nothing but names is read. */
KVT_MUST_CHECK enum kvt_status
kvt_file_hashes_read(struct kvt_file_hashes *out, const char *path,
		     struct kvt_error *err);
void kvt_file_hashes_free(struct kvt_file_hashes *names);

/* Is a file named so, in that group (-1: in any)?  The first of them; NULL: none. */
const struct kvt_file_hash *
kvt_file_hashes_find(const struct kvt_file_hashes *names, const char *hash, int group);
/* The same by a hash as events have it. */
const struct kvt_file_hash *
kvt_file_hashes_find_id(const struct kvt_file_hashes *names,
			const struct kvt_block_id *id, int group);

#endif
