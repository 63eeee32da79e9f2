/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.c - kvtool transfer-sim exec: carry a plan out on real dumps, and check it
 *
 * The first dump says how many operands are the source; the others are the destination,
 * or --dst describes one.  The engine makes the plan (sim/ops/sides.c), and the dumps
 * that the ranks of the destination will be.  Each gets a writer of its own ("%r" in -o
 * is its rank) and is written as any dump; --corrupt-op spoils a byte on the way.
 * Outputs are opened again where they are staged and compared with both sides: what is
 * not as it should be is KVT_MISMATCH, and no name is given.  Only then all get their
 * names, and it is told.
 *
 *	4 ranks to 2 ranks, 8 pairs of ranks, in 1 step
 *	moved      430.6 KiB to the destination
 *	compared   430.6 KiB with the source, 39.4 KiB with what was there before; ...
 *
 * wire.c opens, creates and tells by the same functions, and moves otherwise.
 */
#include "sim/cmd/exec.h"

#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/rewrite.h"
#include "lib/ops/write/plan.h"
#include "lib/run/device.h"
#include "print/out/json_out.h"
#include "print/out/leftovers.h"
#include "print/out/signals.h"

/* ---- both sides ------------------------------------------------------ */

/* The first file says how many of the operands are the source. */
static enum kvt_status count_source(int *out, int n, char **argv,
				    const struct transfer_words *words,
				    struct kvt_error *err)
{
	enum kvt_status status;

	if (n < 1)
		return kvt_fail(err, KVT_USAGE,
				"expected the dumps of the source, all ranks of it, such as 'kvtool transfer-sim %s --dst=tp=2 -o rank%%r.h5 prefill.h5'",
				words->mode);
	if ((status = transfer_count_ranks(out, argv[0], words, err)))
		return status;
	if (*out > n)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s is one of %d ranks, expected all of them, got %d file%s; for plan and emit one of each side is enough",
				argv[0], *out, n, plural(n));
	return KVT_OK;
}

static enum kvt_status open_sides(struct kvt_sides *sides, const struct exec_words *args,
				  int n, char **argv, struct kvt_error *err)
{
	const char *const *names = (const char *const *)argv;
	const struct transfer_words *words = &args->transfer;
	bool made = args->transfer.dst.text;
	struct kvt_transfer_how how;
	enum kvt_status status;
	int nsrc = 0;

	if ((status = count_source(&nsrc, n, argv, words, err)))
		return status;
	if (made && nsrc != n)
		return kvt_fail(err, KVT_USAGE,
				"--dst makes a destination, and %s is one already",
				argv[nsrc]);
	if (!made && nsrc == n)
		return kvt_fail(err, KVT_USAGE,
				"expected the dumps of all ranks of a destination, or --dst that describes a new one, such as --dst=tp=2");
	if ((status = transfer_open_ranks(&sides->src, nsrc, names, words, err)))
		return status;
	status = made ? transfer_make_dst(sides, &args->transfer, err) :
			transfer_open_ranks(&sides->dst, n - nsrc, names + nsrc, words,
					    err);
	if (status || (status = transfer_how_take(&how, &args->transfer, err)))
		return status;
	return kvt_sides_join(sides, argv[0], made ? "the destination" : argv[nsrc],
			      &how, err);
}

enum kvt_status exec_open(struct kvt_sides *out, const struct exec_words *args, int n,
			  char **argv, struct kvt_error *err)
{
	struct kvt_sides sides = { .fill = (uint8_t)args->fill };
	enum kvt_status status;

	if (args->fill > 255)
		return kvt_fail(err, KVT_USAGE,
				"--fill is %lld, expected a byte, 0 to 255",
				LL(args->fill));
	if ((status = open_sides(&sides, args, n, argv, err)))
		kvt_sides_free(&sides);
	else
		*out = sides;
	return status;
}

/* ---- outputs --------------------------------------------------------- */

