/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - typed access to foreign JSON */
#ifndef KVT_JSON_READ_H
#define KVT_JSON_READ_H

#include <jansson.h>

#include "lib/kvt/kvt.h"

/* json_loadb() without duplicate keys, and NULL where memory was short in between. */
json_t *kvt_json_load(const char *text, size_t nbytes, size_t flags, json_error_t *why);

/* json_dumps(), and NULL where memory was short in between; to be freed. */
char *kvt_json_dump(const json_t *json, size_t flags);

/*
 * Parses exactly 'nbytes' of text into an object.  Malformed text, duplicate
 * keys and nesting beyond 64 levels are KVT_BAD_INPUT.  'name' is for messages
 * of this and the calls below.
 */
KVT_MUST_CHECK enum kvt_status
kvt_json_parse(json_t **out, const char *text, size_t nbytes, const char *name,
	       struct kvt_error *err);

/*
 * The same of text that Python's json wrote: NaN, Infinity and -Infinity are values,
 * too, and stand as strings in what comes out.
 */
KVT_MUST_CHECK enum kvt_status
kvt_json_parse_python(json_t **out, const char *text, size_t nbytes, const char *name,
		      struct kvt_error *err);

/*
 * An object, and what is said when something in it is wrong.  All objects of a text have
 * one status, in which the first error stays: after it nothing is read, outputs are left
 * as they are, and no other complaint is heard.  The calls below return it.  Who has the
 * text looks at it at the end, anybody before what was read becomes a length or an index.
 */
struct kvt_json {
	const json_t *object;		/* borrowed; NULL: absent, has no keys */
	const char *name;
	struct kvt_error *err;
	enum kvt_status *status;
};

/* "NAME: ..." as KVT_BAD_INPUT, or as the status given; "NAME: out of memory". */
enum kvt_status kvt_json_bad(const struct kvt_json *in, const char *format, ...)
			     KVT_PRINTF(2, 3);
enum kvt_status kvt_json_refuse(const struct kvt_json *in, enum kvt_status status,
				const char *format, ...) KVT_PRINTF(3, 4);
enum kvt_status kvt_json_no_memory(const struct kvt_json *in);

/*
 * The value of a key.  An absent key, or null, leaves the output as it is; a
 * wrong type or a number outside [min, max] is KVT_BAD_INPUT.
 */
enum kvt_status kvt_json_int(int64_t *out, const struct kvt_json *in, const char *key,
			     int64_t min, int64_t max);
enum kvt_status kvt_json_string(const char **out, const struct kvt_json *in,
				const char *key);
enum kvt_status kvt_json_array(const json_t **out, const struct kvt_json *in,
			       const char *key);
/* Without keys if it is absent. */
enum kvt_status kvt_json_object(struct kvt_json *out, const struct kvt_json *in,
				const char *key);
/* The same of another object of the text. */
struct kvt_json kvt_json_of(const struct kvt_json *in, const json_t *object);

/* The i-th entry of an array found under 'key'. */
enum kvt_status kvt_json_int_at(int64_t *out, const struct kvt_json *in, const char *key,
				const json_t *array, size_t i, int64_t min, int64_t max);
enum kvt_status kvt_json_string_at(const char **out, const struct kvt_json *in,
				   const char *key, const json_t *array, size_t i);

/* A copy of a string value; an absent key leaves *out as it is. */
enum kvt_status kvt_json_copy_string(char **out, const struct kvt_json *in,
				     const char *key);

/* Has the object no key but those of the list, which NULL ends?  Else KVT_BAD_INPUT. */
enum kvt_status kvt_json_only(const struct kvt_json *in, const char *const *known);

/*
 * Is one of its keys a slip for a key of the list, which NULL ends?  KVT_BAD_INPUT then;
 * other keys may be anybody's.  A slip differs in case or by a dash; in words of six
 * letters or more also by a letter too many, too few, another, or two exchanged.
 */
enum kvt_status kvt_json_slips(const struct kvt_json *in, const char *const *known);

#endif
