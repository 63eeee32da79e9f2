/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.c - kvtool workers: is every request finished by all of them?
 *
 * Each line of the log goes to two that listen: lib/ops/workers replays what is
 * finished, and formats/log/extras.c what lies beside it.  What either finds is a line,
 * or an element of a list.  Exit status 1: a problem was found.
 */
#include "cli/opt.h"
#include "formats/log/extras.h"
#include "formats/log/workers.h"
#include "formats/parse/json.h"
#include "lib/ops/workers/workers.h"
#include "print/out/json_out.h"
#include "print/out/text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where what is found goes: lines, or lists of one object. */
struct sink {
	const char *path;
	struct json_out *out;		/* NULL: text */
	json_t *finished, *failed, *invalid, *stats, *events, *requests, *problems;
	json_t *unnamed;
	int64_t more_problems;		/* of extras */
	int64_t output_rank;		/* -1: the log does not say it */
	bool has_silent;		/* and a worker had no output */
	const char *await;
};

/* ---- what is found ------------------------------------------------------ */

static void on_finished(void *context, int64_t step, enum kvt_direction direction,
			const char *id, int64_t reports, int64_t since)
{
	struct sink *s = context;
	json_t *o;

	if (!s->out) {
		plainf("step %-6lld  %s  %s: %lld report%s since step %lld\n",
		       LL(step), kvt_direction_name(direction), id, LL(reports),
		       plural(reports), LL(since));
		return;
	}
	o = json_append_object(s->out, s->finished);
	json_put_int(s->out, o, "step", step);
	json_put_text(s->out, o, "direction", kvt_direction_name(direction));
	json_put_text(s->out, o, "request", id);
	json_put_int(s->out, o, "reports", reports);
	json_put_int(s->out, o, "since", since);
}

static void on_failed(void *context, int64_t step, const char *id)
{
	struct sink *s = context;
	json_t *o;

	if (!s->out) {
		plainf("step %-6lld  failed_recving  %s\n", LL(step), id);
		return;
	}
	o = json_append_object(s->out, s->failed);
	json_put_int(s->out, o, "step", step);
	json_put_text(s->out, o, "request", id);
}

static void on_invalid(void *context, int64_t step, int64_t block)
{
	struct sink *s = context;
	json_t *o;

	if (!s->out) {
		plainf("step %-6lld  invalid block %lld\n", LL(step), LL(block));
		return;
	}
	o = json_append_object(s->out, s->invalid);
	json_put_int(s->out, o, "step", step);
	json_put_int(s->out, o, "block", block);
}

/* No problem where requests need no transfer: which ones do is for --await to say. */
static void on_unnamed(void *context, int64_t step, const char *id)
{
	struct sink *s = context;
	json_t *o;

	if (!s->out)
		return;
	o = json_append_object(s->out, s->unnamed);
	json_put_int(s->out, o, "step", step);
	json_put_text(s->out, o, "request", id);
}

static void put_problem(struct sink *s, const char *problem, int64_t step,
			int64_t worker, const char *id, const char *text)
{
	json_t *o;

	complain(&cmd_workers, "%.100s: step %lld: %s", s->path, LL(step), text);
	if (!s->out)
		return;
	o = json_append_object(s->out, s->problems);
	json_put_text(s->out, o, "problem", problem);
	json_put_int(s->out, o, "step", step);
	json_put_known(s->out, o, "worker", worker, worker >= 0);
	json_put_text(s->out, o, "request", id);
	json_put_text(s->out, o, "text", text);
}

static void on_problem(void *context, enum kvt_worker_problem problem, int64_t step,
		       int64_t worker, const char *id, const char *text)
{
	put_problem(context, kvt_worker_problem_name(problem), step, worker, id, text);
}

/* ---- stats, events, requests --------------------------------------------- */

/* What belongs to the log, into what is printed. */
static void put_json(struct sink *s, json_t *o, const char *key, const json_t *value)
{
	json_put(s->out, o, key, json_deep_copy(value));
}