/* The name of a rank's output; KVT_USAGE if several ranks would have one. */
static enum kvt_status output_name(char *out, size_t room, const char *pattern, int rank,
			    int nranks, struct kvt_error *err)
{
	const char *at = strstr(pattern, "%r");
	int n;

	if (!at && nranks > 1)
		return kvt_fail(err, KVT_USAGE,
				"-o is '%.100s', expected %%r in it, which becomes the number of the rank: there are %d to write, such as rank%%r.h5",
				pattern, nranks);
	if (at)
		n = snprintf(out, room, "%.*s%d%s", (int)(at - pattern), pattern, rank,
			     at + 2);
	else
		n = snprintf(out, room, "%s", pattern);
	return n < (int)room ? KVT_OK : kvt_fail(err, KVT_USAGE, "-o is too long");
}

static enum kvt_status create_output(struct kvt_writer **out,
				     const struct kvt_sides *sides,
				     const struct exec_words *args, int rank,
				     struct kvt_error *err)
{
	enum kvt_status status;
	char name[4096];

	if ((status = output_name(name, sizeof(name), args->output, rank, sides->dst.n,
				  err)))
		return status;
	tell_leftovers(name);
	return kvt_create(out, name, &args->create, kvt_ranks_snapshot(&sides->dst, rank),
			  err);
}

enum kvt_status exec_create(struct kvt_carried *out, const struct kvt_sides *sides,
			    const struct exec_words *args, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	*out = (struct kvt_carried){ .n = sides->dst.n };
	out->writer = calloc((size_t)out->n, sizeof(*out->writer));
	if (!out->writer)
		return kvt_no_memory(err, NULL);
	for (int r = 0; !status && r < out->n; r++)
		status = create_output(&out->writer[r], sides, args, r, err);
	return status;
}

static enum kvt_status open_outputs(struct kvt_ranks *after,
				    const struct kvt_carried *carried,
				    const struct exec_words *args, struct kvt_error *err)
{
	const char **name = calloc((size_t)carried->n, sizeof(*name));
	enum kvt_status status;

	if (!name)
		return kvt_no_memory(err, NULL);
	for (int r = 0; r < carried->n; r++)
		name[r] = kvt_writer_staged(carried->writer[r]);
	status = transfer_open_ranks(after, carried->n, name, NULL, err);
	for (int r = 0; after->file && r < carried->n; r++)
		after->file[r].name = args->output;	/* the names end here */
	free(name);
	return status;
}

enum kvt_status exec_publish(struct kvt_verified *out, const struct kvt_sides *sides,
			     const struct kvt_carried *carried,
			     const struct exec_words *args, struct kvt_error *err)
{
	struct kvt_ranks after = { .n = 0 };
	enum kvt_status status = open_outputs(&after, carried, args, err);

	if (!status)
		status = kvt_sides_verify(out, sides, &after, &args->run, err);
	kvt_ranks_free(&after);
	if (status || (status = kvt_sides_unchanged(sides, err)))
		return status;
	return publish(carried->writer, carried->n, err);
}

/* ---- telling --------------------------------------------------------- */

static int64_t count_pairs(const struct kvt_sides *sides)
{
	int64_t n = 0;

	for (int g = 0; g < sides->transfer.ngroups; g++) {
		struct kvt_pair_walk walk = { 0, 0 };
		struct kvt_pair pair;

		while (kvt_pair_next(&pair, &walk, &sides->transfer.group[g].xfer))
			n++;
	}
	return n;
}

