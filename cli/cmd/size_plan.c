/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size_plan.c - how many shards finish a command on these dumps in a given time
 *
 * The model: a shard takes the start of a process, the time of its units, each its bytes
 * by the rate of its kind of file and the number of threads, and for each unit the time
 * of a file.  The slowest shard decides; then kvtool reduce starts, and reads a file for
 * each unit.  Whose the units are is asked of the work list itself, so that nothing is
 * said of a division that cannot be.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/files.h"
#include "cli/cmd/size_plan.h"
#include "formats/parse/json.h"
#include "lib/kvt/dump.h"
#include "lib/kvt/share.h"
#include "lib/run/pipeline.h"
#include "print/out/json_out.h"
#include "print/out/text_file.h"

enum { MOST_RATES = 1 << 20 };

/* Labels of passes: how the data of a file lie. */
static const char tiled[] = "tiled", plain[] = "plain";

static const struct {
	const char *job;
	size_t plain, tiled;		/* which rates */
} jobs[] = {
#define ROW(job, plain, tiled) \
	{ job, offsetof(struct file_rates, plain), offsetof(struct file_rates, tiled) }
	ROW("digest", digest, digest_hdf5), ROW("diff", diff, digest_hdf5),
	ROW("fsck", fsck, fsck_hdf5), ROW("convert", write_hdf5, write_hdf5),
#undef ROW
};
enum { NJOBS = sizeof(jobs) / sizeof(jobs[0]) };

struct plan {
	const struct size_plan *said;
	struct file_rates rates;
	int job;
	struct kvt_work_list list;
	double *seconds;		/* of each unit, one thread; owned */
};

/* ---- what there is ----------------------------------------------------- */

static enum kvt_status read_rates(struct file_rates *out, const char *path,
				  struct kvt_error *err)
{
	const struct file_rate *f;
	char *text;
	size_t nbytes;
	json_t *o = NULL;
	enum kvt_status status = text_file_read(&text, &nbytes, path, MOST_RATES, err);

	if (status)
		return status;
	status = kvt_json_parse(&o, text, nbytes, path, err);
	free(text);
	for (int i = 0; !status && (f = file_rate_at(i)); i++) {
		double x = json_number_value(json_object_get(json_object_get(o, "rates"),
							     f->key));

		if (!(x > 0))
			status = kvt_fail(err, KVT_BAD_INPUT,
					  "%s: no rate %s; kvtool bench --files=DIR --json prints them",
					  path, f->key);
		*file_rate_of(out, f) = x;
	}
	json_decref(o);
	return status;
}

/* As digest makes them, which other commands' are like. */
static enum kvt_status add_file(struct plan *p, const char *path, int64_t i,
				struct kvt_error *err)
{
	struct kvt_dump *dump;
	enum kvt_status status = kvt_open(&dump, path, NULL, err);

	if (status)
		return status;
	for (int g = 0; !status && g < kvt_dump_snapshot(dump)->ngroups; g++) {
		const struct kvt_group *group = kvt_dump_group(dump, g);
		const struct kvt_tiling *tiling = kvt_dump_tiling(dump, g);
		struct kvt_cut cut = kvt_cut_choose(group, tiling, NULL, NULL, INT64_MAX);
		struct kvt_pass pass = { .label = tiling ? tiled : plain, .about = i,
					 .part = g, .count = cut.nboxes };

		if (!(status = kvt_shape_nbytes(&pass.nbytes, &group->shape, err)) &&
		    pass.nbytes)
			status = kvt_work_list_add(&p->list, &pass, err);
	}
	kvt_dump_close(dump);
	return status;
}

static enum kvt_status time_units(struct plan *p, struct kvt_error *err)
{
	const char *rates = (const char *)&p->rates;

	p->seconds = calloc((size_t)p->list.nunits + 1, sizeof(*p->seconds));
	if (!p->seconds)
		return kvt_no_memory(err, NULL);
	for (int64_t u = 0; u < p->list.nunits; u++) {
		const struct kvt_pass *pass = &p->list.pass[p->list.unit[u].pass];
		size_t at = pass->label == tiled ? jobs[p->job].tiled :
						   jobs[p->job].plain;
		const double *rate = (const double *)(const void *)(rates + at);

		p->seconds[u] = (double)p->list.unit[u].nbytes / *rate;
	}
	return KVT_OK;
}

/* ---- how long ---------------------------------------------------------- */

