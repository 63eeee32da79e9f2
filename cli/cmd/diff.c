/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.c - kvtool diff: do two dumps hold the same values, and if not, where
 *
 * split_operands() says whose dumps are whose, open_side() opens them, of ranks one dump
 * of all; kvt_diff's parts align, compare and diagnose (lib/ops/diff), attend() asks
 * what it does to attention.  Exit status 1: something differs by more than what was
 * allowed.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cmd/diff.h"
#include "cli/opt.h"
#include "print/diff.h"
#include "cli/progress.h"
#include "cli/regions.h"
#include "cli/set.h"
#include "cli/shard/shard.h"
#include "print/out/signals.h"
#include "print/out/text_file.h"
#include "lib/run/device.h"
#include "lib/base/keys.h"

struct arguments {
	struct kvt_hints hints, side[NSIDES];	/* of both, of one alone */
	const char *by, *tolerance, *scale[NSIDES], *heatmap, *device;
	struct opt_strings match, table;
	struct diff_alignment alignment;
	struct rank_file *file[NSIDES];	/* open dumps, as they were named */
	int nfiles[NSIDES];
	int64_t threads, memory;
	bool json, force, in_order;
	bool told;			/* a file is what was said of the input */
	const char *atol, *rtol;	/* terms of a tolerance, by themselves */
	const char *attention, *attend;
	struct kvt_dump *queries;
};

/* ---- the command line --------------------------------------------------- */

