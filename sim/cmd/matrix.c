/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.c - kvtool transfer-sim matrix: all pairs of deployments, proven by doing
 *
 * Sweep compares what plans cost; here each plan is carried out on data, in memory, and
 * what arrives is compared with what was sent.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "lib/run/pipeline.h"
#include "print/out/signals.h"
#include "sim/cmd/options.h"
#include "sim/cmd/side_lists.h"
#include "sim/print/transfer.h"

/* Tokens that go beyond most windows, and end inside a block. */
enum { DEFAULT_TOKENS = 1100, DEFAULT_LAYERS = 2, MOST_PAIRS = 1 << 16 };

#define DEFAULT_SIDES "tp=1,2,4,block-size=16,64,layout=nhd,hnd,blshc,bhlsc"

struct matrix_args {
	struct transfer_words transfer;	/* without --src and --dst */
	const char *src, *dst, *link;
	int64_t layers, corrupt, threads, memory;
	bool json, quiet;
};

/* ---- what moves ------------------------------------------------------------ */

/* All that is tried, and what it borrows. */
struct matrix_input {
	struct kvt_matrix matrix;
	struct side_list list[2];
	struct side_set set[2];
	struct kvt_held_side held;
	struct transfer_input in;	/* of a model */
	struct kvt_ranks whole;		/* of a model, with nothing in them */
	const char *model;
	int64_t tokens;
};

static void close_input(struct matrix_input *in)
{
	free(in->matrix.row);
	kvt_held_free(&in->held);
	kvt_ranks_free(&in->whole);
	transfer_close(&in->in);
	side_set_free(&in->set[0]);
	side_set_free(&in->set[1]);
}

static enum kvt_status take_sides(struct matrix_input *in, const struct matrix_args *a,
				  struct kvt_error *err)
{
	const char *src = a->src || a->dst ? a->src : DEFAULT_SIDES;
	enum kvt_status status;

	if ((status = side_list_parse(&in->list[0], "src", src, err)) ||
	    (status = side_list_parse(&in->list[1], "dst", a->dst, err)))
		return status;
	side_list_inherit(&in->list[1], &in->list[0]);
	if ((status = side_set_make(&in->set[0], "src", &in->list[0], err)) ||
	    (status = side_set_make(&in->set[1], "dst", &in->list[1], err)))
		return status;
	if (in->set[0].n * in->set[1].n <= MOST_PAIRS)
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"%lld sources and %lld destinations are %lld pairs, expected at most %d",
			LL(in->set[0].n), LL(in->set[1].n),
			LL(in->set[0].n * in->set[1].n), (int)MOST_PAIRS);
}

static enum kvt_status hold_dumps(struct matrix_input *in, const struct transfer_words *a,
				  int64_t most, struct kvt_error *err)
{
	struct kvt_ranks files = { .n = 0 };
	int ranks;
	enum kvt_status status = transfer_count_ranks(&ranks, a->files[0], a, err);

	if (status)
		return status;
	if (ranks != a->nfiles)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is one of %d rank%s, expected all of them, got %d file%s",
				a->files[0], ranks, plural(ranks), a->nfiles,
				plural(a->nfiles));
	if (!(status = transfer_open_ranks(&files, ranks, a->files, a, err)))
		status = kvt_held_load(&in->held, &files, most, err);
	kvt_ranks_free(&files);
	return status;
}

/* A request of a model: one description of all its layers, and data of a few. */
static enum kvt_status hold_model(struct matrix_input *in, const struct matrix_args *a,
				  int64_t most, struct kvt_error *err)
{
	struct kvt_model_group group[KVT_MAX_GROUPS];
	struct kvt_ranks all = { .n = 0 }, few = { .n = 0 };
	int64_t *groups = &in->matrix.how.mamba_groups;
	enum kvt_status status = transfer_describe(&in->in, &a->transfer, err);
	struct kvt_model_transfer from = in->in.from;

	if (!status && !(status = kvt_ranks_of_model(&all, groups, &from, err)) &&
	    !(status = kvt_ranks_hollow(&in->whole, &all, err))) {
		for (int g = 0; g < from.ngroups; g++) {
			group[g] = from.group[g];
			if (group[g].layers > a->layers)
				group[g].layers = a->layers;
		}
		from.group = group;
		status = kvt_ranks_of_model(&few, groups, &from, err);
	}
	if (!status)
		status = kvt_held_sample(&in->held, &few, most, err);
	kvt_ranks_free(&all);
	kvt_ranks_free(&few);
	in->model = from.name;
	in->matrix.whole = &in->whole;
	return status;
}

static enum kvt_status hold(struct matrix_input *in, const struct matrix_args *a,
			    int64_t most, struct kvt_error *err)
{
	const struct transfer_words *words = &a->transfer;
	struct kvt_transfer_how *how = &in->matrix.how;
	const struct kvt_snapshot *s;
	enum kvt_status status = transfer_how_take(how, words, err);

	if (status)
		return status;
	status = words->src.file ? hold_dumps(in, words, most, err) :
				   hold_model(in, a, most, err);
	if (status)
		return status;
	s = kvt_ranks_snapshot(&in->held.ranks, 0);
	in->model = in->model ? in->model : s->model;
	for (int64_t r = 0; r < s->nrequests; r++)
		if (!how->request || !strcmp(how->request, s->request[r].id))
			in->tokens += s->request[r].ntokens;
	/* of a model, --conv is how its states are held already */
	for (int k = 0; k < 2; k++)
		for (int64_t i = 0; i < in->set[k].n; i++) {
			in->set[k].side[i].made.mamba_groups = how->mamba_groups;
			if (k && words->src.file)
				in->set[k].side[i].made.conv = words->conv;
		}
	return KVT_OK;
}

