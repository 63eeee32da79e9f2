/* SPDX-License-Identifier: Apache-2.0 */
/* guess.c - kvtool guess: the layout that the data speaks for */
#include "cli/opt.h"
#include "lib/ops/guess/guess.h"

#include <stdlib.h>

static enum kvt_status write_manifest(const struct guess *g, const char *path,
				      struct kvt_error *err)
{
	struct guess_candidate c;
	struct kvt_dump *reader;
	enum kvt_status status;

	if ((status = guess_open(&reader, &c, &g->sample,
				 kvt_layout_string(&g->candidate[0].layout).s, err)))
		return status;
	status = kvt_write_manifest(reader, path, err);
	kvt_dump_close(reader);
	return status;
}

static enum kvt_status report(const struct guess *g, bool json, const char *manifest,
			      struct kvt_error *err)
{
	struct json_out out = { NULL, false };
	enum kvt_status status = KVT_OK;

	if (!g->why_not[0] && manifest)
		status = write_manifest(g, manifest, err);
	if (!status && json) {
		guess_json(&out, g);
		status = json_print(&out, false, err);
		json_free(&out);
	} else if (!status) {
		guess_text(g);
	}
	if (!status && g->why_not[0])
		return kvt_fail(err, KVT_BAD_INPUT, "%.200s: %s", g->sample.path,
				g->why_not);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct guess g = { .sample = { .nbytes = 8 << 20 } };
	const char *manifest = NULL;
	bool json = false;
	const struct opt opts[] = {
		{ "sample", 0, OPT_SIZE, &g.sample.nbytes, "SIZE",
		  "bytes to read for each layout; default: 8M" },
		{ "write-manifest", 0, OPT_STRING, &manifest, "FILE",
		  "where to write what was found, as a manifest" },
		OPT_JSON(&json),
		OPT_INPUT(&g.sample.hints),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&cmd_guess, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (n != 1)
		return kvt_fail(err, KVT_USAGE, "expected one file, got %d", n);
	if (g.sample.hints.layout)
		return kvt_fail(err, KVT_USAGE,
				"--layout says what is to be guessed");
	if (g.sample.nbytes > INT64_C(1) << 32)
		return kvt_fail(err, KVT_USAGE, "--sample is %lld, expected 4G at most",
				(long long)g.sample.nbytes);
	g.sample.path = argv[0];
	status = guess_rank(&g, err);
	if (!status)
		status = report(&g, json, manifest, err);
	guess_free(&g);
	return status;
}

const struct command cmd_guess = {
	.name    = "guess",
	.args    = "FILE",
	.summary = "which layout the data speaks for, where nothing says it",
	.run     = run,
	.examples =
		"  kvtool guess --dtype=bfloat16 --layers=32 --block-size=16 --heads=8 "
		"--head-dim=128 dump.bin\n"
		"  kvtool guess --json dump.npy\n"
		"  kvtool guess --write-manifest=dump.json dump.npy\n",
};
