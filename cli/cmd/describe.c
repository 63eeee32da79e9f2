/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe.c - kvtool describe: what a dump is, and is it as expected
 *
 * A file is opened, described without its data, and then asked as much more as options
 * say: checksums, one tensor for all, peeks, statistics, types that it would fit.  Of a
 * dump with damage that --verify found no numbers are decoded.  What was expected is
 * judged on the object of --json; what does not hold is complained of first, then the
 * description is printed, and damage is complained of last: KVT_MISMATCH, or
 * KVT_BAD_INPUT for damage.
 *
 * A table of registered regions is no dump: cli/regions.c describes it.  Several dumps
 * are told as a set if no option is for one alone.  A file that fails does not end the
 * others, but for KVT_USAGE; the status is the highest of all.
 */
#include "cli/expect/expect.h"
#include "cli/progress.h"
#include "cli/set.h"
#include "cli/regions.h"
#include "print/out/screen.h"
#include "print/describe.h"
#include "print/view.h"

#include <stdlib.h>
#include <string.h>

struct asked {
	bool json, stats, verify, canonical, quiet, map, token_ids;
	struct describe_options print;
	struct kvt_hints hints;
	struct kvt_run run;
	const char *canonical_layout;	/* instead of the dump's own; or NULL */
	const char *expect_layout;
	struct opt_strings expect;	/* KEY=VALUE */
	struct opt_strings peek;	/* places */
	struct opt_strings fit;		/* types, with commas */
	bool scaled;			/* a scale was given */
	double scale[2];		/* what keys and values are times; 0: 1 */
	/* of several that are described together: those so far; NULL: each by itself */
	struct described *set;
	int nset;
};

/* Nothing is asked for that belongs to one dump alone. */
static bool is_plain(const struct asked *a)
{
	const struct describe_options *p = &a->print;

	return !a->json && !a->quiet && !a->stats && !a->map && !a->verify &&
	       !a->canonical && !a->peek.n && !a->fit.n && !p->verbose && !p->names &&
	       !p->tuples && !p->tables && !a->token_ids;
}

static bool is_damaged(const struct kvt_description *d)
{
	for (int g = 0; g < d->snapshot->ngroups; g++)
		if (d->group[g].integrity && d->group[g].integrity->damaged)
			return true;
	return false;
}

static enum kvt_status complain_damage(const struct kvt_description *d)
{
	enum kvt_status status = KVT_OK;

	for (int g = 0; g < d->snapshot->ngroups; g++) {
		const struct kvt_group_facts *f = &d->group[g];
		const struct kvt_integrity *v = f->integrity;

		for (int i = 0; v && i < v->nfound; i++) {
			const int64_t *at = v->found[i].at;

			complain(&cmd_describe,
				 "%s: %s: layer %lld block %llu head %lld %s: %s", d->path,
				 f->group->id, LL(at[KVT_AXIS_L]),
				 (unsigned long long)kvt_block_id(f->group,
								  at[KVT_AXIS_B]),
				 LL(f->group->head_start + at[KVT_AXIS_H]),
				 kvt_component_name(f->group, at[KVT_AXIS_K]),
				 v->found[i].text);
		}
		if (!v)
			continue;
		if (v->damaged + v->differing > v->nfound)
			complain(&cmd_describe, "%s: %s: and %lld more", d->path,
				 f->group->id, LL(v->damaged + v->differing - v->nfound));
		status = worse(status, v->damaged ? KVT_BAD_INPUT :
			       v->differing ? KVT_MISMATCH : KVT_OK);
	}
	return status;
}

/* One screen, with the line of a shell below it. */
static enum kvt_status print_map(const struct kvt_description *d, struct kvt_error *err)
{
	enum { BESIDE = 2, HANG = 12 };
	enum kvt_status status;

	screen_fold_begin(HANG);
	plainf("%s\n", d->path);
	status = view_pools(stdout, d, screen_rows() - BESIDE, err);
	screen_fold_end();
	return status;
}

static enum kvt_status print_dump(const struct kvt_description *d,
				  const struct asked *asked, struct json_out *json,
				  bool stream, struct kvt_error *err)
{
	if (asked->json)
		return json_print(json, stream, err);
	if (asked->set && !describe_add(asked->set, asked->nset, d))
		return kvt_no_memory(err, d->path);
	if (asked->quiet || asked->set)
		return KVT_OK;
	if (asked->map)
		return print_map(d, err);
	describe_text(d, &asked->print);
	return KVT_OK;
}

enum { MOST_FITS = 16 };
struct fits {
	int n;
	struct fit_try fit[MOST_FITS];
};

