/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck.c - is a dump consistent, with itself and with the other ranks?
 *
 *	a file		opened with an inspector, which hears what formats find; then
 *			lib/ops/check looks, at the data unless --fast; then it is told of
 *	ranks		stay open until all files were seen.  Those of one share are
 *			checked together, with --model all of one copy, and told of as one
 *	a table		of registered regions: cli/regions.c
 *
 * What is refused is a finding, too: those that its format told of, or else
 * file.unreadable with the status of the refusal.  An error is KVT_MISMATCH, warnings
 * and notes are not; the status is the highest of all.  JSON is printed at the end.
 */
#include "cli/opt.h"
#include "cli/progress.h"
#include "cli/regions.h"
#include "cli/set.h"
#include "print/fsck.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "formats/file/tree.h"
#include "formats/model/config.h"
#include "formats/stage.h"
#include "lib/derived/merge.h"
#include "lib/ops/check/integrity.h"
#include "print/out/signals.h"

struct asked {
	struct kvt_hints hints;
	struct kvt_run run;
	bool fast, json, list, quiet, part;
	int64_t sample;			/* files of a tree; 0: all */
};

/* Ranks of a model stay open until all files were seen. */
struct run {
	struct asked *asked;
	int nfiles, nranks;
	struct rank_file *rank;
	struct json_out json;
	json_t *list;
	enum kvt_status status;
};

/* ---- one file ----------------------------------------------------------- */

static void found(void *context, const char *name, const char *text)
{
	kvt_find(context, name, kvt_find_at("%s", ""), "%s", text);
}

static void found_more(void *context, const char *name, int64_t n)
{
	kvt_find_more(context, name, n);
}

static void seen(void *context, int64_t files)
{
	(void)context;
	progress_count("files seen", files);
}

/* Bytes that are not as they must be are a finding; too little memory is none. */
static void tell_failure(struct kvt_findings *r, enum kvt_status status, const char *why,
			 struct run *run)
{
	why = kvt_without_path(why, r->path);
	if (status == KVT_BAD_INPUT)
		kvt_find(r, "file.unreadable", kvt_find_at("%s", ""), "%s", why);
	else if (status && !interrupted)
		complain(&cmd_fsck, "%s: %s", r->path, why);
	run->status = worse(run->status, status);
}

static void check_dump(struct kvt_findings *r, struct kvt_dump *dump,
		       const char *path, struct run *run)
{
	struct kvt_error why = { "" };
	enum kvt_status status = kvt_check_dump(r, dump, path, !run->asked->fast,
						&run->asked->run, &why);

	tell_failure(r, status, why.text, run);
}

/* Ranks of one copy of a model, or a dump that is no rank of any. */
static void check_model(struct kvt_findings *r, const struct rank_file *files,
			int nfiles, struct run *run)
{
	const struct kvt_model *model = run->asked->hints.of_model;
	struct kvt_error why = { "" };
	enum kvt_status status = kvt_check_model(r, files, nfiles, model,
						 run->asked->part, &why);

	tell_failure(r, status, why.text, run);
}

/* What is refused is a finding, too; flaws that have names were found before. */
static void refused(struct kvt_findings *r, enum kvt_status status, const char *why,
		    struct run *run)
{
	if (r->total[KVT_ERROR])
		return;
	kvt_find(r, "file.unreadable", kvt_find_at("%s", ""), "%s",
		 kvt_without_path(why, r->path));
	run->status = worse(run->status, status);
}

static void finish(struct kvt_findings *r, struct run *run)
{
	if (run->asked->json)
		fsck_json(&run->json, json_append_object(&run->json, run->list), r,
			  INT_MAX);
	else
		fsck_text(r, run->asked->quiet);
	if (r->total[KVT_ERROR])
		run->status = worse(run->status, KVT_MISMATCH);
	if (r->out_of_memory) {
		complain(&cmd_fsck, "%s: out of memory", r->path);
		run->status = worse(run->status, KVT_SYSTEM);
	}
	kvt_findings_free(r);
}

static void found_leftover(void *context, const char *left)
{
	kvt_find(context, "file.leftover", kvt_find_at("%s", ""),
		 "%s is the temporary folder of a killed or running kvtool", left);
}

/* In a folder, and beside what is looked at. */
static void find_leftovers(struct kvt_findings *r, const char *path)
{
	if (kvt_is_folder(path))
		kvt_stage_leftovers(path, NULL, found_leftover, r);
	kvt_stage_leftovers(NULL, path, found_leftover, r);
}

