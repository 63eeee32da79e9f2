/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c - kvtool transfer-sim exec: carry a plan out on real dumps, and check it */
#include "cli/leftovers.h"
#include "cli/signals.h"
#include "cli/progress.h"
#include "cli/rewrite.h"
#include "lib/dump/device.h"
#include "lib/ops/transfer/sides.h"

#define LL(x) ((long long)(x))

/* ---- telling --------------------------------------------------------- */

static int64_t count_pairs(const struct sides *sides)
{
	int64_t n = 0;

	for (int g = 0; g < sides->sim.ngroups; g++) {
		struct kvt_pair_walk walk = { 0, 0 };
		struct kvt_pair pair;

		while (kvt_pair_next(&pair, &walk, &sides->sim.group[g].xfer))
			n++;
	}
	return n;
}

static enum kvt_status print_json(const struct sides *sides, const struct exec_args *args,
				  const struct carried *c, const struct verified *v,
				  struct kvt_error *err)
{
	struct json_out out;
	enum kvt_status status;
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
	json_put_int(&out, out.root, "strangers", c->strangers);
	json_put_int(&out, out.root, "bytes_compared", v->bytes);
	json_put_int(&out, out.root, "bytes_untouched", v->untouched);
	json_put_text(&out, out.root, "digest",
		      v->has_digest ? kvt_digest_text(DIGEST_TOKENS, v->version,
						      &v->digest[1]).s : NULL);
	list = json_put_array(&out, out.root, "groups");
	for (int g = 0; g < sides->sim.ngroups; g++) {
		const struct sim_group *group = &sides->sim.group[g];
		json_t *o = json_append_object(&out, list);

		json_put_text(&out, o, "group", group->name);
		json_put_text(&out, o, "src_layout",
			      kvt_layout_string(&group->src_layout).s);
		json_put_text(&out, o, "dst_layout",
			      kvt_layout_string(&group->dst_layout).s);
		json_put_int(&out, o, "states", group->xfer.states);
	}
	status = json_print(&out, false, err);
	json_free(&out);
	return status;
}

enum kvt_status exec_report(const struct sides *sides, const struct exec_args *args,
			    const struct carried *c, const struct verified *v,
			    struct kvt_error *err)
{
	if (args->json)
		return print_json(sides, args, c, v, err);
	if (args->quiet)
		return KVT_OK;
	plainf("%d rank%s to %d, %lld pair%s, %lld box%s\n", sides->src.n,
	       sides->src.n == 1 ? "" : "s", sides->dst.n, LL(count_pairs(sides)),
	       count_pairs(sides) == 1 ? "" : "s", LL(c->boxes),
	       c->boxes == 1 ? "" : "es");
	if (args->dry_run) {
		plainf("at most %s of buffers; nothing was written\n",
		       human_size(c->memory).s);
		return KVT_OK;
	}
	plainf("moved      %s", human_size(c->bytes).s);
	if (device_pool_works(args->run.device))
		plainf(", %s copied on %s",
		       human_size(kvt_device_pool_nbytes(args->run.device)).s,
		       kvt_device_pool_name(args->run.device));
	putchar('\n');
	plainf("compared   %s with the source, %s as before; all equal\n",
	       human_size(v->bytes).s, human_size(v->untouched).s);
	if (v->has_digest)
		plainf("digest     %s on both sides\n",
		       kvt_digest_text(DIGEST_TOKENS, v->version, &v->digest[1]).s);
	return KVT_OK;
}

/* ---- the mode -------------------------------------------------------- */

static enum kvt_status exec(const struct exec_args *args, int n, char **argv,
			    struct kvt_error *err)
{
	struct sides sides;
	struct carried carried;
	struct verified verified = { .bytes = 0 };
	enum kvt_status status = sides_open(&sides, args, n, argv, err);

	if (status)
		return status;
	signals_catch_all();
	status = carry_out(&carried, &sides, args, carry_copy, NULL, err);
	if (!status && !args->dry_run &&
	    !(status = sides_verify(&verified, &sides, &carried, args, err)) &&
	    !(status = sides_unchanged(&sides, err)))
		status = publish(carried.writer, carried.n, err);
	if (!status)
		status = exec_report(&sides, args, &carried, &verified, err);
	for (int r = 0; status && carried.writer && r < carried.n; r++)
		kvt_writer_retell(carried.writer[r], err);
	carried_free(&carried);
	sides_free(&sides);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct exec_args a = { .corrupt = -1, .sim.tokens = UINT32_MAX };
	const char *device = NULL;
	enum kvt_status status;
	const struct opt opts[] = {
		EXEC_OPTS(&a),
		OPT_DRY_RUN(&a.dry_run),
		OPT_DEVICE(&device),
		{ 0 }
	};
	int n = opt_parse(&sim_exec, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (!a.output)
		return kvt_fail(err, KVT_USAGE, "expected -o: where to write");
	a.leftovers = tell_leftovers;
	a.run = run_watched(a.threads, a.memory, a.quiet);
	if ((status = kvt_device_pool_new(&a.run.device, device, &a.run, err)))
		return status;
	status = exec(&a, n, argv, err);
	kvt_device_pool_free(a.run.device);
	return status;
}

const struct command sim_exec = {
	.name = "transfer-sim exec",
	.args = "-o OUT SRC... [DST...]",
	.summary = "carry a transfer out on real dumps, and check every byte",
	.run = run,
	.examples =
		"  kvtool transfer-sim exec -o out.h5 prefill.h5 decode.h5\n"
		"  kvtool transfer-sim exec --dst=tp=2,layout=hnd,block-size=32 "
		"-o 'rank%r.h5' prefill.h5\n",
};