static enum kvt_status print_json(const struct kvt_sides *sides,
				  const struct exec_words *args,
				  const struct kvt_carried *c,
				  const struct kvt_verified *v, struct kvt_error *err)
{
	struct json_out out;
	json_t *list;

	json_start(&out);
	json_put_text(&out, out.root, "output", args->output);
	json_put_int(&out, out.root, "src_ranks", sides->src.n);
	json_put_int(&out, out.root, "dst_ranks", sides->dst.n);
	json_put_int(&out, out.root, "pairs", count_pairs(sides));
	json_put_bool(&out, out.root, "done", !args->dry_run);
	json_put_bool(&out, out.root, "verified", !args->dry_run);
	json_put_int(&out, out.root, "boxes", c->boxes);
	json_put_int(&out, out.root, "memory_bytes", c->memory);
	json_put_int(&out, out.root, "bytes", c->bytes);
	json_put_text(&out, out.root, "device", kvt_device_pool_name(args->run.device));
	json_put_int(&out, out.root, "device_bytes",
		     kvt_device_pool_nbytes(args->run.device));
	json_put_real(&out, out.root, "seconds", c->seconds);
	json_put_real(&out, out.root, "verify_seconds", v->seconds);
	json_put_int(&out, out.root, "strangers", c->rejected);
	json_put_int(&out, out.root, "bytes_compared", v->bytes);
	json_put_int(&out, out.root, "bytes_untouched", v->untouched);
	json_put_text(&out, out.root, "digest",
		      v->has_digest ? kvt_digest_text(DIGEST_TOKENS, v->version,
						      &v->digest).s : NULL);
	list = json_put_array(&out, out.root, "groups");
	for (int g = 0; g < sides->transfer.ngroups; g++) {
		const struct kvt_transfer_group *group = &sides->transfer.group[g];
		json_t *o = json_append_object(&out, list);

		json_put_text(&out, o, "group", group->name);
		json_put_text(&out, o, "src_layout",
			      kvt_layout_string(&group->src_layout).s);
		json_put_text(&out, o, "dst_layout",
			      kvt_layout_string(&group->dst_layout).s);
		json_put_int(&out, o, "slots", group->xfer.slots);
		json_put_old(&out, o, "states", "slots");
	}
	return json_print(&out, false, err);
}

enum kvt_status exec_report(const struct kvt_sides *sides, const struct exec_words *args,
			    const struct kvt_carried *c, const struct kvt_verified *v,
			    struct kvt_error *err)
{
	if (args->json)
		return print_json(sides, args, c, v, err);
	if (args->quiet)
		return KVT_OK;
	plainf("%d rank%s to %d rank%s, %lld pair%s of ranks, in %lld step%s\n",
	       sides->src.n, plural(sides->src.n), sides->dst.n, plural(sides->dst.n),
	       LL(count_pairs(sides)), plural(count_pairs(sides)), LL(c->boxes),
	       plural(c->boxes));
	if (args->dry_run) {
		plainf("at most %s of buffers; nothing was written\n",
		       kvt_size_string(c->memory).s);
		return KVT_OK;
	}
	plainf("moved      %s to the destination", kvt_size_string(c->bytes).s);
	if (device_pool_works(args->run.device))
		plainf(", %s copied on %s",
		       kvt_size_string(kvt_device_pool_nbytes(args->run.device)).s,
		       kvt_device_pool_name(args->run.device));
	putchar('\n');
	plainf("compared   %s with the source, %s with what was there before; all "
	       "equal\n", kvt_size_string(v->bytes).s, kvt_size_string(v->untouched).s);
	if (v->has_digest)
		plainf("digest     %s on both sides\n",
		       kvt_digest_text(DIGEST_TOKENS, v->version, &v->digest).s);
	return KVT_OK;
}

/* ---- the mode -------------------------------------------------------- */

/* The first byte of an op, as one of an element of an output. */
static enum kvt_status find_op(struct spoiled *out, const struct kvt_sides *sides,
			       int64_t n, struct kvt_error *err)
{
	struct kvt_op_place op;
	enum kvt_status status = kvt_transfer_find_op(&op, &sides->transfer, n, err);

	if (status)
		return status;
	*out = (struct spoiled){ .writer = op.rank, .group = op.group };
	memcpy(out->index, op.index, sizeof(out->index));
	return KVT_OK;
}

