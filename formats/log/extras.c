/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extras.c - what a log of workers has beside requests and blocks
 *
 *	"kv_connector_stats": {..}		of a worker's line
 *	"kv_cache_events": [{..}, ..]		of a worker's line
 *	"scheduler_output": {"scheduled_new_reqs": [{"req_id": .., "block_ids": [[..]]}],
 *	  "scheduled_cached_reqs": {"req_ids": [..], "resumed_req_ids": [..],
 *				    "new_block_ids": [[[..]], null, ..]}}
 *	"aggregated": {the first two, as the engine had them}
 *
 * In: lines in the order of the log.  Out: for each step the stats of all workers added
 * up, the events that each worker with events has, and the blocks that requests were
 * given; and where the engine's own result differs, that.  A step in which the engine
 * raises an error has none of it.  As executed by vLLM 0.32.0:
 * KVOutputAggregator.aggregate().
 */
#include "formats/log/extras.h"

#include <stdlib.h>
#include <string.h>

#include "formats/log/stats.h"

static const char stats_key[] = "kv_connector_stats", events_key[] = "kv_cache_events";

struct kvt_extras {
	const struct kvt_extras_listener *tell;
	int64_t step;
	bool dropped, failed, closed;	/* this step: no output; an error; it was told */
	json_t *stats;			/* of the workers so far; NULL: none has any */
	struct kvt_event_bag bag;
};

/* ---- forms -------------------------------------------------------------- */

static enum kvt_status check_events(const json_t *events, const char *name,
				    struct kvt_error *err)
{
	json_t *event;
	size_t i;

	if (!json_is_array(events))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: %s is not an array", name,
				events_key);
	json_array_foreach((json_t *)events, i, event)
		if (!json_is_object(event))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: %s has something that is not an object", name,
					events_key);
	return KVT_OK;
}

/* null, or a list of ids for each group */
static bool is_blocks(const json_t *blocks, bool may_be_null)
{
	json_t *group, *id;
	size_t i, j;

	if (json_is_null(blocks))
		return may_be_null;
	if (!json_is_array(blocks))
		return false;
	json_array_foreach((json_t *)blocks, i, group) {
		if (!json_is_array(group))
			return false;
		json_array_foreach(group, j, id)
			if (!json_is_integer(id))
				return false;
	}
	return true;
}

static bool is_ids(const json_t *ids)
{
	json_t *id;
	size_t i;

	if (!json_is_array(ids))
		return false;
	json_array_foreach((json_t *)ids, i, id)
		if (!json_is_string(id))
			return false;
	return true;
}

static const char *wrong_scheduler(const json_t *output)
{
	const json_t *fresh = json_object_get(output, "scheduled_new_reqs");
	const json_t *cached = json_object_get(output, "scheduled_cached_reqs");
	const json_t *blocks = json_object_get(cached, "new_block_ids");
	json_t *one;
	size_t i;

	if (!json_is_array(fresh))
		return "scheduled_new_reqs is not an array";
	json_array_foreach((json_t *)fresh, i, one)
		if (!json_is_string(json_object_get(one, "req_id")) ||
		    !is_blocks(json_object_get(one, "block_ids"), false))
			return "a new request has no req_id, or no block_ids";
	if (!is_ids(json_object_get(cached, "req_ids")) ||
	    !is_ids(json_object_get(cached, "resumed_req_ids")) || !json_is_array(blocks))
		return "scheduled_cached_reqs needs req_ids, new_block_ids and "
		       "resumed_req_ids";
	json_array_foreach((json_t *)blocks, i, one)
		if (!is_blocks(one, true))
			return "new_block_ids has something else than lists of ids or "
			       "null";
	return NULL;
}

enum kvt_status kvt_extras_check(const json_t *line, const char *name,
				 struct kvt_error *err)
{
	const json_t *stats = json_object_get(line, stats_key);
	const json_t *events = json_object_get(line, events_key);
	const json_t *scheduler = json_object_get(line, "scheduler_output");
	const json_t *theirs = json_object_get(json_object_get(line, "aggregated"),
					       events_key);
	const char *wrong = scheduler ? wrong_scheduler(scheduler) : NULL;
	enum kvt_status status;

