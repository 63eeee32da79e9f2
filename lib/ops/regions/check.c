/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - a table of regions by itself
 *
 * A tensor of a layer must lie in one region, block by block.  Where it lies in none,
 * the region that was meant for it is found by name, and the first difference between
 * the two that has a name of its own is told.
 */
#include "lib/ops/regions/regions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Findings go to 'r'; 'held' says of each region how many tensors are in it. */
struct look {
	struct kvt_findings *r;
	const struct kvt_region_table *t;
	int64_t *held;
};

/* ---- regions and memory ------------------------------------------------- */

static bool same_device(const char *a, const char *b)
{
	return !a || !b || !strcmp(a, b);
}

/* How many blocks from 'first' on lie each in one range of memory. */
static int64_t blocks_within(const struct kvt_region_table *t,
			     const struct kvt_registered *region, int64_t first)
{
	const struct kvt_rows *at = &region->at;
	int64_t begin = at->base + first * at->stride, most = 0;

	for (int64_t i = 0; i < t->nmemory; i++) {
		const struct kvt_memory *m = &t->memory[i];
		int64_t left = m->base + m->length - begin;

		if (!same_device(m->device, region->device) || m->base > begin ||
		    left < at->len)
			continue;
		left = (left - at->len) / at->stride + 1;
		if (left > most)
			most = left;
	}
	return most;
}

static void check_registered(const struct look *c, int64_t i)
{
	const struct kvt_region_table *t = c->t;
	const struct kvt_registered *region = &t->region[i];
	const struct kvt_rows *at = &region->at;
	int64_t done = 0, more;

	if (!t->nmemory)
		return;
	while (done < at->blocks && (more = blocks_within(t, region, done)))
		done += more;
	if (done < at->blocks)
		kvt_find(c->r, "region.unregistered", kvt_find_at("region=%lld", LL(i)),
			 "block %lld of %lld begins at 0x%llx and is not whole in registered memory%s",
			 LL(done), LL(at->blocks), LL(at->base + done * at->stride),
			 done && at->stride > at->len ?
			 ": were bytes counted without the padding of blocks?" : "");
}

static void check_memory(const struct look *c)
{
	const struct kvt_region_table *t = c->t;

	for (int64_t i = 0; i < t->nmemory; i++)
		for (int64_t k = 0; k < i; k++) {
			const struct kvt_memory *a = &t->memory[k], *b = &t->memory[i];

			if (same_device(a->device, b->device) &&
			    a->base < b->base + b->length &&
			    b->base < a->base + a->length)
				kvt_find(c->r, "region.memory",
					 kvt_find_at("memory=%lld", LL(i)),
					 "shares bytes with memory %lld", LL(k));
		}
}

/* ---- a tensor that no region holds --------------------------------------- */

/* A finding about view v and the region meant for it. */
static void tell(const struct look *c, const char *rule, const struct kvt_layer_view *v,
		 const struct kvt_registered *region, const char *text)
{
	kvt_find(c->r, rule, kvt_find_at("region=%lld,layer=%.100s,part=%s",
					 LL(region - c->t->region), v->name,
					 kvt_region_part_name(v->part)), "%s", text);
}

/* Another tensor of one of the region's layers, which the region does hold. */
static const struct kvt_layer_view *other_held(const struct kvt_region_table *t,
					       const struct kvt_registered *region,
					       const struct kvt_layer_view *v,
					       bool sibling)
{
	for (int64_t i = 0; i < t->nlayers; i++) {
		const struct kvt_layer_view *u = &t->layer[i];

		if (u != v && (u->layer == v->layer) == sibling &&
		    kvt_registered_holds(region, u) &&
		    (sibling || kvt_registered_names(region, u->layer)))
			return u;
	}
	return NULL;
}

static bool has_part(const struct kvt_region_table *t, int64_t layer,
		     enum kvt_region_part part)
{
	for (int64_t i = 0; i < t->nlayers; i++)
		if (t->layer[i].layer == layer && t->layer[i].part == part)
			return true;
	return false;
}

static bool explain_kv(const struct look *c, const struct kvt_layer_view *v,
		       const struct kvt_registered *region)
{
	const struct kvt_region_table *t = c->t;
	const struct kvt_layer_view *u = other_held(t, region, v, true);
	char text[400];

	if (u && region->part == v->part && u->part != v->part &&
	    v->part != KVT_REGION_KV) {
		snprintf(text, sizeof(text),
			 "the region of '%s' lies where '%s' does: the two are swapped",
			 kvt_region_part_name(v->part), kvt_region_part_name(u->part));
	} else if (region->part == KVT_REGION_KV &&
		   ((v->part == KVT_REGION_K && has_part(t, v->layer, KVT_REGION_V)) ||
		    (v->part == KVT_REGION_V && has_part(t, v->layer, KVT_REGION_K)))) {
		snprintf(text, sizeof(text),
			 "the engine keeps keys and values apart, the region takes them for packed in blocks of %lld bytes",
			 LL(region->at.len));
	} else if (v->part == KVT_REGION_KV && region->part != v->part) {
		snprintf(text, sizeof(text),
			 "the engine packs keys and values in blocks of %lld bytes, the region is of '%s' alone",
			 LL(v->at.len), kvt_region_part_name(region->part));
	} else {
		return false;
	}
	tell(c, "region.kv", v, region, text);
	return true;
}

