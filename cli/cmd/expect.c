/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expect.c - layout contracts: write one, check dumps against it, compare two
 *
 * Data is read only for clauses with a digest.  Modes layout, backend and others are what
 * vLLM would choose, commands of their own.
 */
#include "cli/cmd/expect/modes.h"
#include "cli/progress.h"
#include "cli/expect/expect.h"
#include "print/out/screen.h"
#include "cli/set.h"

#include <stdlib.h>
#include <string.h>

#include "cli/shard/shard.h"
#include "lib/ops/digest/digest.h"
#include "print/out/signals.h"
#include "print/out/streams.h"
#include "print/out/text_file.h"

enum { MAX_CONTRACT = 1 << 20 };

struct arguments {
	struct kvt_hints hints;
	struct kvt_run run;
	const char *output;
	bool quiet, digest, pool, force, github, json;
	struct opt_strings reports;	/* FORMAT=FILE */
	enum kvt_release release;	/* KVT_NRELEASES: not said */
	struct expect_on on;
	const char *on_text;
};

/* ---- one dump ----------------------------------------------------------- */

struct opened {
	struct kvt_dump *reader;
	struct kvt_description *d;
	struct json_out json;
	struct digest_value text[DIGEST_NSCOPES], kvd1;
	struct expect_dump dump;
};

/* Contracts may have digests of before version 2, which are what they were. */
static enum kvt_status compute_kvd1(struct opened *o, struct arguments *args,
				    struct kvt_error *err)
{
	struct digests digests;
	enum kvt_status status = kvt_digests_compute(&digests, o->reader, DIGEST_KVD1,
						     &args->run, err);

	if (!status) {
		o->kvd1 = kvt_digest_text(DIGEST_TOKENS, DIGEST_KVD1,
					  &digests.whole[DIGEST_TOKENS]);
		o->dump.kvd1 = o->kvd1.s;
	}
	kvt_digests_free(&digests);
	return status;
}

static enum kvt_status compute_digests(struct opened *o, const char *path,
				       struct arguments *args, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	struct digests digests;
	enum kvt_status status = kvt_digests_compute(&digests, o->reader, DIGEST_NEWEST,
						     &args->run, &why);

	for (int s = 0; !status && s < DIGEST_NSCOPES; s++) {
		o->text[s] = kvt_digest_text(s, digests.version, &digests.whole[s]);
		if (s != DIGEST_TOKENS || digests.has_tokens)
			o->dump.digest[s] = o->text[s].s;
	}
	if (!status && digests.has_tokens && digests.version != DIGEST_KVD1)
		status = compute_kvd1(o, args, &why);
	kvt_digests_free(&digests);
	return status ? kvt_fail_about(err, status, path, &why) : KVT_OK;
}

/* Close it either way. */
static enum kvt_status open_dump(struct opened *o, const char *path, bool digest,
				 struct arguments *args, struct kvt_error *err)
{
	const struct describe_options nothing = { .names = false };
	enum kvt_status status;

	*o = (struct opened){ .d = calloc(1, sizeof(*o->d)) };
	if (!o->d)
		return kvt_no_memory(err, path);
	if ((status = kvt_open(&o->reader, path, &args->hints, err)) ||
	    (status = kvt_describe(o->d, path, o->reader, err)))
		return status;
	describe_json(&o->json, o->d, &nothing);
	if (o->json.failed)
		return kvt_no_memory(err, path);
	o->dump.d = o->d;
	o->dump.json = o->json.root;
	return digest ? compute_digests(o, path, args, err) : KVT_OK;
}

static void close_dump(struct opened *o)
{
	if (o->d)
		kvt_description_free(o->d);
	json_free(&o->json);
	free(o->d);
	kvt_dump_close(o->reader);
}

/* ---- write -------------------------------------------------------------- */

