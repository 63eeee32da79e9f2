/* SPDX-License-Identifier: Apache-2.0 */
/* diff_json.c - the findings for programs; kvtool-json(5) has the keys */
#include <string.h>

#include "lib/dump/device.h"
#include "lib/ops/diff/diff.h"

#define LL(x) ((long long)(x))

/* ---- one element -------------------------------------------------------- */

static void put_place(struct json_out *out, json_t *spot, const struct coordinate *c,
		      const struct spot *s, const struct pair *p, int side)
{
	const struct place *place = &c->place[side];
	json_t *o = json_put_object(out, spot, side ? "b" : "a");
	char bits[24];

	snprintf(bits, sizeof(bits), "0x%0*llx", 2 * p->group[side]->dtype->elem,
		 (unsigned long long)s->bits[side]);
	json_put_real(out, o, "value", s->value[side]);
	json_put_text(out, o, "bits", bits);
	json_put_int(out, o, "block", c->block[side]);
	json_put_int(out, o, "position", c->position[side]);
	json_put_int(out, o, "state", c->state[side]);
	json_put_int(out, o, "dim", place->dim);
	json_put_text(out, o, "file", place->file);
	json_put_text(out, o, "space", place->in_memory ? "memory" : "file");
	json_put_text(out, o, "buffer", place->buffer);
	if (place->offset < 0)
		json_put(out, o, "offset", json_null());
	else
		json_put_int(out, o, "offset", place->offset);
}

static void put_or_null(struct json_out *out, json_t *o, const char *key, int64_t n)
{
	json_put(out, o, key, n < 0 ? json_null() : json_integer(n));
}

static void put_spot(struct json_out *out, json_t *o, const struct result *r,
		     const struct spot *spot)
{
	struct coordinate c = spot_coordinate(r->pair, spot);

	json_put_int(out, o, "layer", c.layer);
	json_put_text(out, o, "layer_name", c.layer_name);
	json_put_text(out, o, "request", c.request);
	put_or_null(out, o, "token", c.token);
	put_or_null(out, o, "head", c.head);
	put_or_null(out, o, "kv", c.kv);
	json_put_int(out, o, "dim", c.dim);
	json_put_real(out, o, "abs", spot->error);
	json_put(out, o, "ulp", r->meter.has_ulp ? json_integer((json_int_t)spot->ulp) :
						   json_null());
	for (int s = 0; s < NSIDES; s++)
		put_place(out, o, &c, spot, r->pair, s);
}

/* ---- a pair ------------------------------------------------------------- */

static void put_metrics(struct json_out *out, json_t *o, const struct result *r)
{
	const struct sums *s = &r->sums;
	json_t *m;

	if (!r->measured && !r->equal) {
		json_put(out, o, "metrics", json_null());
		return;
	}
	m = json_put_object(out, o, "metrics");
	json_put_int(out, m, "different", s->unequal);
	json_put(out, m, "outside", r->meter.judges_elements ?
				    json_integer(s->outside) : json_null());
	json_put_int(out, m, "nonfinite", s->nonfinite);
	json_put_int(out, m, "nonfinite_different", s->lost);
	json_put_real(out, m, "max_abs", s->max_abs);
	json_put(out, m, "max_ulp", r->meter.has_ulp ?
				    json_integer((json_int_t)s->max_ulp) : json_null());
	json_put_real(out, m, "rel_l2", sums_rel_l2(s));
	json_put_real(out, m, "cosine", sums_cosine(s));
	json_put_real(out, m, "pcc", sums_pcc(s));
}

static void put_tolerance(struct json_out *out, json_t *o, const struct tolerance *t)
{
	json_t *terms;

	if (!t->given) {
		json_put(out, o, "tolerance", json_null());
		return;
	}
	terms = json_put_object(out, o, "tolerance");
	for (int i = 0; i < NTERMS; i++)
		if (t->has[i])
			json_put_real(out, terms, term_name(i), t->value[i]);
}

static void put_heat(struct json_out *out, json_t *list, const struct heat *h,
		     int64_t layer)
{
	const struct sums s = { .dd = h->dd, .aa = h->aa };
	json_t *o = json_append_object(out, list);

	json_put_int(out, o, "layer", layer);
	json_put_int(out, o, "compared", h->n);
	json_put_int(out, o, "different", h->bad);
	json_put_real(out, o, "max_abs", h->max_abs);
	json_put_real(out, o, "rel_l2", sums_rel_l2(&s));
}

