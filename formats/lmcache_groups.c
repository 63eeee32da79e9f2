/* SPDX-License-Identifier: Apache-2.0 */
/* lmcache_groups.c - what a chunk of LMCache is an array of */
#include "formats/lmcache.h"

#include <string.h>

#include "formats/manifest.h"
#include "formats/pages.h"

#define LL(x) ((long long)(x))

static const char *first_path(const struct kvt_lmcache *o)
{
	return o->reader->files.file[o->part[0].file].path;
}

/* ---- which layout ------------------------------------------------------------ */

static enum kvt_status asked_layout(const struct kvt_lmcache *o, struct kvt_group *group)
{
	struct kvt_layout asked;
	enum kvt_status status;

	if (!o->hints->layout)
		return KVT_OK;
	if ((status = kvt_chunks_layout(&asked, o->hints->layout,
					o->part[0].key.layer >= 0, o->err)))
		return status;
	if (group->layout.nplanes && !kvt_layout_equal(&asked, &group->layout))
		return kvt_fail(o->err, KVT_BAD_INPUT, "%s: layout is %s, not %s as was asked for",
				first_path(o), kvt_layout_string(&group->layout).s,
				kvt_layout_string(&asked).s);
	group->layout = asked;
	return KVT_OK;
}

/*
 * A chunk of all layers is KV_2LTD or, if that is what the user says of the
 * content, MLA; a single layer may be one of two.
 */
static enum kvt_status guess_layout(const struct kvt_lmcache *o, struct kvt_group *group)
{
	if (group->layout.nplanes)
		return KVT_OK;
	if (o->hints->content)
		return kvt_layout_parse(&group->layout, kvt_lmcache_axes(KVT_LMCACHE_MLA),
					o->err);
	if (o->part[0].key.layer < 0)
		return kvt_layout_parse(&group->layout, kvt_lmcache_axes(KVT_LMCACHE_2LTD),
					o->err);
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: a layer without a header may be [2, tokens, heads] or [tokens, 2, heads]; give --layout %s or %s",
			first_path(o), kvt_lmcache_axes(KVT_LMCACHE_2TD),
			kvt_lmcache_axes(KVT_LMCACHE_T2D));
}

/* ---- without a header ---------------------------------------------------------- */

static enum kvt_status need_hints(const struct kvt_lmcache *o, const struct kvt_group *group,
				  int64_t layers)
{
	const struct kvt_hints *h = o->hints;
	bool latent = kvt_group_opaque(group);
	const struct {
		const char *option;
		bool missing;
	} rows[] = {
		{ "--dtype", !group->dtype },
		{ "--layers", layers < 0 && !h->layers },
		{ "--content", latent && !h->content },
		{ "--heads", !latent && !h->heads },
		{ "--head-dim (or --content, for MLA)", !latent && !h->head_dim },
	};
	char list[128] = "";
	size_t used = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].missing)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? ", " : "", rows[i].option);
	if (!used)
		return KVT_OK;
	return kvt_fail(o->err, KVT_BAD_INPUT,
			"%s: has no header that says its shape; give %s", first_path(o), list);
}

static enum kvt_status bare_group(struct kvt_lmcache *o, struct kvt_group *group,
				  int64_t layers)
{
	const struct kvt_hints *h = o->hints;
	enum kvt_status status;

	group->dtype = o->part[0].key.dtype;
	if (h->dtype && (!group->dtype || !group->dtype->is_float)) {
		const struct kvt_dtype *said = kvt_dtype_find(h->dtype);

		/* bytes may carry what the key has no name for */
		if (said && (!group->dtype || said->elem == group->dtype->elem))
			group->dtype = said;
	}
	if ((status = asked_layout(o, group)) || (status = guess_layout(o, group)) ||
	    (status = need_hints(o, group, layers)))
		return status;
	group->shape.n[KVT_AXIS_L] = layers < 0 ? h->layers : layers;
	group->shape.n[KVT_AXIS_K] = h->content ? 1 : 2;
	group->shape.n[KVT_AXIS_H] = h->content ? 1 : h->heads;
	group->shape.n[KVT_AXIS_D] = h->content ? h->content : h->head_dim;
	return KVT_OK;
}

/* ---- with one ---------------------------------------------------------------------- */

