/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_json.c - the same facts as one object; its keys are in kvtool-json(5)
 *
 *	{"file": .., "format": "npy", .., "manifest": {"file": .., "proof": "none"}, ..,
 *	 "groups": [{"null_block": 0, "id": "g0", "kind": .., "layout": "LBSHC", ..,
 *	   "layers": 5, "blocks": 48, ..,
 *	   "memory": [{"holds": "all", "offset": 0,
 *	     "axes": [{"axis": "L", "part": "whole", "extent": 5, "stride": 98304}, ..]}],
 *	   "predicates": {..}, "tiling": null, .., "layer_names": [..], "stats": [..]}],
 *	 "requests": [{"id": "A", "tokens": 421, .., "blocks": [27]}, ..],
 *	 "saved": null, "prompts": [..], "canonical": {..}, "peeks": [..]}
 *
 * What a dump does not say is null or an empty list.  Keys are left out of content that
 * is not packed, of prompts that were not sought, and of what was not asked for: numbers
 * of the data, tables, ids of tokens, canonical, peeks.
 */
#include "lib/kvt/tile.h"
#include "lib/ops/digest/digest.h"
#include "print/describe.h"

static void put_manifest(struct json_out *out, const struct kvt_dump *dump)
{
	static const char *const proofs[] = {
		[KVT_PROOF_NONE] = "none", [KVT_PROOF_SIZE] = "size",
		[KVT_PROOF_SAMPLES] = "samples", [KVT_PROOF_HEADER] = "header",
		[KVT_PROOF_FAILED] = "failed",
	};
	enum kvt_manifest_proof proof = kvt_dump_proof(dump);
	json_t *manifest = json_put_if(out, out->root, "manifest",
				       proof != KVT_PROOF_NO_MANIFEST);

	if (!manifest)
		return;
	json_put_text(out, manifest, "file", kvt_dump_manifest(dump));
	json_put_text(out, manifest, "proof", proofs[proof]);
}

static void put_layout(struct json_out *out, json_t *group,
		       const struct kvt_layout *layout)
{
	static const char *const key[] = { [KVT_RFC] = "rfc_tuple",
					   [KVT_VLLM] = "vllm_tuple" };
	const char *name;
	json_t *list;
	int order[5];

	json_put_text(out, group, "layout", kvt_layout_string(layout).s);
	list = json_put_array(out, group, "layout_names");
	for (int i = 0; (name = kvt_layout_name(layout, i)); i++)
		json_append_text(out, list, name);
	for (int c = KVT_RFC; c <= KVT_VLLM; c++) {
		if (!kvt_layout_tuple(order, layout, (enum kvt_convention)c)) {
			json_put(out, group, key[c], json_null());
			continue;
		}
		list = json_put_array(out, group, key[c]);
		for (int i = 0; i < 5; i++)
			json_append_int(out, list, order[i]);
	}
}

static void put_view(struct json_out *out, json_t *planes, const struct kvt_order *order,
		     const struct kvt_view *view, const char *holds)
{
	static const char *const part[] = { [KVT_WHOLE] = "whole",
					    [KVT_OUTER] = "outer",
					    [KVT_INNER] = "inner" };
	json_t *plane = json_append_object(out, planes), *axes;

	json_put_text(out, plane, "holds", holds);
	json_put_int(out, plane, "offset", view->offset);
	axes = json_put_array(out, plane, "axes");
	for (int i = 0; i < order->nparts; i++) {
		const struct kvt_factor *f = &view->factor[i];
		const char letter[] = { kvt_axis_letter(f->axis), '\0' };
		json_t *axis = json_append_object(out, axes);

		json_put_text(out, axis, "axis", letter);
		json_put_text(out, axis, "part", part[order->part[i].kind]);
		json_put_int(out, axis, "extent", f->n);
		json_put_int(out, axis, "stride", f->stride);
	}
}

static void put_memory(struct json_out *out, json_t *group,
		       const struct kvt_group_facts *f)
{
	const struct kvt_layout *layout = &f->group->layout;
	json_t *planes = json_put_array(out, group, "memory");

	for (int i = 0; i < f->views.count; i++) {
		int plane = layout->nplanes == 2 ? f->views.first_k + i : 0;

		put_view(out, planes, &layout->plane[plane], &f->views.view[i],
			 layout->nplanes == 1 ? "all" : plane ? "values" : "keys");
	}
}

