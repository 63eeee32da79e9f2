/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - typed access to foreign JSON
 *
 * jansson parses.  Before it sees the text its depth is counted, as it recurses; a key
 * that comes twice is refused; null is as if the key were not there.  Of text that
 * Python wrote NaN, Infinity and -Infinity are put between quotes first: JSON has no
 * such words.
 */
#include "formats/parse/json.h"
#include "lib/base/nearest.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

/* The parser recurses: nesting is bounded before it sees the text. */
static bool too_deep(const char *text, size_t nbytes)
{
	bool in_string = false;
	int depth = 0;

	for (size_t i = 0; i < nbytes; i++) {
		char c = text[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > MAX_DEPTH)
				return true;
		} else if (c == '}' || c == ']') {
			depth--;
		}
	}
	return false;
}

/*
 * jansson 2.14 loses a character where its buffer cannot grow, and parses or prints
 * on: so its memory comes from here.  Objects are freed by free() either way.
 */
static _Thread_local bool starved;

static void *allocate(size_t nbytes)
{
	void *p = malloc(nbytes);

	starved |= !p;
	return p;
}

static void use_allocate(void)
{
	json_set_alloc_funcs(allocate, free);
}

static void begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, use_allocate);
	starved = false;
}

char *kvt_json_dump(const json_t *json, size_t flags)
{
	char *text;

	begin();
	text = json_dumps(json, flags);
	if (!starved)
		return text;
	free(text);
	return NULL;
}

json_t *kvt_json_load(const char *text, size_t nbytes, size_t flags, json_error_t *why)
{
	json_t *json;

	begin();
	json = json_loadb(text, nbytes, flags | JSON_REJECT_DUPLICATES, why);
	if (!starved)
		return json;
	json_decref(json);
	if (why)
		why->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory;
	return NULL;
}

enum kvt_status kvt_json_parse(json_t **out, const char *text, size_t nbytes,
			       const char *name, struct kvt_error *err)
{
	json_error_t why;
	json_t *json;

	if (too_deep(text, nbytes))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: JSON is nested deeper than %d levels", name,
				MAX_DEPTH);
	json = kvt_json_load(text, nbytes, 0, &why);
	if (!json && json_error_code(&why) == json_error_out_of_memory)
		return kvt_no_memory(err, name);
	if (!json)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: line %d: %.200s", name,
				why.line, why.text);
	if (!json_is_object(json)) {
		json_decref(json);
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: JSON is not an object at the top level", name);
	}
	*out = json;
	return KVT_OK;
}

/* ---- what Python writes --------------------------------------------------- */

/* The length of such a word at 's', 0: none. */
static size_t python_word(const char *s, size_t nbytes)
{
	static const char *const words[] = { "NaN", "Infinity", "-Infinity" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (n <= nbytes && !memcmp(s, words[i], n))
			return n;
	}
	return 0;
}

/*
 * Copies the text with quotes around such words; a word within a string stays as it is.
 * Returns the length; 'out' may be NULL.
 */
static size_t quote_words(char *out, const char *text, size_t nbytes)
{
	bool in_string = false;
	size_t n = 0;

	for (size_t i = 0; i < nbytes; i++) {
		size_t word = in_string ? 0 : python_word(text + i, nbytes - i);
		size_t take = word ? word : in_string && text[i] == '\\' &&
					    i + 1 < nbytes ? 2 : 1;

		if (text[i] == '"' && take == 1)
			in_string = !in_string;
		if (word && out)
			out[n] = out[n + 1 + word] = '"';
		n += word ? 1 : 0;
		if (out)
			memcpy(out + n, text + i, take);
		n += take + (word ? 1 : 0);
		i += take - 1;
	}
	return n;
}

enum kvt_status kvt_json_parse_python(json_t **out, const char *text, size_t nbytes,
				      const char *name, struct kvt_error *err)
{
	size_t n = quote_words(NULL, text, nbytes);
	enum kvt_status status;
	char *quoted;

	if (n == nbytes)
		return kvt_json_parse(out, text, nbytes, name, err);
	if (!(quoted = malloc(n)))
		return kvt_no_memory(err, name);
	quote_words(quoted, text, nbytes);
	status = kvt_json_parse(out, quoted, n, name, err);
	free(quoted);
	return status;
}

/* ---- complaints --------------------------------------------------------- */

static enum kvt_status complain(const struct kvt_json *in, enum kvt_status status,
				const char *format, va_list args)
{
	char text[sizeof(in->err->text)];

	if (*in->status)
		return *in->status;
	vsnprintf(text, sizeof(text), format, args);
	return *in->status = kvt_fail(in->err, status, "%s: %s", in->name, text);
}

enum kvt_status kvt_json_bad(const struct kvt_json *in, const char *format, ...)
{
	enum kvt_status status;
	va_list args;

	va_start(args, format);
	status = complain(in, KVT_BAD_INPUT, format, args);
	va_end(args);
	return status;
}

enum kvt_status kvt_json_refuse(const struct kvt_json *in, enum kvt_status status,
				const char *format, ...)
{
	va_list args;

	va_start(args, format);
	status = complain(in, status, format, args);
	va_end(args);
	return status;
}

enum kvt_status kvt_json_no_memory(const struct kvt_json *in)
{
	return *in->status ? *in->status :
	       (*in->status = kvt_no_memory(in->err, in->name));
}

/* ---- values ------------------------------------------------------------- */

