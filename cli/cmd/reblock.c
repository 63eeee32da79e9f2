/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reblock.c - a dump with blocks of another size
 *
 * lib/derived/reblock.c decides for each group: kept, regrouped where it lies, or
 * gathered by requests.  What was written is verified by request and token
 * (lib/ops/compare), since ids of blocks are new.
 */
#include <stdio.h>
#include <string.h>

#include "cli/set.h"
#include "lib/ops/compare/compare.h"
#include "print/out/signals.h"

/* What is told of, and compared with. */
struct told {
	struct kvt_dump *reader;
	struct kvt_reblock_options options;
	struct kvt_reblocked said[KVT_MAX_GROUPS];
};

static const char *const how_names[] = { "kept", "regrouped", "gathered" };

/* ---- the report --------------------------------------------------------- */

static void print_group(const void *context, int group)
{
	const struct told *told = context;
	const struct kvt_reblocked *g = &told->said[group];
	const char *id = kvt_dump_group(told->reader, group)->id;

	if (!g->size_before) {
		plainf("%s: %lld block%s of one state %s as %lld\n", id,
		       LL(g->blocks_before), plural(g->blocks_before),
		       how_names[g->how], LL(g->blocks_after));
		return;
	}
	plainf("%s: %lld block%s of %lld %s as %lld of %lld", id, LL(g->blocks_before),
	       plural(g->blocks_before), LL(g->size_before), how_names[g->how],
	       LL(g->blocks_after), LL(told->options.block_size));
	if (g->dropped)
		plainf(", %lld unused left out", LL(g->dropped));
	if (g->copied)
		plainf(", %lld shared slot%s copied", LL(g->copied), plural(g->copied));
	if (g->stale_kept)
		plainf(", %lld stale slot%s kept", LL(g->stale_kept),
		       plural(g->stale_kept));
	else if (g->stale)
		plainf(", %lld stale slot%s %s", LL(g->stale), plural(g->stale),
		       g->how == KVT_GATHERED ? "left out" : "zeroed");
	plainf("%s%s\n", g->why.text[0] ? ": " : "", g->why.text);
}

static void put_group(const void *context, int group, struct json_out *out, json_t *o)
{
	const struct told *told = context;
	const struct kvt_reblocked *g = &told->said[group];

	json_put_text(out, o, "how", how_names[g->how]);
	json_put_text(out, o, "why", g->why.text[0] ? g->why.text : NULL);
	json_put_int(out, o, "from_block_size", g->size_before);
	json_put_int(out, o, "to_block_size",
		     g->size_before ? told->options.block_size : 0);
	json_put_int(out, o, "from_blocks", g->blocks_before);
	json_put_int(out, o, "to_blocks", g->blocks_after);
	json_put_int(out, o, "unused_blocks_dropped", g->dropped);
	json_put_int(out, o, "shared_slots_copied", g->copied);
	json_put_old(out, o, "shared_states_copied", "shared_slots_copied");
	json_put_int(out, o, "stale_slots", g->stale);
	json_put_old(out, o, "stale_states", "stale_slots");
	json_put_int(out, o, "stale_slots_kept", g->stale_kept);
	json_put_old(out, o, "stale_states_kept", "stale_slots_kept");
}

static enum kvt_status verify(const void *context, struct kvt_dump *written,
			      const struct seen *seen, const struct kvt_run *run,
			      struct kvt_error *err)
{
	const struct told *told = context;

	return reblock_verify(told->reader, written, told->said, seen, run, err);
}

/* ---- the command -------------------------------------------------------- */

static enum kvt_status reblock(struct rewrite *r, void *context, struct kvt_error *err)
{
	struct told *told = context;
	struct kvt_error why = { "" };
	struct kvt_dump *dump = NULL, *reader, *cast = NULL, *proof = NULL;
	struct rewrite one = *r;
	struct kvt_run run = rewrite_run(r);
	enum kvt_status status;

