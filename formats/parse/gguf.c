/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.c - walking over the keys of a header, each held against where the file ends
 *
 * In: the first bytes of a file and its length.  Out: names, types and places of all
 * keys, sorted by name; values stay where they are.
 *
 *	0	"GGUF"
 *	4	u32	version: 2 or 3, in the order of bytes in which it is small
 *	8	u64	number of tensors
 *	16	u64	number of keys
 *	24	the keys, without padding between them:
 *			u64 n, n bytes of name, u32 type, value
 *	...	tensors' names and shapes, then their data: not looked at
 *
 *	value	1, 2, 4 or 8 bytes; a string: u64 n, n bytes without an end; an array:
 *		u32 type, u64 n, n values of it, of no arrays
 *
 * What a count says is never believed further than there are bytes for: the smallest key
 * takes 13 of them (8, no name, 4, 1), the smallest string 8.  Facts: gguf.cpp of ggml,
 * which llama.cpp reads a model with, and its gguf-py.
 */
#include "formats/parse/gguf.h"

#include <stdlib.h>
#include <string.h>

enum { SMALLEST_KEY = 13, MOST_KEYS = 1 << 16, LONGEST_NAME = (1 << 16) - 1 };

static const int sizes[KVT_GGUF_TYPES] = {	/* 0: has a length of its own */
	[KVT_GGUF_U8] = 1,  [KVT_GGUF_I8] = 1,  [KVT_GGUF_BOOL] = 1,
	[KVT_GGUF_U16] = 2, [KVT_GGUF_I16] = 2, [KVT_GGUF_U32] = 4,
	[KVT_GGUF_I32] = 4, [KVT_GGUF_F32] = 4, [KVT_GGUF_U64] = 8,
	[KVT_GGUF_I64] = 8, [KVT_GGUF_F64] = 8,
};

struct walk {
	const uint8_t *head;
	int64_t at, nhead, nbytes;
	bool swapped, more;
	const char *path;
	struct kvt_error *err;
};

static uint64_t number_at(const uint8_t *p, int n, bool swapped)
{
	uint64_t x = 0;

	for (int i = 0; i < n; i++)
		x = x << 8 | p[swapped ? i : n - 1 - i];
	return x;
}

/* Of a name, in a message. */
static int shown(const struct kvt_gguf_key *key)
{
	return key->length < 80 ? (int)key->length : 80;
}

/* ---- over bytes --------------------------------------------------------- */

/* Are there so many more?  Where the file has them and 'head' not, *more is set. */
static enum kvt_status ask(struct walk *w, uint64_t n, const char *what)
{
	if (n <= (uint64_t)(w->nhead - w->at))
		return KVT_OK;
	w->more = n <= (uint64_t)(w->nbytes - w->at);
	return kvt_fail(w->err, KVT_BAD_INPUT,
			"%s: %s at byte %lld ends past the end of the file, which has %lld bytes: it is cut or damaged",
			w->path, what, LL(w->at), LL(w->nbytes));
}

static enum kvt_status take(uint64_t *out, struct walk *w, int n, const char *what)
{
	enum kvt_status status = ask(w, (uint64_t)n, what);

	if (status)
		return status;
	*out = number_at(w->head + w->at, n, w->swapped);
	w->at += n;
	return KVT_OK;
}

static enum kvt_status skip_string(struct walk *w, const char *what)
{
	uint64_t n;
	enum kvt_status status = take(&n, w, 8, what);

	if (!status && !(status = ask(w, n, what)))
		w->at += (int64_t)n;
	return status;
}

/* ---- keys --------------------------------------------------------------- */

static enum kvt_status take_type(enum kvt_gguf_type *out, struct walk *w,
				 const struct kvt_gguf_key *key)
{
	uint64_t type = 0;
	enum kvt_status status = take(&type, w, 4, "a type");

	if (!status && type >= KVT_GGUF_TYPES)
		status = kvt_fail(w->err, KVT_BAD_INPUT,
				  "%s: key %.*s is of type %llu, and there are %d: it is damaged",
				  w->path, shown(key),
				  key->name, (unsigned long long)type, KVT_GGUF_TYPES);
	*out = (enum kvt_gguf_type)type;
	return status;
}

