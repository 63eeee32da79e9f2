/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c - kvtool describe: what a dump is, and is it as expected */
#include "cli/progress.h"
#include "cli/print/describe.h"

#include <stdlib.h>

static bool is_damaged(const struct description *d)
{
	for (int g = 0; g < d->snapshot->ngroups; g++)
		if (d->group[g].verified && d->group[g].verified->damaged)
			return true;
	return false;
}

static enum kvt_status complain_findings(const struct description *d)
{
	enum kvt_status status = KVT_OK;

	for (int g = 0; g < d->snapshot->ngroups; g++) {
		const struct group_facts *f = &d->group[g];
		const struct verify_result *v = f->verified;

		for (int i = 0; v && i < v->nfindings; i++) {
			const int64_t *at = v->finding[i].at;

			complain(&cmd_describe, "%s: %s: layer %lld block %llu head "
				 "%lld %s: %s", d->path, f->group->id,
				 (long long)at[KVT_AXIS_L],
				 (unsigned long long)kvt_block_id(f->group,
								  at[KVT_AXIS_B]),
				 (long long)(f->group->head_start + at[KVT_AXIS_H]),
				 component_name(f->group, at[KVT_AXIS_K]),
				 v->finding[i].text);
		}
		if (!v)
			continue;
		if (v->damaged + v->differing > v->nfindings)
			complain(&cmd_describe, "%s: %s: and %lld more", d->path,
				 f->group->id, (long long)(v->damaged + v->differing -
							   v->nfindings));
		status = worse(status, v->damaged ? KVT_BAD_INPUT :
			       v->differing ? KVT_MISMATCH : KVT_OK);
	}
	return status;
}

static enum kvt_status print_and_expect(const struct description *d,
					const struct describe_options *options,
					bool stream, struct kvt_error *err)
{
	struct json_out json = { NULL, false };
	enum kvt_status status = KVT_OK;

	if (options->json || options->expect.n || options->expect_layout)
		describe_json(&json, d, options);
	if (options->json)
		status = json_print(&json, stream, err);
	else
		describe_text(d, options);
	if (!status)
		status = describe_expect(d, options, json.root, err);
	json_free(&json);
	return status;
}

static enum kvt_status describe_reader(struct kvt_dump *reader, const char *path,
				       const struct describe_options *options,
				       bool stream, struct kvt_error *err)
{
	struct description *d = calloc(1, sizeof(*d));
	enum kvt_status status;

	if (!d)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	status = describe_facts(d, path, reader, err);
	if (!status && options->verify)
		status = describe_verify(d, options, err);
	if (!status && options->canonical)
		status = describe_canonical(d, options, err);
	if (!status && options->peek.n && !is_damaged(d))
		status = describe_peek(d, options, err);
	/* there are none of values that cannot be decoded */
	if (!status && options->stats && !is_damaged(d))
		status = describe_stats(d, options, err);
	if (!status && (options->verify || options->stats))
		status = kvt_dump_unchanged(reader, err);
	if (!status)
		status = print_and_expect(d, options, stream, err);
	status = worse(status, complain_findings(d));
	describe_free(d);
	free(d);
	return status;
}

static enum kvt_status describe_file(const char *path, const struct kvt_hints *hints,
				     const struct describe_options *options,
				     bool stream, struct kvt_error *err)
{
	struct kvt_dump *reader;
	enum kvt_status status = kvt_open(&reader, path, hints, err);

	if (status)
		return status;
	status = describe_reader(reader, path, options, stream, err);
	kvt_dump_close(reader);
	return status;
}

static enum kvt_status take_scale(struct describe_options *options, const char *text,
				  struct kvt_error *err)
{
	options->scale[0] = options->scale[1] = 1;
	return text ? scale_parse(options->scale, "scale", text, err) : KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct describe_options options = { .json = false };
	struct kvt_hints hints = { .manifest = NULL };
	const char *scale = NULL;
	int64_t threads = 0, memory = 0;
	bool quiet = false;
	const struct opt opts[] = {
		OPT_JSON(&options.json),
		{ "stats", 0, OPT_FLAG, &options.stats, NULL,
		  "read the data: min, max, mean, std, NaN of each head" },
		{ "peek", 0, OPT_STRINGS, &options.peek, "KEY=VALUE,...",
		  "show the first numbers of a place: layer=3,request=A,token=69" },
		{ "scale", 0, OPT_STRING, &scale, "X[,Y]",
		  "what the numbers of --stats and --peek are times; keys, values" },
		{ "verify", 0, OPT_FLAG, &options.verify, NULL,
		  "read the data: check every checksum and content cell" },
		{ "names", 0, OPT_FLAG, &options.names, NULL,
		  "list the names of the layers" },
		{ "tuples", 0, OPT_FLAG, &options.tuples, NULL,
		  "show the layout as rfc: and vllm: tuples" },
		{ "block-tables", 0, OPT_FLAG, &options.tables, NULL,
		  "show the block table of each request" },
		{ "canonical", 0, OPT_FLAG, &options.canonical, NULL,
		  "show the one tensor that all layers could share, or why not" },
		{ "canonical-layout", 0, OPT_STRING, &options.canonical_layout, "LAYOUT",
		  "the same for another layout than the dump's" },
		{ "expect-layout", 0, OPT_STRING, &options.expect_layout, "LAYOUT",
		  "exit 1 unless this is the layout" },
		{ "expect", 0, OPT_STRINGS, &options.expect, "KEY=VALUE",
		  "exit 1 unless this field of --json has this value" },
		OPT_THREADS(&threads),
		OPT_MEMORY(&memory),
		OPT_QUIET(&quiet),
		OPT_INPUT(&hints),
		{ 0 }
	};
	enum kvt_status status = KVT_OK, s;
	int n = opt_parse(&cmd_describe, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (n < 1)
		return kvt_fail(err, KVT_USAGE, "expected a file; see kvtool "
				"describe --help");
	if ((status = take_scale(&options, scale, err)))
		return status;
	hints.empty = !options.peek.n;
	options.canonical |= options.canonical_layout != NULL;
	options.run = run_watched(threads, memory, quiet);
	for (int i = 0; i < n; i++) {
		struct kvt_error one = { "" };

		s = describe_file(argv[i], &hints, &options, n > 1, &one);
		status = worse(status, s);
		if (s && one.text[0])
			complain(&cmd_describe, "%s", one.text);
		if (s == KVT_USAGE)
			break;		/* the next file would say the same */
		if (i + 1 < n && !options.json)
			putchar('\n');
	}
	return status;
}

const struct command cmd_describe = {
	.name    = "describe",
	.args    = "FILE...",
	.summary = "show layout, shape, size and requests of a dump",
	.run     = run,
	.examples =
		"  kvtool describe dump.h5\n"
		"  kvtool describe --layout=nhd --dtype=bfloat16 --block-size=16 "
		"dump.npy\n"
		"  kvtool describe --expect-layout=hnd --expect heads=4 dump.h5\n"
		"  kvtool describe --verify --json dump.h5\n"
		"  kvtool describe --peek=layer=3,request=A,token=69 dump.h5\n",
};
