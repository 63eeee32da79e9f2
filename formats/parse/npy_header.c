/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy_header.c - the header of a .npy file: a Python literal, not evaluated
 *
 *	0	93 "NUMPY"
 *	6	u8 major, u8 minor	1.0; 2.0 has a longer length, 3.0 UTF-8 in names
 *	8	u16, of 2.0 and 3.0 u32	n, little-endian
 *	10, 12	n bytes: {'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), },
 *		blanks and a line's end, so that what follows begins at a multiple of 64
 *		(of 16 before numpy 1.14)
 *	...	the elements, the last axis innermost
 *
 * Read: the three keys in any order, once each, and numbers of one size in the order of
 * bytes of x86.  Written: version 1.0.  Facts: numpy/lib/format.py, which describes it.
 */
#include "formats/parse/npy_header.h"

#include <string.h>

static const uint8_t magic[6] = { 0x93, 'N', 'U', 'M', 'P', 'Y' };

/* ---- the literal -------------------------------------------------------- */

/* What is left of the text, and how to complain about it. */
struct cursor {
	const char *at, *end;
	const char *begin, *name;
	struct kvt_error *err;
};

static enum kvt_status malformed(const struct cursor *c, const char *expected)
{
	return kvt_fail(c->err, KVT_BAD_INPUT,
			"%s: npy header is malformed at character %d: expected %s",
			c->name, (int)(c->at - c->begin), expected);
}

static char peek(struct cursor *c)
{
	while (c->at < c->end && *c->at == ' ')
		c->at++;
	return c->at < c->end ? *c->at : '\0';
}

static bool take(struct cursor *c, char wanted)
{
	if (peek(c) != wanted || c->at == c->end)
		return false;
	c->at++;
	return true;
}

/* 'text' or "text", without escapes, of fewer than 'size' characters. */
static enum kvt_status take_string(char *out, size_t size, struct cursor *c)
{
	char quote = peek(c);
	size_t n = 0;

	if (quote != '\'' && quote != '"')
		return malformed(c, "a string");
	for (c->at++; c->at < c->end && *c->at != quote; c->at++) {
		if (*c->at < ' ' || *c->at > '~' || *c->at == '\\' || n + 1 == size)
			return malformed(c, "a short plain string");
		out[n++] = *c->at;
	}
	if (c->at == c->end)
		return malformed(c, "the end of a string");
	c->at++;
	out[n] = '\0';
	return KVT_OK;
}

static enum kvt_status take_extent(int64_t *out, struct cursor *c)
{
	int64_t n = 0;

	if (peek(c) < '0' || peek(c) > '9')
		return malformed(c, "an extent");
	for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, *c->at - '0', &n))
			return malformed(c, "an extent below 2^63");
	/* Python 2 wrote long integers so */
	if (c->at < c->end && *c->at == 'L')
		c->at++;
	*out = n;
	return KVT_OK;
}

static enum kvt_status take_shape(struct kvt_npy_header *out, struct cursor *c)
{
	bool comma = true;
	enum kvt_status status;

	if (!take(c, '('))
		return malformed(c, "a tuple");
	for (out->rank = 0; !take(c, ')'); out->rank++) {
		if (!comma)
			return malformed(c, "a comma or the end of a tuple");
		if (out->rank == KVT_NPY_MAX_RANK)
			return malformed(c, "at most 32 extents");
		if ((status = take_extent(&out->shape[out->rank], c)))
			return status;
		comma = take(c, ',');
	}
	/* (3) is a number in brackets, (3,) a tuple */
	if (out->rank == 1 && !comma)
		return malformed(c, "a tuple, not a number in brackets");
	return KVT_OK;
}

static enum kvt_status take_truth(bool *out, struct cursor *c)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = { { "True", true }, { "False", false } };

	peek(c);
	for (int i = 0; i < 2; i++) {
		size_t n = strlen(words[i].word);

		if ((size_t)(c->end - c->at) >= n && !memcmp(c->at, words[i].word, n)) {
			c->at += n;
			*out = words[i].value;
			return KVT_OK;
		}
	}
	return malformed(c, "True or False");
}

enum { DESCR = 1, FORTRAN = 2, SHAPE = 4 };

static enum kvt_status take_entry(struct kvt_npy_header *out, bool *fortran,
				  int *seen, struct cursor *c)
{
	enum kvt_status status;
	char key[16];
	int what;

	if ((status = take_string(key, sizeof(key), c)))
		return status;
	what = !strcmp(key, "descr") ? DESCR : !strcmp(key, "shape") ? SHAPE :
	       !strcmp(key, "fortran_order") ? FORTRAN : 0;
	if (!what || (*seen & what))
		return malformed(c, "descr, fortran_order and shape, once each");
	*seen |= what;
	if (!take(c, ':'))
		return malformed(c, "a colon");
	if (what == SHAPE)
		return take_shape(out, c);
	if (what == FORTRAN)
		return take_truth(fortran, c);
	if (peek(c) == '[')
		return kvt_fail(c->err, KVT_UNSUPPORTED,
				"%s: elements are records, expected numbers", c->name);
	return take_string(out->descr, sizeof(out->descr), c);
}

