/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h - what the programs that compute reference files anew share
 *
 * They end at the first thing that is wrong, with the status of kvtool and the file
 * and line or case on stderr.
 */
#ifndef KVT_REFERENCE_H
#define KVT_REFERENCE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/kvt/transfer.h"

static inline void must(enum kvt_status status, const char *where,
			const struct kvt_error *err)
{
	if (status) {
		fprintf(stderr, "%s: %s\n", where, err->text);
		exit((int)status);
	}
}

static inline void wrong(const char *where, const char *why)
{
	struct kvt_error err;

	must(kvt_fail(&err, KVT_BAD_INPUT, "%s", why), where, &err);
}

static inline void *room(size_t nbytes)
{
	void *p = malloc(nbytes + 1);

	if (!p) {
		fputs("out of memory\n", stderr);
		exit(KVT_SYSTEM);
	}
	return p;
}

static inline enum kvt_scope scope_of(const char *where, const char *name)
{
	for (int scope = 0; scope < KVT_NSCOPES; scope++)
		if (!strcmp(kvt_scope_name((enum kvt_scope)scope), name))
			return (enum kvt_scope)scope;
	wrong(where, "there is no such scope");
	return KVT_SCOPE_RFC;
}

#endif
