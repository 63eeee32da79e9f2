/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - kv_connector_stats and kv_cache_events of workers, put together
 *
 *	{"class": "NixlKVConnectorStats", "data": {"transfer_duration": [..], ..}}
 *	{"class": .., "rule": "numbers", "data": {"a": 1}}
 *
 * How stats of two workers become one is the rule of their class, as the aggregate() of
 * that class in vLLM has it: a row of classes[], by "rule" where a log gives one.
 */
#include "formats/log/stats.h"
#include "formats/parse/json.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

/* ---- classes ------------------------------------------------------------ */

enum rule {
	LISTS,			/* a list for each key, none may be new */
	OPEN_LISTS,		/* the same, and new ones are added */
	NUMBERS,		/* a number for each key */
	METRICS,		/* counters, gauges and histograms by labels */
	SEVERAL,		/* stats of several connectors, by their ids */
	NO_RULE,		/* the base class: it cannot be added to */
};

enum { MAX_KEYS = 10 };

static const struct class {
	const char *name, *rule_name;	/* "rule" of other classes */
	enum rule rule;
	int ntold;
	/* of LISTS; without any entry in the first 'ntold' there is nothing to add */
	const char *key[MAX_KEYS];
} classes[] = {
	{ "NixlKVConnectorStats", "nixl", LISTS, 6,
	  { "transfer_duration", "num_failed_transfers", "num_failed_notifications",
	    "num_failed_handshakes", "num_kv_expired_reqs",
	    "num_notifications_after_expiry", "post_duration", "bytes_transferred",
	    "num_descriptors" } },
	{ "MooncakeKVConnectorStats", "mooncake", LISTS, 4,
	  { "transfer_duration", "num_failed_transfers", "num_failed_recvs",
	    "num_kv_expired_reqs", "bytes_transferred", "num_descriptors" } },
	{ "MooncakeStoreConnectorStats", "lists", OPEN_LISTS, 0, { NULL } },
	{ "OffloadingConnectorStats", "offloading", METRICS, 0, { NULL } },
	{ "MultiKVConnectorStats", "multi", SEVERAL, 0, { NULL } },
	{ "KVConnectorStats", "none", NO_RULE, 0, { NULL } },
	{ "", "numbers", NUMBERS, 0, { NULL } },
};
enum { NCLASSES = sizeof(classes) / sizeof(classes[0]) };

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

/* By "rule" where there is one, so that subclasses of others can be told. */
static const struct class *class_of(const json_t *stats)
{
	const char *rule = text_of(stats, "rule"), *name = text_of(stats, "class");

	for (int i = 0; i < NCLASSES; i++)
		if (*rule ? !strcmp(classes[i].rule_name, rule) :
		    *name && !strcmp(classes[i].name, name))
			return &classes[i];
	return NULL;
}

/* isinstance(): a class, or one of "bases". */
static bool is_a(const json_t *stats, const char *name)
{
	const json_t *bases = json_object_get(stats, "bases"), *base;
	size_t i;

	if (!strcmp(text_of(stats, "class"), name))
		return true;
	json_array_foreach((json_t *)bases, i, base)
		if (json_is_string(base) && !strcmp(json_string_value(base), name))
			return true;
	return false;
}

/* ---- is it one? --------------------------------------------------------- */

static bool is_list(const json_t *value)
{
	return json_is_array(value);
}

static bool is_number(const json_t *value)
{
	return json_is_number(value);
}

/* [[["a", "b"], 3], ...]: labels and what they have. */
static bool is_by_labels(const json_t *value)
{
	const json_t *pair;
	size_t i;

	if (!json_is_array(value))
		return false;
	json_array_foreach((json_t *)value, i, pair)
		if (json_array_size(pair) != 2 || !json_is_array(json_array_get(pair, 0)))
			return false;
	return true;
}

static bool has_only(const json_t *object, bool (*fits)(const json_t *value))
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return false;
	json_object_foreach((json_t *)object, key, value)
		if (!fits(value))
			return false;
	return true;
}

static bool is_text(const json_t *value)
{
	return json_is_string(value);
}