static enum kvt_status take_dict(struct kvt_npy_header *out, struct cursor *c)
{
	bool comma = true, fortran = false;
	enum kvt_status status;
	int seen = 0;

	if (!take(c, '{'))
		return malformed(c, "a dict");
	while (!take(c, '}')) {
		if (!comma)
			return malformed(c, "a comma or the end of a dict");
		if ((status = take_entry(out, &fortran, &seen, c)))
			return status;
		comma = take(c, ',');
	}
	peek(c);
	if (c->at != c->end)
		return malformed(c, "nothing after the dict");
	if (seen != (DESCR | FORTRAN | SHAPE))
		return malformed(c, "descr, fortran_order and shape, once each");
	if (fortran && out->rank > 1)
		return kvt_fail(c->err, KVT_UNSUPPORTED,
				"%s: array is in Fortran order; save it with numpy.ascontiguousarray()",
				c->name);
	return KVT_OK;
}

/* ---- the descriptor ----------------------------------------------------- */

static enum kvt_status read_descr(struct kvt_npy_header *out, const char *name,
				  struct kvt_error *err)
{
	const char *d = out->descr;
	const struct kvt_dtype *dtype;

	if (d[0] == '>')
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: elements are big-endian (%s)", name, d);
	if (strlen(d) != 3 || !strchr("<|=", d[0]) || !strchr("fiubV", d[1]) ||
	    d[2] < '1' || d[2] > '9')
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: elements of type '%s', expected numbers", name, d);
	out->elem = d[2] - '0';
	/* what numpy has no type for is stored as integers or as plain bytes */
	for (int i = 0; strchr("fi", d[1]) && (dtype = kvt_dtype_at(i)); i++)
		if (dtype->npy[1] == d[1] && dtype->elem == out->elem)
			out->dtype = dtype;
	if (d[1] == 'f' && !out->dtype)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: elements of type '%s' are not supported", name, d);
	return KVT_OK;
}

/* ---- the header --------------------------------------------------------- */

static enum kvt_status check_length(int64_t *begin, int64_t *length,
				    const uint8_t *head, int64_t nhead,
				    const char *name, struct kvt_error *err)
{
	int major = nhead > 6 ? head[6] : 0;

	if (nhead < 10 || memcmp(head, magic, sizeof(magic)))
		return kvt_fail(err, KVT_BAD_INPUT, "%s: no npy header", name);
	if (major < 1 || major > 3 || head[7])
		return kvt_fail(err, KVT_UNSUPPORTED,
				"%s: npy version %d.%d, expected 1.0 to 3.0", name, major,
				head[7]);
	*begin = major == 1 ? 10 : 12;
	if (nhead < *begin)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: npy header is cut off", name);
	*length = head[8] | head[9] << 8;
	if (major > 1)
		*length |= (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
	if (*length > KVT_NPY_MAX_TEXT)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: npy header of %lld bytes, expected at most %d", name,
				LL(*length), KVT_NPY_MAX_TEXT);
	if (*length > nhead - *begin)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: npy header of %lld bytes is cut off after %lld", name,
				LL(*length), LL(nhead - *begin));
	if (*length == 0 || head[*begin + *length - 1] != '\n')
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: npy header does not end its line", name);
	return KVT_OK;
}

enum kvt_status kvt_npy_parse(struct kvt_npy_header *out, const uint8_t *head,
			      int64_t nhead, const char *name, struct kvt_error *err)
{
	struct kvt_npy_header header = { .rank = 0 };
	int64_t begin = 0, length = 0, nbytes;
	enum kvt_status status;
	struct cursor c;

	if ((status = check_length(&begin, &length, head, nhead, name, err)))
		return status;
	c.begin = c.at = (const char *)head + begin;
	c.end = c.at + length - 1;
	c.name = name;
	c.err = err;
	if ((status = take_dict(&header, &c)) ||
	    (status = read_descr(&header, name, err)))
		return status;
	nbytes = header.elem;
	for (int i = 0; i < header.rank; i++)
		if (header.shape[i] && __builtin_mul_overflow(nbytes, header.shape[i],
							      &nbytes))
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: array is larger than 2^63 bytes", name);
	for (int i = 0; i < header.rank; i++)
		if (!header.shape[i])
			nbytes = 0;
	header.data = begin + length;
	header.nbytes = nbytes;
	*out = header;
	return KVT_OK;
}

int64_t kvt_npy_print(uint8_t *head, const char *descr, int rank, const int64_t *shape)
{
	char *text = (char *)head + 10;
	size_t size = KVT_NPY_MAX_TEXT, used;

	used = (size_t)snprintf(text, size,
				"{'descr': '%s', 'fortran_order': False, 'shape': (",
				descr);
	for (int i = 0; i < rank; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%lld%s",
					 i ? ", " : "", LL(shape[i]),
					 rank == 1 ? "," : "");
	used += (size_t)snprintf(text + used, size - used, "), }");
	while ((10 + used + 1) % 64)
		text[used++] = ' ';
	text[used++] = '\n';
	memcpy(head, magic, sizeof(magic));
	head[6] = 1;
	head[7] = 0;
	head[8] = used & 0xff;
	head[9] = (uint8_t)(used >> 8);
	return (int64_t)(10 + used);
}