static void print_json_text(const json_t *value)
{
	char *text = kvt_json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY);

	plainf("%s", text ? text : "(out of memory)");
	free(text);
}

static void on_stats(void *context, int64_t step, const json_t *stats)
{
	struct sink *s = context;
	json_t *o;

	if (!s->out) {
		plainf("step %-6lld  stats  ", LL(step));
		print_json_text(json_object_get(stats, "data"));
		putchar('\n');
		return;
	}
	o = json_append_object(s->out, s->stats);
	json_put_int(s->out, o, "step", step);
	put_json(s, o, "class", json_object_get(stats, "class"));
	put_json(s, o, "data", json_object_get(stats, "data"));
}

static void on_events(void *context, int64_t step, int64_t workers, int64_t all,
		      const json_t *common)
{
	struct sink *s = context;
	json_t *o;

	if (!s->out) {
		plainf("step %-6lld  events  %lld of %lld worker%s, "
		       "%lld of them on all\n", LL(step), LL(all), LL(workers),
		       plural(workers), LL(json_array_size(common)));
		return;
	}
	o = json_append_object(s->out, s->events);
	json_put_int(s->out, o, "step", step);
	json_put_int(s->out, o, "workers", workers);
	json_put_int(s->out, o, "events", all);
	put_json(s, o, "common", common);
}

static void on_request(void *context, int64_t step, const char *id, const json_t *blocks,
		       bool preempted)
{
	struct sink *s = context;
	json_t *o;

	if (!s->out) {
		plainf("step %-6lld  request %s: %s", LL(step), id,
		       preempted ? "resumed, its blocks " :
		       json_is_null(blocks) ? "no new blocks" : "new blocks ");
		if (preempted || !json_is_null(blocks))
			print_json_text(blocks);
		putchar('\n');
		return;
	}
	o = json_append_object(s->out, s->requests);
	json_put_int(s->out, o, "step", step);
	json_put_text(s->out, o, "request", id);
	put_json(s, o, "block_ids", blocks);
	json_put_bool(s->out, o, "preempted", preempted);
}

static void on_more(void *context, const char *problem, int64_t step, int64_t worker,
		    const char *text)
{
	struct sink *s = context;

	s->more_problems++;
	put_problem(s, problem, step, worker, NULL, text);
}

/* ---- the command -------------------------------------------------------- */

static void print_totals(const struct sink *s, const struct kvt_workers_totals *t)
{
	if (!s->out) {
		plainf("%s: %lld worker%s, %lld step%s: %lld finished, "
		       "%lld invalid block%s, %lld problem%s\n",
		       s->path, LL(t->workers), plural(t->workers), LL(t->steps),
		       plural(t->steps), LL(t->finished), LL(t->invalid),
		       plural(t->invalid), LL(t->problems), plural(t->problems));
		if (t->unnamed && !s->await)
			plainf("%s: no worker names %lld of %lld new request%s: with "
			       "--await those are problems\n", s->path, LL(t->unnamed),
			       LL(t->scheduled), plural(t->scheduled));
		return;
	}
	json_put_int(s->out, s->out->root, "workers", t->workers);
	json_put_int(s->out, s->out->root, "steps", t->steps);
	json_put_known(s->out, s->out->root, "output_rank", s->output_rank,
		       s->output_rank >= 0);
}

/* Both hear of every line. */
struct replays {
	struct sink *sink;
	struct kvt_workers *workers;
	struct kvt_extras *extras;
};

static enum kvt_status take(void *context, const struct kvt_worker_event *event,
			    struct kvt_error *err)
{
	const struct replays *r = context;
	enum kvt_status status = kvt_workers_take(r->workers, event, err);

	if (event->kind == KVT_EVENT_HEAD)
		r->sink->output_rank = event->output_rank;
	r->sink->has_silent |= event->silent;
	return status ? status : kvt_extras_take(r->extras, event, err);
}