/* All ranks into their outputs, or only what that would take. */
static enum kvt_status write_ranks(struct kvt_carried *out, struct kvt_sides *sides,
				   struct kvt_dump *const *dumps,
				   const struct exec_words *args, struct kvt_error *err)
{
	struct transform t = {
		.n = out->n, .source = (const struct kvt_dump *const *)dumps,
		.writer = out->writer, .run = args->run,
	};
	struct spoiled spoil;
	enum kvt_status status;

	if (args->corrupt >= 0) {
		if ((status = find_op(&spoil, sides, args->corrupt, err)))
			return status;
		t.spoil = &spoil;
	}
	if ((status = transform_plan(&t, err)))
		return status;
	status = transform_watch(&t, err);
	sides->seen = t.seen;
	if (status)
		return status;
	out->memory = transform_memory(&t);
	for (int g = 0; g < kvt_ranks_snapshot(&sides->dst, 0)->ngroups; g++)
		out->boxes += t.step[g].cut.nboxes;
	if (args->dry_run)
		return KVT_OK;
	status = transform_run(&t, err);
	return status ? status : kvt_sides_nbytes(&out->bytes, sides, err);
}

static enum kvt_status move(struct kvt_carried *out, struct kvt_sides *sides,
			    const struct exec_words *args, struct kvt_error *err)
{
	double start = kvt_seconds_now();
	struct kvt_dump **dumps;
	enum kvt_status status = kvt_sides_dumps(&dumps, sides, err);

	if (status)
		return status;
	status = write_ranks(out, sides, dumps, args, err);
	kvt_sides_close(dumps, out->n);
	out->seconds = kvt_seconds_now() - start;
	return status;
}

static enum kvt_status exec(const struct exec_words *args, int n, char **argv,
			    struct kvt_error *err)
{
	struct kvt_sides sides;
	struct kvt_carried carried;
	struct kvt_verified verified = { .bytes = 0 };
	enum kvt_status status = exec_open(&sides, args, n, argv, err);

	if (status)
		return status;
	signals_catch_all();
	if (!(status = exec_create(&carried, &sides, args, err)))
		status = move(&carried, &sides, args, err);
	if (!status && !args->dry_run)
		status = exec_publish(&verified, &sides, &carried, args, err);
	if (!status)
		status = exec_report(&sides, args, &carried, &verified, err);
	for (int r = 0; status && carried.writer && r < carried.n; r++)
		kvt_writer_retell(carried.writer[r], err);
	kvt_carried_free(&carried);
	kvt_sides_free(&sides);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct exec_words a = EXEC_WORDS;
	const char *device = NULL;
	enum kvt_status status;
	const struct opt opts[] = {
		EXEC_OPTS(&a),
		OPT_DRY_RUN(&a.dry_run),
		OPT_DEVICE(&device),
		OPT_INPUT(&a.transfer.hints),
		{ 0 }
	};
	int n = opt_parse(&transfer_exec, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	a.transfer.mode = "exec";
	if (!a.output)
		return kvt_fail(err, KVT_USAGE, "expected -o: where to write%s",
				n ? "" :
					", and the dumps of the source, such as 'kvtool transfer-sim exec --dst=tp=2 -o rank%r.h5 prefill.h5'");
	a.run = run_watched(a.threads, a.memory, a.quiet);
	if ((status = kvt_device_pool_new(&a.run.device, device, &a.run, err)))
		return status;
	status = exec(&a, n, argv, err);
	kvt_device_pool_free(a.run.device);
	return status;
}

const struct command transfer_exec = {
	.name = "transfer-sim exec",
	.args = "-o OUT SRC... [DST...]",
	.summary = "carry a transfer out on real dumps, and check every byte",
	.run = run,
	.examples =
		"  kvtool transfer-sim exec -o out.h5 prefill.h5 decode.h5\n"
		"  kvtool transfer-sim exec --dst=tp=2,layout=hnd,block-size=32 -o 'rank%r.h5' prefill.h5\n",
};