static const char *type_name(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:	return "an object";
	case JSON_ARRAY:	return "an array";
	case JSON_STRING:	return "a string";
	case JSON_INTEGER:	return "an integer";
	case JSON_REAL:		return "a fraction";
	case JSON_NULL:		return "null";
	default:		return "a truth value";
	}
}

static void wrong_type(const struct kvt_json *in, const char *key, const json_t *value,
		       const char *expected)
{
	kvt_json_bad(in, "%.64s is %s, expected %s", key, type_name(value), expected);
}

/* NULL if absent: files write null for what they do not know; and after an error. */
static const json_t *value_of(const struct kvt_json *in, const char *key)
{
	const json_t *value = in->object && !*in->status ?
			      json_object_get(in->object, key) : NULL;

	return value && !json_is_null(value) ? value : NULL;
}

static const json_t *entry_of(const struct kvt_json *in, const char *key,
			      const json_t *array, size_t i)
{
	const json_t *value = *in->status ? NULL : json_array_get(array, i);

	if (!value)
		kvt_json_bad(in, "%.64s has %zu entries, expected more", key,
			     json_array_size(array));
	return value;
}

/* "32.0", as it stands there. */
static void not_whole(const struct kvt_json *in, const char *key, double value)
{
	char text[40];

	snprintf(text, sizeof(text), "%.15g", value);
	kvt_json_bad(in, "%.64s is %s%s, expected an integer", key, text,
		     text[strcspn(text, ".e")] ? "" : ".0");
}

/* 'value' may be NULL in these two: it is absent. */
static enum kvt_status take_int(int64_t *out, const struct kvt_json *in, const char *key,
				const json_t *value, int64_t min, int64_t max)
{
	int64_t n = json_integer_value(value);

	if (json_is_real(value))
		not_whole(in, key, json_real_value(value));
	else if (value && !json_is_integer(value))
		wrong_type(in, key, value, "an integer");
	else if (value && (n < min || n > max))
		kvt_json_bad(in, "%.64s is %lld, expected %lld to %lld", key,
			     LL(n), LL(min), LL(max));
	else if (value)
		*out = n;
	return *in->status;
}

/* A NUL inside would cut the string short silently. */
static enum kvt_status take_string(const char **out, const struct kvt_json *in,
				   const char *key, const json_t *value)
{
	const char *s = json_string_value(value);

	if (value && !s)
		wrong_type(in, key, value, "a string");
	else if (value && strlen(s) != json_string_length(value))
		kvt_json_bad(in, "%.64s holds a NUL character", key);
	else if (value)
		*out = s;
	return *in->status;
}

enum kvt_status kvt_json_int(int64_t *out, const struct kvt_json *in,
			     const char *key, int64_t min, int64_t max)
{
	return take_int(out, in, key, value_of(in, key), min, max);
}

enum kvt_status kvt_json_string(const char **out, const struct kvt_json *in,
				const char *key)
{
	return take_string(out, in, key, value_of(in, key));
}

enum kvt_status kvt_json_int_at(int64_t *out, const struct kvt_json *in, const char *key,
				const json_t *array, size_t i, int64_t min, int64_t max)
{
	return take_int(out, in, key, entry_of(in, key, array, i), min, max);
}

enum kvt_status kvt_json_string_at(const char **out, const struct kvt_json *in,
				   const char *key, const json_t *array, size_t i)
{
	return take_string(out, in, key, entry_of(in, key, array, i));
}

enum kvt_status kvt_json_copy_string(char **out, const struct kvt_json *in,
				     const char *key)
{
	const char *s = NULL;
	char *copy;

	if (kvt_json_string(&s, in, key) || !s)
		return *in->status;
	if (!(copy = strdup(s)))
		return kvt_json_no_memory(in);
	free(*out);
	*out = copy;
	return KVT_OK;
}

enum kvt_status kvt_json_array(const json_t **out, const struct kvt_json *in,
			       const char *key)
{
	const json_t *value = value_of(in, key);

	if (value && !json_is_array(value))
		wrong_type(in, key, value, "an array");
	else if (value)
		*out = value;
	return *in->status;
}

struct kvt_json kvt_json_of(const struct kvt_json *in, const json_t *object)
{
	return (struct kvt_json){ object, in->name, in->err, in->status };
}

enum kvt_status kvt_json_object(struct kvt_json *out, const struct kvt_json *in,
				const char *key)
{
	const json_t *value = value_of(in, key);

	if (value && !json_is_object(value))
		wrong_type(in, key, value, "an object");
	*out = kvt_json_of(in, json_is_object(value) ? value : NULL);
	return *in->status;
}

static bool is_among(const char *word, const char *const *words)
{
	while (*words && strcmp(*words, word))
		words++;
	return *words;
}

enum kvt_status kvt_json_only(const struct kvt_json *in, const char *const *known)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)in->object, key, value)
		if (!is_among(key, known))
			return kvt_json_bad(in, "unknown key '%.64s'", key);
	return *in->status;
}

enum kvt_status kvt_json_slips(const struct kvt_json *in, const char *const *known)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)in->object, key, value) {
		struct kvt_nearest n = kvt_nearest_start(key);

		if (is_among(key, known))
			continue;
		for (int i = 0; known[i]; i++)
			kvt_nearest_offer(&n, known[i]);
		if (n.distance <= (strlen(key) < 6 ? 0 : 1))
			kvt_json_bad(in, "unknown key '%.64s', did you mean '%s'?", key,
				     n.best);
	}
	return *in->status;
}
