/* SPDX-License-Identifier: Apache-2.0 */
/* temporary.h - where tests put files that go away: TMPDIR, if it is set */
#ifndef KVT_TESTS_TEMPORARY_H
#define KVT_TESTS_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEMPORARY_NAME = 512 };

/* "FOLDER/name"; the folder is 'otherwise' where TMPDIR says nothing. */
static inline void temporary_name(char out[TEMPORARY_NAME], const char *otherwise,
				  const char *name)
{
	const char *folder = getenv("TMPDIR");

	if (!folder || !*folder)
		folder = otherwise;
	if (snprintf(out, TEMPORARY_NAME, "%s/%s", folder, name) >= TEMPORARY_NAME)
		abort();
}

/* A name of this process; the file is the caller's to make and to remove. */
static inline void temporary_file(char out[TEMPORARY_NAME], const char *what)
{
	char name[64];

	snprintf(name, sizeof(name), "kvt-%.40s-%ld.h5", what, (long)getpid());
	temporary_name(out, "/tmp", name);
}

#endif
