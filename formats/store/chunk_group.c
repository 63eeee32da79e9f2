/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk_group.c - groups of chunks: layout, type and extents, from a header or the user
 *
 * A chunk is an array of tokens; B and S stand where its tokens do.  What a user says of
 * one chunk, and what it is among all:
 *
 *	LSHD, LBSHD		LBSHD	B comes before S, if it is not there
 *	SHD of one layer each	LBSHD	L is outermost
 *	BLSHD, of pages		LBSHD	B goes where S is
 *	of keys, of values	KLBSHD	files of halves: K is outermost
 */
#include "formats/store/chunks.h"

#include <string.h>

#include "formats/describe/describe.h"
#include "formats/store/pages.h"
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

static bool move_blocks(struct kvt_order *order)
{
	int b = kvt_order_find(order, KVT_AXIS_B);

	if (b < 0)
		return true;
	memmove(&order->part[b], &order->part[b + 1],
		(size_t)(--order->nparts - b) * sizeof(order->part[0]));
	return kvt_order_find(order, KVT_AXIS_B) < 0;
}

static bool join_pages(struct kvt_order *order, bool halves)
{
	return move_blocks(order) && join_tokens(order, false) &&
	       (!halves || order->part[0].axis == KVT_AXIS_K ||
		(kvt_order_find(order, KVT_AXIS_K) < 0 &&
		 insert_axis(order, 0, KVT_AXIS_K)));
}

enum kvt_status kvt_chunks_page_layout(struct kvt_group *group, bool halves,
				       const struct kvt_hints *hints,
				       struct kvt_error *err)
{
	const char *said = kvt_hints_of(hints, group->id).layout;
	enum kvt_status status;

	if (!said)
		return KVT_OK;
	if ((status = kvt_layout_parse(&group->layout, said, err)))
		return status;
	if (group->layout.nplanes == 1 && join_pages(&group->layout.plane[0], halves))
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"layout %.60s has no axis of tokens in order%s", said,
			halves ? ", or does not begin with K" : "");
}

bool kvt_chunks_in_layout(const struct kvt_group *group, const struct kvt_layout *said)
{
	struct kvt_layout tokens = *said;
	int l = kvt_order_find(&group->layout.plane[0], KVT_AXIS_L);

	return said->nplanes == 1 && join_tokens(&tokens.plane[0], l >= 0) &&
	       kvt_layout_equal(&tokens, &group->layout);
}

static bool is_of_pages(const struct kvt_group *group, const struct kvt_layout *said,
			bool halves)
{
	struct kvt_layout pages = *said;

	return said->nplanes == 1 && join_pages(&pages.plane[0], halves) &&
	       kvt_layout_equal(&pages, &group->layout);
}

bool kvt_chunks_in_page_layout(const struct kvt_group *group,
			       const struct kvt_layout *said)
{
	return kvt_chunks_in_layout(group, said) || is_of_pages(group, said, false) ||
	       is_of_pages(group, said, true);
}

enum kvt_status kvt_chunks_asked_layout(struct kvt_group *group, bool layers,
					const struct kvt_hints *hints,
					struct kvt_error *err)
{
	const char *said = kvt_hints_of(hints, group->id).layout;

	return said && !group->layout.nplanes ?
	       kvt_chunks_layout(&group->layout, said, layers, err) : KVT_OK;
}

/* ---- what the user says -------------------------------------------------- */

enum kvt_status kvt_chunks_said(struct kvt_group *group, int64_t layers,
				const struct kvt_hints *hints, const char *name,
				struct kvt_error *err)
{
	const struct kvt_hints said = kvt_hints_of(hints, group->id), *h = &said;
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
	enum kvt_status status = kvt_hint_content(h, err);

	if (status)
		return status;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].missing)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? ", " : "", rows[i].option);
	if (used)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: has no header that says its shape; give %s", name, list);
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
	const struct kvt_hints said = kvt_hints_of(hints, group->id);
	int64_t *n = group->shape.n;
	enum kvt_status status = kvt_hint_heads(&n[KVT_AXIS_H], width, &said, name, err);

	if (!status)
		n[KVT_AXIS_D] = width / n[KVT_AXIS_H];
	return status;
}

enum kvt_status kvt_chunks_finish(struct kvt_group *group,
				  const struct kvt_parallel *parallel,
				  const struct kvt_hints *hints, const char *name,
				  struct kvt_error *err)
{
	struct kvt_pages_known known = { .name = name,
					 .parallel = parallel };
	enum kvt_status status;

	group->shape.elem = group->dtype->elem;
	group->shape.n[KVT_AXIS_B] = group->shape.n[KVT_AXIS_S] = 1;
	group->tokens_per_slot = group->block_size = 1;	/* blocks are made later */
	if (group->kind == KVT_NKINDS && group->shape.n[KVT_AXIS_K] == 2)
		group->kind = KVT_FULL_ATTENTION;
	if ((status = kvt_shape_nbytes(&known.nbytes, &group->shape, err)))
		return status;
	return kvt_pages_fit(group, &known, hints, err);
}

enum kvt_status kvt_chunks_count(struct kvt_chunks *chunks, const struct kvt_files *files,
				 const struct kvt_group *group, struct kvt_error *err)
{
	struct kvt_group one = *group;
	enum kvt_status status;
	int64_t token;

	if (chunks->chunk[0].layer >= 0)
		one.shape.n[chunks->halves ? KVT_AXIS_K : KVT_AXIS_L] = 1;
	if ((status = kvt_pages_token_bytes(&token, &one, 1, err)))
		return status;
	for (int64_t i = 0; i < chunks->count; i++) {
		struct kvt_chunk *chunk = &chunks->chunk[i];

		if (chunk->tokens >= 0)
			continue;
		if (!token || chunk->nbytes % token)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: chunk %.80s has %lld bytes, not a multiple of %lld bytes per token",
					files->file[chunk->file].path, chunk->id,
					LL(chunk->nbytes), LL(token));
		chunk->tokens = chunk->nbytes / token;
	}
	return KVT_OK;
}
