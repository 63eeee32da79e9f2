/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - kvtool transfer-sim report: a plan and its time as pictures
 *
 *	--html		head; of each group two block maps, sizes of operations, why
 *			they end; ranks by ranks; the timeline and its link
 *	--svg		the same pictures as one (transfer_svg.c)
 *	--trace-out	a trace for Perfetto (transfer_trace.c)
 *
 * -o is one of them by the ending of its name.  Operations are those of a scope, on the
 * link alone: no stack merges them.  Each file is made in memory, and all are written
 * together when they are complete.  Names are checked before the transfer is opened.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cmd/options.h"
#include "sim/print/transfer_picture.h"
#include "sim/print/link.h"
#include "sim/print/transfer.h"
#include "print/out/streams.h"
#include "print/out/text_file.h"

struct page_args {
	const char *scope, *link, *html, *svg, *trace, *output;
	int64_t trace_max;
	bool force;
};

/* ---- the head ------------------------------------------------------------ */

static void fact(FILE *f, const char *value, const char *name)
{
	fputs("<li><b>", f);
	html_text(f, value);
	fputs("</b><span class=\"dim\">", f);
	html_text(f, name);
	fputs("</span></li>\n", f);
}

static void put_head(FILE *f, const struct page *p)
{
	const struct timeline *pairs = &p->pairs;
	char name[64];

	fputs("<h1>KV transfer", f);
	if (p->transfer->model) {
		fputs(", ", f);
		html_text(f, p->transfer->model);
	}
	fprintf(f, "</h1>\n<p class=\"dim\">%s, %s; scope %s; all figures are "
			"sums "
		"over the ranks; every byte arrives exactly once</p>\n",
		human_requests(p->transfer).s,
		p->transfer->whole ? "whole blocks" : "valid slots only",
		kvt_scope_name(p->scope));
	fputs("<ul class=\"facts\">\n", f);
	fact(f, human_count(pairs->ops).s, "operations");
	fact(f, kvt_size_string(pairs->bytes).s, "arrive");
	fact(f, pairs->ops ? kvt_size_string(pairs->bytes / pairs->ops).s : "0 B",
	     "an operation, on average");
	fact(f, human_count(pairs->n).s, "pairs of ranks");
	snprintf(name, sizeof(name), "on %.48s", p->link->name);
	fact(f, human_time(pairs->duration).s, name);
	fputs("</ul>\n", f);
}

static void put_link(FILE *f, const struct page *p)
{
	const struct kvt_link *l = p->link;
	char rate[32] = "inf", k[8] = "inf";

	if (l->rate)
		snprintf(rate, sizeof(rate), "%.4g", (double)l->rate / 1e9);
	if (l->overlap)
		snprintf(k, sizeof(k), "%d", l->overlap);
	fputs("<table style=\"margin-top:14px\">\n<tr><th>link</th><th "
			"class=\"n\">setup us</th>"
	      "<th class=\"n\">us an operation</th><th class=\"n\">GB/s</th>"
	      "<th class=\"n\">overlap</th><th>figures</th></tr>\n<tr><td>", f);
	html_text(f, l->name);
	fprintf(f, "</td><td class=\"n\">%.6g</td><td class=\"n\">%.6g</td><td "
			"class=\"n\">"
		"%s</td><td class=\"n\">%s</td><td>%s: ", (double)l->setup_ns / 1e3,
		(double)l->op_ps / 1e6, rate, k, kvt_quality_name(l->quality));
	html_text(f, l->source);
	fputs("</td></tr>\n</table>\n", f);
}

/* ---- groups -------------------------------------------------------------- */

static const char *why_text(int why)
{
	static const char *const text[] = {
		[KVT_BREAK_SOURCE] = "the bytes behind it do not move",
		[KVT_BREAK_DESTINATION] = "the destination continues elsewhere",
		[KVT_BREAK_BOTH] =
			"the bytes behind it do not move, and the destination continues elsewhere",
		[KVT_BREAK_SCOPE] = "both sides continue, but the scope ends",
	};

	return text[why];
}

