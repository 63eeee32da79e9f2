/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.c - all pairs that were tried, and what came of them, as a table and JSON
 *
 * A row is a pair: what its plan has, as a sweep prints it, and whether every byte landed
 * where it should.  A pair that was refused is a row, too, with the reason: none is left
 * out of what is counted.
 */
#include "sim/print/transfer.h"

#include <inttypes.h>
#include <string.h>

#include "sim/print/link.h"

struct kvt_text matrix_side(const struct kvt_matrix_row *row, int side)
{
	const struct kvt_sweep_row *r = &row->plan;
	struct kvt_text out;

	snprintf(out.s, sizeof(out.s), "%.60s,bs%" PRId64 ",tp%" PRId64, r->layout[side],
		 r->block_size[side], r->tp[side]);
	return out;
}

/* ---- text ------------------------------------------------------------------ */

static void print_row(const struct kvt_matrix_row *r, int width)
{
	plainf("%-*s %-*s ", width, matrix_side(r, 0).s, width, matrix_side(r, 1).s);
	if (r->plan.ops)
		plainf("%9" PRId64 " %10s %10s   ", r->plan.ops,
		       kvt_size_string(r->plan.bytes).s, human_time(r->plan.ns).s);
	else
		plainf("%9s %10s %10s   ", "-", "-", "-");
	plainf("%s%s%s\n", kvt_verdict_name(r->verdict), r->why[0] ? ": " : "", r->why);
}

void matrix_text(const struct matrix_report *report)
{
	const struct kvt_matrix *m = report->matrix;
	int64_t n = m->nsrc * m->ndst;
	int width = 11;

	if (report->model)
		plainf("%s: ", report->model);
	plainf("%" PRId64 " token%s, %" PRId64 " source%s to %" PRId64 " destination%s, "
	       "over link %s%s, figures %s\n\n", report->tokens, plural(report->tokens),
	       m->nsrc, plural(m->nsrc), m->ndst, plural(m->ndst), m->link->name,
	       report->assumed.link ? " (default)" : "",
	       kvt_quality_name(m->link->quality));
	for (int64_t i = 0; i < n; i++)
		for (int side = 0; side < 2; side++)
			if ((int)strlen(matrix_side(&m->row[i], side).s) > width)
				width = (int)strlen(matrix_side(&m->row[i], side).s);
	plainf("%-*s %-*s %9s %10s %10s   %s\n", width, "source", width, "destination",
	       "ops", "bytes", "time", "verdict");
	for (int64_t i = 0; i < n; i++)
		print_row(&m->row[i], width);
	plainf("\n%s pair%s: %s equal, %s differ, %s refused\n", human_count(n).s,
	       plural(n), human_count(m->count[KVT_VERDICT_EQUAL]).s,
	       human_count(m->count[KVT_VERDICT_DIFFERS]).s,
	       human_count(m->count[KVT_VERDICT_REFUSED]).s);
	plainf("\nops, bytes, time: of the plan, sums over all ranks\n"
	       "equal: every operation was carried out in memory; every byte that moves was written\nonce and is the source's, and no other byte has changed\n");
	if (report->layers)
		plainf("carried out with at most %" PRId64 " layer%s of each group "
		       "(--try-layers)\n", report->layers, plural(report->layers));
}

/* ---- JSON ------------------------------------------------------------------ */

static void put_row(struct json_out *out, json_t *list, const struct kvt_matrix_row *r)
{
	json_t *o = json_append_object(out, list);

	sweep_put_plan(out, o, &r->plan);
	json_put_text(out, o, "verdict", kvt_verdict_name(r->verdict));
	json_put_text(out, o, "why", r->why[0] ? r->why : NULL);
	json_put_int(out, o, "bytes_compared", r->compared);
	json_put_int(out, o, "bytes_untouched", r->untouched);
	json_put_text(out, o, "digest", r->has_digest ?
		      kvt_digest_text(DIGEST_TOKENS, r->version, &r->digest).s : NULL);
}

enum kvt_status matrix_json(const struct matrix_report *report, struct kvt_error *err)
{
	const struct kvt_matrix *m = report->matrix;
	struct json_out out;
	json_t *list;

	json_start(&out);
	json_put_text(&out, out.root, "model", report->model);
	json_put_int(&out, out.root, "tokens", report->tokens);
	json_put_known(&out, out.root, "tried_layers", report->layers, report->layers);
	link_put(&out, json_put_object(&out, out.root, "link"), m->link);
	assumed_put(&out, out.root, report->assumed);
	json_put_int(&out, out.root, "pairs", m->nsrc * m->ndst);
	json_put_int(&out, out.root, "equal", m->count[KVT_VERDICT_EQUAL]);
	json_put_int(&out, out.root, "differ", m->count[KVT_VERDICT_DIFFERS]);
	json_put_int(&out, out.root, "refused", m->count[KVT_VERDICT_REFUSED]);
	list = json_put_array(&out, out.root, "rows");
	for (int64_t i = 0; i < m->nsrc * m->ndst; i++)
		put_row(&out, list, &m->row[i]);
	return json_print(&out, false, err);
}
