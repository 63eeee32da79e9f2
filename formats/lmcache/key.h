/* SPDX-License-Identifier: Apache-2.0 */
/* key.h - what the name of an LMCache chunk says */
#ifndef KVT_LMCACHE_KEY_H
#define KVT_LMCACHE_KEY_H

#include "formats/format.h"

/* Who wrote a file, which is all that its ending says. */
enum kvt_lmcache_backend {
	KVT_LMCACHE_DISK,		/* .pt, no torch file for all that */
	KVT_LMCACHE_FS,			/* .data: FS connector, or L2 adapter */
	KVT_LMCACHE_GDS,		/* .kvcache.safetensors or .weka1 */
	KVT_LMCACHE_TWIN,		/* .metadata: the header of such a file again */
};

/*
 * By the ending of a file's name; *stem is what is left of the name without it.
 * False: no LMCache file.
 */
bool kvt_lmcache_backend(enum kvt_lmcache_backend *out, size_t *stem, const char *name);

/* Strings point into the text that was parsed. */
struct kvt_lmcache_key {
	char *model;
	char *hash;			/* of the chunk and all before it, in hex */
	char *tags;			/* "a%1@b%2", or the salt of an L2 key; "" */
	int64_t world, worker;
	int64_t layer;			/* -1: all of them */
	int64_t group;			/* of an L2 key; -1: none */
	const struct kvt_dtype *dtype;	/* NULL: an L2 key does not say */
};

/*
 * MODEL@WORLD@WORKER@HASH@DTYPE[@LAYER][@TAG%VALUE...], or of the L2 adapters
 * MODEL@0xRANKS@GROUP@HASH[@SALT].  'text' is cut into pieces, and what is
 * percent-encoded there decoded.  Text that is no key is KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_key_parse(struct kvt_lmcache_key *out, char *text, struct kvt_error *err);

#endif
