/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_events.c - recordings of what engines publish of their prefix caches
 *
 * A file is values one after the other, in MessagePack as they were sent, or as lines of
 * JSON.  Each is a batch, as its publisher made it, or one with what was around it:
 *
 *	[time, [event, ...]]  [time, [event, ...], rank]
 *	[sequence, batch]  [sequence, topic, batch]	contrib/kvtool_events.py
 *	{"seq": .., "topic": .., "batch": batch}  {"ts": .., "events": [event, ...]}
 *
 * An event is a map with its type and fields, since vLLM 0.24 and SGLang 0.5.23; before
 * that an array of its type and values, of which only the last may be missing.  Fields
 * that are not known here are of no matter: both engines add some.
 */
#include "formats/events/cache_events.h"
#include "formats/events/msgpack.h"
#include "formats/parse/json.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Their order is that of an event which is an array. */
static const char *const stored_fields[] = {
	"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
	"medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
	"kv_cache_spec_sliding_window", "locality", "ownership", NULL,
};
static const char *const removed_fields[] = {
	"block_hashes", "medium", "group_idx", "locality", "ownership", NULL,
};
static const char *const cleared_fields[] = { NULL };

static const struct type {
	const char *name;
	enum kvt_cache_event_kind kind;
	const char *const *field;
} types[] = {
	{ "BlockStored", KVT_CACHE_STORED, stored_fields },
	{ "BlockRemoved", KVT_CACHE_REMOVED, removed_fields },
	{ "AllBlocksCleared", KVT_CACHE_CLEARED, cleared_fields },
};

struct reading {
	const char *name, *at;		/* of the file; "line 3", "byte 120" */
	kvt_cache_event_fn *take;
	void *context;
	struct kvt_error *err;
	struct kvt_cache_event event;
	struct kvt_block_id *block;
	int64_t *token;
	size_t block_room, token_room;
};

static enum kvt_status bad(const struct reading *r, const char *what)
{
	return kvt_fail(r->err, KVT_BAD_INPUT, "%.250s: %s: %s", r->name, r->at, what);
}

static enum kvt_status bad_field(const struct reading *r, const char *field)
{
	return kvt_fail(r->err, KVT_BAD_INPUT,
			"%.250s: %s: event %lld: %s is missing, or is not what engines publish there",
			r->name, r->at, LL(r->event.number), field);
}

/* ---- fields ------------------------------------------------------------- */

struct fields {
	const json_t *event;		/* a map, or an array */
	const char *const *name;
};

/* NULL: it is not there, or null. */
static const json_t *field(const struct fields *in, const char *name)
{
	const json_t *value = NULL;

	if (json_is_object(in->event))
		value = json_object_get(in->event, name);
	else
		for (size_t i = 0; in->name[i]; i++)
			if (!strcmp(in->name[i], name))
				value = json_array_get(in->event, i + 1);
	return json_is_null(value) ? NULL : value;
}

static const char *text_field(const struct fields *in, const char *name)
{
	const char *text = json_string_value(field(in, name));

	return text ? text : "";
}

