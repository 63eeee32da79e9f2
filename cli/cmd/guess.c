/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guess.c - kvtool guess: the layout that the data speaks for
 *
 * lib/ops/guess ranks the layouts and opens the file for each, by open_as().  If one
 * leads the manifest is written, where it is asked for, and the ranking is printed, with
 * the backends that could have written it and options to go on with (guess_text()).  If
 * none does, KVT_BAD_INPUT comes behind the ranking and says why; text has no ranking
 * where candidates differ in sizes.  --layout is KVT_USAGE: it is what is asked.
 */
#include "cli/opt.h"
#include "formats/hints.h"
#include "lib/kvt/write.h"
#include "cli/expect/guess.h"

/* 'context' is the path. */
static enum kvt_status open_as(struct kvt_dump **out, void *context,
			       const struct kvt_hints *hints, struct kvt_error *err)
{
	return kvt_open(out, context, hints, err);
}

static enum kvt_status write_manifest(const struct kvt_guess_source *of,
				      const struct kvt_guess *g, const char *path,
				      struct kvt_error *err)
{
	const struct kvt_text layout = kvt_layout_string(&g->candidate[0].layout);
	struct kvt_hints hints = of->hints;
	struct kvt_dump *dump;
	enum kvt_status status;

	hints.layout = layout.s;
	hints.dtype = g->type[0].dtype->name;
	if ((status = kvt_open(&dump, of->name, &hints, err)))
		return status;
	status = kvt_write_manifest(dump, path, err);
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status report(const struct kvt_guess_source *of,
			      const struct kvt_guess *g, const struct guess_writers *who,
			      bool json, const char *manifest, struct kvt_error *err)
{
	struct json_out out = { NULL, false };
	enum kvt_status status = KVT_OK;

	if (!g->why_not[0] && manifest)
		status = write_manifest(of, g, manifest, err);
	if (!status && json) {
		guess_json(&out, of, g, who);
		status = json_print(&out, false, err);
	} else if (!status && !g->needs_sizes) {
		guess_text(of, g, who);	/* a ranking of unlike sizes would mislead */
	}
	if (!status && g->why_not[0])
		return kvt_fail(err, KVT_BAD_INPUT, "%.200s: %s", of->name, g->why_not);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct kvt_guess_source of = { .open = open_as, .nbytes = 8 << 20 };
	struct kvt_guess g;
	enum kvt_release release = KVT_NRELEASES;	/* any */
	struct guess_writers who;
	const char *manifest = NULL, *on = NULL;
	bool json = false;
	const struct opt opts[] = {
		{ "sample", 0, OPT_SIZE, &of.nbytes, "SIZE",
		  "bytes to read for each layout; default: 8M" },
		{ "write-manifest", 0, OPT_STRING, &manifest, "FILE",
		  "write the result as a manifest" },
		OPT_RELEASE(&release),
		OPT_ON(&on),
		OPT_JSON(&json),
		OPT_INPUT(&of.hints),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&cmd_guess, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (n > 1)
		return kvt_fail(err, KVT_USAGE,
				"expected one file, got %d: '%.60s', '%.60s'", n, argv[0], argv[1]);
	if ((status = opt_need(&cmd_guess, (struct opt_need[]){
			{ n, "a file" }, { 0 } }, err)))
		return status;
	if (of.hints.layout)
		return kvt_fail(err, KVT_USAGE,
				"--layout gives what guess is to find; leave it out");
	if (of.nbytes > INT64_C(1) << 32)
		return kvt_fail(err, KVT_USAGE, "--sample is %lld, expected 4G at most",
				LL(of.nbytes));
	if ((status = expect_on_take(&who.on, on, err)))
		return status;
	who.releases = release < KVT_NRELEASES ? 1u << release :
						 (1u << KVT_NRELEASES) - 1;
	of.name = of.context = argv[0];
	if ((status = kvt_hints_of_model(&of.hints, err)))
		return status;
	status = kvt_guess(&g, &of, err);
	if (!status)
		status = report(&of, &g, &who, json, manifest, err);
	kvt_guess_free(&g);
	return status;
}

const struct command cmd_guess = {
	.name    = "guess",
	.args    = "FILE",
	.summary = "find the most likely layout of a file from its data",
	.run     = run,
	.examples =
		"  kvtool guess --dtype=bfloat16 --layers=32 --block-size=16 --heads=8 --head-dim=128 dump.bin\n"
		"  kvtool guess --json dump.npy\n"
		"  kvtool guess --write-manifest=dump.json dump.npy\n",
};
