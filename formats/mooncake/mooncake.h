/* SPDX-License-Identifier: Apache-2.0 */
/* mooncake.h - a Mooncake store while it is opened */
#ifndef KVT_MOONCAKE_H
#define KVT_MOONCAKE_H

#include "formats/file/tree.h"
#include "formats/mooncake/store.h"
#include "formats/mooncake/tensor.h"
#include "formats/store/chunks.h"

struct kvt_mooncake {
	struct kvt_dump *reader;
	const char *path;
	const struct kvt_hints *hints;
	struct kvt_error *err;
	struct kvt_values values;
	struct kvt_mooncake_tensor tensor;	/* the first, if they are tensors */
	struct kvt_chunks chunks;
};

/*
 * File 'index' of the reader, called 'base': a message of its key and value, or the
 * value alone, whose name is then what is left of the key.
 */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_value(struct kvt_mooncake *o, bool *entry, int index, const char *base);

/* Lists the values of all files of a folder. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_collect(struct kvt_mooncake *o, const struct kvt_tree *tree);

/* kv_cache.meta and kv_cache.data, files 'meta' and 'data' of the tree. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_records(struct kvt_mooncake *o, const struct kvt_tree *tree, int64_t meta,
		     int64_t data);

/* The group of the first tensor, and its rank. */
KVT_MUST_CHECK enum kvt_status
kvt_mooncake_group(struct kvt_mooncake *o, struct kvt_group *group, const char *name);
/* Tokens of a tensor, by the layout that the user gave. */
int64_t kvt_mooncake_tokens(const struct kvt_mooncake_tensor *tensor,
			    const struct kvt_group *group);
/* The axis of this kind; NULL if there is none. */
const struct kvt_mooncake_axis *kvt_mooncake_axis(const struct kvt_mooncake_tensor *t,
						  int kind);

#endif
