/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - kv_connector_stats and kv_cache_events of workers, put together
 *
 * In a log both are JSON whatever their class; kvtool-workers(1) has the form.  What
 * comes out is JSON again.
 */
#ifndef KVT_LOG_STATS_H
#define KVT_LOG_STATS_H

#include <jansson.h>

#include "lib/kvt/kvt.h"

/*
 * Is this an object of a class whose rule is known?  KVT_BAD_INPUT for a form that no
 * such object has, KVT_UNSUPPORTED for another class.  'name' is for the message.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stats_check(const json_t *stats, const char *name, struct kvt_error *err);

/* A copy of what was checked, with the keys that an empty object has; NULL: no memory. */
json_t *kvt_stats_copy(const json_t *stats);

/*
 * Adds a later worker's stats to those of the first, a copy.  KVT_MISMATCH where
 * vLLM raises an error, which is in 'err'; 'first' is of no use then.
 */
KVT_MUST_CHECK enum kvt_status
kvt_stats_add(json_t *first, const json_t *later, struct kvt_error *err);

/*
 * Events of a step: those of all workers, and how many there are of each.  Two are one
 * if all fields are equal; a key that is null is a key that is missing.  Free with
 * kvt_event_bag_free().
 */
struct kvt_event_bag {
	json_t *event;			/* array; each once, in the order of the log */
	json_t *index;			/* where in it an event is, by its text */
	int64_t *count;
	size_t n;
	int64_t workers;		/* that have a container */
};
KVT_MUST_CHECK enum kvt_status
kvt_event_bag_add(struct kvt_event_bag *bag, const json_t *events, struct kvt_error *err);
/* Those of which there are as many as workers: a new array, NULL without memory. */
json_t *kvt_event_bag_common(const struct kvt_event_bag *bag);
void kvt_event_bag_free(struct kvt_event_bag *bag);

#endif