static bool is_any(const json_t *value)
{
	(void)value;
	return true;
}

static bool is_formed(const json_t *data, enum rule rule)
{
	switch (rule) {
	case LISTS:
	case OPEN_LISTS:
		return has_only(data, is_list);
	case NUMBERS:
		return has_only(data, is_number);
	case METRICS:
		if (json_is_object(data) && !json_object_get(data, "data"))
			return true;	/* then it is empty, whatever it has */
		return has_only(json_object_get(data, "types"), is_text) &&
		       has_only(json_object_get(data, "data"), is_by_labels);
	case SEVERAL:
	case NO_RULE:
		return has_only(data, is_any);
	}
	return false;
}

enum kvt_status kvt_stats_check(const json_t *stats, const char *name,
				struct kvt_error *err)
{
	const json_t *data = json_object_get(stats, "data");
	const struct class *class;
	const char *key;
	json_t *value;

	if (!json_is_object(stats) || !*text_of(stats, "class"))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: kv_connector_stats has no class", name);
	if (!(class = class_of(stats)))
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: it is not known how %.60s adds up; a rule says: nixl, mooncake, lists, numbers, offloading, multi or none",
				name, text_of(stats, "class"));
	if (!is_formed(data, class->rule))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: data of %.60s is not what such an object has", name,
				text_of(stats, "class"));
	if (class->rule != SEVERAL)
		return KVT_OK;
	json_object_foreach((json_t *)data, key, value) {
		enum kvt_status status = kvt_stats_check(value, name, err);

		if (status)
			return status;
	}
	return KVT_OK;
}

/* ---- empty objects ------------------------------------------------------ */

static bool fill(json_t *stats)
{
	const struct class *class = class_of(stats);
	json_t *data = json_object_get(stats, "data"), *value;
	const char *key;
	bool good = true;

	if (class->rule == LISTS && !json_object_size(data))
		for (int i = 0; i < MAX_KEYS && class->key[i]; i++)
			good &= !json_object_set_new(data, class->key[i], json_array());
	if (class->rule == METRICS && !json_object_get(data, "data")) {
		json_object_clear(data);
		good &= !json_object_set_new(data, "types", json_object()) &&
			!json_object_set_new(data, "data", json_object());
	}
	if (class->rule == SEVERAL)
		json_object_foreach(data, key, value)
			good &= fill(value);
	return good;
}

json_t *kvt_stats_copy(const json_t *stats)
{
	json_t *copy = json_deep_copy(stats);

	if (copy && fill(copy))
		return copy;
	json_decref(copy);
	return NULL;
}

/* ---- sums --------------------------------------------------------------- */

static enum kvt_status raises(struct kvt_error *err, const char *error, const char *key)
{
	return kvt_fail(err, KVT_MISMATCH, "%s%s%.60s", error, *key ? ": " : "", key);
}

/* Whole numbers stay whole; NULL: no memory, or it does not fit in 64 bits. */
static json_t *sum(const json_t *a, const json_t *b)
{
	json_int_t n;

	if (!json_is_integer(a) || !json_is_integer(b))
		return json_real(json_number_value(a) + json_number_value(b));
	return __builtin_add_overflow(json_integer_value(a), json_integer_value(b), &n) ?
	       NULL : json_integer(n);
}

static enum kvt_status add_numbers(json_t *into, const json_t *from,
				   struct kvt_error *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)from, key, value) {
		json_t *old = json_object_get(into, key);
		json_t *new = old ? sum(old, value) : json_deep_copy(value);

		if (json_object_set_new(into, key, new))
			return raises(err, "a sum that does not fit in 64 bits", key);
	}
	return KVT_OK;
}

static enum kvt_status extend(json_t *list, const json_t *more, struct kvt_error *err)
{
	json_t *copy = json_deep_copy(more);
	int failed = !copy || json_array_extend(list, copy);

	json_decref(copy);
	return failed ? kvt_no_memory(err, NULL) : KVT_OK;
}

