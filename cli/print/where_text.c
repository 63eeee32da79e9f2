/* SPDX-License-Identifier: Apache-2.0 */
/* where_text.c - answers for people, and what the JSON object shares with them */
#include "cli/print/describe.h"
#include "lib/dump/pipeline.h"
#include "lib/ops/where/where.h"

#include <string.h>

/* ---- facts -------------------------------------------------------------- */

bool where_tile(struct tile_place *out, const struct where *w,
		const struct kvt_place *place)
{
	const struct kvt_tiling *t = kvt_dump_tiling(w->reader, place->group);
	const struct kvt_group *group = &w->snapshot->group[place->group];
	int64_t inside[KVT_NAXES];
	struct kvt_views views;
	struct kvt_box box;

	if (!t)
		return false;
	for (int a = 0; a < KVT_NAXES; a++) {
		inside[a] = place->index[a] % t->n[a];
		out->begin[a] = place->index[a] - inside[a];
	}
	box = tile_box(t, out->begin);
	if (kvt_layout_views(&views, &group->layout, &box, group->shape.elem, NULL))
		return false;
	out->byte = kvt_views_at(&views, inside) + place->byte;
	out->nbytes = t->nbytes;
	return true;
}

const struct kvt_component *where_part(const struct kvt_group *group, int64_t dim)
{
	for (int i = 0; i < group->ncomponents; i++) {
		const struct kvt_component *c = &group->component[i];

		if (dim >= c->start && dim - c->start < c->length)
			return c;
	}
	return NULL;
}

/* ---- lines -------------------------------------------------------------- */

static void print_offset(const struct where *w, enum kvt_space space,
			 int64_t buffer, int64_t offset)
{
	const char *name;

	describe_label(space == KVT_FILES ? "file" : "memory");
	if (buffer < 0) {
		puts("nowhere: reads as zeros");
		return;
	}
	name = kvt_dump_buffer_name(w->reader, space, buffer);
	plainf("%s%s%lld (0x%llx)\n", name ? name : "", name ? ":" : "",
	       (long long)offset, (unsigned long long)offset);
}

/* As --at takes it; what has only one value is left out where it says nothing. */
static void print_coordinate(const struct where *w, const struct kvt_place *p)
{
	const struct kvt_group *group = &w->snapshot->group[p->group];
	const int64_t *n = group->shape.n;

	describe_label("at");
	if (w->snapshot->ngroups > 1)
		plainf("group=%s,", group->id);
	plainf("layer=%lld,block=%llu", (long long)p->index[KVT_AXIS_L],
	       (unsigned long long)kvt_block_id(group, p->index[KVT_AXIS_B]));
	if (n[KVT_AXIS_S] > 1)
		plainf(",state=%lld", (long long)p->index[KVT_AXIS_S]);
	if (group->total_heads > 1 || n[KVT_AXIS_H] > 1)
		plainf(",head=%lld", (long long)(group->head_start +
						 p->index[KVT_AXIS_H]));
	if (n[KVT_AXIS_K] > 1)
		plainf(",kv=%c", p->index[KVT_AXIS_K] ? 'v' : 'k');
	plainf(",dim=%lld", (long long)p->index[KVT_AXIS_D]);
	if (p->byte)
		plainf(",byte=%lld", (long long)p->byte);
	putchar('\n');
}

/* "; rope 3 of row 5 (bfloat16, byte 1)" */
static void print_packed(const struct kvt_group *group, int64_t byte)
{
	struct kvt_packing packing = kvt_group_packing(group);
	struct kvt_packed_place at;
	const struct kvt_field *f;
	int64_t begin;

	if (!kvt_packing_find(&at, &packing, byte))
		return;
	f = &packing.field[at.field];
	begin = f->at + at.row * f->stride + at.element * f->dtype->elem;
	plainf("; %s %lld", f->name, (long long)at.element);
	if (packing.rows > 1)
		plainf(" of row %lld", (long long)at.row);
	plainf(" (%s, byte %lld)", f->dtype->name, (long long)(byte - begin));
}

