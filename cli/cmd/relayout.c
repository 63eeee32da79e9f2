/* SPDX-License-Identifier: Apache-2.0 */
/* relayout.c - any layout to any layout */
#include "cli/rewrite.h"

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	const char *to = NULL;
	const struct opt opts[] = {
		{ "to", 't', OPT_STRING, &to, "LAYOUT",
		  "memory order of the output: a name or axes" },
		{ "output", 'o', OPT_STRING, &r.output, "FILE",
		  "where to write; default: FILE with LAYOUT in its name" },
		REWRITE_OPTS(&r),
		{ 0 }
	};
	struct kvt_layout layout;
	enum kvt_status status;
	char output[4096];
	int nargs = opt_parse(&cmd_relayout, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if (nargs != 1)
		return kvt_fail(err, KVT_USAGE, "expected one file, got %d", nargs);
	if (!to)
		return kvt_fail(err, KVT_USAGE,
				"expected --to; see kvtool help layouts");
	if ((status = kvt_layout_parse(&layout, to, err)))
		return status;
	if (!r.output) {
		status = rewrite_default_output(output, sizeof(output), argv[0], to, err);
		if (status)
			return status;
		r.output = output;
	}
	r.input = argv[0];
	r.layout = &layout;
	return rewrite(&r, err);
}

const struct command cmd_relayout = {
	.name = "relayout",
	.args = "--to=LAYOUT [-o OUT] FILE",
	.summary = "rewrite a dump in another memory layout",
	.run = run,
	.examples =
		"  kvtool relayout --to=hnd --verify -o hnd.npy nhd.npy\n"
		"  kvtool relayout --to=rocm-paged -o rocm.h5 snapshot.h5\n"
		"  kvtool relayout --to='L B H D/x S x' --dry-run -o k.h5 nhd.npy\n",
};
