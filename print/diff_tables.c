/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_tables.c - where two dumps differ, by every axis, and tables along one
 *
 * The line "where" lists the places on each axis that have a difference: first the axes
 * on which only some have one, then, by their names alone, those on which all do.  An
 * axis of one place says nothing and is left out.
 */
#include <math.h>
#include <string.h>

#include "print/diff.h"

/* The most ranges of an axis that people read. */
enum { MOST_SPANS = 8 };

/* How the axes are called, in the order of the line. */
static const struct {
	enum diff_axis list;
	const char *key, *words;
} axes[] = {
	{ DIFF_LAYER, "layers", "layers" },
	{ DIFF_HEAD, "heads", "heads" },
	{ DIFF_TOKEN, "tokens", "tokens" },
	{ DIFF_BLOCK, "blocks", "blocks" },
	{ DIFF_KV, "kv", "keys and values" },
	{ DIFF_DIM, "dims", "dims" },
};
enum { NAXES = sizeof(axes) / sizeof(axes[0]) };

static const char *words_of(const struct diff_result *r, int i)
{
	const struct diff_pair *p = r->pair;

	if (axes[i].list == DIFF_TOKEN && p->recurrent)
		return "entries";
	if (axes[i].list == DIFF_DIM && p->group[SIDE_A]->kind == KVT_MAMBA_CONV)
		return "channels";
	return axes[i].words;
}

/* ---- the line for people ------------------------------------------------ */

static void print_span(const struct diff_span *span)
{
	plainf("%lld", LL(span->first));
	if (span->last > span->first)
		plainf("-%lld", LL(span->last));
}

/* " 2, 5-7", or of tokens " 16-18, 40 of A, 3-9 of B". */
static void print_spans(const struct diff_spans *list)
{
	int64_t shown = list->n < MOST_SPANS ? list->n : MOST_SPANS;

	for (int64_t i = 0; i < shown; i++) {
		const struct diff_span *span = &list->span[i];

		plainf(i ? ", " : " ");
		print_span(span);
		if (span->request && (i + 1 == shown || span[1].request != span->request))
			plainf(" of %s", span->request);
	}
	if (shown < list->n)
		plainf(", ... (%lld of %lld)", LL(list->count), LL(list->total));
}

static bool same_spans(const struct diff_spans *a, const struct diff_spans *b)
{
	bool same = a->n == b->n;

	for (int64_t i = 0; same && i < a->n; i++)
		same = a->span[i].first == b->span[i].first &&
		       a->span[i].last == b->span[i].last;
	return same;
}

/* Keys are long: their ends are in --json, and in a table of blocks. */
static void print_pages(const struct diff_where *w, const struct diff_spans *list)
{
	plainf("pages");
	for (int64_t i = 0; i < w->npages && i < MOST_SPANS; i++)
		plainf("%s%.16s%s", i ? ", " : " ", w->page[i],
		       strlen(w->page[i]) > 16 ? "..." : "");
	if (w->npages > MOST_SPANS)
		plainf(", ... (%lld of %lld)", LL(list->count), LL(list->total));
}

static void print_axis(const struct diff_result *r, const struct diff_where *w, int i)
{
	const struct diff_spans *list = &w->on[axes[i].list];
	const struct diff_spans *of_b = &w->on[DIFF_BLOCKS_OF_B];

	if (axes[i].list == DIFF_KV) {
		plainf(list->span[0].first ? "values" : "keys");
		return;
	}
	if (axes[i].list == DIFF_BLOCK && w->npages == list->count) {
		print_pages(w, list);
		return;
	}
	plainf("%s", words_of(r, i));
	print_spans(list);
	if (axes[i].list == DIFF_BLOCK && !same_spans(list, of_b)) {
		plainf(" in A,");
		print_spans(of_b);
		plainf(" in B");
	}
}

/* Blocks are those of the tokens: all of them differ where all tokens do. */
static bool says_all(const struct diff_where *w, int i)
{
	const struct diff_spans *list = &w->on[axes[i].list];

	return list->total > 1 && list->count == list->total;
}

/* Ends the line, if it has begun. */
static void print_whole(const struct diff_result *r, const struct diff_where *w,
			const char *between)
{
	const char *all = "all ";

	for (int i = 0; i < NAXES; i++) {
		if (!says_all(w, i))
			continue;
		plainf("%s%s%s", between, all, words_of(r, i));
		between = ", ";
		all = "";
	}
	if (between[0] != ' ')
		putchar('\n');
}

