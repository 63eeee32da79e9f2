/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c - part of a dump as a dump of its own
 *
 * Options become a struct kvt_slice_options; lib/derived/slice.c makes the part and
 * cli/rewrite.c writes it.  A rank that sends nothing is an answer, and no dump.
 */
#include "cli/set.h"
#include "lib/base/number.h"
#include "print/out/json_out.h"
#include "print/out/signals.h"

#include <string.h>
#include <unistd.h>

enum { NRANGES = 4 };

/* What was said on the command line, as text; and as numbers. */
struct said {
	const char *layers, *blocks, *heads, *tokens;
	struct opt_ranges ranges[NRANGES];
	struct opt_strings requests, components;
	const char *tp;			/* "R/N" or "N" */
	int64_t tp_size, tp_rank;
	bool transfer;
	int64_t src_tp, src_rank, dst_tp, dst_rank;
};

/* A number of ranks and one of them. */
static enum kvt_status take_rank(struct kvt_rank *rank, const char *size_option,
				 int64_t size, const char *rank_option, int64_t index,
				 struct kvt_error *err)
{
	if (!size && index < 0)
		return KVT_OK;
	if (!size)
		return kvt_fail(err, KVT_USAGE, "%s=%lld needs %s: of how many ranks",
				rank_option, LL(index), size_option);
	if (index < 0)
		return kvt_fail(err, KVT_USAGE, "%s=%lld needs %s, one of 0 to %lld",
				size_option, LL(size), rank_option, LL(size) - 1);
	if (index >= size || size > INT32_MAX)
		return kvt_fail(err, KVT_USAGE, "%s is %lld of %lld ranks, expected less",
				rank_option, LL(index), LL(size));
	*rank = (struct kvt_rank){ size, index };
	return KVT_OK;
}

/* "1/4" is rank 1 of 4; "4" is --tp-size=4. */
static enum kvt_status take_tp(struct said *said, struct kvt_error *err)
{
	const char *p = said->tp;
	int64_t a, b;
	bool one, two = false;

	if (!p)
		return KVT_OK;
	if (said->tp_size)
		return kvt_fail(err, KVT_USAGE,
				"--tp and --tp-size both say how many ranks; expected one of them");
	one = kvt_number_take(&a, &p);
	if (one && *p == '/') {
		p++;
		two = kvt_number_take(&b, &p);
	}
	if (!one || *p || (two ? b : a) < 1)
		return kvt_fail(err, KVT_USAGE,
				"--tp is '%.60s', expected a rank and how many there are, such as 1/4",
				said->tp);
	if (two && said->tp_rank >= 0)
		return kvt_fail(err, KVT_USAGE,
				"--tp and --tp-rank both say which rank; expected one of them");
	said->tp_size = two ? b : a;
	if (two)
		said->tp_rank = a;
	return KVT_OK;
}

static enum kvt_status take_transfer(struct kvt_slice_options *slice,
				     const struct said *said, struct kvt_error *err)
{
	struct kvt_rank from = { 0, 0 };
	enum kvt_status status;

	if ((status = take_rank(&from, "--src-tp", said->src_tp, "--src-rank",
				said->src_rank, err)) ||
	    (status = take_rank(&slice->to, "--dst-tp", said->dst_tp, "--dst-rank",
				said->dst_rank, err)))
		return status;
	if (said->transfer != (from.size > 0) || said->transfer != (slice->to.size > 0))
		return kvt_fail(err, KVT_USAGE,
				"expected --for-transfer with --src-tp, --src-rank, --dst-tp and --dst-rank");
	if (said->transfer && slice->rank.size)
		return kvt_fail(err, KVT_USAGE,
				"--tp-size and --src-tp both say which rank; expected one of them");
	if (said->transfer)
		slice->rank = from;
	return KVT_OK;
}

static enum kvt_status take_options(struct kvt_slice_options *slice, struct said *said,
				 struct kvt_error *err)
{
	const struct {
		struct kvt_ranges *ranges;
		const char *option, *text;
	} rows[NRANGES] = {
		{ &slice->layers, "layers", said->layers },
		{ &slice->blocks, "blocks", said->blocks },
		{ &slice->heads,  "heads",  said->heads },
		{ &slice->tokens, "tokens", said->tokens },
	};
	enum kvt_status status;

