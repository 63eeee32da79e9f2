/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.c - the smallest part that still shows it, as a folder to send
 *
 * Two dumps show that they differ, by the fault that diff finds in the whole; a command
 * of the user's shows that it fails.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cmd/diff.h"
#include "cli/cmd/shrink/case.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "lib/dump/read.h"
#include "print/out/json_out.h"
#include "print/out/signals.h"

struct arguments {
	struct kvt_hints hints, side[NSIDES];
	const char *tolerance, *atol, *rtol, *output;
	bool exact, no_diagnosis, force, json, quiet;
	int64_t threads, memory;
	struct shrink_case c;
	struct shrink_differs differs;
	struct kvt_dump *whole[NSIDES];
	const char *name[NSIDES];	/* as they were typed; NULL: there is none */
	char output_name[PATH_MAX], terms[256];
	int64_t tries;
};

/* ---- the command line --------------------------------------------------- */

/* The options of kvtool diff, as the text of the case has to repeat them. */
static enum kvt_status take_criteria(struct arguments *a, struct kvt_error *err)
{
	const char *const terms[] = { a->tolerance, a->atol, a->rtol };
	struct diff_criteria *criteria = &a->differs.criteria;
	enum kvt_status status;
	int n = 0;

	criteria->exact = a->exact;
	if (a->exact && (a->tolerance || a->atol || a->rtol))
		return kvt_fail(err, KVT_USAGE,
				"--exact and --tolerance exclude each other");
	if ((status = diff_tolerances(&criteria->tolerance, terms, false, err)))
		return status;
	if (a->exact)
		n = snprintf(a->terms, sizeof(a->terms), " --exact");
	else if (criteria->tolerance.given)
		n = snprintf(a->terms, sizeof(a->terms), " --tolerance=%s%s%s%s%s",
			     a->tolerance ? a->tolerance : "",
			     a->atol ? a->tolerance ? ",atol=" : "atol=" : "",
			     a->atol ? a->atol : "",
			     a->rtol ? a->tolerance || a->atol ? ",rtol=" : "rtol=" : "",
			     a->rtol ? a->rtol : "");
	return n < (int)sizeof(a->terms) ? KVT_OK :
	       kvt_fail(err, KVT_USAGE, "--tolerance is too long");
}

static enum kvt_status take_output(struct arguments *a, struct kvt_error *err)
{
	size_t n = strlen(a->output);

	while (n > 1 && a->output[n - 1] == '/')
		n--;
	if (n >= sizeof(a->output_name))
		return kvt_fail(err, KVT_USAGE, "--output is too long");
	memcpy(a->output_name, a->output, n);
	return KVT_OK;
}

static enum kvt_status take_arguments(struct arguments *a, char **argv, int n,
				      struct kvt_error *err)
{
	enum kvt_status status;

	if (n > 2)
		return kvt_fail(err, KVT_USAGE,
				"expected one dump, or two, got %d operands: '%.60s', '%.60s', '%.60s'%s",
				n, argv[0], argv[1], argv[2], n > 3 ? "..." : "");
	if ((status = opt_need(&cmd_shrink, (struct opt_need[]){
			{ n, "a dump" },
			{ n != 1 || a->c.command, "another dump, or --while=COMMAND" },
			{ a->output, "--output=DIR" }, { 0 } }, err)))
		return status;
	if (a->c.text && (!a->c.command || !*a->c.text))
		return kvt_fail(err, KVT_USAGE,
				"--text expects --while=COMMAND, and some text that it prints");
	if (a->c.command && (a->exact || a->tolerance || a->atol || a->rtol ||
			     a->no_diagnosis))
		return kvt_fail(err, KVT_USAGE,
				"--while says what counts: --exact, --tolerance and --no-diagnosis are of two dumps without it");
	a->name[SIDE_A] = argv[0];
	a->name[SIDE_B] = n > 1 ? argv[1] : NULL;
	return (status = take_output(a, err)) ? status : take_criteria(a, err);
}

/* ---- the whole ---------------------------------------------------------- */

static enum kvt_status open_wholes(struct arguments *a, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int s = 0; !status && s < NSIDES && a->name[s]; s++) {
		struct kvt_hints hints = a->hints;

		hints.has_sides = a->name[SIDE_B] != NULL;
		status = diff_open(&a->whole[s], a->name[s], &a->side[s], &hints, err);
	}
	if (!status && !a->c.command)
		status = kvt_shrink_pair(&a->differs, a->whole[SIDE_A],
					 &a->whole[SIDE_B], err);
	return status;
}