/* Only cells that have a difference: the others are 0. */
static void put_maps(struct json_out *out, json_t *o, const struct result *r)
{
	json_t *heads = json_put_array(out, o, "by_head");
	json_t *spans = json_put_array(out, o, "by_position"), *cell;
	int64_t nheads = r->pair->nheads;

	for (int64_t i = 0; r->measured && i < r->pair->nlayers * nheads; i++) {
		if (!r->by_head[i].bad)
			continue;
		put_heat(out, heads, &r->by_head[i], result_layer(r, i / nheads));
		cell = json_array_get(heads, json_array_size(heads) - 1);
		json_put_int(out, cell, "head", r->pair->group[SIDE_A]->head_start +
			     r->pair->head[SIDE_A] + i % nheads);
	}
	for (int64_t i = 0; r->measured && i < r->pair->nlayers * r->ncolumns; i++) {
		if (!r->by_span[i].bad)
			continue;
		put_heat(out, spans, &r->by_span[i], result_layer(r, i / r->ncolumns));
		cell = json_array_get(spans, json_array_size(spans) - 1);
		json_put_text(out, cell, "position",
			      column_name(r, i % r->ncolumns).s);
	}
}

static void put_diagnosis(struct json_out *out, json_t *o, const struct diagnosis *d)
{
	json_t *faults;

	if (!d) {
		json_put(out, o, "diagnosis", json_null());
		return;
	}
	o = json_put_object(out, o, "diagnosis");
	json_put_text(out, o, "decided", d->found.decided ?
					 d->found.decided->fault->name : NULL);
	json_put_int(out, o, "layers", d->layers);
	json_put_int(out, o, "blocks", d->blocks);
	json_put_int(out, o, "different", d->found.difference.count);
	faults = json_put_array(out, o, "faults");
	for (int i = 0; i < d->found.nhypotheses; i++) {
		const struct kvt_hypothesis *h = &d->found.hypothesis[i];
		json_t *fault;

		if (h->verdict != KVT_EXPLAINS)
			continue;
		fault = json_append_object(out, faults);
		json_put_text(out, fault, "fault", h->fault->name);
		json_put_text(out, fault, "arguments", d->args[i].s);
		json_put_text(out, fault, "summary", h->fault->summary);
		json_put_int(out, fault, "explained", h->explained);
		json_put_int(out, fault, "unknown", h->unknown);
	}
}

static void put_result(struct json_out *out, json_t *o, const struct result *r)
{
	const struct pair *p = r->pair;
	json_t *list;

	json_put_text(out, o, "id", p->id);
	json_put_text(out, o, "kind", kvt_kind_name(p->group[SIDE_A]->kind));
	json_put_text(out, o, "dtype_a", kvt_group_type(p->group[SIDE_A]).s);
	json_put_text(out, o, "dtype_b", kvt_group_type(p->group[SIDE_B]).s);
	json_put_bool(out, o, "rounding", r->meter.rounding);
	json_put_text(out, o, "result", r->equal ? "equal" :
		      r->differs ? "differs" : "within");
	json_put_text(out, o, "broken", r->broken < NTERMS && r->differs ?
					term_name(r->broken) : NULL);
	json_put_text(out, o, "by", p->by_tokens ? "tokens" : "blocks");
	json_put_int(out, o, "elements", pair_elements(p));
	json_put_int(out, o, "by_digest", r->by_digest);
	put_tolerance(out, o, &r->meter.tolerance);
	put_metrics(out, o, r);
	if (r->first.set)
		put_spot(out, json_put_object(out, o, "first"), r, &r->first);
	else
		json_put(out, o, "first", json_null());
	list = json_put_array(out, o, "worst");
	for (int64_t i = 0; i < r->ntop; i++)
		put_spot(out, json_append_object(out, list), r, &r->top[i]);
	put_maps(out, o, r);
	put_diagnosis(out, o, r->diagnosis);
}

/* ---- all of it ---------------------------------------------------------- */

void diff_json(struct json_out *out, const struct diff *d)
{
	int room = (int)(sizeof(d->pairs.lacks.lack) / sizeof(d->pairs.lacks.lack[0]));
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
		      kvt_device_pool_name(d->running.run.device));
	json_put_int(out, out->root, "device_bytes",
		     kvt_device_pool_nbytes(d->running.run.device));
	list = json_put_array(out, out->root, "only_one_side");
	for (int i = 0; i < d->pairs.lacks.n && i < room; i++) {
		json_t *o = json_append_object(out, list);

		json_put_text(out, o, "side", d->pairs.lacks.lack[i].side ? "b" : "a");
		json_put_text(out, o, "what", d->pairs.lacks.lack[i].text);
	}
	list = json_put_array(out, out->root, "groups");
	for (int i = 0; i < d->pairs.n; i++)
		put_result(out, json_append_object(out, list), &d->result[i]);
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