/* False if there is something else than a number of 0 or more. */
static bool count_field(int64_t *out, const struct fields *in, const char *name)
{
	const json_t *value = field(in, name);

	if (value)
		*out = json_integer_value(value);
	return !value || (json_is_integer(value) && *out >= 0);
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void id_of_number(struct kvt_block_id *out, uint64_t u)
{
	out->nbytes = 8;
	for (int i = 0; i < 8; i++)
		out->bytes[i] = (uint8_t)(u >> (56 - 8 * i));
}

/* A number, or a text: decimal where a number was too large, else bytes in hex. */
static bool block_id(struct kvt_block_id *out, const json_t *value)
{
	const char *s = json_string_value(value);
	size_t n = s ? strlen(s) : 0;
	unsigned long long u;
	char *end;

	*out = (struct kvt_block_id){ 0 };
	if (json_is_integer(value)) {
		id_of_number(out, (uint64_t)json_integer_value(value));
		return true;
	}
	if (n == 19 || n == 20) {
		errno = 0;
		u = strtoull(s, &end, 10);
		id_of_number(out, u);
		return isdigit((unsigned char)*s) && !*end && !errno;
	}
	if (n != 16 && n != 32 && n != 64)
		return false;
	out->nbytes = (uint8_t)(n / 2);
	for (size_t i = 0; i < n; i += 2) {
		if (hex(s[i]) < 0 || hex(s[i + 1]) < 0)
			return false;
		out->bytes[i / 2] = (uint8_t)(hex(s[i]) << 4 | hex(s[i + 1]));
	}
	return true;
}

/* ---- an event ----------------------------------------------------------- */

static enum kvt_status grow(void **list, size_t *room, size_t n, size_t each,
			    const struct reading *r)
{
	void *more;

	if (n <= *room)
		return KVT_OK;
	if (!(more = realloc(*list, n * each)))
		return kvt_no_memory(r->err, r->name);
	*list = more;
	*room = n;
	return KVT_OK;
}

static enum kvt_status read_blocks(struct reading *r, const struct fields *in)
{
	const json_t *list = field(in, "block_hashes");
	size_t n = json_array_size(list);
	enum kvt_status status;
	void *blocks = r->block;

	if (!json_is_array(list))
		return bad_field(r, "block_hashes");
	if ((status = grow(&blocks, &r->block_room, n, sizeof(*r->block), r)))
		return status;
	r->event.block = r->block = blocks;
	r->event.nblocks = n;
	for (size_t i = 0; i < n; i++)
		if (!block_id(&r->block[i], json_array_get(list, i)))
			return bad_field(r, "block_hashes");
	return KVT_OK;
}

/* Each is a number; or two, of which the second is the first of the next. */
static enum kvt_status read_tokens(struct reading *r, const struct fields *in)
{
	const json_t *list = field(in, "token_ids");
	size_t n = json_array_size(list);
	enum kvt_status status;
	void *tokens = r->token;

	if (!json_is_array(list))
		return bad_field(r, "token_ids");
	if ((status = grow(&tokens, &r->token_room, n, sizeof(*r->token), r)))
		return status;
	r->event.token = r->token = tokens;
	r->event.ntokens = n;
	for (size_t i = 0; i < n; i++) {
		const json_t *token = json_array_get(list, i);

		if (json_array_size(token) == 2)
			token = json_array_get(token, 0);
		if (!json_is_integer(token) || json_integer_value(token) < 0)
			return bad_field(r, "token_ids");
		r->token[i] = json_integer_value(token);
	}
	return KVT_OK;
}

/* ["cache_salt", "s1"] of vLLM since 0.31; SGLang has a field, or a map in an array. */
static const char *salt_of(const struct fields *in, const json_t *first)
{
	const json_t *metadata = json_is_array(in->event) ?
				 json_array_get(in->event, 7) :
				 json_object_get(in->event, "metadata");
	const char *salt = text_field(in, "cache_salt"), *tag;

	if (!*salt && json_is_object(metadata))
		salt = json_string_value(json_object_get(metadata, "cache_salt"));
	for (size_t i = 0; (!salt || !*salt) && i < json_array_size(first); i++) {
		const json_t *item = json_array_get(first, i);

		tag = json_string_value(json_array_get(item, 0));
		if (tag && !strcmp(tag, "cache_salt"))
			salt = json_string_value(json_array_get(item, 1));
	}
	return salt ? salt : "";
}

static enum kvt_status read_stored(struct reading *r, const struct fields *in)
{
	const json_t *parent = field(in, "parent_block_hash");
	const json_t *extra = field(in, "extra_keys");
	struct kvt_cache_event *event = &r->event;
	enum kvt_status status;

	if ((status = read_tokens(r, in)))
		return status;
	event->has_parent = parent;
	if (parent && !block_id(&event->parent, parent))
		return bad_field(r, "parent_block_hash");
	if (!field(in, "block_size") ||
	    !count_field(&event->block_size, in, "block_size") ||
	    event->block_size > INT32_MAX)
		return bad_field(r, "block_size");
	if (extra && !json_is_array(extra))
		return bad_field(r, "extra_keys");
	/* the offloading connector's placeholders say where a block is, and no more */
	event->has_tokens = event->ntokens || event->block_size;
	event->nextra = extra ? json_array_size(extra) : SIZE_MAX;
	event->has_extra = json_array_size(json_array_get(extra, 0)) > 0;
	event->lora = text_field(in, "lora_name");
	event->salt = salt_of(in, json_array_get(extra, 0));
	return KVT_OK;
}

static enum kvt_status read_event(struct reading *r, const json_t *json)
{
	const json_t *tag = json_is_array(json) ? json_array_get(json, 0) :
			    json_object_get(json, "type");
	const char *name = json_string_value(tag);
	struct kvt_cache_event *event = &r->event;
	struct fields in = { json, NULL };
	enum kvt_status status = KVT_OK;

	event->number++;
	for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i].name, name)) {
			in.name = types[i].field;
			event->kind = types[i].kind;
		}
	if (!in.name)
		return kvt_fail(r->err, KVT_BAD_INPUT,
				"%.250s: %s: event %lld is '%.60s', expected BlockStored, BlockRemoved or AllBlocksCleared",
				r->name, r->at, LL(event->number),
				name ? name : "of no type");
	event->nblocks = event->ntokens = 0;
	event->group = -1;
	event->has_parent = event->has_tokens = event->has_extra = false;
	event->lora = event->salt = "";
	event->medium = text_field(&in, "medium");
	event->owner = text_field(&in, "ownership");
	event->kind_of_cache = text_field(&in, "kv_cache_spec_kind");
	if (event->kind != KVT_CACHE_CLEARED)
		status = read_blocks(r, &in);
	if (!status && event->kind == KVT_CACHE_STORED)
		status = read_stored(r, &in);
	if (status)
		return status;
	if (!count_field(&event->group, &in, "group_idx"))
		return bad_field(r, "group_idx");
	return r->take(r->context, event, r->err);
}

