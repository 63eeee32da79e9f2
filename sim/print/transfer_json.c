/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_json.c - the figures of a plan as JSON
 *
 *	{"model": .., "tokens": 2048, .., "best_layout": {"layout": "bhlsc", ..},
 *	 "groups": [{"group": "attn", .., "src": {"layout": "LBHSC", "ranks": 1, ..},
 *	   "dst": {..}, "bytes": 268435456, .., "scopes": {"max": {"ops": 8192, ..,
 *	     "histogram": [{"from_bytes": 32768, "ops": 8192}],
 *	     "breaks": [{"axis": "block", "because": "source", "ops": 8128}]}, ..},
 *	   "rank_pairs": [{"src_rank": 0, "dst_rank": 0, "parts": [..], "bytes": ..,
 *	     "ops_max": 4096, "ops_rfc": 4096, "ops_layer": 4096}]}]}
 *
 * All scopes are there, whichever --scope names; "histogram" is by powers of two.
 */
#include "sim/print/transfer.h"

static void put_side(struct json_out *out, json_t *object, const char *key,
		     const struct kvt_xfer_side *side, const struct kvt_layout *layout)
{
	json_t *o = json_put_object(out, object, key);
	const struct kvt_shape *shape = &side->views.view[0].shape;
	bool state = side->spec.tokens_per_slot.num < 0;

	json_put_text(out, o, "layout", kvt_layout_string(layout).s);
	json_put_int(out, o, "ranks", side->ranks);
	json_put_int(out, o, "dcp_size", side->deal > 1 ? side->deal : 1);
	json_put_int(out, o, "dcp_rank", side->deal_rank);
	json_put_int(out, o, "block_slots", state ? 1 : shape->n[KVT_AXIS_S]);
	json_put_old(out, o, "block_states", "block_slots");
	json_put_int(out, o, "pool_blocks", shape->n[KVT_AXIS_B]);
	json_put_int(out, o, "heads", shape->n[KVT_AXIS_H]);
	json_put_text(out, o, "replica_map",
		      side->replicas == KVT_MODULO ? "modulo" : "grouped");
}

static void put_sizes(struct json_out *out, json_t *object, const struct kvt_sizes *sizes)
{
	json_t *list = json_put_array(out, object, "histogram");
	int64_t bins[64] = { 0 };

	for (int i = 0; i < sizes->n; i++)
		bins[63 - __builtin_clzll((unsigned long long)sizes->bin[i].size)] +=
			sizes->bin[i].count;
	for (int i = 0; i < 63; i++) {
		json_t *bin;

		if (!bins[i])
			continue;
		bin = json_append_object(out, list);
		json_put_int(out, bin, "from_bytes", (int64_t)1 << i);
		json_put_int(out, bin, "ops", bins[i]);
	}
}

static void put_breaks(struct json_out *out, json_t *object, const struct kvt_tally *t)
{
	static const char *const why[] = {
		[KVT_BREAK_SOURCE] = "source", [KVT_BREAK_DESTINATION] = "destination",
		[KVT_BREAK_BOTH] = "both", [KVT_BREAK_SCOPE] = "scope",
	};
	json_t *list = json_put_array(out, object, "breaks");

	for (int a = 0; a < KVT_NAXES; a++)
		for (int w = 0; w < KVT_NBREAKS; w++) {
			json_t *o;

			if (!t->breaks[a][w])
				continue;
			o = json_append_object(out, list);
			json_put_text(out, o, "axis", kvt_axis_name((enum kvt_axis)a));
			json_put_text(out, o, "because", why[w]);
			json_put_int(out, o, "ops", t->breaks[a][w]);
		}
}

static void put_scope(struct json_out *out, json_t *object, enum kvt_scope scope,
		      const struct kvt_figures *f)
{
	json_t *o = json_put_object(out, object, kvt_scope_name(scope));
	int64_t ops = f->tally.ops;

	json_put_int(out, o, "ops", ops);
	json_put_int(out, o, "op_min", kvt_sizes_at(&f->sizes, 0));
	json_put_int(out, o, "op_median", kvt_sizes_at(&f->sizes, (ops - 1) / 2));
	json_put_int(out, o, "op_p95", kvt_sizes_at(&f->sizes, ops - 1 - (ops - 1) / 20));
	json_put_int(out, o, "op_max", kvt_sizes_at(&f->sizes, ops - 1));
	json_put_int(out, o, "pair_ops_min", f->least);
	json_put_int(out, o, "pair_ops_max", f->most);
	put_sizes(out, o, &f->sizes);
	put_breaks(out, o, &f->tally);
}