static void put_breaks(FILE *f, const struct kvt_tally *t)
{
	fputs("<table>\n<tr><th class=\"n\">operations</th><th>end after a</th>"
	      "<th>because</th></tr>\n", f);
	/* the innermost axis is the one to mend first */
	for (int a = KVT_NAXES - 1; a >= 0; a--)
		for (int w = 0; w < KVT_NBREAKS; w++)
			if (t->breaks[a][w])
				fprintf(f, "<tr><td class=\"n\">%s</td><td>%s</td><td>%s"
					"</td></tr>\n", human_count(t->breaks[a][w]).s,
					kvt_axis_name((enum kvt_axis)a), why_text(w));
	fputs("</table>\n", f);
}

static enum kvt_status put_maps(FILE *f, const struct page *p, int g,
				struct kvt_error *err)
{
	const struct kvt_transfer_group *group = &p->transfer->group[g];
	const struct kvt_layout *layout[2] = { &group->src_layout, &group->dst_layout };
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_picture maps;
	struct kvt_pair pair;
	enum kvt_status status;

	if (!kvt_pair_next(&pair, &walk, &group->xfer) || !group->xfer.nentries)
		return KVT_OK;
	if ((status = kvt_picture_init(&maps, group, &pair, p->scope, err)))
		return status;
	fprintf(f, "<p class=\"dim\">Rank %" PRId64 " to rank %" PRId64 ", by ascending "
		"address; one colour an operation on both sides, ten in turn; grey is "
		"not "
		"moved between these two.</p>\n<div class=\"two\">\n", pair.src_rank,
		pair.dst_rank);
	for (int s = 0; s < 2; s++) {
		char id[32];

		snprintf(id, sizeof(id), "map%d-%d", g, s);
		html_map(f, &maps.side[s], id, s ? "destination" : "source",
			 kvt_layout_string(layout[s]).s);
	}
	fputs("</div>\n", f);
	kvt_picture_free(&maps);
	return KVT_OK;
}

static enum kvt_status put_group(FILE *f, const struct page *p, int g,
				 struct kvt_error *err)
{
	const struct kvt_transfer_group *group = &p->transfer->group[g];
	struct kvt_figures figures;
	char id[32];
	enum kvt_status status = kvt_figures_init(&figures, err);

	if (status)
		return status;
	if (!(status = kvt_figures_add(&figures, group, p->scope, err))) {
		fputs("<section class=\"card\">\n<h2>", f);
		html_text(f, group->name);
		fprintf(f, ": %s, %s layer%s, %s operation%s</h2>\n",
			kvt_kind_name(group->xfer.src.spec.kind),
			human_count(group->xfer.layers).s, plural(group->xfer.layers),
			human_count(figures.tally.ops).s, plural(figures.tally.ops));
		status = put_maps(f, p, g, err);
	}
	if (!status) {
		fputs("<h3 style=\"margin-top:18px\">Sizes of operations: <span "
				"class=\"k\" "
		      "style=\"background:var(--accent)\"></span><span>operations</span>"
		      "<span class=\"k\" style=\"background:var(--warm)\"></span>"
		      "<span>bytes</span></h3>\n", f);
		snprintf(id, sizeof(id), "sizes%d", g);
		svg_sizes(f, NULL, id, &figures.sizes);
		fputs("<h3 style=\"margin-top:18px\">Why they end</h3>\n", f);
		put_breaks(f, &figures.tally);
		fputs("</section>\n", f);
	}
	kvt_figures_free(&figures);
	return status;
}