/* What a connector registered, instead of a dump. */
static void check_table(const char *path, struct run *run)
{
	struct kvt_findings r = { .nfindings = 0 };
	struct kvt_error why = { "" };
	enum kvt_status status = regions_check(&r, path, &why);

	if (status) {
		snprintf(r.path, sizeof(r.path), "%s", path);
		refused(&r, status, why.text, run);
	}
	finish(&r, run);
}

/* It is checked with the others; of stages that is what they have of the model. */
static bool is_rank(const struct kvt_dump *dump, const struct kvt_hints *hints)
{
	const struct kvt_parallel *p = &kvt_dump_snapshot(dump)->parallel;

	return p->tp_size > 1 || (hints->of_model && p->pp_size > 1);
}

static void check_file(const char *path, struct run *run)
{
	struct kvt_findings r = { .nfindings = 0 };
	const struct kvt_inspector inspector = {
		.found = found, .context = &r, .more = found_more,
		.seen = run->asked->quiet ? NULL : seen };
	struct kvt_hints hints = run->asked->hints;
	struct kvt_error why = { "" };
	struct kvt_dump *dump;
	enum kvt_status status;

	snprintf(r.path, sizeof(r.path), "%s", path);
	find_leftovers(&r, path);
	hints.inspector = &inspector;
	hints.empty = true;
	hints.look_into = run->asked->fast ? 0 : INT64_MAX;
	hints.sample = run->asked->sample;
	status = kvt_open(&dump, path, &hints, &why);
	progress_count(NULL, 0);
	if (status) {
		refused(&r, status, why.text, run);
	} else {
		const struct rank_file file = { path, dump };

		r.of_model = hints.of_model;
		check_dump(&r, dump, path, run);
		if (is_rank(dump, &hints)) {
			run->rank[run->nranks++] = file;
		} else {
			if (hints.of_model && !interrupted)
				check_model(&r, &file, 1, run);
			kvt_dump_close(dump);
		}
	}
	if (!interrupted)
		finish(&r, run);
}

/* ---- several ranks ------------------------------------------------------ */

/* Ranks of one copy of the model. */
static bool same_copy(const struct rank_file *a, const struct rank_file *b)
{
	const struct kvt_parallel *x = &kvt_dump_snapshot(a->reader)->parallel;
	const struct kvt_parallel *y = &kvt_dump_snapshot(b->reader)->parallel;

	return x->tp_size == y->tp_size && x->pp_size == y->pp_size &&
	       x->dp_size == y->dp_size && x->dp_rank == y->dp_rank &&
	       x->dcp_size == y->dcp_size;
}

/* The same share in everything but the tensor parallel rank. */
static bool belong_together(const struct rank_file *a, const struct rank_file *b)
{
	const struct kvt_parallel *x = &kvt_dump_snapshot(a->reader)->parallel;
	const struct kvt_parallel *y = &kvt_dump_snapshot(b->reader)->parallel;

	return same_copy(a, b) && x->pp_rank == y->pp_rank && x->dcp_rank == y->dcp_rank;
}

static void check_ranks(struct rank_file *files, int nfiles, struct run *run)
{
	struct kvt_findings r = { .nfindings = 0 };
	struct kvt_error why = { "" };
	enum kvt_status status;

	snprintf(r.path, sizeof(r.path), "%.400s and %d more of %lld ranks",
		 files[0].name, nfiles - 1,
		 LL(kvt_dump_snapshot(files[0].reader)->parallel.tp_size));
	status = kvt_check_ranks(&r, files, nfiles, run->asked->fast, &run->asked->run,
				 &why);
	tell_failure(&r, status, why.text, run);
	if (!interrupted)
		finish(&r, run);
	else
		kvt_findings_free(&r);
}

typedef bool same_set(const struct rank_file *a, const struct rank_file *b);

/* Those that are of the set of the one at 'begin' follow it; where they end. */
static int gather(struct rank_file *rank, int begin, int n, same_set *same)
{
	int end = begin + 1;

	for (int i = end; i < n; i++) {
		struct rank_file one = rank[i];

		if (!same(&rank[begin], &one))
			continue;
		memmove(&rank[end + 1], &rank[end], (size_t)(i - end) * sizeof(*rank));
		rank[end++] = one;
	}
	return end;
}

/* Ranks that were given together are checked together; one alone is fine. */
static void check_sets(struct run *run)
{
	struct rank_file *rank = run->rank;

	for (int begin = 0, end; begin < run->nranks && !interrupted; begin = end) {
		end = gather(rank, begin, run->nranks, belong_together);
		run->asked->run.about = run->nfiles + begin;
		if (end - begin > 1)
			check_ranks(&rank[begin], end - begin, run);
	}
}

