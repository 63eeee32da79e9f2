/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.h - is what a connector registered what the engine has?
 *
 * Everything here compares addresses: where the engine says that byte x of block b of
 * a layer lies, and where the connector will look for it.  Names only help to say what
 * went wrong.
 */
#ifndef KVT_OPS_REGIONS_H
#define KVT_OPS_REGIONS_H

#include "lib/ops/check/check.h"
#include "lib/transfer/region_table.h"

/* One table by itself: rules region.*; false: out of memory. */
KVT_MUST_CHECK bool kvt_regions_check(struct kvt_findings *r,
				      const struct kvt_region_table *t);

/* Tensors of the receiving side, and those of which every byte arrives. */
struct kvt_regions_arrived {
	int64_t views, whole;
};

/*
 * What arrives where if 'to' reads the blocks of 'from': rules transfer.*.  Tables of
 * which nothing can be said together are KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_regions_transfer(struct kvt_findings *r, struct kvt_regions_arrived *arrived,
		     const struct kvt_region_table *from,
		     const struct kvt_region_table *to, struct kvt_error *err);

/* ---- of both: match.c --------------------------------------------------- */

/* The blocks of a view as the ids of a region count them. */
struct kvt_rows kvt_view_rows(const struct kvt_layer_view *v, bool manager);

bool kvt_registered_names(const struct kvt_registered *region, int64_t layer);

/* May the region be there for this view: its layer or group, and its part? */
bool kvt_registered_serves(const struct kvt_registered *region,
			   const struct kvt_layer_view *v);

/* Is all of block i of the view in block i of the region, for each i? */
bool kvt_registered_holds(const struct kvt_registered *region,
			  const struct kvt_layer_view *v);

/* Where a finding is: "layer=model.layers.0,part=k". */
struct kvt_find_at kvt_find_at_view(const struct kvt_layer_view *v);

#endif
