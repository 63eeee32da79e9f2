/* SPDX-License-Identifier: Apache-2.0 */
/* mlx_batch.h - rows of their own lengths, and rows of tokens, in caches of mlx-lm */
#ifndef KVT_MLX_BATCH_H
#define KVT_MLX_BATCH_H

#include "formats/tensor/tensors.h"

/* What is said of such a cache beside its arrays; -1: it is not. */
struct mlx_batch {
	const char *class;
	const char *arrays;		/* what their names begin with */
	int64_t rows, slots;		/* of keys and values */
	bool ring;
	int64_t turned;			/* of a ring: it has begun anew; 0 or 1 */
	int64_t next, max_size;
};

/*
 * Fills what is held of keys or values, and how many tokens each row was given, which is
 * the same in all layers of 'tensors'; KVT_BAD_INPUT if it is not.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mlx_batch(struct kvt_held *out, struct kvt_tensors *tensors,
	      const struct kvt_file *file, const struct mlx_batch *batch,
	      struct kvt_error *err);

/*
 * The array of that number of a LayerCache that was given 'offset' tokens; false: its
 * lengths do not fit those of the others.
 */
KVT_MUST_CHECK bool kvt_mlx_rows(struct kvt_held *out, const struct kvt_tensors *tensors,
				 int64_t layer, int which, int64_t offset);

#endif
