/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_out.c - small helpers over jansson that remember a failure
 *
 * What could not be put in, for want of memory, is told once, by json_print(): so who
 * builds an object asks nothing.  All output is ASCII, and text that is not UTF-8, a
 * name of a file say, has '?' for each such byte.  Numbers that are not finite are null.
 */
#include "print/out/json_out.h"
#include "print/out/text_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_start(struct json_out *out)
{
	*out = (struct json_out){ .root = json_object() };
	json_put_int(out, out->root, "kvtool_json", 2);
}

void json_put(struct json_out *out, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		out->failed = true;
}

void json_append(struct json_out *out, json_t *array, json_t *value)
{
	if (json_array_append_new(array, value))
		out->failed = true;
}

static json_t *text_value(const char *text)
{
	json_t *value = json_string(text);
	char *ascii;

	/* a file name may be any bytes */
	if (value || !(ascii = strdup(text)))
		return value;
	for (char *p = ascii; *p; p++)
		if (*p & 0x80)
			*p = '?';
	value = json_string(ascii);
	free(ascii);
	return value;
}

void json_put_int(struct json_out *out, json_t *object, const char *key, int64_t n)
{
	json_put(out, object, key, json_integer(n));
}

void json_put_bool(struct json_out *out, json_t *object, const char *key, bool b)
{
	json_put(out, object, key, json_boolean(b));
}

void json_put_text(struct json_out *out, json_t *object, const char *key,
		   const char *text)
{
	json_put(out, object, key, text ? text_value(text) : json_null());
}

void json_put_known(struct json_out *out, json_t *object, const char *key, int64_t n,
		    bool known)
{
	json_put(out, object, key, known ? json_integer(n) : json_null());
}

void json_put_real(struct json_out *out, json_t *object, const char *key, double x)
{
	json_put(out, object, key, isfinite(x) ? json_real(x) : json_null());
}

void json_put_old(struct json_out *out, json_t *object, const char *old, const char *key)
{
	json_put(out, object, old, json_incref(json_object_get(object, key)));
}

json_t *json_put_object(struct json_out *out, json_t *object, const char *key)
{
	json_t *value = json_object();

	json_put(out, object, key, value);
	return value;
}

json_t *json_put_array(struct json_out *out, json_t *object, const char *key)
{
	json_t *value = json_array();

	json_put(out, object, key, value);
	return value;
}

json_t *json_put_if(struct json_out *out, json_t *object, const char *key, bool said)
{
	json_t *value = said ? json_object() : json_null();

	json_put(out, object, key, value);
	return said ? value : NULL;
}

void json_put_ints(struct json_out *out, json_t *object, const char *key, int64_t n,
		   const int64_t *at)
{
	json_t *list = json_put_array(out, object, key);

	for (int64_t i = 0; i < n; i++)
		json_append_int(out, list, at[i]);
}

void json_put_axes(struct json_out *out, json_t *object, const char *key,
		   const int64_t n[KVT_NAXES])
{
	json_t *axes = json_put_object(out, object, key);

	for (int a = 0; a < KVT_NAXES; a++)
		json_put_int(out, axes, (char[]){ kvt_axis_letter(a), '\0' }, n[a]);
}

json_t *json_append_object(struct json_out *out, json_t *array)
{
	json_t *value = json_object();

	json_append(out, array, value);
	return value;
}

void json_append_int(struct json_out *out, json_t *array, int64_t n)
{
	json_append(out, array, json_integer(n));
}

void json_append_real(struct json_out *out, json_t *array, double x)
{
	json_append(out, array, isfinite(x) ? json_real(x) : json_null());
}

double json_rounded(double x)
{
	char text[32];

	if (!isfinite(x))
		return x;
	snprintf(text, sizeof(text), "%.6g", x);
	return strtod(text, NULL);
}

void json_append_text(struct json_out *out, json_t *array, const char *text)
{
	json_append(out, array, text_value(text));
}

/* jansson leaves DEL as it is. */
static int write_ascii(const char *text, size_t n, void *stream)
{
	for (size_t i = 0; i < n; i++)
		if (text[i] == 0x7f)
			fputs("\\u007f", stream);
		else
			putc(text[i], stream);
	return 0;
}

/* Nothing in it acts on a terminal. */
static int dump(const json_t *value, FILE *stream, size_t flags)
{
	return json_dump_callback(value, write_ascii, stream, flags | JSON_ENSURE_ASCII);
}

char *json_quoted(const char *text)
{
	json_t *value = text_value(text);
	struct text_output quoted = { .path = NULL };
	FILE *stream = text_output_open(&quoted);
	bool ok = value && stream && !dump(value, stream, JSON_ENCODE_ANY);

	json_decref(value);
	if (stream && text_output_close(stream) && ok)
		return quoted.text;
	free(quoted.text);
	return NULL;
}

enum kvt_status json_print(struct json_out *out, bool one_line, struct kvt_error *err)
{
	/* 15 digits: every float exactly, and 0.1 stays 0.1 */
	size_t flags = JSON_REAL_PRECISION(15) |
		       (one_line ? JSON_COMPACT : JSON_INDENT(2));
	bool failed = out->failed || dump(out->root, stdout, flags);

	json_free(out);
	if (failed)
		return kvt_no_memory(err, NULL);
	putchar('\n');
	return KVT_OK;
}

void json_free(struct json_out *out)
{
	json_decref(out->root);
	*out = (struct json_out){ NULL, false };
}