static enum kvt_status replay(struct kvt_workers_totals *totals, FILE *in,
			      struct sink *s, struct kvt_error *err)
{
	const struct kvt_workers_listener listener = {
		s, on_finished, on_failed, on_invalid, on_unnamed, on_problem,
	};
	const struct kvt_extras_listener extras = {
		s, on_stats, on_events, on_request, on_more,
	};
	struct kvt_error why = { "" };
	struct replays r = { s, NULL, NULL };
	enum kvt_status status = kvt_workers_new(&r.workers, &listener, err);

	if (!status)
		status = kvt_extras_new(&r.extras, &extras, err);
	for (int d = 0; !status && s->await && d < KVT_NDIRECTIONS; d++)
		if (!strcmp(s->await, kvt_direction_name(d)))
			kvt_workers_await(r.workers, d);
	if (!status && !(status = kvt_log_read(in, s->path, take, &r, err)) &&
	    ((status = kvt_extras_end(r.extras, &why)) ||
	     (status = kvt_workers_end(totals, r.workers, &why))))
		kvt_fail(err, status, "%s: %s", s->path, why.text);
	kvt_extras_free(r.extras);
	kvt_workers_free(r.workers);
	return status;
}

static enum kvt_status check(FILE *in, struct sink *s, struct kvt_error *err)
{
	struct kvt_workers_totals totals;
	enum kvt_status status = replay(&totals, in, s, err);

	if (status)
		return status;
	totals.problems += s->more_problems;
	if (s->has_silent && s->output_rank < 0 && totals.workers > 1)
		complain(&cmd_workers,
			 "%.100s: output_rank is not in the first line: the output of worker 0 is taken for the one that is used",
			 s->path);
	print_totals(s, &totals);
	if (s->out && (status = json_print(s->out, false, err)))
		return status;
	return totals.problems ? KVT_MISMATCH : KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct sink s = { .path = NULL, .output_rank = -1 };
	bool json = false;
	const struct opt opts[] = {
		{ "await", 0, OPT_STRING, &s.await, "DIRECTION",
		  "finished_sending or _recving: each new request must be reported" },
		OPT_JSON(&json),
		{ 0 }
	};
	struct json_out out = { NULL, false };
	int n = opt_parse(&cmd_workers, opts, argc, argv, err);
	enum kvt_status status;
	FILE *in;

	if (n < 0)
		return opt_status(n);
	if (n != 1)
		return kvt_fail(err, KVT_USAGE,
				"expected one log, or - for standard input, got %d", n);
	if (s.await && strcmp(s.await, kvt_direction_name(KVT_SENDING)) &&
	    strcmp(s.await, kvt_direction_name(KVT_RECVING)))
		return kvt_fail(err, KVT_USAGE,
				"--await is '%.40s', expected finished_sending or finished_recving",
				s.await);
	s.path = text_file_name(argv[0]);
	if (!(in = text_file_open(argv[0])))
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", s.path, strerror(errno));
	if (json) {
		json_start(&out);
		json_put_text(&out, out.root, "file", s.path);
		s.out = &out;
		s.finished = json_put_array(&out, out.root, "finished");
		s.failed = json_put_array(&out, out.root, "failed");
		s.invalid = json_put_array(&out, out.root, "invalid_blocks");
		s.stats = json_put_array(&out, out.root, "stats");
		s.events = json_put_array(&out, out.root, "events");
		s.requests = json_put_array(&out, out.root, "requests");
		s.unnamed = json_put_array(&out, out.root, "unnamed");
		s.problems = json_put_array(&out, out.root, "problems");
	}
	status = check(in, &s, err);
	json_free(&out);
	text_file_close(in);
	return status;
}

const struct command cmd_workers = {
	.name    = "workers",
	.args    = "LOG",
	.summary = "check a log of workers: is each request finished on all?",
	.run     = run,
	.examples =
		"  kvtool workers log.jsonl\n"
		"  kvtool workers --await=finished_recving log.jsonl\n"
		"  kvtool workers --json log.jsonl\n",
};
