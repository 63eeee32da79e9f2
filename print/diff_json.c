/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_json.c - the findings for programs; kvtool-json(5) has the keys
 *
 *	{"files_a": [..], "files_b": [..], "result": "differs", .., "paired": [],
 *	 "only_one_side": [],
 *	 "groups": [{"id": "g0", .., "result": "differs", .., "by": "tokens", ..,
 *	   "tolerance": null, "metrics": {"different": 220414, .., "max_ulp": 33146, ..},
 *	   "first": {"layer": 0, .., "request": "A", "token": 0, ..,
 *	     "a": {"value": .., "bits": "0xbe9d", "block": 13, .., "offset": 26752},
 *	     "b": {..}},
 *	   "worst": [..], .., "by_head": [{"layer": 0, .., "head": 0}, ..],
 *	   "by_position": [..], "diagnosis": {"decided": "swap-kv", .., "faults": [..]}}]}
 *
 * Of maps, cells with a difference are listed and no others.  The result of the whole is
 * "differs" if that of a group is, "equal" if all are, else "within".
 */
#include <string.h>

#include "lib/run/device.h"
#include "print/diff.h"

/* ---- one element -------------------------------------------------------- */

static void put_place(struct json_out *out, json_t *dev, const struct diff_coordinates *c,
		      const struct deviation *s, const struct diff_pair *p, int side)
{
	const struct diff_address *place = &c->place[side];
	json_t *o = json_put_object(out, dev, side ? "b" : "a");
	char bits[24];

	snprintf(bits, sizeof(bits), "0x%0*llx", 2 * p->group[side]->dtype->elem,
		 (unsigned long long)s->bits[side]);
	json_put_real(out, o, "value", s->value[side]);
	json_put_text(out, o, "bits", bits);
	json_put_int(out, o, "block", c->block[side]);
	json_put_int(out, o, "position", c->position[side]);
	json_put_int(out, o, "slot", c->slot[side]);
	json_put_old(out, o, "state", "slot");
	json_put_int(out, o, "dim", place->dim);
	json_put_text(out, o, "file", place->file);
	json_put_text(out, o, "space", place->in_memory ? "memory" : "file");
	json_put_text(out, o, "buffer", place->buffer);
	json_put_known(out, o, "offset", place->offset, place->offset >= 0);
}

static void put_deviation(struct json_out *out, json_t *o, const struct diff_result *r,
			  const struct deviation *dev)
{
	struct diff_coordinates c = kvt_diff_locate(r->pair, dev);

	json_put_int(out, o, "layer", c.layer);
	json_put_text(out, o, "layer_name", c.layer_name);
	json_put_text(out, o, "request", c.request);
	json_put_known(out, o, "token", c.token, c.token >= 0);
	json_put_known(out, o, "head", c.head, c.head >= 0);
	json_put_known(out, o, "kv", c.kv, c.kv >= 0);
	json_put_int(out, o, "dim", c.dim);
	json_put_text(out, o, "page", c.page);
	json_put_real(out, o, "abs", dev->error);
	json_put_known(out, o, "ulp", (int64_t)dev->ulp, r->has_ulp);
	for (int s = 0; s < NSIDES; s++)
		put_place(out, o, &c, dev, r->pair, s);
}

/* ---- a pair ------------------------------------------------------------- */

static void put_metrics(struct json_out *out, json_t *o, const struct diff_result *r)
{
	const struct diff_sums *s = &r->sums;
	json_t *m = json_put_if(out, o, "metrics", r->measured || r->equal);

	if (!m)
		return;
	json_put_int(out, m, "different", s->unequal);
	json_put_known(out, m, "outside", s->outside, r->by_element);
	json_put_int(out, m, "nonfinite", s->nonfinite);
	json_put_int(out, m, "nonfinite_different", s->lost);
	json_put_real(out, m, "max_abs", s->max_abs);
	json_put_known(out, m, "max_ulp", (int64_t)s->max_ulp, r->has_ulp);
	json_put_real(out, m, "rel_l2", kvt_diff_rel_l2(s));
	json_put_real(out, m, "cosine", kvt_diff_cosine(s));
	json_put_real(out, m, "pcc", kvt_diff_pcc(s));
}

