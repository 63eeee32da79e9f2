/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit.c - kvtool transfer-sim emit: a plan in the words of other tools
 *
 *	csv, jsonl	an operation a line
 *	nixl		lists "src" and "dst" a pair, of [addr, len, dev]
 *	nixl-strided	the same of operations that step evenly, with stride and count
 *	regions		plans: src_off, dst_off, run, loops of count and both strides
 *	nixlbench	its configuration, of the pair that has most operations
 *	kvbench-matrix	bytes from each rank to each: sources, then destinations
 *	kvbench-yaml	a traffic pattern, which names the matrix's file
 *
 * What has an entry for each operation is printed as it is found; nothing is kept,
 * whatever the plan's size.  dev is the rank of that side.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "print/out/json_out.h"
#include "print/out/text_file.h"
#include "sim/cmd/options.h"
#include "sim/print/transfer.h"

struct emit_args {
	const char *format, *scope, *matrix_file, *output;
	bool force;
};

struct emit {
	const struct kvt_transfer_plan *transfer;
	enum kvt_scope scope;
	const char *matrix_file;
};

/* ---- pairs, one after the other ------------------------------------------ */

struct pair_at {
	const struct kvt_transfer_group *group;
	struct kvt_pair pair;
	struct kvt_nest nest;
	char *name;			/* the group's, as JSON */
	bool first;
};

/* An object: the legend, then the pairs. */
static enum kvt_status each_pair(const struct emit *e, const char *legend,
				 void (*print)(const struct emit *,
					       const struct pair_at *),
				 struct kvt_error *err)
{
	struct pair_at at = { .first = true };
	enum kvt_status status = KVT_OK;

	printf("{%s,\n\"pairs\": [\n", legend);
	for (int g = 0; !status && g < e->transfer->ngroups; g++) {
		struct kvt_pair_walk walk = { 0, 0 };

		at.group = &e->transfer->group[g];
		if (!(at.name = json_quoted(at.group->name)))
			return kvt_no_memory(err, NULL);
		while (!status && !ferror(stdout) &&
		       kvt_pair_next(&at.pair, &walk, &at.group->xfer)) {
			status = kvt_nest_init(&at.nest, &at.group->xfer, &at.pair, err);
			if (!status)
				print(e, &at);
			at.first = false;
		}
		free(at.name);
	}
	puts("\n]}");
	return status;
}

/* What begins the object of a pair. */
static void open_pair(const struct pair_at *at)
{
	printf("%s{\"group\": %s, \"src_rank\": %" PRId64 ", \"dst_rank\": %" PRId64,
	       at->first ? "" : ",\n", at->name, at->pair.src_rank, at->pair.dst_rank);
}

/* ---- one entry an operation ---------------------------------------------- */

static enum kvt_status emit_csv(const struct emit *e, struct kvt_error *err)
{
	return plan_ops(e->transfer, e->scope, false, NULL, err);
}

static enum kvt_status emit_jsonl(const struct emit *e, struct kvt_error *err)
{
	return plan_ops(e->transfer, e->scope, true, NULL, err);
}

/* ---- descriptor lists ---------------------------------------------------- */

static void print_descs(const struct emit *e, const struct pair_at *at, bool dst)
{
	int64_t device = dst ? at->pair.dst_rank : at->pair.src_rank;
	const char *before = "";
	struct kvt_ops ops;
	struct kvt_op op;

	printf(",\n \"%s\": [", dst ? "dst" : "src");
	kvt_ops_start(&ops, &at->nest, e->scope);
	while (kvt_op_next(&op, &ops)) {
		printf("%s[%" PRId64 ", %" PRId64 ", %" PRId64 "]", before,
		       dst ? op.dst : op.src, op.len, device);
		before = ", ";
	}
	putchar(']');
}

static void print_nixl(const struct emit *e, const struct pair_at *at)
{
	open_pair(at);
	print_descs(e, at, false);
	print_descs(e, at, true);
	putchar('}');
}

static enum kvt_status emit_nixl(const struct emit *e, struct kvt_error *err)
{
	return each_pair(e, "\"columns\": [\"addr\", \"len\", \"dev\"]", print_nixl, err);
}

/* Operations of one size that step evenly on both sides. */
struct row {
	struct kvt_op first;
	int64_t count, src_step, dst_step;
};

static bool extends(struct row *r, const struct kvt_op *op)
{
	int64_t src = op->src - r->first.src, dst = op->dst - r->first.dst;

	if (!r->count || op->len != r->first.len)
		return false;
	if (r->count == 1) {
		/* a stride of a descriptor has no sign */
		if (dst <= 0)
			return false;
		r->src_step = src;
		r->dst_step = dst;
	}
	if (src != r->count * r->src_step || dst != r->count * r->dst_step)
		return false;
	r->count++;
	return true;
}