	for (int i = 0; i < NRANGES; i++) {
		struct opt_ranges *taken = &said->ranges[i];

		if (rows[i].text && (status = opt_ranges_parse(taken, rows[i].option,
							       rows[i].text, err)))
			return status;
		*rows[i].ranges = (struct kvt_ranges){ taken->n, taken->range };
	}
	slice->requests = (struct kvt_names){ said->requests.n, said->requests.s };
	slice->components = (struct kvt_names){ said->components.n, said->components.s };
	if ((status = take_tp(said, err)) ||
	    (status = take_rank(&slice->rank, "--tp-size", said->tp_size, "--tp-rank",
				said->tp_rank, err)) ||
	    (status = take_transfer(slice, said, err)))
		return status;
	if (slice->heads.n > 1)
		return kvt_fail(err, KVT_USAGE,
				"--heads is '%.100s', expected one range: heads of a rank are neighbours",
				said->heads);
	/* size and transfer-sim take a number of tokens under this name */
	if (slice->tokens.n == 1 && !strchr(said->tokens, ':'))
		return kvt_fail(err, KVT_USAGE,
				"--tokens is '%.60s', expected A:B: 0:%.60s are the first %.60s tokens",
				said->tokens, said->tokens, said->tokens);
	if (slice->tokens.n > 1)
		return kvt_fail(err, KVT_USAGE,
				"--tokens is '%.100s', expected one range: tokens of a request are neighbours",
				said->tokens);
	if (slice->heads.n && slice->rank.size)
		return kvt_fail(err, KVT_USAGE,
				"--heads and %s both say which heads; expected one of them",
				said->transfer ? "--src-tp" : "--tp-size");
	return KVT_OK;
}

/* Most pairs of ranks exchange nothing; that is an answer, but no dump. */
static enum kvt_status report_nothing(const struct rewrite *r,
				      const struct kvt_slice_options *slice,
				      struct kvt_error *err)
{
	struct json_out json = { NULL, false };

	/* an old part under that name would be taken for this one */
	if (r->output && !access(r->output, F_OK))
		return kvt_fail(err, KVT_SYSTEM,
				"%s: rank %lld of %lld sends nothing to rank %lld of %lld, but there is an old %.200s; remove it",
				r->input, LL(slice->rank.index), LL(slice->rank.size),
				LL(slice->to.index), LL(slice->to.size), r->output);
	if (r->quiet)
		return KVT_OK;
	if (!r->json) {
		plainf("%s: rank %lld of %lld sends nothing to rank %lld of %lld\n",
		       r->input, LL(slice->rank.index), LL(slice->rank.size),
		       LL(slice->to.index), LL(slice->to.size));
		return KVT_OK;
	}
	json_start(&json);
	json_put_text(&json, json.root, "input", r->input);
	json_put_text(&json, json.root, "output", NULL);
	json_put_bool(&json, json.root, "done", false);
	json_put_bool(&json, json.root, "sends", false);
	return json_print(&json, r->several, err);
}

/* An input that lacks --heads cannot be given them by an option that chooses heads. */
static enum kvt_status explain_choices(enum kvt_status status,
				       const struct kvt_slice_options *options,
				       const struct kvt_hints *hints,
				       struct kvt_error *err)
{
	struct kvt_error why = *err;

	/* an array without a layout has no requests either: both are asked at once */
	if (options->requests.n && !hints->blocks_of.n && !hints->slot_mapping &&
	    strstr(why.text, "give --layout"))
		return kvt_fail(err, status,
				"%.420s; and which blocks the request has, such as --blocks-of=A=5,2,9:40",
				why.text);
	if (!strstr(why.text, "--heads") && !strstr(why.text, "--layers"))
		return status;
	return kvt_fail(err, status,
			"%.600s (slice chooses by --heads and --layers; describe the input with --head-dim or --spec)",
			why.text);
}