static enum kvt_status put_page(FILE *f, const struct page *p, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	html_begin(f, "kvtool transfer-sim report");
	put_head(f, p);
	for (int g = 0; !status && g < p->transfer->ngroups; g++)
		status = put_group(f, p, g, err);
	fputs("<section class=\"card\">\n<h2>Between ranks</h2>\n", f);
	svg_matrix(f, NULL, &p->pairs);
	fputs("</section>\n<section class=\"card\">\n<h2>Time: <span class=\"k\" "
	      "style=\"background:var(--accent)\"></span><span>the destination "
	      "posts</span>"
	      "<span class=\"k\" style=\"background:var(--warm)\"></span>"
	      "<span>bytes on the card</span></h2>\n", f);
	html_timeline(f, &p->pairs);
	put_link(f, p);
	fputs("</section>\n", f);
	html_end(f);
	return status;
}

/* ---- the mode ------------------------------------------------------------ */

static enum kvt_status put_page_trace(FILE *f, const struct page *p,
				      struct kvt_error *err)
{
	return put_trace(f, &p->pairs, p->trace_max, err);
}

static enum kvt_status fill_timeline(struct timeline *out,
				     const struct kvt_batches *posts,
				     const struct kvt_batch_times *times,
				     struct kvt_error *err)
{
	*out = (struct timeline){
		.n = posts->n, .src_ranks = posts->src_ranks,
		.dst_ranks = posts->dst_ranks, .ops = posts->sum.merged,
		.bytes = posts->sum.bytes, .duration = times->end,
		.batch = calloc((size_t)posts->n + 1, sizeof(*out->batch)),
	};
	if (!out->batch)
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < posts->n; i++) {
		const struct kvt_batch *b = &posts->batch[i];
		const struct kvt_batch_time *t = &times->batch[i];

		out->batch[i] = (struct timeline_batch){
			b->src_rank, b->dst_rank, b->merged, b->bytes,
			t->post, t->posted, t->begin, t->end,
		};
	}
	return KVT_OK;
}

/* Scope by scope, as no stack merges it, on the link alone. */
static enum kvt_status make_timeline(struct timeline *out,
				     const struct kvt_transfer_plan *transfer,
				     enum kvt_scope scope, const struct kvt_link *link,
				     struct kvt_error *err)
{
	struct kvt_batches posts;
	struct kvt_batch_times times;
	enum kvt_status status = kvt_batches_of_scope(&posts, transfer, scope, link, err);

	if (status)
		return status;
	if (!(status = kvt_clock_run_plain(&times, &posts, link, err))) {
		status = fill_timeline(out, &posts, &times, err);
		kvt_clock_free(&times);
	}
	kvt_batches_free(&posts);
	return status;
}

/* In memory first: they are small, and files appear only when all are complete. */
static enum kvt_status put_file(struct text_output *out, const struct page *p,
				enum kvt_status (*put)(FILE *, const struct page *,
						       struct kvt_error *),
				struct kvt_error *err)
{
	FILE *f = text_output_open(out);
	enum kvt_status status;

	if (!f)
		return kvt_no_memory(err, out->path);
	status = put(f, p, err);
	if (!text_output_close(f) && !status)
		status = kvt_no_memory(err, out->path);
	return status;
}

static enum kvt_status report(const struct kvt_transfer_plan *transfer,
			      const struct page_args *a, const struct kvt_link *link,
			      struct kvt_error *err)
{
	struct page p = { .transfer = transfer, .link = link,
			  .trace_max = a->trace_max ? a->trace_max : 20000 };
	const char *const paths[] = { a->html, a->svg, a->trace };
	static enum kvt_status (*const puts[])(FILE *, const struct page *,
					       struct kvt_error *) = {
		put_page, put_svg, put_page_trace,
	};
	struct text_output out[3] = { { .path = NULL } };
	enum kvt_status status;
	int n = 0;

	if ((status = scope_take(&p.scope, a->scope, err)) ||
	    (status = make_timeline(&p.pairs, transfer, p.scope, link, err)))
		return status;
	for (int i = 0; i < 3 && !status; i++)
		if (paths[i]) {
			out[n].path = paths[i];
			status = put_file(&out[n++], &p, puts[i], err);
		}
	if (!status)
		status = text_files_write(out, n, a->force, err);
	for (int i = 0; i < n; i++)
		free(out[i].text);
	free(p.pairs.batch);
	return status;
}

