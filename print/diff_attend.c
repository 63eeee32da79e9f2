/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_attend.c - what a difference does to attention, for people and for programs
 *
 *   attention of g0: 32 queries of q.safetensors, 5 layers x 8 heads, scale 0.25
 *     weights change by 0.0012 on average, 0.034 at most
 *     output  rel-l2 0.0023, 0.0087 of a head and 0.045 of a query at most
 *     top key another one for 1.17 % of 1280
 *     worst   layer 2 head 5: 0.0087, ...
 */
#include <math.h>
#include <stdlib.h>

#include "print/diff.h"
#include "print/out/screen.h"

enum { WORST = 3 };

/* ---- rows: of layers, or of heads of a layer ------------------------------ */

struct row {
	int64_t layer, head;		/* in the model; head -1: all */
	struct diff_attend_cell cell;
};

static int worst_first(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	double left = kvt_attend_error(&x->cell), right = kvt_attend_error(&y->cell);

	if (left > right || left < right)
		return left > right ? -1 : 1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	return x->head < y->head ? -1 : x->head > y->head;
}

static int64_t heads_of(const struct diff_attended *of)
{
	return of->nheads * of->ratio;
}

/* The worst first; *n of them, to be freed.  NULL: out of memory. */
static struct row *rows_of(const struct diff_attended *of, bool heads, int64_t *n)
{
	int64_t each = heads ? heads_of(of) : 1;
	struct row *row = calloc((size_t)(of->nlayers * each) + 1, sizeof(*row));

	*n = row ? of->nlayers * each : 0;
	for (int64_t i = 0; i < *n; i++) {
		row[i].layer = kvt_attend_layer(of, i / each);
		row[i].head = heads ? of->first_head + i % each : -1;
		row[i].cell = heads ? of->cell[i] : kvt_attend_sum(of, i);
	}
	if (*n)
		qsort(row, (size_t)*n, sizeof(*row), worst_first);
	return row;
}

/* ---- for people ----------------------------------------------------------- */

static double average(double sum, int64_t n)
{
	return n ? sum / (double)n : 0;
}

static void print_head(const struct diff *d, const struct diff_attended *of)
{
	plainf("attention of ");
	screen_paint(SCREEN_NAME);
	plainf("%s", of->key->id);
	if (of->value != of->key)
		plainf(", %s", of->value->id);
	screen_plain();
	if (d->attention.proxy)
		plainf(": proxy, %lld keys of A stand in for queries; ",
		       LL(of->nqueries));
	else
		plainf(": %lld quer%s of %s, ", LL(of->nqueries),
		       of->nqueries == 1 ? "y" : "ies", kvt_dump_path(d->attend.queries));
	plainf("%lld layer%s x %lld head%s, scale %.6g", LL(of->nlayers),
	       plural(of->nlayers), LL(heads_of(of)), plural(heads_of(of)), of->scale);
	if (of->cap > 0)
		plainf(", cap %.6g", of->cap);
	if (of->key->group[SIDE_A]->window)
		plainf(", window %lld", LL(of->key->group[SIDE_A]->window));
	if (of->sinks)
		plainf(", sinks");
	putchar('\n');
}

/* What was not computed, or not of everything. */
static void print_limits(const struct diff_attended *of,
			 const struct diff_attend_cell *all)
{
	int64_t without = of->key->nlayers - of->nlayers;

	if (without)
		plainf("  without %lld layer%s that no query is of\n", LL(without),
		       plural(without));
	if (of->before)
		plainf("  left out %lld quer%s at positions that not both sides hold\n",
		       LL(of->before), of->before == 1 ? "y" : "ies");
	if (all->missing)
		plainf("  missing %.3g %% of the tokens that they saw, in A or B\n",
		       100 * (double)all->missing / (double)(all->missing + all->seen));
	if (all->lost || all->unknown)
		plainf("  lost    %lld outputs are NaN or infinite on one side, "
		       "%lld on both\n", LL(all->lost), LL(all->unknown));
}

static void print_worst(const struct diff_attended *of)
{
	int64_t n;
	struct row *row = rows_of(of, true, &n);

	while (n && !(kvt_attend_error(&row[n - 1].cell) > 0))
		n--;
	for (int64_t i = 0; i < n && i < WORST; i++)
		plainf("%slayer %lld head %lld: %.6g", i ? ", " : "  worst   ",
		       LL(row[i].layer), LL(row[i].head), kvt_attend_error(&row[i].cell));
	if (n)
		putchar('\n');
	free(row);
}

static double most_of_heads(const struct diff_attended *of)
{
	double most = 0;

	for (int64_t i = 0; i < of->nlayers * heads_of(of); i++)
		most = fmax(most, kvt_attend_error(&of->cell[i]));
	return most;
}

