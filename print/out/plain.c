/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.c - printf() for people
 *
 * What a format says is ours, newlines included; what comes in through %s may be
 * from a file.  Only where the two meet can a forged newline be told from a real
 * one, so this is where strings are made plain.
 */
#include "print/out/say.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct directive {
	char flags[8];			/* of "-+ #0" */
	int width, precision;		/* precision -1: none */
	char length;			/* 'L' for "ll", or 'l', 'j', 'z', '\0' */
	char conversion;
};

/* A va_list that can be handed down: one may be an array, and arrays decay. */
struct arguments {
	va_list list;
};

static const char *read_number(int *out, const char *s, struct arguments *args)
{
	if (*s == '*') {
		*out = va_arg(args->list, int);
		return s + 1;
	}
	*out = (int)strtol(s, NULL, 10);
	return s + strspn(s, "0123456789");
}

/* 's' is behind the '%'. */
static const char *read_directive(struct directive *d, const char *s,
				  struct arguments *args)
{
	size_t nflags = strspn(s, "-+ #0");

	*d = (struct directive){ .precision = -1 };
	memcpy(d->flags, s, nflags < 7 ? nflags : 7);
	s = read_number(&d->width, s + nflags, args);
	if (*s == '.')
		s = read_number(&d->precision, s + 1, args);
	if (!strncmp(s, "ll", 2)) {
		d->length = 'L';
		s += 2;
	} else if (strchr("ljz", *s)) {
		d->length = *s++;
	}
	d->conversion = *s;
	return s + 1;
}

union value {
	intmax_t i;
	uintmax_t u;
	double x;
	const char *s;
};

/* Moves 'args' on by what the directive takes. */
static union value take(const struct directive *d, struct arguments *args)
{
	bool minus = d->conversion == 'd' || d->conversion == 'i';

	if (d->conversion == '%')
		return (union value){ .s = "" };
	if (d->conversion == 's')
		return (union value){ .s = va_arg(args->list, const char *) };
	if (strchr("efg", d->conversion))
		return (union value){ .x = va_arg(args->list, double) };
	if (!strchr("cdiuxXo", d->conversion))
		abort();		/* a format of ours that nobody ever tried */
	switch (d->length) {
	case 'L': return (union value){ .i = va_arg(args->list, long long) };
	case 'l': return (union value){ .i = va_arg(args->list, long) };
	case 'j': return (union value){ .i = va_arg(args->list, intmax_t) };
	case 'z': return (union value){ .u = va_arg(args->list, size_t) };
	}
	return minus ? (union value){ .i = va_arg(args->list, int) } :
		       (union value){ .u = va_arg(args->list, unsigned int) };
}

/* How long the string is when it is plain; *same: it was. */
static int plain_length(bool *same, const char *s, const char *end)
{
	char part[KVT_PLAIN_MAX];
	int length = 0;

	for (*same = true; s < end; length += (int)strlen(part)) {
		int n = kvt_plain_next(part, s, end);

		*same = *same && !strncmp(part, s, (size_t)n) && !part[n];
		s += n;
	}
	return length;
}

static const char *end_of(const struct directive *d, const char *s)
{
	return s + (d->precision < 0 ? strlen(s) : strnlen(s, (size_t)d->precision));
}

static bool all_plain(const char *format, struct arguments *args)
{
	struct directive d;
	union value v;
	bool same = true;

	while (same && *(format += strcspn(format, "%"))) {
		format = read_directive(&d, format + 1, args);
		v = take(&d, args);
		if (d.conversion == 's')
			plain_length(&same, v.s, end_of(&d, v.s));
	}
	return same;
}

static void put_string(FILE *out, const struct directive *d, const char *s)
{
	const char *end = end_of(d, s);
	char part[KVT_PLAIN_MAX];
	bool same, left = strchr(d->flags, '-') || d->width < 0;
	int blanks = abs(d->width) - plain_length(&same, s, end);

	if (blanks > 0 && !left)
		fprintf(out, "%*s", blanks, "");
	while (s < end) {
		s += kvt_plain_next(part, s, end);
		fputs(part, out);
	}
	if (blanks > 0 && left)
		fprintf(out, "%*s", blanks, "");
}

/* All that is no string goes through fprintf(), one directive at a time. */
static void put_directive(FILE *out, const struct directive *d, union value v)
{
	bool real = strchr("efg", d->conversion) != NULL;
	char spec[24];

	snprintf(spec, sizeof(spec), "%%%s*.*%s%c", d->flags, real ? "" : "j",
		 d->conversion);
	if (d->conversion == '%')
		putc('%', out);
	else if (d->conversion == 's')
		put_string(out, d, v.s);
	else if (d->conversion == 'c')
		putc((int)v.u, out);
	else if (real)
		fprintf(out, spec, d->width, d->precision, v.x);
	else
		fprintf(out, spec, d->width, d->precision, v.u);
}

/* As vfprintf() does it, unless there is something to be made plain. */
static void print(FILE *out, const char *format, struct arguments *args)
{
	struct arguments ahead;
	struct directive d;
	bool plain;

	va_copy(ahead.list, args->list);
	plain = all_plain(format, &ahead);
	va_end(ahead.list);
	if (plain) {
		vfprintf(out, format, args->list);
		return;
	}
	for (;;) {
		size_t n = strcspn(format, "%");

		fwrite(format, 1, n, out);
		if (!format[n])
			return;
		format = read_directive(&d, format + n + 1, args);
		put_directive(out, &d, take(&d, args));
	}
}

void plainf(const char *format, ...)
{
	struct arguments args;

	va_start(args.list, format);
	print(stdout, format, &args);
	va_end(args.list);
}

void fplainf(FILE *out, const char *format, ...)
{
	struct arguments args;

	va_start(args.list, format);
	print(out, format, &args);
	va_end(args.list);
}
