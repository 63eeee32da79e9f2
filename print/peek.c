/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peek.c - the first numbers of some places, as describe --peek prints them
 *
 *	  g0        layer 3, block 13, slot 2, head 0, keys
 *	  values    bfloat16 from 0: -0.265625 0.007720947 -1.382812 ...
 *
 *	{"group": "g0", "layer": 3, "block": 13, .., "slot": 2, .., "component": "keys",
 *	 .., "raw": null, "fields": [{"name": "values", "dtype": .., .., "values": [..]}]}
 *
 * Of packed content there is a line, or an object, for each field.  "raw" is why there
 * are bytes and no numbers; null: there are.
 */
#include "print/out/say.h"
#include "print/describe.h"

static bool is_page(const struct kvt_peek *peek)
{
	return peek->group->content.type && peek->group->content.type->planar;
}

void peeks_text(const struct kvt_peeks *peeks)
{
	for (int i = 0; i < peeks->n; i++) {
		const struct kvt_peek *p = &peeks->peek[i];
		const int64_t *at = p->run.place.index;

		plainf("\n  %-10slayer %lld, block %llu, slot %lld, head %lld, %s",
		       p->group->id, LL(at[KVT_AXIS_L]),
		       (unsigned long long)kvt_block_id(p->group, at[KVT_AXIS_B]),
		       LL(at[KVT_AXIS_S]), LL(p->group->head_start + at[KVT_AXIS_H]),
		       kvt_component_name(p->group, at[KVT_AXIS_K]));
		if (is_page(p))
			plainf(", row %lld", LL(p->run.row));
		puts(p->raw.text[0] ? ", as bytes:" : "");
		if (p->raw.text[0]) {
			print_label("");
			plainf("%s\n", p->raw.text);
		}
		for (int j = 0; j < p->nfields; j++) {
			const struct kvt_peek_field *g = &p->field[j];

			print_label(g->name);
			plainf("%s", g->dtype);
			if (g->turn > 1)
				plainf(" decoded, rotation of %lld undone,", LL(g->turn));
			else if (g->turn)
				plainf(" decoded, not rotated,");
			plainf(" from %lld:", LL(g->first));
			for (int64_t v = 0; v < g->count; v++)
				plainf(" %.7g", g->value[v]);
			putchar('\n');
		}
	}
}

static void put_field(struct json_out *out, json_t *o, const struct kvt_peek_field *g)
{
	json_t *list;

	json_put_text(out, o, "name", g->name);
	json_put_text(out, o, "dtype", g->dtype);
	json_put_known(out, o, "turn", g->turn, g->turn > 0);
	json_put_int(out, o, "first", g->first);
	list = json_put_array(out, o, "values");
	for (int64_t i = 0; i < g->count; i++)
		json_append_real(out, list, g->value[i]);
}

void peeks_json(struct json_out *out, const struct kvt_peeks *peeks)
{
	json_t *list = json_put_array(out, out->root, "peeks");

	for (int i = 0; i < peeks->n; i++) {
		const struct kvt_peek *p = &peeks->peek[i];
		const int64_t *at = p->run.place.index;
		json_t *o = json_append_object(out, list), *fields;

		json_put_text(out, o, "group", p->group->id);
		json_put_int(out, o, "layer", at[KVT_AXIS_L]);
		json_put_int(out, o, "block",
			     (int64_t)kvt_block_id(p->group, at[KVT_AXIS_B]));
		json_put_int(out, o, "position", at[KVT_AXIS_B]);
		json_put_int(out, o, "slot", at[KVT_AXIS_S]);
		json_put_old(out, o, "state", "slot");
		json_put_int(out, o, "head", p->group->head_start + at[KVT_AXIS_H]);
		json_put_text(out, o, "component",
			      kvt_component_name(p->group, at[KVT_AXIS_K]));
		json_put_int(out, o, "row", p->run.row);
		json_put_text(out, o, "raw", p->raw.text[0] ? p->raw.text : NULL);
		fields = json_put_array(out, o, "fields");
		for (int j = 0; j < p->nfields; j++)
			put_field(out, json_append_object(out, fields), &p->field[j]);
	}
}