/* What is the kernel's block with the manager's ids, or the reverse. */
static bool explain_unit(const struct look *c, const struct kvt_layer_view *v,
			 const struct kvt_registered *region)
{
	struct kvt_rows right = kvt_view_rows(v, region->manager);
	struct kvt_rows wrong = kvt_view_rows(v, !region->manager);
	const struct kvt_rows *at = &region->at;
	char text[400];

	if (v->ratio == 1 || (at->stride != wrong.stride && at->len != wrong.len))
		return false;
	snprintf(text, sizeof(text),
		 "ids are the %s's, %lld bytes apart, but %s is %lld, which is that of the %s's blocks (%lld of these are one of the manager's)",
		 region->manager ? "manager" : "kernel", LL(right.stride),
		 at->stride == wrong.stride ? "stride" : "block_len",
		 LL(at->stride == wrong.stride ? at->stride : at->len),
		 region->manager ? "kernel" : "manager", LL(v->ratio));
	tell(c, "region.block-unit", v, region, text);
	return true;
}

static bool explain_merged(const struct look *c, const struct kvt_layer_view *v,
			   const struct kvt_registered *region)
{
	const struct kvt_layer_view *u = other_held(c->t, region, v, false);
	struct kvt_rows rows = kvt_view_rows(v, region->manager);
	char text[400];

	if (!u || rows.base != region->at.base || u->at.base != rows.base ||
	    kvt_registered_holds(region, v))
		return false;
	snprintf(text, sizeof(text),
		 "merged with %.80s, which begins at the same address: blocks of %lld bytes every %lld instead of %lld every %lld",
		 u->name, LL(region->at.len), LL(region->at.stride), LL(rows.len),
		 LL(rows.stride));
	tell(c, "region.merged", v, region, text);
	return true;
}

static void explain_rows(const struct look *c, const struct kvt_layer_view *v,
			 const struct kvt_registered *region)
{
	struct kvt_rows rows = kvt_view_rows(v, region->manager);
	const struct kvt_rows *at = &region->at;
	int64_t offset = rows.base - at->base;
	char text[400];

	if (rows.blocks > 1 && rows.stride > rows.len && at->stride == rows.len) {
		snprintf(text, sizeof(text),
			 "stride is %lld, which leaves out the %lld bytes of padding in each page of the layer: from block 1 on other bytes are moved",
			 LL(at->stride), LL(rows.stride - rows.len));
		tell(c, "region.padding", v, region, text);
	} else if (rows.stride != at->stride && rows.blocks > 1) {
		snprintf(text, sizeof(text),
			 "stride is %lld, but the blocks of the layer are %lld bytes apart: from block 1 on other bytes are moved",
			 LL(at->stride), LL(rows.stride));
		tell(c, "region.stride", v, region, text);
	} else if (offset < 0 || offset >= at->stride || (offset && at->len >= rows.len &&
							  at->len < at->stride)) {
		snprintf(text, sizeof(text),
			 "block 0 is at 0x%llx, that of the layer at 0x%llx",
			 LL(at->base), LL(rows.base));
		tell(c, "region.base", v, region, text);
	} else {
		snprintf(text, sizeof(text),
			 "block_len is %lld, expected at least %lld: bytes %lld..%lld of each block are not moved",
			 LL(at->len), LL(offset + rows.len),
			 LL(at->len > offset ? at->len - offset : 0), LL(rows.len) - 1);
		tell(c, "region.block-len", v, region, text);
	}
}

/* The region that was meant for a view: named for it, and if possible free for it. */
static const struct kvt_registered *meant_for(const struct look *c,
					      const struct kvt_layer_view *v)
{
	const struct kvt_region_table *t = c->t;
	const struct kvt_registered *best = NULL;
	int64_t least = 0;

	for (int64_t i = 0; i < t->nregions; i++) {
		const struct kvt_registered *region = &t->region[i];
		int64_t score = region->at.base == v->at.base ? 0 : 1;

		/* keys' region is not there for values; for both it may be meant */
		if (v->part != KVT_REGION_KV && region->part != KVT_REGION_KV &&
		    region->part != v->part)
			continue;
		if (region->nlayers ? !kvt_registered_names(region, v->layer) :
		    score || !kvt_registered_serves(region, v))
			continue;
		score += region->part == v->part ? 0 : 4;
		score += c->held[i] ? 2 : 0;
		if (!best || score < least) {
			best = region;
			least = score;
		}
	}
	return best;
}

