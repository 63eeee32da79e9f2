/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - vLLM's aggregation of worker outputs, step by step
 *
 * The counts are upstream's (kvt_countdown_report()).  Upstream forgets an id
 * once it is finished and does not ask who reports; the replay remembers both,
 * for that is where its silent failures are.
 */
#include "lib/ops/workers/workers_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 16 << 20 };

const char *workers_problem_name(enum workers_problem problem)
{
	static const char *const names[] = {
		"incomplete", "exceeded", "repeated", "lost", "invented",
	};

	return names[problem];
}

enum kvt_status workers_no_memory(struct replay *r)
{
	return kvt_fail(r->err, KVT_SYSTEM, "%s: out of memory", r->name);
}

void workers_problem(struct replay *r, enum workers_problem which, int64_t worker,
		     const char *id, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	r->totals->problems++;
	r->tell->problem(r->tell->arg, which, r->step, worker, id, text);
}

/* ---- lines -------------------------------------------------------------- */

static enum kvt_status refuse(struct replay *r, const char *what)
{
	return kvt_fail(r->err, KVT_BAD_INPUT, "%s: line %lld: %s", r->name,
			LL(r->line), what);
}

static enum kvt_status take_head(struct replay *r, const struct kvt_log_line *line)
{
	if (r->totals->workers)
		return refuse(r, "the number of workers is given twice");
	r->totals->workers = line->workers;
	r->expected = line->expected ? line->expected : line->workers;
	return KVT_OK;
}

static enum kvt_status take_worker(struct replay *r, const struct kvt_log_line *line)
{
	enum kvt_status status;

	if (line->worker >= r->totals->workers)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%s: line %lld: worker is %lld, expected less than %lld",
				r->name, LL(r->line), LL(line->worker),
				LL(r->totals->workers));
	if (line->worker <= r->worker)
		return refuse(r, "workers of a step are not in ascending order");
	r->worker = line->worker;
	/* of a step without output not even the count is read */
	if (!r->dropped)
		r->expected = kvt_expected_reports(r->expected, line->expected);
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		for (size_t i = 0; i < line->nids[d]; i++)
			if ((status = workers_report(r, kvt_log_id(line, d, i), d)))
				return status;
	return workers_report_blocks(r, line);
}

static enum kvt_status enter_step(struct replay *r, const struct kvt_log_line *line)
{
	if (line->step < r->step)
		return refuse(r, "steps are not in ascending order");
	if (line->step == r->step) {
		if (r->closed)
			return refuse(r, "more of a step behind what was made of it");
		if (line->kind == KVT_LOG_NO_OUTPUT)
			return refuse(r, "the absence of output stands behind "
				      "the beginning of its step");
		return KVT_OK;
	}
	r->step = line->step;
	r->worker = -1;
	r->dropped = line->kind == KVT_LOG_NO_OUTPUT;
	r->closed = false;
	r->nemitted = r->invalid.n = 0;
	r->totals->steps++;
	return KVT_OK;
}

static enum kvt_status take_line(struct replay *r, const struct kvt_log_line *line)
{
	enum kvt_status status;

	if (line->kind == KVT_LOG_HEAD)
		return take_head(r, line);
	if (!r->totals->workers)
		return refuse(r, "expected the number of workers first");
	if ((status = enter_step(r, line)))
		return status;
	if (line->kind == KVT_LOG_WORKER)
		return take_worker(r, line);
	if (line->kind == KVT_LOG_NO_OUTPUT)
		return KVT_OK;
	r->closed = true;
	workers_compare(r, line);
	return KVT_OK;
}

/* ---- reading ------------------------------------------------------------ */

struct line {
	char *text;
	size_t n, room;
};

/* The next line without its end; 'more' is false behind the last one. */
static enum kvt_status read_line(struct replay *r, struct line *line, bool *more,
				 FILE *in)
{
	int c;

	line->n = 0;
	while ((c = getc_unlocked(in)) != EOF && c != '\n') {
		if (line->n == MAX_LINE)
			return refuse(r, "is longer than 16 MiB");
		if (line->n == line->room) {
			size_t room = line->room ? line->room * 2 : 4096;
			char *text = realloc(line->text, room);

			if (!text)
				return workers_no_memory(r);
			line->text = text;
			line->room = room;
		}
		line->text[line->n++] = (char)c;
	}
	if (ferror(in))
		return kvt_fail(r->err, KVT_SYSTEM, "%s: %s", r->name, strerror(errno));
	*more = c != EOF || line->n > 0;
	return KVT_OK;
}

static bool is_blank(const struct line *line)
{
	for (size_t i = 0; i < line->n; i++)
		if (!strchr(" \t\r", line->text[i]) || !line->text[i])
			return false;
	return true;
}

static enum kvt_status replay_line(struct replay *r, const struct line *text)
{
	struct kvt_log_line line;
	enum kvt_status status;
	char name[300];

	snprintf(name, sizeof(name), "%.250s: line %lld", r->name, LL(r->line));
	if ((status = kvt_log_parse(&line, text->text, text->n, name, r->err)))
		return status;
	status = take_line(r, &line);
	kvt_log_free(&line);
	return status;
}

enum kvt_status workers_replay(struct workers_totals *out, FILE *in, const char *name,
			       const struct workers_listener *listener,
			       struct kvt_error *err)
{
	struct replay r = { .name = name, .tell = listener, .totals = out, .err = err,
			    .step = -1, .worker = -1 };
	struct line line = { NULL, 0, 0 };
	enum kvt_status status;
	bool more = true;

	*out = (struct workers_totals){ 0 };
	for (r.line = 1; !(status = read_line(&r, &line, &more, in)) && more; r.line++)
		if (!is_blank(&line) && (status = replay_line(&r, &line)))
			break;
	if (!status && !out->workers)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: nothing says how many workers there are", name);
	if (!status)
		workers_incomplete(&r);
	free(line.text);
	workers_free(&r);
	return status;
}
