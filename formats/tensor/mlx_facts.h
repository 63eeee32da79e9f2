/* SPDX-License-Identifier: Apache-2.0 */
/* mlx_facts.h - what files of mlx say of a layer's cache, whoever wrote them */
#ifndef KVT_MLX_FACTS_H
#define KVT_MLX_FACTS_H

#include "formats/tensor/tensors.h"

struct source {
	struct kvt_tensors *tensors;
	const struct kvt_file *file;
	struct kvt_error *err;
};

/* Which cache a tensor is of. */
struct spot {
	int64_t layer, part;		/* of those of a CacheList; 0: it is none */
	const char *rest;		/* of the name, after both: "0", "0.1" */
	bool parts;			/* the layer is a CacheList */
	char class[KVT_HELD_CLASS];	/* "": not said, or no part of a state */
	char arrays[48], numbers[48];	/* what stands before those of the cache */
};

/* What a file says of a cache; -1: it does not. */
struct facts {
	char class[KVT_HELD_CLASS];	/* "": nothing is said */
	bool ring, chunk, batch;
	int64_t offset;			/* tokens it was given */
	int64_t keep, max_size, next;	/* of a ring */
	int64_t start;			/* of a chunk: the token in the first slot */
	int64_t turned;			/* of a batch of rings */
	int64_t group, bits;		/* of codes */
};

/* The metadata BEFORElayerAFTER, or NULL; a whole number in it, True is 1, else -1. */
const char *mlx_note(const struct source *s, const char *before, int64_t layer,
		     const char *after);
int64_t mlx_number(const char *text);
/* An array of one whole number; -1 if it is none, or negative. */
KVT_MUST_CHECK enum kvt_status
mlx_read_number(int64_t *out, const struct source *s, const struct kvt_tensor *t);

/* Is a cache of this class one whose slots can be numbered? */
bool mlx_has_class(const char *name);

/* What a file says of the cache at a spot: mlx-lm to 0.31, mlx-lm, mlx-vlm, oMLX. */
typedef enum kvt_status mlx_read_fn(struct facts *out, const struct source *s,
				    const struct spot *spot);
mlx_read_fn mlx_read_cut, mlx_read_whole, mlx_read_exact, mlx_read_shard, mlx_read_omlx;

/* What is held in 'slots' slots, by what was said. */
void mlx_take_held(struct kvt_held *out, const struct facts *f, int64_t slots);

#endif