/* -o is one of the others, by the ending of its name. */
static enum kvt_status take_output(struct page_args *a, struct kvt_error *err)
{
	const char *ending = a->output ? strrchr(a->output, '.') : NULL;
	const char **to = !a->output ? NULL : is_stream(a->output) ? &a->html :
			  !ending ? NULL : !strcmp(ending, ".html") ? &a->html :
			  !strcmp(ending, ".svg") ? &a->svg :
			  !strcmp(ending, ".json") ? &a->trace : NULL;

	if (!a->output)
		return KVT_OK;
	if (!to)
		return kvt_fail(err, KVT_USAGE,
				"-o is '%.100s', expected a name that ends with .html, .svg or .json",
				a->output);
	if (*to)
		return kvt_fail(err, KVT_USAGE, "-o and %s are one output: give one",
				to == &a->html ? "--html" :
				to == &a->svg ? "--svg" : "--trace-out");
	*to = a->output;
	return KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct transfer_words s = { .mode = "report", .example = " -o report.html" };
	struct page_args a = { .link = NULL };
	const struct opt opts[] = {
		TRANSFER_OPTS(&s),
		{ "scope", 0, OPT_STRING, &a.scope, "max|rfc|layer",
		  "what an operation may cross; default rfc" },
		OPT_LINK(&a.link),
		{ "html", 0, OPT_STRING, &a.html, "FILE",
		  "write a page that needs nothing else: block maps, ranks, sizes, "
		  "time" },
		{ "svg", 0, OPT_STRING, &a.svg, "FILE",
		  "write the same pictures as one SVG" },
		{ "trace-out", 0, OPT_STRING, &a.trace, "FILE",
		  "write a trace for Perfetto or chrome://tracing" },
		{ "trace-max", 0, OPT_COUNT, &a.trace_max, "N",
		  "slices of each kind in it; more operations share one; default 20000" },
		{ "output", 'o', OPT_STRING, &a.output, "FILE",
		  "the same by the name's ending: .html, .svg or .json; - prints the page" },
		OPT_FORCE(&a.force),
		OPT_INPUT(&s.hints),
		{ 0 }
	};
	struct link_file link;
	struct transfer_input in;
	enum kvt_status status;
	int n = opt_parse(&transfer_report, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (transfer_listed(&status, &s, a.link, NULL, err))
		return status;
	if ((status = transfer_operands(&s, n, argv, err)) ||
	    (status = take_output(&a, err)))
		return status;
	if (!a.html && !a.svg && !a.trace)
		return kvt_fail(err, KVT_USAGE,
				"nothing to write: give -o with a name that ends with .html, .svg or .json");
	if (a.trace_max && !a.trace)
		return kvt_fail(err, KVT_USAGE, "--trace-max needs --trace-out");
	if ((status = text_file_check(a.html, argv, n, a.force, err)) ||
	    (status = text_file_check(a.svg, argv, n, a.force, err)) ||
	    (status = text_file_check(a.trace, argv, n, a.force, err)) ||
	    (status = link_take(&link, a.link, err)) ||
	    (status = link_has_figures(&link.link, err)) ||
	    (status = transfer_open(&in, &s, err)))
		return status;
	status = report(&in.transfer, &a, &link.link, err);
	transfer_close(&in);
	return status;
}

const struct command transfer_report = {
	.name = "transfer-sim report",
	.args = "[SRC DST | SRC... --dst=...]",
	.summary = "draw a transfer: a page for the browser, a trace for Perfetto",
	.run = run,
	.examples =
		"  kvtool transfer-sim report -m llama-3.1-70b --src=layout=nhd,tp=4 "
		"--dst=tp=8 --html=plan.html\n"
		"  kvtool transfer-sim report prefill.h5 decode.h5 --link=vllm-nixl-rc "
		"--trace-out=plan.json\n",
};
