/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key.c - names of LMCache chunks, taken apart
 *
 *	MODEL@WORLD@WORKER@HASH@DTYPE[@LAYER][@TAG%VALUE]..	local disk, FS, GDS
 *	MODEL@0xRANKS@GROUP@HASH[@SALT]		second level: files, raw_block
 *	MODEL@RANKS@GROUP@HASH[@SALT]		S3, Redis, Mooncake: no 0x
 *
 * Slashes of MODEL are dashes or percent-encoded in the first, -SEP- in files of the
 * second level, percent-encoded in raw_block.  RANKS is four bytes as eight hex digits,
 * GROUP hex.
 */
#include "formats/lmcache/lmcache.h"

#include <ctype.h>
#include <string.h>

/* ---- parts --------------------------------------------------------------- */

static int hex_value(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;

	return at ? (int)(at - digits) : -1;
}

static bool number(int64_t *out, const char *s, int base, int64_t most)
{
	*out = 0;
	for (const char *p = s; *p; p++) {
		int digit = hex_value(*p);

		if (digit < 0 || digit >= base)
			return false;
		*out = *out * base + digit;
		if (*out > most)
			return false;
	}
	return *s != '\0';
}

/* Python's hash() may be negative. */
static bool is_hash(const char *s)
{
	size_t n;

	s += *s == '-';
	for (n = 0; s[n]; n++)
		if (hex_value(s[n]) < 0)
			return false;
	return n > 0 && n <= 128;
}

/* False: a '%' that encodes nothing, a NUL, or control characters. */
static bool decode_percent(char *s)
{
	char *to = s;

	for (; *s; s++) {
		char c = *s;

		if (c == '%') {
			int high = hex_value(s[1]), low = high < 0 ? -1 : hex_value(s[2]);

			if (low < 0)
				return false;
			c = (char)(high << 4 | low);
			s += 2;
		}
		if ((unsigned char)c < ' ' || c == 0x7f)
			return false;
		*to++ = c;
	}
	*to = '\0';
	return true;
}

/* Cuts the next part off. */
static char *next_part(char **rest)
{
	char *part = *rest, *at = part ? strchr(part, '@') : NULL;

	if (at)
		*at = '\0';
	*rest = at ? at + 1 : NULL;
	return part;
}

/* Every tag is NAME%VALUE. */
static bool are_tags(const char *s)
{
	while (*s) {
		size_t n = strcspn(s, "@");

		if (!memchr(s, '%', n))
			return false;
		s += n + (s[n] == '@');
	}
	return true;
}

/* ---- keys ---------------------------------------------------------------- */

static enum kvt_status refuse(struct kvt_error *err, const char *what,
			      const char *value, const char *expected)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"is not an LMCache key: %s '%.80s', expected %s",
			what, value ? value : "", expected);
}

