/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - which region is there for which tensor of a layer
 *
 * A region serves a view by what it says: the part, or both together, and the group or a
 * list of layers, ascending.  It holds it if the rows of the view are inside the
 * region's bytes, at the region's stride where there are several.
 */
#include "lib/ops/regions/regions.h"

struct kvt_rows kvt_view_rows(const struct kvt_layer_view *v, bool manager)
{
	return manager ? kvt_rows_joined(&v->at, v->ratio) : v->at;
}

bool kvt_registered_names(const struct kvt_registered *region, int64_t layer)
{
	int64_t begin = 0, end = region->nlayers;

	while (begin < end) {
		int64_t middle = begin + (end - begin) / 2;

		if (region->layer[middle] < layer)
			begin = middle + 1;
		else
			end = middle;
	}
	return begin < region->nlayers && region->layer[begin] == layer;
}

bool kvt_registered_serves(const struct kvt_registered *region,
			   const struct kvt_layer_view *v)
{
	if (region->part != KVT_REGION_KV && region->part != v->part)
		return false;
	return region->group < 0 || region->group == v->group ||
	       kvt_registered_names(region, v->layer);
}

bool kvt_registered_holds(const struct kvt_registered *region,
			  const struct kvt_layer_view *v)
{
	struct kvt_rows rows = kvt_view_rows(v, region->manager);
	int64_t offset = rows.base - region->at.base;

	if (offset < 0 || offset > region->at.len - rows.len)
		return false;
	return rows.stride == region->at.stride || rows.blocks == 1;
}

struct kvt_find_at kvt_find_at_view(const struct kvt_layer_view *v)
{
	return kvt_find_at("layer=%.120s,part=%s", v->name,
			   kvt_region_part_name(v->part));
}
