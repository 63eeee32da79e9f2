/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlx.h - the files of the prefix caches of mlx-vlm and oMLX, which hold blocks: what
 * the parts of their reader share
 */
#ifndef KVT_MLX_H
#define KVT_MLX_H

#include "formats/store/store.h"
#include "formats/store/chunks.h"
#include "formats/caches/open.h"

enum kvt_mlx_kind {
	KVT_MLX_SHARD,			/* of mlx-vlm: blocks, one after the other */
	KVT_MLX_EXACT,			/* of mlx-vlm: a whole cache */
	KVT_MLX_BLOCK,			/* of oMLX */
	KVT_MLX_NKINDS,
};

/* A block, or a whole cache, in a file. */
struct kvt_mlx_block {
	char *id, *parent;		/* as in struct kvt_chunk; owned */
	int32_t *ids;			/* owned */
	int64_t slot, tokens;		/* of the file's arrays */
};

struct kvt_mlx_file {
	int file;			/* of the reader */
	enum kvt_mlx_kind kind;
	int64_t count;
	struct kvt_mlx_block *block;	/* owned */
};

struct kvt_mlx {
	struct kvt_reader *reader;
	const char *path;
	const struct kvt_hints *hints;	/* with the size of blocks */
	struct kvt_error *err;
	int64_t count;
	struct kvt_mlx_file *file;	/* owned */
	struct kvt_chunks chunks;
	int64_t shard;			/* tokens of its blocks, the fewest; 0: none */
	int64_t napart;			/* caches that are no plain keys and values */
	const char *apart;		/* path of the first one; borrowed */
	/* the first file of all: others have such layers, and its groups are theirs */
	struct cache_opening first;
	int like;			/* file of the reader; -1: none so far */
};

/* ---- what a file says: blocks.c ------------------------------------------ */

/* By its metadata; KVT_MLX_NKINDS: it is of another program. */
enum kvt_mlx_kind kvt_mlx_kind_of(const struct kvt_tensors *tensors);

/*
 * Its blocks; whatever its metadata leave out or deny is KVT_BAD_INPUT.  A cache that is
 * more than plain keys and values has none.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_blocks(struct kvt_mlx_file *out, const struct kvt_tensors *tensors,
	       const char *path, struct kvt_error *err);
void kvt_mlx_file_free(struct kvt_mlx_file *file);

/* ---- its arrays: arrays.c ------------------------------------------------ */

/* Opens a file as a cache, and reads its header; kvt_mlx_close() releases it. */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_read(struct cache_opening *out, const struct kvt_mlx *o,
	     const struct kvt_mlx_file *file);
void kvt_mlx_close(struct cache_opening *cache);

/*
 * Finds its layers, whose slots are those of its blocks.  KVT_UNSUPPORTED if it holds
 * more than keys and values.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_arrays(struct cache_opening *cache, const struct kvt_mlx *o,
	       const struct kvt_mlx_file *file);

/* The first file makes the groups; layers of the others are as many and alike. */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_join(struct kvt_mlx *o, struct cache_opening *cache);

/* Where the blocks of a file are, once they have numbers. */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_place(struct kvt_mlx *o, const struct kvt_mlx_file *file);

#endif
