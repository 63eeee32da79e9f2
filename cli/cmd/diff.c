/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - kvtool diff: do two dumps hold the same values, and if not, where */
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/text_file.h"
#include "lib/dump/device.h"
#include "lib/ops/diff/diff.h"

struct request {
	struct kvt_hints hints;
	const char *by, *tolerance, *scale[NSIDES], *heatmap, *device;
	struct aligning aligning;
	int64_t threads, memory;
	bool json, force;
};

/* ---- the command line --------------------------------------------------- */

/* A B, or A... : B...; returns where B begins, and how many A has. */
static enum kvt_status split_operands(int n[NSIDES], char **names[NSIDES], int nargs,
				      char **argv, struct kvt_error *err)
{
	int colon = 0;

	while (colon < nargs && strcmp(argv[colon], ":"))
		colon++;
	names[SIDE_A] = argv;
	if (colon == nargs && nargs == 2) {
		n[SIDE_A] = n[SIDE_B] = 1;
		names[SIDE_B] = argv + 1;
		return KVT_OK;
	}
	n[SIDE_A] = colon;
	n[SIDE_B] = nargs - colon - 1;
	names[SIDE_B] = argv + colon + 1;
	for (int i = colon + 1; i < nargs; i++)
		if (!strcmp(argv[i], ":"))
			n[SIDE_B] = 0;		/* a third side */
	if (n[SIDE_A] > 0 && n[SIDE_B] > 0)
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"expected two files, or the files of all ranks of A, a colon, and those of B");
}

static enum kvt_status check_matches(const struct opt_strings *match,
				     struct kvt_error *err)
{
	for (int i = 0; i < match->n; i++)
		if (!strchr(match->s[i], '='))
			return kvt_fail(err, KVT_USAGE,
					"--match is '%.60s', expected two names: request of A=request of B",
					match->s[i]);
	return KVT_OK;
}

static enum kvt_status read_choices(struct diff *d, struct request *q,
				    struct kvt_error *err)
{
	static const char *const scale_options[] = { "scale-a", "scale-b" };
	enum kvt_status status;

	if (q->by && strcmp(q->by, "tokens") && strcmp(q->by, "blocks"))
		return kvt_fail(err, KVT_USAGE,
				"--by is '%.60s', expected tokens or blocks", q->by);
	if (q->by)
		q->aligning.by = q->by[0] == 't' ? BY_TOKENS : BY_BLOCKS;
	if (d->judging.exact && q->tolerance)
		return kvt_fail(err, KVT_USAGE,
				"--exact and --tolerance exclude each other");
	if (q->tolerance &&
	    (status = tolerance_parse(&d->judging.tolerance, q->tolerance, err)))
		return status;
	for (int s = 0; s < NSIDES; s++)
		if (q->scale[s] && (status = scale_parse(&d->judging.scale[s],
							 scale_options[s], q->scale[s],
							 err)))
			return status;
	if (d->running.top > MAX_TOP)
		return kvt_fail(err, KVT_USAGE, "--top is %lld, expected at most %d",
				(long long)d->running.top, MAX_TOP);
	if ((status = check_matches(&q->aligning.match, err)))
		return status;
	q->aligning.numbers = d->judging.exact || d->judging.tolerance.given;
	return q->heatmap ? heatmap_check(q->heatmap, q->force, err) : KVT_OK;
}

/* ---- comparing ---------------------------------------------------------- */

static enum kvt_status partial(const struct lacks *lacks, struct kvt_error *err)
{
	char more[64] = "";

	if (lacks->n > 1)
		snprintf(more, sizeof(more), ", and %d more that only one has",
			 lacks->n - 1);
	return kvt_fail(err, KVT_BAD_INPUT,
			"only %c has %s%s: --common compares what both have",
			"AB"[lacks->lack[0].side], lacks->lack[0].text, more);
}

static enum kvt_status compare(struct diff *d, const struct aligning *how,
			       struct kvt_error *err)
{
	enum kvt_status status = pairs_find(&d->pairs, d->side, how, err);

	if (status)
		return status;
	if (d->pairs.lacks.n && !d->common)
		return partial(&d->pairs.lacks, err);
	d->result = calloc((size_t)d->pairs.n + 1, sizeof(*d->result));
	if (!d->result)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; !status && i < d->pairs.n; i++)
		status = pair_compare(&d->result[i], &d->pairs.pair[i], &d->judging,
				      &d->running, err);
	d->running.run.progress = NULL;	/* the rest is short */
	for (int i = 0; !status && !d->no_diagnosis && i < d->pairs.n; i++)
		if (d->result[i].measured && d->result[i].differs &&
		    d->result[i].first.set && !d->pairs.pair[i].decoded)
			status = diagnose_result(&d->result[i], &d->running.run, err);
	for (int s = 0; !status && s < NSIDES; s++)
		status = side_unchanged(&d->side[s], err);
	return status;
}

