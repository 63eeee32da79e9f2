/* SPDX-License-Identifier: Apache-2.0 */
/* copy_blocks.c - a dump with some blocks of another one */
#include <stdlib.h>

#include "cli/rewrite.h"
#include "cli/signals.h"
#include "lib/dump/graft.h"

/* What is told of, and compared with. */
struct told {
	struct kvt_dump *reader[NCOPY];
	struct copy_blocks copy;
};

static void print_group(const void *context, int group)
{
	const struct told *told = context;
	const struct kvt_group *g = reader_group(told->reader[COPY_BASE], group);
	int64_t n = g->shape.n[KVT_AXIS_B];

	plainf("%s: %lld of %lld block%s from %s\n", g->id,
	       (long long)told->copy.group[group].count, (long long)n, plural(n),
	       told->copy.name[COPY_FROM]);
}

static void put_group(const void *context, int group, struct json_out *out, json_t *o)
{
	const struct told *told = context;
	const struct kvt_group *g = reader_group(told->reader[COPY_BASE], group);

	json_put_int(out, o, "blocks", g->shape.n[KVT_AXIS_B]);
	json_put_int(out, o, "blocks_copied", told->copy.group[group].count);
}

static enum kvt_status verify(const void *context, struct kvt_dump *written,
			      const struct kvt_run *run,
			      struct kvt_error *err)
{
	const struct told *told = context;
	struct kvt_dump *readers[NCOPY] = { told->reader[0], told->reader[1] };

	return copy_verify(readers, written, &told->copy, run, err);
}

static enum kvt_status copy_blocks(struct rewrite *r, struct told *told,
				   struct kvt_error *err)
{
	struct source source;
	enum kvt_status status = KVT_OK;

	signals_catch();
	for (int s = 0; !status && s < NCOPY; s++)
		status = open_as_told(&told->reader[s], told->copy.name[s], &r->hints,
				      err);
	if (!status) {
		r->own = (struct rewrite_own){ told, verify, print_group, put_group };
		status = copy_source(&source, told->reader, &told->copy, err);
		if (!status)
			status = rewrite_source(r, &source, err);
		source_free(&source);
	}
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
		  "SRC:DST,...: blocks of FROM and where in BASE, such as 5:7,3-9:40-46" },
		{ "request", 0, OPT_STRINGS, &told.copy.requests, "ID",
		  "blocks of this request, from table to table; may be repeated" },
		REWRITE_OPTS(&r),
		{ 0 }
	};
	enum kvt_status status = KVT_OK;
	int nargs = opt_parse(&cmd_copy_blocks, opts, argc, argv, err);

	if (nargs < 0)
		return opt_status(nargs);
	if (nargs != 2)
		return kvt_fail(err, KVT_USAGE,
				"expected two files, FROM and BASE, got %d", nargs);
	if (!r.output)
		return kvt_fail(err, KVT_USAGE, "expected -o: where to write");
	if (!blocks == !told.copy.requests.n)
		return kvt_fail(err, KVT_USAGE,
				"expected either --blocks or --request: what to copy");
	r.input = argv[0];
	r.more = argv + 1;
	r.nmore = 1;
	told.copy.name[COPY_FROM] = argv[0];
	told.copy.name[COPY_BASE] = argv[1];
	if (blocks)
		status = block_runs_parse(&told.copy, blocks, err);
	if (!status)
		status = copy_blocks(&r, &told, err);
	free(told.copy.run);
	return status;
}

const struct command cmd_copy_blocks = {
	.name = "copy-blocks",
	.args = "--blocks=SRC:DST,... -o OUT FROM BASE",
	.summary = "write a dump with some blocks of another",
	.run = run,
	.examples =
		"  kvtool copy-blocks --blocks=5:7,3-9:40-46 -o out.h5 from.h5 base.h5\n"
		"  kvtool copy-blocks --request=A --verify -o out.h5 from.npy base.h5\n",
};
