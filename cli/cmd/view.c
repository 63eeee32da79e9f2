/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - kvtool view: a dump as pictures, on a terminal or as a page
 *
 * Dumps are looked at once, into a struct view; whoever draws it, as characters, JSON,
 * SVG or a page, reads no data and so sees the same.
 */
#include "print/view.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cmd/diff.h"
#include "cli/cmd/view_watch.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "cli/set.h"
#include "lib/ops/numbers/numbers.h"
#include "print/diff.h"
#include "print/out/screen.h"
#include "print/out/text_file.h"

enum { SAMPLE = 256 << 20, MOST_TILES = 4096 };

/* Cells of a map, if a page has that many groups: it must stay small. */
static int64_t cells_of(int64_t ngroups)
{
	return VIEW_CELLS / ngroups < 64 ? 64 : VIEW_CELLS / ngroups;
}

struct asked {
	struct kvt_hints hints;
	struct kvt_run run;
	int64_t sample;
	int ndumps;			/* that share a page */
	bool all, json, force, block, token_ids, watch, once;
	const char *output, *tolerance;
	struct diff_criteria criteria;	/* of what two dumps are held against */
};

/* What fsck finds, and what is stored: of the data only if all of it is looked at. */
static enum kvt_status look_closer(struct view_dump *d, const char *path,
				   const struct asked *asked, struct kvt_error *err)
{
	int ngroups = d->facts.snapshot->ngroups;
	struct kvt_error why = { "" };
	enum kvt_status status;

	for (int g = 0; g < ngroups; g++)
		if ((status = kvt_view_tiles(&d->group[g].tiles, d->dump, g,
					     MOST_TILES / ngroups, err)))
			return status;
	snprintf(d->found.path, sizeof(d->found.path), "%s", path);
	status = kvt_check_dump(&d->found, d->dump, path, asked->all, &asked->run, &why);
	if (!status && d->found.out_of_memory)
		status = kvt_no_memory(&why, NULL);
	return status ? kvt_fail_about(err, status, path, &why) : KVT_OK;
}

static enum kvt_status look_at(struct view_dump *d, const char *path,
			       const void *context, struct kvt_error *err)
{
	const struct asked *asked = context;
	struct kvt_values values;
	struct kvt_error why;
	enum kvt_status status;

	if ((status = kvt_open(&d->dump, path, &asked->hints, err)) ||
	    (status = kvt_describe(&d->facts, path, d->dump, err)))
		return status;
	for (int g = 0; !status && g < d->facts.snapshot->ngroups; g++) {
		struct view_group *group = &d->group[g];
		int64_t most = asked->all ? INT64_MAX : asked->sample;

		if ((status = kvt_view_pool(&group->pool, d->facts.snapshot, g, err)))
			break;
		/* what has no values is drawn without them */
		if (!most || kvt_values_init(&values, kvt_dump_group(d->dump, g),
					     &group->why))
			continue;
		status = kvt_view_maps(&group->maps, d->dump, g, most,
				       cells_of((int64_t)asked->ndumps *
						d->facts.snapshot->ngroups),
				       &asked->run, &why);
		if (status)
			kvt_fail_about(err, status, path, &why);
	}
	if (!status && asked->sample)
		status = look_closer(d, path, asked, err);
	return status ? status : kvt_dump_unchanged(d->dump, err);
}

/* ---- two dumps ----------------------------------------------------------- */

/* Two ranks of one model are not two versions of one thing. */
static bool are_ranks(const struct view *view)
{
	const struct kvt_snapshot *a = view->dump[0].facts.snapshot;
	const struct kvt_snapshot *b = view->dump[1].facts.snapshot;

	return a->parallel.tp_size > 1 && a->parallel.tp_size == b->parallel.tp_size &&
	       a->parallel.tp_rank != b->parallel.tp_rank;
}

static enum kvt_status compare(struct diff *d, struct view *view,
			       struct rank_file file[NSIDES], const struct asked *asked,
			       struct kvt_error *err)
{
	enum kvt_status status;