/* KVT_MISMATCH: a key that the engine looks at is missing. */
static enum kvt_status is_empty(bool *empty, const json_t *data,
				const struct class *class, struct kvt_error *err)
{
	*empty = true;
	for (int i = 0; *empty && i < class->ntold; i++) {
		const json_t *list = json_object_get(data, class->key[i]);

		if (!list)
			return raises(err, "KeyError", class->key[i]);
		*empty = !json_array_size(list);
	}
	return KVT_OK;
}

static enum kvt_status add_lists(json_t *into, const json_t *from,
				 const struct class *class, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	const char *key;
	json_t *value;
	bool empty = !json_object_size(from);

	/* made of nothing it has all keys, and nothing in them */
	if (!empty && class->rule == LISTS)
		status = is_empty(&empty, from, class, err);
	if (status || empty)
		return status;
	json_object_foreach((json_t *)from, key, value) {
		json_t *list = json_object_get(into, key);

		if (!list && class->rule == LISTS)
			return raises(err, "KeyError", key);
		if (!list && json_object_set_new(into, key, json_array()))
			return kvt_no_memory(err, NULL);
		if ((status = extend(json_object_get(into, key), value, err)))
			return status;
	}
	return KVT_OK;
}

/* The pair of these labels in a list of them; NULL: none. */
static json_t *find_labels(const json_t *pairs, const json_t *labels)
{
	json_t *pair;
	size_t i;

	json_array_foreach((json_t *)pairs, i, pair)
		if (json_equal(json_array_get(pair, 0), labels))
			return pair;
	return NULL;
}

static enum kvt_status add_metric(json_t *pairs, const json_t *pair, const char *type,
				  const char *key, struct kvt_error *err)
{
	json_t *value = json_array_get(pair, 1);
	json_t *old = find_labels(pairs, json_array_get(pair, 0)), *new;
	bool histogram = !strcmp(type, "histogram"), counter = !strcmp(type, "counter");

	if (!histogram && !counter && strcmp(type, "gauge"))
		return raises(err, "AssertionError: unknown metric type of", key);
	if (histogram ? !json_is_array(value) : !json_is_number(value))
		return raises(err, "AssertionError", key);
	if (!old) {
		new = json_deep_copy(pair);
		return json_array_append_new(pairs, new) ?
		       kvt_no_memory(err, NULL) : KVT_OK;
	}
	if (histogram)
		return json_is_array(json_array_get(old, 1)) ?
		       extend(json_array_get(old, 1), value, err) :
		       raises(err, "AssertionError", key);
	if (counter && !json_is_number(json_array_get(old, 1)))
		return raises(err, "TypeError", key);
	new = counter ? sum(json_array_get(old, 1), value) : json_deep_copy(value);
	return json_array_set_new(old, 1, new) ?
	       raises(err, "a sum that does not fit in 64 bits", key) : KVT_OK;
}

static enum kvt_status add_metrics(json_t *into, const json_t *from,
				   struct kvt_error *err)
{
	json_t *types = json_object_get(into, "types"), *values, *value, *pair;
	json_t *data = json_object_get(into, "data");
	enum kvt_status status;
	const char *key;
	size_t i;

	json_object_foreach(json_object_get(from, "data"), key, value) {
		json_t *type = json_object_get(json_object_get(from, "types"), key);

		if (!type)
			return raises(err, "AssertionError: unknown offloading stats key",
				      key);
		if ((!json_object_get(types, key) && json_object_set(types, key, type)) ||
		    (!json_object_get(data, key) &&
		     json_object_set_new(data, key, json_array())))
			return kvt_no_memory(err, NULL);
		values = json_object_get(data, key);
		json_array_foreach(value, i, pair)
			if ((status = add_metric(values, pair, json_string_value(type),
						 key, err)))
				return status;
	}
	return KVT_OK;
}

static enum kvt_status add_data(json_t *first, const json_t *later,
				struct kvt_error *err);