static enum kvt_status split_heads(const struct kvt_lmcache *o, struct kvt_group *group,
				   int64_t width)
{
	int64_t heads = o->hints->heads;

	if (!heads && o->hints->head_dim && width % o->hints->head_dim == 0)
		heads = width / o->hints->head_dim;
	if (!heads)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tokens have %lld elements in an unknown number of heads; give --heads",
				first_path(o), LL(width));
	if (width % heads)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: tokens have %lld elements, which are not %lld heads",
				first_path(o), LL(width), LL(heads));
	group->shape.n[KVT_AXIS_H] = heads;
	group->shape.n[KVT_AXIS_D] = width / heads;
	return KVT_OK;
}

static enum kvt_status said_group(struct kvt_lmcache *o, struct kvt_group *group,
				  const struct kvt_lmcache_array *array, int64_t layers)
{
	bool latent = o->header.fmt == KVT_LMCACHE_MLA;
	const struct kvt_dtype *said;
	enum kvt_status status;

	if ((status = kvt_layout_parse(&group->layout, kvt_lmcache_axes(o->header.fmt),
				       o->err)) ||
	    (status = asked_layout(o, group)))
		return status;
	if (layers >= 0 && array->layers != 1)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: has one layer by its name and %lld by its header",
				first_path(o), LL(array->layers));
	group->dtype = array->dtype;
	said = o->hints->dtype ? kvt_dtype_find(o->hints->dtype) : NULL;
	if (said && !group->dtype->is_float && said->elem == group->dtype->elem)
		group->dtype = said;
	group->shape.n[KVT_AXIS_L] = layers < 0 ? array->layers : layers;
	group->shape.n[KVT_AXIS_K] = latent ? 1 : 2;
	if (!latent)
		return split_heads(o, group, array->width);
	group->shape.n[KVT_AXIS_H] = 1;
	group->shape.n[KVT_AXIS_D] = array->width;
	return KVT_OK;
}

/* ---- ranks --------------------------------------------------------------------------- */

/*
 * A key counts workers, which share heads, or layers, or hold copies: how many
 * heads the model has decides.
 */
static enum kvt_status share_heads(struct kvt_lmcache *o, struct kvt_group *group)
{
	struct kvt_parallel *parallel = &o->reader->snapshot.parallel;
	int64_t heads = group->shape.n[KVT_AXIS_H], world = o->part[0].key.world, total = -1;
	enum kvt_status status;

	if ((status = kvt_fact_int(&total, o->hints, "total-heads", 1, INT32_MAX, o->err)))
		return status;
	if (kvt_group_opaque(group) || world == 1)
		return KVT_OK;
	if (total < 0)
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: of one of %lld workers, with %lld heads of an unknown number; give --set total-heads=N",
				first_path(o), LL(world), LL(heads));
	if (total != heads * world && (heads != 1 || total > world || world % total))
		return kvt_fail(o->err, KVT_BAD_INPUT,
				"%s: %lld workers with %lld heads each do not share %lld heads",
				first_path(o), LL(world), LL(heads), LL(total));
	group->total_heads = total;
	parallel->tp_size = world;
	parallel->tp_rank = o->part[0].key.worker;
	o->reader->snapshot.has_parallel = true;
	return KVT_OK;
}

/* What the user says beyond what was needed must not deny what is known. */
static enum kvt_status finish(struct kvt_lmcache *o, struct kvt_group *group)
{
	struct kvt_hints hints = *o->hints;
	struct kvt_pages_known known = { .name = first_path(o), .counted = KVT_NAXES,
					 .parallel = &o->reader->snapshot.parallel };
	enum kvt_status status;

	group->shape.elem = group->dtype->elem;
	group->shape.n[KVT_AXIS_B] = group->shape.n[KVT_AXIS_S] = 1;
	hints.blocks = hints.block_size = 0;
	if (o->header.narrays > 1)
		hints.layers = 0;
	if ((status = share_heads(o, group)) ||
	    (status = kvt_shape_nbytes(&known.nbytes, &group->shape, o->err)) ||
	    (status = kvt_pages_fit(group, &known, &hints, o->err)))
		return status;
	group->kind = group->shape.n[KVT_AXIS_K] == 1 ? KVT_MLA : KVT_FULL_ATTENTION;
	group->tokens_per_state = 1;
	return KVT_OK;
}

enum kvt_status kvt_lmcache_groups(struct kvt_lmcache *o, int64_t layers)
{
	struct kvt_snapshot *s = &o->reader->snapshot;
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
