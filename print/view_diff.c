/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_diff.c - what differs between two dumps, for the script of a page
 *
 * The maps of kvtool diff with the cells that differ; where they have more columns than
 * a page draws, neighbours are one.
 */
#include <stdlib.h>
#include <string.h>

#include "print/diff.h"
#include "print/view.h"

/* Of all groups: a cell has more digits than one of a single dump. */
enum { MOST_CELLS = 4096 };

/* Where an element is, and what both sides have: in two files, or -1. */
static void put_element(struct json_out *out, json_t *list, const struct diff_pair *p,
			const struct deviation *d)
{
	const struct diff_coordinates at = kvt_diff_locate(p, d);

	json_append_int(out, list, at.block[SIDE_A]);
	json_append_int(out, list, at.slot[SIDE_A]);
	json_append_int(out, list, at.head);
	json_append_int(out, list, at.kv);
	json_append_int(out, list, at.dim);
	for (int s = 0; s < NSIDES; s++) {
		json_append_real(out, list, d->value[s]);
		json_append_int(out, list, at.place[s].offset);
	}
}

/*
 * [row, column, compared, different, largest, rel-l2, cosine, then of the first element
 * that differs: block, slot, head, kv, dim, a, offset, b, offset] of cells that differ.
 */
static void put_cell(struct json_out *out, json_t *list, int64_t l, int64_t c,
		     const struct heat *h, const struct diff_pair *p,
		     const struct deviation *first)
{
	const struct diff_sums s = { .dd = h->dd, .aa = h->aa, .bb = h->bb, .ab = h->ab };
	json_t *cell;

	if (!h->bad)
		return;
	cell = json_array();
	json_append(out, list, cell);
	json_append_int(out, cell, l);
	json_append_int(out, cell, c);
	json_append_int(out, cell, h->n);
	json_append_int(out, cell, h->bad);
	json_append_real(out, cell, json_rounded(h->max_abs));
	json_append_real(out, cell, json_rounded(kvt_diff_rel_l2(&s)));
	json_append_real(out, cell, json_rounded(kvt_diff_cosine(&s)));
	put_element(out, cell, p, first);
}

static void put_map(struct json_out *out, json_t *o, const char *key,
		    const struct diff_result *r, const struct heat *heat,
		    const struct deviation *firsts, const struct kvt_view_axis *columns)
{
	json_t *list = json_put_array(out, o, key);

	for (int64_t l = 0; l < r->pair->nlayers; l++)
		for (int64_t c = 0; c < columns->n; c++) {
			int64_t at = l * columns->total + kvt_view_member(columns, c);
			int64_t end = l * columns->total +
				      kvt_view_member(columns, c + 1);
			struct deviation first = { .set = false };
			struct heat sum = { 0 };

			for (; at < end; at++) {
				kvt_heat_add(&sum, &heat[at]);
				kvt_deviation_keep(&first, &firsts[at]);
			}
			put_cell(out, list, l, c, &sum, r->pair, &first);
		}
}

static struct kvt_view_axis axis_of(int64_t total, int64_t rows, int64_t cells)
{
	int64_t most = cells / (rows < cells ? rows : cells);

	return (struct kvt_view_axis){ total, total < most ? total : most };
}

static void put_heads(struct json_out *out, json_t *o, const struct diff_result *r,
		      int64_t cells)
{
	const struct diff_pair *p = r->pair;
	struct kvt_view_axis axis = axis_of(p->nheads, p->nlayers, cells);
	json_t *list = json_put_array(out, o, "heads");

	for (int64_t i = 0; i < axis.n; i++)
		json_append_int(out, list, kvt_diff_head(r, kvt_view_member(&axis, i)));
	put_map(out, o, "by_head", r, r->by_head, r->head_first, &axis);
}

static void put_places(struct json_out *out, json_t *o, const struct diff_result *r,
		       int64_t cells)
{
	struct kvt_view_axis axis = axis_of(r->ncolumns, r->pair->nlayers, cells);
	json_t *list = json_put_array(out, o, "positions");

	for (int64_t i = 0; i < axis.n; i++) {
		int64_t last = kvt_view_member(&axis, i + 1) - 1;
		struct diff_column c = kvt_diff_column(r, kvt_view_member(&axis, i));
		struct diff_column end = kvt_diff_column(r, last);
		json_t *place = json_append_object(out, list);

		json_put_text(out, place, "request", c.request[0]);
		json_put_int(out, place, "token", c.token[0]);
		json_put_text(out, place, "end_request", end.request[1]);
		json_put_int(out, place, "end_token", end.token[1]);
		json_put_int(out, place, "block", c.block[0]);
		json_put_int(out, place, "end_block", end.block[1]);
	}
	put_map(out, o, "by_position", r, r->by_segment, r->segment_first, &axis);
}

