/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case.h - the folder that kvtool shrink writes
 *
 * It is staged as every output is, so it appears whole or not at all.  What COMMAND is
 * asked about lies there already, under the names that it will have.
 */
#ifndef KVTOOL_SHRINK_CASE_H
#define KVTOOL_SHRINK_CASE_H

#include <limits.h>

#include "formats/stage.h"
#include "lib/ops/shrink/shrink.h"

/* What is counted of a part, over all of its groups. */
struct case_size {
	int64_t layers, heads, blocks, requests, tokens, elements;
};

struct shrink_case {
	const char *output;		/* without a slash at its end */
	bool tokens;			/* ids of tokens are kept */
	struct kvt_run run;
	const char *terms;		/* options of kvtool diff, " --exact", or "" */
	const char *command, *text;	/* --while, --text; or NULL */
	int status;			/* with which COMMAND failed on the input */
	struct case_size before, after;	/* of side A */
	struct kvt_stage stage;
	char folder[PATH_MAX];		/* staged, and its own name */
};

extern const char *const case_files[NSIDES];	/* "a.h5", "b.h5" */

struct case_size case_size_of(const struct kvt_dump *dump);
/* "1 of 5 layers, 2 of 4 heads, ..." */
void case_print_sizes(FILE *out, const struct shrink_case *c);

/* May be written?  Makes the folder; case_close() it in any case. */
KVT_MUST_CHECK enum kvt_status
case_open(struct shrink_case *c, struct kvt_error *err);
void case_close(struct shrink_case *c);

/* The dumps, under their new names, in place of those that were there. */
KVT_MUST_CHECK enum kvt_status
case_write(const struct shrink_case *c, const struct shrink_parts *parts, bool sync,
	   struct kvt_error *err);

/* What shows it is run, and goes into README.md with what it prints. */
KVT_MUST_CHECK enum kvt_status
case_explain(const struct shrink_case *c, const struct shrink_parts *parts,
	     struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status
case_publish(struct shrink_case *c, struct kvt_error *err);

/* COMMAND, with A and B being these files: does it fail as 'c' says (shows)?  */
KVT_MUST_CHECK enum kvt_status
while_run(bool *shows, int *status, const struct shrink_case *c,
	  const char *const path[NSIDES], struct kvt_error *err);
/* A shrink_shows, of a struct shrink_case. */
enum kvt_status while_shows(void *context, bool *out, const struct shrink_parts *parts,
			    struct kvt_error *err);

#endif
