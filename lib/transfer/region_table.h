/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region_table.h - where an engine has its KV cache, and what a connector made of it
 *
 * A connector turns tensors into rows of blocks: block i of a region is 'len' bytes at
 * base + i * stride.  The engine has such rows, too: the blocks of a layer.  Both stand
 * in one table, so that one can be held against the other.  formats/log reads tables,
 * lib/ops/regions compares; see kvtool-regions(5).
 */
#ifndef KVT_REGION_TABLE_H
#define KVT_REGION_TABLE_H

#include "lib/kvt/kvt.h"

enum kvt_region_part {
	KVT_REGION_KV,			/* keys and values, or what is not split */
	KVT_REGION_K, KVT_REGION_V,
	KVT_REGION_STATE,			/* of a recurrent layer */
	KVT_NREGION_PARTS
};
const char *kvt_region_part_name(enum kvt_region_part part);		/* "kv" */

/* No table has more of anything, and no row ends beyond 2^60. */
enum { KVT_MOST_REGIONS = 4096, KVT_MOST_MEMBERS = 16384 };
static const int64_t KVT_MOST_ADDRESS = INT64_C(1) << 60;

struct kvt_rows {
	int64_t base, stride, blocks, len;	/* all but the base 1 or more */
};

/* One past the last byte. */
int64_t kvt_rows_end(const struct kvt_rows *rows);

/* 'ratio' neighbours become one block. */
struct kvt_rows kvt_rows_joined(const struct kvt_rows *rows, int64_t ratio);

/*
 * Is there a byte that both have?  Then block i of a and block j of b share one, and i
 * is the least such.  The work does not depend on how many blocks there are.
 */
bool kvt_rows_meet(int64_t *i, int64_t *j, const struct kvt_rows *a,
		   const struct kvt_rows *b);

struct kvt_region_group {
	int64_t id;
	int64_t block_size, kernel_size;	/* tokens; 0: not said */
	int64_t blocks;			/* that the manager gives out; 0: not said */
};

/* A tensor of a layer, or what of it lies in rows: the blocks are the kernel's. */
struct kvt_layer_view {
	const char *name;
	int64_t layer, nth;		/* number of the name; of those of one part */
	int64_t group, ratio;		/* kernel blocks in one of the manager's */
	enum kvt_region_part part;
	struct kvt_rows at;		/* len: without padding */
	int64_t padded;			/* len with padding */
	int64_t heads, first_head;	/* 0: not said; of the model */
	bool shares;			/* the bytes are another layer's */
};

struct kvt_registered {
	struct kvt_rows at;
	enum kvt_region_part part;
	int64_t group;			/* -1: not said, or of several */
	bool manager;			/* ids count the manager's blocks */
	int64_t nlayers;
	const int64_t *layer;		/* numbers of names, ascending */
	const char *device;		/* or NULL */
};

/* What the transport was told. */
struct kvt_memory {
	int64_t base, length;
	const char *device;		/* or NULL */
};

/* What is not said is NULL or 0. */
struct kvt_region_table {
	const char *engine, *connector, *role;
	int64_t tp_size, tp_rank;
	bool by_layer;			/* regions pair by name, not by order */
	int64_t ngroups, nmemory, nlayers, nnames, nregions;
	struct kvt_region_group *group;
	struct kvt_memory *memory;
	struct kvt_layer_view *layer;
	const char **name;		/* of layers, by number */
	struct kvt_registered *region;
};

#endif