static void put_first(struct json_out *out, json_t *o, const struct diff_result *r)
{
	struct diff_coordinates at;
	json_t *first = json_put_if(out, o, "first", r->first.set);

	if (!first)
		return;
	at = kvt_diff_locate(r->pair, &r->first);
	json_put_int(out, first, "layer", at.layer);
	json_put_text(out, first, "request", at.request);
	json_put_int(out, first, "token", at.token);
	json_put_int(out, first, "block", at.block[0]);
	json_put_int(out, first, "slot", at.slot[0]);
	json_put_int(out, first, "head", at.head);
	json_put_int(out, first, "kv", at.kv);
	json_put_int(out, first, "dim", at.dim);
	json_put_real(out, first, "a", r->first.value[SIDE_A]);
	json_put_real(out, first, "b", r->first.value[SIDE_B]);
	json_put_int(out, first, "offset_a", at.place[SIDE_A].offset);
	json_put_int(out, first, "offset_b", at.place[SIDE_B].offset);
}

/* What the diagnosis says in the words of kvtool diff, and what it is, if it is one. */
static void put_fault(struct json_out *out, json_t *o, const struct diff_result *r)
{
	const struct diff_diagnosis *d = r->diagnosis;
	const struct kvt_hypothesis *h = d ? d->found.decided : NULL;
	char *text = NULL;
	size_t n = 0;
	FILE *f = d ? open_memstream(&text, &n) : NULL;
	json_t *fault;

	if (f) {
		diff_fault_words(f, r);
		fclose(f);
	}
	out->failed |= d && !text;
	json_put_text(out, o, "diagnosis", text);
	free(text);
	if (!(fault = json_put_if(out, o, "fault", h)))
		return;
	json_put_text(out, fault, "name", h->fault->name);
	json_put_text(out, fault, "summary", h->fault->summary);
	json_put_text(out, fault, "args", d->args[h - d->found.hypothesis].s);
}

static void put_result(struct json_out *out, json_t *o, const struct diff_result *r,
		       int64_t cells)
{
	json_t *layers;

	json_put_text(out, o, "id", r->pair->id);
	json_put_text(out, o, "result", r->equal ? "equal" : r->differs ? "differs" :
								     "within");
	json_put_int(out, o, "elements", diff_pair_elements(r->pair));
	if (!r->measured)
		return;
	json_put_int(out, o, "different", r->sums.unequal);
	json_put_real(out, o, "max_abs", json_rounded(r->sums.max_abs));
	json_put_real(out, o, "rel_l2", json_rounded(kvt_diff_rel_l2(&r->sums)));
	json_put_real(out, o, "cosine", kvt_diff_cosine(&r->sums));
	layers = json_put_array(out, o, "layers");
	for (int64_t l = 0; l < r->pair->nlayers; l++)
		json_append_int(out, layers, kvt_diff_layer(r, l));
	put_heads(out, o, r, cells);
	put_places(out, o, r, cells);
	put_first(out, o, r);
	put_fault(out, o, r);
}

void view_diff_json(struct json_out *out, json_t *object, const struct view *view)
{
	const struct diff *d = view->diff;
	json_t *list;
	bool differs = false, equal = true;

	for (int i = 0; i < d->pairs.n; i++) {
		differs |= d->result[i].differs;
		equal &= d->result[i].equal;
	}
	json_put_text(out, object, "result", differs ? "differs" : equal ? "equal" :
								   "within");
	json_put_bool(out, object, "exact", view->exact);
	json_put_text(out, object, "tolerance", view->tolerance);
	diff_json_paired(out, object, d);
	list = json_put_array(out, object, "only_one_side");
	for (int i = 0; i < unmatched_kept(&d->pairs.unmatched); i++) {
		char text[240];

		snprintf(text, sizeof(text), "only %s has %s",
			 d->side[d->pairs.unmatched.item[i].side].name,
			 d->pairs.unmatched.item[i].text);
		json_append_text(out, list, text);
	}
	list = json_put_array(out, object, "groups");
	for (int i = 0; i < d->pairs.n; i++)
		put_result(out, json_append_object(out, list), &d->result[i],
			   MOST_CELLS / d->pairs.n);
}
