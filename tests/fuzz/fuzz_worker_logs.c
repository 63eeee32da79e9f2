/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_worker_logs.c - any text as a log of workers, replayed whole: it is refused with
 * a reason, or what comes of its stats, events and requests is well formed
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/log/extras.h"
#include "formats/log/workers.h"
#include "lib/ops/workers/workers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct replays {
	struct kvt_workers *workers;
	struct kvt_extras *extras;
};

static void need(bool good)
{
	if (!good)
		abort();
}

static void on_finished(void *context, int64_t step, enum kvt_direction direction,
			const char *id, int64_t reports, int64_t since)
{
	(void)context;
	(void)direction;
	need(id[0] && reports > 0 && since <= step);
}

static void on_failed(void *context, int64_t step, const char *id)
{
	(void)context;
	need(id[0] && step >= 0);
}

static void on_invalid(void *context, int64_t step, int64_t block)
{
	(void)context;
	need(step >= 0 && block >= 0);
}

static void on_problem(void *context, enum kvt_worker_problem problem, int64_t step,
		       int64_t worker, const char *id, const char *text)
{
	(void)context;
	(void)problem;
	(void)step;
	(void)worker;
	(void)id;
	need(text[0] != '\0');
}

static void on_stats(void *context, int64_t step, const json_t *stats)
{
	(void)context;
	need(step >= 0 && json_is_object(json_object_get(stats, "data")));
}

static void on_events(void *context, int64_t step, int64_t workers, int64_t all,
		      const json_t *common)
{
	(void)context;
	need(step >= 0 && workers > 0 && (int64_t)json_array_size(common) <= all);
}

static void on_request(void *context, int64_t step, const char *id, const json_t *blocks,
		       bool preempted)
{
	(void)context;
	(void)preempted;
	need(step >= 0 && id && (json_is_null(blocks) || json_is_array(blocks)));
}

static void on_more(void *context, const char *problem, int64_t step, int64_t worker,
		    const char *text)
{
	(void)context;
	(void)step;
	(void)worker;
	need(problem[0] && text[0]);
}

static enum kvt_status take(void *context, const struct kvt_worker_event *event,
			    struct kvt_error *err)
{
	const struct replays *r = context;
	enum kvt_status status = kvt_workers_take(r->workers, event, err);

	return status ? status : kvt_extras_take(r->extras, event, err);
}

static enum kvt_status replay(FILE *in, struct kvt_error *err)
{
	const struct kvt_workers_listener listener = {
		NULL, on_finished, on_failed, on_invalid, on_failed, on_problem,
	};
	const struct kvt_extras_listener extras = {
		NULL, on_stats, on_events, on_request, on_more,
	};
	struct kvt_workers_totals totals;
	struct replays r = { NULL, NULL };
	enum kvt_status status = kvt_workers_new(&r.workers, &listener, err);

	if (!status)
		status = kvt_extras_new(&r.extras, &extras, err);
	for (int d = 0; !status && d < KVT_NDIRECTIONS; d++)
		kvt_workers_await(r.workers, d);
	if (!status && !(status = kvt_log_read(in, "log", take, &r, err)) &&
	    !(status = kvt_extras_end(r.extras, err)))
		status = kvt_workers_end(&totals, r.workers, err);
	kvt_extras_free(r.extras);
	kvt_workers_free(r.workers);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	FILE *in = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;

	if (!in)
		return 0;
	if (replay(in, &err))
		need(err.text[0] != '\0');
	fclose(in);
	return 0;
}
