/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c - kvtool bench: how fast the kernels are here
 *
 *	case           run  kernel                GB/s     copy  of copy    naive  x naive
 *	rocm             2  avx512                8.80    18.05     0.49     1.03      8.6
 *
 * cli/bench/cases.c has the cases, run.c times each: the kernel that is chosen, a plain
 * copy of as many bytes, and the plainest kernel.  GB/s count what is read and what is
 * written.  A line is printed when its case is through, JSON when all are.  With --files
 * commands are timed on files instead (cli/bench/files.c), and no device is opened.  A
 * case that is not known is KVT_USAGE before any is run.
 */
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/files.h"
#include "print/out/json_out.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "print/out/signals.h"
#include "lib/kvt/device.h"
#include "lib/base/nearest.h"

enum { MOST_ROUNDS = 1000 };

struct request {
	struct bench bench;
	struct opt_strings cases;
	bool json;
};

/* ---- telling ------------------------------------------------------------ */

static double rate(const struct bench_result *r, enum contender who)
{
	return 2 * (double)r->nbytes / r->seconds[who];
}

static enum kvt_status facts_of(struct kvt_device_facts *out, const struct bench *b,
				struct kvt_error *err)
{
	*out = (struct kvt_device_facts){ .name = "" };
	return device_pool_works(b->device) ?
	       kvt_device_facts(out, device_pool_gpu(b->device), err) : KVT_OK;
}

static void put_result(struct json_out *out, json_t *list, const struct bench_result *r)
{
	json_t *o = json_append_object(out, list);

	json_put_text(out, o, "case", r->what->name);
	json_put_text(out, o, "from_layout", r->what->from);
	json_put_text(out, o, "to_layout", r->what->to);
	json_put_int(out, o, "run_bytes", r->run);
	json_put_int(out, o, "data_bytes", r->nbytes);
	json_put_text(out, o, "kernel", r->kernel);
	json_put_real(out, o, "seconds", r->seconds[BENCH_BEST]);
	json_put_real(out, o, "copy_seconds", r->seconds[BENCH_COPY]);
	json_put_real(out, o, "naive_seconds", r->seconds[BENCH_NAIVE]);
	json_put_real(out, o, "of_copy", rate(r, BENCH_BEST) / rate(r, BENCH_COPY));
	json_put_real(out, o, "times_naive", rate(r, BENCH_BEST) / rate(r, BENCH_NAIVE));
}

static enum kvt_status tell_json(const struct request *q,
				 const struct kvt_device_facts *facts,
				 const struct bench_result *r, int n,
				 struct kvt_error *err)
{
	struct json_out out;
	json_t *list;

	json_start(&out);
	json_put_text(&out, out.root, "device", kvt_device_pool_name(q->bench.device));
	json_put_text(&out, out.root, "device_name", facts->name[0] ? facts->name : NULL);
	json_put_text(&out, out.root, "driver", facts->driver[0] ? facts->driver : NULL);
	json_put_int(&out, out.root, "rounds", q->bench.rounds);
	list = json_put_array(&out, out.root, "cases");
	for (int i = 0; i < n; i++)
		put_result(&out, list, &r[i]);
	return json_print(&out, false, err);
}

static void print_head(const struct request *q, const struct kvt_device_facts *facts)
{
	if (facts->name[0])
		plainf("%s: %s, driver %s", facts->spec, facts->name, facts->driver);
	else
		plainf("cpu, one thread");
	plainf("; %s a case, median of %d; GB/s read and written\n\n",
	       kvt_size_string(q->bench.nbytes).s, q->bench.rounds);
	plainf("%-10s %7s  %-30s %8s %8s %8s %8s %8s\n", "case", "run", "kernel", "GB/s",
	       "copy", "of copy", "naive", "x naive");
}

static void print_result(const struct bench_result *r)
{
	plainf("%-10s %7lld  %-30s %8.2f %8.2f %8.2f %8.2f %8.1f\n", r->what->name,
	       LL(r->run), r->kernel, rate(r, BENCH_BEST) / 1e9,
	       rate(r, BENCH_COPY) / 1e9, rate(r, BENCH_BEST) / rate(r, BENCH_COPY),
	       rate(r, BENCH_NAIVE) / 1e9, rate(r, BENCH_BEST) / rate(r, BENCH_NAIVE));
	fflush(stdout);
}

/* ---- files -------------------------------------------------------------- */

static enum kvt_status run_files(const char *folder, const struct bench *b, bool as_json,
				 struct kvt_error *err)
{
	const struct file_rate *f;
	struct file_rates rates;
	struct json_out out;
	json_t *o;
	enum kvt_status status = bench_files(&rates, folder, b->nbytes, b->rounds, err);

