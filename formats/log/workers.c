/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers.c - logs of what workers report: JSON, an event a line
 *
 * Keys and values are checked here, line by line; whether lines follow each other as
 * they must is the replay's to say (lib/ops/workers).
 */
#include "formats/log/workers.h"
#include "formats/log/extras.h"
#include "formats/parse/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 16 << 20 };

/* ---- keys --------------------------------------------------------------- */

static const char *const head_keys[] = { "workers", "expected_finished_count", NULL };
static const char *const worker_keys[] = {
	"step", "worker", "finished_sending", "finished_recving", "failed_recving",
	"invalid_block_ids", "expected_finished_count", "kv_connector_stats",
	"kv_cache_events", "output", NULL
};
static const char *const scheduled_keys[] = { "step", "scheduler_output", NULL };
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

static enum kvt_status check_keys(const struct kvt_json *in, const char *const *known)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)in->object, key, value) {
		int i = 0;

		while (known[i] && strcmp(known[i], key))
			i++;
		if (!known[i])
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: unknown key '%.64s'", in->name,
					key);
	}
	return KVT_OK;
}

static enum kvt_status find_kind(enum kvt_event_kind *out, const struct kvt_json *in)
{
	static const struct {
		const char *key;
		enum kvt_event_kind kind;
	} tells[] = {
		{ "aggregated", KVT_EVENT_AGGREGATED },
		{ "scheduler_output", KVT_EVENT_SCHEDULED },
		{ "worker", KVT_EVENT_WORKER },
		{ "output", KVT_EVENT_NO_OUTPUT },
		{ "workers", KVT_EVENT_HEAD },
	};

	for (size_t i = 0; i < sizeof(tells) / sizeof(tells[0]); i++)
		if (json_object_get(in->object, tells[i].key)) {
			*out = tells[i].kind;
			return check_keys(in, keys_of[*out]);
		}
	return kvt_fail(in->err, KVT_BAD_INPUT,
			"%s: expected a worker, workers, output, aggregated or scheduler_output", in->name);
}

/* ---- values ------------------------------------------------------------- */

/* The lists of an event while they are checked. */
struct lists {
	const json_t *ids[KVT_NDIRECTIONS], *failed, *blocks;
};

static enum kvt_status take_ids(const json_t **out, const char *key,
				const struct kvt_json *in)
{
	const json_t *list = NULL;
	enum kvt_status status;
	const char *id;

	if ((status = kvt_json_array(&list, in, key)))
		return status;
	for (size_t i = 0; i < json_array_size(list); i++) {
		if ((status = kvt_json_string_at(&id, in, key, list, i)))
			return status;
		if (!*id)
			return kvt_fail(in->err, KVT_BAD_INPUT, "%s: %s has an empty id",
					in->name, key);
	}
	*out = list;
	return KVT_OK;
}

static enum kvt_status take_lists(struct lists *out, const struct kvt_json *in)
{
	static const char key[] = "invalid_block_ids";
	const json_t *list = NULL;
	enum kvt_status status;
	int64_t block;

	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		if ((status = take_ids(&out->ids[d],
				       kvt_direction_name((enum kvt_direction)d), in)))
			return status;
	if ((status = take_ids(&out->failed, "failed_recving", in)))
		return status;
	if ((status = kvt_json_array(&list, in, key)))
		return status;
	for (size_t i = 0; i < json_array_size(list); i++)
		if ((status = kvt_json_int_at(&block, in, key, list, i, 0, INT64_MAX)))
			return status;
	out->blocks = list;
	return KVT_OK;
}

static const char *const *keep_ids(const char ***at, const json_t *list)
{
	const char **first = *at;

	for (size_t i = 0; i < json_array_size(list); i++)
		*(*at)++ = json_string_value(json_array_get(list, i));
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
	if (!n)
		return KVT_OK;
	if (!(out->lists = block = calloc(n, sizeof(*block))))
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	for (size_t i = 0; i < e->nblocks; i++)
		block[i] = json_integer_value(json_array_get(in->blocks, i));
	e->blocks = block;
	id = (const char **)(block + e->nblocks);
	for (int d = 0; d < KVT_NDIRECTIONS; d++)
		e->ids[d] = keep_ids(&id, in->ids[d]);
	e->failed = keep_ids(&id, in->failed);
	return KVT_OK;
}

