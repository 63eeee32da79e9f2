/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - is this text, what may a line for people hold of it, and sizes for them
 *
 * UTF-8 by RFC 3629: no longer form than needed, no surrogate, nothing above U+10FFFF.
 * What would act on a terminal is written out as \n or \x1b, so that a name in a file
 * cannot move the cursor or turn the direction of a line.
 */
#include "lib/kvt/base.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the character that begins at 's'; 0 if it is not UTF-8. */
static int character(const unsigned char *s, const unsigned char *end, uint32_t *out)
{
	static const struct {
		unsigned char mask, lead;
		int n;
		uint32_t least;		/* smaller ones have a shorter form */
	} forms[] = {
		{ 0x80, 0x00, 1, 0 },       { 0xe0, 0xc0, 2, 0x80 },
		{ 0xf0, 0xe0, 3, 0x800 },   { 0xf8, 0xf0, 4, 0x10000 },
	};

	for (int i = 0; i < 4; i++) {
		uint32_t code = *s & (unsigned char)~forms[i].mask;

		if ((*s & forms[i].mask) != forms[i].lead)
			continue;
		if (end - s < forms[i].n)
			return 0;
		for (int j = 1; j < forms[i].n; j++) {
			if ((s[j] & 0xc0) != 0x80)
				return 0;
			code = code << 6 | (s[j] & 0x3f);
		}
		if (code < forms[i].least || code > 0x10ffff ||
		    (code >= 0xd800 && code < 0xe000))
			return 0;
		*out = code;
		return forms[i].n;
	}
	return 0;
}

int kvt_character(const char *s, const char *end)
{
	uint32_t code;

	return character((const unsigned char *)s, (const unsigned char *)end, &code);
}

bool kvt_is_text(const char *s)
{
	const unsigned char *p = (const unsigned char *)s, *end = p + strlen(s);
	uint32_t code;

	while (p < end) {
		int n = character(p, end, &code);

		if (!n)
			return false;
		p += n;
	}
	return true;
}

/* Moves the cursor, breaks the line or turns the order of what stands around it. */
static bool acts(uint32_t code)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{ 0x00, 0x1f },     { 0x7f, 0x9f },	/* C0; DEL and C1 */
		{ 0x061c, 0x061c }, { 0x200e, 0x200f },	/* marks of direction */
		{ 0x2028, 0x202e },	/* separators of lines; embeddings, overrides */
		{ 0x2066, 0x2069 },	/* isolates */
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		if (code >= ranges[i].first && code <= ranges[i].last)
			return true;
	return false;
}

int kvt_plain_next(char out[KVT_PLAIN_MAX], const char *s, const char *end)
{
	static const char named[] = { ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't' };
	const unsigned char *p = (const unsigned char *)s;
	uint32_t code = 0;
	int n = character(p, (const unsigned char *)end, &code);

	if (n && !acts(code)) {
		memcpy(out, s, (size_t)n);
		out[n] = '\0';
		return n;
	}
	if (n && code < sizeof(named) && named[code]) {
		snprintf(out, KVT_PLAIN_MAX, "\\%c", named[code]);
		return n;
	}
	n = n ? n : 1;
	for (int i = 0; i < n; i++)
		snprintf(out + 4 * i, 5, "\\x%02x", p[i]);
	return n;
}

struct kvt_text kvt_size_string(int64_t nbytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB",
					    "PiB", "EiB" };
	struct kvt_text out;
	double n = (double)nbytes;
	bool whole;
	int u = 0;

	for (; n >= 1024 && u < 6; u++)
		n /= 1024;
	whole = n == (double)(int64_t)n;
	snprintf(out.s, sizeof(out.s), "%.*f %s", whole ? 0 : n < 10 ? 2 : 1, n, unit[u]);
	return out;
}