/* To a file; what goes to standard output is alone there. */
static enum kvt_status write_contract(const char *to, const char *text, const char *of,
				      const struct arguments *args, struct kvt_error *err)
{
	struct contract contract = { 0 };
	enum kvt_status status;

	status = text_file_write(to, text, strlen(text), args->force, err);
	if (status || args->quiet || is_stream_out(to))
		return status;
	if (!(status = contract_parse(&contract, text, strlen(text), to, err)))
		plainf("%s: %d clause%s of %s; to check others: "
		       "kvtool expect check %s FILE...\n", to, contract.nclauses,
		       plural(contract.nclauses), of, to);
	contract_free(&contract);
	return status;
}

static enum kvt_status expect_write(struct arguments *args, char **argv, int n,
				    struct kvt_error *err)
{
	struct opened o;
	enum kvt_status status;
	const char *to;
	char *text = NULL;

	/* a manifest behind its data is an output that is refused */
	if (args->output || n != 2 || !kvt_is_manifest_of(argv[1], argv[0], &args->hints))
		n = pass_over_manifests(argv, n, &args->hints);
	if (n < 1 || n > 2 || (n == 2 && args->output))
		return kvt_fail(err, KVT_USAGE,
				"write: expected one dump and at most one output, got %d operands%s",
				n, args->output ? " and -o" : "");
	to = n == 2 ? argv[1] : args->output;
	if (shard_sharing())
		return kvt_fail(err, KVT_USAGE, "write: --shard is an option of check");
	if (args->json || args->github || args->reports.n)
		return kvt_fail(err, KVT_USAGE,
				"write: --json, --github and --report are options of check");
	if (is_stream(to))
		to = NULL;
	if ((status = stream_in(1, argv, err)))
		return status;
	if ((status = text_file_check(to, argv, 1, args->force, err)))
		return status;
	status = open_dump(&o, argv[0], args->digest, args, err);
	if (!status && !(text = expect_contract(&o.dump, args->pool)))
		status = kvt_no_memory(err, NULL);
	if (!status && to)
		status = write_contract(to, text, argv[0], args, err);
	else if (!status)
		fputs(text, stdout);
	free(text);
	close_dump(&o);
	return status;
}

/* ---- check -------------------------------------------------------------- */

static bool wants_digest(const struct contract *c)
{
	for (int i = 0; i < c->nclauses; i++)
		if (c->clause[i].key->type == CLAUSE_DIGEST)
			return true;
	return false;
}

/* The option beats what the contract says; without both, any release will do. */
static unsigned releases_of(const struct contract *c, const struct arguments *args)
{
	return args->release < KVT_NRELEASES ? 1u << args->release : contract_releases(c);
}

static void check_file(struct expect_result *r, const struct contract *c,
		       struct arguments *args)
{
	struct kvt_error err = { "" };
	struct opened o;
	enum kvt_status status = open_dump(&o, r->path, wants_digest(c), args, &err);

	o.dump.releases = releases_of(c, args);
	o.dump.on = args->on;
	if (!status)
		expect_judge_contract(r, c, &o.dump);
	if (!status && r->out_of_memory)
		status = kvt_no_memory(&err, r->path);
	r->status = worse(r->status, status);
	snprintf(r->error, sizeof(r->error), "%s", err.text);
	close_dump(&o);
}

static void print_file(const struct expect_results *results,
		       const struct expect_result *r, bool quiet)
{
	/* of a part of the data no clause can be judged */
	for (int i = 0; i < r->noutcomes && shard_whole(); i++) {
		char text[1100];

		if (r->outcome[i].holds)
			continue;
		outcome_text(text, sizeof(text), &r->outcome[i]);
		complain(&cmd_expect, "%s:%d: %s: %s", results->contract,
			 r->outcome[i].clause->line, r->path, text);
	}
	if (*r->error)
		complain(&cmd_expect, "%s", r->error);
	if (*r->error || r->status || quiet)
		return;
	screen_say(SCREEN_NAME, r->path);
	plainf(": matches %s (%d clause%s%s%s)\n", results->contract, r->noutcomes,
	       plural(r->noutcomes), r->releases ? "; of vLLM " : "",
	       kvt_releases_text(r->releases).s);
}

