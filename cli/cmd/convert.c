/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - another format, the same memory layout */
#include "cli/rewrite.h"

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		{ "row-ranks", 0, OPT_COUNT, &r.create.row_ranks, "N",
		  "offload: files as of an engine with N ranks" },
		REWRITE_OPTS(&r),
		{ 0 }
	};
	enum kvt_status status;
	int nargs = opt_parse(&cmd_convert, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = rewrite_operands(&r, argv, nargs, err)) ||
	    (status = opt_need(&cmd_convert, (struct opt_need[]){
			{ nargs, "a dump" }, { r.output, "an output" }, { 0 } }, err)))
		return status;
	return rewrite(&r, err);
}

const struct command cmd_convert = {
	.name = "convert",
	.args = "IN OUT",
	.summary = "write a dump in another file format",
	.run = run,
	.examples =
		"  kvtool convert nhd.npy snapshot.h5\n"
		"  kvtool convert --verify snapshot.h5 cache.safetensors\n"
		"  kvtool convert --layout=nhd --dtype=bf16 --layers=32 --block-size=16 "
		"\\\n"
		"      --heads=8 --head-dim=128 cache.bin snapshot.h5\n"
		"  kvtool convert --format=safetensors snapshot.h5 - | ssh host 'cat "
		">kv.st'\n",
	.streams = STREAM_FIRST,
};