static enum kvt_status take_array(struct walk *w, struct kvt_gguf_key *key)
{
	enum kvt_status status;
	uint64_t n = 0;
	int size;

	if ((status = take_type(&key->type, w, key)))
		return status;
	if (key->type == KVT_GGUF_ARRAY)
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: key %.*s is an array of arrays, which llama.cpp does not read either",
				w->path, shown(key), key->name);
	if ((status = take(&n, w, 8, "an array")))
		return status;
	size = key->type == KVT_GGUF_STRING ? 8 : sizes[key->type];
	if (n > (uint64_t)(w->nbytes - w->at) / (unsigned)size)
		return ask(w, UINT64_MAX, "an array");
	key->is_array = true;
	key->n = (int64_t)n;
	return KVT_OK;
}

static enum kvt_status take_value(struct walk *w, struct kvt_gguf_key *key)
{
	enum kvt_status status;
	int64_t begin;

	if ((status = take_type(&key->type, w, key)) ||
	    (key->type == KVT_GGUF_ARRAY && (status = take_array(w, key))))
		return status;
	begin = w->at;
	if (key->type != KVT_GGUF_STRING) {
		uint64_t nbytes = (uint64_t)key->n * (unsigned)sizes[key->type];

		if ((status = ask(w, nbytes, "a value")))
			return status;
		w->at += (int64_t)nbytes;
	}
	for (int64_t i = 0; key->type == KVT_GGUF_STRING && i < key->n; i++)
		if ((status = skip_string(w, "a string")))
			return status;
	key->value = w->head + begin;
	return KVT_OK;
}

static enum kvt_status take_key(struct walk *w, struct kvt_gguf_key *key)
{
	enum kvt_status status;
	int64_t begin = w->at;

	*key = (struct kvt_gguf_key){ .n = 1 };
	if ((status = skip_string(w, "the name of a key")))
		return status;
	key->name = (const char *)w->head + begin + 8;
	key->length = w->at - begin - 8;
	if (!key->length || key->length > LONGEST_NAME || memchr(key->name, 0,
								 (size_t)key->length))
		return kvt_fail(w->err, KVT_BAD_INPUT,
				"%s: a key at byte %lld has a name of %lld bytes, or a NUL in it: it is damaged",
				w->path, LL(begin), LL(key->length));
	return take_value(w, key);
}

/* ---- names -------------------------------------------------------------- */

static int compare(const char *a, int64_t na, const char *b, int64_t nb)
{
	int order = memcmp(a, b, (size_t)(na < nb ? na : nb));

	return order ? order : (na > nb) - (na < nb);
}

static int by_name(const void *a, const void *b)
{
	const struct kvt_gguf_key *x = a, *y = b;

	return compare(x->name, x->length, y->name, y->length);
}

static enum kvt_status sort(struct kvt_gguf *g, struct kvt_error *err)
{
	if (g->nkeys)
		qsort(g->key, (size_t)g->nkeys, sizeof(*g->key), by_name);
	for (int64_t i = 1; i < g->nkeys; i++)
		if (!by_name(&g->key[i - 1], &g->key[i]))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: key %.*s is there twice, and which of them holds is not known",
					g->path, shown(&g->key[i]), g->key[i].name);
	return KVT_OK;
}

const struct kvt_gguf_key *kvt_gguf_find(const struct kvt_gguf *g, const char *name)
{
	const struct kvt_gguf_key key = { .name = name, .length = (int64_t)strlen(name) };

	return g->nkeys ? bsearch(&key, g->key, (size_t)g->nkeys, sizeof(key), by_name) :
			  NULL;
}

/* ---- the header --------------------------------------------------------- */

/* The order of bytes is the one in which the version is small. */
static enum kvt_status take_start(struct kvt_gguf *g, struct walk *w, uint64_t *nkeys)
{
	enum kvt_status status;
	uint64_t version = 0, tensors;