/* ---- reports ------------------------------------------------------------ */

/* "FORMAT=FILE": the file; NULL if there is none. */
static const char *report_file(char format[16], const char *report)
{
	size_t n = strcspn(report, "=");

	snprintf(format, 16, "%.*s", (int)(n < 15 ? n : 15), report);
	return report[n] && report[n + 1] ? report + n + 1 : NULL;
}

/* Only one thing can be all of standard output. */
static enum kvt_status check_reports(struct arguments *args, char **argv, int n,
				     struct kvt_error *err)
{
	bool force = args->force || shard_sharing();
	int on_stdout = args->json + args->github;
	enum kvt_status status;

	for (int i = 0; i < args->reports.n; i++) {
		const char *file;
		char format[16];

		file = report_file(format, args->reports.s[i]);
		if (!file || !expect_report(NULL, format, NULL))
			return kvt_fail(err, KVT_USAGE,
					"--report is '%.100s', expected junit=FILE or tap=FILE",
					args->reports.s[i]);
		if ((status = text_file_check(file, argv, n, force, err)))
			return status;
		on_stdout += is_stream(file);
	}
	if (on_stdout > 1)
		return kvt_fail(err, KVT_USAGE,
				"only one of --json, --github and a report can go to standard output");
	return KVT_OK;
}

/* Into memory; 'out->path' stays NULL for what goes to standard output. */
static enum kvt_status make_report(struct text_output *out, const char *report,
				   const struct expect_results *r, struct kvt_error *err)
{
	char format[16];
	const char *file = report_file(format, report);
	FILE *stream;

	if (is_stream(file)) {
		expect_report(stdout, format, r);
		return KVT_OK;
	}
	out->path = file;
	if (!(stream = text_output_open(out)))
		return kvt_no_memory(err, file);
	expect_report(stream, format, r);
	return text_output_close(stream) ? KVT_OK : kvt_no_memory(err, file);
}

static enum kvt_status write_reports(const struct opt_strings *reports, bool force,
				     const struct expect_results *r,
				     struct kvt_error *err)
{
	struct text_output *out = calloc((size_t)reports->n + 1, sizeof(*out));
	enum kvt_status status = KVT_OK;
	int n = 0;

	if (!out)
		return kvt_no_memory(err, NULL);
	for (int i = 0; i < reports->n && !status; i++) {
		status = make_report(&out[n], reports->s[i], r, err);
		n += out[n].path != NULL;
	}
	if (!status)
		status = text_files_write(out, n, force, err);
	for (int i = 0; i < n; i++)
		free(out[i].text);
	free(out);
	return status;
}

static enum kvt_status print_results(struct arguments *args,
				     const struct expect_results *r,
				     struct kvt_error *err)
{
	struct json_out json = { NULL, false };
	enum kvt_status status = KVT_OK;

	if (args->github)
		expect_github(stdout, r);
	if (args->json) {
		expect_json(&json, r);
		status = json_print(&json, false, err);
	}
	return status ? status : write_reports(&args->reports, args->force, r, err);
}

static enum kvt_status read_contract(struct contract *out, const char *path,
				     struct kvt_error *err)
{
	char *text = NULL;
	size_t nbytes;
	enum kvt_status status;

	*out = (struct contract){ 0 };
	if ((status = text_file_read(&text, &nbytes, path, MAX_CONTRACT, err)))
		return status;
	status = contract_parse(out, text, nbytes, path, err);
	free(text);
	return status;
}

static enum kvt_status check_files(struct arguments *args, const struct contract *c,
				   struct expect_results *r, struct kvt_error *err)
{
	bool quiet = args->json || args->github || args->quiet;
	enum kvt_status status = KVT_OK, s;