static void put_tolerance(struct json_out *out, json_t *o, const struct diff_tolerance *t)
{
	json_t *terms = json_put_if(out, o, "tolerance", t->given);

	for (int i = 0; terms && i < NTERMS; i++)
		if (t->has[i])
			json_put_real(out, terms, diff_term_name(i), t->value[i]);
}

static void put_heat(struct json_out *out, json_t *list, const struct heat *h,
		     int64_t layer)
{
	const struct diff_sums s = { .dd = h->dd, .aa = h->aa };
	json_t *o = json_append_object(out, list);

	json_put_int(out, o, "layer", layer);
	json_put_int(out, o, "compared", h->n);
	json_put_int(out, o, "different", h->bad);
	json_put_real(out, o, "max_abs", h->max_abs);
	json_put_real(out, o, "rel_l2", kvt_diff_rel_l2(&s));
}

/* Only cells that have a difference: the others are 0. */
static void put_maps(struct json_out *out, json_t *o, const struct diff_result *r)
{
	json_t *heads = json_put_array(out, o, "by_head");
	json_t *positions = json_put_array(out, o, "by_position"), *cell;
	int64_t nheads = r->pair->nheads;

	for (int64_t i = 0; r->measured && i < r->pair->nlayers * nheads; i++) {
		if (!r->by_head[i].bad)
			continue;
		put_heat(out, heads, &r->by_head[i], kvt_diff_layer(r, i / nheads));
		cell = json_array_get(heads, json_array_size(heads) - 1);
		json_put_int(out, cell, "head", kvt_diff_head(r, i % nheads));
	}
	for (int64_t i = 0; r->measured && i < r->pair->nlayers * r->ncolumns; i++) {
		if (!r->by_segment[i].bad)
			continue;
		put_heat(out, positions, &r->by_segment[i],
			 kvt_diff_layer(r, i / r->ncolumns));
		cell = json_array_get(positions, json_array_size(positions) - 1);
		json_put_text(out, cell, "position", column_name(r, i % r->ncolumns).s);
	}
}

static void put_struck(struct json_out *out, json_t *o, const char *key,
		       const uint8_t *struck, int64_t n, const struct diff_result *r,
		       int64_t (*id)(const struct diff_result *r, int64_t i))
{
	json_t *list;

	if (!struck)
		return;
	list = json_put_array(out, o, key);
	for (int64_t i = 0; i < n; i++)
		if (struck[i])
			json_append_int(out, list, id ? id(r, i) : i);
}

/* What a fault, or the difference, is limited to. */
static void put_only(struct json_out *out, json_t *o, const struct diff_result *r)
{
	const struct diff_diagnosis *d = r->diagnosis;
	const struct kvt_snapshot *s = kvt_dump_snapshot(r->pair->side[SIDE_B]->dump);
	json_t *list;

	o = json_put_object(out, o, "only");
	put_struck(out, o, "layers", d->only_layers, r->pair->nlayers, r, kvt_diff_layer);
	put_struck(out, o, "heads", d->only_heads, r->pair->nheads, r, kvt_diff_head);
	put_struck(out, o, "kv", d->only_kv, r->pair->nkv, r, NULL);
	if (!d->only_requests)
		return;
	list = json_put_array(out, o, "requests");
	for (int64_t i = 0; i < s->nrequests; i++)
		if (d->only_requests[i])
			json_append_text(out, list, s->request[i].id);
}