	d->criteria = asked->criteria;
	d->options = (struct diff_options){ .run = asked->run, .nworst = 1,
					    .firsts = true };
	for (int s = 0; s < NSIDES; s++)
		file[s] = (struct rank_file){ .reader = view->dump[s].dump,
					      .name = view->dump[s].facts.path };
	if (!(status = diff_align_two(d, file, err)))
		status = kvt_diff_results(&d->result, &d->pairs, d->side, &d->criteria,
					  &d->options, true, err);
	view->diff = d;
	return status;
}

/* ---- the command --------------------------------------------------------- */

static void close_dump(struct view_dump *d)
{
	for (int g = 0; g < KVT_MAX_GROUPS; g++) {
		kvt_view_pool_free(&d->group[g].pool);
		kvt_view_maps_free(&d->group[g].maps);
		kvt_view_tiles_free(&d->group[g].tiles);
	}
	kvt_findings_free(&d->found);
	kvt_description_free(&d->facts);
	kvt_dump_close(d->dump);
}

static void view_free(struct view *view)
{
	for (int i = 0; i < view->n; i++)
		close_dump(&view->dump[i]);
	free(view->dump);
}

static bool ends_in(const char *path, const char *ending)
{
	size_t n = strlen(path), m = strlen(ending);

	return n > m && !strcasecmp(path + n - m, ending);
}

/* What is written follows from the name; a page may also go to standard output. */
static enum kvt_status check_output(const char *path, struct kvt_error *err)
{
	if (!path || !strcmp(path, "-") || !strcmp(path, "/dev/stdout") ||
	    ends_in(path, ".html") || ends_in(path, ".htm") || ends_in(path, ".svg"))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"--output is '%.200s', expected a name that ends in .html or .svg",
			path);
}

/* A picture of two dumps is that of what differs. */
static enum kvt_status draw(FILE *f, const struct view *view, const char *path,
			    struct kvt_error *err)
{
	if (!ends_in(path, ".svg"))
		return view_page(f, view, err);
	if (view->diff)
		diff_svg_maps(f, view->diff);
	else
		view_svg(f, view);
	return KVT_OK;
}

static enum kvt_status write_page(const struct view *view, const struct asked *asked,
				  struct kvt_error *err)
{
	struct text_output out = { .path = asked->output };
	FILE *f = text_output_open(&out);
	enum kvt_status status = f ? draw(f, view, asked->output, err) : KVT_SYSTEM;

	if (!f || !text_output_close(f))
		status = kvt_no_memory(err, NULL);
	if (!status)
		status = text_files_write(&out, 1, asked->force, err);
	free(out.text);
	return status;
}

/* Of two dumps what differs, unless the bytes of a block are asked for. */
static void print_view(const struct view *view, const struct asked *asked)
{
	enum { HANG = 12 };

	if (view->diff && !asked->block) {
		view_diff_text(view->diff);
		return;
	}
	screen_fold_begin(HANG);
	view_text(stdout, view);
	screen_fold_end();
}

static enum kvt_status show(const struct view *view, const struct asked *asked,
			    struct kvt_error *err)
{
	struct json_out json;

	if (asked->output)
		return write_page(view, asked, err);
	if (!asked->json) {
		print_view(view, asked);
		return KVT_OK;
	}
	view_json(&json, view);
	return json_print(&json, false, err);
}

/* Numbers are read only if they are asked for: somebody else is writing. */
static enum kvt_status watch(const struct asked *asked, char **argv, int n,
			     struct kvt_error *err)
{
	const struct watch w = { argv[0], asked->once, look_at, close_dump, asked };

	if (n > 1)
		return kvt_fail(err, KVT_USAGE, "--watch looks at one dump, found %d", n);
	if (asked->output || asked->json)
		return kvt_fail(err, KVT_USAGE, "--watch and %s exclude each other",
				asked->output ? "--output" : "--json");
	return view_watch(&w, err);
}

static enum kvt_status view_dumps(const struct asked *asked, char **argv, int n,
				  struct kvt_error *err)
{
	struct view view = { .block = asked->block || screen_width(),
			     .token_ids = asked->token_ids, .hints = &asked->hints,
			     .exact = asked->criteria.exact,
			     .tolerance = asked->tolerance };
	struct rank_file file[NSIDES];
	struct diff diff = { .common = true };
	enum kvt_status status = KVT_OK;