/* Three counts a pair; their sums stand in the scopes. */
static enum kvt_status put_pairs(struct json_out *out, json_t *object,
				 const struct kvt_transfer_group *g,
				 struct kvt_error *err)
{
	json_t *list = json_put_array(out, object, "rank_pairs");
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;
	struct kvt_nest nest;
	enum kvt_status status;

	while (kvt_pair_next(&pair, &walk, &g->xfer)) {
		json_t *o = json_append_object(out, list), *parts;

		json_put_int(out, o, "src_rank", pair.src_rank);
		json_put_int(out, o, "dst_rank", pair.dst_rank);
		parts = json_put_array(out, o, "parts");
		for (int i = 0; i < pair.exchange.count; i++) {
			const struct kvt_exchange_range *r = &pair.exchange.range[i];
			json_t *part = json_append_object(out, parts);

			json_put_text(out, part, "name", r->part);
			json_put_int(out, part, "src", r->src);
			json_put_int(out, part, "dst", r->dst);
			json_put_int(out, part, "count", r->count);
		}
		if ((status = kvt_nest_init(&nest, &g->xfer, &pair, err)))
			return status;
		for (int s = 0; s < KVT_NSCOPES; s++) {
			struct kvt_tally t = { 0 };

			if ((status = kvt_pair_tally(&t, NULL, &nest, s, err)))
				return status;
			if (!s)
				json_put_int(out, o, "bytes", t.bytes);
			json_put_int(out, o, (const char *[]){ "ops_max", "ops_rfc",
				     "ops_layer" }[s], t.ops);
		}
	}
	return KVT_OK;
}

static enum kvt_status put_group(struct json_out *out, json_t *list,
				 const struct plan_report *r, int g,
				 struct kvt_error *err)
{
	const struct kvt_transfer_group *group = &r->all.transfer->group[g];
	const struct kvt_xfer *x = &group->xfer;
	json_t *o = json_append_object(out, list), *scopes;
	int64_t bytes, unique;
	enum kvt_status status = kvt_xfer_nbytes(&bytes, &unique, x, err);

	if (status)
		return status;
	json_put_text(out, o, "group", group->name);
	json_put_text(out, o, "kind", kvt_kind_name(x->src.spec.kind));
	json_put_int(out, o, "layers", x->layers);
	json_put_int(out, o, "slots", x->slots);
	json_put_old(out, o, "states", "slots");
	json_put_int(out, o, "entries", x->nentries);
	put_side(out, o, "src", &x->src, &group->src_layout);
	put_side(out, o, "dst", &x->dst, &group->dst_layout);
	json_put_int(out, o, "bytes", bytes);
	json_put_int(out, o, "unique_bytes", unique);
	json_put_int(out, o, "pairs", r->all.figures[g][0].pairs);
	scopes = json_put_object(out, o, "scopes");
	for (int s = 0; s < KVT_NSCOPES; s++)
		put_scope(out, scopes, (enum kvt_scope)s, &r->all.figures[g][s]);
	return put_pairs(out, o, group, err);
}

static void put_best(struct json_out *out, const struct plan_report *r)
{
	json_t *o = json_put_object(out, out->root, "best_layout");

	json_put_text(out, o, "layout", r->best_layout);
	json_put_text(out, o, "scope", kvt_scope_name(r->scope));
	json_put_int(out, o, "ops", r->best_ops);
}

enum kvt_status plan_json(const struct plan_report *r, struct kvt_error *err)
{
	struct json_out out;
	json_t *list;
	enum kvt_status status = KVT_OK;

	json_start(&out);
	json_put_text(&out, out.root, "model", r->all.transfer->model);
	json_put_int(&out, out.root, "requests", r->all.transfer->requests);
	json_put_int(&out, out.root, "tokens", r->all.transfer->tokens);
	json_put_text(&out, out.root, "partial",
		      r->all.transfer->whole ? "whole" : "valid");
	if (r->best_layout)
		put_best(&out, r);
	list = json_put_array(&out, out.root, "groups");
	for (int g = 0; !status && g < r->all.transfer->ngroups; g++)
		status = put_group(&out, list, r, g, err);
	if (!status)
		status = json_print(&out, false, err);
	json_free(&out);
	return status;
}
