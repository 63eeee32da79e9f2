/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_row.c - the rows of vLLM's file-system tier: how long, and what is where
 *
 *	[rank 0][rank 1] ... zeros up to a multiple of the machine's page
 *
 *	rank	layers outermost	[layer 0: b0, b1, ..][layer 1: b0, b1, ..] .. rest
 *		blocks outermost	[b0: all layers, rest][b1: all layers, rest] ..
 *	canonical	as one rank with the heads of all, and as long as all
 *
 * A cell is a page: 'page' bytes from one to the next, of which its content is the
 * first.  The rest is what the largest group has more: stale bytes of whoever had the
 * memory before, which nothing reads.  Ranks that share heads have copies; reading takes
 * the first one's.
 *
 * Nothing of this is written down in a tree.  It follows from what the engine's
 * memory is like, which is what the user says.  Facts: as in offload.c.
 */
#include "formats/vllm/offload.h"

#include <stdlib.h>
#include <string.h>

#include "formats/describe/describe.h"
#include "formats/parse/json.h"
#include "lib/layout/words.h"

enum { MACHINE_PAGE = 4096 };

/* ---- the layout --------------------------------------------------------- */

/* Axes that the text leaves out, in front of those that it has. */
static bool complete(struct kvt_order *order)
{
	static const enum kvt_axis axes[] = { KVT_AXIS_B, KVT_AXIS_L };
	bool has[2] = { false, false };

	for (int i = 0; i < order->nparts; i++)
		for (int a = 0; a < 2; a++)
			has[a] |= order->part[i].axis == axes[a];
	for (int a = 0; a < 2; a++) {
		if (has[a])
			continue;
		if (order->nparts == KVT_MAX_PARTS)
			return false;
		memmove(order->part + 1, order->part,
			(size_t)order->nparts++ * sizeof(*order->part));
		order->part[0] = (struct kvt_part){ .axis = axes[a], .kind = KVT_WHOLE };
	}
	return true;
}

static bool blocks_outermost(const struct kvt_layout *layout)
{
	return kvt_order_whole(&layout->plane[0], 0, KVT_AXIS_B);
}

enum kvt_status kvt_offload_row_layout(struct kvt_layout *layout, struct kvt_error *err)
{
	struct kvt_layout out = *layout;
	bool fits = !kvt_layout_apart(layout);

	for (int p = 0; fits && p < out.nplanes; p++) {
		const struct kvt_order *order = &out.plane[p];

		fits = complete(&out.plane[p]) &&
		       (kvt_order_whole(order, 0, KVT_AXIS_B) ||
			(kvt_order_whole(order, 0, KVT_AXIS_L) &&
			 kvt_order_whole(order, 1, KVT_AXIS_B)));
	}
	if (!fits)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"vLLM's tier cannot have layout %s, expected one that begins with LB (layers outermost) or B (blocks outermost), such as vllm:LBNHC",
				kvt_layout_string(layout).s);
	*layout = out;
	return KVT_OK;
}

bool kvt_offload_in_layout(const struct kvt_group *group, const struct kvt_layout *said)
{
	const struct kvt_layout blocks = kvt_layout_blocks_first(said, true);
	struct kvt_layout row = *said;

	return kvt_layout_equal(&blocks, &group->layout) ||
	       (!kvt_offload_row_layout(&row, NULL) &&
		kvt_layout_equal(&row, &group->layout));
}

/*
 * Families of layouts, by the order of slots and heads in a page: only pages that
 * are one run can be canonical, wherever their layout has layers and blocks.
 */
enum kvt_status kvt_offload_check_canonical(const char *said,
					    const struct kvt_group *group,
					    const char *name, struct kvt_error *err)
{
	static const struct {
		const char *name;
		bool nhd;
	} family[] = {
		{ "v1-nhd", true }, { "v1-hnd", false }, { "v1-lhbnc", false },
		{ "v1-blnhc", true }, { "v1-blhnc", false }, { "v1-bhlnc", false },
	};
	enum { N = sizeof(family) / sizeof(family[0]) };
	const struct kvt_layout *layout = &group->layout;
	int at[KVT_NAXES] = { 0 }, i = 0;

	while (said && i < N && strcmp(family[i].name, said))
		i++;
	if (i == N)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: canonical_format is '%.40s', known are v1-nhd, v1-hnd and v1- with the name of another layout", name, said);
	for (int k = 0; k < layout->plane[0].nparts; k++)
		at[layout->plane[0].part[k].axis] = k + 1;
	if (!said)
		return KVT_OK;
	if (at[KVT_AXIS_H] && family[i].nhd != (at[KVT_AXIS_S] < at[KVT_AXIS_H]))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: canonical_format is %s, but the layout is %s", name, said,
				kvt_layout_string(layout).s);
	return KVT_OK;
}

