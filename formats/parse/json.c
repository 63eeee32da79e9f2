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

#include <pthread.h>
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

/* NULL if absent: files write null for what they do not know. */
static const json_t *value_of(const struct kvt_json *in, const char *key)
{
	const json_t *value = in->object ? json_object_get(in->object, key) : NULL;

	return value && !json_is_null(value) ? value : NULL;
}

static enum kvt_status wrong_type(const struct kvt_json *in, const char *key,
				  const json_t *value, const char *expected)
{
	return kvt_fail(in->err, KVT_BAD_INPUT, "%s: %.64s is %s, expected %s",
			in->name, key, type_name(value), expected);
}

static enum kvt_status take_int(int64_t *out, const struct kvt_json *in,
				const char *key, const json_t *value,
				int64_t min, int64_t max)
{
	int64_t n;

	if (!json_is_integer(value))
		return wrong_type(in, key, value, "an integer");
	n = json_integer_value(value);
	if (n < min || n > max)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: %.64s is %lld, expected %lld to %lld", in->name, key,
				(long long)n, (long long)min, (long long)max);
	*out = n;
	return KVT_OK;
}

/* A NUL inside would cut the string short silently. */
static enum kvt_status take_string(const char **out, const struct kvt_json *in,
				   const char *key, const json_t *value)
{
	const char *s;

	if (!json_is_string(value))
		return wrong_type(in, key, value, "a string");
	s = json_string_value(value);
	if (strlen(s) != json_string_length(value))
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: %.64s holds a NUL character", in->name, key);
	*out = s;
	return KVT_OK;
}

enum kvt_status kvt_json_int(int64_t *out, const struct kvt_json *in,
			     const char *key, int64_t min, int64_t max)
{
	const json_t *value = value_of(in, key);

	return value ? take_int(out, in, key, value, min, max) : KVT_OK;
}

enum kvt_status kvt_json_string(const char **out, const struct kvt_json *in,
				const char *key)
{
	const json_t *value = value_of(in, key);

	return value ? take_string(out, in, key, value) : KVT_OK;
}

enum kvt_status kvt_json_copy_string(char **out, const struct kvt_json *in,
				     const char *key)
{
	const char *s = NULL;
	enum kvt_status status;
	char *copy;

	if ((status = kvt_json_string(&s, in, key)) || !s)
		return status;
	if (!(copy = strdup(s)))
		return kvt_no_memory(in->err, in->name);
	free(*out);
	*out = copy;
	return KVT_OK;
}

enum kvt_status kvt_json_array(const json_t **out, const struct kvt_json *in,
			       const char *key)
{
	const json_t *value = value_of(in, key);

	if (value && !json_is_array(value))
		return wrong_type(in, key, value, "an array");
	if (value)
		*out = value;
	return KVT_OK;
}

enum kvt_status kvt_json_object(struct kvt_json *out, const struct kvt_json *in,
				const char *key)
{
	const json_t *value = value_of(in, key);

	if (value && !json_is_object(value))
		return wrong_type(in, key, value, "an object");
	*out = (struct kvt_json){ value, in->name, in->err };
	return KVT_OK;
}

enum kvt_status kvt_json_int_at(int64_t *out, const struct kvt_json *in,
				const char *key, const json_t *array, size_t i,
				int64_t min, int64_t max)
{
	const json_t *value = json_array_get(array, i);

	if (!value)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: %.64s has %zu entries, expected more", in->name, key,
				json_array_size(array));
	return take_int(out, in, key, value, min, max);
}

enum kvt_status kvt_json_string_at(const char **out, const struct kvt_json *in,
				   const char *key, const json_t *array, size_t i)
{
	const json_t *value = json_array_get(array, i);

	if (!value)
		return kvt_fail(in->err, KVT_BAD_INPUT,
				"%s: %.64s has %zu entries, expected more", in->name, key,
				json_array_size(array));
	return take_string(out, in, key, value);
}

enum kvt_status kvt_json_only(const struct kvt_json *in, const char *const *known)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)in->object, key, value) {
		int i = 0;

		while (known[i] && strcmp(known[i], key))
			i++;
		if (!known[i])
			return kvt_fail(in->err, KVT_BAD_INPUT, "%s: unknown key '%.64s'",
					in->name, key);
	}
	return KVT_OK;
}
