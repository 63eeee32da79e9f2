/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msgpack.c - MessagePack, read into the same values as JSON
 *
 *	00..7f  the number       80..8f  map of n        90..9f  array of n
 *	a0..bf  text of n bytes  e0..ff  -32..-1         c0 nil  c2 false  c3 true
 *	c4 c5 c6  bytes, d9 da db  text, dc dd  array, de df  map: their length follows
 *	ca cb  float, double     cc..cf  unsigned, d0..d3  signed, of 1, 2, 4, 8 bytes
 *
 * All numbers have their most significant byte first.  Each element of a list takes one
 * byte at least, so that a length is refused before anything is made of it.
 */
#include "formats/events/msgpack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16 };

struct in {
	const uint8_t *bytes;
	size_t nbytes, at;
	const char *name;
	struct kvt_error *err;
};

static enum kvt_status value(json_t **out, struct in *in, int depth);

static enum kvt_status bad(const struct in *in, const char *what)
{
	return kvt_fail(in->err, KVT_BAD_INPUT, "%.250s: at byte %zu: %s", in->name,
			in->at, what);
}

static enum kvt_status cut(const struct in *in)
{
	return kvt_fail(in->err, KVT_BAD_INPUT,
			"%.250s: MessagePack ends in the middle of a value, at byte %zu: if the recording was stopped there, cut it off where the value begins",
			in->name, in->nbytes);
}

static enum kvt_status made(json_t **out, json_t *json, const struct in *in)
{
	*out = json;
	return json ? KVT_OK : kvt_no_memory(in->err, in->name);
}

/* The next n bytes, 8 at most, as a number. */
static bool number(uint64_t *out, struct in *in, int n)
{
	if (in->nbytes - in->at < (size_t)n)
		return false;
	*out = 0;
	while (n--)
		*out = *out << 8 | in->bytes[in->at++];
	return true;
}

static enum kvt_status integer(json_t **out, struct in *in, int n, bool is_signed)
{
	uint64_t u;
	char text[24];

	if (!number(&u, in, n))
		return cut(in);
	if (is_signed && n < 8 && u >> (8 * n - 1))
		u |= ~UINT64_C(0) << 8 * n;
	if (is_signed || u <= INT64_MAX)
		return made(out, json_integer((json_int_t)u), in);
	snprintf(text, sizeof(text), "%" PRIu64, u);
	return made(out, json_string_nocheck(text), in);
}

static enum kvt_status real(json_t **out, struct in *in, int n)
{
	uint64_t u;
	uint32_t u32;
	double x;
	float f;

	if (!number(&u, in, n))
		return cut(in);
	u32 = (uint32_t)u;
	if (n == 4) {
		memcpy(&f, &u32, sizeof(f));
		x = (double)f;
	} else {
		memcpy(&x, &u, sizeof(x));
	}
	if (!isfinite(x))
		return bad(in, "a number is not finite");
	return made(out, json_real(x), in);
}

/* Is a list of so many elements possible in what is left? */
static bool fits(const struct in *in, uint64_t n)
{
	return n <= in->nbytes - in->at;
}

static enum kvt_status text(json_t **out, struct in *in, uint64_t n)
{
	char *copy;
	bool good;

	if (!fits(in, n))
		return cut(in);
	if (!(copy = malloc((size_t)n + 1)))
		return made(out, NULL, in);
	memcpy(copy, in->bytes + in->at, (size_t)n);
	copy[n] = '\0';
	good = strlen(copy) == n && kvt_is_text(copy);
	*out = good ? json_string_nocheck(copy) : NULL;
	free(copy);
	if (!good)
		return bad(in, "a text is no UTF-8, or holds a zero byte");
	in->at += (size_t)n;
	return made(out, *out, in);
}

static enum kvt_status bytes(json_t **out, struct in *in, uint64_t n)
{
	static const char digits[] = "0123456789abcdef";
	char *hex;

	if (!fits(in, n))
		return cut(in);
	if (!(hex = malloc(2 * (size_t)n + 1)))
		return made(out, NULL, in);
	for (size_t i = 0; i < n; i++) {
		hex[2 * i] = digits[in->bytes[in->at + i] >> 4];
		hex[2 * i + 1] = digits[in->bytes[in->at + i] & 15];
	}
	in->at += (size_t)n;
	*out = json_stringn_nocheck(hex, 2 * (size_t)n);
	free(hex);
	return made(out, *out, in);
}

