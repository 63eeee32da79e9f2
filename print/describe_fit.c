/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_fit.c - which types a cache would hold in
 *
 *   fit       fp8: holds; g0: scales 0.0034 to 0.061, rel-l2 0.0271 of keys, ...
 *             q4_0/plain: does not hold; g0: ...; above 0.125: 3 of 10 keys and ...
 */
#include <math.h>

#include "print/describe.h"

enum { MANY = 4, WORST = 3 };		/* times the median: a channel that is told */

/* A layer's keys or values, or a head of a layer. */
struct part {
	int64_t layer, k, head;		/* of the pair; k -1: a head, head -1: a half */
	double rel_l2;
	bool holds;
};

struct parts {
	int64_t nhalves, nheads, bad_halves, bad_heads;
	struct part worst[WORST];	/* greatest first */
};

static void offer(struct parts *parts, struct part part)
{
	for (int i = 0; i < WORST; i++)
		if (parts->worst[i].rel_l2 < part.rel_l2 || isnan(part.rel_l2)) {
			struct part other = parts->worst[i];

			parts->worst[i] = part;
			part = other;
		}
}

static struct parts parts_of(const struct fit_try *fit, const struct diff_result *r)
{
	const struct diff_pair *p = r->pair;
	struct parts out = { .nhalves = p->nlayers * p->nkv,
			     .nheads = p->nlayers * p->nheads };

	for (int64_t i = 0; r->measured && i < out.nhalves + out.nheads; i++) {
		bool half = i < out.nhalves;
		int64_t at = half ? i : i - out.nhalves, each = half ? p->nkv : p->nheads;
		const struct heat *h = half ? &r->by_half[at] : &r->by_head[at];
		struct diff_sums s = kvt_diff_sums_of(h);
		struct part part = { at / each, half ? at % each : -1,
				     half ? -1 : at % each, kvt_diff_rel_l2(&s),
				     fit_holds(fit, h) };

		out.bad_halves += half && !part.holds;
		out.bad_heads += !half && !part.holds;
		offer(&out, part);
	}
	return out;
}

static bool all_hold(const struct fit_try *fit)
{
	bool hold = true;

	for (int i = 0; i < fit->pairs.n; i++) {
		struct parts parts = parts_of(fit, &fit->result[i]);

		hold &= !fit_is_of(fit, i) || !(parts.bad_halves + parts.bad_heads);
	}
	return hold;
}

/* ---- for people ----------------------------------------------------------- */

static void print_part(const struct diff_result *r, const struct part *part)
{
	plainf("layer %lld ", LL(kvt_diff_layer(r, part->layer)));
	if (part->head >= 0)
		plainf("head %lld", LL(kvt_diff_head(r, part->head)));
	else
		plainf("%s", r->pair->half < 0 ? "latents" :
			     r->pair->half + part->k ? "values" : "keys");
	plainf(" %.4g", part->rel_l2);
}

static void print_group(const struct fit_try *fit, int i)
{
	const struct diff_result *r = &fit->result[i];
	const struct parts parts = parts_of(fit, r);
	struct heat all = { 0 };
	int64_t dim;
	float scales[2];
	double times = fit_channel(&dim, fit, i);

	fit_scales(scales, fit, i);
	plainf("; %s:", r->pair->id);
	if (scales[1] > 0)
		plainf(" scales %.3g to %.3g,", (double)scales[0], (double)scales[1]);
	for (int64_t k = 0; k < r->pair->nkv; k++) {
		struct diff_sums s = kvt_diff_sums_of(&r->by_kv[k]);

		kvt_heat_add(&all, &r->by_kv[k]);
		plainf("%s %.4g of %s", k ? "," : " rel-l2", kvt_diff_rel_l2(&s),
		       r->pair->half < 0 ? "latents" :
		       r->pair->half + k ? "values" : "keys");
	}
	plainf(", %lld became 0", LL(all.zeroed));
	if (fit_saturates(fit, i))
		plainf(", %lld saturated", LL(all.saturated));
	if (parts.bad_halves + parts.bad_heads)
		plainf("; above %.4g: %lld of %lld keys and values of layers, "
		       "%lld of %lld heads of layers", fit->bound, LL(parts.bad_halves),
		       LL(parts.nhalves), LL(parts.bad_heads), LL(parts.nheads));
	for (int w = 0; w < WORST && parts.worst[w].rel_l2 > 0; w++) {
		plainf("%s", w ? ", " : "; worst ");
		print_part(r, &parts.worst[w]);
	}
	if (times > MANY)
		plainf("; dim %lld is %.3g times the median", LL(kvt_diff_dim(r, dim)),
		       times);
}