/* ---- a batch, and what is around it ------------------------------------- */

static enum kvt_status read_events(struct reading *r, const json_t *list)
{
	struct kvt_cache_event *event = &r->event;
	enum kvt_status status;

	event->kind = KVT_CACHE_BATCH;
	event->batch++;
	status = r->take(r->context, event, r->err);
	for (size_t i = 0; !status && i < json_array_size(list); i++)
		status = read_event(r, json_array_get(list, i));
	return status;
}

static enum kvt_status read_batch(struct reading *r, const json_t *batch)
{
	const json_t *time = json_is_array(batch) ? json_array_get(batch, 0) :
			     json_object_get(batch, "ts");
	const json_t *list = json_is_array(batch) ? json_array_get(batch, 1) :
			     json_object_get(batch, "events");
	const json_t *rank = json_is_array(batch) ? json_array_get(batch, 2) :
			     json_object_get(batch, "data_parallel_rank");

	if (!json_is_number(time) || !json_is_array(list))
		return bad(r, "this is no batch of events: expected a time and a list");
	if (rank && !json_is_null(rank) && !json_is_integer(rank))
		return bad(r, "the rank of a batch is not a number");
	r->event.time = json_number_value(time);
	r->event.rank = json_is_integer(rank) ? json_integer_value(rank) : -1;
	return read_events(r, list);
}

/* Is it [sequence, batch]?  A batch has events second, and a batch begins with a time. */
static bool is_framed(const json_t *record)
{
	const json_t *second = json_array_get(record, 1);

	return json_is_string(second) || json_is_number(json_array_get(second, 0));
}

static enum kvt_status read_record(struct reading *r, const json_t *record)
{
	const json_t *sequence = json_object_get(record, "seq");
	const json_t *batch = json_object_get(record, "batch");
	const char *topic = json_string_value(json_object_get(record, "topic"));
	size_t n = json_array_size(record);

	if (json_is_array(record) && is_framed(record)) {
		sequence = json_array_get(record, 0);
		batch = json_array_get(record, n - 1);
		topic = n == 3 ? json_string_value(json_array_get(record, 1)) : NULL;
		if (n > 3 || !json_is_integer(sequence))
			return bad(r, "this is no batch of events with its number");
	}
	r->event.sequence = -1;
	if (json_is_integer(sequence) && json_integer_value(sequence) >= 0)
		r->event.sequence = json_integer_value(sequence);
	r->event.topic = topic ? topic : "";
	r->event.rank = -1;
	r->event.time = NAN;
	return read_batch(r, batch ? batch : record);
}

/* ---- the file ----------------------------------------------------------- */

static bool too_large(const char *s, size_t n)
{
	return n > 19 || (n == 19 && strncmp(s, "9223372036854775807", 19) > 0);
}

