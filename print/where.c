/* SPDX-License-Identifier: Apache-2.0 */
/*
 * where.c - answers of kvtool where: for people, and as kvtool-json(5) has them
 *
 *	dump.npy: offset 33000
 *	  file      33000 (0x80e8)
 *	  memory    32872 (0x8068)
 *	  at        layer=0,block=16,slot=0,head=3,kv=k,dim=4
 *	  element   bfloat16, byte 0 of 2
 *	  layer     model.layers.0.self_attn.attn
 *	  holds     live: A token 48
 *
 *	"matches": [{"option": "offset", "query": "33000", "region": "element", ..,
 *	             "offset": 33000, .., "layer": 0, .., "requests": [..], "tile": null}]
 *
 * A byte that is of no element has a line "is" instead, and another region: header,
 * padding, gap, beyond.  What "at" says can be asked, and means the same element.
 */
#include "print/where.h"
#include "print/out/say.h"
#include "print/describe.h"
#include "lib/ops/where/where.h"

#include <string.h>

/* ---- text --------------------------------------------------------------- */

static void print_offset(struct kvt_dump *dump, enum kvt_space space,
			 int64_t buffer, int64_t offset)
{
	const char *name;

	print_label(space == KVT_FILES ? "file" : "memory");
	if (buffer < 0) {
		puts("in no file: reads as zeros");
		return;
	}
	name = kvt_dump_buffer_name(dump, space, buffer);
	plainf("%s%s%lld (0x%llx)\n", name ? name : "", name ? ":" : "",
	       LL(offset), (unsigned long long)offset);
}

/* As --at takes it; what has only one value is left out where it says nothing. */
static void print_coordinate(const struct kvt_snapshot *s, const struct kvt_where *p)
{
	const struct kvt_group *group = &s->group[p->group];
	const int64_t *n = group->shape.n;

	print_label("at");
	if (s->ngroups > 1)
		plainf("group=%s,", group->id);
	plainf("layer=%lld,block=%llu", LL(p->index[KVT_AXIS_L]),
	       (unsigned long long)kvt_block_id(group, p->index[KVT_AXIS_B]));
	if (n[KVT_AXIS_S] > 1)
		plainf(",slot=%lld", LL(p->index[KVT_AXIS_S]));
	if (group->total_heads > 1 || n[KVT_AXIS_H] > 1)
		plainf(",head=%lld", LL(group->head_start + p->index[KVT_AXIS_H]));
	if (n[KVT_AXIS_K] > 1)
		plainf(",kv=%c", p->index[KVT_AXIS_K] ? 'v' : 'k');
	plainf(",dim=%lld", LL(p->index[KVT_AXIS_D]));
	if (p->byte)
		plainf(",byte=%lld", LL(p->byte));
	putchar('\n');
}

/* "; rope 3 of row 5 (bfloat16, byte 1)" */
static void print_packed(const struct kvt_group *group, int64_t byte)
{
	struct kvt_packing packing = kvt_group_packing(group);
	struct kvt_packed_element at;
	const struct kvt_field *f;
	int64_t begin;

	if (!kvt_packing_find(&at, &packing, byte))
		return;
	f = &packing.field[at.field];
	begin = f->at + at.row * f->stride + at.element * f->bits / 8;
	plainf("; %s %lld", f->name, LL(at.element));
	if (packing.rows > 1)
		plainf(" of row %lld", LL(at.row));
	plainf(" (%s, byte %lld)", f->type, LL(byte - begin));
}

static void print_element(const struct kvt_snapshot *s, const struct kvt_where *p)
{
	const struct kvt_group *group = &s->group[p->group];
	int64_t dim = p->index[KVT_AXIS_D];
	const struct kvt_component *c = kvt_where_component(group, dim);

	print_label("element");
	plainf("%s, byte %lld of %lld", group->dtype->name, LL(p->byte),
	       LL(group->shape.elem));
	if (c)
		plainf("; %s %lld", c->name, LL(dim - c->start));
	if (group->content.type)
		print_packed(group, dim);
	if (c && c->global_start != c->start)
		plainf(", %lld in the model", LL(c->global_start + dim - c->start));
	putchar('\n');
	if (group->layer_names) {
		int64_t l = p->index[KVT_AXIS_L];

		print_label("layer");
		plainf("%s", group->layer_names[l]);
		if (group->layer_ids && group->layer_ids[l] != (uint32_t)l)
			plainf(", %u in the model", (unsigned)group->layer_ids[l]);
		putchar('\n');
	}
	if (group->block_ids) {
		print_label("block");
		plainf("position %lld in the dump\n", LL(p->index[KVT_AXIS_B]));
	}
	if (group->head_start) {
		print_label("head");
		plainf("%lld on this rank\n", LL(p->index[KVT_AXIS_H]));
	}
}

