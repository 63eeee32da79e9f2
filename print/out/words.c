/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.c - a command to go on with: options of inputs as they would be typed again
 *
 * In: the hints that a command line filled.  Out: its words, each quoted if a shell
 * would see anything in it, so that joined by spaces they are the same command line.
 * What would be too long, or another line on a screen, fails instead: no command is
 * better than one that says something else.
 */
#include "print/out/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void words_add(struct words *w, const char *option, const char *text)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_@%+=:,./-";
	bool quoted = text[strspn(text, plain)] != '\0';
	char *out = malloc(strlen(option) + 4 * strlen(text) + 3), *to = out;

	if (!out || w->n == MAX_WORDS) {
		free(out);
		w->failed = true;
		return;
	}
	to += sprintf(to, "%s%s", option, quoted ? "'" : "");
	for (const char *s = text; *s; s++) {
		/* on a screen it would be another one */
		w->failed |= (unsigned char)*s < ' ' || *s == 127;
		if (*s == '\'')
			to += sprintf(to, "'\\''");
		else
			*to++ = *s;
	}
	strcpy(to, quoted ? "'" : "");
	w->s[w->n++] = out;
}

static void add_hint(struct words *w, const struct kvt_hint *hint, const void *member)
{
	const struct kvt_facts *facts = member;
	char option[64], number[32];

	snprintf(option, sizeof(option), "--%s%s", hint->name,
		 hint->type == KVT_HINT_FLAG ? "" : "=");
	switch (hint->type) {
	case KVT_HINT_FLAG:
		words_add(w, option, "");
		break;
	case KVT_HINT_STRING:
		words_add(w, option, *(const char *const *)member);
		break;
	case KVT_HINT_COUNT:
	case KVT_HINT_BYTES:
		snprintf(number, sizeof(number), "%lld", LL(*(const int64_t *)member));
		words_add(w, option, number);
		break;
	case KVT_HINT_FACTS:
		for (int i = 0; i < facts->n; i++)
			words_add(w, option, facts->s[i]);
		break;
	case KVT_HINT_GROUPS:
		w->failed = true;	/* too long to be of use */
		break;
	}
}

/* Of several names of a member the first. */
static bool is_first(int row)
{
	for (int i = 0; i < row; i++)
		if (kvt_hint_at(i)->offset == kvt_hint_at(row)->offset)
			return false;
	return true;
}

void words_add_hints(struct words *w, const struct kvt_hints *hints)
{
	const struct kvt_hint *hint;

	for (int i = 0; (hint = kvt_hint_at(i)); i++)
		if (kvt_hint_said(hints, hint) && is_first(i))
			add_hint(w, hint, (const char *)hints + hint->offset);
}

void words_free(struct words *w)
{
	while (w->n)
		free(w->s[--w->n]);
}
