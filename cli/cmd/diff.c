/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - kvtool diff: do two dumps hold the same values, and if not, where */
#include <stdlib.h>
#include <string.h>

#include "cli/opt.h"
#include "cli/print/diff.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/text_file.h"
#include "lib/dump/device.h"

struct request {
	struct kvt_hints hints;
	const char *by, *tolerance, *scale[NSIDES], *heatmap, *device;
	struct opt_strings match;
	struct diff_alignment alignment;
	struct rank_file *file[NSIDES];	/* open dumps, as they were named */
	int nfiles[NSIDES];
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

/* One term, "atol=1e-3" or "auto". */
static enum kvt_status parse_term(struct diff_tolerance *out, const char *text,
				  size_t length, struct kvt_error *err)
{
	const char *equals = memchr(text, '=', length), *name;
	size_t n = equals ? (size_t)(equals - text) : length;
	enum diff_term t = 0;
	double value;

	if (length == 4 && !strncmp(text, "auto", 4)) {
		out->automatic = true;
		return KVT_OK;
	}
	while (t < NTERMS && (strlen(diff_term_name(t)) != n ||
			      strncmp(text, diff_term_name(t), n)))
		t++;
	if (t == NTERMS)
		return kvt_fail(err, KVT_USAGE,
				"--tolerance has '%.*s', expected auto, atol, rtol, ulp, max-abs, rel-l2, cosine or pcc",
				(int)(n < 60 ? n : 60), text);
	name = diff_term_name(t);
	if (!equals || !real_parse(&value, equals + 1, length - n - 1) ||
	    (value < 0 && t < T_COSINE) || (value > 1 && t >= T_COSINE))
		return kvt_fail(err, KVT_USAGE, "--tolerance has '%.*s', expected %s=%s",
				(int)(length < 60 ? length : 60), text, name,
				t < T_COSINE ? "a number from 0 on" :
					       "a number up to 1");
	if (out->has[t])
		return kvt_fail(err, KVT_USAGE, "--tolerance has %s twice", name);
	out->has[t] = true;
	out->value[t] = value;
	return KVT_OK;
}

/* "auto", "atol=1e-3,rtol=0.01", "auto,cosine=0.999". */
static enum kvt_status parse_tolerance(struct diff_tolerance *out, const char *text,
				       struct kvt_error *err)
{
	*out = (struct diff_tolerance){ .given = true };
	for (;;) {
		size_t length = strcspn(text, ",");
		enum kvt_status status = parse_term(out, text, length, err);

		if (status || !text[length])
			return status;
		text += length + 1;
	}
}

static enum kvt_status parse_scales(struct diff_criteria *out,
				    const char *const scale[NSIDES],
				    struct kvt_error *err)
{
	static const char *const options[] = { "scale-a", "scale-b" };
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++)
		if ((out->scale[s].given = scale[s] != NULL))
			status = scale_parse(out->scale[s].kv, options[s], scale[s], err);
	return status;
}

static enum kvt_status read_choices(struct diff *d, struct request *q,
				    struct kvt_error *err)
{
	enum kvt_status status;

	if (q->by && strcmp(q->by, "tokens") && strcmp(q->by, "blocks"))
		return kvt_fail(err, KVT_USAGE,
				"--by is '%.60s', expected tokens or blocks", q->by);
	if (q->by)
		q->alignment.by = q->by[0] == 't' ? BY_TOKENS : BY_BLOCKS;
	if (d->criteria.exact && q->tolerance)
		return kvt_fail(err, KVT_USAGE,
				"--exact and --tolerance exclude each other");
	if (q->tolerance &&
	    (status = parse_tolerance(&d->criteria.tolerance, q->tolerance, err)))
		return status;
	if ((status = parse_scales(&d->criteria, q->scale, err)))
		return status;
	if (d->options.nworst > DIFF_MAX_WORST)
		return kvt_fail(err, KVT_USAGE, "--top is %lld, expected at most %d",
				(long long)d->options.nworst, DIFF_MAX_WORST);
	if ((status = check_matches(&q->match, err)))
		return status;
	q->alignment.nmatches = q->match.n;
	q->alignment.match = q->match.s;
	q->alignment.numbers = d->criteria.exact || d->criteria.tolerance.given;
	return q->heatmap ? heatmap_check(q->heatmap, q->force, err) : KVT_OK;
}

/* ---- comparing ---------------------------------------------------------- */

static enum kvt_status partial(const struct diff_unmatched *unmatched,
			       struct kvt_error *err)
{
	char more[64] = "";

	if (unmatched->n > 1)
		snprintf(more, sizeof(more), ", and %d more that only one has",
			 unmatched->n - 1);
	return kvt_fail(err, KVT_BAD_INPUT,
			"only %c has %s%s: --common compares what both have",
			"AB"[unmatched->item[0].side], unmatched->item[0].text, more);
}

static enum kvt_status compare(struct diff *d, const struct diff_alignment *how,
			       struct kvt_error *err)
{
	enum kvt_status status = kvt_diff_align(&d->pairs, d->side, how, err);

