/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.c - logs of what workers report: JSON, an event a line
 *
 *	{"workers": 2}						once, at first
 *	{"step": 1, "worker": 0, "finished_recving": [..], ..}	a report
 *	{"step": 1, "scheduler_output": {..}, "awaited": {..}}	what was asked for
 *	{"step": 1, "output": false}				the step does not count
 *	{"step": 1, "aggregated": {..}}				what came of all reports
 *
 * Keys and values are checked here, line by line; whether lines follow each other as
 * they must is the replay's to say (lib/ops/workers).  Lines are passed on in their
 * order, but for a step that does not count: that goes before its reports.
 */
#include "formats/log/workers.h"
#include "formats/log/extras.h"
#include "formats/parse/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

enum { MAX_LINE = 16 << 20 };

/* ---- keys --------------------------------------------------------------- */

static const char *const head_keys[] = {
	"workers", "expected_finished_count", "output_rank", NULL
};
static const char *const worker_keys[] = {
	"step", "worker", "finished_sending", "finished_recving", "failed_recving",
	"invalid_block_ids", "expected_finished_count", "kv_connector_stats",
	"kv_cache_events", "output", NULL
};
static const char *const scheduled_keys[] = {
	"step", "scheduler_output", "awaited", NULL
};
static const char *const awaited_keys[] = {
	"finished_sending", "finished_recving", NULL
};
static const char *const no_output_keys[] = { "step", "output", NULL };
static const char *const aggregated_keys[] = { "step", "aggregated", NULL };
static const char *const set_keys[] = {
	"finished_sending", "finished_recving", "failed_recving", "invalid_block_ids",
	"kv_connector_stats", "kv_cache_events", NULL
};

/* In the order of enum kvt_event_kind; the second key of each tells the kind. */
static const char *const *const keys_of[] = {
	head_keys, worker_keys, no_output_keys, aggregated_keys, scheduled_keys,
};

static enum kvt_status find_kind(enum kvt_event_kind *out, const struct kvt_json *in)
{
	static const struct {
		const char *key;
		enum kvt_event_kind kind;
	} tells[] = {
		{ "aggregated", KVT_EVENT_AGGREGATED },
		{ "scheduler_output", KVT_EVENT_SCHEDULED },
		{ "awaited", KVT_EVENT_SCHEDULED },
		{ "worker", KVT_EVENT_WORKER },
		{ "output", KVT_EVENT_NO_OUTPUT },
		{ "workers", KVT_EVENT_HEAD },
	};

	for (size_t i = 0; i < sizeof(tells) / sizeof(tells[0]); i++)
		if (json_object_get(in->object, tells[i].key)) {
			*out = tells[i].kind;
			return kvt_json_only(in, keys_of[*out]);
		}
	return kvt_json_bad(in,
			    "expected a worker, workers, output, aggregated, scheduler_output or awaited");
}

/* ---- values ------------------------------------------------------------- */

/* The lists of an event while they are checked. */
struct lists {
	const json_t *ids[KVT_NDIRECTIONS], *failed, *blocks, *fresh;
};

static void take_ids(const json_t **out, const char *key, const struct kvt_json *in)
{
	const json_t *list = NULL;

	kvt_json_array(&list, in, key);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *id = "";

		kvt_json_string_at(&id, in, key, list, i);
		if (!*id)
			kvt_json_bad(in, "%s has an empty id", key);
	}
	*out = list;
}

static void take_directions(struct lists *out, const struct kvt_json *in)
{
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		take_ids(&out->ids[d], kvt_direction_name((enum kvt_direction)d), in);
}

static void take_lists(struct lists *out, const struct kvt_json *in)
{
	static const char key[] = "invalid_block_ids";
	int64_t block;

	take_directions(out, in);
	take_ids(&out->failed, "failed_recving", in);
	kvt_json_array(&out->blocks, in, key);
	for (size_t i = 0; i < json_array_size(out->blocks); i++)
		kvt_json_int_at(&block, in, key, out->blocks, i, 0, INT64_MAX);
}

/* Ids are strings, or objects that have them as "req_id". */
static const char *const *keep_ids(const char ***at, const json_t *list)
{
	const char **first = *at;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *id = json_array_get(list, i);

		*(*at)++ = json_string_value(json_is_object(id) ?
					     json_object_get(id, "req_id") : id);
	}
	return first;
}

/* One allocation: the blocks, then the ids, which stay in the JSON values. */
static enum kvt_status keep_lists(struct kvt_log_line *out, const struct lists *in,
				  struct kvt_error *err)
{
	struct kvt_worker_event *e = &out->event;
	size_t n = e->nblocks = json_array_size(in->blocks);
	const char **id;
	int64_t *block;

