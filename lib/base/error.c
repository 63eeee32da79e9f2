/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.c - one status and one sentence
 *
 * A sentence is what printf() makes of it, made plain by kvt_plain_next(), for there may
 * be text of a file in it.  What does not fit into struct kvt_error is cut; an escape is
 * there whole or not at all.  kvt_fail_about() puts a path before a sentence that does
 * not begin with it.
 */
#include "lib/kvt/kvt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum kvt_status kvt_fail(struct kvt_error *err, enum kvt_status status,
			 const char *format, ...)
{
	char text[sizeof(err->text)], part[KVT_PLAIN_MAX];
	const char *s = text, *end;
	size_t used = 0, n;
	va_list args;

	if (!err)
		return status;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (end = text + strlen(text); s < end; used += n) {
		s += kvt_plain_next(part, s, end);
		n = strlen(part);
		if (used + n >= sizeof(err->text))
			break;
		memcpy(err->text + used, part, n);
	}
	err->text[used] = '\0';
	return status;
}

enum kvt_status kvt_fail_about(struct kvt_error *err, enum kvt_status status,
			       const char *path, const struct kvt_error *why)
{
	size_t n = strlen(path);

	if (!strncmp(why->text, path, n) && !strncmp(why->text + n, ": ", 2))
		return kvt_fail(err, status, "%s", why->text);
	return kvt_fail(err, status, "%s: %.400s", path, why->text);
}

enum kvt_status kvt_fail_errno(struct kvt_error *err, const char *path, const char *what)
{
	return kvt_fail(err, KVT_SYSTEM, "%s: cannot %s: %s", path, what,
			strerror(errno));
}

enum kvt_status kvt_no_memory(struct kvt_error *err, const char *path)
{
	return kvt_fail(err, KVT_SYSTEM, "%.400s%sout of memory", path ? path : "",
			path ? ": " : "");
}

const char *kvt_version(void)
{
	return KVT_VERSION;
}