	for (int i = 0; i < args->reports.n; i++) {
		const char *dash = strrchr(args->reports.s[i], '=');

		quiet |= !strcmp(dash, "=-");
	}
	for (int i = 0; i < r->nfiles && !interrupted; i++) {
		args->run.about = i;
		check_file(&r->file[i], c, args);
		print_file(r, &r->file[i], quiet);
		status = worse(status, r->file[i].status);
	}
	s = interrupted || !shard_whole() ? KVT_OK : print_results(args, r, err);
	return worse(status, s);
}

static enum kvt_status expect_check(struct arguments *args, char **argv, int n,
				    struct kvt_error *err)
{
	struct expect_results r = { .nfiles = n - 1 };
	struct contract contract = { 0 };
	enum kvt_status status;

	if ((status = stream_in(n, argv, err)))
		return status;
	r.contract = argv[0];
	if (n < 2)
		return kvt_fail(err, KVT_USAGE,
				"check: expected a contract and dumps: kvtool expect check cache.kvc dump.h5");
	if (args->output || args->digest || args->pool)
		return kvt_fail(err, KVT_USAGE,
				"check: --output, --digest and --pool are options of write");
	if ((status = check_reports(args, argv, n, err)))
		return status;
	if (!(r.file = calloc((size_t)r.nfiles, sizeof(*r.file))))
		return kvt_no_memory(err, NULL);
	r.nfiles = pass_over_manifests(argv + 1, n - 1, &args->hints);
	for (int i = 0; i < r.nfiles; i++)
		r.file[i].path = argv[1 + i];
	if (!(status = read_contract(&contract, argv[0], err)))
		status = check_files(args, &contract, &r, err);
	for (int i = 0; i < r.nfiles; i++)
		free(r.file[i].outcome);
	free(r.file);
	contract_free(&contract);
	return status;
}

/* ---- compare ------------------------------------------------------------ */

static void print_changes(const struct contract contracts[2], char *const *names,
			  const struct contract_changes *changes)
{
	char words[1024];

	if (!changes->n) {
		plainf("%s and %s: the same (%d clause%s)\n", names[0], names[1],
		       changes->nclauses, plural(changes->nclauses));
		return;
	}
	contract_changes_words(words, sizeof(words), changes);
	plainf("%s to %s: %s\n", names[0], names[1],
	       *words ? words : "no other layout, type or size, but other clauses");
	for (int i = 0; i < changes->n; i++) {
		const struct contract_change *c = &changes->change[i];
		int of = c->clause[1] != NULL;

		plainf("%s:%d: %s\n", names[of], c->clause[of]->line,
		       contract_change_text(contracts, c).s);
	}
}

static enum kvt_status expect_compare(struct arguments *args, char **argv, int n,
				      struct kvt_error *err)
{
	struct contract contracts[2] = { { 0 } };
	struct contract_changes changes = { 0 };
	struct json_out json = { NULL, false };
	enum kvt_status status = stream_in(n, argv, err);

	if (status)
		return status;
	if (n != 2 || args->output || args->github || args->reports.n || args->digest ||
	    args->pool)
		return kvt_fail(err, KVT_USAGE,
				"compare: expected two contracts and no option but --json and --quiet: kvtool expect compare old.kvc new.kvc");
	for (int i = 0; !status && i < 2; i++)
		status = read_contract(&contracts[i], argv[i], err);
	if (!status)
		status = contract_compare(&changes, contracts, err);
	if (!status && args->json) {
		const char *const names[2] = { argv[0], argv[1] };

		contract_changes_json(&json, contracts, names, &changes);
		status = json_print(&json, false, err);
	} else if (!status && !args->quiet) {
		print_changes(contracts, argv, &changes);
	}
	if (!status && changes.n)
		status = KVT_MISMATCH;
	free(changes.change);
	for (int i = 0; i < 2; i++)
		contract_free(&contracts[i]);
	return status;
}

