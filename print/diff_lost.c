/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_lost.c - what numbers have lost in another type, by layer, keys and values
 *
 *   lost    rel-l2 0.0271 of keys, 0.0266 of values; 0 saturated, 12 became 0; ...:
 *     layer 3 keys: rel-l2 0.0281, cosine 0.99961, max abs 0.96, 0 saturated, ...
 *
 * The three worst layers, or with --table=layer all; worse is what has more that is no
 * number any more, then the greater rel-l2.
 */
#include <stdlib.h>

#include "print/diff.h"

enum { LAYERS = 3 };

struct half {
	int64_t layer, k;		/* in the pair */
	const struct heat *heat;
	double rel_l2;
	int64_t rank;			/* of its layer, by the worse half */
};

static int worst_first(const void *a, const void *b)
{
	const struct half *x = a, *y = b;

	if (x->heat->lost != y->heat->lost)
		return x->heat->lost > y->heat->lost ? -1 : 1;
	if (x->rel_l2 > y->rel_l2 || x->rel_l2 < y->rel_l2)
		return x->rel_l2 > y->rel_l2 ? -1 : 1;
	return x->heat < y->heat ? -1 : x->heat > y->heat;
}

/* All of a pair, the worst first, to be freed; NULL: out of memory. */
static struct half *halves_of(const struct diff_result *r, int64_t *n)
{
	int64_t nkv = r->pair->nkv, total = r->pair->nlayers * nkv;
	struct half *half = calloc((size_t)total + 1, sizeof(*half));

	*n = half ? total : 0;
	for (int64_t i = 0; i < *n; i++) {
		struct diff_sums s = kvt_diff_sums_of(&r->by_half[i]);

		half[i] = (struct half){ i / nkv, i % nkv, &r->by_half[i],
					 kvt_diff_rel_l2(&s), 0 };
	}
	if (*n)
		qsort(half, (size_t)*n, sizeof(*half), worst_first);
	for (int64_t i = 0, k, next = 0; i < *n; i++) {
		for (k = 0; half[k].layer != half[i].layer; k++)
			;
		half[i].rank = k < i ? half[k].rank : next++;
	}
	return half;
}

static bool is_told(const struct diff_result *r)
{
	return r->measured && !r->equal && r->recoded && !r->pair->recurrent;
}

struct human diff_saturated(const struct diff_result *r, const struct heat *heat)
{
	struct human text;

	snprintf(text.s, sizeof(text.s), r->has_top ? "%lld" : "-", LL(heat->saturated));
	return text;
}

/* " keys", of a group that says which half is which. */
static const char *half_name(const struct diff_result *r, int64_t k)
{
	return r->pair->half < 0 ? "" : r->pair->half + k ? " values" : " keys";
}

static void print_counts(const struct diff_result *r, const struct heat *h)
{
	if (r->has_top)
		plainf("%s saturated, ", diff_saturated(r, h).s);
	plainf("%lld became 0", LL(h->zeroed));
	if (h->lost)
		plainf(", %lld became NaN or infinite", LL(h->lost));
}

void diff_text_lost(const struct diff *d, const struct diff_result *r)
{
	int64_t n, layers = d->options.table[DIFF_LAYER] ? INT64_MAX : LAYERS;
	struct heat all = { 0 };
	struct half *half;

	if (!is_told(r))
		return;
	plainf("  lost    rel-l2 ");
	for (int64_t k = 0; k < r->pair->nkv; k++) {
		struct diff_sums s = kvt_diff_sums_of(&r->by_kv[k]);

		kvt_heat_add(&all, &r->by_kv[k]);
		plainf("%s%.6g%s%s", k ? ", " : "", kvt_diff_rel_l2(&s),
		       r->pair->half < 0 ? "" : " of", half_name(r, k));
	}
	plainf("; ");
	print_counts(r, &all);
	plainf("; the worst layers:\n");
	half = halves_of(r, &n);
	for (int64_t i = 0; i < n; i++) {
		struct diff_sums s = kvt_diff_sums_of(half[i].heat);

		if (half[i].rank >= layers)
			continue;
		plainf("    layer %lld%s: rel-l2 %.6g, cosine %.6g, max abs %.6g, ",
		       LL(kvt_diff_layer(r, half[i].layer)), half_name(r, half[i].k),
		       half[i].rel_l2, kvt_diff_cosine(&s), s.max_abs);
		print_counts(r, half[i].heat);
		putchar('\n');
	}
	free(half);
}

void diff_json_lost(struct json_out *out, json_t *o, const struct diff_result *r)
{
	struct heat all = { 0 };
	struct half *half;
	json_t *list;
	int64_t n;

	if (!(o = json_put_if(out, o, "lost", is_told(r))))
		return;
	for (int64_t k = 0; k < r->pair->nkv; k++)
		kvt_heat_add(&all, &r->by_kv[k]);
	json_put_known(out, o, "saturated", all.saturated, r->has_top);
	json_put_int(out, o, "zeroed", all.zeroed);
	list = json_put_array(out, o, "layers");
	half = halves_of(r, &n);
	out->failed |= !half;
	for (int64_t i = 0; i < n; i++) {
		struct diff_sums s = kvt_diff_sums_of(half[i].heat);
		json_t *row = json_append_object(out, list);

		json_put_int(out, row, "layer", kvt_diff_layer(r, half[i].layer));
		json_put_known(out, row, "kv", r->pair->half + half[i].k,
			       r->pair->half >= 0);
		json_put_int(out, row, "compared", s.n);
		json_put_real(out, row, "rel_l2", half[i].rel_l2);
		json_put_real(out, row, "cosine", kvt_diff_cosine(&s));
		json_put_real(out, row, "max_abs", s.max_abs);
		json_put_known(out, row, "saturated", s.saturated, r->has_top);
		json_put_int(out, row, "zeroed", s.zeroed);
		json_put_int(out, row, "nonfinite_different", s.lost);
	}
	free(half);
}
