/* SPDX-License-Identifier: Apache-2.0 */
/* test_workers.c - reports of workers, event by event, and what is made of them */
#include "lib/ops/workers/workers.h"
#include "tests/unit/tests.h"

/* What a replay tells, as one text. */
struct told {
	char text[2000];
};

static void say(struct told *t, const char *format, ...) KVT_PRINTF(2, 3);

static void say(struct told *t, const char *format, ...)
{
	size_t n = strlen(t->text);
	va_list args;

	va_start(args, format);
	vsnprintf(t->text + n, sizeof(t->text) - n, format, args);
	va_end(args);
}

static void on_finished(void *context, int64_t step, enum kvt_direction direction,
			const char *id, int64_t reports, int64_t since)
{
	say(context, "%lld: %s %s %lld since %lld\n", (long long)step,
	    direction == KVT_SENDING ? "sent" : "got", id, (long long)reports,
	    (long long)since);
}

static void on_failed(void *context, int64_t step, const char *id)
{
	say(context, "%lld: failed %s\n", (long long)step, id);
}

static void on_invalid(void *context, int64_t step, int64_t block)
{
	say(context, "%lld: block %lld\n", (long long)step, (long long)block);
}

static void on_problem(void *context, enum kvt_worker_problem problem, int64_t step,
		       int64_t worker, const char *id, const char *text)
{
	(void)text;
	say(context, "%lld: %s %s worker %lld\n", (long long)step,
	    kvt_worker_problem_name(problem), id ? id : "-", (long long)worker);
}

/* A line of a table: what is not given is 0, and means "none" of that kind. */
struct line {
	enum kvt_event_kind kind;
	int64_t step, worker, expected;
	const char *sent;		/* at most one id */
	int64_t block;			/* at most one, above 0 */
};

static enum kvt_status take(struct kvt_workers *w, const struct line *l,
			    struct kvt_error *err)
{
	const struct kvt_worker_event event = {
		.kind = l->kind, .step = l->step, .worker = l->worker,
		.workers = l->kind == KVT_EVENT_HEAD ? 2 : 0, .expected = l->expected,
		.nids = { [KVT_SENDING] = l->sent != NULL },
		.ids = { [KVT_SENDING] = &l->sent },
		.nblocks = l->block > 0, .blocks = &l->block,
	};

	return kvt_workers_take(w, &event, err);
}

enum { MAX_LINES = 8 };
#define HEAD { KVT_EVENT_HEAD, 0, 0, 0, NULL, 0 }