/* A connector that merges by address may name the first of the layers alone. */
static bool explain_unnamed(const struct look *c, const struct kvt_layer_view *v)
{
	const struct kvt_region_table *t = c->t;

	for (int64_t i = 0; i < t->nregions; i++)
		if (t->region[i].at.base == v->at.base &&
		    explain_merged(c, v, &t->region[i]))
			return true;
	return false;
}

static void explain(const struct look *c, const struct kvt_layer_view *v)
{
	const struct kvt_registered *region = meant_for(c, v);

	if (!region && explain_unnamed(c, v))
		return;
	if (!region)
		kvt_find(c->r, "region.layer-missing", kvt_find_at_view(v),
			 "its blocks at 0x%llx are in no region", LL(v->at.base));
	else if (!explain_kv(c, v, region) && !explain_merged(c, v, region) &&
		 !explain_unit(c, v, region))
		explain_rows(c, v, region);
}

/* ---- tensors ------------------------------------------------------------ */

/* Blocks that a region must have for a view, in its own count. */
static int64_t blocks_needed(const struct kvt_region_table *t,
			     const struct kvt_registered *region,
			     const struct kvt_layer_view *v)
{
	for (int64_t i = 0; i < t->ngroups; i++)
		if (t->group[i].id == v->group && t->group[i].blocks &&
		    t->group[i].blocks < v->at.blocks / v->ratio)
			return t->group[i].blocks * (region->manager ? 1 : v->ratio);
	return kvt_view_rows(v, region->manager).blocks;
}

static void check_blocks(const struct look *c, const struct kvt_registered *region,
			 const struct kvt_layer_view *v)
{
	const struct kvt_region_table *t = c->t;
	int64_t need = blocks_needed(t, region, v);
	int64_t most = kvt_view_rows(v, region->manager).blocks;
	char text[200];

	if (region->at.blocks >= need && region->at.blocks <= most)
		return;
	snprintf(text, sizeof(text), "has %lld blocks, expected the %lld of the layer",
		 LL(region->at.blocks), LL(need));
	/* a count of the other kind of block, with everything else right */
	tell(c, v->ratio > 1 && region->at.blocks ==
	     kvt_view_rows(v, !region->manager).blocks ? "region.block-unit" :
	     "region.blocks", v, region, text);
}

static void check_view(const struct look *c, const struct kvt_layer_view *v)
{
	const struct kvt_region_table *t = c->t;
	const struct kvt_registered *holder = NULL;

	if (v->shares)
		return;
	for (int64_t i = 0; i < t->nregions; i++) {
		const struct kvt_registered *region = &t->region[i];

		if (!kvt_registered_serves(region, v) || !kvt_registered_holds(region, v))
			continue;
		if (holder) {
			kvt_find(c->r, "region.layer-twice", kvt_find_at_view(v),
				 "its blocks are in region %lld and again in region %lld",
				 LL(holder - t->region), LL(i));
			return;
		}
		holder = region;
	}
	if (holder)
		check_blocks(c, holder, v);
	else
		explain(c, v);
}

/* ---- the length of a block ----------------------------------------------- */

/* How far the tensors in a region reach into a block of it, and with padding. */
struct reach {
	int64_t views, content, padded;
};

static struct reach reach_of(const struct kvt_region_table *t,
			     const struct kvt_registered *region)
{
	struct reach reach = { 0, 0, 0 };

	for (int64_t i = 0; i < t->nlayers; i++) {
		const struct kvt_layer_view *v = &t->layer[i];
		struct kvt_rows rows = kvt_view_rows(v, region->manager);
		int64_t end = rows.base - region->at.base + rows.len;
		int64_t padding = v->padded - v->at.len;

		if (!kvt_registered_serves(region, v) || !kvt_registered_holds(region, v))
			continue;
		reach.views++;
		if (end > reach.content)
			reach.content = end;
		if (end + padding > reach.padded)
			reach.padded = end + padding;
	}
	return reach;
}

static bool names_all_held(const struct kvt_region_table *t,
			   const struct kvt_registered *region)
{
	for (int64_t i = 0; i < t->nlayers; i++) {
		const struct kvt_layer_view *v = &t->layer[i];
		bool held = !kvt_registered_names(region, v->layer);

		for (int64_t k = 0; !held && k < t->nregions; k++)
			held = kvt_registered_serves(&t->region[k], v) &&
			       kvt_registered_holds(&t->region[k], v);
		if (!held)
			return false;
	}
	return true;
}

