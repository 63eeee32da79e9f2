/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c - is this text? */
#include "formats/format.h"

/* Bytes of the character that begins at 's'; 0 if it is not UTF-8. */
static int character(const unsigned char *s)
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
		for (int j = 1; j < forms[i].n; j++) {
			if ((s[j] & 0xc0) != 0x80)
				return 0;
			code = code << 6 | (s[j] & 0x3f);
		}
		if (code < forms[i].least || code > 0x10ffff ||
		    (code >= 0xd800 && code < 0xe000))
			return 0;
		return forms[i].n;
	}
	return 0;
}

bool kvt_is_text(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	while (*p) {
		int n = character(p);

		if (!n)
			return false;
		p += n;
	}
	return true;
}
