/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import.c - what an engine left on disk, as one snapshot
 *
 * Options fill a struct rewrite: cli/rewrite.c opens the folder or file, by its format,
 * and writes it in the layout of --to, or each group in that of the files.
 */
#include "cli/rewrite.h"

static enum kvt_status read_layout(struct rewrite *r, struct kvt_layout *layout,
				   const char *to, struct kvt_error *err)
{
	enum kvt_status status;

	if (!to)
		return KVT_OK;
	if ((status = kvt_layout_parse(layout, to, err)))
		return status;
	r->layout = layout;
	r->layout_name = to;
	return KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	struct kvt_layout layout;
	const char *to = NULL;
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		{ "to", 0, OPT_STRING, &to, "LAYOUT",
		  "memory order of the output; default: that of the files" },
		REWRITE_OPTS(&r),
		{ 0 }
	};
	int nargs = opt_parse(&cmd_import, opts, argc, argv, err);
	enum kvt_status status;

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = rewrite_operands(&r, argv, nargs, err)) ||
	    (status = opt_need(&cmd_import, (struct opt_need[]){
			{ nargs, "a folder or file of an engine" },
			{ r.output, "an output" }, { 0 } }, err)) ||
	    (status = read_layout(&r, &layout, to, err)))
		return status;
	return rewrite(&r, err);
}

const struct command cmd_import = {
	.name = "import",
	.args = "IN OUT",
	.shards = "",
	.summary = "convert the files of an engine to one snapshot",
	.run = run,
	.examples =
		"  kvtool import --layout=nhd --block-size=16 requests cache.h5\n"
		"  kvtool import -o cache.h5 /var/cache/offload --layout=nhd --heads=8 \\\n"
		"      --head-dim=128\n"
		"  kvtool import -o cache.h5 --from=hicache-page-first --dtype=bf16 \\\n"
		"      --block-size=64 --heads=8 --head-dim=128 /tmp/hicache\n",
	.streams = STREAM_FIRST,
};