/* ---- the command -------------------------------------------------------- */

/* What vLLM would choose: commands of their own. */
static const struct command *const modes[] = {
	&expect_backend, &expect_layout, &expect_connector,
};
enum { NMODES = sizeof(modes) / sizeof(modes[0]) };

/* A file that is named like a mode is written ./layout. */
static const struct command *mode_of(int argc, char **argv)
{
	for (int i = 0; argc > 1 && i < NMODES; i++)
		if (!strcmp(argv[1], strchr(modes[i]->name, ' ') + 1))
			return modes[i];
	return NULL;
}

static void list_modes(void)
{
	for (int i = 0; i < NMODES; i++)
		plainf("%s\n", strchr(modes[i]->name, ' ') + 1);
}

static enum kvt_status run_contract(int argc, char **argv, struct kvt_error *err)
{
	struct arguments args = { .release = KVT_NRELEASES };
	int64_t threads = 0, memory = 0;
	enum kvt_status status;
	const struct opt opts[] = {
		OPT_OUTPUT(&args.output),
		OPT_FORCE(&args.force),
		{ "digest", 0, OPT_FLAG, &args.digest, NULL,
		  "write: read the data, and require its digest" },
		{ "pool", 0, OPT_FLAG, &args.pool, NULL,
		  "write: require the number of blocks, too" },
		{ "report", 0, OPT_STRINGS, &args.reports, "FORMAT=FILE",
		  "check: write junit or tap to FILE; -: standard output" },
		{ "github", 0, OPT_FLAG, &args.github, NULL,
		  "check: print annotations for GitHub" },
		OPT_RELEASE(&args.release),
		OPT_ON(&args.on_text),
		OPT_JSON(&args.json),
		OPT_THREADS(&threads),
		OPT_MEMORY(&memory),
		OPT_QUIET(&args.quiet),
		OPT_SHARD,
		OPT_INPUT(&args.hints),
		{ 0 }
	};
	int n = opt_parse(&cmd_expect, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if ((status = expect_on_take(&args.on, args.on_text, err)))
		return status;
	args.run = run_watched(threads, memory, args.quiet);
	signals_catch();
	if (n > 0 && !strcmp(argv[0], "write"))
		return expect_write(&args, argv + 1, n - 1, err);
	if (n > 0 && !strcmp(argv[0], "check"))
		return expect_check(&args, argv + 1, n - 1, err);
	if (n > 0 && !strcmp(argv[0], "compare"))
		return expect_compare(&args, argv + 1, n - 1, err);
	return kvt_fail(err, KVT_USAGE,
			"expected write, check or compare, or backend, layout, connector%s%.40s; for example: kvtool expect write dump.h5 cache.kvc",
			n > 0 ? ", got " : "", n > 0 ? argv[0] : "");
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	const struct command *mode = mode_of(argc, argv);

	if (mode)
		return mode->run(argc - 1, argv + 1, err);
	if (argc == 2 && !strcmp(argv[1], "--list-modes")) {
		list_modes();
		return KVT_OK;
	}
	return run_contract(argc, argv, err);
}

const struct command cmd_expect = {
	.name = "expect",
	.args = "{write FILE [CONTRACT] | check CONTRACT FILE... | compare OLD NEW | "
		"{backend | layout | connector} ...}",
	.summary = "write, check, compare layout contracts; what vLLM chooses",
	.streams = STREAM_OWN,
	.shards = "",
	.run = run,
	.examples =
		"  kvtool expect write -o cache.kvc dump.h5\n"
		"  kvtool expect check cache.kvc dump.h5\n"
		"  kvtool expect check --report=junit=cache.xml cache.kvc *.h5\n"
		"  kvtool expect compare old.kvc new.kvc\n"
		"  kvtool expect backend dump.h5\n",
};
