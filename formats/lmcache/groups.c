/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c - groups of a dump of LMCache, from the arrays of a chunk
 *
 * In: what headers say, or the user; out: groups, but for their blocks.
 *
 *	KV_2LTD		[keys, values][layers][tokens][heads * D]	all layers
 *	KV_2TD		[keys, values][tokens][heads * D]		one layer
 *	KV_T2D		[tokens][keys, values][heads * D]		one layer
 *	KV_MLA_FMT	[1][layers][tokens][width]
 *
 * An array has layers, tokens and heads times their width; the number of heads is not
 * in the file.  Arrays of several groups follow each other.
 */
#include "formats/lmcache/lmcache.h"

#include <string.h>

#include "formats/describe/describe.h"

static const char *first_path(const struct kvt_lmcache *o)
{
	return o->reader->files.file[o->part[0].file].path;
}

/* ---- without a header ---------------------------------------------------- */

/*
 * A chunk of all layers is KV_2LTD or, if that is what the user says of the
 * content, MLA; a single layer may be one of two.
 */
static enum kvt_status guess_layout(const struct kvt_lmcache *o, struct kvt_group *group)
{
	if (group->layout.nplanes)
		return KVT_OK;
	if (kvt_hints_of(o->hints, group->id).content)
		return kvt_layout_parse(&group->layout, kvt_lmcache_axes(KVT_LMCACHE_MLA),
					o->err);
	if (o->part[0].key.layer < 0)
		return kvt_layout_parse(&group->layout,
					kvt_lmcache_axes(KVT_LMCACHE_2LTD), o->err);
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: a layer without a header may be [2, tokens, heads] or [tokens, 2, heads]; give --layout=%s or --layout=%s",
			first_path(o), kvt_lmcache_axes(KVT_LMCACHE_2TD),
			kvt_lmcache_axes(KVT_LMCACHE_T2D));
}

static enum kvt_status bare_group(struct kvt_lmcache *o, struct kvt_group *group,
				  int64_t layers)
{
	enum kvt_status status;

	group->dtype = kvt_lmcache_dtype(o, group->id);
	if ((status = kvt_chunks_asked_layout(group, layers >= 0, o->hints, o->err)) ||
	    (status = guess_layout(o, group)))
		return status;
	return kvt_chunks_said(group, layers, o->hints, first_path(o), o->err);
}

/* ---- with one ------------------------------------------------------------ */

static enum kvt_status said_group(struct kvt_lmcache *o, struct kvt_group *group,
				  const struct kvt_lmcache_array *array, int64_t layers)
{
	bool latent = o->header.fmt == KVT_LMCACHE_MLA;
	enum kvt_status status;

	if ((status = kvt_layout_parse(&group->layout, kvt_lmcache_axes(o->header.fmt),
				       o->err)))
		return status;
	if (layers >= 0 && array->layers != 1)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has one layer by its name and %lld by its header",
				first_path(o), LL(array->layers));
	group->dtype = kvt_hint_dtype(array->dtype, o->hints, group->id);
	group->shape.n[KVT_AXIS_L] = layers < 0 ? array->layers : layers;
	group->shape.n[KVT_AXIS_K] = latent ? 1 : 2;
	if (!latent)
		return kvt_chunks_heads(group, array->width, o->hints, first_path(o),
					o->err);
	group->shape.n[KVT_AXIS_H] = 1;
	group->shape.n[KVT_AXIS_D] = array->width;
	return KVT_OK;
}

/* ---- ranks --------------------------------------------------------------- */

/*
 * A key counts workers, which share heads, or layers, or hold copies: how many
 * heads the model has decides.
 */
static enum kvt_status share_heads(struct kvt_lmcache *o, struct kvt_group *group)
{
	struct kvt_parallel *parallel = &o->reader->leaf.snapshot.parallel;
	int64_t heads = group->shape.n[KVT_AXIS_H], total = -1;
	int64_t world = o->part[0].key.world;
	enum kvt_status status;

	if ((status = kvt_fact_int(&total, o->hints, "total-heads", 1, INT32_MAX,
				   o->err)))
		return status;
	if (kvt_group_opaque(group) || world == 1)
		return KVT_OK;
	if (total < 0)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: one of %lld workers, with %lld heads; the number of heads of the model is not known: give --set total-heads=N",
				first_path(o), LL(world), LL(heads));
	if (total != heads * world && (heads != 1 || total > world || world % total))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: %lld workers with %lld heads each do not fit a model of %lld heads",
				first_path(o), LL(world), LL(heads), LL(total));
	group->total_heads = total;
	parallel->tp_size = world;
	parallel->tp_rank = o->part[0].key.worker;
	o->reader->leaf.snapshot.has_parallel = true;
	return KVT_OK;
}

static enum kvt_status finish(struct kvt_lmcache *o, struct kvt_group *group)
{
	enum kvt_status status = share_heads(o, group);

	if (status)
		return status;
	if (group->shape.n[KVT_AXIS_K] == 1)
		group->kind = KVT_MLA;
	return kvt_chunks_finish(group, &o->reader->leaf.snapshot.parallel, o->hints,
				 first_path(o), o->err);
}

enum kvt_status kvt_lmcache_groups(struct kvt_lmcache *o, int64_t layers)
{
	struct kvt_snapshot *s = &o->reader->leaf.snapshot;
	int n = o->headers ? o->header.narrays : 1;
	enum kvt_status status = KVT_OK;
	struct kvt_group *group;
	char id[16];

	for (int g = 0; !status && g < n; g++) {
		snprintf(id, sizeof(id), "g%d", g);
		status = kvt_manifest_add_group(&group, s, id, o->path, o->err);
		if (!status)
			status = o->headers ?
				 said_group(o, group, &o->header.array[g], layers) :
				 bare_group(o, group, layers);
		if (!status)
			status = finish(o, group);
	}
	return status;
}