	_Static_assert(sizeof(*id) <= sizeof(*block), "pointers need no more room");
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		n += e->nids[d] = json_array_size(in->ids[d]);
	n += e->nfailed = json_array_size(in->failed);
	n += e->nfresh = json_array_size(in->fresh);
	if (!n)
		return KVT_OK;
	if (!(out->lists = block = calloc(n, sizeof(*block))))
		return kvt_no_memory(err, NULL);
	for (size_t i = 0; i < e->nblocks; i++)
		block[i] = json_integer_value(json_array_get(in->blocks, i));
	e->blocks = block;
	id = (const char **)(block + e->nblocks);
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		e->ids[d] = keep_ids(&id, in->ids[d]);
	e->failed = keep_ids(&id, in->failed);
	e->fresh = keep_ids(&id, in->fresh);
	return KVT_OK;
}

static enum kvt_status need_int(int64_t *out, const struct kvt_json *in, const char *key,
				int64_t min, int64_t max)
{
	*out = -1;
	kvt_json_int(out, in, key, min, max);
	return *out >= 0 ? KVT_OK : kvt_json_bad(in, "%s is missing", key);
}

/* Only the absence of an output says anything. */
static void take_output(const struct kvt_json *in)
{
	if (!json_is_false(json_object_get(in->object, "output")))
		kvt_json_bad(in, "output is not false");
}

/* The new requests of a scheduler output, and what the engine waits for. */
static void take_scheduled(struct lists *lists, const struct kvt_json *in)
{
	struct kvt_json awaited;

	lists->fresh = json_object_get(json_object_get(in->object, "scheduler_output"),
				       "scheduled_new_reqs");
	kvt_json_object(&awaited, in, "awaited");
	kvt_json_only(&awaited, awaited_keys);
	take_directions(lists, &awaited);
}

/* Of a log that does not say it, it is what the engine takes by default. */
static void take_head(struct kvt_worker_event *out, const struct kvt_json *in)
{
	out->output_rank = -1;
	if (!need_int(&out->workers, in, "workers", 1, KVT_MAX_WORKERS))
		kvt_json_int(&out->output_rank, in, "output_rank", 0, out->workers - 1);
}

static void take(struct kvt_worker_event *out, struct lists *lists,
		 const struct kvt_json *in)
{
	struct kvt_json aggregated;

	if (find_kind(&out->kind, in))
		return;
	if (out->kind == KVT_EVENT_HEAD)
		take_head(out, in);
	else
		need_int(&out->step, in, "step", 0, INT64_MAX - 1);
	if (out->kind == KVT_EVENT_WORKER)
		need_int(&out->worker, in, "worker", 0, KVT_MAX_WORKERS - 1);
	kvt_json_int(&out->expected, in, "expected_finished_count", 0, INT32_MAX);
	if (json_object_get(in->object, "output")) {
		take_output(in);
		out->silent = out->kind == KVT_EVENT_WORKER;
	}
	if (out->kind == KVT_EVENT_WORKER)
		take_lists(lists, in);
	if (!*in->status)
		*in->status = kvt_extras_check(in->object, in->name, in->err);
	if (out->kind == KVT_EVENT_SCHEDULED)
		take_scheduled(lists, in);
	if (out->kind == KVT_EVENT_AGGREGATED) {
		kvt_json_object(&aggregated, in, "aggregated");
		kvt_json_only(&aggregated, set_keys);
		take_lists(lists, &aggregated);
	}
}

/* ---- a line ------------------------------------------------------------- */

enum kvt_status kvt_log_parse(struct kvt_log_line *out, const char *text, size_t nbytes,
			      const char *name, struct kvt_error *err)
{
	struct kvt_log_line line = { .event = { .step = -1, .worker = -1 } };
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, name, err, &status };
	struct lists lists = { .blocks = NULL };
	json_t *json;

	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	in.object = json;
	line.json = json;
	line.event.json = json;
	take(&line.event, &lists, &in);
	if (status || (status = keep_lists(&line, &lists, err))) {
		json_decref(json);
		return status;
	}
	*out = line;
	return KVT_OK;
}

void kvt_log_free(struct kvt_log_line *line)
{
	json_decref(line->json);
	free(line->lists);
}

/* ---- all lines ---------------------------------------------------------- */

struct text {
	char *s;
	size_t n, room;
};

/* The next line without its end; 'more' is false after the last one. */
static enum kvt_status read_line(struct text *line, bool *more, FILE *in,
				 struct kvt_error *err)
{
	int c;

