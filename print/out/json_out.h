/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_out.h - the objects that --json prints
 *
 * Keys are snake_case and come in the order they were put.  Fields are only
 * ever added; kvtool-json(5) has all of them.
 */
#ifndef KVT_JSON_OUT_H
#define KVT_JSON_OUT_H

#include <jansson.h>

#include "lib/kvt/kvt.h"

/*
 * An object that begins with "kvtool_json": 2.  NULL when out of memory, as
 * with everything from jansson; putting NULL somewhere is noticed by
 * json_print() through 'failed'.
 */
struct json_out {
	json_t *root;
	bool failed;
};
void json_start(struct json_out *out);

/* Take over 'value'; NULL means out of memory. */
void json_put(struct json_out *out, json_t *object, const char *key, json_t *value);
void json_append(struct json_out *out, json_t *array, json_t *value);

void json_put_int(struct json_out *out, json_t *object, const char *key, int64_t n);
void json_put_bool(struct json_out *out, json_t *object, const char *key, bool b);
/* NULL is null; bytes that are no UTF-8 become '?'. */
void json_put_text(struct json_out *out, json_t *object, const char *key,
		   const char *text);
/* null if it is not known. */
void json_put_known(struct json_out *out, json_t *object, const char *key, int64_t n,
		    bool known);
/* null if the number is not finite: JSON has no other word for it. */
void json_put_real(struct json_out *out, json_t *object, const char *key, double x);

/*
 * The value of 'key' once more, under the name that the key had in a version before:
 * programs that ask for the old name still find it.  kvtool-json(5) lists the names.
 */
void json_put_old(struct json_out *out, json_t *object, const char *old, const char *key);

/* An empty object or array, already in its place. */
json_t *json_put_object(struct json_out *out, json_t *object, const char *key);
json_t *json_put_array(struct json_out *out, json_t *object, const char *key);
/* The object; where there is nothing to say, null in its place, and NULL. */
json_t *json_put_if(struct json_out *out, json_t *object, const char *key, bool said);
/* An array of numbers; an object with a number for the letter of each axis. */
void json_put_ints(struct json_out *out, json_t *object, const char *key, int64_t n,
		   const int64_t *at);
void json_put_axes(struct json_out *out, json_t *object, const char *key,
		   const int64_t n[KVT_NAXES]);

/* The same in an array. */
json_t *json_append_object(struct json_out *out, json_t *array);
void json_append_int(struct json_out *out, json_t *array, int64_t n);
/* null if it is not finite */
void json_append_real(struct json_out *out, json_t *array, double x);
void json_append_text(struct json_out *out, json_t *array, const char *text);

/* To six digits: more than a colour shows, and as many as a person reads. */
double json_rounded(double x);

/* A text in quotes, ASCII only, to be freed; NULL when out of memory. */
char *json_quoted(const char *text);

/*
 * Print on standard output, and free: indented, or as one line of a stream; in ASCII,
 * the rest as \uXXXX.  Write errors are left for the end of main() to find.
 */
KVT_MUST_CHECK enum kvt_status
json_print(struct json_out *out, bool one_line, struct kvt_error *err);
/* What was not printed; of what was, or never started, nothing is left to free. */
void json_free(struct json_out *out);

#endif