	if (status)
		return status;
	if (!as_json) {
		for (int i = 0; (f = file_rate_at(i)); i++)
			plainf("%-30s %14.6g\n", f->key, *file_rate_of(&rates, f));
		return KVT_OK;
	}
	json_start(&out);
	json_put_text(&out, out.root, "folder", folder);
	json_put_int(&out, out.root, "data_bytes", b->nbytes);
	o = json_put_object(&out, out.root, "rates");
	for (int i = 0; (f = file_rate_at(i)); i++)
		json_put_real(&out, o, f->key, *file_rate_of(&rates, f));
	return json_print(&out, false, err);
}

/* ---- the command -------------------------------------------------------- */

static bool is_wanted(const struct request *q, const struct bench_case *c)
{
	for (int i = 0; i < q->cases.n; i++)
		if (!strcmp(q->cases.s[i], c->name))
			return true;
	return !q->cases.n;
}

static enum kvt_status check_cases(const struct request *q, struct kvt_error *err)
{
	const struct bench_case *c;

	for (int i = 0; i < q->cases.n; i++) {
		struct kvt_nearest near = kvt_nearest_start(q->cases.s[i]);

		for (int k = 0; (c = bench_case_at(k)); k++) {
			kvt_nearest_offer(&near, c->name);
			if (!strcmp(q->cases.s[i], c->name))
				break;
		}
		if (!c)
			return kvt_fail(err, KVT_USAGE, "no case '%.60s'%s",
					q->cases.s[i], kvt_nearest_hint(&near,
					"; see kvtool-bench(1)").s);
	}
	return KVT_OK;
}

static enum kvt_status run_cases(const struct request *q, struct kvt_error *err)
{
	struct bench_result result[32];
	struct kvt_device_facts facts;
	const struct bench_case *c;
	enum kvt_status status = facts_of(&facts, &q->bench, err);
	int n = 0;

	if (!status && !q->json)
		print_head(q, &facts);
	for (int i = 0; !status && (c = bench_case_at(i)); i++) {
		if (!is_wanted(q, c))
			continue;
		status = bench_run(&result[n], &q->bench, c, err);
		if (!status && !q->json)
			print_result(&result[n]);
		n++;
	}
	return status || !q->json ? status : tell_json(q, &facts, result, n, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct request q = { .bench.nbytes = 256 << 20 };
	const char *device = NULL, *files = NULL;
	int64_t rounds = 7;
	const struct opt opts[] = {
		OPT_DEVICE(&device),
		{ "case", 0, OPT_STRINGS, &q.cases, "NAME",
		  "run only this case; may be repeated" },
		{ "size", 0, OPT_SIZE, &q.bench.nbytes, "SIZE",
		  "data of a case; default: 256M" },
		{ "files", 0, OPT_STRING, &files, "DIR",
		  "measure commands on files in DIR instead, for kvtool size --plan" },
		{ "rounds", 0, OPT_COUNT, &rounds, "N",
		  "times it is copied; default: 7" },
		OPT_JSON(&q.json),
		{ 0 }
	};
	enum kvt_status status;
	struct kvt_run watched;
	int n = opt_parse(&cmd_bench, opts, argc, argv, err);

	if (n < 0)
		return opt_status(n);
	if (n)
		return kvt_fail(err, KVT_USAGE, "expected no operand, got %d", n);
	if (rounds > MOST_ROUNDS)
		return kvt_fail(err, KVT_USAGE, "--rounds is %lld, expected at most %d",
				LL(rounds), MOST_ROUNDS);
	q.bench.rounds = (int)rounds;
	watched = run_watched(0, 0, false);
	if (files && !*files)
		return kvt_fail(err, KVT_USAGE, "option '--files' needs a value: DIR");
	if (files) {
		signals_catch();
		return run_files(files, &q.bench, q.json, err);
	}
	signals_catch();
	if ((status = check_cases(&q, err)) ||
	    (status = kvt_device_pool_new(&q.bench.device, device, &watched, err)))
		return status;
	status = run_cases(&q, err);
	kvt_device_pool_free(q.bench.device);
	return status;
}

const struct command cmd_bench = {
	.name = "bench",
	.args = "",
	.summary = "measure the copy kernels on this machine",
	.run = run,
	.examples =
		"  kvtool bench\n"
		"  kvtool bench --device=cuda --size=2G --rounds=21\n"
		"  kvtool bench --case=nhd-hnd --case=rocm --json\n",
};