static void put_predicates(struct json_out *out, json_t *group,
			   const struct kvt_predicates *is)
{
	json_t *o = json_put_object(out, group, "predicates");

	json_put_bool(out, o, "layer_compact", is->layer_compact);
	json_put_bool(out, o, "block_compact", is->block_compact);
	json_put_bool(out, o, "block_contiguous", is->block_contiguous);
	json_put_bool(out, o, "block_outermost", is->block_outermost);
	json_put_bool(out, o, "head_run", is->head_run);
	json_put_bool(out, o, "kernel_split_neutral", is->kernel_split_neutral);
	json_put_known(out, o, "kv_position", is->kv_position, is->kv_position >= 0);
}

static void put_tiling(struct json_out *out, json_t *group, const struct kvt_tiling *t)
{
	json_t *o = json_put_if(out, group, "tiling", t);

	if (!o)
		return;
	json_put_axes(out, o, "extents", t->n);
	json_put_int(out, o, "bytes", t->nbytes);
	json_put_bool(out, o, "shuffle", t->shuffle);
	json_put_bool(out, o, "zstd", t->zstd);
	json_put_bool(out, o, "fletcher32", t->fletcher32);
}

static void put_components(struct json_out *out, json_t *group, const struct kvt_group *g)
{
	json_t *list = json_put_array(out, group, "components");

	for (int i = 0; i < g->ncomponents; i++) {
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "name", g->component[i].name);
		json_put_int(out, o, "start", g->component[i].start);
		json_put_int(out, o, "length", g->component[i].length);
		json_put_int(out, o, "global_start", g->component[i].global_start);
	}
}

static void put_state(struct json_out *out, json_t *o, const struct kvt_group *g)
{
	int64_t shape[KVT_STATE_AXES];
	int n = kvt_group_state_shape(shape, g);

	json_put_text(out, o, "state_order", g->kind == KVT_MAMBA_SSM && g->state[0] ?
		      kvt_state_order_name(g->state_order) : NULL);
	if (n)
		json_put_ints(out, o, "state_shape", n, shape);
	else
		json_put(out, o, "state_shape", json_null());
}

static void put_shape(struct json_out *out, json_t *o, const struct kvt_group_facts *f)
{
	const struct kvt_group *g = f->group;
	const int64_t *n = g->shape.n;

	json_put_int(out, o, "layers", n[KVT_AXIS_L]);
	json_put_int(out, o, "blocks", n[KVT_AXIS_B]);
	json_put_int(out, o, "slots", n[KVT_AXIS_S]);
	json_put_old(out, o, "states", "slots");
	json_put_int(out, o, "heads", n[KVT_AXIS_H]);
	json_put_int(out, o, "kv", n[KVT_AXIS_K]);
	json_put_int(out, o, "dim", n[KVT_AXIS_D]);
	put_state(out, o, g);
	json_put_int(out, o, "block_size", g->block_size);
	json_put_known(out, o, "kernel_block_size", f->kernel_block, f->kernel_block > 0);
	json_put_int(out, o, "tokens_per_slot", g->tokens_per_slot);
	json_put_old(out, o, "tokens_per_state", "tokens_per_slot");
	json_put_int(out, o, "total_heads", g->total_heads);
	json_put_int(out, o, "head_start", g->head_start);
	json_put_int(out, o, "replication", g->replication);
	json_put_known(out, o, "window", g->window, g->window > 0);
	json_put_known(out, o, "retained_tokens", g->retained, g->retained > 0);
	json_put_text(out, o, "pool", g->pool[0] ? g->pool : NULL);
	json_put_known(out, o, "bytes_per_token", f->token_bytes, f->token_bytes > 0);
	json_put_int(out, o, "bytes_per_block", f->block_bytes);
	json_put_int(out, o, "bytes_per_layer", f->layer_bytes);
	json_put_int(out, o, "data_bytes", f->data_bytes);
	json_put_known(out, o, "page_bytes", g->page_bytes, g->page_bytes > 0);
	json_put_known(out, o, "page_offset", g->page_offset, g->page_bytes > 0);
	json_put_known(out, o, "alignment", f->alignment, f->alignment > 0);
}