/* ---- the mode -------------------------------------------------------------- */

/* A pair that differs is a failure, and so is to have tried nothing. */
static enum kvt_status verdict(const struct kvt_matrix *m, struct kvt_error *err)
{
	enum kvt_verdict bad = m->count[KVT_VERDICT_DIFFERS] ? KVT_VERDICT_DIFFERS :
							       KVT_VERDICT_REFUSED;
	const struct kvt_matrix_row *row = m->row;
	int64_t n = m->nsrc * m->ndst;

	if (bad == KVT_VERDICT_REFUSED && m->count[bad] < n)
		return KVT_OK;
	while (row->verdict != bad)
		row++;
	return kvt_fail(err, bad == KVT_VERDICT_DIFFERS ? KVT_MISMATCH : KVT_BAD_INPUT,
			"%lld of %lld pairs %s; the first is %s to %s: %.300s",
			LL(m->count[bad]), LL(n),
			bad == KVT_VERDICT_DIFFERS ? "differ" : "are refused",
			matrix_side(row, 0).s, matrix_side(row, 1).s, row->why);
}

static enum kvt_status matrix(struct matrix_input *in, const struct matrix_args *a,
			      const struct kvt_link *link, struct kvt_error *err)
{
	const struct kvt_run run = run_watched(a->threads, a->memory, a->quiet);
	struct kvt_matrix *m = &in->matrix;
	struct matrix_report report = { .matrix = m, .assumed = { .link = !a->link } };
	enum kvt_status status = take_sides(in, a, err);

	if (status || (status = hold(in, a, kvt_run_memory(&run) / 2, err)))
		return status;
	m->held = &in->held;
	m->src = in->set[0].side;
	m->nsrc = in->set[0].n;
	m->dst = in->set[1].side;
	m->ndst = in->set[1].n;
	m->link = link;
	m->corrupt = a->corrupt;
	kvt_matrix_room(m, &run);
	if ((status = kvt_matrix_run(m, &run, err)))
		return status;
	report.model = in->model;
	report.tokens = in->tokens;
	report.layers = m->whole ? a->layers : 0;
	if (a->json && (status = matrix_json(&report, err)))
		return status;
	if (!a->json && !a->quiet)
		matrix_text(&report);
	return verdict(m, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct matrix_args a = { .transfer.mode = "matrix", .corrupt = -1 };
	const struct opt opts[] = {
		TRANSFER_OPTS(&a.transfer),
		{ "try-layers", 0, OPT_COUNT, &a.layers, "N",
		  "of each group of a model carry out the first N; default 2" },
		OPT_LINK(&a.link),
		{ "corrupt-op", 0, OPT_INT, &a.corrupt, "N",
		  "spoil one byte of op N of each pair, to see it found" },
		OPT_THREADS(&a.threads),
		OPT_MEMORY(&a.memory),
		OPT_JSON(&a.json),
		OPT_QUIET(&a.quiet),
		OPT_INPUT(&a.transfer.hints),
		{ 0 }
	};
	struct transfer_words *s = &a.transfer;
	struct matrix_input in = { .model = NULL };
	struct link_file link;
	bool any_tokens;
	enum kvt_status status;
	int n = opt_parse(&transfer_matrix, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (transfer_listed(&status, s, a.link, NULL, err))
		return status;
	/* both sides are made here, of what is held; for dumps a destination always is */
	a.src = s->src.text;
	a.dst = s->dst.text;
	s->src.text = NULL;
	s->dst.text = n ? "" : NULL;
	any_tokens = !s->tokens;
	if ((status = transfer_operands(s, n, argv, err)) ||
	    (status = link_take(&link, a.link, err)) ||
	    (status = link_has_figures(&link.link, err)))
		return status;
	if (s->src.file && a.layers)
		return kvt_fail(err, KVT_USAGE,
				"--try-layers is of models: of dumps all is tried");
	if (any_tokens && !s->src.file)
		s->tokens = DEFAULT_TOKENS;
	if (!a.layers)
		a.layers = DEFAULT_LAYERS;
	signals_catch_all();
	status = matrix(&in, &a, &link.link, err);
	close_input(&in);
	return status;
}

const struct command transfer_matrix = {
	.name = "transfer-sim matrix",
	.args = "[DUMP...]",
	.summary = "carry out every pair of TP, block size and layout, and check every "
			"byte",
	.run = run,
	.examples =
		"  kvtool transfer-sim matrix -m llama-3.1-8b\n"
		"  kvtool transfer-sim matrix --src=tp=1,2,4,layout=nhd --dst=tp=8,layout=hnd,bhlsc prefill.h5\n",
};
