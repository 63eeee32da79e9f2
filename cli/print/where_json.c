/* SPDX-License-Identifier: Apache-2.0 */
/* where_json.c - the same answers as one object; its keys are in kvtool-json(5) */
#include "lib/ops/where/where.h"

static void put_known(struct json_out *out, json_t *object, const char *key,
		      int64_t n, bool known)
{
	json_put(out, object, key, known ? json_integer(n) : json_null());
}

static void put_offsets(struct json_out *out, json_t *o, const struct where *w,
			const struct answer *a)
{
	bool stored = a->in_files && a->file >= 0;

	json_put_text(out, o, "file", stored ?
		      kvt_dump_buffer_name(w->reader, KVT_FILES, a->file) : NULL);
	put_known(out, o, "offset", a->file_offset, stored);
	json_put_text(out, o, "tensor", a->in_memory ?
		      kvt_dump_buffer_name(w->reader, KVT_MEMORY, a->tensor) : NULL);
	put_known(out, o, "memory_offset", a->memory_offset, a->in_memory);
}

static void put_tenants(struct json_out *out, json_t *o, const struct where *w,
			const struct kvt_place *p)
{
	enum holding holding = where_holds(w->snapshot, p);
	struct tenancy at = { 0, 0 };
	struct tenant t;
	json_t *list;

	json_put_text(out, o, "holds", where_holding_name(holding));
	list = json_put_array(out, o, "requests");
	while (holding != HOLDS_NULL && where_next_tenant(&t, &at, w->snapshot, p)) {
		json_t *row = json_append_object(out, list);

		json_put_text(out, row, "id", t.request->id);
		put_known(out, row, "token", t.token, t.token >= 0);
		put_known(out, row, "tokens", t.ntokens, t.token >= 0);
		put_known(out, row, "seen", t.seen, t.seen >= 0);
	}
}

static void put_tile(struct json_out *out, json_t *o, const struct where *w,
		     const struct kvt_place *p)
{
	struct tile_place tile;
	json_t *object, *begin;

	if (!where_tile(&tile, w, p)) {
		json_put(out, o, "tile", json_null());
		return;
	}
	object = json_put_object(out, o, "tile");
	begin = json_put_object(out, object, "begin");
	for (int a = 0; a < KVT_NAXES; a++) {
		const char letter[] = { kvt_axis_letter((enum kvt_axis)a), '\0' };

		json_put_int(out, begin, letter, tile.begin[a]);
	}
	json_put_int(out, object, "byte", tile.byte);
	json_put_int(out, object, "bytes", tile.nbytes);
}

/* The id in the pool, and where the dump has it. */
static void put_block(struct json_out *out, json_t *o, const struct kvt_group *group,
		      int64_t b)
{
	int64_t id = (int64_t)kvt_block_id(group, b);

	json_put_int(out, o, "block", id);
	put_known(out, o, "block_id", id, group->block_ids);
	json_put_int(out, o, "position", b);
}

static void put_part(struct json_out *out, json_t *o, const struct kvt_group *group,
		     int64_t dim)
{
	const struct kvt_component *c = where_part(group, dim);

	json_put_text(out, o, "part", c ? c->name : NULL);
	put_known(out, o, "part_dim", c ? dim - c->start : 0, c);
	put_known(out, o, "global_dim", c ? c->global_start + dim - c->start : 0, c);
}

/* The same of packed content, whose parts are fields. */
static void put_field(struct json_out *out, json_t *o, const struct kvt_group *group,
		      int64_t byte)
{
	struct kvt_packing packing = kvt_group_packing(group);
	struct kvt_packed_place at = { 0, 0, 0 };
	bool found = kvt_packing_find(&at, &packing, byte);

	json_put_text(out, o, "part", found ? packing.field[at.field].name : NULL);
	put_known(out, o, "part_dim", at.element, found);
	put_known(out, o, "row", at.row, found);
}

static void put_element(struct json_out *out, json_t *o, const struct where *w,
			const struct kvt_place *p)
{
	const struct kvt_group *group = &w->snapshot->group[p->group];
	const int64_t *i = p->index;

	json_put_text(out, o, "group", group->id);
	json_put_int(out, o, "layer", i[KVT_AXIS_L]);
	json_put_text(out, o, "layer_name", group->layer_names ?
		      group->layer_names[i[KVT_AXIS_L]] : NULL);
	put_known(out, o, "layer_id", group->layer_ids ?
		  group->layer_ids[i[KVT_AXIS_L]] : 0, group->layer_ids);
	put_block(out, o, group, i[KVT_AXIS_B]);
	json_put_int(out, o, "state", i[KVT_AXIS_S]);
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
	put_tenants(out, o, w, p);
	put_tile(out, o, w, p);
}

static void put_page(struct json_out *out, json_t *o, const struct where *w,
		     const struct kvt_place *p)
{
	const struct kvt_group *group = &w->snapshot->group[p->group];

	json_put_text(out, o, "group", group->id);
	json_put_int(out, o, "layer", p->index[KVT_AXIS_L]);
	put_block(out, o, group, p->index[KVT_AXIS_B]);
	json_put_int(out, o, "page_byte", p->byte);
}

void where_json(struct json_out *out, const struct where *w,
		const struct answer *answer, int n)
{
	static const char *const regions[] = {
		[KVT_ELEMENT] = "element", [KVT_HEADER] = "header",
		[KVT_PADDING] = "padding", [KVT_GAP] = "gap", [KVT_BEYOND] = "beyond",
	};
	json_t *list;

	json_start(out);
	json_put_text(out, out->root, "file", w->path);
	json_put_text(out, out->root, "format", kvt_dump_format(w->reader));
	list = json_put_array(out, out->root, "places");
	for (int i = 0; i < n; i++) {
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "option", answer[i].option);
		json_put_text(out, o, "query", answer[i].query);
		json_put_text(out, o, "region", regions[answer[i].place.region]);
		put_offsets(out, o, w, &answer[i]);
		if (answer[i].place.region == KVT_ELEMENT)
			put_element(out, o, w, &answer[i].place);
		else if (answer[i].place.region == KVT_PADDING)
			put_page(out, o, w, &answer[i].place);
	}
}