/* "fp8,int4=0.2" */
static enum kvt_status try_types(struct fits *out, struct kvt_dump *dump,
				 const struct asked *asked, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	for (int i = 0; i < asked->fit.n; i++)
		for (const char *at = asked->fit.s[i]; !status && at; ) {
			const char *end = strchr(at, ',');
			char one[80];

			if (out->n == MOST_FITS)
				return kvt_fail(err, KVT_USAGE,
						"--fit has more than %d types", MOST_FITS);
			snprintf(one, sizeof(one), "%.*s",
				 end ? (int)(end - at) : (int)strlen(at), at);
			status = fit_try(&out->fit[out->n++], dump, one,
					 asked->scaled ? asked->scale : NULL, &asked->run,
					 err);
			at = end ? end + 1 : NULL;
		}
	return status;
}

/* The answer comes first: what is not as expected, then what there is. */
static enum kvt_status expect_and_print(const struct kvt_description *d,
					const struct asked *given, bool stream,
					const struct fits *fits, struct kvt_error *err)
{
	struct json_out json = { NULL, false };
	struct describe_tokens *tokens = NULL;
	struct asked told = *given, *asked = &told;
	enum kvt_status status = KVT_OK;

	if (given->token_ids)
		status = describe_tokens(&tokens, d, given->hints.model, err);
	if (status) {
		describe_tokens_free(tokens);
		return status;
	}
	told.print.ids = tokens;
	if (asked->json || asked->expect.n || asked->expect_layout)
		describe_json(&json, d, &asked->print);
	if (json.root && fits->n)
		fit_json(&json, fits->fit, fits->n);
	status = describe_expect(&cmd_describe, d, asked->expect_layout, &asked->expect,
				 json.root, err);
	if (status <= KVT_MISMATCH)
		status = worse(status, print_dump(d, asked, &json, stream, err));
	if (status <= KVT_MISMATCH && !asked->json && !asked->quiet)
		fit_text(fits->fit, fits->n);
	json_free(&json);
	describe_tokens_free(tokens);
	return status;
}

static enum kvt_status describe_dump(struct kvt_dump *dump, const char *path,
				     const struct asked *asked, bool stream,
				     struct kvt_error *err)
{
	struct kvt_description *d = calloc(1, sizeof(*d));
	struct fits *fits = calloc(1, sizeof(*fits));
	enum kvt_status status;

	if (!d || !fits) {
		free(d);
		free(fits);
		return kvt_no_memory(err, NULL);
	}
	status = kvt_describe(d, path, dump, err);
	if (!status && asked->verify)
		status = kvt_describe_integrity(d, &asked->run, err);
	if (!status && asked->canonical)
		status = kvt_describe_canonical(d, asked->canonical_layout, err);
	/* there are no numbers of what cannot be decoded */
	if (!status && asked->peek.n && !is_damaged(d))
		status = kvt_describe_peeks(d, asked->peek.s, asked->peek.n, asked->scale,
					    &asked->run, err);
	if (!status && asked->stats && !is_damaged(d))
		status = kvt_describe_stats(d, asked->scale, &asked->run, err);
	if (!status && asked->fit.n && !is_damaged(d))
		status = try_types(fits, dump, asked, err);
	if (!status && (asked->verify || asked->stats || asked->fit.n))
		status = kvt_dump_unchanged(dump, err);
	if (!status)
		status = expect_and_print(d, asked, stream, fits, err);
	for (int i = 0; i < fits->n; i++)
		fit_free(&fits->fit[i]);
	free(fits);
	status = worse(status, complain_damage(d));
	kvt_description_free(d);
	free(d);
	return status;
}

/* It is like no other. */
static enum kvt_status describe_add_regions(struct described *out, const char *path,
					    struct kvt_error *err)
{
	enum kvt_status status;

	screen_take_begin(false);
	status = regions_describe(path, false, true, false, err);
	out->text = screen_take_end();
	return status;
}