/*
 * The line with quotes around what is no int64_t: hashes are 64 bits, and jansson would
 * refuse them.  'out' has room for twice the line.
 */
static size_t quote_large(char *out, const char *line, size_t n)
{
	bool in_text = false;
	size_t to = 0, digits;

	for (size_t i = 0; i < n; i += digits) {
		for (digits = 0; !in_text && i + digits < n &&
		     isdigit((unsigned char)line[i + digits]);)
			digits++;
		if (too_large(line + i, digits) && (!i || !strchr("-+.", line[i - 1])) &&
		    (i + digits == n || !strchr(".eE", line[i + digits]))) {
			out[to++] = '"';
			memcpy(out + to, line + i, digits);
			to += digits;
			out[to++] = '"';
			continue;
		}
		digits = digits ? digits : 1;
		if (in_text && line[i] == '\\' && i + 1 < n)
			digits = 2;
		else if (line[i] == '"')
			in_text = !in_text;
		memcpy(out + to, line + i, digits);
		to += digits;
	}
	return to;
}

static enum kvt_status read_line(struct reading *r, const char *line, size_t n)
{
	char *copy = malloc(2 * n + 1);
	enum kvt_status status;
	json_error_t why;
	json_t *record;

	if (!copy)
		return kvt_no_memory(r->err, r->name);
	record = kvt_json_load(copy, quote_large(copy, line, n), 0, &why);
	free(copy);
	if (!record && json_error_code(&why) == json_error_out_of_memory)
		return kvt_no_memory(r->err, r->name);
	if (!record)
		return kvt_fail(r->err, KVT_BAD_INPUT, "%.250s: %s: %.150s", r->name,
				r->at, why.text);
	status = read_record(r, record);
	json_decref(record);
	return status;
}

static size_t skip_blank(const char *bytes, size_t nbytes, size_t at)
{
	while (at < nbytes && bytes[at] && strchr(" \t\r\n", bytes[at]))
		at++;
	return at;
}

static enum kvt_status read_lines(struct reading *r, const char *bytes, size_t nbytes)
{
	enum kvt_status status = KVT_OK;
	long long line = 1;
	char at[40];

	r->at = at;
	for (size_t i = 0, end; !status && i < nbytes; i = end + 1, line++) {
		const char *newline = memchr(bytes + i, '\n', nbytes - i);

		end = newline ? (size_t)(newline - bytes) : nbytes;
		snprintf(at, sizeof(at), "line %lld", line);
		if (skip_blank(bytes, end, i) < end)
			status = read_line(r, bytes + i, end - i);
	}
	return status;
}

static enum kvt_status read_msgpack(struct reading *r, const char *bytes, size_t nbytes)
{
	enum kvt_status status = KVT_OK;
	json_t *record;
	char at[40];

	r->at = at;
	for (size_t i = 0; !status && i < nbytes;) {
		snprintf(at, sizeof(at), "byte %zu", i);
		status = kvt_msgpack_read(&record, (const uint8_t *)bytes, nbytes, &i,
					  r->name, r->err);
		if (status)
			break;
		status = read_record(r, record);
		json_decref(record);
	}
	return status;
}

/* By its beginning: the first value of either form. */
static bool is_recording(const char *bytes, size_t nbytes)
{
	size_t i = skip_blank(bytes, nbytes, 0);
	uint8_t first = i < nbytes ? (uint8_t)bytes[i] : 0;

	return first == '[' || first == '{' || first == 0x92 || first == 0x93;
}

enum kvt_status kvt_cache_events_read(const char *bytes, size_t nbytes, const char *name,
				      kvt_cache_event_fn *take, void *context,
				      struct kvt_error *err)
{
	struct reading r = { .name = name, .take = take, .context = context, .err = err };
	size_t start = skip_blank(bytes, nbytes, 0);
	enum kvt_status status;

	if (!is_recording(bytes, nbytes))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%.250s: no recording of cache events: expected lines of JSON, or MessagePack as contrib/kvtool_events.py writes it",
				name);
	status = bytes[start] == '[' || bytes[start] == '{' ?
		 read_lines(&r, bytes, nbytes) : read_msgpack(&r, bytes, nbytes);
	free(r.block);
	free(r.token);
	return status;
}
