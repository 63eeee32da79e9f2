/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_blocks.c - a dump with some blocks of another one
 *
 *	--blocks=SRC:DST,...	each 7 or 3-9, with both ends, and equally many
 *	--request=ID		blocks of FROM's table, to those of BASE's
 *
 * Both dumps are opened; options that describe neither of them are KVT_BAD_INPUT.
 * lib/ops/write/copy_blocks.c derives the dump and cli/rewrite.c writes it.  What is
 * told of a group, and --verify, which compares each block with the side that it should
 * be from, are this command's own (struct rewrite_own).
 */
#include <stdlib.h>

#include "cli/rewrite.h"
#include "print/out/signals.h"
#include "lib/ops/write/copy_blocks.h"
#include "lib/base/number.h"

/* ---- the text of --blocks -------------------------------------------------- */

/* "7" or "3-9", both ends of which belong to it. */
static bool take_ids(int64_t *first, int64_t *count, const char **text)
{
	int64_t last;

	if (!kvt_number_take(first, text))
		return false;
	last = *first;
	if (**text == '-') {
		++*text;
		if (!kvt_number_take(&last, text) || last < *first)
			return false;
	}
	*count = last - *first + 1;
	return true;
}

static enum kvt_status take_run(struct block_run *run, const char **text,
				struct kvt_error *err)
{
	const char *begin = *text;
	int64_t ndst;
	bool ok = take_ids(&run->src, &run->count, text) && *(*text)++ == ':' &&
		  take_ids(&run->dst, &ndst, text) && (!**text || **text == ',');

	if (!ok)
		return kvt_fail(err, KVT_USAGE,
				"--blocks has '%.60s', expected SRC:DST, numbers or ranges such as 3-9:40-46",
				begin);
	if (run->count != ndst)
		return kvt_fail(err, KVT_USAGE,
				"--blocks has '%.*s': %lld blocks do not fit %lld",
				(int)(*text - begin < 60 ? *text - begin : 60), begin,
				LL(run->count), LL(ndst));
	return KVT_OK;
}

static enum kvt_status block_runs_parse(struct copy_blocks *copy, const char *text,
				 struct kvt_error *err)
{
	size_t room = 1;

	for (const char *p = text; *p; p++)
		room += *p == ',';
	if (!(copy->run = calloc(room, sizeof(*copy->run))))
		return kvt_no_memory(err, NULL);
	for (;;) {
		enum kvt_status status = take_run(&copy->run[copy->nruns++], &text, err);

		if (status || !*text)
			return status;
		text++;
	}
}

/* ---- the report ------------------------------------------------------------- */

/* What is told of, and compared with. */
struct told {
	struct kvt_dump *reader[NCOPY];
	struct opt_strings requests;
	struct copy_blocks copy;
};

static void print_group(const void *context, int group)
{
	const struct told *told = context;
	const struct kvt_group *g = kvt_dump_group(told->reader[COPY_BASE], group);
	int64_t n = g->shape.n[KVT_AXIS_B];

	plainf("%s: %lld of %lld block%s from %s\n", g->id,
	       LL(told->copy.group[group].count), LL(n), plural(n),
	       told->copy.name[COPY_FROM]);
}

static void put_group(const void *context, int group, struct json_out *out, json_t *o)
{
	const struct told *told = context;
	const struct kvt_group *g = kvt_dump_group(told->reader[COPY_BASE], group);

	json_put_int(out, o, "blocks", g->shape.n[KVT_AXIS_B]);
	json_put_int(out, o, "blocks_copied", told->copy.group[group].count);
}

static enum kvt_status verify(const void *context, struct kvt_dump *written,
			      const struct seen *seen, const struct kvt_run *run,
			      struct kvt_error *err)
{
	const struct told *told = context;

	return copy_verify(told->reader, written, &told->copy, seen, run, err);
}

static enum kvt_status copy(struct rewrite *r, struct told *told, struct kvt_error *err)
{
	struct kvt_dump *dump = NULL;
	enum kvt_status status = KVT_OK;
	bool any = false;

	signals_catch();
	for (int s = 0; !status && s < NCOPY; s++) {
		status = open_as_told(&told->reader[s], told->copy.name[s], &r->hints,
				      err);
		any |= !status && is_as_told(told->copy.name[s], &r->hints, err);
	}
	if (!status && !any)
		status = KVT_BAD_INPUT;	/* as the last of them says */
	r->own = (struct rewrite_own){ told, verify, print_group, put_group };
	if (!status && !(status = copy_blocks(&dump, told->reader, &told->copy, err)))
		status = rewrite_dump(r, dump, err);
	kvt_dump_close(dump);
	for (int s = 0; s < NCOPY; s++)
		kvt_dump_close(told->reader[s]);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct rewrite r = { 0 };
	struct told told = { .reader = { NULL } };
	const char *blocks = NULL;
	const struct opt opts[] = {
		OPT_OUTPUT(&r.output),
		{ "blocks", 0, OPT_STRING, &blocks, "LIST",
		  "SRC:DST,...: blocks of FROM and of BASE, such as 5:7,3-9:40-46" },
		{ "request", 0, OPT_STRINGS, &told.requests, "ID",
		  "blocks of this request, from table to table; may be repeated" },
		REWRITE_OPTS(&r),
		{ 0 }
	};
	enum kvt_status status = KVT_OK;
	int nargs = opt_parse(&cmd_copy_blocks, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if (nargs > 2)
		return kvt_fail(err, KVT_USAGE,
				"expected two dumps, FROM and BASE, got %d; the output is -o OUT",
				nargs);
	if (blocks && told.requests.n)
		return kvt_fail(err, KVT_USAGE,
				"--blocks and --request both say what to copy; expected one of them");
	if ((status = opt_need(&cmd_copy_blocks, (struct opt_need[]){
			{ nargs == 2, "two dumps, FROM and BASE" },
			{ blocks || told.requests.n, "--blocks or --request" },
			{ r.output, "-o OUT" }, { 0 } }, err)))
		return status;
	r.input = argv[0];
	r.more = argv + 1;
	r.nmore = 1;
	told.copy.requests = (struct kvt_names){ told.requests.n, told.requests.s };
	told.copy.name[COPY_FROM] = argv[0];
	told.copy.name[COPY_BASE] = argv[1];
	if (blocks)
		status = block_runs_parse(&told.copy, blocks, err);
	if (!status)
		status = copy(&r, &told, err);
	free(told.copy.run);
	return status;
}

const struct command cmd_copy_blocks = {
	.name = "copy-blocks",
	.args = "--blocks=SRC:DST,... -o OUT FROM BASE",
	.shards = "",
	.summary = "replace some blocks of a dump by blocks of another",
	.run = run,
	.examples =
		"  kvtool copy-blocks --blocks=5:7,3-9:40-46 -o out.h5 from.h5 base.h5\n"
		"  kvtool copy-blocks --request=A --verify -o out.h5 from.npy base.h5\n",
};