static enum kvt_status describe_file(const char *path, const struct asked *asked,
				     bool stream, struct kvt_error *err)
{
	struct kvt_dump *dump;
	enum kvt_status status;

	if (is_regions(path) && asked->set)
		return describe_add_regions(&asked->set[asked->nset], path, err);
	if (is_regions(path))
		return regions_describe(path, asked->json, stream, asked->quiet, err);
	if ((status = kvt_open(&dump, path, &asked->hints, err)))
		return status;
	status = describe_dump(dump, path, asked, stream, err);
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status take_scale(struct asked *asked, const char *text,
				  struct kvt_error *err)
{
	asked->scale[0] = asked->scale[1] = 1;
	asked->scaled = text != NULL;
	return text ? scale_parse(asked->scale, "scale", text, err) : KVT_OK;
}

static enum kvt_status describe_all(struct asked *asked, char **argv, int n)
{
	enum kvt_status status = KVT_OK, s;

	for (int i = 0; i < n; i++) {
		struct kvt_error one = { "" };

		asked->nset = i;
		s = describe_file(argv[i], asked, n > 1, &one);
		status = worse(status, s);
		if (s && one.text[0])
			complain(&cmd_describe, "%s", one.text);
		if (s == KVT_USAGE)
			break;		/* the next file would say the same */
		if (i + 1 < n && !asked->json && !asked->quiet && !asked->set)
			putchar('\n');
	}
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct asked asked = { .json = false };
	const char *scale = NULL;
	int64_t threads = 0, memory = 0;
	const struct opt opts[] = {
		OPT_JSON(&asked.json),
		{ "stats", 0, OPT_FLAG, &asked.stats, NULL,
		  "read the data: min, max, mean, std, NaN of each head" },
		{ "peek", 0, OPT_STRINGS, &asked.peek, "KEY=VALUE,...",
		  "show the numbers at a coordinate: layer=3,request=A,token=69" },
		{ "scale", 0, OPT_STRING, &scale, "X[,Y]",
		  "factor for the numbers of --stats, --peek, --fit; keys, values" },
		{ "fit", 0, OPT_STRINGS, &asked.fit, "TYPE[=X],...",
		  "read the data: would it hold as fp8, int4, nvfp4, within rel-l2 of X" },
		{ "verify", 0, OPT_FLAG, &asked.verify, NULL,
		  "read the data: check every checksum and content cell" },
		{ "verbose", 'v', OPT_FLAG, &asked.print.verbose, NULL,
		  "show strides, predicates, all names of a layout, tiles, proofs" },
		{ "names", 0, OPT_FLAG, &asked.print.names, NULL,
		  "list the names of the layers" },
		{ "tuples", 0, OPT_FLAG, &asked.print.tuples, NULL,
		  "show the layout as rfc: and vllm: tuples" },
		{ "map", 0, OPT_FLAG, &asked.map, NULL,
		  "draw the pool alone, a character a block, on one screen" },
		{ "block-tables", 0, OPT_FLAG, &asked.print.tables, NULL,
		  "show the block table of each request" },
		{ "canonical", 0, OPT_FLAG, &asked.canonical, NULL,
		  "show the one tensor that all layers could share, or why not" },
		{ "canonical-layout", 0, OPT_STRING, &asked.canonical_layout, "LAYOUT",
		  "the same as if the dump had this layout" },
		{ "expect-layout", 0, OPT_STRING, &asked.expect_layout, "LAYOUT",
		  "exit 1 unless this is the layout" },
		{ "expect", 0, OPT_STRINGS, &asked.expect, "KEY=VALUE",
		  "exit 1 unless this field of --json has this value" },
		{ "token-ids", 0, OPT_FLAG, &asked.token_ids, NULL,
		  "show the ids of tokens; with --model=FILE.gguf their text" },
		OPT_THREADS(&threads),
		OPT_MEMORY(&memory),
		OPT_QUIET(&asked.quiet),
		OPT_INPUT(&asked.hints),
		{ 0 }
	};
	enum kvt_status status = KVT_OK;
	int n = opt_parse(&cmd_describe, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if ((status = opt_need(&cmd_describe, (struct opt_need[]){
			{ n, "a dump" }, { 0 } }, err)) ||
	    (status = take_scale(&asked, scale, err)))
		return status;
	if (asked.map && asked.json)
		return kvt_fail(err, KVT_USAGE,
				"--map and --json exclude each other; kvtool view --json has the pool");
	n = pass_over_manifests(argv, n, &asked.hints);
	asked.hints.empty = !asked.peek.n;
	asked.hints.look_into = INT64_MAX;
	asked.print.hints = n == 1 ? &asked.hints : NULL;
	asked.canonical |= asked.canonical_layout != NULL;
	asked.run = run_watched(threads, memory, asked.quiet);
	if (n > 1 && is_plain(&asked) &&
	    !(asked.set = calloc((size_t)n, sizeof(*asked.set))))
		return kvt_no_memory(err, NULL);
	status = describe_all(&asked, argv, n);
	if (asked.set)
		describe_set_text(asked.set, n);
	describe_set_free(asked.set, n);
	return status;
}

const struct command cmd_describe = {
	.name    = "describe",
	.args    = "FILE...",
	.summary = "show layout, shape, size, requests; --peek: numbers",
	.run     = run,
	.examples =
		"  kvtool describe dump.h5\n"
		"  kvtool describe --layout=nhd --dtype=bfloat16 --block-size=16 dump.npy\n"
		"  kvtool describe --expect-layout=hnd --expect heads=4 dump.h5\n"
		"  kvtool describe --verify --json dump.h5\n"
		"  kvtool describe --map dump.h5\n"
		"  kvtool describe --fit=fp8,int4,nvfp4 dump.h5\n"
		"  kvtool describe --peek=layer=3,request=A,token=69 dump.h5\n"
		"  kvtool describe --model=model.gguf --token-ids slots/slot0.bin\n",
};