	signals_catch();
	if ((status = kvt_open(&reader, r->input, &r->hints, err)))
		return status;
	if (r->cast.type && (status = cast_open(&cast, r->verify ? &proof : NULL, reader,
						r->input, &r->cast, &run, err))) {
		kvt_dump_close(reader);
		return status;
	}
	told->reader = proof ? proof : reader;
	one.is_cast = r->cast.type != NULL;
	one.cast.type = NULL;
	one.own = (struct rewrite_own){ told, verify, print_group, put_group };
	if ((status = kvt_dump_reblock(&dump, told->said, cast ? cast : reader,
				       &told->options, &why)))
		kvt_fail(err, status, "%s: %.400s", r->input, why.text);
	else
		status = rewrite_dump(&one, dump, err);
	kvt_dump_close(dump);
	kvt_dump_close(cast);
	kvt_dump_close(proof);
	kvt_dump_close(reader);
	return status;
}

static enum kvt_status take_stale(enum kvt_stale *out, const char *text,
				  struct kvt_error *err)
{
	if (!text)
		return KVT_OK;
	*out = !strcmp(text, "keep") ? KVT_STALE_KEEP :
	       !strcmp(text, "zero") ? KVT_STALE_ZERO : KVT_STALE_DEFAULT;
	return *out ? KVT_OK : kvt_fail(err, KVT_USAGE,
					"--stale is '%.100s', expected keep or zero", text);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	struct told told = { .reader = NULL };
	const char *stale = NULL, *to = NULL;
	const struct opt opts[] = {
		{ "output", 'o', OPT_STRING, &r.output, "FILE",
		  "where to write; default: IN with bsN in its name" },
		OPT_OUT_DIR(&r.out_dir),
		{ "block-size", 'b', OPT_COUNT, &told.options.block_size, "N",
		  "tokens of a block of the output" },
		{ "compact", 0, OPT_FLAG, &told.options.compact, NULL,
		  "renumber blocks in the order of requests, drop unused ones" },
		{ "stale", 0, OPT_STRING, &stale, "WHAT",
		  "slots without a token: keep or zero" },
		{ "to", 't', OPT_STRING, &to, "LAYOUT",
		  "memory order of the output; default: that of IN" },
		OPT_CAST(&r.cast),
		REWRITE_OPTS(&r),
		{ 0 }
	};
	int nargs = opt_parse(&cmd_reblock, opts, argc, argv, err);
	char what[32], output[4096];
	struct kvt_layout layout;
	enum kvt_status status;

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = rewrite_each_operands(&r, argv, &nargs, err)) ||
	    (status = opt_need(&cmd_reblock, (struct opt_need[]){
			{ nargs, "a dump" },
			{ told.options.block_size, "--block-size=N" }, { 0 } }, err)))
		return status;
	if (told.options.block_size > INT32_MAX)
		return kvt_fail(err, KVT_USAGE,
				"--block-size is %lld, expected at most %ld",
				LL(told.options.block_size), (long)INT32_MAX);
	if ((status = cast_check(&r.cast, err)) ||
	    (status = take_stale(&told.options.stale, stale, err)) ||
	    (to && (status = kvt_layout_parse(&layout, to, err))))
		return status;
	snprintf(what, sizeof(what), "bs%lld", LL(told.options.block_size));
	if (!r.output && !r.out_dir) {
		status = rewrite_default_output(output, sizeof(output), argv[0], what,
						err);
		if (status)
			return status;
		r.output = output;
	}
	if (to)
		r.layout = told.options.layout = &layout;
	r.layout_name = to;
	return rewrite_each(&r, &cmd_reblock, argv, nargs, reblock, &told, err);
}

const struct command cmd_reblock = {
	.name = "reblock",
	.args = "--block-size=N IN [OUT] | --block-size=N --out-dir=DIR IN...",
	.shards = "",
	.summary = "write a dump with blocks of another size",
	.run = run,
	.examples =
		"  kvtool reblock --block-size=64 -o big.h5 snapshot.h5\n"
		"  kvtool reblock --block-size=24 --compact --verify -o used.h5 snapshot.h5\n",
	.streams = STREAM_FIRST,
};