enum kvt_status kvt_offload_set_form(json_t *config, struct kvt_offload_row *row,
				     const struct kvt_snapshot *s, const char *form,
				     struct kvt_error *err)
{
	const struct kvt_order *order = &s->group[0].layout.plane[0];
	bool canonical = form && !strcmp(form, "canonical"), one, nhd, ok = true;

	if (form && !canonical && strcmp(form, "ranks"))
		return kvt_fail(err, KVT_USAGE,
				"--row-form is '%.40s', expected canonical or ranks", form);
	if (!form || canonical == (json_object_get(config, "canonical_format") != NULL))
		return KVT_OK;
	if (canonical && kvt_group_opaque(&s->group[0]))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"group %s has no heads: its files have no canonical form",
				s->group[0].id);
	/* padding was that of a rank's pages; a mark belongs to files of ranks */
	row->page = 0;
	json_object_del(config, "parallel_agnostic");
	json_object_del(config, "canonical_format");
	one = s->ngroups == 1 && s->group[0].kind == KVT_FULL_ATTENTION;
	nhd = kvt_order_find(order, KVT_AXIS_S) < kvt_order_find(order, KVT_AXIS_H);
	if (canonical)
		ok = !json_object_set_new(config, "canonical_format",
					  json_string(nhd ? "v1-nhd" : "v1-hnd"));
	else if (!one)
		ok = !json_object_set_new(config, "parallel_agnostic", json_false());
	if (ok && canonical)
		ok = !json_object_set_new(config, "tp_size", json_integer(1));
	return ok ? KVT_OK : kvt_no_memory(err, NULL);
}

/* ---- how long ----------------------------------------------------------- */

/* Heads of a rank; all of those that are not cut. */
static int64_t heads_of_rank(const struct kvt_group *group, int64_t ranks)
{
	int64_t heads = group->shape.n[KVT_AXIS_H];

	if (kvt_group_opaque(group))
		return heads;
	return heads > ranks ? heads / ranks : 1;
}

static enum kvt_status check_ranks(const struct kvt_group *group, int64_t ranks,
				   const char *name, struct kvt_error *err)
{
	int64_t heads = group->shape.n[KVT_AXIS_H];

	if (kvt_group_opaque(group) || heads % ranks == 0 || ranks % heads == 0)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s: %lld heads cannot be divided among %lld ranks: neither number divides the other",
			name, LL(heads), LL(ranks));
}

static enum kvt_status too_large(const char *name, struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT, "%s: rows are larger than 2^62 bytes", name);
}

/* a * b * c, if that leaves room for more. */
static bool product(int64_t *out, int64_t a, int64_t b, int64_t c)
{
	return !__builtin_mul_overflow(a, b, out) &&
	       !__builtin_mul_overflow(*out, c, out) && *out < KVT_MOST;
}

enum kvt_status kvt_offload_row_measure(struct kvt_offload_row *row,
					const struct kvt_group *group, const char *name,
					struct kvt_error *err)
{
	int64_t align = row->align ? row->align : MACHINE_PAGE, page, whole, all;
	struct kvt_shape one = group->shape;
	enum kvt_status status;

	if (row->canonical && row->layers > 1 && blocks_outermost(&group->layout))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: is canonical, so layers must be outermost, which they are not in layout %s",
				name, kvt_layout_string(&group->layout).s);
	one.n[KVT_AXIS_L] = one.n[KVT_AXIS_B] = 1;
	if ((status = check_ranks(group, row->ranks, name, err)) ||
	    (status = kvt_shape_nbytes(&whole, &one, err)))
		return status;
	one.n[KVT_AXIS_H] = heads_of_rank(group, row->ranks);
	if ((status = kvt_shape_nbytes(&page, &one, err)))
		return status;
	if (row->page && row->page < page)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a block of a layer of a rank needs %lld bytes, more than the given %lld",
				name, LL(page), LL(row->page));
	if (row->page)
		page = row->page;
	if (!product(&row->rank_bytes, page, row->layers, row->per_file) ||
	    !product(&all, row->rank_bytes, row->ranks, 1) ||
	    !product(&row->used, whole, row->layers, row->per_file))
		return too_large(name, err);
	if (!row->canonical)
		row->used = all;
	row->nbytes = (all + align - 1) / align * align;
	return KVT_OK;
}