static struct log {
	const char *what;
	struct line line[MAX_LINES];	/* as many as are not all zero */
	int n;
	enum kvt_status status;
	const char *told;		/* or a part of the message */
} logs[] = {
	{ "both workers report", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 0, "a", 0 },
		{ KVT_EVENT_WORKER, 5, 1, 0, "a", 0 } }, 3, KVT_OK,
	  "5: sent a 2 since 3\n" },
	{ "one does not", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 0, "a", 0 } }, 2, KVT_OK,
	  "3: incomplete a worker -1\n" },
	{ "one reports twice", {
		HEAD, { KVT_EVENT_WORKER, 3, 1, 0, "a", 0 },
		{ KVT_EVENT_WORKER, 4, 1, 0, "a", 0 } }, 3, KVT_OK,
	  "4: repeated a worker 1\n4: sent a 2 since 3\n" },
	{ "a report too many", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 0, "a", 0 },
		{ KVT_EVENT_WORKER, 3, 1, 0, "a", 0 },
		{ KVT_EVENT_WORKER, 4, 0, 0, "a", 0 } }, 4, KVT_OK,
	  "3: sent a 2 since 3\n4: exceeded a worker 0\n4: incomplete a worker -1\n" },
	{ "one report is enough", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 1, "a", 0 } }, 2, KVT_OK,
	  "3: sent a 1 since 3\n" },
	{ "a block is told once a step", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 0, NULL, 7 },
		{ KVT_EVENT_WORKER, 3, 1, 0, NULL, 7 },
		{ KVT_EVENT_WORKER, 4, 0, 0, NULL, 7 } }, 4, KVT_OK,
	  "3: block 7\n4: block 7\n" },
	{ "a step without output", {
		HEAD, { KVT_EVENT_NO_OUTPUT, 3, 0, 0, NULL, 0 },
		{ KVT_EVENT_WORKER, 3, 0, 0, "a", 7 } }, 3, KVT_OK,
	  "3: lost a worker 0\n3: lost - worker 0\n" },
	{ "the engine has less", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 1, "a", 7 },
		{ KVT_EVENT_AGGREGATED, 3, 0, 0, NULL, 0 } }, 3, KVT_OK,
	  "3: sent a 1 since 3\n3: block 7\n3: lost a worker -1\n3: lost - worker -1\n" },
	{ "the engine has more", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 0, NULL, 0 },
		{ KVT_EVENT_AGGREGATED, 3, 0, 0, "a", 7 } }, 3, KVT_OK,
	  "3: invented a worker -1\n3: invented - worker -1\n" },
	{ "the engine has the same", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 1, "a", 7 },
		{ KVT_EVENT_AGGREGATED, 3, 0, 0, "a", 7 } }, 3, KVT_OK,
	  "3: sent a 1 since 3\n3: block 7\n" },
	{ "blocks of the step before", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 0, NULL, 7 },
		{ KVT_EVENT_WORKER, 4, 0, 0, NULL, 0 },
		{ KVT_EVENT_AGGREGATED, 4, 0, 0, NULL, 0 } }, 4, KVT_OK,
	  "3: block 7\n" },
	{ "no head", { { KVT_EVENT_WORKER, 3, 0, 0, NULL, 0 } }, 1, KVT_BAD_INPUT,
	  "expected the number of workers first" },
	{ "two heads", { HEAD, HEAD }, 2, KVT_BAD_INPUT, "is given twice" },
	{ "steps that descend", {
		HEAD, { KVT_EVENT_WORKER, 3, 0, 0, NULL, 0 },
		{ KVT_EVENT_WORKER, 2, 0, 0, NULL, 0 } }, 3, KVT_BAD_INPUT,
	  "steps are not in ascending order" },
	{ "workers that descend", {
		HEAD, { KVT_EVENT_WORKER, 3, 1, 0, NULL, 0 },
		{ KVT_EVENT_WORKER, 3, 0, 0, NULL, 0 } }, 3, KVT_BAD_INPUT,
	  "workers of a step are not in ascending order" },
	{ "a worker beyond the last", {
		HEAD, { KVT_EVENT_WORKER, 3, 2, 0, NULL, 0 } }, 2, KVT_BAD_INPUT,
	  "worker is 2, expected less than 2" },
	{ "nothing at all", { HEAD }, 0, KVT_BAD_INPUT,
	  "the number of workers is missing" },
};

static void test_log(void **state)
{
	const struct log *log = *state;
	struct told told = { "" };
	const struct kvt_workers_listener listener = {
		.context = &told, .finished = on_finished, .failed = on_failed,
		.invalid = on_invalid, .unnamed = on_failed, .problem = on_problem,
	};
	struct kvt_workers_totals totals = { 0 };
	struct kvt_workers *w;
	enum kvt_status status = kvt_workers_new(&w, &listener, &why);

	for (int i = 0; !status && i < log->n; i++)
		status = take(w, &log->line[i], &why);
	if (!status)
		status = kvt_workers_end(&totals, w, &why);
	kvt_workers_free(w);
	assert_int_equal(status, log->status);
	if (status) {
		if (!strstr(why.text, log->told))
			fail_msg("'%s', expected '%s' in it", why.text, log->told);
		return;
	}
	assert_string_equal(told.text, log->told);
	assert_int_equal(totals.workers, 2);
}

/* More requests and blocks than any first table has room for. */
static void test_many(void)
{
	struct told told = { "" };
	const struct kvt_workers_listener listener = {
		.context = &told, .finished = on_finished, .failed = on_failed,
		.invalid = on_invalid, .unnamed = on_failed, .problem = on_problem,
	};
	const struct line head = HEAD;
	struct kvt_workers_totals totals = { 0 };
	struct kvt_workers *w;
	char id[20];

	ok(kvt_workers_new(&w, &listener, &why));
	ok(take(w, &head, &why));
	for (int worker = 0; worker < 2; worker++)
		for (int i = 0; i < 5000; i++) {
			const struct line l = { KVT_EVENT_WORKER, worker * 5000 + i,
						worker, 0, id, i + 1 };

			snprintf(id, sizeof(id), "r%d", i);
			ok(take(w, &l, &why));
			told.text[0] = '\0';
		}
	ok(kvt_workers_end(&totals, w, &why));
	assert_int_equal(totals.finished, 5000);
	assert_int_equal(totals.invalid, 10000);
	assert_int_equal(totals.steps, 10000);
	assert_int_equal(totals.problems, 0);
	kvt_workers_free(w);
}

TESTS("workers",
	EACH(logs, test_log),
	NAMED(test_many, "many requests"))
