/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_flexkv.c - requests out of the events that FlexKV's tracer writes
 *
 *	{"timestamp": "2026-11-21T10:00:00", "event_type": "request", "data":
 *	 {"request_type": "GET", "request_id": 7, "token_ids": [..],
 *	  "slot_mapping": [..]}}
 *	{.., "event_type": "launch_tasks", "data":
 *	 {"task_ids": [7], "slot_mappings": [[..]]}}
 *
 * A request GET loads what it has slots for.  GET_MATCH only asks; its task loads
 * when it is launched, which may never happen.  PUT goes the other way, and the
 * rest of the events moves nothing.  Of a file that was rotated, launches of what
 * was matched before its first line are not known and passed over.
 */
#include "formats/log/trace_impl.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- time ------------------------------------------------------------------- */

static bool two_digits(int *out, const char *text, int least, int most)
{
	if (!isdigit((unsigned char)text[0]) || !isdigit((unsigned char)text[1]))
		return false;
	*out = (text[0] - '0') * 10 + text[1] - '0';
	return *out >= least && *out <= most;
}

/* Days from 0000-03-01: then leap days are the last of their year. */
static int64_t days(int64_t year, int month, int day)
{
	int64_t y = month < 3 ? year - 1 : year;

	return 365 * y + y / 4 - y / 100 + y / 400 +
	       (153 * (month < 3 ? month + 9 : month - 3) + 2) / 5 + day - 1;
}

/* "2026-11-21T10:00:00", perhaps with parts of a second. */
static bool parse_time(int64_t *ns, const char *text)
{
	int high, low, month, day, hour, minute, second;
	int64_t part = 0, unit = 1000000000;
	const char *at = text + 19;

	if (strlen(text) < 19 || text[4] != '-' || text[7] != '-' ||
	    (text[10] != 'T' && text[10] != ' ') || text[13] != ':' || text[16] != ':' ||
	    !two_digits(&high, text, 19, 21) || !two_digits(&low, text + 2, 0, 99) ||
	    !two_digits(&month, text + 5, 1, 12) || !two_digits(&day, text + 8, 1, 31) ||
	    !two_digits(&hour, text + 11, 0, 23) ||
	    !two_digits(&minute, text + 14, 0, 59) ||
	    !two_digits(&second, text + 17, 0, 60))
		return false;
	if (*at == '.')
		for (at++; isdigit((unsigned char)*at) && unit > 1; at++) {
			unit /= 10;
			part += (*at - '0') * unit;
		}
	*ns = (((days(high * 100 + low, month, day) * 24 + hour) * 60 + minute) * 60 +
	       second - days(1970, 1, 1) * 86400) * 1000000000 + part;
	return !*at;
}

/* ---- tasks ------------------------------------------------------------------ */

/* The bucket of an id, or the free one where it would be; there is one. */
static struct trace_task *find(const struct trace_tasks *t, int64_t id)
{
	uint64_t at = (uint64_t)id * 0x9e3779b97f4a7c15u >> 20;

	for (;; at++) {
		struct trace_task *task = &t->task[at & (uint64_t)(t->room - 1)];

		if (!task->tokens || task->id == id)
			return task;
	}
}

static bool make_room(struct trace_tasks *t)
{
	struct trace_tasks more = { .room = t->room ? 2 * t->room : 256,
				    .n = t->n, .begin = t->begin };

	if (2 * (t->n + 1) <= t->room)
		return true;
	if (!(more.task = calloc((size_t)more.room, sizeof(*more.task))))
		return false;
	for (int64_t i = 0; i < t->room; i++)
		if (t->task[i].tokens)
			*find(&more, t->task[i].id) = t->task[i];
	free(t->task);
	*t = more;
	return true;
}

static enum kvt_status remember(struct trace_tasks *t, int64_t id, int64_t tokens,
				struct kvt_error *err)
{
	struct trace_task *task;

	if (!make_room(t))
		return kvt_no_memory(err, NULL);
	task = find(t, id);
	t->n += !task->tokens;
	*task = (struct trace_task){ id, tokens };
	return KVT_OK;
}

/* ---- events ----------------------------------------------------------------- */