/* What of the numbers of blocks is rotated. */
static void put_turn(struct json_out *out, json_t *o, const struct kvt_packing *packing,
		     const struct kvt_field *field)
{
	if (field->block && field->role == KVT_FIELD_VALUES)
		json_put_ints(out, o, "turn", 2, packing->turn);
	else
		json_put(out, o, "turn", json_null());
}

static void put_fields(struct json_out *out, json_t *group, const struct kvt_group *g)
{
	struct kvt_packing packing;
	json_t *list, *words;

	if (!g->content.type)
		return;
	packing = kvt_group_packing(g);
	json_put_int(out, group, "rows", packing.rows);
	json_put_int(out, group, "row_values", packing.row_values);
	json_put_int(out, group, "row_tokens", packing.row_tokens);
	words = json_put_object(out, group, "called");
	json_put_text(out, words, "vllm", g->content.type->vllm);
	json_put_text(out, words, "sglang", g->content.type->sglang);
	json_put_text(out, words, "kernels", g->content.type->kernels);
	list = json_put_array(out, group, "fields");
	for (int i = 0; i < packing.nfields; i++) {
		const struct kvt_field *field = &packing.field[i];
		json_t *o = json_append_object(out, list);
		enum kvt_rotation rotation;

		json_put_text(out, o, "name", field->name);
		json_put_text(out, o, "dtype", field->type);
		json_put_int(out, o, "count", field->count);
		json_put_int(out, o, "offset", field->at);
		json_put_int(out, o, "stride", field->stride);
		json_put_known(out, o, "block", field->block, field->block > 0);
		json_put_known(out, o, "step", field->step, field->block > 0);
		json_put_bool(out, o, "high", field->high);
		put_turn(out, o, &packing, field);
		json_put_text(out, o, "scale", field->scale < 0 ? NULL :
			      packing.field[field->scale].name);
		json_put_text(out, o, "added", field->added < 0 ? NULL :
			      packing.field[field->added].name);
		json_put_text(out, o, "product", field->product ?
			      field->product->name : NULL);
		json_put_text(out, o, "result", field->result ?
			      field->result->name : NULL);
		rotation = field->block && field->role == KVT_FIELD_VALUES ?
			   kvt_packing_rotation(&packing) : field->rotation;
		json_put_text(out, o, "rotation", rotation ?
			      kvt_rotation_name(rotation) : NULL);
	}
}

static void put_blocks(struct json_out *out, json_t *o, const struct kvt_group_facts *f,
		       bool tables)
{
	const struct kvt_group *g = f->group;
	int64_t nblocks = g->shape.n[KVT_AXIS_B];
	json_t *list;

	json_put_known(out, o, "blocks_used", f->blocks_used, f->blocks_used >= 0);
	json_put_known(out, o, "blocks_shared", f->blocks_shared, f->blocks_used >= 0);
	json_put_known(out, o, "blocks_unused", f->blocks_unused, f->blocks_used >= 0);
	json_put_known(out, o, "valid_slots", f->valid_slots, f->valid_slots >= 0);
	json_put_old(out, o, "valid_states", "valid_slots");
	if (tables && g->block_ids) {
		list = json_put_array(out, o, "block_ids");
		for (int64_t b = 0; b < nblocks; b++)
			json_append_int(out, list, (int64_t)g->block_ids[b]);
	}
	if (tables && g->block_valid) {
		list = json_put_array(out, o, "block_valid");
		for (int64_t b = 0; b < nblocks; b++)
			json_append_int(out, list, g->block_valid[b]);
	}
	if (tables && g->block_names) {
		list = json_put_array(out, o, "block_names");
		for (int64_t b = 0; b < nblocks; b++)
			json_append_text(out, list, g->block_names[b]);
	}
}

static void put_layers(struct json_out *out, json_t *o, const struct kvt_group *g)
{
	json_t *list = json_put_array(out, o, "layer_names");

	for (int64_t l = 0; g->layer_names && l < g->shape.n[KVT_AXIS_L]; l++)
		json_append_text(out, list, g->layer_names[l]);
	list = json_put_array(out, o, "layer_ids");
	for (int64_t l = 0; g->layer_ids && l < g->shape.n[KVT_AXIS_L]; l++)
		json_append_int(out, list, g->layer_ids[l]);
}

