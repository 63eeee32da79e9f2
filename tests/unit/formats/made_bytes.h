/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made_bytes.h - bytes as they lie in a file, made field by field, then cut and
 * changed at every one of them
 */
#ifndef MADE_BYTES_H
#define MADE_BYTES_H

#include "tests/unit/fixture.h"

/* ---- bytes as they lie --------------------------------------------------- */

struct bytes {
	uint8_t s[8192];
	size_t n;
};

static inline void put(struct bytes *b, uint64_t value, int nbytes)
{
	assert_true(b->n + 8 <= sizeof(b->s));
	for (int i = 0; i < nbytes; i++)
		b->s[b->n++] = (uint8_t)(value >> 8 * i);
}

static inline void put_text(struct bytes *b, const char *text)
{
	assert_true(b->n + strlen(text) <= sizeof(b->s));
	memcpy(b->s + b->n, text, strlen(text));
	b->n += strlen(text);
}

static inline void put_zeros(struct bytes *b, size_t n)
{
	assert_true(b->n + n <= sizeof(b->s));
	memset(b->s + b->n, 0, n);
	b->n += n;
}

static inline void put_varint(struct bytes *b, uint64_t value)
{
	for (; value > 127; value >>= 7)
		put(b, (value & 127) | 128, 1);
	put(b, value, 1);
}

static inline void put_number(struct bytes *b, int field, uint64_t value)
{
	put_varint(b, (uint64_t)field << 3);
	put_varint(b, value);
}

static inline void put_field(struct bytes *b, int field, const void *bytes, size_t n)
{
	put_varint(b, (uint64_t)field << 3 | 2);
	put_varint(b, n);
	assert_true(b->n + n <= sizeof(b->s));
	memcpy(b->s + b->n, bytes, n);
	b->n += n;
}

/* ---- parsers, and what they must survive --------------------------------- */

struct kind {
	const char *what;
	void (*make)(struct bytes *);
	enum kvt_status (*parse)(const uint8_t *, int64_t, struct kvt_error *);
	bool open_end;			/* what follows is none of its business */
};

/* An exact copy, so that a sanitizer sees what is read past it. */
static inline enum kvt_status parse_copy(const struct kind *kind, const uint8_t *s,
					 size_t n, struct kvt_error *err)
{
	uint8_t *copy = malloc(n + !n);
	enum kvt_status status;

	memcpy(copy, s, n);
	err->text[0] = '\0';
	status = kind->parse(copy, (int64_t)n, err);
	free(copy);
	return status;
}

static inline void test_cut(void **state)
{
	const struct kind *kind = *state;
	struct bytes b;

	kind->make(&b);
	for (size_t n = 0; n < b.n; n++)
		expect(parse_copy(kind, b.s, n, &why), KVT_BAD_INPUT, NULL);
	ok(parse_copy(kind, b.s, b.n, &why));
	b.s[b.n] = 0;
	if (!kind->open_end)
		expect(parse_copy(kind, b.s, b.n + 1, &why), KVT_BAD_INPUT, NULL);
}

/* Whatever one byte becomes, the parser ends, and says something. */
static inline void test_changed(void **state)
{
	static const uint8_t values[] = { 0, 1, 0x7f, 0x80, 0xff };
	const struct kind *kind = *state;
	struct bytes b;
	int refused = 0;

	kind->make(&b);
	for (size_t i = 0; i < b.n && i < 1400; i++)
		for (size_t v = 0; v < sizeof(values); v++) {
			uint8_t was = b.s[i];
			enum kvt_status status;

			b.s[i] = values[v];
			status = parse_copy(kind, b.s, b.n, &why);
			if (status != KVT_OK && status != KVT_BAD_INPUT &&
			    status != KVT_UNSUPPORTED)
				fail_msg("byte %d as %d: status %d", (int)i, values[v],
					 status);
			assert_true(!status || why.text[0]);
			refused += status != KVT_OK;
			b.s[i] = was;
		}
	assert_true(refused > 20);
}

#endif
