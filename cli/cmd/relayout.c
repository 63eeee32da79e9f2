/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relayout.c - any layout to any layout
 *
 * Options fill a struct rewrite, --to its layout, and cli/rewrite.c does the rest.  An
 * output that is not named has the name of the input with that of the layout in it
 * (cli/output_name.c).  With --out-dir each input is one such run (cli/set.c).
 */
#include "cli/set.h"

static enum kvt_status relayout(struct rewrite *r, void *context, struct kvt_error *err)
{
	(void)context;
	return rewrite(r, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	const char *to = NULL;
	const struct opt opts[] = {
		{ "to", 't', OPT_STRING, &to, "LAYOUT",
		  "memory order of the output: a name or axes" },
		{ "output", 'o', OPT_STRING, &r.output, "FILE",
		  "where to write; default: IN with LAYOUT in its name" },
		OPT_OUT_DIR(&r.out_dir),
		OPT_CAST(&r.cast),
		REWRITE_OPTS(&r),
		{ 0 }
	};
	struct kvt_layout layout;
	enum kvt_status status;
	char output[4096];
	int nargs = opt_parse(&cmd_relayout, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = rewrite_each_operands(&r, argv, &nargs, err)) ||
	    (status = opt_need(&cmd_relayout, (struct opt_need[]){
			{ nargs, "a dump" },
			{ to, "--to=LAYOUT (see kvtool help layouts)" }, { 0 } }, err)) ||
	    (status = kvt_layout_parse(&layout, to, err)) ||
	    (status = cast_check(&r.cast, err)))
		return status;
	if (!r.output && !r.out_dir) {
		status = rewrite_default_output(output, sizeof(output), argv[0], to, err);
		if (status)
			return status;
		r.output = output;
	}
	r.layout = &layout;
	r.layout_name = to;
	return rewrite_each(&r, &cmd_relayout, argv, nargs, relayout, NULL, err);
}

const struct command cmd_relayout = {
	.name = "relayout",
	.args = "--to=LAYOUT IN [OUT] | --to=LAYOUT --out-dir=DIR IN...",
	.shards = "",
	.summary = "write a dump in another memory layout; --verify proves it",
	.run = run,
	.examples =
		"  kvtool relayout --to=hnd --verify nhd.npy hnd.npy\n"
		"  kvtool relayout --to=rocm-paged -o rocm.h5 snapshot.h5\n"
		"  kvtool relayout --to='L B H D/x S x' --dry-run nhd.npy k.h5\n",
	.streams = STREAM_FIRST,
};