static void put_moments(struct json_out *out, json_t *o, const struct kvt_group_facts *f)
{
	const int64_t *n = f->group->shape.n;
	int64_t heads = n[KVT_AXIS_H], kv = n[KVT_AXIS_K];
	json_t *list = json_put_array(out, o, "stats");

	for (int64_t i = 0; i < n[KVT_AXIS_L] * heads * kv; i++) {
		const struct kvt_moments *m = &f->moments[i];
		json_t *row = json_append_object(out, list);

		json_put_int(out, row, "layer", i / (heads * kv));
		json_put_int(out, row, "head", f->group->head_start + i / kv % heads);
		json_put_text(out, row, "component", kvt_component_name(f->group,
									i % kv));
		json_put_real(out, row, "min", m->min);
		json_put_real(out, row, "max", m->max);
		json_put_real(out, row, "mean", m->mean);
		json_put_real(out, row, "std", kvt_standard_deviation(m));
		json_put_int(out, row, "nan", m->nan);
		json_put_int(out, row, "inf", m->inf);
		json_put_int(out, row, "zero_blocks", m->zero_blocks);
	}
}

static void put_odd(struct json_out *out, json_t *o, const struct kvt_group_facts *f,
		    const struct kvt_odd *odd)
{
	json_put_int(out, o, "nan", odd->nan);
	json_put_int(out, o, "inf", odd->inf);
	json_put_int(out, o, "slots", odd->slots);
	json_put_text(out, o, "first", odd->slots ?
		      kvt_odd_at(f->numbers, f->group, odd).s : NULL);
}

static void put_numbers(struct json_out *out, json_t *o, const struct kvt_group_facts *f)
{
	static const char *const names[] = {
		[KVT_DUTY_UNKNOWN] = "unknown", [KVT_DUTY_LIVE] = "live",
		[KVT_DUTY_LEFT] = "left", [KVT_DUTY_STALE] = "stale",
		[KVT_DUTY_NULL] = "null",
	};
	const struct kvt_odd total = kvt_odd_total(f->numbers);
	json_t *list = json_put_object(out, o, "nonfinite");

	put_odd(out, list, f, &total);
	for (int d = 0; d < KVT_NDUTIES; d++)
		put_odd(out, json_put_object(out, list, names[d]), f, &f->numbers->by[d]);
}

void strange_json(struct json_out *out, json_t *list, const struct kvt_strange *s)
{
	json_t *o = json_append_object(out, list);

	json_put_text(out, o, "name", kvt_strange_name(s->kind));
	json_put_text(out, o, "sure", kvt_sure_name(s->sure));
	json_put_real(out, o, "score", s->score);
	json_put_text(out, o, "at", s->at);
	json_put_text(out, o, "problem", s->text);
}

static void put_measure(struct json_out *out, json_t *o, const char *key,
			const double *of, int64_t n)
{
	json_t *list = json_put_array(out, o, key);

	for (int64_t i = 0; i < n; i++)
		json_append_real(out, list, of[i]);
}

/* Measures are of layers, in them of keys and values, in these of heads. */
static void put_strange(struct json_out *out, json_t *o, const struct kvt_group_facts *f)
{
	const struct kvt_strangeness *s = f->strange;
	const int64_t *n = f->group->shape.n;
	json_t *strange = json_put_object(out, o, "strange"), *list;

	json_put_int(out, strange, "slots", s->tokens);
	json_put_int(out, strange, "elements", s->elements);
	json_put_int(out, strange, "largest", s->top);
	json_put_int(out, strange, "next_to_largest", s->below);
	json_put_known(out, strange, "turns_with", s->apart, s->measured);
	if (s->measured) {
		int64_t all = n[KVT_AXIS_L] * n[KVT_AXIS_K] * n[KVT_AXIS_H];

		put_measure(out, strange, "turning", s->turning, all);
		put_measure(out, strange, "unit", s->unit, all);
	}
	json_put_int(out, strange, "count", s->count);
	list = json_put_array(out, strange, "findings");
	for (int i = 0; i < s->n; i++)
		strange_json(out, list, &s->found[i]);
}