int64_t kvt_offload_most_layers(const struct kvt_offload_config *config, int64_t layers)
{
	for (int g = 0; g < config->ngroups; g++)
		if (config->group[g].nlayers > layers)
			layers = config->group[g].nlayers;
	return layers;
}

/* ---- what is where ------------------------------------------------------ */

/* Strides of what is larger in the engine than this group's share of it. */
static void spread(struct kvt_views *views, const struct kvt_offload_row *row,
		   const struct kvt_group *group)
{
	int64_t rank = row->rank_bytes;

	for (int i = 0; i < views->count; i++) {
		struct kvt_view *view = &views->view[i];

		if (blocks_outermost(&group->layout)) {
			kvt_view_set_stride(view, KVT_AXIS_B, rank / row->per_file);
		} else if (row->page && !row->canonical) {
			kvt_view_set_stride(view, KVT_AXIS_B, row->page);
			kvt_view_set_stride(view, KVT_AXIS_L, rank / row->layers);
		}
	}
}

static enum kvt_status place_rank(struct kvt_flat *flat,
				  const struct kvt_offload_row *row,
				  const struct kvt_group *group,
				  const struct kvt_box *box, int file, int64_t offset,
				  struct kvt_error *err)
{
	struct kvt_file_part range;
	enum kvt_status status = kvt_pages_part(&range, group, box, file, offset, err);

	if (status)
		return status;
	spread(&range.views, row, group);
	return kvt_flat_add(flat, &range, err);
}

enum kvt_status kvt_offload_row_place(struct kvt_flat *flat,
				      const struct kvt_offload_row *row,
				      const struct kvt_group *group, int64_t block,
				      int file, bool copies, struct kvt_error *err)
{
	int64_t ranks = row->canonical ? 1 : row->ranks;
	int64_t heads = heads_of_rank(group, ranks);
	int64_t shares = group->shape.n[KVT_AXIS_H] / heads, each = ranks / shares;
	struct kvt_box box = kvt_box_whole(&group->shape);
	enum kvt_status status = KVT_OK;

	box.begin[KVT_AXIS_B] = block;
	box.end[KVT_AXIS_B] = block + row->per_file;
	for (int64_t r = 0; !status && r < ranks; r += copies ? 1 : each) {
		box.begin[KVT_AXIS_H] = r / each * heads;
		box.end[KVT_AXIS_H] = box.begin[KVT_AXIS_H] + heads;
		status = place_rank(flat, row, group, &box, file, r * row->rank_bytes,
				    err);
	}
	return status;
}

/* ---- notes -------------------------------------------------------------- */

char *kvt_offload_note(const struct kvt_offload_config *config,
		       const struct kvt_offload_row *row)
{
	char *text = kvt_json_dump(config->json, JSON_COMPACT), *note = NULL;
	size_t n = text ? strlen(text) + 120 : 0;

	if (text && (note = malloc(n))) {
		if (row)
			snprintf(note, n, "%s%lld ranks, page %lld, align %lld, %s",
				 KVT_OFFLOAD_ROW_NOTE, LL(row->ranks), LL(row->page),
				 LL(row->align), text);
		else
			snprintf(note, n, "%s%s", KVT_OFFLOAD_NOTE, text);
	}
	free(text);
	return note;
}

/* A number and what follows it. */
static bool take_number(int64_t *out, int64_t most, const char **at, const char *after)
{
	size_t digits = strspn(*at, "0123456789");

	if (!digits || digits > 15 || strncmp(*at + digits, after, strlen(after)))
		return false;
	*out = strtoll(*at, NULL, 10);
	*at += digits + strlen(after);
	return *out <= most;
}

bool kvt_offload_read_note(const char **config, struct kvt_offload_row *row,
			   bool *has_row, const char *note)
{
	*has_row = note && !strncmp(note, KVT_OFFLOAD_ROW_NOTE,
				    strlen(KVT_OFFLOAD_ROW_NOTE));
	if (*has_row) {
		*config = note + strlen(KVT_OFFLOAD_ROW_NOTE);
		return take_number(&row->ranks, KVT_OFFLOAD_MOST_RANKS, config,
				   " ranks, page ") &&
		       take_number(&row->page, KVT_OFFLOAD_MOST_PAGE, config,
				   ", align ") &&
		       take_number(&row->align, KVT_OFFLOAD_MOST_ALIGN, config, ", ") &&
		       row->ranks;
	}
	*config = note ? note + strlen(KVT_OFFLOAD_NOTE) : NULL;
	return note && !strncmp(note, KVT_OFFLOAD_NOTE, strlen(KVT_OFFLOAD_NOTE));
}