static void print_element(const struct where *w, const struct kvt_place *p)
{
	const struct kvt_group *group = &w->snapshot->group[p->group];
	int64_t dim = p->index[KVT_AXIS_D];
	const struct kvt_component *c = where_part(group, dim);

	describe_label("element");
	plainf("%s, byte %lld of %lld", group->dtype->name, (long long)p->byte,
	       (long long)group->shape.elem);
	if (c)
		plainf("; %s %lld", c->name, (long long)(dim - c->start));
	if (group->content.type)
		print_packed(group, dim);
	if (c && c->global_start != c->start)
		plainf(", %lld in the model",
		       (long long)(c->global_start + dim - c->start));
	putchar('\n');
	if (group->layer_names) {
		describe_label("layer");
		plainf("%s\n", group->layer_names[p->index[KVT_AXIS_L]]);
	}
	if (group->block_ids) {
		describe_label("block");
		plainf("position %lld in the dump\n", (long long)p->index[KVT_AXIS_B]);
	}
	if (group->head_start) {
		describe_label("head");
		plainf("%lld on this rank\n", (long long)p->index[KVT_AXIS_H]);
	}
}

static void print_tenant(const struct tenant *t, bool infinite)
{
	plainf(" %s", t->request->id);
	if (infinite && t->seen >= 0)
		plainf(" after %lld tokens", (long long)t->seen);
	else if (t->token >= 0 && t->ntokens > 1)
		plainf(" tokens %lld to %lld", (long long)t->token,
		       (long long)(t->token + t->ntokens - 1));
	else if (t->token >= 0)
		plainf(" token %lld", (long long)t->token);
}

static void print_tenants(const struct where *w, const struct kvt_place *p)
{
	static const char *const text[] = {
		[HOLDS_UNKNOWN] = "unknown", [HOLDS_LIVE] = "live",
		[HOLDS_STALE] = "stale: no live token", [HOLDS_NULL] = "null block",
	};
	bool infinite = w->snapshot->group[p->group].tokens_per_state < 1;
	enum holding holding = where_holds(w->snapshot, p);
	struct tenancy at = { 0, 0 };
	struct tenant t;
	int printed = 0;

	describe_label("holds");
	plainf("%s", text[holding]);
	while (holding != HOLDS_NULL && where_next_tenant(&t, &at, w->snapshot, p)) {
		putchar(printed++ ? ',' : ':');
		print_tenant(&t, infinite);
	}
	putchar('\n');
}

static void print_tile(const struct where *w, const struct kvt_place *p)
{
	struct tile_place tile;

	if (!where_tile(&tile, w, p))
		return;
	describe_label("tile");
	for (int a = 0; a < KVT_NAXES; a++)
		plainf("%s%c %lld", a ? " " : "", kvt_axis_letter((enum kvt_axis)a),
		       (long long)tile.begin[a]);
	plainf(", byte %lld of %lld when decoded\n", (long long)tile.byte,
	       (long long)tile.nbytes);
}

static void print_region(const struct where *w, const struct kvt_place *p)
{
	describe_label("is");
	if (p->region == KVT_HEADER)
		plainf("header of the file: data begins at byte %lld\n",
		       (long long)p->begin);
	else if (p->region == KVT_BEYOND)
		plainf("beyond the data, which ends at byte %lld\n",
		       (long long)p->end);
	else if (p->region == KVT_PADDING)
		plainf("padding of a page: layer %lld, block %llu, byte %lld of %lld\n",
		       (long long)p->index[KVT_AXIS_L], (unsigned long long)kvt_block_id(
			       &w->snapshot->group[p->group], p->index[KVT_AXIS_B]),
		       (long long)p->byte,
		       (long long)w->snapshot->group[p->group].page_bytes);
	else
		puts("a gap between the data of the file");
}

void where_text(const struct where *w, const struct answer *a)
{
	plainf("%s: %s %s\n", w->path, a->option, a->query);
	if (a->in_files)
		print_offset(w, KVT_FILES, a->file, a->file_offset);
	if (a->in_memory)
		print_offset(w, KVT_MEMORY, a->tensor, a->memory_offset);
	if (a->place.region != KVT_ELEMENT) {
		print_region(w, &a->place);
		return;
	}
	print_coordinate(w, &a->place);
	print_element(w, &a->place);
	print_tenants(w, &a->place);
	print_tile(w, &a->place);
}