static void put_verified(struct json_out *out, json_t *o, const struct kvt_group_facts *f)
{
	const struct kvt_integrity *v = f->integrity;
	json_t *verify = json_put_object(out, o, "verify"), *list;

	json_put_int(out, verify, "tiles", v->tiles);
	json_put_int(out, verify, "tiles_damaged", v->damaged);
	json_put_known(out, verify, "cells", v->cells, f->has_cells);
	json_put_known(out, verify, "cells_differing", v->differing, f->has_cells);
	list = json_put_array(out, verify, "findings");
	for (int i = 0; i < v->nfound; i++) {
		const int64_t *at = v->found[i].at;
		json_t *row = json_append_object(out, list);

		json_put_int(out, row, "layer", at[KVT_AXIS_L]);
		json_put_int(out, row, "block",
			     (int64_t)kvt_block_id(f->group, at[KVT_AXIS_B]));
		json_put_int(out, row, "position", at[KVT_AXIS_B]);
		json_put_int(out, row, "head", f->group->head_start + at[KVT_AXIS_H]);
		json_put_text(out, row, "component",
			      kvt_component_name(f->group, at[KVT_AXIS_K]));
		json_put_text(out, row, "problem", v->found[i].text);
	}
}

static void put_group(struct json_out *out, json_t *o, const struct kvt_group_facts *f,
		      const struct describe_options *options)
{
	const struct kvt_group *g = f->group;

	json_put_text(out, o, "id", g->id);
	json_put_text(out, o, "kind", kvt_kind_name(g->kind));
	json_put_text(out, o, "dtype", g->dtype->name);
	json_put_text(out, o, "content_type",
		      g->content.type ? kvt_content_name(&g->content).s : NULL);
	json_put_text(out, o, "cast", g->cast_from[0] ? kvt_group_cast_text(g).s : NULL);
	json_put_int(out, o, "element_bytes", g->shape.elem);
	put_layout(out, o, &g->layout);
	json_put_text(out, o, "indexed_layout",
		      f->indexed ? kvt_layout_string(f->indexed).s : NULL);
	put_shape(out, o, f);
	put_memory(out, o, f);
	put_predicates(out, o, &f->is);
	put_tiling(out, o, f->tiling);
	json_put_text(out, o, "checksum", f->checksum);
	json_put_bool(out, o, "content_cells", f->has_cells);
	json_put_bool(out, o, "content_cells_proven", f->cells_proven);
	put_components(out, o, g);
	put_fields(out, o, g);
	put_blocks(out, o, f, options->tables);
	put_layers(out, o, g);
	if (f->moments)
		put_moments(out, o, f);
	if (f->numbers)
		put_numbers(out, o, f);
	if (f->strange)
		put_strange(out, o, f);
	if (f->integrity)
		put_verified(out, o, f);
}

static void put_parallel(struct json_out *out, const struct kvt_snapshot *s)
{
	const struct kvt_parallel *p = &s->parallel;
	json_t *o = json_put_if(out, out->root, "parallel", s->has_parallel);

	if (!o)
		return;
	json_put_int(out, o, "tp_size", p->tp_size);
	json_put_int(out, o, "tp_rank", p->tp_rank);
	json_put_int(out, o, "pp_size", p->pp_size);
	json_put_int(out, o, "pp_rank", p->pp_rank);
	json_put_int(out, o, "dp_size", p->dp_size);
	json_put_int(out, o, "dp_rank", p->dp_rank);
	json_put_int(out, o, "dcp_size", p->dcp_size);
	json_put_int(out, o, "dcp_rank", p->dcp_rank);
}

static void put_holes(struct json_out *out, json_t *to, const struct kvt_snapshot *s,
		      const struct kvt_request *q)
{
	json_t *list = json_put_array(out, to, "holes");

	for (int64_t i = 0; i < q->nholes; i++) {
		const struct kvt_hole *h = &q->hole[i];
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "group", s->group[h->group].id);
		json_put_int(out, o, "begin", h->begin);
		json_put_int(out, o, "end", h->end);
	}
}