	line->n = 0;
	while ((c = getc_unlocked(in)) != EOF && c != '\n') {
		if (line->n == MAX_LINE)
			return kvt_fail(err, KVT_BAD_INPUT, "is longer than 16 MiB");
		if (line->n == line->room) {
			size_t room = line->room ? line->room * 2 : 4096;
			char *s = realloc(line->s, room);

			if (!s)
				return kvt_no_memory(err, NULL);
			line->s = s;
			line->room = room;
		}
		line->s[line->n++] = (char)c;
	}
	if (ferror(in))
		return kvt_fail(err, KVT_SYSTEM, "%s", strerror(errno));
	*more = c != EOF || line->n > 0;
	return KVT_OK;
}

static bool is_blank(const struct text *line)
{
	for (size_t i = 0; i < line->n; i++)
		if (!strchr(" \t\r", line->s[i]) || !line->s[i])
			return false;
	return true;
}

/*
 * Whether a step counts is known when the rank has been heard whose output is used: the
 * workers before it wait here, and if it has none, a line that says so goes first.
 */
struct reading {
	kvt_event_fn *take;
	void *context;
	const char *name;
	int64_t rank, held_step, dropped_step;
	struct held {
		struct kvt_log_line line;
		long long number;
	} *held;
	size_t n;
};

static enum kvt_status pass_on(const struct reading *r,
			       const struct kvt_worker_event *event, long long number,
			       struct kvt_error *err)
{
	struct kvt_error why = { "" };
	enum kvt_status status = r->take(r->context, event, &why);

	return status ? kvt_fail(err, status, "%.250s: line %lld: %s", r->name, number,
				 why.text) : KVT_OK;
}

/* Passes the waiting lines on, unless something has failed. */
static enum kvt_status release(struct reading *r, enum kvt_status status,
			       struct kvt_error *err)
{
	for (size_t i = 0; i < r->n; i++) {
		if (!status)
			status = pass_on(r, &r->held[i].line.event, r->held[i].number,
					 err);
		kvt_log_free(&r->held[i].line);
	}
	r->n = 0;
	return status;
}

/* Takes the line. */
static enum kvt_status hold(struct reading *r, struct kvt_log_line *line,
			    long long number, struct kvt_error *err)
{
	if (!KVT_GROW(&r->held, r->n)) {
		kvt_log_free(line);
		return kvt_no_memory(err, r->name);
	}
	r->held_step = line->event.step;
	r->held[r->n++] = (struct held){ *line, number };
	return KVT_OK;
}

/* Waiting lines go first, but for what is said of their step before its reports. */
static enum kvt_status in_order(struct reading *r, const struct kvt_worker_event *event,
				long long number, struct kvt_error *err)
{
	const struct kvt_worker_event none = {
		.kind = KVT_EVENT_NO_OUTPUT, .step = event->step, .worker = -1,
	};
	enum kvt_status status = KVT_OK;

	if (event->kind == KVT_EVENT_HEAD && event->output_rank > 0)
		r->rank = event->output_rank;
	if (event->kind == KVT_EVENT_NO_OUTPUT)
		r->dropped_step = event->step;
	if (event->kind == KVT_EVENT_WORKER && event->worker == r->rank &&
	    event->silent && r->dropped_step != event->step)
		status = pass_on(r, &none, number, err);
	if (event->kind != KVT_EVENT_SCHEDULED || event->step != r->held_step)
		status = release(r, status, err);
	return status ? status : pass_on(r, event, number, err);
}

static enum kvt_status take_line(const struct text *text, long long number,
				 struct reading *r, struct kvt_error *err)
{
	struct kvt_log_line line;
	enum kvt_status status;
	char at[300];

	if (is_blank(text))
		return KVT_OK;
	snprintf(at, sizeof(at), "%.250s: line %lld", r->name, number);
	if ((status = kvt_log_parse(&line, text->s, text->n, at, err)))
		return status;
	if (line.event.kind != KVT_EVENT_WORKER || line.event.worker >= r->rank)
		status = in_order(r, &line.event, number, err);
	else if (!r->n || r->held_step == line.event.step ||
		 !(status = release(r, KVT_OK, err)))
		return hold(r, &line, number, err);
	kvt_log_free(&line);
	return status;
}

enum kvt_status kvt_log_read(FILE *in, const char *name, kvt_event_fn *take_event,
			     void *context, struct kvt_error *err)
{
	struct reading r = { take_event, context, name, 0, -1, -1, NULL, 0 };
	struct text line = { NULL, 0, 0 };
	struct kvt_error why = { "" };
	enum kvt_status status = KVT_OK;
	bool more = true;

	for (long long n = 1; !status; n++) {
		if ((status = read_line(&line, &more, in, &why)) == KVT_BAD_INPUT)
			kvt_fail(err, status, "%.250s: line %lld: %s", name, n, why.text);
		else if (status)
			kvt_fail(err, status, "%s: %s", name, why.text);
		else if (more)
			status = take_line(&line, n, &r, err);
		else
			break;
	}
	status = release(&r, status, err);
	free(r.held);
	free(line.s);
	return status;
}
