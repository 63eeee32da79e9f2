/* SPDX-License-Identifier: Apache-2.0 */
/* header.h - what LMCache writes before a chunk, if it writes anything */
#ifndef KVT_LMCACHE_HEADER_H
#define KVT_LMCACHE_HEADER_H

#include "formats/format.h"

/* LMCache's MemoryFormat; the numbers are those of its files. */
enum kvt_lmcache_fmt {
	KVT_LMCACHE_2LTD = 1,		/* [2, L, T, H*D] */
	KVT_LMCACHE_T2D  = 2,		/* [T, 2, H*D], one layer */
	KVT_LMCACHE_2TD  = 3,		/* [2, T, H*D], one layer */
	KVT_LMCACHE_MLA  = 6,		/* [1, L, T, C] */
};

/* The layout that has B S for T; NULL: a number that is no cache, or unknown. */
const char *kvt_lmcache_axes(int64_t fmt);

/* One array of a chunk; arrays follow each other. */
struct kvt_lmcache_array {
	const struct kvt_dtype *dtype;
	int64_t layers, tokens, width;	/* width: H * D, or C */
};

struct kvt_lmcache_header {
	int64_t fmt;
	int narrays;
	struct kvt_lmcache_array array[KVT_MAX_GROUPS];
	int64_t data;			/* bytes before the arrays */
};

enum {
	KVT_LMCACHE_FS_HEADER = 4 * (2 + 5 * KVT_MAX_GROUPS),	/* at most */
	KVT_LMCACHE_GDS_HEADER = 4096,				/* exactly */
};

/*
 * The header of the FS connector, out of the first 'nhead' of 'nbytes' bytes.
 * There is one if the length in it and its own make the size; *found tells.  A
 * header that then contradicts itself is KVT_BAD_INPUT, one of a format or type
 * that is no cache, or unknown, KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_fs_parse(struct kvt_lmcache_header *out, bool *found, const uint8_t *head,
		     int64_t nhead, int64_t nbytes, const char *name,
		     struct kvt_error *err);

/*
 * The header of the GDS and Weka backends.  It looks like that of a safetensors
 * file and breaks its rules; does this one?
 */
bool kvt_lmcache_is_gds(const uint8_t *head, int64_t nhead);
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_gds_parse(struct kvt_lmcache_header *out, const uint8_t *head,
		      int64_t nhead, int64_t nbytes, const char *name,
		      struct kvt_error *err);

#endif