static double time_of(const struct plan *p, int64_t n)
{
	double slowest = 0, shard = 0, threads = (double)p->said->threads;
	int64_t owner = 0;

	for (int64_t u = 0; u < p->list.nunits; u++) {
		int64_t whose = kvt_unit_owner(&p->list, u, n);

		if (whose != owner)
			shard = 0;
		owner = whose;
		shard += p->seconds[u] / threads + p->rates.unit_seconds;
		slowest = shard > slowest ? shard : slowest;
	}
	return 2 * p->rates.start_seconds + slowest +
	       (double)p->list.nunits * p->rates.unit_seconds;
}

/* 0: there is no such number. */
static int64_t least_shards(const struct plan *p)
{
	for (int64_t n = 1; n <= p->list.nunits; n++)
		if (time_of(p, n) <= p->said->seconds)
			return n;
	return 0;
}

/* --mem-limit as it is, and the program. */
static int64_t memory_of_shard(void)
{
	const struct kvt_run run = { .memory = 0 };

	return kvt_run_memory(&run) + (64 << 20);
}

/* ---- what is said ------------------------------------------------------ */

static void put_row(struct json_out *out, json_t *list, const struct plan *p, int64_t n)
{
	json_t *o = json_append_object(out, list);

	json_put_int(out, o, "shards", n);
	json_put_real(out, o, "seconds", time_of(p, n));
}

static enum kvt_status plan_json(const struct plan *p, int64_t n, struct kvt_error *err)
{
	struct json_out out;
	json_t *table;

	json_start(&out);
	json_put_text(&out, out.root, "job", jobs[p->job].job);
	json_put_int(&out, out.root, "bytes", p->list.nbytes);
	json_put_int(&out, out.root, "units", p->list.nunits);
	json_put_int(&out, out.root, "threads", p->said->threads);
	json_put_real(&out, out.root, "time_limit", p->said->seconds);
	json_put_known(&out, out.root, "shards", n, n > 0);
	json_put_int(&out, out.root, "memory_bytes", memory_of_shard());
	table = json_put_array(&out, out.root, "times");
	for (int64_t i = 1; i < p->list.nunits; i *= 2)
		put_row(&out, table, p, i);
	put_row(&out, table, p, p->list.nunits);
	return json_print(&out, false, err);
}

static void plan_text(const struct plan *p, int64_t n)
{
	const int64_t last = p->list.nunits;

	plainf("%s of %s in %lld unit%s of %s\n", jobs[p->job].job,
	       kvt_size_string(p->list.nbytes).s, LL(last), last > 1 ? "s" : "",
	       kvt_size_string(p->list.unit_bytes).s);
	for (int64_t i = 1; i < last; i *= 2)
		plainf("  %6lld shard%s %12.3f s\n", LL(i), i > 1 ? "s" : " ",
		       time_of(p, i));
	plainf("  %6lld shard%s %12.3f s, a unit each\n", LL(last),
	       last > 1 ? "s" : " ", time_of(p, last));
	if (n)
		plainf("%lld shard%s of %lld thread%s, at most %s each: %.3f s\n", LL(n),
		       plural(n), LL(p->said->threads), plural(p->said->threads),
		       kvt_size_string(memory_of_shard()).s, time_of(p, n));
	else
		plainf("no number of shards takes %.3f s\n", p->said->seconds);
}

enum kvt_status size_plan(const struct size_plan *said, char **files, int n,
			  struct kvt_error *err)
{
	struct plan p = { .said = said };
	int64_t shards;
	enum kvt_status status;

	while (p.job < NJOBS && strcmp(jobs[p.job].job, said->job))
		p.job++;
	if (p.job == NJOBS)
		return kvt_fail(err, KVT_USAGE,
				"--job is '%.40s', expected digest, diff, fsck or convert",
				said->job);
	status = read_rates(&p.rates, said->rates, err);
	for (int i = 0; !status && i < n; i++)
		status = add_file(&p, files[i], i, err);
	if (!status && !(status = kvt_work_list_cut(&p.list, err)) &&
	    !(status = time_units(&p, err))) {
		shards = least_shards(&p);
		if (said->json)
			status = plan_json(&p, shards, err);
		else
			plan_text(&p, shards);
		if (!status && !shards)
			status = KVT_MISMATCH;
	}
	free(p.seconds);
	kvt_work_list_free(&p.list);
	return status;
}
