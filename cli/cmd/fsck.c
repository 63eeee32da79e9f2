/* SPDX-License-Identifier: Apache-2.0 */
/* fsck.c - is a dump consistent, with itself and with the other ranks? */
#include "cli/opt.h"
#include "cli/print/fsck.h"
#include "cli/progress.h"
#include "cli/regions.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/signals.h"
#include "formats/file/stage.h"
#include "lib/dump/merge.h"
#include "lib/ops/check/integrity.h"

struct asked {
	struct kvt_hints hints;
	struct kvt_run run;
	bool fast, json, list, quiet;
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
		fsck_json(&run->json, run->list, r);
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
	struct stat st;

	if (!stat(path, &st) && S_ISDIR(st.st_mode))
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

static void check_file(const char *path, struct run *run)
{
	struct kvt_findings r = { .nfindings = 0 };
	const struct kvt_inspector inspector = { found, &r };
	struct kvt_hints hints = run->asked->hints;
	struct kvt_error why = { "" };
	struct kvt_dump *dump;
	enum kvt_status status;

	snprintf(r.path, sizeof(r.path), "%s", path);
	find_leftovers(&r, path);
	hints.inspector = &inspector;
	hints.empty = true;
	status = kvt_open(&dump, path, &hints, &why);
	if (status) {
		refused(&r, status, why.text, run);
	} else {
		check_dump(&r, dump, path, run);
		if (kvt_dump_snapshot(dump)->parallel.tp_size > 1)
			run->rank[run->nranks++] = (struct rank_file){ path, dump };
		else
			kvt_dump_close(dump);
	}
	if (!interrupted)
		finish(&r, run);
}

/* ---- several ranks ------------------------------------------------------ */

/* The same share in everything but the tensor parallel rank. */
static bool belong_together(const struct rank_file *a, const struct rank_file *b)
{
	const struct kvt_parallel *x = &kvt_dump_snapshot(a->reader)->parallel;
	const struct kvt_parallel *y = &kvt_dump_snapshot(b->reader)->parallel;

	return x->tp_size == y->tp_size && x->pp_size == y->pp_size &&
	       x->pp_rank == y->pp_rank && x->dp_size == y->dp_size &&
	       x->dp_rank == y->dp_rank && x->dcp_size == y->dcp_size &&
	       x->dcp_rank == y->dcp_rank;
}

static void check_ranks(struct rank_file *files, int nfiles, struct run *run)
{
	struct kvt_findings r = { .nfindings = 0 };
	struct kvt_error why = { "" };
	enum kvt_status status;

	snprintf(r.path, sizeof(r.path), "%.400s and %d more of %lld ranks",
		 files[0].name, nfiles - 1,
		 (long long)kvt_dump_snapshot(files[0].reader)->parallel.tp_size);
	status = kvt_check_ranks(&r, files, nfiles, run->asked->fast, &run->asked->run,
				 &why);
	tell_failure(&r, status, why.text, run);
	if (!interrupted)
		finish(&r, run);
	else
		kvt_findings_free(&r);
}

/* Ranks that were given together are checked together; one alone is fine. */
static void check_sets(struct run *run)
{
	struct rank_file *rank = run->rank;

	for (int begin = 0, end; begin < run->nranks && !interrupted; begin = end) {
		end = begin + 1;
		for (int i = end; i < run->nranks; i++) {
			struct rank_file one = rank[i];

			if (!belong_together(&rank[begin], &one))
				continue;
			memmove(&rank[end + 1], &rank[end],
				(size_t)(i - end) * sizeof(*rank));
			rank[end++] = one;
		}
		run->asked->run.about = run->nfiles + begin;
		if (end - begin > 1)
			check_ranks(&rank[begin], end - begin, run);
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
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
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
	if (asked->json && !interrupted)
		status = json_print(&run.json, false, err);
	for (int i = 0; i < run.nranks; i++)
		kvt_dump_close(run.rank[i].reader);
	json_free(&run.json);
	free(run.rank);
	return worse(run.status, status);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked asked = { .fast = false };
	int64_t threads = 0, memory = 0;
	const struct opt opts[] = {
		{ "fast", 0, OPT_FLAG, &asked.fast, NULL, "do not read the data" },
		{ "list", 0, OPT_FLAG, &asked.list, NULL,
		  "list all findings" },
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
	asked.run = run_watched(threads, memory, asked.quiet);
	signals_catch();
	return check_all(&asked, argv, n, err);
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
