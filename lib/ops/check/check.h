/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - what is wrong with a dump, by names that stay
 *
 * What a file must not be to be read at all is found by formats/; here is what
 * can be read and yet cannot be true, or is seldom meant.
 */
#ifndef KVTOOL_FSCK_H
#define KVTOOL_FSCK_H

#include "cli/print/describe.h"

enum fsck_severity { FSCK_NOTE, FSCK_WARNING, FSCK_ERROR, FSCK_NSEVERITIES };

struct fsck_rule {
	const char *name;		/* "table.out-of-pool" */
	enum fsck_severity severity;
	const char *meaning;
};
const struct fsck_rule *fsck_rule_at(int i);	/* NULL past the last */

enum { FSCK_NRULES = 96, FSCK_MOST = 16 };	/* kept of one rule; others are counted */

struct fsck_finding {
	int rule;			/* number of it */
	char at[160];			/* "group=g0,block=3", as where takes it */
	char text[420];
};

/* What was looked at; files 0: it could not be opened. */
struct fsck_looked {
	int64_t files, bytes, blocks;
	int groups;
	bool data;			/* was read */
	const char *checks;		/* of the format; or NULL */
	bool unlisted;			/* nothing says which files there should be */
};

/* Of one file, or of several ranks together. */
struct fsck_report {
	char path[512];
	char format[32];		/* "": it could not be opened */
	int nfindings, room;
	struct fsck_finding *finding;
	int64_t count[FSCK_NRULES];
	int64_t total[FSCK_NSEVERITIES];
	bool out_of_memory;
	struct fsck_looked looked;
};

/* Where a finding is; "" for all of the dump. */
struct fsck_at {
	char s[160];
};
struct fsck_at fsck_at(const char *format, ...) KVT_PRINTF(1, 2);

/* 'name' must be one of the rules. */
void fsck_find(struct fsck_report *r, const char *name, struct fsck_at at,
	       const char *format, ...) KVT_PRINTF(4, 5);

/* The same for n more that need no line of their own. */
void fsck_count(struct fsck_report *r, const char *name, int64_t n);

void fsck_text(const struct fsck_report *r);
void fsck_json(struct json_out *out, json_t *list, const struct fsck_report *r);

/* ---- what is looked for ------------------------------------------------- */

/* Block tables, valid counts, ids: fsck_tables.c.  False: out of memory. */
bool fsck_tables(struct fsck_report *r, const struct kvt_snapshot *s);
/* Names, ids and order of layers; heads of a rank: fsck_layers.c. */
bool fsck_layers(struct fsck_report *r, const struct kvt_snapshot *s);
void fsck_rank(struct fsck_report *r, const struct kvt_snapshot *s);

/* All data: checksums, stored digests, the null block, stale states, padding. */
KVT_MUST_CHECK enum kvt_status
fsck_data(struct fsck_report *r, struct kvt_dump *reader, const char *path,
	  const struct kvt_run *run, struct kvt_error *err);

/* Do the ranks together hold the model once?  'fast': without reading data. */
struct rank_file;
KVT_MUST_CHECK enum kvt_status
fsck_ranks(struct fsck_report *r, struct rank_file *files, int nfiles, bool fast,
	   const struct kvt_run *run, struct kvt_error *err);

#endif