static enum kvt_status add_several(json_t *into, const json_t *from,
				   struct kvt_error *err)
{
	enum kvt_status status;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)from, key, value) {
		json_t *old = json_object_get(into, key);

		if (!old) {
			if (json_object_set_new(into, key, kvt_stats_copy(value)))
				return kvt_no_memory(err, NULL);
			continue;
		}
		if (!is_a(value, text_of(old, "class")))
			return raises(err, "AssertionError", key);
		if ((status = add_data(old, value, err)))
			return status;
	}
	return KVT_OK;
}

/* The first's class says how. */
static enum kvt_status add_data(json_t *first, const json_t *later, struct kvt_error *err)
{
	json_t *into = json_object_get(first, "data");
	const json_t *from = json_object_get(later, "data");
	const struct class *class = class_of(first), *other = class_of(later);

	if (class->rule == NO_RULE)
		return raises(err, "NotImplementedError", "");
	if (class->rule != other->rule)
		return kvt_fail(err, KVT_MISMATCH, "%.60s and %.60s add up differently",
				text_of(first, "class"), text_of(later, "class"));
	switch (class->rule) {
	case LISTS:
	case OPEN_LISTS:
		return add_lists(into, from, class, err);
	case NUMBERS:
		return add_numbers(into, from, err);
	case METRICS:
		return add_metrics(into, from, err);
	case SEVERAL:
		return add_several(into, from, err);
	case NO_RULE:
		break;
	}
	return KVT_OK;
}

enum kvt_status kvt_stats_add(json_t *first, const json_t *later, struct kvt_error *err)
{
	if (!is_a(first, text_of(later, "class")))
		return kvt_fail(err, KVT_MISMATCH,
				"AssertionError: the first worker has %.60s, which is no %.60s", text_of(first, "class"), text_of(later, "class"));
	return add_data(first, later, err);
}

/* ---- events ------------------------------------------------------------- */

/* The same for equal events; to be freed, NULL without memory. */
static char *event_text(const json_t *event)
{
	json_t *copy = json_copy((json_t *)event);
	const char *key;
	json_t *value;
	void *next;
	char *text = NULL;

	if (!copy)
		return NULL;
	json_object_foreach_safe(copy, next, key, value)
		if (json_is_null(value))
			json_object_del(copy, key);
	text = kvt_json_dump(copy, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(copy);
	return text;
}

static enum kvt_status make_room(struct kvt_event_bag *bag, struct kvt_error *err)
{
	if ((!bag->event && !(bag->event = json_array())) ||
	    (!bag->index && !(bag->index = json_object())))
		return kvt_no_memory(err, NULL);
	return KVT_GROW(&bag->count, bag->n) ? KVT_OK : kvt_no_memory(err, NULL);
}

static enum kvt_status add_event(struct kvt_event_bag *bag, const json_t *event,
				 const char *text, struct kvt_error *err)
{
	enum kvt_status status = make_room(bag, err);
	const json_t *at = json_object_get(bag->index, text);

	if (status)
		return status;
	if (at) {
		bag->count[json_integer_value(at)]++;
		return KVT_OK;
	}
	if (json_object_set_new(bag->index, text, json_integer((json_int_t)bag->n)) ||
	    json_array_append_new(bag->event, json_deep_copy(event)))
		return kvt_no_memory(err, NULL);
	bag->count[bag->n++] = 1;
	return KVT_OK;
}

enum kvt_status kvt_event_bag_add(struct kvt_event_bag *bag, const json_t *events,
				  struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	json_t *event;
	size_t i;

	json_array_foreach((json_t *)events, i, event) {
		char *text = event_text(event);

		status = text ? add_event(bag, event, text, err) :
				kvt_no_memory(err, NULL);
		free(text);
		if (status)
			return status;
	}
	bag->workers++;
	return KVT_OK;
}

json_t *kvt_event_bag_common(const struct kvt_event_bag *bag)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < bag->n; i++)
		if (bag->count[i] == bag->workers &&
		    json_array_append(list, json_array_get(bag->event, i))) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

void kvt_event_bag_free(struct kvt_event_bag *bag)
{
	json_decref(bag->event);
	json_decref(bag->index);
	free(bag->count);
	*bag = (struct kvt_event_bag){ .event = NULL };
}