static void put_fault(struct json_out *out, json_t *o, const struct diff_result *r, int i)
{
	const struct diff_diagnosis *d = r->diagnosis;
	const struct kvt_hypothesis *h = &d->found.hypothesis[i];
	int64_t n = d->found.difference.count;

	json_put_text(out, o, "fault", h->fault->name);
	json_put_text(out, o, "arguments", d->args[i].s);
	json_put_text(out, o, "summary", h->fault->summary);
	json_put_int(out, o, "explained", h->explained);
	json_put_int(out, o, "unknown", h->unknown);
	json_put_real(out, o, "share", (double)h->explained / (double)n);
	json_put_text(out, o, "says", d->found.decided == h && d->says.s[0] ?
				      d->says.s : NULL);
	put_only(out, o, r);
}

static void put_diagnosis(struct json_out *out, json_t *o, const struct diff_result *r)
{
	const struct diff_diagnosis *d = r->diagnosis;
	json_t *faults;

	if (!(o = json_put_if(out, o, "diagnosis", d)))
		return;
	json_put_text(out, o, "decided", d->found.decided ?
					 d->found.decided->fault->name : NULL);
	json_put_int(out, o, "layers", d->layers);
	json_put_int(out, o, "blocks", d->blocks);
	json_put_int(out, o, "different", d->found.difference.count);
	put_only(out, o, r);
	faults = json_put_array(out, o, "faults");
	for (int i = 0; i < d->found.nhypotheses; i++)
		if (d->found.hypothesis[i].verdict >= KVT_EXPLAINS)
			put_fault(out, json_append_object(out, faults), r, i);
}

static void put_rotation(struct json_out *out, json_t *o, const struct diff_pair *p)
{
	o = json_put_if(out, o, "rotation", p->rotation[SIDE_A] || p->rotation[SIDE_B]);
	if (!o)
		return;
	json_put_text(out, o, "a", kvt_rotation_name(p->rotation[SIDE_A]));
	json_put_text(out, o, "b", kvt_rotation_name(p->rotation[SIDE_B]));
	json_put_bool(out, o, "undone", p->decoded);
}

/* What was found of a side that does not say whether it is rotated. */
static void put_basis(struct json_out *out, json_t *o, const struct diff_pair *p)
{
	static const char *const names[] = { "keys", "values" };
	const struct diff_basis *b = &p->basis;

	if (!(o = json_put_if(out, o, "basis", b->open)))
		return;
	json_put_text(out, o, "of", b->side ? "b" : "a");
	for (int kv = 0; kv < 2; kv++) {
		json_t *half = json_put_if(out, o, names[kv], b->sought[kv]);

		if (!half)
			continue;
		json_put_bool(out, half, "found", b->found[kv]);
		json_put_int(out, half, "turn", b->turn[kv]);
		json_put_real(out, half, "stored", b->near[kv][0]);
		json_put_real(out, half, "rotated", b->near[kv][1]);
	}
}

static void put_states(struct json_out *out, json_t *o, const struct diff_pair *p)
{
	static const char *const names[NSIDES] = { "a", "b" };

	if (!(o = json_put_if(out, o, "recurrent", p->reordered)))
		return;
	json_put_int(out, o, "taps", p->taps);
	for (int s = 0; s < NSIDES; s++) {
		json_t *side = json_put_object(out, o, names[s]);

		json_put_int(out, side, "taps", p->slots[s]);
		json_put_bool(out, side, "row", p->row[s]);
		json_put_bool(out, side, "turned", p->inner[s] != 0);
	}
}