static enum kvt_status tell(const struct diff *d, const struct request *q,
			    struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct json_out out;

	if (q->json) {
		diff_json(&out, d);
		status = json_print(&out, false, err);
		json_free(&out);
	} else if (!d->quiet) {
		diff_text(d);
	}
	if (!status && q->heatmap)
		status = heatmap_write(q->heatmap, q->force, d, err);
	return status;
}

static enum kvt_status run_diff(struct diff *d, const struct request *q,
				const int n[NSIDES], char **const names[NSIDES],
				struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++) {
		d->side[s].name = s ? "B" : "A";
		status = side_open(&d->side[s], names[s], n[s], &q->hints,
				   &d->running.run, err);
	}
	if (status || (status = compare(d, &q->aligning, err)) ||
	    (status = tell(d, q, err)))
		return status;
	for (int i = 0; i < d->pairs.n; i++)
		if (d->result[i].differs)
			status = KVT_MISMATCH;
	return status;
}

static void diff_free(struct diff *d)
{
	for (int i = 0; d->result && i < d->pairs.n; i++)
		result_free(&d->result[i]);
	free(d->result);
	pairs_free(&d->pairs);
	for (int s = 0; s < NSIDES; s++)
		side_close(&d->side[s]);
	kvt_device_pool_free(d->running.run.device);
	free(d);
}

static enum kvt_status run_parsed(struct diff *d, struct request *q, int nargs,
				  char **argv, struct kvt_error *err)
{
	struct kvt_run run = run_watched(q->threads, q->memory, d->quiet);
	char **names[NSIDES];
	enum kvt_status status;
	int n[NSIDES];

	run.context = (void *)(uintptr_t)&cmd_diff;
	if ((status = split_operands(n, names, nargs, argv, err)) ||
	    (status = read_choices(d, q, err)) ||
	    (q->heatmap && (status = text_file_refuse(q->heatmap, argv, nargs, err))) ||
	    (status = kvt_device_pool_new(&run.device, q->device, &run, err)))
		return status;
	d->running.run = run;
	d->running.verdict_only = d->quiet && !q->json && !q->heatmap;
	signals_catch();
	return run_diff(d, q, n, names, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct request q = { .hints.empty = true };
	struct diff *d = calloc(1, sizeof(*d));
	enum kvt_status status;
	int nargs;

	if (!d)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	d->running.top = 5;
	const struct opt opts[] = {
		{ "by", 0, OPT_STRING, &q.by, "UNIT",
		  "tokens (of requests) or blocks (of the pool)" },
		{ "match", 0, OPT_STRINGS, &q.aligning.match, "A=B",
		  "request A of the first is request B of the second" },
		{ "common", 0, OPT_FLAG, &d->common, NULL,
		  "compare what both have, whatever only one has" },
		{ "exact", 0, OPT_FLAG, &d->judging.exact, NULL,
		  "values must be equal, whatever the types" },
		{ "tolerance", 0, OPT_STRING, &q.tolerance, "TERMS",
		  "auto, or atol=, rtol=, ulp=, max-abs=, rel-l2=, cosine=, pcc=" },
		{ "scale-a", 0, OPT_STRING, &q.scale[SIDE_A], "X[,Y]",
		  "what A's numbers are times; keys, values" },
		{ "scale-b", 0, OPT_STRING, &q.scale[SIDE_B], "X[,Y]",
		  "what B's numbers are times; keys, values" },
		{ "deep", 0, OPT_FLAG, &d->running.deep, NULL,
		  "read the data even where stored digests are equal" },
		{ "top", 0, OPT_INT, &d->running.top, "N",
		  "show the N worst elements of a group; default: 5" },
		{ "map", 0, OPT_FLAG, &d->map, NULL, "draw where the differences are" },
		{ "heatmap", 0, OPT_STRING, &q.heatmap, "FILE",
		  "write that: .svg, .csv, .json or .txt" },
		{ "no-diagnosis", 0, OPT_FLAG, &d->no_diagnosis, NULL,
		  "do not look for a fault that explains the difference" },
		OPT_FORCE(&q.force),
		OPT_THREADS(&q.threads),
		OPT_MEMORY(&q.memory),
		OPT_DEVICE(&q.device),
		OPT_JSON(&q.json),
		{ "quiet", 'q', OPT_FLAG, &d->quiet, NULL,
		  "print nothing, only return a status" },
		OPT_INPUT(&q.hints),
		{ 0 }
	};

	nargs = opt_parse(&cmd_diff, opts, argc, argv, err);
	status = nargs < 0 ? opt_status(nargs) : run_parsed(d, &q, nargs, argv, err);
	diff_free(d);
	return status;
}

const struct command cmd_diff = {
	.name = "diff",
	.args = "A B | A... : B...",
	.summary = "compare what two dumps hold, whatever their layouts",
	.run = run,
	.examples =
		"  kvtool diff nhd.npy hnd.h5\n"
		"  kvtool diff --tolerance=auto --heatmap=where.svg fp16.h5 bf16.h5\n"
		"  kvtool diff whole.npy : rank*.safetensors\n",
};