/* With which status does the command fail on the files as they are? */
static enum kvt_status ask_command(struct arguments *a, struct kvt_error *err)
{
	char whole[NSIDES][PATH_MAX];
	const char *path[NSIDES] = { NULL };
	enum kvt_status status;
	bool shows;

	for (int s = 0; s < NSIDES && a->name[s]; s++)
		path[s] = realpath(a->name[s], whole[s]) ? whole[s] : a->name[s];
	if ((status = while_run(&shows, &a->c.status, &a->c, path, err)))
		return status;
	if (a->c.text && !shows)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: --while ends with status %d and does not print '%.200s'; there is nothing to shrink",
				a->name[SIDE_A], a->c.status, a->c.text);
	if (!a->c.text && (!a->c.status || a->c.status == 127))
		return kvt_fail(err, KVT_BAD_INPUT,
				a->c.status ?
				"%s: --while ends with status 127: there is no such command; the names of the dumps are in $A and $B" :
				"%s: --while succeeds; expected a command that fails on it, or --text=TEXT that it prints (the names of the dumps are in $A and $B)",
				a->name[SIDE_A]);
	return KVT_OK;
}

static enum kvt_status nothing_to_show(const struct arguments *a, struct kvt_error *err)
{
	if (a->c.command)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: --while fails on it, but not on the same as a snapshot with names left out: it looks at the format, or at names",
				a->name[SIDE_A]);
	return kvt_fail(err, KVT_BAD_INPUT,
			"%s and %s hold the same values; there is nothing to show",
			a->name[SIDE_A], a->name[SIDE_B]);
}

/* ---- the search --------------------------------------------------------- */

static bool is_interrupted(void *context)
{
	(void)context;
	return interrupted;
}

static enum kvt_status search(struct arguments *a, struct shrink_parts *out,
			      struct kvt_error *err)
{
	const struct kvt_dump *const whole[NSIDES] = { a->whole[SIDE_A],
						       a->whole[SIDE_B] };
	const struct shrink_parts parts = { { a->whole[SIDE_A], a->whole[SIDE_B] } };
	struct shrink shrink = { kvt_shrink_differs, &a->differs, is_interrupted, 0 };
	enum kvt_status status = KVT_OK;
	bool shows;

	if (a->c.command) {
		shrink.shows = while_shows;
		shrink.context = &a->c;
		status = ask_command(a, err);
	}
	if (status || (status = shrink.shows(shrink.context, &shows, &parts, err)))
		return status;
	if (!shows)
		return nothing_to_show(a, err);
	status = kvt_shrink(out, &shrink, whole, err);
	a->tries = shrink.tries;
	for (int s = 0; !status && s < NSIDES && a->whole[s]; s++)
		status = kvt_dump_unchanged(a->whole[s], err);
	return status;
}

/* What was written last may be a part that did not show it. */
static enum kvt_status write_case(struct arguments *a, const struct shrink_parts *parts,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	bool shows = true;

	a->c.before = case_size_of(a->whole[SIDE_A]);
	a->c.after = case_size_of(parts->part[SIDE_A]);
	if (a->c.command)
		status = while_shows(&a->c, &shows, parts, err);
	if (!status && !shows)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: --while fails now and then: on one part it did, and the next time not",
				  a->name[SIDE_A]);
	if (status || (status = case_write(&a->c, parts, true, err)) ||
	    (status = case_explain(&a->c, parts, err)))
		return status;
	return case_publish(&a->c, err);
}

/* ---- what was done ------------------------------------------------------ */

static void put_size(struct json_out *out, const char *key, const struct case_size *size)
{
	json_t *o = json_put_object(out, out->root, key);

	json_put_int(out, o, "layers", size->layers);
	json_put_int(out, o, "heads", size->heads);
	json_put_int(out, o, "blocks", size->blocks);
	json_put_int(out, o, "requests", size->requests);
	json_put_int(out, o, "tokens", size->tokens);
	json_put_int(out, o, "elements", size->elements);
}

static enum kvt_status report_json(const struct arguments *a, struct kvt_error *err)
{
	const struct shrink_differs *d = &a->differs;
	struct json_out out;
	json_t *files;

	json_start(&out);
	json_put_text(&out, out.root, "a", a->name[SIDE_A]);
	json_put_text(&out, out.root, "b", a->name[SIDE_B]);
	json_put_text(&out, out.root, "output", a->c.output);
	files = json_put_array(&out, out.root, "files");
	for (int s = 0; s < NSIDES && a->name[s]; s++)
		json_append_text(&out, files, case_files[s]);
	put_size(&out, "before", &a->c.before);
	put_size(&out, "after", &a->c.after);
	json_put_text(&out, out.root, "fault", d->fault ? d->fault->name : NULL);
	json_put_text(&out, out.root, "arguments", d->fault ? d->args.s : NULL);
	json_put_known(&out, out.root, "status", a->c.status, a->c.command && !a->c.text);
	json_put_int(&out, out.root, "tries", a->tries);
	return json_print(&out, false, err);
}

