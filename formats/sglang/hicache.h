/* SPDX-License-Identifier: Apache-2.0 */
/* hicache.h - names of the files that SGLang's HiCache keeps pages in */
#ifndef KVT_HICACHE_H
#define KVT_HICACHE_H

#include "formats/store/store.h"

/*
 * <hash>[.<pool>]_<model>[_<rank>].bin
 *
 * With decode context parallelism a page of 'page' tokens is dealt out: token t is
 * row t / dcp_size of the file of rank t % dcp_size.  Ranks of it are TP ranks
 * modulo dcp_size; of those that share one the first writes.
 */
struct kvt_hicache_name {
	struct kvt_name_part hash, pool, model, rank;	/* without dots, bars */
	int64_t tp_size, tp_rank, pp_size, pp_rank, cp_size, cp_rank;
	int64_t dcp_size, dcp_rank, page;	/* page: 0 where dcp_size is 1 */
	enum kvt_hicache_store {
		KVT_HICACHE_FILE, KVT_HICACHE_NIXL, KVT_HICACHE_OBJECT,
	} store;
	int half;			/* 0: keys of a page, 1: its values; -1: both */
};

/* False: no such name.  The parts lie in 'name'. */
bool kvt_hicache_parse(struct kvt_hicache_name *out, const char *name);
/*
 * The same, and what two other stores of SGLang call a page, below their folder:
 *
 *	<2 hex>/<hash>_<model>[_<rank>_<size>][_<pool>][_k|_v]		NIXL
 *	<model>[/tp<rank>of<size>][/pp...][/cp...]/<hash>[.<pool>]	SeaweedFS, copied
 *
 * The rank of the second is its folders.
 */
bool kvt_hicache_find(struct kvt_hicache_name *out, const char *name);

/*
 * Tells hints->inspector of pages that are in one pool or rank and not in another, or
 * have another size than the others of theirs (hicache_pools.c).
 */
KVT_MUST_CHECK enum kvt_status
kvt_hicache_check_pools(const struct kvt_tree *tree, const struct kvt_hints *hints,
			struct kvt_error *err);

/* The members create and finish of the format. */
KVT_MUST_CHECK enum kvt_status
kvt_hicache_create(struct kvt_writer *writer, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
kvt_hicache_finish(struct kvt_writer *writer, struct kvt_error *err);

/* Is this how HiCache lays out a page? */
bool kvt_hicache_layout(const struct kvt_layout *layout);

#endif