/* A B, or A... : B...: where each begins, and how many dumps it has. */
static enum kvt_status split_operands(struct arguments *args, char **names[NSIDES],
				      int nargs, char **argv, struct kvt_error *err)
{
	const struct kvt_hints *both = &args->hints;
	int colon = 0, *n = args->nfiles;

	while (colon < nargs && strcmp(argv[colon], ":"))
		colon++;
	names[SIDE_A] = argv;
	/* a manifest of A or B; of one alone it is one of the two */
	if (colon == nargs && nargs > 2)
		colon = nargs = pass_over_manifests(argv, nargs, both);
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
	if (n[SIDE_A] > 0 && n[SIDE_B] > 0) {
		for (int side = 0; side < NSIDES; side++)
			n[side] = pass_over_manifests(names[side], n[side], both);
		return KVT_OK;
	}
	return kvt_fail(err, KVT_USAGE,
			"expected two dumps (kvtool diff A B), or ranks: kvtool diff whole.npy : rank*.safetensors");
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

/* "layer,head": one of them; its end. */
static const char *parse_table(bool table[DIFF_AXES], const char *text)
{
	size_t n = strcspn(text, ",");

	for (int axis = 0; axis < DIFF_AXES; axis++) {
		const char *name = kvt_diff_axis_name(axis);

		if (strlen(name) == n && !memcmp(name, text, n)) {
			table[axis] = true;
			return text[n] ? text + n + 1 : "";
		}
	}
	return NULL;
}

static enum kvt_status parse_tables(bool table[DIFF_AXES],
				    const struct opt_strings *given,
				    struct kvt_error *err)
{
	for (int i = 0; i < given->n; i++) {
		const char *text = given->s[i];

		do
			text = parse_table(table, text);
		while (text && *text);
		if (!text)
			return kvt_fail(err, KVT_USAGE,
					"--table is '%.60s', expected layer, head, token, dim, kv, block or request, or some of them with commas",
					given->s[i]);
	}
	return KVT_OK;
}

/* Rows of tables and the worst elements; of those the pair keeps only so many. */
static enum kvt_status read_top(struct diff *d, bool tables, struct kvt_error *err)
{
	d->options.nworst = d->rows < 0 ? 5 : d->rows;
	if (d->options.nworst <= DIFF_MAX_WORST)
		return KVT_OK;
	d->options.nworst = DIFF_MAX_WORST;
	return tables ? KVT_OK :
	       kvt_fail(err, KVT_USAGE, "--top is %lld, expected at most %d",
			LL(d->rows), DIFF_MAX_WORST);
}

/* "auto", "atol=1e-3,rtol=0.01", "auto,cosine=0.999"; then --atol and --rtol. */
enum kvt_status diff_tolerances(struct diff_tolerance *out, const char *const text[3],
				bool attention, struct kvt_error *err)
{
	struct kvt_key key[NTERMS + 2] = { { NULL, KVT_KEY_FLAG, 0, NULL } };
	struct kvt_keys keys = { "--tolerance", key, out, 0 };
	enum kvt_status status;

	for (int t = 0; t < NTERMS; t++)
		key[t] = (struct kvt_key){
			diff_term_name(t), KVT_KEY_REAL,
			offsetof(struct diff_tolerance, value) +
			(size_t)t * sizeof(out->value[0]), NULL };
	key[NTERMS] = (struct kvt_key){
		"auto", KVT_KEY_FLAG, offsetof(struct diff_tolerance, automatic), NULL };
	if (text[0] && (status = kvt_keys_copy(&keys, text[0], err)))
		return status;
	for (int t = T_ATOL; t <= T_RTOL; t++)
		if (text[1 + t] && (status = kvt_keys_put(&keys, key[t].name,
							  strlen(key[t].name),
							  text[1 + t], err)))
			return status;
	for (int t = 0; t < NTERMS; t++) {
		out->has[t] = keys.seen >> t & 1;
		if (out->has[t] && (t < T_COSINE ? out->value[t] < 0 : out->value[t] > 1))
			return kvt_fail(err, KVT_USAGE,
					"--tolerance: %s is %g, expected a number %s",
					key[t].name, out->value[t],
					t < T_COSINE ? "from 0 on" : "up to 1");
	}
	out->given = keys.seen;
	return attention || !out->has[T_ATTENTION] ? KVT_OK :
	       kvt_fail(err, KVT_USAGE,
			"--tolerance: attention is judged by kvtool diff with --attention=QUERIES, or --attention if keys may stand in for queries");
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

static enum kvt_status read_choices(struct diff *d, struct arguments *args,
				    struct kvt_error *err)
{
	const char *const terms[] = { args->tolerance, args->atol, args->rtol };
	enum kvt_status status;

	if (args->by && strcmp(args->by, "tokens") && strcmp(args->by, "blocks"))
		return kvt_fail(err, KVT_USAGE,
				"--by is '%.60s', expected tokens or blocks", args->by);
	if (args->by)
		args->alignment.by = args->by[0] == 't' ? BY_TOKENS : BY_BLOCKS;
	if (d->criteria.exact && (args->tolerance || args->atol || args->rtol))
		return kvt_fail(err, KVT_USAGE,
				"--exact and --tolerance exclude each other");
	if ((status = diff_tolerances(&d->criteria.tolerance, terms,
				      args->attention != NULL, err)))
		return status;
	if ((status = parse_scales(&d->criteria, args->scale, err)))
		return status;
	if ((status = parse_tables(d->options.table, &args->table, err)) ||
	    (status = read_top(d, args->table.n > 0, err)))
		return status;
	if ((status = check_matches(&args->match, err)))
		return status;
	args->alignment.nmatches = args->match.n;
	args->alignment.match = args->match.s;
	args->alignment.run = &d->options.run;
	args->alignment.numbers = d->criteria.exact || d->criteria.tolerance.given ||
				  args->attention;
	if (args->attend && !args->attention)
		return kvt_fail(err, KVT_USAGE,
				"--attend says more of --attention, which is not given");
	if (args->attend && (status = kvt_attend_parse(&d->attend, "--attend",
						       args->attend, err)))
		return status;
	return args->heatmap ? heatmap_check(args->heatmap, args->force, err) : KVT_OK;
}

/* ---- comparing ---------------------------------------------------------- */

static enum kvt_status partial(const struct diff_unmatched *unmatched, const char *ask,
			       struct kvt_error *err)
{
	char more[64] = "";

	if (unmatched->n > 1)
		snprintf(more, sizeof(more), ", and %d more that only one has",
			 unmatched->n - 1);
	return kvt_fail(err, KVT_BAD_INPUT,
			"only %c has %s%s; %s%s--common compares what both have",
			"AB"[unmatched->item[0].side], unmatched->item[0].text, more,
			ask, ask[0] ? " pairs requests of two names, " : "");
}

static enum kvt_status compare(struct diff *d, const struct diff_alignment *how,
			       struct kvt_error *err)
{
	enum kvt_status status = kvt_diff_align(&d->pairs, d->side, how, err);

	if (status)
		return status;
	if (d->pairs.unmatched.n && !d->common)
		return partial(&d->pairs.unmatched, d->pairs.partners.ask, err);
	return kvt_diff_results(&d->result, &d->pairs, d->side, &d->criteria, &d->options,
				!d->no_diagnosis && shard_whole(), err);
}

enum kvt_status diff_align_two(struct diff *d, struct rank_file file[NSIDES],
			       struct kvt_error *err)
{
	const struct diff_alignment how = {
		.by = BY_AUTO, .run = &d->options.run,
		.numbers = d->criteria.exact || d->criteria.tolerance.given,
	};
	enum kvt_status status = kvt_diff_sides_init(d->side, file, &d->options.run, err);

	return status ? status : kvt_diff_align(&d->pairs, d->side, &how, err);
}

void diff_clear(struct diff *d)
{
	kvt_diff_results_free(d->result, &d->pairs);
	kvt_diff_pairs_free(&d->pairs);
	kvt_diff_sides_free(d->side);
}

/* What it does to attention; by one process, whoever has all results. */
static enum kvt_status attend(struct diff *d, struct arguments *args,
			      struct kvt_error *err)
{
	struct kvt_run run = d->options.run;
	enum kvt_status status = KVT_OK;

	if (!args->attention || !shard_whole())
		return KVT_OK;
	run.share = NULL;
	if (args->attention[0])
		status = kvt_open(&args->queries, args->attention, NULL, err);
	d->attend.queries = args->queries;
	if (status || (status = kvt_diff_attend(&d->attention, d->result, &d->pairs,
						&d->attend, &run, err)))
		return status;
	for (int s = 0; !status && s < NSIDES; s++)
		status = kvt_diff_side_unchanged(&d->side[s], err);
	return status || !args->queries ? status : kvt_dump_unchanged(args->queries, err);
}

static enum kvt_status print_results(const struct diff *d, const struct arguments *args,
				     struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct json_out out;

	if (!shard_whole())
		return KVT_OK;
	if (args->json) {
		diff_json(&out, d);
		status = json_print(&out, false, err);
	} else if (!d->quiet) {
		diff_text(d);
	}
	if (!status && args->heatmap)
		status = heatmap_write(args->heatmap, args->force, d, err);
	return status;
}

static bool says_anything(const struct kvt_hints *hints)
{
	const struct kvt_hint *hint;

	for (int i = 0; (hint = kvt_hint_at(i)); i++)
		if (kvt_hint_said(hints, hint))
			return true;
	return false;
}

enum kvt_status diff_open(struct kvt_dump **out, const char *name,
			  const struct kvt_hints *side, struct kvt_hints *hints,
			  struct kvt_error *err)
{
	struct kvt_hints own = *side;
	enum kvt_status status;

	if (!says_anything(&own))
		return open_as_told(out, name, hints, err);
	own.tp_size = hints->tp_size;
	own.tp_rank = hints->tp_rank;
	own.total_heads = hints->total_heads;
	own.one_of_several = hints->one_of_several;
	own.has_sides = hints->has_sides;
	own.empty = true;
	kvt_hints_overlay(hints, &own);
	status = kvt_open(out, name, &own, err);
	return status && status != KVT_SYSTEM ? kvt_open(out, name, hints, err) : status;
}

/* Close it either way. */
static enum kvt_status open_side(struct diff *d, struct arguments *args, int s,
				 char **names, struct kvt_error *err)
{
	const char *name = args->nfiles[s] == 1 ? names[0] : s ? "B" : "A";
	struct rank_file *file = calloc((size_t)args->nfiles[s], sizeof(*file));
	enum kvt_status status;

	args->file[s] = file;
	if (!file)
		return kvt_no_memory(err, NULL);
	if (args->in_order && (status = names_in_order(args->nfiles[s], names, err)))
		return status;
	for (int i = 0; i < args->nfiles[s]; i++) {
		struct kvt_hints hints = args->hints;

		file[i].name = names[i];
		hints.tp_size = args->in_order && args->nfiles[s] > 1 ?
				args->nfiles[s] : 0;
		hints.tp_rank = i;
		hints.one_of_several = args->nfiles[s] > 1 && !args->in_order;
		hints.has_sides = true;
		if ((status = diff_open(&file[i].reader, names[i], &args->side[s], &hints,
					err)))
			return status;
		args->told |= is_as_told(names[i], &hints, err);
	}
	return kvt_diff_side_init(&d->side[s], name, file, args->nfiles[s],
				  &d->options.run, err);
}

static void close_files(struct arguments *args)
{
	for (int s = 0; s < NSIDES; s++) {
		for (int i = 0; args->file[s] && i < args->nfiles[s]; i++)
			kvt_dump_close(args->file[s][i].reader);
		free(args->file[s]);
	}
}

/* A is refused: what is asked of B, if it is not the same, is not left to another try. */
static void ask_of_both(struct diff *d, struct arguments *args,
			char **const names[NSIDES], struct kvt_error *err)
{
	struct kvt_error why = { "" };
	const char *a = strchr(err->text, ':'), *b;

	if (open_side(d, args, SIDE_B, names[SIDE_B], &why) != KVT_BAD_INPUT || !a)
		return;
	b = strchr(why.text, ':');
	if (!b || !strcmp(a, b))
		return;
	complain(&cmd_diff, "%s", err->text);
	complain(&cmd_diff, "%s", why.text);
	/* of unlike shapes, they may be of unlike blocks */
	kvt_fail(err, KVT_BAD_INPUT,
		 "if their blocks have unlike numbers of tokens, kvtool reblock brings both to one; or --by=tokens, with --blocks-of=A=0-9:40");
}

static enum kvt_status run_diff(struct diff *d, struct arguments *args,
				char **const names[NSIDES], struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES; s++) {
		d->options.run.about = s;
		status = open_side(d, args, s, names[s], err);
	}
	if (status == KVT_BAD_INPUT && !args->file[SIDE_B])
		ask_of_both(d, args, names, err);
	if (!status && !args->told)
		return KVT_BAD_INPUT;	/* as the last of them says */
	if (status || (status = compare(d, &args->alignment, err)) ||
	    (status = attend(d, args, err)) ||
	    (status = print_results(d, args, err)))
		return status;
	for (int i = 0; i < d->pairs.n; i++)
		if (d->result[i].differs)
			status = KVT_MISMATCH;
	return status;
}

static void diff_free(struct diff *d, struct arguments *args)
{
	kvt_diff_attention_free(&d->attention);
	kvt_dump_close(args->queries);
	diff_clear(d);
	close_files(args);
	kvt_device_pool_free(d->options.run.device);
	free(d);
}

static enum kvt_status run_parsed(struct diff *d, struct arguments *args, int nargs,
				  char **argv, struct kvt_error *err)
{
	struct kvt_run run = run_watched(args->threads, args->memory, d->quiet);
	char **names[NSIDES];
	enum kvt_status status;

	run.context = (void *)(uintptr_t)&cmd_diff;
	if (nargs == 2 && is_regions(argv[0]) && is_regions(argv[1]))
		return regions_diff(argv[0], argv[1], args->json, d->quiet, err);
	if ((status = split_operands(args, names, nargs, argv, err)) ||
	    (status = read_choices(d, args, err)) ||
	    (status = text_file_check(args->heatmap, argv, nargs,
				      args->force || shard_sharing(), err)) ||
	    (status = kvt_device_pool_new(&run.device, args->device, &run, err)))
		return status;
	d->options.run = run;
	d->options.verdict_only = d->quiet && !args->json && !args->heatmap &&
				  !args->attention;
	shard_writes(args->heatmap);
	signals_catch();
	return run_diff(d, args, names, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct arguments args = { .hints.empty = true };
	struct diff *d = calloc(1, sizeof(*d));
	enum kvt_status status;
	int nargs;

	if (!d)
		return kvt_no_memory(err, NULL);
	d->rows = -1;
	const struct opt opts[] = {
		{ "by", 0, OPT_STRING, &args.by, "UNIT",
		  "tokens (of requests) or blocks (of the pool)" },
		{ "match", 0, OPT_STRINGS, &args.match, "A=B",
		  "pair request A of the first with request B of the second" },
		{ "common", 0, OPT_FLAG, &d->common, NULL,
		  "compare what both have, ignore what only one has" },
		{ "exact", 0, OPT_FLAG, &d->criteria.exact, NULL,
		  "values must be equal, also of different types" },
		{ "tolerance", 0, OPT_STRING, &args.tolerance, "TERMS",
		  "auto, or atol=, rtol=, ulp=, max-abs=, rel-l2=, attention=, cosine=, pcc=" },
		{ "atol", 0, OPT_STRING, &args.atol, "X", "same as --tolerance=atol=X" },
		{ "rtol", 0, OPT_STRING, &args.rtol, "X", "same as --tolerance=rtol=X" },
		{ "scale-a", 0, OPT_STRING, &args.scale[SIDE_A], "X[,Y]",
		  "factor for the numbers of A; keys, values" },
		{ "scale-b", 0, OPT_STRING, &args.scale[SIDE_B], "X[,Y]",
		  "factor for the numbers of B; keys, values" },
		{ "attention", 0, OPT_MAYBE, &args.attention, "[=QUERIES]",
		  "what it does to attention, with the queries of a dump, or keys as such" },
		{ "attend", 0, OPT_STRING, &args.attend, "KEY=VALUE,...",
		  "of attention: scale=, cap=, rank= (of MLA), sample= (of keys)" },
		{ "deep", 0, OPT_FLAG, &d->options.deep, NULL,
		  "read the data even where stored digests are equal" },
		{ "table", 0, OPT_STRINGS, &args.table, "AXIS,...",
		  "print how much each layer, head, token, dim, kv, block, request differs" },
		{ "top", 0, OPT_INT, &d->rows, "N",
		  "show the N worst elements of a group, and rows; default: 5, and 20" },
		{ "map", 0, OPT_FLAG, &d->map, NULL, "draw maps of the differences" },
		{ "heatmap", 0, OPT_STRING, &args.heatmap, "FILE",
		  "write the maps to FILE: .svg, .csv, .json or .txt" },
		{ "no-diagnosis", 0, OPT_FLAG, &d->no_diagnosis, NULL,
		  "do not look for a fault that explains the difference" },
		OPT_SIDES(args.side),
		OPT_IN_ORDER(&args.in_order),
		OPT_TOTAL_HEADS(&args.hints.total_heads),
		OPT_FORCE(&args.force),
		OPT_THREADS(&args.threads),
		OPT_MEMORY(&args.memory),
		OPT_DEVICE(&args.device),
		OPT_JSON(&args.json),
		{ "quiet", 'q', OPT_FLAG, &d->quiet, NULL,
		  "print nothing; the result is the exit status" },
		OPT_SHARD,
		OPT_INPUT(&args.hints),
		{ 0 }
	};

	nargs = opt_parse(&cmd_diff, opts, argc, argv, err);
	status = nargs < 0 ? opt_status(nargs) : run_parsed(d, &args, nargs, argv, err);
	diff_free(d, &args);
	return status;
}

const struct command cmd_diff = {
	.name = "diff",
	.args = "A B | A... : B...",
	.shards = "",
	.summary = "compare two dumps, also of different layouts",
	.run = run,
	.examples =
		"  kvtool diff nhd.npy hnd.h5\n"
		"  kvtool diff --tolerance=auto --heatmap=where.svg fp16.h5 bf16.h5\n"
		"  kvtool diff --table=layer,head before.h5 after.h5\n"
		"  kvtool diff --attention=q.safetensors --tolerance=attention=0.01 a.h5 b.h5\n"
		"  kvtool diff --a=layout=kv-first-nhd --b=layout=hnd before.npy after.npy\n"
		"  kvtool diff whole.npy : rank*.safetensors\n",
};