static enum kvt_status report(const struct arguments *a, struct kvt_error *err)
{
	const struct shrink_differs *d = &a->differs;

	if (a->json)
		return report_json(a, err);
	if (a->quiet)
		return KVT_OK;
	plainf("%s: ", a->c.output);
	case_print_sizes(stdout, &a->c);
	if (d->fault)
		plainf("; %s%s%s", d->fault->name, d->args.s[0] ? "," : "", d->args.s);
	plainf("\n%s: %s%s%s and README.md\n", a->c.output,
	       case_files[SIDE_A], a->name[SIDE_B] ? ", " : "",
	       a->name[SIDE_B] ? case_files[SIDE_B] : "");
	plainf("before you send it read what a case still says, in kvtool-shrink(1)\n");
	return KVT_OK;
}

/* ---- the command -------------------------------------------------------- */

static enum kvt_status shrink(struct arguments *a, struct kvt_error *err)
{
	struct shrink_parts parts = { { NULL } };
	enum kvt_status status;

	signals_catch();
	a->c.output = a->output_name;
	a->c.terms = a->terms;
	a->c.stage.force = a->force;
	a->c.run = run_watched(a->threads, a->memory, a->quiet);
	a->c.run.context = (void *)(uintptr_t)&cmd_shrink;
	a->c.run.warn = NULL;		/* of every part the same */
	a->differs.run = a->c.run;
	a->differs.diagnose = !a->no_diagnosis;
	if (!(status = open_wholes(a, err)) && !(status = case_open(&a->c, err)) &&
	    !(status = search(a, &parts, err)))
		status = write_case(a, &parts, err);
	if (status)
		kvt_stage_retell(&a->c.stage, err);
	case_close(&a->c);
	kvt_shrink_parts_close(&parts);
	for (int s = 0; s < NSIDES; s++)
		kvt_dump_close(a->whole[s]);
	return status ? status : report(a, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct arguments *a = calloc(1, sizeof(*a));
	enum kvt_status status;
	int n;

	if (!a)
		return kvt_no_memory(err, NULL);
	const struct opt opts[] = {
		{ "output", 'o', OPT_STRING, &a->output, "DIR", "the folder to make" },
		{ "while", 0, OPT_STRING, &a->c.command, "COMMAND",
		  "what is to fail: a line for the shell; the dumps are \"$A\" and \"$B\"" },
		{ "text", 0, OPT_STRING, &a->c.text, "TEXT",
		  "COMMAND has to print TEXT, and may end as it likes" },
		{ "tokens", 0, OPT_FLAG, &a->c.tokens, NULL,
		  "keep the ids of tokens, which are the text itself" },
		{ "exact", 0, OPT_FLAG, &a->exact, NULL,
		  "values must be equal, also of different types" },
		{ "tolerance", 0, OPT_STRING, &a->tolerance, "TERMS",
		  "what counts as equal; as kvtool diff" },
		{ "atol", 0, OPT_STRING, &a->atol, "X", "same as --tolerance=atol=X" },
		{ "rtol", 0, OPT_STRING, &a->rtol, "X", "same as --tolerance=rtol=X" },
		{ "no-diagnosis", 0, OPT_FLAG, &a->no_diagnosis, NULL,
		  "any difference will do, whatever the fault is" },
		OPT_SIDES(a->side),
		OPT_FORCE(&a->force),
		OPT_THREADS(&a->threads),
		OPT_MEMORY(&a->memory),
		OPT_JSON(&a->json),
		OPT_QUIET(&a->quiet),
		OPT_INPUT(&a->hints),
		{ 0 }
	};

	n = opt_parse(&cmd_shrink, opts, argc, argv, err);
	if (n < 0)
		status = opt_status(n);
	else if (!(status = take_arguments(a, argv, n, err)))
		status = shrink(a, err);
	free(a);
	return status;
}

const struct command cmd_shrink = {
	.name = "shrink",
	.args = "A [B] -o DIR",
	.summary = "cut out the smallest part that still shows a fault",
	.run = run,
	.examples =
		"  kvtool shrink -o case good.h5 bad.h5\n"
		"  kvtool shrink -o case --while='kvtool fsck -q \"$A\"' bad.h5\n"
		"  kvtool shrink -o case --while='python3 load.py \"$A\"' --text=KeyError bad.h5\n",
};
