/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmcache.h - chunks of LMCache, wherever they lie: names, headers, and the dump
 * that they make
 */
#ifndef KVT_LMCACHE_H
#define KVT_LMCACHE_H

#include "formats/format.h"
#include "formats/store/chunks.h"

/* ---- keys: what the name of a chunk says (key.c) ------------------------ */

/* The backend that wrote a file, by its ending. */
enum kvt_lmcache_backend {
	KVT_LMCACHE_DISK,		/* .pt, no torch file for all that */
	KVT_LMCACHE_FS,			/* .data: FS connector, or L2 adapter */
	KVT_LMCACHE_GDS,		/* .kvcache.safetensors or .weka1 */
	KVT_LMCACHE_TWIN,		/* .metadata: the header of such a file again */
	KVT_LMCACHE_OBJECT,		/* no ending: a copy of an object of S3 */
	KVT_LMCACHE_SLOT,		/* of raw_block */
};

/*
 * By the ending of a file's name, or its being a key; *stem is what is left of the name
 * without an ending.  False: no LMCache file.
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
 * MODEL@[0x]RANKS@GROUP@HASH[@SALT].  'text' is cut into parts, and what is
 * percent-encoded there decoded.  Text that is no key is KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_key_parse(struct kvt_lmcache_key *out, char *text, struct kvt_error *err);

/* ---- headers: what stands before a chunk (header.c) --------------------- */

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
 * that is no cache, or unknown, KVT_UNSUPPORTED.  One that is right but for the size
 * is of a file that was cut: KVT_BAD_INPUT.
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
kvt_lmcache_gds_parse(struct kvt_lmcache_header *out, const uint8_t *head, int64_t nhead,
		      int64_t nbytes, const char *name, struct kvt_error *err);

/* A file, or the value of a store. */
struct kvt_lmcache_part {
	char *text;			/* owned; the key points into it */
	struct kvt_lmcache_key key;
	enum kvt_lmcache_backend backend;
	int file;			/* of the reader */
	int64_t offset, nbytes;
	int64_t fmt;			/* that an index says; 0: none does */
	struct kvt_lmcache_array said;	/* then */
};

/*
 * What an index says of a part: fmt and said, where said.dtype is set and the shape of
 * MemoryFormat 'name' makes part->nbytes; else false.
 */
bool kvt_lmcache_shape(struct kvt_lmcache_part *part, const char *name,
		       const int64_t *shape, int rank);

/* ---- serdes: what was made of a chunk before it was stored (serde.c) ------ */

enum kvt_lmcache_serde {
	KVT_LMCACHE_PLAIN,		/* nothing, or nothing is known of it */
	KVT_LMCACHE_FP8, KVT_LMCACHE_CHECKSUM, KVT_LMCACHE_AESGCM,
	KVT_LMCACHE_TURBOQUANT, KVT_LMCACHE_ASYM, KVT_LMCACHE_CACHEGEN,
};

/* ---- a dump while it is opened ------------------------------------------ */

/* A dump while it is opened. */
struct kvt_lmcache {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	int64_t count;
	struct kvt_lmcache_part *part;	/* owned */
	const struct kvt_lmcache_part *first;	/* of them that has a byte */
	bool headers;			/* parts say what they are */
	bool recorded;			/* a store says how long they are */
	enum kvt_lmcache_serde serde;
	struct kvt_lmcache_header header;	/* of the first; else made up */
	struct kvt_chunks chunks;
};

/* The keys of facts for kvt_format.facts. */
extern const char *const kvt_lmcache_facts[];

/* Takes 'text', the key; KVT_BAD_INPUT if it is none. */
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_add(struct kvt_lmcache *o, char *text, const struct kvt_lmcache_part *part);

/* Is this the beginning of a raw_block store?  And the chunks of a file that is. */
bool kvt_lmcache_is_raw_block(const uint8_t *head, int64_t nhead);
KVT_MUST_CHECK enum kvt_status kvt_lmcache_raw_block(struct kvt_lmcache *o, int file);

/* Fills the reader from the parts. */
KVT_MUST_CHECK enum kvt_status kvt_lmcache_open(struct kvt_lmcache *o);
void kvt_lmcache_free(struct kvt_lmcache *o);

/* ---- its steps ----------------------------------------------------------- */

/* Tells hints->inspector of chunks that some of the workers in one store lack. */
KVT_MUST_CHECK enum kvt_status kvt_lmcache_check_workers(const struct kvt_lmcache *o);

/* What the user says of the serde; KVT_UNSUPPORTED for one that cannot be read. */
KVT_MUST_CHECK enum kvt_status kvt_lmcache_take_serde(struct kvt_lmcache *o);
/* The type of elements without a header, coded as they are; NULL: not known. */
const struct kvt_dtype *kvt_lmcache_dtype(const struct kvt_lmcache *o, const char *group);
/*
 * Where the chunk itself is in a part without a header.  What its bytes prove to be
 * coded otherwise than the user says is refused.
 */
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_decode(struct kvt_lmcache *o, struct kvt_chunk *chunk,
		   const struct kvt_lmcache_part *part);
/* KVT_UNSUPPORTED for chunks whose length gives encryption away; 'token': its bytes. */
KVT_MUST_CHECK enum kvt_status
kvt_lmcache_check_sealed(const struct kvt_lmcache *o, int64_t token);
/* For leaf.unnoticed. */
const char *kvt_lmcache_unnoticed(const struct kvt_lmcache *o);

/* The groups, but for blocks; 'layers' are in parts of their own, or -1. */
KVT_MUST_CHECK enum kvt_status kvt_lmcache_groups(struct kvt_lmcache *o, int64_t layers);

#endif