void diff_text_where(const struct diff_result *r)
{
	const char *between = "  where   ";
	struct diff_where w;

	if (!kvt_diff_where(&w, r)) {
		plainf("%sout of memory\n", between);
	} else if (w.on[DIFF_LAYER].count) {
		for (int i = 0; i < NAXES; i++) {
			const struct diff_spans *list = &w.on[axes[i].list];

			if (!list->count || list->count == list->total)
				continue;
			plainf("%s", between);
			print_axis(r, &w, i);
			between = "; ";
		}
		print_whole(r, &w, between);
	}
	kvt_diff_where_free(&w);
}

bool diff_only_some(const struct diff_result *r, enum diff_axis axis, bool *known)
{
	struct diff_where w;
	bool some;

	*known = kvt_diff_where(&w, r);
	some = *known && w.on[axis].count < w.on[axis].total;
	kvt_diff_where_free(&w);
	return some;
}

/* ---- the same for programs ---------------------------------------------- */

static void put_span(struct json_out *out, json_t *list, const struct diff_span *span)
{
	json_t *o;

	if (!span->request) {
		json_append(out, list, json_pack("[I, I]", (json_int_t)span->first,
						 (json_int_t)span->last));
		return;
	}
	o = json_append_object(out, list);
	json_put_text(out, o, "request", span->request);
	json_put_int(out, o, "first", span->first);
	json_put_int(out, o, "last", span->last);
}

static void put_list(struct json_out *out, json_t *o, const char *key,
		     const struct diff_spans *list)
{
	json_t *spans = json_put_array(out, o, key);

	for (int64_t i = 0; i < list->n; i++)
		put_span(out, spans, &list->span[i]);
}

void diff_json_where(struct json_out *out, json_t *o, const struct diff_result *r)
{
	struct diff_where w = { 0 };
	json_t *all;
	bool can = r->measured && r->bad_dim, made = can && kvt_diff_where(&w, r);

	if (!made || !w.on[DIFF_LAYER].count) {
		json_put(out, o, "where", can && !made ? NULL : json_null());
		kvt_diff_where_free(&w);
		return;
	}
	o = json_put_object(out, o, "where");
	for (int i = 0; i < NAXES; i++)
		put_list(out, o, axes[i].key, &w.on[axes[i].list]);
	put_list(out, o, "blocks_b", &w.on[DIFF_BLOCKS_OF_B]);
	all = json_put_array(out, o, "pages");
	for (int64_t i = 0; i < w.npages; i++)
		json_append_text(out, all, w.page[i]);
	all = json_put_array(out, o, "all");
	for (int i = 0; i < NAXES; i++)
		if (w.on[axes[i].list].total &&
		    w.on[axes[i].list].count == w.on[axes[i].list].total)
			json_append_text(out, all, axes[i].key);
	kvt_diff_where_free(&w);
}

/* ---- tables ------------------------------------------------------------- */

static struct human row_name(const struct diff_row *row, enum diff_axis axis)
{
	struct human name;

	if (axis == DIFF_KV)
		snprintf(name.s, sizeof(name.s), "%s", row->id ? "values" : "keys");
	else if (axis == DIFF_REQUEST)
		snprintf(name.s, sizeof(name.s), "%.100s", row->request);
	else if (axis == DIFF_BLOCK && row->page)
		snprintf(name.s, sizeof(name.s), "%.200s", row->page);
	else if (axis == DIFF_TOKEN && !row->request && row->page)
		snprintf(name.s, sizeof(name.s), "%.200s slot %lld", row->page,
			 LL(row->slot));
	else if (axis == DIFF_TOKEN && !row->request)
		snprintf(name.s, sizeof(name.s), "block %lld slot %lld",
			 LL(row->block[SIDE_A]), LL(row->slot));
	else if (axis == DIFF_TOKEN)
		snprintf(name.s, sizeof(name.s), "%.100s %lld", row->request,
			 LL(row->id));
	else if (axis == DIFF_BLOCK && row->block[SIDE_B] >= 0 &&
		 row->block[SIDE_B] != row->id)
		snprintf(name.s, sizeof(name.s), "%lld (%lld in B)", LL(row->id),
			 LL(row->block[SIDE_B]));
	else
		snprintf(name.s, sizeof(name.s), "%lld", LL(row->id));
	return name;
}

static struct human number_of(int digits, double x)
{
	struct human text;

	if (isfinite(x))
		snprintf(text.s, sizeof(text.s), "%.*g", digits, x);
	else
		snprintf(text.s, sizeof(text.s), "undefined");
	return text;
}

/* Of another type: what is the largest of it, and what is 0. */
static bool says_lost(const struct diff_result *r, enum diff_axis axis)
{
	return r->recoded && axis != DIFF_DIM;
}

static void print_row(const struct diff_result *r, const struct diff_row *row,
		      enum diff_axis axis, int width)
{
	const struct diff_sums s = kvt_diff_sums_of(&row->heat);
	double share = 100 * (double)row->heat.bad / (double)row->heat.n;