static void put_sought(struct json_out *out, const struct kvt_dump *dump)
{
	const struct kvt_sought *q;
	json_t *list;

	if (!kvt_dump_sought(dump, 0))
		return;
	json_put_text(out, out->root, "named_by", kvt_dump_named_by(dump));
	list = json_put_array(out, out->root, "prompts");
	for (int64_t i = 0; (q = kvt_dump_sought(dump, i)); i++) {
		json_t *o = json_append_object(out, list), *missing, *run;

		json_put_text(out, o, "request", q->prompt);
		json_put_text(out, o, "group", q->group[0] ? q->group : NULL);
		json_put_int(out, o, "tokens", q->tokens);
		json_put_int(out, o, "tokens_per_file", q->each);
		json_put_int(out, o, "files", q->files);
		json_put_int(out, o, "present", q->present);
		json_put_int(out, o, "reached", q->reached);
		missing = json_put_array(out, o, "missing");
		for (int64_t k = 0; k < q->nmissing; k++) {
			run = json_append_object(out, missing);
			json_put_int(out, run, "begin", q->missing[k].begin);
			json_put_int(out, run, "end", q->missing[k].end);
		}
	}
}

static void put_requests(struct json_out *out, const struct kvt_snapshot *s,
			 const struct describe_options *options)
{
	bool tables = options->tables;
	json_t *list = json_put_array(out, out->root, "requests");

	for (int64_t r = 0; r < s->nrequests; r++) {
		const struct kvt_request *q = &s->request[r];
		json_t *o = json_append_object(out, list), *counts, *table = NULL;

		json_put_text(out, o, "id", q->id);
		json_put_int(out, o, "tokens", q->ntokens);
		json_put_int(out, o, "first_token", q->first_token);
		put_holes(out, o, s, q);
		describe_ids_json(out, o, options->ids, r);
		counts = json_put_array(out, o, "blocks");
		if (tables)
			table = json_put_array(out, o, "block_tables");
		for (int g = 0; g < s->ngroups; g++) {
			json_t *row;

			json_append_int(out, counts, q->nblocks[g]);
			if (!tables)
				continue;
			row = json_array();
			for (int64_t i = 0; i < q->nblocks[g]; i++)
				json_append_int(out, row, (int64_t)kvt_block_id(
					&s->group[g], q->blocks[g][i]));
			json_append(out, table, row);
		}
	}
}

/* By its id in the pool: groups may number their blocks apart. */
static json_t *put_null(struct json_out *out, json_t *group, const struct kvt_snapshot *s,
			int g)
{
	int64_t null = kvt_null_block(s, g);

	json_put_known(out, group, "null_block", null < 0 ? 0 :
		       (int64_t)kvt_block_id(&s->group[g], null), null >= 0);
	return group;
}

void describe_json(struct json_out *out, const struct kvt_description *d,
		   const struct describe_options *options)
{
	const struct kvt_snapshot *s = d->snapshot;
	json_t *groups;

	json_start(out);
	json_put_text(out, out->root, "file", d->path);
	json_put_text(out, out->root, "format", kvt_dump_format(d->dump));
	json_put_int(out, out->root, "file_bytes", d->file_bytes);
	json_put_int(out, out->root, "data_bytes", d->data_bytes);
	json_put_real(out, out->root, "ratio", kvt_compression_ratio(d));
	put_manifest(out, d->dump);
	json_put_text(out, out->root, "model", s->model);
	json_put_text(out, out->root, "source_format", s->source_format);
	json_put_bool(out, out->root, "tables_proven", kvt_dump_proven(d->dump)->tables);
	json_put_bool(out, out->root, "missing_files_noticed",
		      !kvt_dump_unlisted(d->dump));
	json_put_text(out, out->root, "unnoticed", kvt_dump_unnoticed(d->dump));
	json_put_text(out, out->root, "writer", kvt_dump_written_by(d->dump));
	json_put_text(out, out->root, "decoded", kvt_dump_decoded(d->dump));
	put_parallel(out, s);
	json_put_known(out, out->root, "null_block", s->null_block < 0 ? 0 :
		       (int64_t)kvt_block_id(&s->group[0], s->null_block),
		  s->null_block >= 0 && !s->group[0].has_null);
	groups = json_put_array(out, out->root, "groups");
	for (int g = 0; g < s->ngroups; g++)
		put_group(out, put_null(out, json_append_object(out, groups), s, g),
			  &d->group[g], options);
	put_requests(out, s, options);
	describe_saved_json(out, d, options->ids);
	put_sought(out, d->dump);
	if (d->canonical)
		canonical_json(out, d->canonical);
	if (d->peeks)
		peeks_json(out, d->peeks);
}