	if ((status = ask(w, 4, "the header")))
		return status;
	if (memcmp(w->head, "GGUF", 4))
		return kvt_fail(w->err, KVT_BAD_INPUT, "%s: is no GGUF", w->path);
	w->at = 4;
	if ((status = take(&version, w, 4, "the version")))
		return status;
	if (!(version & 0xffff)) {
		w->swapped = true;
		w->at -= 4;
		status = take(&version, w, 4, "the version");
	}
	if (!status && (version < 2 || version > 3))
		return kvt_fail(w->err, KVT_UNSUPPORTED,
				"%s: is a GGUF of version %llu, expected 2 or 3; llama.cpp's gguf-py converts older ones",
				w->path, (unsigned long long)version);
	if (status || (status = take(&tensors, w, 8, "the number of tensors")) ||
	    (status = take(nkeys, w, 8, "the number of keys")))
		return status;
	g->version = (int)version;
	g->swapped = w->swapped;
	return KVT_OK;
}

enum kvt_status kvt_gguf_parse(struct kvt_gguf *out, bool *more, const uint8_t *head,
			       int64_t nhead, int64_t nbytes, const char *path,
			       struct kvt_error *err)
{
	struct walk w = { .head = head, .nhead = nhead, .nbytes = nbytes, .path = path,
			  .err = err };
	enum kvt_status status;
	uint64_t n = 0;

	*out = (struct kvt_gguf){ .path = path };
	status = take_start(out, &w, &n);
	if (!status && (n > (uint64_t)(nbytes - w.at) / SMALLEST_KEY || n > MOST_KEYS))
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: its header tells of %llu keys, more than there is room for: it is cut or damaged",
				  path, (unsigned long long)n);
	if (!status && n && !(out->key = calloc((size_t)n, sizeof(*out->key))))
		status = kvt_no_memory(err, NULL);
	for (; !status && out->nkeys < (int64_t)n; out->nkeys++)
		status = take_key(&w, &out->key[out->nkeys]);
	if (!status)
		status = sort(out, err);
	*more = status && w.more;
	if (status)
		kvt_gguf_free(out);
	return status;
}

void kvt_gguf_free(struct kvt_gguf *g)
{
	free(g->key);
	g->key = NULL;
	g->nkeys = 0;
}

/* ---- values ------------------------------------------------------------- */

bool kvt_gguf_int(int64_t *out, const struct kvt_gguf *g, const struct kvt_gguf_key *key,
		  int64_t i)
{
	const int size = sizes[key->type];
	bool is_signed = key->type == KVT_GGUF_I8 || key->type == KVT_GGUF_I16 ||
			 key->type == KVT_GGUF_I32 || key->type == KVT_GGUF_I64;
	uint64_t x, sign;

	if (!size || key->type == KVT_GGUF_F32 || key->type == KVT_GGUF_F64)
		return false;
	x = number_at(key->value + i * size, size, g->swapped);
	sign = UINT64_C(1) << (8 * size - 1);
	if (is_signed && (x & sign) && size < 8)
		x |= ~(2 * sign - 1);
	if (!is_signed && x > INT64_MAX)
		return false;
	memcpy(out, &x, sizeof(x));
	return true;
}

const char *kvt_gguf_text(int64_t *length, const struct kvt_gguf *g, const uint8_t *at)
{
	*length = (int64_t)number_at(at, 8, g->swapped);
	return (const char *)at + 8;
}

bool kvt_gguf_string(char *out, size_t room, const struct kvt_gguf *g,
		     const struct kvt_gguf_key *key)
{
	uint64_t n;

	if (key->is_array || key->type != KVT_GGUF_STRING)
		return false;
	n = number_at(key->value, 8, g->swapped);
	if (n >= room || memchr(key->value + 8, 0, (size_t)n))
		return false;
	memcpy(out, key->value + 8, (size_t)n);
	out[n] = '\0';
	return true;
}