	if (status)
		return status;
	if (d->pairs.unmatched.n && !d->common)
		return partial(&d->pairs.unmatched, err);
	d->result = calloc((size_t)d->pairs.n + 1, sizeof(*d->result));
	if (!d->result)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; !status && i < d->pairs.n; i++)
		status = kvt_diff_compare(&d->result[i], &d->pairs.pair[i], &d->criteria,
					  &d->options, err);
	d->options.run.progress = NULL;	/* the rest is short */
	for (int i = 0; !status && !d->no_diagnosis && i < d->pairs.n; i++)
		if (d->result[i].measured && d->result[i].differs &&
		    d->result[i].first.set && !d->pairs.pair[i].decoded)
			status = kvt_diff_diagnose(&d->result[i], &d->options.run, err);
	for (int s = 0; !status && s < NSIDES; s++)
		status = kvt_diff_side_unchanged(&d->side[s], err);
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

/* Close it either way. */
static enum kvt_status open_side(struct diff *d, struct request *q, int s, char **names,
				 struct kvt_error *err)
{
	const char *name = q->nfiles[s] == 1 ? names[0] : s ? "B" : "A";
	struct rank_file *file = calloc((size_t)q->nfiles[s], sizeof(*file));
	enum kvt_status status;

	q->file[s] = file;
	if (!file)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (int i = 0; i < q->nfiles[s]; i++) {
		file[i].name = names[i];
		if ((status = open_as_told(&file[i].reader, names[i], &q->hints, err)))
			return status;
	}
	return kvt_diff_side_init(&d->side[s], name, file, q->nfiles[s], &d->options.run,
				  err);
}

static void close_sides(struct diff *d, struct request *q)
{
	for (int s = 0; s < NSIDES; s++) {
		kvt_diff_side_free(&d->side[s]);
		for (int i = 0; q->file[s] && i < q->nfiles[s]; i++)
			kvt_dump_close(q->file[s][i].reader);
		free(q->file[s]);
	}
}

static enum kvt_status run_diff(struct diff *d, struct request *q,
				char **const names[NSIDES], struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++)
		status = open_side(d, q, s, names[s], err);
	if (status || (status = compare(d, &q->alignment, err)) ||
	    (status = tell(d, q, err)))
		return status;
	for (int i = 0; i < d->pairs.n; i++)
		if (d->result[i].differs)
			status = KVT_MISMATCH;
	return status;
}

static void diff_free(struct diff *d, struct request *q)
{
	for (int i = 0; d->result && i < d->pairs.n; i++)
		kvt_diff_result_free(&d->result[i]);
	free(d->result);
	kvt_diff_pairs_free(&d->pairs);
	close_sides(d, q);
	kvt_device_pool_free(d->options.run.device);
	free(d);
}

static enum kvt_status run_parsed(struct diff *d, struct request *q, int nargs,
				  char **argv, struct kvt_error *err)
{
	struct kvt_run run = run_watched(q->threads, q->memory, d->quiet);
	char **names[NSIDES];
	enum kvt_status status;

	run.context = (void *)(uintptr_t)&cmd_diff;
	if ((status = split_operands(q->nfiles, names, nargs, argv, err)) ||
	    (status = read_choices(d, q, err)) ||
	    (q->heatmap && (status = text_file_refuse(q->heatmap, argv, nargs, err))) ||
	    (status = kvt_device_pool_new(&run.device, q->device, &run, err)))
		return status;
	d->options.run = run;
	d->options.verdict_only = d->quiet && !q->json && !q->heatmap;
	signals_catch();
	return run_diff(d, q, names, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct request q = { .hints.empty = true };
	struct diff *d = calloc(1, sizeof(*d));
	enum kvt_status status;
	int nargs;

	if (!d)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	d->options.nworst = 5;
	const struct opt opts[] = {
		{ "by", 0, OPT_STRING, &q.by, "UNIT",
		  "tokens (of requests) or blocks (of the pool)" },
		{ "match", 0, OPT_STRINGS, &q.match, "A=B",
		  "request A of the first is request B of the second" },
		{ "common", 0, OPT_FLAG, &d->common, NULL,
		  "compare what both have, whatever only one has" },
		{ "exact", 0, OPT_FLAG, &d->criteria.exact, NULL,
		  "values must be equal, whatever the types" },
		{ "tolerance", 0, OPT_STRING, &q.tolerance, "TERMS",
		  "auto, or atol=, rtol=, ulp=, max-abs=, rel-l2=, cosine=, pcc=" },
		{ "scale-a", 0, OPT_STRING, &q.scale[SIDE_A], "X[,Y]",
		  "what A's numbers are times; keys, values" },
		{ "scale-b", 0, OPT_STRING, &q.scale[SIDE_B], "X[,Y]",
		  "what B's numbers are times; keys, values" },
		{ "deep", 0, OPT_FLAG, &d->options.deep, NULL,
		  "read the data even where stored digests are equal" },
		{ "top", 0, OPT_INT, &d->options.nworst, "N",
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
	diff_free(d, &q);
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