void fit_text(const struct fit_try *fit, int n)
{
	for (int i = 0; i < n; i++) {
		print_label(i ? "" : "fit");
		plainf("%s: ", fit[i].type);
		if (!fit[i].made)
			plainf("not of this cache: %s", fit[i].why.text);
		else
			plainf("%s", all_hold(&fit[i]) ? "holds" : "does not hold");
		for (int g = 0; fit[i].made && g < fit[i].pairs.n; g++)
			if (fit_is_of(&fit[i], g))
				print_group(&fit[i], g);
		putchar('\n');
	}
}

/* ---- for programs --------------------------------------------------------- */

static void put_heat(struct json_out *out, json_t *o, const struct fit_try *fit,
		     const struct heat *h, bool has_top)
{
	struct diff_sums s = kvt_diff_sums_of(h);

	json_put_real(out, o, "rel_l2", kvt_diff_rel_l2(&s));
	json_put_real(out, o, "cosine", kvt_diff_cosine(&s));
	json_put_real(out, o, "max_abs", h->max_abs);
	json_put_known(out, o, "saturated", h->saturated, has_top);
	json_put_int(out, o, "zeroed", h->zeroed);
	json_put_bool(out, o, "holds", fit_holds(fit, h));
}

static void put_group(struct json_out *out, json_t *o, const struct fit_try *fit, int i)
{
	const struct diff_result *r = &fit->result[i];
	const struct diff_pair *p = r->pair;
	float scales[2];
	int64_t dim;
	double times = fit_channel(&dim, fit, i);
	json_t *list;

	fit_scales(scales, fit, i);
	json_put_text(out, o, "id", p->id);
	json_put(out, o, "scales", scales[1] > 0 ?
		 json_pack("[f, f]", (double)scales[0], (double)scales[1]) : json_null());
	json_put_int(out, o, "dim", kvt_diff_dim(r, dim));
	json_put_real(out, o, "dim_times", times);
	list = json_put_array(out, o, "layers");
	for (int64_t l = 0; r->measured && l < p->nlayers * p->nkv; l++) {
		json_t *row = json_append_object(out, list);

		json_put_int(out, row, "layer", kvt_diff_layer(r, l / p->nkv));
		json_put_known(out, row, "kv", p->half + l % p->nkv, p->half >= 0);
		put_heat(out, row, fit, &r->by_half[l], fit_saturates(fit, i));
	}
	list = json_put_array(out, o, "heads");
	for (int64_t l = 0; r->measured && l < p->nlayers * p->nheads; l++) {
		json_t *row = json_append_object(out, list);

		json_put_int(out, row, "layer", kvt_diff_layer(r, l / p->nheads));
		json_put_int(out, row, "head", kvt_diff_head(r, l % p->nheads));
		put_heat(out, row, fit, &r->by_head[l], fit_saturates(fit, i));
	}
}

void fit_json(struct json_out *out, const struct fit_try *fit, int n)
{
	json_t *list = json_put_array(out, out->root, "fit");

	for (int i = 0; i < n; i++) {
		json_t *o = json_append_object(out, list), *groups;

		json_put_text(out, o, "type", fit[i].type);
		json_put_real(out, o, "bound", fit[i].bound);
		json_put(out, o, "holds", fit[i].made ? json_boolean(all_hold(&fit[i])) :
							json_null());
		json_put_text(out, o, "why", fit[i].made ? NULL : fit[i].why.text);
		groups = json_put_array(out, o, "groups");
		for (int g = 0; fit[i].made && g < fit[i].pairs.n; g++)
			if (fit_is_of(&fit[i], g))
				put_group(out, json_append_object(out, groups), &fit[i],
					  g);
	}
}
