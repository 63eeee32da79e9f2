/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - tensor objects, values of a Mooncake store with a header */
#ifndef KVT_MOONCAKE_TENSOR_H
#define KVT_MOONCAKE_TENSOR_H

#include "formats/format.h"

enum {
	KVT_MOONCAKE_HEADER = 304,
	KVT_MOONCAKE_DIMS = 8,
	KVT_MOONCAKE_AXES = 4,
};

/* One way in which the tensor is a part of a greater one. */
struct kvt_mooncake_axis {
	enum { KVT_MOONCAKE_DP, KVT_MOONCAKE_TP, KVT_MOONCAKE_EP, KVT_MOONCAKE_PP,
	       KVT_MOONCAKE_OTHER } kind;
	int64_t rank, count;
	int dim;			/* that is divided; -1: none */
};

struct kvt_mooncake_tensor {
	const struct kvt_dtype *dtype;
	bool shard;
	int rank;			/* how many extents */
	int64_t whole[KVT_MOONCAKE_DIMS], local[KVT_MOONCAKE_DIMS];
	int naxes;
	struct kvt_mooncake_axis axis[KVT_MOONCAKE_AXES];
	int64_t data;			/* from the start of the object */
	int64_t nbytes;			/* of data; they end the object */
};

/* Does it begin as a tensor object does? */
bool kvt_mooncake_is_tensor(const uint8_t *head, int64_t nhead);

/*
 * The header of an object of 'nbytes' bytes, out of its first 'nhead'.  One that
 * contradicts itself or the object's size is KVT_BAD_INPUT, another version
 * KVT_UNSUPPORTED.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_tensor_parse(struct kvt_mooncake_tensor *out, const uint8_t *head,
			  int64_t nhead, int64_t nbytes, const char *name,
			  struct kvt_error *err);

#endif
