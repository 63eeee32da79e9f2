/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.c - a sweep as a table, CSV and JSON */
#include <inttypes.h>
#include <string.h>

#include "cli/link_file.h"
#include "cli/print/html.h"
#include "lib/ops/transfer/sweep.h"

enum { SENTENCE = 2048 };

/* "16", or "16:64" where the sides differ. */
static struct human both(int64_t src, int64_t dst)
{
	struct human out;

	if (src == dst)
		snprintf(out.s, sizeof(out.s), "%" PRId64, src);
	else
		snprintf(out.s, sizeof(out.s), "%" PRId64 ":%" PRId64, src, dst);
	return out;
}

static struct human layouts(const struct sweep_row *r)
{
	struct human out;

	if (strcmp(r->layout[0], r->layout[1]))
		snprintf(out.s, sizeof(out.s), "%s:%s", r->layout[0], r->layout[1]);
	else
		snprintf(out.s, sizeof(out.s), "%s", r->layout[0]);
	return out;
}

static double times_best(const struct sweep *s, const struct sweep_row *r)
{
	return s->row[0].ns ? (double)r->ns / (double)s->row[0].ns : 1;
}

/* "rfc", "nixl", "rfc, sge 4", "staged" */
static struct human stack(const struct sweep_row *r)
{
	struct human out;

	if (r->stage)
		snprintf(out.s, sizeof(out.s), "staged");
	else if (r->sge > 1)
		snprintf(out.s, sizeof(out.s), "%s, sge %" PRId64,
			 kvt_stack_name(r->stack), r->sge);
	else
		snprintf(out.s, sizeof(out.s), "%s", kvt_stack_name(r->stack));
	return out;
}

static void print_row(const struct sweep *s, const struct sweep_row *r, int width)
{
	plainf("%-15s %7s %7s %-*s ", layouts(r).s,
	       both(r->block_size[0], r->block_size[1]).s, both(r->tp[0], r->tp[1]).s,
	       width, stack(r).s);
	if (r->refused[0])
		plainf("%12s %10s %10s %8s   %s\n", "-", "-", "-", "-", r->refused);
	else
		plainf("%12" PRId64 " %10s %10s %8.3g %s %s\n", r->ops,
		       human_size(r->bytes).s, human_time(r->ns).s, times_best(s, r),
		       r->pareto ? "*" : " ", r->stage ? "buffer" :
		       r->why.ops ? kvt_axis_name(r->why.axis) : "nothing");
}

void sweep_text(const struct sweep *s)
{
	char words[SENTENCE];
	int width = 7;

	if (s->args->model)
		plainf("%s: ", s->args->model);
	plainf("%" PRId64 " token%s on %s (%s); sums over all ranks; * is not beaten in "
	       "ops, time and copies\n\n", s->tokens, plural(s->tokens), s->link->name,
	       kvt_quality_name(s->link->quality));
	for (int64_t i = 0; i < s->n; i++)
		if ((int)strlen(stack(&s->row[i]).s) > width)
			width = (int)strlen(stack(&s->row[i]).s);
	plainf("%-15s %7s %7s %-*s %12s %10s %10s %8s   %s\n", "layout", "block", "tp",
	       width, "scope", "ops", "bytes", "time", "of best", "ends at");
	for (int64_t i = 0; i < s->n; i++)
		print_row(s, &s->row[i], width);
	sweep_sentence(words, sizeof(words), s);
	plainf("\n%s\n", words);
}

void sweep_csv(const struct sweep *s)
{
	puts("src_layout,dst_layout,src_block_size,dst_block_size,src_tp,dst_tp,scope,"
	     "stage_bytes,ops,bytes,copied_bytes,time_ns,pareto,cause,axis,sge,refused");
	for (int64_t i = 0; i < s->n; i++) {
		const struct sweep_row *r = &s->row[i];

		plainf("%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%" PRId64
		       ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d,%s,%s,%" PRId64 ",\"%s\"\n",
		       r->layout[0], r->layout[1], r->block_size[0], r->block_size[1],
		       r->tp[0], r->tp[1], kvt_stack_name(r->stack), r->stage, r->ops,
		       r->bytes, r->copied, r->ns, r->pareto,
		       sweep_cause_name(r->why.cause),
		       r->why.ops ? kvt_axis_name(r->why.axis) : "", r->sge, r->refused);
	}
}

static void put_row(struct json_out *out, json_t *list, const struct sweep *s,
		    const struct sweep_row *r)
{
	json_t *o = json_append_object(out, list), *why;

	json_put_text(out, o, "src_layout", r->layout[0]);
	json_put_text(out, o, "dst_layout", r->layout[1]);
	json_put_int(out, o, "src_block_size", r->block_size[0]);
	json_put_int(out, o, "dst_block_size", r->block_size[1]);
	json_put_int(out, o, "src_tp", r->tp[0]);
	json_put_int(out, o, "dst_tp", r->tp[1]);
	json_put_text(out, o, "scope", kvt_stack_name(r->stack));
	json_put_int(out, o, "sge", r->sge);
	json_put_int(out, o, "stage_bytes", r->stage);
	json_put_int(out, o, "ops", r->ops);
	json_put_int(out, o, "bytes", r->bytes);
	json_put_int(out, o, "copied_bytes", r->copied);
	json_put_int(out, o, "time_ns", r->ns);
	json_put_real(out, o, "of_best", times_best(s, r));
	json_put_bool(out, o, "pareto", r->pareto);
	json_put_text(out, o, "refused", r->refused[0] ? r->refused : NULL);
	why = json_put_object(out, o, "most_end");
	json_put_text(out, why, "cause", sweep_cause_name(r->why.cause));
	json_put_text(out, why, "axis", r->why.ops ? kvt_axis_name(r->why.axis) : NULL);
	json_put_int(out, why, "ops", r->why.ops);
}

enum kvt_status sweep_json(const struct sweep *s, struct kvt_error *err)
{
	struct json_out out;
	char words[SENTENCE];
	json_t *list;
	enum kvt_status status;

	json_start(&out);
	json_put_text(&out, out.root, "model", s->args->model);
	json_put_int(&out, out.root, "tokens", s->tokens);
	link_put(&out, json_put_object(&out, out.root, "link"), s->link);
	list = json_put_array(&out, out.root, "rows");
	for (int64_t i = 0; i < s->n; i++)
		put_row(&out, list, s, &s->row[i]);
	sweep_sentence(words, sizeof(words), s);
	json_put_text(&out, out.root, "sentence", words);
	status = json_print(&out, false, err);
	json_free(&out);
	return status;
}