static void print_row(const struct row *r, bool dst, int64_t device, const char **before)
{
	int64_t step = dst ? r->dst_step : r->src_step;

	printf("%s[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]",
	       *before, dst ? r->first.dst : r->first.src, r->first.len, device,
	       r->count > 1 ? step : r->first.len, r->count);
	*before = ", ";
}

static void print_rows(const struct emit *e, const struct pair_at *at, bool dst)
{
	int64_t device = dst ? at->pair.dst_rank : at->pair.src_rank;
	struct row row = { .count = 0 };
	const char *before = "";
	struct kvt_ops ops;
	struct kvt_op op;

	printf(",\n \"%s\": [", dst ? "dst" : "src");
	kvt_ops_start(&ops, &at->nest, e->scope);
	while (kvt_op_next(&op, &ops)) {
		if (extends(&row, &op))
			continue;
		if (row.count)
			print_row(&row, dst, device, &before);
		row = (struct row){ .first = op, .count = 1 };
	}
	if (row.count)
		print_row(&row, dst, device, &before);
	putchar(']');
}

static void print_strided(const struct emit *e, const struct pair_at *at)
{
	open_pair(at);
	print_rows(e, at, false);
	print_rows(e, at, true);
	putchar('}');
}

static enum kvt_status emit_strided(const struct emit *e, struct kvt_error *err)
{
	return each_pair(e,
			 "\"columns\": [\"addr\", \"len\", \"dev\", \"stride\", \"count\"]", print_strided, err);
}

/* ---- regions ------------------------------------------------------------- */

static void print_regions(const struct emit *e, const struct pair_at *at)
{
	struct kvt_xfer_regions regions;
	struct kvt_xfer_region r;
	const char *before = "";

	(void)e;
	open_pair(at);
	printf(",\n \"regions\": [");
	kvt_xfer_regions_start(&regions, &at->nest);
	while (kvt_xfer_region_next(&r, &regions)) {
		printf("%s\n  {\"src_off\": %" PRId64 ", \"dst_off\": %" PRId64
		       ", \"run\": %" PRId64 ", \"loops\": [", before, r.plan.src_offset,
		       r.plan.dst_offset, r.plan.run);
		for (int i = 0; i < r.plan.nloops; i++)
			printf("%s[%" PRId64 ", %" PRId64 ", %" PRId64 "]", i ? ", " : "",
			       r.plan.n[i], r.plan.src_stride[i], r.plan.dst_stride[i]);
		printf("]}");
		before = ",";
	}
	printf("]}");
}

static enum kvt_status emit_regions(const struct emit *e, struct kvt_error *err)
{
	return each_pair(e, "\"loop\": [\"count\", \"src_stride\", \"dst_stride\"]",
			 print_regions, err);
}

/* ---- benchmarks ---------------------------------------------------------- */

static enum kvt_status count(struct kvt_batches *out, const struct emit *e,
			     struct kvt_error *err)
{
	return kvt_batches_of_scope(out, e->transfer, e->scope, NULL, err);
}

/* Its blocks are all of one size: those of the pair that has most operations. */
static enum kvt_status emit_nixlbench(const struct emit *e, struct kvt_error *err)
{
	struct kvt_batches p;
	enum kvt_status status = count(&p, e, err);
	const struct kvt_batch *most = NULL;
	int64_t size = 0, odd = 0;

	if (status)
		return status;
	for (int64_t i = 0; i < p.n; i++)
		if (!most || p.batch[i].ops > most->ops)
			most = &p.batch[i];
	if (most && most->ops) {
		size = most->bytes / most->ops;
		odd = most->bytes % most->ops;
		printf("# rank %" PRId64 " to %" PRId64 ", the pair with most "
				"operations: %"
		       PRId64 " of %s%" PRId64 " bytes\n", most->src_rank, most->dst_rank,
		       most->ops, odd ? "on average " : "", size);
		printf("backend = \"UCX\"\nop_type = \"READ\"\nscheme = \"pairwise\"\n"
		       "initiator_seg_type = \"VRAM\"\ntarget_seg_type = \"VRAM\"\n"
		       "start_block_size = %" PRId64 "\nmax_block_size = %" PRId64 "\n"
		       "start_batch_size = %" PRId64 "\nmax_batch_size = %" PRId64 "\n"
		       "total_buffer_size = %" PRId64 "\n", size, size, most->ops,
		       most->ops, size * most->ops);
	} else {
		status = kvt_fail(err, KVT_BAD_INPUT, "nothing moves");
	}
	kvt_batches_free(&p);
	return status;
}

/* Ranks of the destination come after all ranks of the source. */
static enum kvt_status emit_matrix(const struct emit *e, struct kvt_error *err)
{
	struct kvt_batches p;
	enum kvt_status status = count(&p, e, err);
	int64_t ranks, *row;