/* All stages and ranks of a model, against it. */
static void check_copies(struct run *run)
{
	struct rank_file *rank = run->rank;

	for (int begin = 0, end; begin < run->nranks && !interrupted; begin = end) {
		struct kvt_findings r = { .nfindings = 0 };

		end = gather(rank, begin, run->nranks, same_copy);
		if (end - begin > 1)
			snprintf(r.path, sizeof(r.path), "%.400s and %d more of a model",
				 rank[begin].name, end - begin - 1);
		else
			snprintf(r.path, sizeof(r.path), "%.400s", rank[begin].name);
		check_model(&r, &rank[begin], end - begin, run);
		finish(&r, run);
	}
}

/* ---- the command -------------------------------------------------------- */

static void list_rules(void)
{
	const struct kvt_rule *rule;

	for (int i = 0; (rule = kvt_rule_at(i)); i++)
		plainf("%-22s %-8s %s\n", rule->name, kvt_severity_name(rule->severity),
		       rule->meaning);
}

static enum kvt_status check_all(struct asked *asked, char **argv, int n,
				 struct kvt_error *err)
{
	struct run run = { .asked = asked, .nfiles = n };
	enum kvt_status status = KVT_OK;

	if (!(run.rank = calloc((size_t)n, sizeof(*run.rank))))
		return kvt_no_memory(err, NULL);
	json_start(&run.json);
	run.list = json_put_array(&run.json, run.json.root, "files");
	for (int i = 0; i < n && !interrupted; i++) {
		asked->run.about = i;
		if (is_regions(argv[i]))
			check_table(argv[i], &run);
		else
			check_file(argv[i], &run);
	}
	check_sets(&run);
	if (asked->hints.of_model)
		check_copies(&run);
	if (asked->json && !interrupted)
		status = json_print(&run.json, false, err);
	for (int i = 0; i < run.nranks; i++)
		kvt_dump_close(run.rank[i].reader);
	json_free(&run.json);
	free(run.rank);
	return worse(run.status, status);
}

/* The model is read once, for all files. */
static enum kvt_status check_as_model(struct asked *asked, char **argv, int n,
				      struct kvt_error *err)
{
	const struct kvt_config_hints none = { .nset = 0 };
	struct kvt_model_config *config = NULL;
	enum kvt_status status = KVT_OK;

	if (asked->hints.model && !(config = malloc(sizeof(*config))))
		return kvt_no_memory(err, NULL);
	if (config && !(status = kvt_model_open(config, asked->hints.model, &none, err)))
		asked->hints.of_model = &config->model;
	if (!status)
		status = check_all(asked, argv, n, err);
	asked->hints.of_model = NULL;
	free(config);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked asked = { .fast = false };
	int64_t threads = 0, memory = 0;
	const struct opt opts[] = {
		{ "fast", 0, OPT_FLAG, &asked.fast, NULL, "do not read the data" },
		{ "sample", 0, OPT_COUNT, &asked.sample, "N",
		  "open N files of a tree; of all see names and lengths" },
		{ "list", 0, OPT_FLAG, &asked.list, NULL, "list all findings" },
		{ "part", 0, OPT_FLAG, &asked.part, NULL,
		  "layers of --model may be missing" },
		OPT_JSON(&asked.json),
		OPT_THREADS(&threads),
		OPT_MEMORY(&memory),
		OPT_QUIET(&asked.quiet),
		OPT_SHARD,
		OPT_INPUT(&asked.hints),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&cmd_fsck, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (asked.list) {
		list_rules();
		return KVT_OK;
	}
	if ((status = opt_need(&cmd_fsck, (struct opt_need[]){
			{ n, "a dump" }, { 0 } }, err)))
		return status;
	if (asked.part && !asked.hints.model)
		return kvt_fail(err, KVT_USAGE,
				"--part is a part of a model: give the model, too, with --model");
	n = pass_over_manifests(argv, n, &asked.hints);
	asked.run = run_watched(threads, memory, asked.quiet);
	signals_catch();
	return check_as_model(&asked, argv, n, err);
}

const struct command cmd_fsck = {
	.name = "fsck",
	.args = "FILE...",
	.shards = "",
	.summary = "look for contradictions in dumps and between ranks",
	.run = run,
	.examples =
		"  kvtool fsck dump.h5\n"
		"  kvtool fsck --fast --json *.h5\n"
		"  kvtool fsck rank0.safetensors rank1.safetensors\n",
};
