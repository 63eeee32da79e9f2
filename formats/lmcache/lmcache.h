/* SPDX-License-Identifier: Apache-2.0 */
/* lmcache.h - chunks of LMCache, wherever they lie */
#ifndef KVT_LMCACHE_H
#define KVT_LMCACHE_H

#include "formats/lmcache/header.h"
#include "formats/lmcache/key.h"
#include "formats/store/chunks.h"

/* A file, or the value of a store. */
struct kvt_lmcache_part {
	char *text;			/* owned; the key points into it */
	struct kvt_lmcache_key key;
	enum kvt_lmcache_backend backend;
	int file;			/* of the reader */
	int64_t offset, nbytes;
};

/* A dump while it is opened. */
struct kvt_lmcache {
	struct kvt_dump *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	int64_t count;
	struct kvt_lmcache_part *part;	/* owned */
	bool headers;			/* parts say what they are */
	struct kvt_lmcache_header header;	/* of the first; else made up */
	struct kvt_chunks chunks;
};

/* The keys of facts for kvt_format.facts. */
extern const char *const kvt_lmcache_facts[];

/* Takes 'text', the key; KVT_BAD_INPUT if it is none. */
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_add(struct kvt_lmcache *o, char *text, const struct kvt_lmcache_part *part);

/* Fills the reader from the parts. */
KVT_MUST_CHECK enum kvt_status kvt_lmcache_open(struct kvt_lmcache *o);
void kvt_lmcache_free(struct kvt_lmcache *o);

/* ---- its steps ----------------------------------------------------------- */

/* Drops what the user did not ask for; the rest must be of one cache and rank. */
KVT_MUST_CHECK enum kvt_status kvt_lmcache_select(struct kvt_lmcache *o);

/* The groups, but for blocks; 'layers' are in parts of their own, or -1. */
KVT_MUST_CHECK enum kvt_status kvt_lmcache_groups(struct kvt_lmcache *o, int64_t layers);

#endif