static enum kvt_status load(struct kvt_trace *trace, struct trace_tasks *t, int64_t ns,
			    int64_t tokens, int64_t slots, const struct trace_line *line,
			    struct kvt_error *err)
{
	struct kvt_trace_row row = { .tokens = tokens, .bytes = -1,
				     .cached = tokens - slots };
	enum kvt_status status;

	if (slots > tokens)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: slots for %lld tokens, and the request has %lld",
				line->name, LL(slots), LL(tokens));
	if (!trace->n)
		t->begin = ns;
	row.arrival = ns - t->begin;
	if ((status = trace_check_order(trace, line, row.arrival, err)))
		return status;
	return trace_add(trace, &row, line, err);
}

static enum kvt_status need(const json_t **out, const struct kvt_json *data,
			    const char *key)
{
	enum kvt_status status = kvt_json_array(out, data, key);

	return status || *out ? status : kvt_json_bad(data, "there is no '%s'", key);
}

static enum kvt_status take_request(struct kvt_trace *trace, struct trace_tasks *t,
				    const struct kvt_json *data, int64_t ns,
				    const struct trace_line *line, struct kvt_error *err)
{
	const json_t *tokens = NULL, *slots = NULL;
	const char *type = NULL;
	enum kvt_status status;
	int64_t id = 0, n;

	if ((status = kvt_json_string(&type, data, "request_type")) ||
	    (status = kvt_json_int(&id, data, "request_id", 0, INT64_MAX)) ||
	    (status = need(&tokens, data, "token_ids")) ||
	    (status = need(&slots, data, "slot_mapping")))
		return status;
	n = (int64_t)json_array_size(tokens);
	if (!type || !n)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: a request without %s",
				line->name, type ? "tokens" : "'request_type'");
	if (!strcmp(type, "GET"))
		return load(trace, t, ns, n, (int64_t)json_array_size(slots), line, err);
	if (!strcmp(type, "GET_MATCH"))
		return remember(t, id, n, err);
	return strcmp(type, "PUT_MATCH") ? KVT_OK : remember(t, id, -1, err);
}

static enum kvt_status take_launch(struct kvt_trace *trace, struct trace_tasks *t,
				   const struct kvt_json *data, int64_t ns,
				   const struct trace_line *line, struct kvt_error *err)
{
	const json_t *ids = NULL, *slots = NULL;
	enum kvt_status status;

	if ((status = need(&ids, data, "task_ids")) ||
	    (status = need(&slots, data, "slot_mappings")))
		return status;
	if (json_array_size(ids) != json_array_size(slots))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: %zu tasks and %zu slot_mappings",
				line->name, json_array_size(ids), json_array_size(slots));
	for (size_t i = 0; !status && i < json_array_size(ids); i++) {
		int64_t n = (int64_t)json_array_size(json_array_get(slots, i)), id = 0;
		struct trace_task *task;

		status = kvt_json_int_at(&id, data, "task_ids", ids, i, 0, INT64_MAX);
		if (status || !t->room)
			continue;
		task = find(t, id);
		if (task->tokens > 0 && n)
			status = load(trace, t, ns, task->tokens, n, line, err);
	}
	return status;
}

enum kvt_status trace_take_flexkv(struct kvt_trace *trace, struct trace_tasks *tasks,
				  const struct kvt_json *event,
				  const struct trace_line *line, struct kvt_error *err)
{
	const char *when = NULL, *type = NULL;
	struct kvt_json data;
	enum kvt_status status;
	int64_t ns;

	if ((status = kvt_json_string(&when, event, "timestamp")) ||
	    (status = kvt_json_string(&type, event, "event_type")) ||
	    (status = kvt_json_object(&data, event, "data")))
		return status;
	if (!type || !when || !parse_time(&ns, when))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: expected an 'event_type' and a 'timestamp' such as 2026-11-21T10:00:00",
				line->name);
	if (!strcmp(type, "request"))
		return take_request(trace, tasks, &data, ns, line, err);
	return strcmp(type, "launch_tasks") ? KVT_OK :
	       take_launch(trace, tasks, &data, ns, line, err);
}
