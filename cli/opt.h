/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt.h - one table of options per command
 *
 * The table feeds getopt_long, --help, the shell completions and the check of
 * the man pages, so that an option is written down once.
 */
#ifndef KVT_OPT_H
#define KVT_OPT_H

#include "cli/cli.h"
#include "lib/kvt/dump.h"
#include "lib/kvt/release.h"

enum opt_type {
	OPT_FLAG,		/* bool: becomes true */
	OPT_STRING,		/* const char *: the last one given */
	OPT_MAYBE,		/* the same, "" without a value; arg is "[=ARG]" */
	OPT_STRINGS,		/* struct opt_strings: all of them */
	OPT_FACTS,		/* struct kvt_facts: the same, KEY=VALUE each */
	OPT_INT,		/* int64_t, 0 or more; k M G as OPT_SIZE */
	OPT_COUNT,		/* int64_t, 1 or more; k M G as OPT_SIZE */
	OPT_SIZE,		/* int64_t, bytes: 1 or more, k M G are powers of 1024 */
	OPT_RELEASE_OF,		/* enum kvt_release; "list" prints all, as --help does */
	OPT_HINTS,		/* struct kvt_hints: rows of all that open a file */
	OPT_GROUPS,		/* a list of struct kvt_hints, of one group each */
	OPT_SIDE,		/* struct kvt_hints: "layout=hnd,block-size=32" */
};

struct opt {
	const char *name;	/* long name; NULL ends the table */
	char letter;		/* or 0 */
	enum opt_type type;
	void *value;		/* untouched where the option is not given */
	const char *arg;	/* name of the argument; NULL for a flag */
	const char *help;	/* NULL: another name, which --help leaves out */
};

struct opt_strings {
	int n;
	const char *s[32];
};

enum { OPT_MAX_RANGES = 64 };

struct opt_ranges {
	int n;				/* 0: everything */
	struct kvt_range range[OPT_MAX_RANGES];
};

/* "3", "0:4", "0,2,8:16"; 'option' is for the message. */
KVT_MUST_CHECK enum kvt_status
opt_ranges_parse(struct opt_ranges *out, const char *option, const char *text,
		 struct kvt_error *err);

/* Rows that mean the same in every command that has them. */
#define OPT_QUIET(p)   { "quiet", 'q', OPT_FLAG, p, NULL, "print nothing but errors" }
#define OPT_THREADS(p) { "threads", 0, OPT_COUNT, p, "N", \
			 "number of threads; default: one for each processor" }
#define OPT_MEMORY(p)  { "mem-limit", 0, OPT_SIZE, p, "SIZE", \
			 "memory for data, such as 512M" }
#define OPT_DEVICE(p)  { "device", 0, OPT_STRING, p, "DEVICE", \
			 "where to permute: cpu (default), cuda[:N], hip[:N] or auto" }
#define OPT_JSON(p)    { "json", 'j', OPT_FLAG, p, NULL, \
			 "print JSON; see kvtool-json(5)" }
#define OPT_FORCE(p)   { "force", 'f', OPT_FLAG, p, NULL, \
			 "replace an existing output" }
#define OPT_DRY_RUN(p) { "dry-run", 'n', OPT_FLAG, p, NULL, \
			 "print what would be done and do nothing" }
#define OPT_RELEASE(p) { "release", 0, OPT_RELEASE_OF, p, "RELEASE", \
			 "release of vLLM, such as 0.26; default: the newest; or list" }
#define OPT_FORMAT(p)  { "format", 0, OPT_STRING, p, "FORMAT", \
			 "of the output; default: by the ending of its name" }
#define OPT_NO_SYNC(p) { "no-sync", 0, OPT_FLAG, p, NULL, \
			 "do not wait for the disk: a power failure may lose the output" }
/* Of the options of two inputs, those of one. */
#define OPT_SIDES(side) \
	{ "a", 0, OPT_SIDE, &(side)[0], "OPTION=VALUE,...", \
	  "options of inputs that are of A alone: layout=hnd,block-size=32" }, \
	{ "b", 0, OPT_SIDE, &(side)[1], "OPTION=VALUE,...", "the same of B" }
#define OPT_OUT_DIR(p) { "out-dir", 0, OPT_STRING, p, "DIR", \
			 "write each IN there, under its own name" }
#define OPT_OUTPUT(p)  { "output", 'o', OPT_STRING, p, "FILE", "where to write" }
/* Read by cli/shard before the command is run: here for --help and its like. */
#define OPT_SHARD \
	{ "shard", 0, OPT_STRING, &opt_shard, "I/N", \
	  "do share I of N, from 0; or auto: as the scheduler says" }, \
	{ "shard-dir", 0, OPT_STRING, &opt_shard, "DIR", \
	  "where the shards leave what kvtool reduce joins" }
extern const char *opt_shard;
/* For several files that do not say which rank they are. */
#define OPT_IN_ORDER(p) { "in-order", 0, OPT_FLAG, p, NULL, \
			  "the files are ranks 0, 1, ...; they do not say it" }
#define OPT_TOTAL_HEADS(p) { "total-heads", 0, OPT_COUNT, p, "N", \
			     "KV heads of the model; default: those of all ranks" }
/* Keep this one last: it begins a section of its own in --help. */
#define OPT_INPUT(p)   { "", 0, OPT_HINTS, p, NULL, NULL }

enum {
	OPT_DONE = -1,		/* --help was printed: end with KVT_OK */
	OPT_WRONG = -2,		/* 'err' says what: end with KVT_USAGE */
	OPT_FAILED = -3,	/* likewise, KVT_SYSTEM: standard input */
};

/*
 * Reads the options of a command and moves the operands to argv[0] and on.  Where the
 * command opens dumps (OPT_INPUT), "-" among them becomes the path of standard input,
 * print/out/streams.h.
 * Returns how many there are, or OPT_DONE, OPT_WRONG or OPT_FAILED: then the command
 * returns opt_status() of it.
 */
int opt_parse(const struct command *command, const struct opt *opts,
	      int argc, char **argv, struct kvt_error *err);

/* Something that a command cannot do without. */
struct opt_need {
	bool given;
	const char *what;	/* "--to=LAYOUT (kvtool help layouts)"; NULL ends */
};

/*
 * KVT_USAGE if anything was not given: one sentence that asks for all of it, with the
 * command's first example.
 */
KVT_MUST_CHECK enum kvt_status
opt_need(const struct command *command, const struct opt_need *needs,
	 struct kvt_error *err);

/* Adds another mistake to the one that err tells, in the same sentence. */
void opt_also(struct kvt_error *err, const struct kvt_error *another);

static inline enum kvt_status opt_status(int parsed)
{
	return parsed == OPT_WRONG ? KVT_USAGE :
	       parsed == OPT_FAILED ? KVT_SYSTEM : KVT_OK;
}

/* What was said of an option that does not go with every other. */
struct opt_said {
	bool given;
	const char *name;	/* NULL ends the list */
};

/* Refuses (KVT_USAGE) any of 'others' if 'one' was given, too. */
KVT_MUST_CHECK enum kvt_status
opt_exclude(struct opt_said one, const struct opt_said *others, struct kvt_error *err);

/*
 * "0.5" or "0.5,0.25": what stored keys and values are times, as two commands let one
 * say it.  'option' is for the message.
 */
KVT_MUST_CHECK enum kvt_status
scale_parse(double kv[2], const char *option, const char *text, struct kvt_error *err);

/* KVT_USAGE for 'text', which is none of these n options: opt_mistakes.c. */
void opt_unknown(const struct command *command, const struct opt *row, int n,
		 const char *text, struct kvt_error *err);

#endif