static enum kvt_status array(json_t **out, struct in *in, uint64_t n, int depth)
{
	enum kvt_status status = KVT_OK;
	json_t *list, *element;

	if (!fits(in, n))
		return cut(in);
	if ((status = made(&list, json_array(), in)))
		return status;
	for (uint64_t i = 0; !status && i < n; i++)
		if (!(status = value(&element, in, depth)) &&
		    json_array_append_new(list, element))
			status = made(&element, NULL, in);
	if (status)
		json_decref(list);
	else
		*out = list;
	return status;
}

static enum kvt_status pair(json_t *map, struct in *in, int depth)
{
	json_t *key, *element;
	enum kvt_status status = value(&key, in, depth);

	if (status)
		return status;
	if (!json_is_string(key) || json_object_get(map, json_string_value(key)))
		status = bad(in, "a key is not text, or is listed twice");
	else if (!(status = value(&element, in, depth)) &&
		 json_object_set_new_nocheck(map, json_string_value(key), element))
		status = made(&element, NULL, in);
	json_decref(key);
	return status;
}

static enum kvt_status map(json_t **out, struct in *in, uint64_t n, int depth)
{
	enum kvt_status status = KVT_OK;
	json_t *object;

	if (!fits(in, n))
		return cut(in);
	if ((status = made(&object, json_object(), in)))
		return status;
	for (uint64_t i = 0; !status && i < n; i++)
		status = pair(object, in, depth);
	if (status)
		json_decref(object);
	else
		*out = object;
	return status;
}

/* What has its length behind the first byte: which, and how long the length is. */
static const struct {
	uint8_t first;
	char kind;			/* bytes, text, array, map */
	int8_t nlength;
} longer[] = {
	{ 0xc4, 'b', 1 }, { 0xc5, 'b', 2 }, { 0xc6, 'b', 4 }, { 0xd9, 't', 1 },
	{ 0xda, 't', 2 }, { 0xdb, 't', 4 }, { 0xdc, 'a', 2 }, { 0xdd, 'a', 4 },
	{ 0xde, 'm', 2 }, { 0xdf, 'm', 4 },
};

static enum kvt_status of_kind(json_t **out, struct in *in, char kind, uint64_t n,
			       int depth)
{
	if (kind == 'b')
		return bytes(out, in, n);
	if (kind == 't')
		return text(out, in, n);
	if (depth >= MAX_DEPTH)
		return bad(in, "lists are nested deeper than 16 levels");
	return kind == 'a' ? array(out, in, n, depth + 1) : map(out, in, n, depth + 1);
}

static enum kvt_status value(json_t **out, struct in *in, int depth)
{
	uint8_t first;
	uint64_t n;

	if (in->at >= in->nbytes)
		return cut(in);
	first = in->bytes[in->at++];
	if (first < 0x80 || first >= 0xe0)
		return made(out, json_integer((int8_t)first), in);
	if (first < 0xc0)
		return of_kind(out, in, first < 0x90 ? 'm' : first < 0xa0 ? 'a' : 't',
			       first < 0xa0 ? first & 15 : first & 31, depth);
	if (first == 0xc0)
		return made(out, json_null(), in);
	if (first == 0xc2 || first == 0xc3)
		return made(out, json_boolean(first & 1), in);
	if (first == 0xca || first == 0xcb)
		return real(out, in, first == 0xca ? 4 : 8);
	if (first >= 0xcc && first <= 0xd3)
		return integer(out, in, 1 << (first & 3), first >= 0xd0);
	for (size_t i = 0; i < sizeof(longer) / sizeof(longer[0]); i++)
		if (longer[i].first == first)
			return number(&n, in, longer[i].nlength) ?
			       of_kind(out, in, longer[i].kind, n, depth) : cut(in);
	in->at--;
	return bad(in, "this is no MessagePack that an engine publishes");
}

enum kvt_status kvt_msgpack_read(json_t **out, const uint8_t *data, size_t nbytes,
				 size_t *at, const char *name, struct kvt_error *err)
{
	struct in in = { data, nbytes, *at, name, err };
	enum kvt_status status = value(out, &in, 0);

	if (!status)
		*at = in.at;
	return status;
}
