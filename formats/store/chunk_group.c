/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_group.c - groups of chunks: layout, type and extents, from a header or the
 * user
 *
 * A chunk is an array of tokens; B and S stand where its tokens do.
 */
#include "formats/store/chunks.h"

#include <string.h>

#include "formats/manifest/manifest.h"
#include "formats/store/pages.h"
#include "lib/base/print.h"
#include "lib/layout/words.h"

/* ---- layouts ------------------------------------------------------------- */

static bool insert_axis(struct kvt_order *order, int at, enum kvt_axis axis)
{
	if (at < 0 || order->nparts == KVT_MAX_PARTS)
		return false;
	memmove(&order->part[at + 1], &order->part[at],
		(size_t)(order->nparts - at) * sizeof(order->part[0]));
	order->part[at] = (struct kvt_part){ .axis = axis, .kind = KVT_WHOLE };
	order->nparts++;
	return true;
}

static bool join_tokens(struct kvt_order *order, bool layers)
{
	int b = kvt_order_find(order, KVT_AXIS_B);

	for (int i = 0; i < order->nparts; i++)
		if (order->part[i].kind != KVT_WHOLE)
			return false;
	if (b < 0 ? !insert_axis(order, kvt_order_find(order, KVT_AXIS_S), KVT_AXIS_B) :
		    kvt_order_find(order, KVT_AXIS_S) != b + 1)
		return false;
	return !layers || kvt_order_find(order, KVT_AXIS_L) >= 0 ||
	       insert_axis(order, 0, KVT_AXIS_L);
}

enum kvt_status kvt_chunks_layout(struct kvt_layout *out, const char *text, bool layers,
				  struct kvt_error *err)
{
	enum kvt_status status = kvt_layout_parse(out, text, err);

	if (status)
		return status;
	if (out->nplanes == 1 && join_tokens(&out->plane[0], layers))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"layout %.60s has no axis of tokens in order, S or B S", text);
}

enum kvt_status kvt_chunks_asked_layout(struct kvt_group *group, bool layers,
					const struct kvt_hints *hints, const char *name,
					struct kvt_error *err)
{
	struct kvt_layout asked;
	enum kvt_status status;

	if (!hints->layout)
		return KVT_OK;
	if ((status = kvt_chunks_layout(&asked, hints->layout, layers, err)))
		return status;
	if (group->layout.nplanes && !kvt_layout_equal(&asked, &group->layout))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: the layout is %s, but --layout says %s", name,
				kvt_layout_called(&group->layout).s,
				kvt_layout_called(&asked).s);
	group->layout = asked;
	return KVT_OK;
}

/* ---- what the user says -------------------------------------------------- */

const struct kvt_dtype *kvt_chunks_dtype(const struct kvt_dtype *said,
					 const struct kvt_hints *hints)
{
	const struct kvt_dtype *asked = hints->dtype ? kvt_dtype_find(hints->dtype) :
						       NULL;

	if (asked && (!said || (!said->is_float && said->elem == asked->elem)))
		return asked;
	return said;
}

enum kvt_status kvt_chunks_said(struct kvt_group *group, int64_t layers,
				const struct kvt_hints *h, const char *name,
				struct kvt_error *err)
{
	bool has_layout = group->layout.nplanes > 0;
	bool latent = h->content || (has_layout && kvt_group_opaque(group));
	bool layered = !has_layout ||
		       kvt_order_find(&group->layout.plane[0], KVT_AXIS_L) >= 0;
	const struct {
		const char *option;
		bool missing;
	} rows[] = {
		{ "--layout", !has_layout },
		{ "--dtype", !group->dtype },
		{ "--layers", layered && layers < 0 && !h->layers },
		{ "--content-size", latent && !h->content },
		{ "--heads", !latent && !h->heads },
		{ "--head-dim (or --content-size, for MLA)", !latent && !h->head_dim },
	};
	char list[128] = "";
	size_t used = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].missing)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? ", " : "", rows[i].option);
	if (used)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has no header that says its shape; give "
				"%s", name, list);
	group->shape.n[KVT_AXIS_L] = layers >= 0 ? layers : layered ? h->layers : 1;
	group->shape.n[KVT_AXIS_K] = latent ? 1 : 2;
	group->shape.n[KVT_AXIS_H] = latent ? 1 : h->heads;
	group->shape.n[KVT_AXIS_D] = latent ? h->content : h->head_dim;
	return KVT_OK;
}

enum kvt_status kvt_chunks_heads(struct kvt_group *group, int64_t width,
				 const struct kvt_hints *hints, const char *name,
				 struct kvt_error *err)
{
	int64_t heads = hints->heads;

	if (!heads && hints->head_dim && width % hints->head_dim == 0)
		heads = width / hints->head_dim;
	if (!heads)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tokens have %lld elements in an unknown number of "
				"heads; give --heads or --head-dim",
				name, LL(width));
	if (width % heads)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tokens have %lld elements, which cannot be divided "
				"into %lld heads",
				name, LL(width), LL(heads));
	group->shape.n[KVT_AXIS_H] = heads;
	group->shape.n[KVT_AXIS_D] = width / heads;
	return KVT_OK;
}

enum kvt_status kvt_chunks_finish(struct kvt_group *group,
				  const struct kvt_parallel *parallel,
				  const struct kvt_hints *hints, const char *name,
				  struct kvt_error *err)
{
	struct kvt_pages_known known = { .name = name, .counted = KVT_NAXES,
					 .parallel = parallel };
	struct kvt_hints rest = *hints;
	enum kvt_status status;

	/* blocks are made later, of chunks of many sizes */
	rest.blocks = rest.block_size = 0;
	group->shape.elem = group->dtype->elem;
	group->shape.n[KVT_AXIS_B] = group->shape.n[KVT_AXIS_S] = 1;
	group->tokens_per_slot = 1;
	if (group->kind == KVT_NKINDS && group->shape.n[KVT_AXIS_K] == 2)
		group->kind = KVT_FULL_ATTENTION;
	if ((status = kvt_shape_nbytes(&known.nbytes, &group->shape, err)))
		return status;
	return kvt_pages_fit(group, &known, &rest, err);
}

enum kvt_status kvt_chunks_count(struct kvt_chunks *chunks, const struct kvt_files *files,
				 const struct kvt_group *group, struct kvt_error *err)
{
	struct kvt_group one = *group;
	enum kvt_status status;
	int64_t token;

	if (chunks->chunk[0].layer >= 0)
		one.shape.n[KVT_AXIS_L] = 1;
	if ((status = kvt_pages_token_bytes(&token, &one, 1, err)))
		return status;
	for (int64_t i = 0; i < chunks->count; i++) {
		struct kvt_chunk *chunk = &chunks->chunk[i];

		if (chunk->tokens >= 0)
			continue;
		if (!token || chunk->nbytes % token)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: chunk %.80s has %lld bytes, not a multiple "
					"of %lld bytes per token",
					files->file[chunk->file].path, chunk->id,
					LL(chunk->nbytes), LL(token));
		chunk->tokens = chunk->nbytes / token;
	}
	return KVT_OK;
}
