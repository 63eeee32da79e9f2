/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - what is wrong with a dump, by names that stay
 *
 * What a file must not be to be read at all is found by formats/; here is what
 * can be read and yet cannot be true, or is seldom meant.
 */
#ifndef KVT_CHECK_H
#define KVT_CHECK_H

#include "lib/kvt/run.h"
#include "lib/kvt/dump.h"
#include "lib/kvt/model.h"

/* ---- findings ----------------------------------------------------------- */

enum kvt_severity { KVT_NOTE, KVT_WARNING, KVT_ERROR, KVT_NSEVERITIES };
const char *kvt_severity_name(enum kvt_severity severity);	/* "warning" */

struct kvt_rule {
	const char *name;		/* "table.out-of-pool" */
	enum kvt_severity severity;
	const char *meaning;
};
const struct kvt_rule *kvt_rule_at(int i);	/* NULL past the last */

enum { KVT_MAX_RULES = 128 };
enum { KVT_MAX_FINDINGS = 16 };		/* kept of one rule; others are counted */

struct kvt_finding {
	int rule;
	char at[160];			/* "group=g0,block=3", as where takes it */
	char text[420];
};

/* What was looked at; files 0: it could not be opened. */
struct kvt_looked_at {
	int64_t files, bytes, blocks;
	int groups;
	bool data;			/* was read */
	/* groups: whose checksums were compared; in which NaN and infinity were sought */
	int checksums, numbers;
	bool members;			/* checksums of all members of an archive, too */
	const char *checks;		/* of the format; or NULL */
	bool unlisted;			/* nothing says which files there should be */
	char *unnoticed;		/* what else could be wrong; owned; or NULL */
	char *written_by;		/* kvt_dump_written_by(); owned; or NULL */
	int64_t files_of;		/* kvt_dump_files_of() */
};

/* Of one dump, or of several ranks together.  Begins zeroed. */
struct kvt_findings {
	char path[512];
	char format[32];		/* "": it could not be opened */
	int nfindings;
	struct kvt_finding *finding;
	int64_t count[KVT_MAX_RULES];	/* by rule, and by severity */
	int64_t total[KVT_NSEVERITIES];
	bool out_of_memory;		/* some findings are counted and not kept */
	struct kvt_looked_at looked;
	bool cut;			/* looking ended before all was looked at */
	bool of_model;			/* zeros of a layer say that it is missing */
};
void kvt_findings_free(struct kvt_findings *r);

/* Where a finding is; "" for all of the dump. */
struct kvt_find_at {
	char s[160];
};
struct kvt_find_at kvt_find_at(const char *format, ...) KVT_PRINTF(1, 2);

/* 'name' must be one of the rules. */
void kvt_find(struct kvt_findings *r, const char *name, struct kvt_find_at at,
	      const char *format, ...) KVT_PRINTF(4, 5);

/* The same for n more that need no line of their own. */
void kvt_find_more(struct kvt_findings *r, const char *name, int64_t n);

/* ---- one dump ----------------------------------------------------------- */

/* Block tables, valid counts, ids: tables.c.  False: out of memory. */
bool kvt_check_tables(struct kvt_findings *r, const struct kvt_snapshot *s);
/* Names, ids and order of layers; then heads of a rank: layers.c. */
bool kvt_check_layers(struct kvt_findings *r, const struct kvt_snapshot *s);
void kvt_check_heads(struct kvt_findings *r, const struct kvt_snapshot *s);
void kvt_check_contents(struct kvt_findings *r, const struct kvt_snapshot *s);

/*
 * All data: checksums, stored digests, NaN and zeros, the null block, stale slots,
 * padding.
 */
KVT_MUST_CHECK enum kvt_status
kvt_check_data(struct kvt_findings *r, struct kvt_dump *dump, const char *path,
	       const struct kvt_run *run, struct kvt_error *err);

/*
 * All of the above, and what was looked at; the data only if 'data'.  The status is
 * that of reading: what is found wrong is in 'r'.
 */
KVT_MUST_CHECK enum kvt_status
kvt_check_dump(struct kvt_findings *r, struct kvt_dump *dump, const char *path, bool data,
	       const struct kvt_run *run, struct kvt_error *err);

/* ---- ranks of a model --------------------------------------------------- */

/* Do they together hold the model once?  'fast': without reading data. */
struct rank_file;

/*
 * Is every layer of the model in these files, with all that it keeps: model.c.  They are
 * of one model and one copy of it; 'part': it was meant to be a part of the layers.
 */
KVT_MUST_CHECK enum kvt_status
kvt_check_model(struct kvt_findings *r, const struct rank_file *files, int nfiles,
		const struct kvt_model *model, bool part, struct kvt_error *err);

KVT_MUST_CHECK enum kvt_status
kvt_check_ranks(struct kvt_findings *r, struct rank_file *files, int nfiles, bool fast,
		const struct kvt_run *run, struct kvt_error *err);

#endif