	plainf("    %-*s  %-11s  %-11s  %-11s", width, row_name(row, axis).s,
	       number_of(9, kvt_diff_cosine(&s)).s, number_of(6, kvt_diff_rel_l2(&s)).s,
	       number_of(6, row->heat.max_abs).s);
	if (says_lost(r, axis))
		plainf("  %-9s  %-7lld", diff_saturated(r, &row->heat).s,
		       LL(row->heat.zeroed));
	plainf("  %.3g %% (%lld of %lld)\n", share, LL(row->heat.bad), LL(row->heat.n));
}

static void print_rows(const struct diff_result *r, const struct diff_table *t,
		       enum diff_axis axis, int64_t most)
{
	int64_t n = t->n < most ? t->n : most, equal = t->total - t->n;
	int width = (int)strlen(kvt_diff_axis_name(axis)) + 1;

	for (int64_t i = 0; i < n; i++) {
		int length = (int)strlen(row_name(&t->row[i], axis).s);

		width = width < length ? length : width;
	}
	plainf("  by %-*s  %-11s  %-11s  %-11s%s  differ\n", width - 1,
	       kvt_diff_axis_name(axis), "cosine", "rel-l2", "max abs",
	       says_lost(r, axis) ? "  saturated  to zero" : "");
	for (int64_t i = 0; i < n; i++)
		print_row(r, &t->row[i], axis, width);
	if (t->n > n)
		plainf("    and %lld more that differ (--top=%lld)\n", LL(t->n - n),
		       LL(t->n));
	if (equal)
		plainf("    and %lld that %s equal\n", LL(equal),
		       equal == 1 ? "is" : "are");
}

void diff_text_tables(const struct diff *d, const struct diff_result *r)
{
	for (int axis = 0; axis < DIFF_AXES; axis++) {
		struct diff_table t;

		if (!d->options.table[axis])
			continue;
		if (!kvt_diff_table(&t, r, axis, true))
			plainf("  by %s: out of memory\n", kvt_diff_axis_name(axis));
		else if (!t.total)
			plainf("  by %s: %s has none\n", kvt_diff_axis_name(axis),
			       r->pair->id);
		else
			print_rows(r, &t, axis, d->rows > 0 ? d->rows : DIFF_ROWS);
		kvt_diff_table_free(&t);
	}
}

static void put_row(struct json_out *out, json_t *o, const struct diff_result *r,
		    const struct diff_row *row, enum diff_axis axis)
{
	const struct diff_sums s = kvt_diff_sums_of(&row->heat);

	if (axis == DIFF_TOKEN || axis == DIFF_REQUEST)
		json_put_text(out, o, "request", row->request);
	if (axis == DIFF_TOKEN || axis == DIFF_BLOCK) {
		json_put_int(out, o, "block", row->block[SIDE_A]);
		json_put_known(out, o, "block_b", row->block[SIDE_B],
			       row->block[SIDE_B] >= 0);
		json_put_text(out, o, "page", row->page);
	}
	if (axis == DIFF_TOKEN) {
		json_put_int(out, o, "slot", row->slot);
		json_put_known(out, o, "token", row->id, row->id >= 0);
	} else if (axis != DIFF_BLOCK && axis != DIFF_REQUEST) {
		json_put_int(out, o, kvt_diff_axis_name(axis), row->id);
	}
	json_put_int(out, o, "compared", row->heat.n);
	json_put_int(out, o, "different", row->heat.bad);
	json_put_real(out, o, "share", (double)row->heat.bad / (double)row->heat.n);
	json_put_int(out, o, "nonfinite_different", row->heat.lost);
	json_put_known(out, o, "saturated", row->heat.saturated,
		       r->has_top && axis != DIFF_DIM);
	json_put_known(out, o, "zeroed", row->heat.zeroed, axis != DIFF_DIM);
	json_put_real(out, o, "max_abs", row->heat.max_abs);
	json_put_real(out, o, "rel_l2", kvt_diff_rel_l2(&s));
	json_put_real(out, o, "cosine", kvt_diff_cosine(&s));
}

void diff_json_tables(struct json_out *out, json_t *o, const struct diff *d,
		      const struct diff_result *r)
{
	json_t *tables = json_put_object(out, o, "tables");

	for (int axis = 0; axis < DIFF_AXES; axis++) {
		struct diff_table t;
		json_t *rows;

		if (!d->options.table[axis])
			continue;
		rows = json_put_array(out, tables, kvt_diff_axis_name(axis));
		if (!kvt_diff_table(&t, r, axis, true))
			out->failed = true;
		for (int64_t i = 0; i < t.n && (d->rows <= 0 || i < d->rows); i++)
			put_row(out, json_append_object(out, rows), r, &t.row[i], axis);
		kvt_diff_table_free(&t);
	}
}