static void check_region(const struct look *c, int64_t i)
{
	const struct kvt_region_table *t = c->t;
	const struct kvt_registered *region = &t->region[i];
	const struct kvt_rows *at = &region->at;
	struct kvt_find_at where = kvt_find_at("region=%lld", LL(i));
	struct reach reach = reach_of(t, region);

	c->held[i] = reach.views;
	check_registered(c, i);
	if (at->blocks > 1 && at->len > at->stride && (reach.views || !t->nlayers))
		kvt_find(c->r, "region.block-len", where,
			 "block_len is %lld and more than the stride, which is %lld: each block ends in the next one",
			 LL(at->len), LL(at->stride));
	else if (reach.views && at->len != reach.content && at->len != reach.padded &&
		 at->len != at->stride)
		kvt_find(c->r, "region.block-len", where,
			 "block_len is %lld, expected %lld, the content of a block, or %lld with its padding",
			 LL(at->len), LL(reach.content), LL(reach.padded));
	if (t->nlayers && !reach.views && names_all_held(t, region))
		kvt_find(c->r, "region.base", where,
			 "its blocks at 0x%llx are those of no layer", LL(at->base));
}

/* ---- what lies over each other ------------------------------------------- */

/*
 * Groups of one pool may share bytes as long as block i of one shares them with block
 * i of the other alone: a block belongs to one group at a time.
 */
static bool share_rightly(const struct kvt_rows *a, const struct kvt_rows *b)
{
	int64_t apart = a->base - b->base;

	return a->stride == b->stride && apart > -a->stride && apart < a->stride &&
	       apart + a->len <= a->stride && b->len - apart <= a->stride;
}

static void check_pair(const struct look *c, const struct kvt_layer_view *u,
		       const struct kvt_layer_view *v)
{
	bool one_group = u->group == v->group, manager = !one_group;
	struct kvt_rows a = kvt_view_rows(u, manager), b = kvt_view_rows(v, manager);
	int64_t i, j;

	if (u->shares || v->shares || !kvt_rows_meet(&i, &j, &a, &b) ||
	    (!one_group && share_rightly(&a, &b)))
		return;
	if (!one_group && i == j && a.blocks > i + 1) {
		/* the next block shows better that they are not the same ones */
		struct kvt_rows rest = { a.base + (i + 1) * a.stride, a.stride,
					 a.blocks - i - 1, a.len };
		int64_t next, other;

		if (kvt_rows_meet(&next, &other, &rest, &b)) {
			i += 1 + next;
			j = other;
		}
	}
	kvt_find(c->r, "region.overlay", kvt_find_at_view(v),
		 "its block %lld shares bytes with block %lld of %.100s (%s), %s", LL(j),
		 LL(i), u->name, kvt_region_part_name(u->part),
		 one_group ? "which is of the same group" :
		 "where only blocks of one id may");
}

/* Of a table without layers this is all that can be said. */
static void check_regions_meet(const struct look *c)
{
	const struct kvt_region_table *t = c->t;
	int64_t m, n;

	for (int64_t i = 0; i < t->nregions; i++)
		for (int64_t k = 0; k < i; k++) {
			const struct kvt_registered *a = &t->region[k];
			const struct kvt_registered *b = &t->region[i];

			if (!same_device(a->device, b->device) ||
			    !kvt_rows_meet(&m, &n, &a->at, &b->at) ||
			    (a->group != b->group && share_rightly(&a->at, &b->at)))
				continue;
			kvt_find(c->r, "region.overlap",
				 kvt_find_at("region=%lld", LL(i)),
				 "its block %lld shares bytes with block %lld of region %lld",
				 LL(n), LL(m), LL(k));
		}
	kvt_find(c->r, "region.no-layers", kvt_find_at("%s", ""),
		 "the table does not say where the engine has its layers: regions were held only against each other and registered memory");
}

bool kvt_regions_check(struct kvt_findings *r, const struct kvt_region_table *t)
{
	struct look c = { r, t, calloc((size_t)t->nregions, sizeof(*c.held)) };

	if (!c.held)
		return false;
	check_memory(&c);
	for (int64_t i = 0; i < t->nregions; i++)
		check_region(&c, i);
	for (int64_t i = 0; i < t->nlayers; i++) {
		check_view(&c, &t->layer[i]);
		for (int64_t k = 0; k < i; k++)
			check_pair(&c, &t->layer[k], &t->layer[i]);
	}
	if (!t->nlayers)
		check_regions_meet(&c);
	free(c.held);
	return true;
}
