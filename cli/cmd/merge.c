/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c - the dumps of all tensor parallel ranks as one
 *
 * All are opened; with --in-order their places in the command line are their ranks.
 * They must be the ranks of one deployment, each once (rank_files_check()), and are
 * joined to a derived dump.  Before it is written, heads that several ranks hold are
 * compared, but for --dry-run: where they differ that is KVT_MISMATCH, and nothing is
 * written.
 *
 * Ranks are opened also if -o is missing, so that one sentence tells of both; a last
 * name that is no file was then meant as the output.
 */
#include "cli/set.h"
#include "lib/derived/merge.h"
#include "lib/ops/compare/compare.h"
#include "print/out/signals.h"

#include <stdlib.h>
#include <unistd.h>

static enum kvt_status open_all(struct rank_file *files, int nfiles, char **names,
				const struct kvt_hints *told, bool in_order,
				struct kvt_error *err)
{
	struct kvt_hints hints = *told;
	enum kvt_status status;

	if (in_order && (status = names_in_order(nfiles, names, err)))
		return status;
	hints.one_of_several = nfiles > 1 && !in_order;
	for (int i = 0; i < nfiles; i++) {
		files[i].name = names[i];
		hints.tp_size = in_order ? nfiles : 0;
		hints.tp_rank = i;
		if ((status = kvt_open(&files[i].reader, names[i], &hints, err)))
			return status;
	}
	return KVT_OK;
}

static enum kvt_status merge(const struct rewrite *r, struct rank_file *files,
			     int nfiles, struct kvt_error *err)
{
	struct kvt_run run = rewrite_run(r);
	struct kvt_dump *dump = NULL;
	enum kvt_status status;

	if (!(status = rank_files_check(files, nfiles, err)) &&
	    !(status = rank_files_join(&dump, files, nfiles, err)) &&
	    (r->dry_run || !(status = replicas_check(files, nfiles, &run, err))))
		status = rewrite_dump(r, dump, err);
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	bool in_order = false;
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		OPT_IN_ORDER(&in_order),
		OPT_TOTAL_HEADS(&r.hints.total_heads),
		REWRITE_OPTS(&r),
		{ 0 }
	};
	int nargs = opt_parse(&cmd_merge, opts, argc, argv, err);
	struct kvt_error closer = { "" };
	struct rank_file *files;
	enum kvt_status missing, status;
	char out[128] = "-o OUT";
	bool last;

	if (nargs < 0)
		return opt_status(nargs);
	/* a last name that is not there was meant as the output */
	last = !r.output && nargs > 1 && access(argv[nargs - 1], F_OK);
	if (last)
		snprintf(out, sizeof(out), "-o before %.100s", argv[nargs - 1]);
	missing = opt_need(&cmd_merge, (struct opt_need[]){
			{ nargs, "the dumps of all ranks" },
			{ r.output, out }, { 0 } }, err);
	if (missing && !nargs)
		return missing;
	nargs -= last;
	nargs = pass_over_manifests(argv, nargs, &r.hints);
	r.input = argv[0];
	r.more = argv + 1;
	r.nmore = nargs - 1;
	files = calloc((size_t)nargs, sizeof(*files));
	if (!files) {
		status = kvt_no_memory(err, NULL);
	} else {
		signals_catch();
		status = open_all(files, nargs, argv, &r.hints, in_order, &closer);
		if (status && missing)
			opt_also(err, &closer);
		else if (status)
			*err = closer;
		else if (!missing)
			status = merge(&r, files, nargs, err);
		for (int i = 0; i < nargs; i++)
			kvt_dump_close(files[i].reader);
	}
	free(files);
	return missing ? missing : status;
}

const struct command cmd_merge = {
	.name = "merge",
	.args = "-o OUT RANK0 RANK1...",
	.shards = "",
	.summary = "join the dumps of all tensor parallel ranks",
	.run = run,
	.examples =
		"  kvtool merge --verify -o whole.h5 rank0.h5 rank1.h5\n"
		"  kvtool merge --in-order --layout=hnd -o whole.h5 rank0.npy rank1.npy\n",
};