static enum kvt_status run_slice(struct rewrite *r, void *context, struct kvt_error *err)
{
	const struct kvt_slice_options *options = context;
	struct kvt_dump *dump, *part = NULL;
	struct kvt_error why = { "" };
	enum kvt_status status;

	signals_catch();
	if ((status = kvt_open(&dump, r->input, &r->hints, err)))
		return status == KVT_BAD_INPUT ?
		       explain_choices(status, options, &r->hints, err) : status;
	if ((status = kvt_dump_slice(&part, dump, options, &why)))
		kvt_fail(err, status, "%s: %.400s", r->input, why.text);
	else if (!kvt_dump_snapshot(part)->ngroups)
		status = report_nothing(r, options, err);
	else
		status = rewrite_dump(r, part, err);
	kvt_dump_close(part);
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	struct kvt_slice_options slice = { .mamba_groups = 0 };
	struct said said = { .tp_rank = -1, .src_rank = -1, .dst_rank = -1 };
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		OPT_OUT_DIR(&r.out_dir),
		{ "layers", 0, OPT_STRING, &said.layers, "LIST",
		  "layers of the model, such as 0:4 or 0,2,8:16" },
		{ "blocks", 0, OPT_STRING, &said.blocks, "LIST",
		  "blocks, by their ids in the engine's pool" },
		{ "heads", 0, OPT_STRING, &said.heads, "A:B",
		  "heads A to B-1 of the model" },
		{ "request", 0, OPT_STRINGS, &said.requests, "ID",
		  "this request with its blocks; may be repeated" },
		{ "tokens", 0, OPT_STRING, &said.tokens, "A:B",
		  "tokens of the requests, by position" },
		{ "component", 0, OPT_STRINGS, &said.components, "NAME",
		  "only k, v, x, B, C, q or ssm; may be repeated" },
		{ "tp", 0, OPT_STRING, &said.tp, "R/N",
		  "what tensor parallel rank R of N holds, such as 1/4" },
		{ "tp-size", 0, OPT_COUNT, &said.tp_size, "N", NULL },
		{ "tp-rank", 0, OPT_INT, &said.tp_rank, "R", NULL },
		{ "for-transfer", 0, OPT_FLAG, &said.transfer, NULL,
		  "the part that one rank sends to another; needs the next four" },
		{ "src-tp", 0, OPT_COUNT, &said.src_tp, "N", "number of source ranks" },
		{ "src-rank", 0, OPT_INT, &said.src_rank, "R", "the source rank" },
		{ "dst-tp", 0, OPT_COUNT, &said.dst_tp, "M", "number of destination "
							     "ranks" },
		{ "dst-rank", 0, OPT_INT, &said.dst_rank, "Q", "the destination rank" },
		{ "mamba-groups", 0, OPT_COUNT, &slice.mamba_groups, "N",
		  "groups of B and C in the model, or q and k heads" },
		REWRITE_OPTS(&r),
		{ 0 }
	};
	enum kvt_status status;
	int nargs = opt_parse(&cmd_slice, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if ((status = rewrite_each_operands(&r, argv, &nargs, err)) ||
	    (status = opt_need(&cmd_slice, (struct opt_need[]){
			{ nargs, "a dump" },
			{ r.output || r.out_dir, "an output" }, { 0 } }, err)) ||
	    (status = take_options(&slice, &said, err)))
		return status;
	return rewrite_each(&r, &cmd_slice, argv, nargs, run_slice, &slice, err);
}

const struct command cmd_slice = {
	.name = "slice",
	.args = "IN OUT | --out-dir=DIR IN...",
	.shards = "",
	.summary = "write a part: layers, blocks, tokens, heads, a rank",
	.run = run,
	.examples =
		"  kvtool slice --layers=0:16 --request=A -o a.h5 snapshot.h5\n"
		"  kvtool slice --tp=1/4 snapshot.h5 rank1.h5\n"
		"  kvtool slice --request=A --tokens=0:128 --component=v -o v.h5 snapshot.h5\n",
	.streams = STREAM_FIRST,
};