static void put_result(struct json_out *out, json_t *o, const struct diff *d,
		       const struct diff_result *r)
{
	const struct diff_pair *p = r->pair;
	json_t *list;

	json_put_text(out, o, "id", p->id);
	json_put_text(out, o, "kind", kvt_kind_name(p->group[SIDE_A]->kind));
	json_put_text(out, o, "dtype_a", kvt_group_type(p->group[SIDE_A]).s);
	json_put_text(out, o, "dtype_b", kvt_group_type(p->group[SIDE_B]).s);
	put_rotation(out, o, p);
	put_basis(out, o, p);
	put_states(out, o, p);
	json_put_bool(out, o, "rounding", r->rounding);
	json_put_text(out, o, "result", r->equal ? "equal" :
		      r->differs ? "differs" : "within");
	json_put_text(out, o, "broken", r->broken < NTERMS && r->differs ?
					diff_term_name(r->broken) : NULL);
	json_put_text(out, o, "by", p->by_tokens ? "tokens" : "blocks");
	json_put_int(out, o, "elements", diff_pair_elements(p));
	json_put_int(out, o, "by_digest", r->by_digest);
	put_tolerance(out, o, &r->tolerance);
	put_metrics(out, o, r);
	if (r->first.set)
		put_deviation(out, json_put_object(out, o, "first"), r, &r->first);
	else
		json_put(out, o, "first", json_null());
	list = json_put_array(out, o, "worst");
	for (int64_t i = 0; i < r->nworst; i++)
		put_deviation(out, json_append_object(out, list), r, &r->worst[i]);
	diff_json_lost(out, o, r);
	diff_json_where(out, o, r);
	diff_json_tables(out, o, d, r);
	put_maps(out, o, r);
	put_diagnosis(out, o, r);
}

/* ---- all of it ---------------------------------------------------------- */

void diff_json_paired(struct json_out *out, json_t *object, const struct diff *d)
{
	const struct kvt_snapshot *in[NSIDES] = {
		kvt_dump_snapshot(d->side[SIDE_A].dump),
		kvt_dump_snapshot(d->side[SIDE_B].dump),
	};
	json_t *list = json_put_array(out, object, "paired");

	for (int64_t i = 0; i < d->pairs.partners.nfound; i++) {
		const struct diff_found *f = &d->pairs.partners.found[i];
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "a", in[SIDE_A]->request[f->request[SIDE_A]].id);
		json_put_text(out, o, "b", in[SIDE_B]->request[f->request[SIDE_B]].id);
		json_put_text(out, o, "by", f->by_name ? "name" : "content");
		json_put_known(out, o, "alike", f->alike, !f->by_name);
		json_put_known(out, o, "sampled", f->sampled, !f->by_name);
	}
}

void diff_json(struct json_out *out, const struct diff *d)
{
	const struct diff_unmatched *unmatched = &d->pairs.unmatched;
	bool equal = true, differs = false;
	json_t *list;

	json_start(out);
	for (int s = 0; s < NSIDES; s++) {
		list = json_put_array(out, out->root, s ? "files_b" : "files_a");
		for (int i = 0; i < d->side[s].nfiles; i++)
			json_append_text(out, list, d->side[s].file[i].name);
	}
	for (int i = 0; i < d->pairs.n; i++) {
		equal &= d->result[i].equal;
		differs |= d->result[i].differs;
	}
	json_put_text(out, out->root, "result", differs ? "differs" :
						equal ? "equal" : "within");
	json_put_text(out, out->root, "device",
		      kvt_device_pool_name(d->options.run.device));
	json_put_int(out, out->root, "device_bytes",
		     kvt_device_pool_nbytes(d->options.run.device));
	diff_json_paired(out, out->root, d);
	list = json_put_array(out, out->root, "only_one_side");
	for (int i = 0; i < unmatched_kept(unmatched); i++) {
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "side", unmatched->item[i].side ? "b" : "a");
		json_put_text(out, o, "what", unmatched->item[i].text);
	}
	list = json_put_array(out, out->root, "groups");
	for (int i = 0; i < d->pairs.n; i++)
		put_result(out, json_append_object(out, list), d, &d->result[i]);
	diff_json_attention(out, out->root, d);
}

void diff_json_maps(struct json_out *out, const struct diff *d)
{
	json_t *list;

	json_start(out);
	list = json_put_array(out, out->root, "groups");
	for (int i = 0; i < d->pairs.n; i++) {
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "id", d->result[i].pair->id);
		put_maps(out, o, &d->result[i]);
	}
}