static void print_tenant(const struct kvt_tenant *t, bool infinite)
{
	plainf(" %s", t->request->id);
	if (infinite && t->seen >= 0)
		plainf(" after %lld tokens", LL(t->seen));
	else if (t->token >= 0 && t->ntokens > 1)
		plainf(" tokens %lld to %lld", LL(t->token),
		       LL(t->token + t->ntokens - 1));
	else if (t->token >= 0)
		plainf(" token %lld", LL(t->token));
}

static void print_tenants(const struct kvt_snapshot *s, const struct kvt_where *p)
{
	static const char *const text[] = {
		[KVT_HOLDS_UNKNOWN] = "unknown", [KVT_HOLDS_LIVE] = "live",
		[KVT_HOLDS_STALE] = "stale: no live token",
		[KVT_HOLDS_NULL] = "null block",
	};
	bool infinite = s->group[p->group].tokens_per_slot < 1;
	enum kvt_holding holding = kvt_where_holds(s, p);
	struct kvt_tenancy at = { 0, 0 };
	struct kvt_tenant t;
	int printed = 0;

	print_label("holds");
	plainf("%s", text[holding]);
	while (holding != KVT_HOLDS_NULL && kvt_next_tenant(&t, &at, s, p)) {
		putchar(printed++ ? ',' : ':');
		print_tenant(&t, infinite);
	}
	if (holding == KVT_HOLDS_UNKNOWN && !printed)
		plainf(": no block table says which request has it");
	putchar('\n');
}

static void print_tile(struct kvt_dump *dump, const struct kvt_where *p)
{
	struct kvt_tile_place tile;

	if (!kvt_where_tile(&tile, dump, p))
		return;
	print_label("tile");
	for (int a = 0; a < KVT_NAXES; a++)
		plainf("%s%c %lld", a ? " " : "", kvt_axis_letter((enum kvt_axis)a),
		       LL(tile.begin[a]));
	plainf(", byte %lld of %lld when decoded\n", LL(tile.byte), LL(tile.nbytes));
}

static void print_region(const struct kvt_snapshot *s, const struct kvt_where *p)
{
	print_label("is");
	if (p->region == KVT_HEADER)
		plainf("header of the file: data begins at byte %lld\n", LL(p->begin));
	else if (p->region == KVT_BEYOND)
		plainf("beyond the data, which ends at byte %lld\n", LL(p->end));
	else if (p->region == KVT_PADDING)
		plainf("padding of a page: layer %lld, block %llu, byte %lld of %lld\n",
		       LL(p->index[KVT_AXIS_L]), (unsigned long long)kvt_block_id(
			       &s->group[p->group], p->index[KVT_AXIS_B]),
		       LL(p->byte),
		       LL(s->group[p->group].page_bytes));
	else
		puts("a gap between the data of the file");
}

void where_text(const char *path, struct kvt_dump *dump, const struct where_answer *a)
{
	const struct kvt_snapshot *s = kvt_dump_snapshot(dump);
	const struct kvt_whereabouts *is = &a->is;

	plainf("%s: %s %s\n", path, a->option, a->query);
	if (is->in_files)
		print_offset(dump, KVT_FILES, is->file, is->file_offset);
	if (is->in_memory)
		print_offset(dump, KVT_MEMORY, is->tensor, is->memory_offset);
	if (is->place.region != KVT_ELEMENT) {
		print_region(s, &is->place);
		return;
	}
	print_coordinate(s, &is->place);
	print_element(s, &is->place);
	print_tenants(s, &is->place);
	print_tile(dump, &is->place);
}

/* ---- JSON --------------------------------------------------------------- */

static void put_offsets(struct json_out *out, json_t *o, struct kvt_dump *dump,
			const struct kvt_whereabouts *a)
{
	bool stored = a->in_files && a->file >= 0;

	json_put_text(out, o, "file", stored ?
		      kvt_dump_buffer_name(dump, KVT_FILES, a->file) : NULL);
	json_put_known(out, o, "offset", a->file_offset, stored);
	json_put_text(out, o, "tensor", a->in_memory ?
		      kvt_dump_buffer_name(dump, KVT_MEMORY, a->tensor) : NULL);
	json_put_known(out, o, "memory_offset", a->memory_offset, a->in_memory);
}

static void put_tenants(struct json_out *out, json_t *o, const struct kvt_snapshot *s,
			const struct kvt_where *p)
{
	enum kvt_holding holding = kvt_where_holds(s, p);
	struct kvt_tenancy at = { 0, 0 };
	struct kvt_tenant t;
	json_t *list;

	json_put_text(out, o, "holds", kvt_holding_name(holding));
	list = json_put_array(out, o, "requests");
	while (holding != KVT_HOLDS_NULL && kvt_next_tenant(&t, &at, s, p)) {
		json_t *row = json_append_object(out, list);

		json_put_text(out, row, "id", t.request->id);
		json_put_known(out, row, "token", t.token, t.token >= 0);
		json_put_known(out, row, "tokens", t.ntokens, t.token >= 0);
		json_put_known(out, row, "seen", t.seen, t.seen >= 0);
	}
}