	if (stats && !json_is_null(stats) && (status = kvt_stats_check(stats, name, err)))
		return status;
	if (events && !json_is_null(events) && (status = check_events(events, name, err)))
		return status;
	if (theirs && !json_is_null(theirs) && (status = check_events(theirs, name, err)))
		return status;
	return wrong ? kvt_fail(err, KVT_BAD_INPUT, "%s: scheduler_output: %s", name,
				wrong) : KVT_OK;
}

/* ---- one step ----------------------------------------------------------- */

static void clear(struct kvt_extras *x)
{
	json_decref(x->stats);
	x->stats = NULL;
	kvt_event_bag_free(&x->bag);
	x->failed = x->closed = false;
}

static void raised(struct kvt_extras *x, int64_t worker, const char *text)
{
	x->failed = true;
	x->tell->problem(x->tell->context, "raised", x->step, worker, text);
}

/* An error ends the engine's step: nothing of it is told. */
static enum kvt_status tell_step(struct kvt_extras *x, struct kvt_error *err)
{
	const struct kvt_extras_listener *tell = x->tell;
	int64_t all = 0;
	json_t *common;

	if (x->closed || x->failed || x->dropped)
		return KVT_OK;
	x->closed = true;
	if (x->stats)
		tell->stats(tell->context, x->step, x->stats);
	if (!x->bag.workers)
		return KVT_OK;
	if (!(common = kvt_event_bag_common(&x->bag)))
		return kvt_no_memory(err, NULL);
	for (size_t i = 0; i < x->bag.n; i++)
		all += x->bag.count[i];
	tell->events(tell->context, x->step, x->bag.workers, all, common);
	json_decref(common);
	return KVT_OK;
}

static enum kvt_status take_stats(struct kvt_extras *x, const json_t *stats,
				  int64_t worker, struct kvt_error *err)
{
	struct kvt_error why = { "" };
	json_t *later;
	enum kvt_status status;

	if (!stats || json_is_null(stats))
		return KVT_OK;
	if (!x->stats)
		return (x->stats = kvt_stats_copy(stats)) ? KVT_OK :
		       kvt_no_memory(err, NULL);
	if (!(later = kvt_stats_copy(stats)))
		return kvt_no_memory(err, NULL);
	status = kvt_stats_add(x->stats, later, &why);
	json_decref(later);
	if (status == KVT_MISMATCH) {
		char text[300];

		snprintf(text, sizeof(text), "%s of worker %lld: %.200s", stats_key,
			 LL(worker), why.text);
		raised(x, worker, text);
		return KVT_OK;
	}
	return status ? kvt_fail(err, status, "%s", why.text) : KVT_OK;
}

static enum kvt_status take_worker(struct kvt_extras *x,
				   const struct kvt_worker_event *event,
				   struct kvt_error *err)
{
	const json_t *line = event->json, *events = json_object_get(line, events_key);
	enum kvt_status status;

	if (x->dropped || x->failed)
		return KVT_OK;
	if (json_object_get(line, "output")) {
		raised(x, event->worker, "AssertionError: a worker has no output, and "
		       "the one whose output is used has");
		return KVT_OK;
	}
	if ((status = take_stats(x, json_object_get(line, stats_key), event->worker,
				 err)))
		return status;
	return events && !json_is_null(events) ?
	       kvt_event_bag_add(&x->bag, events, err) : KVT_OK;
}

/* ---- what the engine made of it ------------------------------------------ */

/* Without what only a log says: "rule" and "bases". */
static bool same_stats(const json_t *a, const json_t *b)
{
	return json_equal(json_object_get(a, "class"), json_object_get(b, "class")) &&
	       json_equal(json_object_get(a, "data"), json_object_get(b, "data"));
}

/* Theirs and ours in one bag: each event is there twice, or something differs. */
static enum kvt_status compare_events(struct kvt_extras *x, const json_t *theirs,
				      struct kvt_error *err)
{
	struct kvt_event_bag bag = { .event = NULL };
	json_t *common = kvt_event_bag_common(&x->bag);
	enum kvt_status status = common ? KVT_OK : kvt_no_memory(err, NULL);
	bool same = true;

	if (!status && !(status = kvt_event_bag_add(&bag, theirs, err)))
		status = kvt_event_bag_add(&bag, common, err);
	for (size_t i = 0; i < bag.n; i++)
		same &= bag.count[i] == 2;
	if (!status && (!same || json_array_size(theirs) != json_array_size(common)))
		x->tell->problem(x->tell->context, "differs", x->step, -1,
				 "kv_cache_events: the engine has others");
	json_decref(common);
	kvt_event_bag_free(&bag);
	return status;
}