/* Python restores the slashes of L2 names; those of the others are lost. */
static void restore_slashes(char *s)
{
	static const char mark[] = "-SEP-";
	enum { MARK = sizeof(mark) - 1 };
	char *to = s;

	while (*s) {
		if (!strncmp(s, mark, MARK)) {
			*to++ = '/';
			s += MARK;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

static enum kvt_status l2_key(struct kvt_lmcache_key *out, char *ranks, char *rest,
			      struct kvt_error *err)
{
	char *group = next_part(&rest);
	int64_t rank;

	out->hash = next_part(&rest);
	out->tags = rest ? rest : out->hash ? out->hash + strlen(out->hash) : NULL;
	if (strlen(ranks) != 8 || !number(&rank, ranks, 16, UINT32_MAX))
		return refuse(err, "ranks", ranks, "8 hex digits");
	if (!group || !number(&out->group, group, 16, INT32_MAX))
		return refuse(err, "group", group, "a hex number");
	if (!out->hash || !is_hash(out->hash) || *out->hash == '-')
		return refuse(err, "hash", out->hash, "hex digits");
	if (strchr(out->tags, '@'))
		return refuse(err, "salt", out->tags, "no '@' in it");
	out->world = rank >> 24 & 0xff;
	out->worker = rank >> 16 & 0xff;
	restore_slashes(out->model);
	return KVT_OK;
}

static enum kvt_status engine_key(struct kvt_lmcache_key *out, char *world, char *rest,
				  struct kvt_error *err)
{
	char *worker = next_part(&rest), *dtype, *layer;

	out->hash = next_part(&rest);
	dtype = next_part(&rest);
	if (!world || !number(&out->world, world, 10, INT32_MAX))
		return refuse(err, "world size", world, "a number");
	if (!worker || !number(&out->worker, worker, 10, INT32_MAX))
		return refuse(err, "worker", worker, "a number");
	if (!out->hash || !is_hash(out->hash))
		return refuse(err, "hash", out->hash, "hex digits");
	if (!dtype || !(out->dtype = kvt_dtype_find(dtype)))
		return refuse(err, "dtype", dtype, "an element type");
	out->tags = dtype + strlen(dtype);
	if (rest && isdigit((unsigned char)*rest) &&
	    !memchr(rest, '%', strcspn(rest, "@"))) {
		layer = next_part(&rest);
		if (!number(&out->layer, layer, 10, INT32_MAX))
			return refuse(err, "layer", layer, "a number");
	}
	if (rest && (!*rest || !are_tags(rest)))
		return refuse(err, "tags", rest, "NAME%VALUE");
	if (rest)
		out->tags = rest;
	return KVT_OK;
}

enum kvt_status kvt_lmcache_key_parse(struct kvt_lmcache_key *out, char *text,
				      struct kvt_error *err)
{
	struct kvt_lmcache_key key = { .layer = -1, .group = -1 };
	enum kvt_status status;
	char *rest = text, *second;

	for (const char *s = text; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return refuse(err, "name", "", "printable characters");
	/* '@' itself is encoded by GDS only: elsewhere '%' belongs to a tag */
	if (!strchr(text, '@') && !decode_percent(text))
		return refuse(err, "name", text, "percent-encoded characters");
	if (!kvt_is_text(text))
		return refuse(err, "name", "", "UTF-8");
	key.model = next_part(&rest);
	if (!*key.model || !rest)
		return refuse(err, "name", text, "MODEL@WORLD@WORKER@HASH@DTYPE");
	second = next_part(&rest);
	if (second[0] == '0' && second[1] == 'x')
		status = decode_percent(key.model) ?
			 l2_key(&key, second + 2, rest, err) :
			 refuse(err, "model", key.model, "percent-encoded characters");
	else if (strspn(second, "0123456789abcdef") == 8 && !second[8])
		status = l2_key(&key, second, rest, err);
	else
		status = engine_key(&key, second, rest, err);
	if (status)
		return status;
	if (key.world < 1 || key.worker >= key.world)
		return kvt_fail(err, KVT_BAD_INPUT,
				"is not an LMCache key: worker %lld of %lld",
				LL(key.worker), LL(key.world));
	*out = key;
	return KVT_OK;
}

/* ---- files ---------------------------------------------------------------- */

/* A whole key, as a copy of an object is called. */
static bool is_key(const char *name)
{
	char text[1024];
	struct kvt_lmcache_key key;

	if (strlen(name) >= sizeof(text))
		return false;
	strcpy(text, name);
	return !kvt_lmcache_key_parse(&key, text, NULL);
}

bool kvt_lmcache_backend(enum kvt_lmcache_backend *out, size_t *stem, const char *name)
{
	static const struct {
		const char *ending;
		enum kvt_lmcache_backend backend;
	} rows[] = {
		{ ".pt", KVT_LMCACHE_DISK },
		{ ".data", KVT_LMCACHE_FS },
		{ ".kvcache.safetensors", KVT_LMCACHE_GDS },
		{ ".weka1", KVT_LMCACHE_GDS },
		{ ".kvcache.safetensors.metadata", KVT_LMCACHE_TWIN },
		{ ".weka1.metadata", KVT_LMCACHE_TWIN },
	};
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t m = strlen(rows[i].ending);

		if (n <= m || strcmp(name + n - m, rows[i].ending))
			continue;
		*out = rows[i].backend;
		*stem = n - m;
		return true;
	}
	*out = KVT_LMCACHE_OBJECT;
	*stem = n;
	return is_key(name);
}
