/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_relayout.c - any layout to any layout */
#define _GNU_SOURCE		/* memrchr */
#include "cli/rewrite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/*
 * "dir/kv.npy" for hnd becomes "dir/kv.hnd.npy": beside the input, told apart by
 * the layout.  A folder becomes a snapshot.
 */
static enum kvt_status default_output(char *out, size_t room, const char *input,
				      const char *layout, struct kvt_error *err)
{
	size_t n = strlen(input);
	const char *slash, *dot;

	for (const char *p = layout; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-')
			return kvt_fail(err, KVT_USAGE,
					"expected -o: no file name can be made of layout '%.60s'",
					layout);
	while (n > 1 && input[n - 1] == '/')
		n--;
	slash = memrchr(input, '/', n);
	dot = memrchr(input, '.', n);
	if (!dot || (slash && dot < slash) || input[n - 1] == '.')
		dot = NULL;
	if (snprintf(out, room, "%.*s.%s%.*s",
		     (int)(dot ? dot - input : (long)n), input, layout,
		     dot ? (int)(input + n - dot) : 3,
		     dot ? dot : ".h5") >= (int)room)
		return kvt_fail(err, KVT_USAGE, "the name of the input is too long");
	return KVT_OK;
}

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
		status = default_output(output, sizeof(output), argv[0], to, err);
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