static enum kvt_status need_int(int64_t *out, const struct kvt_json *in, const char *key,
				int64_t min, int64_t max)
{
	enum kvt_status status;

	*out = -1;
	if ((status = kvt_json_int(out, in, key, min, max)))
		return status;
	return *out >= 0 ? KVT_OK :
	       kvt_fail(in->err, KVT_BAD_INPUT, "%s: %s is missing", in->name, key);
}

/* Only the absence of an output says anything. */
static enum kvt_status take_output(const struct kvt_json *in)
{
	const json_t *value = json_object_get(in->object, "output");

	if (json_is_false(value))
		return KVT_OK;
	return kvt_fail(in->err, KVT_BAD_INPUT, "%s: output is not false", in->name);
}

static enum kvt_status take(struct kvt_worker_event *out, struct lists *lists,
			    const struct kvt_json *in)
{
	const int64_t most = INT32_MAX;
	struct kvt_json aggregated;
	enum kvt_status status;

	if ((status = find_kind(&out->kind, in)))
		return status;
	if (out->kind == KVT_EVENT_HEAD)
		status = need_int(&out->workers, in, "workers", 1, KVT_MAX_WORKERS);
	else
		status = need_int(&out->step, in, "step", 0, INT64_MAX - 1);
	if (!status && out->kind == KVT_EVENT_WORKER)
		status = need_int(&out->worker, in, "worker", 0, KVT_MAX_WORKERS - 1);
	if (!status)
		status = kvt_json_int(&out->expected, in, "expected_finished_count", 0,
				      most);
	if (!status && json_object_get(in->object, "output")) {
		status = take_output(in);
		out->silent = out->kind == KVT_EVENT_WORKER;
	}
	if (!status && out->kind == KVT_EVENT_WORKER)
		status = take_lists(lists, in);
	if (!status)
		status = kvt_extras_check(in->object, in->name, in->err);
	if (!status && out->kind == KVT_EVENT_AGGREGATED &&
	    !(status = kvt_json_object(&aggregated, in, "aggregated")) &&
	    !(status = check_keys(&aggregated, set_keys)))
		status = take_lists(lists, &aggregated);
	return status;
}

/* ---- a line ------------------------------------------------------------- */

enum kvt_status kvt_log_parse(struct kvt_log_line *out, const char *text, size_t nbytes,
			      const char *name, struct kvt_error *err)
{
	struct kvt_log_line line = { .event = { .step = -1, .worker = -1 } };
	struct kvt_json in = { NULL, name, err };
	struct lists lists = { .blocks = NULL };
	enum kvt_status status;
	json_t *json;

	if ((status = kvt_json_parse(&json, text, nbytes, name, err)))
		return status;
	in.object = json;
	line.json = json;
	line.event.json = json;
	if ((status = take(&line.event, &lists, &in)) ||
	    (status = keep_lists(&line, &lists, err))) {
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
				return kvt_fail(err, KVT_SYSTEM, "out of memory");
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

static enum kvt_status take_line(const struct text *text, const char *name,
				 kvt_event_fn *take_event, void *context,
				 struct kvt_error *err)
{
	struct kvt_error why = { "" };
	struct kvt_log_line line;
	enum kvt_status status;

	if (is_blank(text))
		return KVT_OK;
	if ((status = kvt_log_parse(&line, text->s, text->n, name, err)))
		return status;
	if ((status = take_event(context, &line.event, &why)))
		kvt_fail(err, status, "%s: %s", name, why.text);
	kvt_log_free(&line);
	return status;
}

enum kvt_status kvt_log_read(FILE *in, const char *name, kvt_event_fn *take_event,
			     void *context, struct kvt_error *err)
{
	struct text line = { NULL, 0, 0 };
	struct kvt_error why = { "" };
	enum kvt_status status = KVT_OK;
	bool more = true;
	char at[300];

	for (long long n = 1; !status; n++) {
		snprintf(at, sizeof(at), "%.250s: line %lld", name, n);
		if ((status = read_line(&line, &more, in, &why)))
			kvt_fail(err, status, "%s: %s",
				 status == KVT_BAD_INPUT ? at : name, why.text);
		else if (more)
			status = take_line(&line, at, take_event, context, err);
		else
			break;
	}
	free(line.s);
	return status;
}
