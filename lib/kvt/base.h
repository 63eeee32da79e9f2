/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - statuses, errors and text, ranges of numbers
 *
 * What every other header of kvtool begins with; the conventions of all of them
 * are said in kvt.h.
 */
#ifndef KVT_BASE_H
#define KVT_BASE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * KVT_API marks the functions that libkvt promises and exports.  The others are for the
 * rooms of kvtool's own tree: the headers that are installed do not have them.
 */
#if defined(__GNUC__)
#define KVT_API          __attribute__((visibility("default")))
#define KVT_MUST_CHECK   __attribute__((warn_unused_result))
#define KVT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define KVT_API
#define KVT_MUST_CHECK
#define KVT_PRINTF(f, a)
#endif

/* ---- errors ------------------------------------------------------------- */

/*
 * What went wrong, by what the caller can do about it.  kvtool(1) turns these
 * into its exit statuses, so the values are part of the interface: never reuse
 * one.
 */
enum kvt_status {
	KVT_OK          = 0,
	KVT_MISMATCH    = 1,	/* differs, or an expectation did not hold */
	KVT_USAGE       = 2,	/* the request itself makes no sense */
	KVT_BAD_INPUT   = 3,	/* malformed, ambiguous or not comparable */
	KVT_UNSUPPORTED = 4,	/* valid, but this build or machine cannot do it */
	KVT_SYSTEM      = 5,	/* memory, file or device failed */
};

struct kvt_error {
	char text[512];		/* one line: a sentence without newline or period */
};

/* ---- raising them ------------------------------------------------------- */

/*
 * kvt_fail() records why and returns 'status', so that an error is raised in
 * one line: return kvt_fail(err, KVT_BAD_INPUT, "...").  Call it where the
 * cause is known; callers further up pass the status on unchanged.  Names in the
 * sentence may be any bytes: it is stored as kvt_plain_next() writes it.
 */
enum kvt_status kvt_fail(struct kvt_error *err, enum kvt_status status,
			 const char *format, ...) KVT_PRINTF(3, 4);
/* "path: why", but once only: many a reason names the file already. */
enum kvt_status kvt_fail_about(struct kvt_error *err, enum kvt_status status,
			       const char *path, const struct kvt_error *why);
/* KVT_SYSTEM, "path: cannot WHAT: " and what errno says. */
enum kvt_status kvt_fail_errno(struct kvt_error *err, const char *path, const char *what);
/* KVT_SYSTEM, "path: out of memory", or without a path, which is NULL then. */
enum kvt_status kvt_no_memory(struct kvt_error *err, const char *path);

/* For %lld, whatever int64_t is. */
#define LL(x) ((long long)(x))

/* ---- text --------------------------------------------------------------- */

/* Is 's' UTF-8? */
bool kvt_is_text(const char *s);
/* Bytes of the character that begins at 's', below 'end'; 0: it is no UTF-8. */
int kvt_character(const char *s, const char *end);

/*
 * Names come from files, and may be made to move the cursor of a terminal or to
 * look like further lines.  So people are shown one character at a time: as it is,
 * or, where it is a control character (C0, DEL, C1, of direction, a separator of
 * lines) or no UTF-8, as \n, \r, \t or its bytes, \x1b.  A backslash stays as it
 * is, so that what was escaped once is not escaped again.
 *
 * Writes the character at 's', below 'end', and a NUL; returns how many bytes of
 * 's' it took, 1 to 4.
 */
#define KVT_PLAIN_MAX 17
int kvt_plain_next(char out[KVT_PLAIN_MAX], const char *s, const char *end);

/* Short text by value. */
struct kvt_text {
	char s[160];
};

/* Bytes as people count them: "480 KiB", "1.5 GiB"; exact below 1 KiB. */
KVT_API struct kvt_text kvt_size_string(int64_t nbytes);

/* ---- numbers ------------------------------------------------------------ */

struct kvt_range {
	int64_t begin, end;		/* half open; empty if equal */
};

/* One of the ranks that share something, as of TP. */
struct kvt_rank {
	int64_t size, index;
};

/* Greatest common divisor of numbers that are not negative; of 0 and b it is b. */
static inline int64_t kvt_gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Least common multiple of two above 0. */
static inline int64_t kvt_lcm(int64_t a, int64_t b)
{
	return a / kvt_gcd(a, b) * b;
}

/* n / by, rounded up; n is not negative. */
static inline int64_t kvt_ceil_div(int64_t n, int64_t by)
{
	return n / by + (n % by > 0);
}

#ifdef __cplusplus
}
#endif

#endif