	if (!(view.dump = calloc((size_t)n + 1, sizeof(*view.dump))))
		return kvt_no_memory(err, NULL);
	while (!status && view.n < n) {
		view.n++;
		status = look_at(&view.dump[view.n - 1], argv[view.n - 1], asked, err);
	}
	if (!status && n == 2 && !are_ranks(&view))
		status = compare(&diff, &view, file, asked, err);
	if (!status)
		status = show(&view, asked, err);
	diff_clear(&diff);
	view_free(&view);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked asked = { .sample = 0 };
	int64_t threads = 0, memory = 0;
	const char *tolerance[3] = { NULL };
	bool quiet = false;
	const struct opt opts[] = {
		{ "output", 'o', OPT_STRING, &asked.output, "FILE",
		  "write a page for a browser, or a picture: FILE.html, FILE.svg" },
		{ "sample", 0, OPT_SIZE, &asked.sample, "SIZE",
		  "read so much of a group's data; default: 256M" },
		{ "all", 0, OPT_FLAG, &asked.all, NULL, "read all of the data" },
		{ "exact", 0, OPT_FLAG, &asked.criteria.exact, NULL,
		  "values must be equal, also of different types" },
		{ "tolerance", 0, OPT_STRING, &tolerance[0], "TERMS",
		  "of two dumps: auto, or terms of kvtool diff, such as atol=" },
		{ "block", 0, OPT_FLAG, &asked.block, NULL,
		  "draw the bytes of a block, too; on a terminal this is the default" },
		{ "token-ids", 0, OPT_FLAG, &asked.token_ids, NULL,
		  "ids of tokens are on the page, too: they tell the prompt" },
		{ "watch", 0, OPT_FLAG, &asked.watch, NULL,
		  "look again and again, without numbers but with --sample; q quits" },
		{ "once", 0, OPT_FLAG, &asked.once, NULL,
		  "print what --watch would draw, once" },
		{ "force", 'f', OPT_FLAG, &asked.force, NULL,
		  "replace the output if it exists" },
		OPT_JSON(&asked.json),
		OPT_THREADS(&threads),
		OPT_MEMORY(&memory),
		OPT_QUIET(&quiet),
		OPT_INPUT(&asked.hints),
		{ 0 }
	};
	int n = opt_parse(&cmd_view, opts, argc, argv, err);
	enum kvt_status status;

	if (n < 0)
		return opt_status(n);
	if ((status = opt_need(&cmd_view, (struct opt_need[]){
			{ n, "a dump" }, { 0 } }, err)) ||
	    (status = diff_tolerances(&asked.criteria.tolerance, tolerance, false,
				      err)) ||
	    (status = check_output(asked.output, err)) ||
	    (status = text_file_check(asked.output, argv, n, asked.force, err)))
		return status;
	if (asked.criteria.exact && tolerance[0])
		return kvt_fail(err, KVT_USAGE,
				"--exact and --tolerance exclude each other");
	n = pass_over_manifests(argv, n, &asked.hints);
	asked.ndumps = n;
	asked.tolerance = tolerance[0];
	asked.run = run_watched(threads, memory, quiet || asked.watch);
	if (asked.watch || asked.once)
		return watch(&asked, argv, n, err);
	if (!asked.sample)
		asked.sample = SAMPLE;
	return view_dumps(&asked, argv, n, err);
}

const struct command cmd_view = {
	.name    = "view",
	.args    = "FILE... | A B",
	.summary = "draw a dump: a block, the pool, the numbers; -o page.html",
	.run     = run,
	.examples =
		"  kvtool view dump.h5\n"
		"  kvtool view --block dump.h5 | head -n 12\n"
		"  kvtool view --watch /dev/shm/pool.bin\n"
		"  kvtool view -o page.html dump.h5\n"
		"  kvtool view -o page.html good.h5 bad.h5\n"
		"  kvtool view --json --all dump.h5\n",
};
