/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c - kvtool workers: is every request finished by all of them? */
#include "cli/json_out.h"
#include "cli/opt.h"
#include "cli/text_file.h"
#include "formats/log/workers.h"
#include "lib/base/print.h"
#include "lib/ops/workers/workers.h"

#include <errno.h>
#include <string.h>

/* Where what is found goes: lines, or lists of one object. */
struct sink {
	const char *path;
	struct json_out *out;		/* NULL: text */
	json_t *finished, *invalid, *problems;
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

static void on_problem(void *context, enum kvt_worker_problem problem, int64_t step,
		       int64_t worker, const char *id, const char *text)
{
	struct sink *s = context;
	json_t *o;

	complain(&cmd_workers, "%.100s: step %lld: %s", s->path, LL(step), text);
	if (!s->out)
		return;
	o = json_append_object(s->out, s->problems);
	json_put_text(s->out, o, "problem", kvt_worker_problem_name(problem));
	json_put_int(s->out, o, "step", step);
	if (worker >= 0)
		json_put_int(s->out, o, "worker", worker);
	else
		json_put(s->out, o, "worker", json_null());
	json_put_text(s->out, o, "request", id);
	json_put_text(s->out, o, "text", text);
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
		return;
	}
	json_put_int(s->out, s->out->root, "workers", t->workers);
	json_put_int(s->out, s->out->root, "steps", t->steps);
}

static enum kvt_status take(void *context, const struct kvt_worker_event *event,
			    struct kvt_error *err)
{
	return kvt_workers_take(context, event, err);
}

static enum kvt_status replay(struct kvt_workers_totals *totals, FILE *in,
			      struct sink *s, struct kvt_error *err)
{
	const struct kvt_workers_listener listener = {
		s, on_finished, on_invalid, on_problem,
	};
	struct kvt_error why = { "" };
	struct kvt_workers *workers;
	enum kvt_status status = kvt_workers_new(&workers, &listener, err);

	if (status)
		return status;
	if (!(status = kvt_log_read(in, s->path, take, workers, err)) &&
	    (status = kvt_workers_end(totals, workers, &why)))
		kvt_fail(err, status, "%s: %s", s->path, why.text);
	kvt_workers_free(workers);
	return status;
}

static enum kvt_status check(FILE *in, struct sink *s, struct kvt_error *err)
{
	struct kvt_workers_totals totals;
	enum kvt_status status = replay(&totals, in, s, err);

	if (status)
		return status;
	print_totals(s, &totals);
	if (s->out && (status = json_print(s->out, false, err)))
		return status;
	return totals.problems ? KVT_MISMATCH : KVT_OK;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	bool json = false;
	const struct opt opts[] = {
		OPT_JSON(&json),
		{ 0 }
	};
	struct json_out out = { NULL, false };
	struct sink s = { .path = NULL };
	int n = opt_parse(&cmd_workers, opts, argc, argv, err);
	enum kvt_status status;
	FILE *in;

	if (n < 0)
		return opt_status(n);
	if (n != 1)
		return kvt_fail(err, KVT_USAGE,
				"expected one log, or - for standard input, got %d", n);
	s.path = text_file_name(argv[0]);
	if (!(in = text_file_open(argv[0])))
		return kvt_fail(err, KVT_SYSTEM, "%s: %s", s.path, strerror(errno));
	if (json) {
		json_start(&out);
		json_put_text(&out, out.root, "file", s.path);
		s.out = &out;
		s.finished = json_put_array(&out, out.root, "finished");
		s.invalid = json_put_array(&out, out.root, "invalid_blocks");
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
		"  kvtool workers --json log.jsonl\n",
};
