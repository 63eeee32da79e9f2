/* SPDX-License-Identifier: Apache-2.0 */
/* held.h - the cache that transformers makes of a model, layer by layer */
#ifndef KVT_MODEL_HELD_H
#define KVT_MODEL_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/kvt/layout.h"

enum { KVT_HELD_TENSORS = 12, KVT_HELD_KINDS = 16, KVT_HELD_LAYERS = 4096 };

struct kvt_held_tensor {
	const char *name;		/* the attribute of the layer's class */
	int index;			/* in a list of tensors; -1: it is none */
	bool wide;			/* float32, whatever the cache's type is */
	int ndims;
	int64_t shape[4];
};

/* What layers of one kind hold. */
struct kvt_held_kind {
	const char *type;		/* the class in transformers */
	int64_t window;			/* tokens; 0: all are kept */
	int ntensors;
	struct kvt_held_tensor tensor[KVT_HELD_TENSORS];
};

struct kvt_held {
	int64_t tokens;			/* that were run: set by who asks */
	const struct kvt_dtype *dtype;	/* of the cache; NULL: the file does not say */
	const char *cache;		/* the class of all of it */
	int64_t layers;
	unsigned char kind[KVT_HELD_LAYERS];	/* of each layer, in of[] */
	struct kvt_held_kind of[KVT_HELD_KINDS];
};

#endif