static void put_tile(struct json_out *out, json_t *o, struct kvt_dump *dump,
		     const struct kvt_where *p)
{
	struct kvt_tile_place tile;

	if (!(o = json_put_if(out, o, "tile", kvt_where_tile(&tile, dump, p))))
		return;
	json_put_axes(out, o, "begin", tile.begin);
	json_put_int(out, o, "byte", tile.byte);
	json_put_int(out, o, "bytes", tile.nbytes);
}

/* The id in the pool, and where the dump has it. */
static void put_block(struct json_out *out, json_t *o, const struct kvt_group *group,
		      int64_t b)
{
	int64_t id = (int64_t)kvt_block_id(group, b);

	json_put_int(out, o, "block", id);
	json_put_known(out, o, "block_id", id, group->block_ids);
	json_put_int(out, o, "position", b);
}

static void put_part(struct json_out *out, json_t *o, const struct kvt_group *group,
		     int64_t dim)
{
	const struct kvt_component *c = kvt_where_component(group, dim);

	json_put_text(out, o, "part", c ? c->name : NULL);
	json_put_known(out, o, "part_dim", c ? dim - c->start : 0, c);
	json_put_known(out, o, "global_dim", c ? c->global_start + dim - c->start : 0, c);
}

/* The same of packed content, whose parts are fields. */
static void put_field(struct json_out *out, json_t *o, const struct kvt_group *group,
		      int64_t byte)
{
	struct kvt_packing packing = kvt_group_packing(group);
	struct kvt_packed_element at = { 0, 0, 0 };
	bool found = kvt_packing_find(&at, &packing, byte);

	json_put_text(out, o, "part", found ? packing.field[at.field].name : NULL);
	json_put_known(out, o, "part_dim", at.element, found);
	json_put_known(out, o, "row", at.row, found);
}

static void put_element(struct json_out *out, json_t *o, struct kvt_dump *dump,
			const struct kvt_where *p)
{
	const struct kvt_group *group = &kvt_dump_snapshot(dump)->group[p->group];
	const int64_t *i = p->index;

	json_put_text(out, o, "group", group->id);
	json_put_int(out, o, "layer", i[KVT_AXIS_L]);
	json_put_text(out, o, "layer_name", group->layer_names ?
		      group->layer_names[i[KVT_AXIS_L]] : NULL);
	json_put_known(out, o, "layer_id", group->layer_ids ?
		       group->layer_ids[i[KVT_AXIS_L]] : 0, group->layer_ids);
	put_block(out, o, group, i[KVT_AXIS_B]);
	json_put_int(out, o, "slot", i[KVT_AXIS_S]);
	json_put_old(out, o, "state", "slot");
	json_put_int(out, o, "head", group->head_start + i[KVT_AXIS_H]);
	json_put_int(out, o, "local_head", i[KVT_AXIS_H]);
	json_put_text(out, o, "kv", kvt_group_half(group) >= 0 ?
		      group->component[0].name : group->shape.n[KVT_AXIS_K] < 2 ?
		      NULL : i[KVT_AXIS_K] ? "v" : "k");
	json_put_int(out, o, "dim", i[KVT_AXIS_D]);
	json_put_int(out, o, "byte", p->byte);
	if (group->content.type)
		put_field(out, o, group, i[KVT_AXIS_D]);
	else
		put_part(out, o, group, i[KVT_AXIS_D]);
	put_tenants(out, o, kvt_dump_snapshot(dump), p);
	put_tile(out, o, dump, p);
}

static void put_page(struct json_out *out, json_t *o, const struct kvt_snapshot *s,
		     const struct kvt_where *p)
{
	const struct kvt_group *group = &s->group[p->group];

	json_put_text(out, o, "group", group->id);
	json_put_int(out, o, "layer", p->index[KVT_AXIS_L]);
	put_block(out, o, group, p->index[KVT_AXIS_B]);
	json_put_int(out, o, "page_byte", p->byte);
}

void where_json(struct json_out *out, const char *path, struct kvt_dump *dump,
		const struct where_answer *answer, int n)
{
	static const char *const regions[] = {
		[KVT_ELEMENT] = "element", [KVT_HEADER] = "header",
		[KVT_PADDING] = "padding", [KVT_GAP] = "gap", [KVT_BEYOND] = "beyond",
	};
	json_t *list;

	json_start(out);
	json_put_text(out, out->root, "file", path);
	json_put_text(out, out->root, "format", kvt_dump_format(dump));
	list = json_put_array(out, out->root, "matches");
	for (int i = 0; i < n; i++) {
		const struct kvt_where *place = &answer[i].is.place;
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "option", answer[i].option);
		json_put_text(out, o, "query", answer[i].query);
		json_put_text(out, o, "region", regions[place->region]);
		put_offsets(out, o, dump, &answer[i].is);
		if (place->region == KVT_ELEMENT)
			put_element(out, o, dump, place);
		else if (place->region == KVT_PADDING)
			put_page(out, o, kvt_dump_snapshot(dump), place);
	}
	json_put_old(out, out->root, "places", "matches");
}