	if (status)
		return status;
	ranks = p.src_ranks + p.dst_ranks;
	if (!(row = calloc((size_t)ranks, sizeof(*row)))) {
		kvt_batches_free(&p);
		return kvt_no_memory(err, NULL);
	}
	for (int64_t y = 0; y < ranks; y++) {
		memset(row, 0, (size_t)ranks * sizeof(*row));
		for (int64_t i = 0; i < p.n; i++)
			if (p.batch[i].src_rank == y)
				row[p.src_ranks + p.batch[i].dst_rank] = p.batch[i].bytes;
		for (int64_t x = 0; x < ranks; x++)
			printf("%s%" PRId64, x ? " " : "", row[x]);
		putchar('\n');
	}
	free(row);
	kvt_batches_free(&p);
	return KVT_OK;
}

static enum kvt_status emit_yaml(const struct emit *e, struct kvt_error *err)
{
	(void)err;
	printf("traffic_patterns:\n  - matrix_file: \"%s\"\n    shards: 1\n"
	       "    mem_type: \"cuda\"\n    xfer_op: \"WRITE\"\n    metadata:\n"
	       "      isl: %" PRId64 "\n", e->matrix_file, e->transfer->tokens);
	return KVT_OK;
}

/* ---- the mode ------------------------------------------------------------ */

static const struct {
	const char *name;
	enum kvt_status (*print)(const struct emit *, struct kvt_error *);
} formats[] = {
	{ "csv", emit_csv }, { "jsonl", emit_jsonl }, { "nixl", emit_nixl },
	{ "nixl-strided", emit_strided }, { "regions", emit_regions },
	{ "nixlbench", emit_nixlbench }, { "kvbench-matrix", emit_matrix },
	{ "kvbench-yaml", emit_yaml },
};
enum { NFORMATS = sizeof(formats) / sizeof(formats[0]) };

/* It is put between quotes in a file that others read. */
static enum kvt_status check_name(const char *name, struct kvt_error *err)
{
	for (const char *c = name; *c; c++)
		if (*c < ' ' || *c == '"' || *c == '\\' || *c > '~')
			return kvt_fail(err, KVT_USAGE,
					"--matrix-file has a quote, a backslash or what is not ASCII");
	return KVT_OK;
}

static enum kvt_status emit(const struct transfer_words *s, const struct emit_args *a,
			    struct kvt_error *err)
{
	struct emit e = { .matrix_file = a->matrix_file };
	struct text_diversion to;
	struct transfer_input in;
	enum kvt_status status;
	struct kvt_nearest near = kvt_nearest_start(a->format);
	int f = 0;

	for (; f < NFORMATS && strcmp(formats[f].name, a->format); f++)
		kvt_nearest_offer(&near, formats[f].name);
	if (f == NFORMATS)
		return kvt_fail(err, KVT_USAGE,
				"--format is '%.40s', expected csv, jsonl, nixl, nixl-strided, regions, nixlbench, kvbench-matrix or kvbench-yaml%s",
				a->format, kvt_nearest_hint(&near, "").s);
	if ((status = check_name(a->matrix_file, err)) ||
	    (status = scope_take(&e.scope, a->scope, err)) ||
	    (status = transfer_open(&in, s, err)))
		return status;
	e.transfer = &in.transfer;
	if (!(status = text_divert(&to, a->output, a->force, err)))
		status = text_divert_end(&to, formats[f].print(&e, err), err);
	transfer_close(&in);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct transfer_words s = { .mode = "emit" };
	struct emit_args a = { .format = "csv", .matrix_file = "matrix.txt" };
	const struct opt opts[] = {
		TRANSFER_OPTS(&s),
		{ "format", 0, OPT_STRING, &a.format, "NAME",
		  "csv (default), jsonl, nixl, nixl-strided, regions, nixlbench, kvbench-matrix, kvbench-yaml" },
		{ "scope", 0, OPT_STRING, &a.scope, "max|rfc|layer",
		  "what an operation may cross; default rfc" },
		{ "matrix-file", 0, OPT_STRING, &a.matrix_file, "NAME",
		  "the matrix's file in kvbench-yaml; default matrix.txt" },
		{ "output", 'o', OPT_STRING, &a.output, "FILE",
		  "where to write; default: standard output, which is also -" },
		OPT_FORCE(&a.force),
		OPT_INPUT(&s.hints),
		{ 0 }
	};
	enum kvt_status status;
	int n = opt_parse(&transfer_emit, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (transfer_listed(&status, &s, NULL, NULL, err))
		return status;
	if ((status = transfer_operands(&s, n, argv, err)) ||
	    (status = text_file_check(a.output, argv, n, a.force, err)))
		return status;
	return emit(&s, &a, err);
}

const struct command transfer_emit = {
	.name = "transfer-sim emit",
	.args = "[SRC DST | SRC... --dst=...]",
	.summary = "print a plan as other tools read it: NIXL lists, nixlbench, kvbench",
	.run = run,
	.examples =
		"  kvtool transfer-sim emit -m llama-3.1-8b --dst=block-size=64 --format=nixlbench\n"
		"  kvtool transfer-sim emit -m llama-3.1-8b --dst=tp=2 --format=nixl-strided -o lists.json\n",
};
