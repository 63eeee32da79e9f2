/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_slice.c - part of a dump as a dump of its own */
#include "cli/pick.h"
#include "cli/rewrite.h"
#include "cli/signals.h"

/* What was said on the command line, as text. */
struct said {
	const char *layers, *blocks, *heads;
	int64_t tp_size, tp_rank;
};

static enum kvt_status take_rank(struct kvt_rank *rank, const struct said *said,
				 struct kvt_error *err)
{
	if (!said->tp_size && said->tp_rank < 0)
		return KVT_OK;
	if (!said->tp_size || said->tp_rank < 0)
		return kvt_fail(err, KVT_USAGE,
				"expected --tp-size and --tp-rank together");
	if (said->tp_rank >= said->tp_size || said->tp_size > INT32_MAX)
		return kvt_fail(err, KVT_USAGE,
				"--tp-rank is %lld of %lld ranks, expected less",
				(long long)said->tp_rank, (long long)said->tp_size);
	*rank = (struct kvt_rank){ said->tp_size, said->tp_rank };
	return KVT_OK;
}

static enum kvt_status take_pick(struct pick *pick, const struct said *said,
				 struct kvt_error *err)
{
	enum kvt_status status;

	if ((said->layers &&
	     (status = ranges_parse(&pick->layers, "layers", said->layers, err))) ||
	    (said->blocks &&
	     (status = ranges_parse(&pick->blocks, "blocks", said->blocks, err))) ||
	    (said->heads &&
	     (status = ranges_parse(&pick->heads, "heads", said->heads, err))) ||
	    (status = take_rank(&pick->rank, said, err)))
		return status;
	if (pick->heads.n > 1)
		return kvt_fail(err, KVT_USAGE,
				"--heads is '%.100s', expected one range: heads of a rank are neighbours",
				said->heads);
	if (pick->heads.n && pick->rank.size)
		return kvt_fail(err, KVT_USAGE,
				"--heads and --tp-size both say which heads; expected one of them");
	return KVT_OK;
}

static enum kvt_status slice(const struct rewrite *r, const struct pick *pick,
			     struct kvt_error *err)
{
	struct kvt_reader *reader;
	struct kvt_error why = { "" };
	struct source source;
	enum kvt_status status;

	signals_catch();
	if ((status = kvt_open(&reader, r->input, &r->hints, err)))
		return status;
	if ((status = pick_source(&source, &reader, pick, &why)))
		kvt_fail(err, status, "%s: %.400s", r->input, why.text);
	else
		status = rewrite_source(r, &source, err);
	source_free(&source);
	kvt_close_reader(reader);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	struct pick pick = { .mamba_groups = 0 };
	struct said said = { .tp_rank = -1 };
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		{ "layers", 0, OPT_STRING, &said.layers, "LIST",
		  "layers of the model, such as 0:4 or 0,2,8:16" },
		{ "blocks", 0, OPT_STRING, &said.blocks, "LIST",
		  "blocks, by their ids in the engine's pool" },
		{ "heads", 0, OPT_STRING, &said.heads, "A:B",
		  "heads of the model, from A to before B" },
		{ "request", 0, OPT_STRINGS, &pick.requests, "ID",
		  "this request and its blocks; may be repeated" },
		{ "tp-size", 0, OPT_COUNT, &said.tp_size, "N",
		  "what one of N tensor parallel ranks holds" },
		{ "tp-rank", 0, OPT_INT, &said.tp_rank, "R",
		  "which one, from 0 on" },
		{ "mamba-groups", 0, OPT_COUNT, &pick.mamba_groups, "N",
		  "groups of B and C in the model" },
		REWRITE_OPTS(&r),
		{ 0 }
	};
	enum kvt_status status;
	int nargs = opt_parse(&cmd_slice, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if (nargs != 1)
		return kvt_fail(err, KVT_USAGE, "expected one file, got %d", nargs);
	if (!r.output)
		return kvt_fail(err, KVT_USAGE, "expected -o: where to write");
	if ((status = take_pick(&pick, &said, err)))
		return status;
	r.input = argv[0];
	return slice(&r, &pick, err);
}

const struct command cmd_slice = {
	.name = "slice",
	.args = "-o OUT FILE",
	.summary = "write a part of a dump: layers, blocks, heads, a request, a rank",
	.run = run,
	.examples =
		"  kvtool slice --layers=0:16 --request=A -o a.h5 snapshot.h5\n"
		"  kvtool slice --tp-size=4 --tp-rank=1 -o rank1.h5 snapshot.h5\n",
};