static enum kvt_status compare(struct kvt_extras *x, const json_t *aggregated,
			       struct kvt_error *err)
{
	const json_t *stats = json_object_get(aggregated, stats_key);
	const json_t *events = json_object_get(aggregated, events_key);

	if (x->failed || x->dropped)
		return KVT_OK;
	if (stats && (json_is_null(stats) ? x->stats != NULL :
		      !x->stats || !same_stats(x->stats, stats)))
		x->tell->problem(x->tell->context, "differs", x->step, -1,
				 "kv_connector_stats: the engine has others");
	return json_is_array(events) ? compare_events(x, events, err) : KVT_OK;
}

/* ---- requests that a scheduler output has -------------------------------- */

/* Ids as keys; NULL without memory. */
static json_t *set_of(const json_t *ids)
{
	json_t *set = json_object(), *id;
	size_t i;

	json_array_foreach((json_t *)ids, i, id)
		if (set && json_object_set_new(set, json_string_value(id), json_true())) {
			json_decref(set);
			set = NULL;
		}
	return set;
}

static enum kvt_status tell_requests(struct kvt_extras *x, const json_t *output,
				     struct kvt_error *err)
{
	const json_t *cached = json_object_get(output, "scheduled_cached_reqs");
	const json_t *ids = json_object_get(cached, "req_ids");
	const json_t *blocks = json_object_get(cached, "new_block_ids");
	json_t *resumed = set_of(json_object_get(cached, "resumed_req_ids")), *one;
	const struct kvt_extras_listener *tell = x->tell;
	size_t i, n = json_array_size(blocks);

	if (!resumed)
		return kvt_no_memory(err, NULL);
	json_array_foreach(json_object_get(output, "scheduled_new_reqs"), i, one)
		tell->request(tell->context, x->step,
			      json_string_value(json_object_get(one, "req_id")),
			      json_object_get(one, "block_ids"), false);
	/* the engine stops at the end of the shorter list */
	for (i = 0; i < json_array_size(ids) && i < n; i++) {
		const char *id = json_string_value(json_array_get(ids, i));

		tell->request(tell->context, x->step, id, json_array_get(blocks, i),
			      json_object_get(resumed, id) != NULL);
	}
	json_decref(resumed);
	return KVT_OK;
}

/* ---- a log -------------------------------------------------------------- */

enum kvt_status kvt_extras_new(struct kvt_extras **out,
			       const struct kvt_extras_listener *listener,
			       struct kvt_error *err)
{
	if (!(*out = calloc(1, sizeof(**out))))
		return kvt_no_memory(err, NULL);
	(*out)->tell = listener;
	(*out)->step = -1;
	return KVT_OK;
}

void kvt_extras_free(struct kvt_extras *x)
{
	if (!x)
		return;
	clear(x);
	free(x);
}

enum kvt_status kvt_extras_take(struct kvt_extras *x,
				const struct kvt_worker_event *event,
				struct kvt_error *err)
{
	enum kvt_status status;

	if (event->kind == KVT_EVENT_HEAD)
		return KVT_OK;
	if (event->step < x->step)
		return kvt_fail(err, KVT_BAD_INPUT, "steps are not in ascending order");
	if (event->step != x->step) {
		if ((status = tell_step(x, err)))
			return status;
		clear(x);
		x->step = event->step;
		x->dropped = false;
	}
	x->dropped |= event->kind == KVT_EVENT_NO_OUTPUT;
	switch (event->kind) {
	case KVT_EVENT_WORKER:
		return take_worker(x, event, err);
	case KVT_EVENT_SCHEDULED:
		return tell_requests(x, json_object_get(event->json, "scheduler_output"),
				     err);
	case KVT_EVENT_AGGREGATED:
		if ((status = tell_step(x, err)))
			return status;
		return compare(x, json_object_get(event->json, "aggregated"), err);
	case KVT_EVENT_HEAD:
	case KVT_EVENT_NO_OUTPUT:
		break;
	}
	return KVT_OK;
}

enum kvt_status kvt_extras_end(struct kvt_extras *x, struct kvt_error *err)
{
	return tell_step(x, err);
}