static void print_table(const struct diff *d, const struct diff_attended *of, bool heads)
{
	int64_t n, most = d->rows > 0 ? d->rows : DIFF_ROWS;
	struct row *row = rows_of(of, heads, &n);

	plainf("  by %s  output rel-l2  of a query   weights      at most      top key\n",
	       heads ? "layer, head" : "layer      ");
	for (int64_t i = 0; i < n && i < most; i++) {
		const struct diff_attend_cell *c = &row[i].cell;
		struct human name;

		if (heads)
			snprintf(name.s, sizeof(name.s), "%lld, %lld", LL(row[i].layer),
				 LL(row[i].head));
		else
			snprintf(name.s, sizeof(name.s), "%lld", LL(row[i].layer));
		plainf("    %-12s  %-13.6g  %-11.6g  %-11.6g  %-11.6g  %.3g %%\n", name.s,
		       kvt_attend_error(c), c->worst, average(c->change, c->n), c->most,
		       100 * average((double)c->top, c->n));
	}
	if (n > most)
		plainf("    and %lld more (--top=%lld)\n", LL(n - most), LL(n));
	free(row);
}

void diff_text_attention(const struct diff *d)
{
	for (int i = 0; i < d->attention.n; i++) {
		const struct diff_attended *of = &d->attention.of[i];
		struct diff_attend_cell all = kvt_attend_sum(of, -1);

		if (!of->nlayers)
			continue;
		print_head(d, of);
		print_limits(of, &all);
		if (of->equal || !all.n) {
			plainf(of->equal ? "  equal   nothing changes\n" :
					   "  none    has an output\n");
			continue;
		}
		plainf("  weights change by %.6g on average, %.6g at most\n",
		       average(all.change, all.n), all.most);
		plainf("  output  rel-l2 %.6g, %.6g of a head and %.6g of a query at "
		       "most\n", kvt_attend_error(&all), most_of_heads(of), all.worst);
		plainf("  top key another one for %.3g %% of %lld\n",
		       100 * average((double)all.top, all.n), LL(all.n));
		print_worst(of);
		if (d->options.table[DIFF_LAYER])
			print_table(d, of, false);
		if (d->options.table[DIFF_HEAD])
			print_table(d, of, true);
	}
}

/* ---- for programs --------------------------------------------------------- */

static void put_cell(struct json_out *out, json_t *o, const struct diff_attend_cell *c)
{
	json_put_int(out, o, "queries", c->n);
	json_put_real(out, o, "change", average(c->change, c->n));
	json_put_real(out, o, "change_max", c->most);
	json_put_real(out, o, "rel_l2", kvt_attend_error(c));
	json_put_real(out, o, "worst", c->worst);
	json_put_real(out, o, "top_changed", average((double)c->top, c->n));
	json_put_int(out, o, "nonfinite_different", c->lost);
	json_put_int(out, o, "nonfinite", c->unknown);
}

static void put_one(struct json_out *out, json_t *o, const struct diff_attended *of)
{
	const struct diff_attend_cell all = kvt_attend_sum(of, -1);
	json_t *cells;

	json_put_text(out, o, "keys", of->key->id);
	json_put_text(out, o, "values", of->value->id);
	json_put_real(out, o, "scale", of->scale);
	json_put(out, o, "cap", of->cap > 0 ? json_real(of->cap) : json_null());
	json_put_int(out, o, "window", of->key->group[SIDE_A]->window);
	json_put_bool(out, o, "sinks", of->sinks);
	json_put_int(out, o, "layers", of->nlayers);
	json_put_int(out, o, "heads", heads_of(of));
	json_put_int(out, o, "positions", of->nqueries);
	json_put_int(out, o, "left_out", of->before);
	json_put_real(out, o, "missing",
		      average((double)all.missing, all.missing + all.seen));
	put_cell(out, o, &all);
	json_put_real(out, o, "rel_l2_max", most_of_heads(of));
	cells = json_put_array(out, o, "cells");
	for (int64_t i = 0; i < of->nlayers * heads_of(of); i++) {
		json_t *cell = json_append_object(out, cells);

		json_put_int(out, cell, "layer", kvt_attend_layer(of, i / heads_of(of)));
		json_put_int(out, cell, "head", of->first_head + i % heads_of(of));
		put_cell(out, cell, &of->cell[i]);
	}
}

void diff_json_attention(struct json_out *out, json_t *o, const struct diff *d)
{
	json_t *groups;

	if (!(o = json_put_if(out, o, "attention", d->attention.n)))
		return;
	json_put_text(out, o, "queries", d->attention.proxy ? "proxy" :
					 kvt_dump_path(d->attend.queries));
	json_put_bool(out, o, "proxy", d->attention.proxy);
	groups = json_put_array(out, o, "groups");
	for (int i = 0; i < d->attention.n; i++)
		if (d->attention.of[i].nlayers)
			put_one(out, json_append_object(out, groups),
				&d->attention.of[i]);
}
