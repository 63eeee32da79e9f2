/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expect.h - does a dump hold to a clause?
 *
 * For kvtool expect, whose clauses are lines of a contract, and for the options
 * of describe.  Reads no data, unless a clause is a digest.
 */
#ifndef KVTOOL_EXPECT_H
#define KVTOOL_EXPECT_H

#include "cli/expect/contract.h"
#include "cli/opt.h"
#include "lib/kvt/connect.h"
#include "print/describe.h"

/* Where vLLM would run; zeroed: not known. */
struct expect_on {
	const char *text;		/* of --on; NULL: it was not given */
	struct kvt_backend_platform platform;
	bool shuffle;			/* of AITER */
};
#define OPT_ON(p) { "on", 0, OPT_STRING, p, "PLATFORM", \
		    "cuda:9.0, rocm, rocm:aiter, rocm:mha,mla: where vLLM would run" }
KVT_MUST_CHECK enum kvt_status
expect_on_take(struct expect_on *out, const char *text, struct kvt_error *err);

/* What backends are asked of such a machine. */
void expect_on_config(struct kvt_backend_config *out, const struct expect_on *on);

/* A dump and what describe --json says of it. */
struct expect_dump {
	const struct kvt_description *d;
	const json_t *json;
	const char *digest[2];		/* of tokens, of blocks; NULL: not computed */
	const char *kvd1;		/* of tokens, if digest[0] is a later version */
	unsigned releases;		/* of vLLM that are meant, as bits; 0: any */
	struct expect_on on;
};

/* How one clause came out for the dump, or for one of its groups. */
struct outcome {
	const struct clause *clause;
	char group[32];			/* id; "": the whole dump */
	bool holds;
	unsigned releases;		/* of vLLM in which it holds; 0: of none */
	char found[512], expected[512];
};

/*
 * Judges the clause for group 'g', -1: for the dump.  False: a clause without a
 * key names no field of it, so there is no outcome.
 */
bool expect_judge(struct outcome *out, const struct clause *clause,
		  const struct expect_dump *dump, int g);

/* "layout is LBSHC (nhd), expected LBHSC"; 'room' may be too small for all. */
void outcome_text(char *out, size_t room, const struct outcome *outcome);

/* A value as people read it: a layout by its axes and the name that most know. */
struct human expect_named(const struct clause *clause, int i);

/* What a dump would be expected to be: the value of a clause, "" if it has none. */
void expect_value(char *out, size_t room, const struct clause_key *key,
		  const struct expect_dump *dump, int g);

/* ---- a contract --------------------------------------------------------- */

/* One file against the contract. */
struct expect_result {
	const char *path;
	char error[512];		/* why it could not be checked; "" */
	enum kvt_status status;
	unsigned releases;		/* of all clauses about vLLM; 0: of none */
	int noutcomes;
	struct outcome *outcome;
	bool out_of_memory;
};

/*
 * Adds the outcome of each clause, in the order of its lines, and of each line
 * whose group the dump lacks; then whether one release of vLLM is in all of them.
 */
void expect_judge_contract(struct expect_result *result, const struct contract *contract,
			   const struct expect_dump *dump);

/* ---- what takes more than a field: backend.c ----------------------------- */

/*
 * The releases in which nothing is wrong, of those that the dump is judged for; if 0
 * then 'out' has the reasons, by commas.
 */
unsigned backend_reasons(char *out, size_t room, const struct clause_key *key,
			 const char *value, const struct expect_dump *dump,
			 const struct kvt_group *group);
unsigned connector_reasons(char *out, size_t room, const char *value,
			   const struct expect_dump *dump, const struct kvt_group *group);

/* Is the group a cache that backends can be asked about? */
bool backend_applies(const struct kvt_group *group);
/* What the group tells of the question to them. */
struct kvt_backend_config backend_config(const struct kvt_group *group);

/* ---- who could have it: writers.c ----------------------------------------- */

/* Has the engine nothing against it, and are bytes there?  'group' may be NULL. */
bool backend_fits(const struct kvt_backend *backend,
		  const struct kvt_backend_config *config, const struct kvt_group *group);

enum { NAME_COLUMN = 13 };		/* where names begin, behind a label */
int name_list_width(void);

/* All backends of config's release that fit; 'nothing' for none, NULL: no line. */
void writers_text(const char *label, const struct kvt_backend_config *config,
		  const struct kvt_group *group, const char *nothing);
/* "release" and "possible" of 'o' */
void writers_json(struct json_out *out, json_t *o,
		  const struct kvt_backend_config *config, const struct kvt_group *group);

/* ---- expect write: write.c ---------------------------------------------- */

/* The contract that the dump holds to, malloc()ed; NULL: out of memory. */
char *expect_contract(const struct expect_dump *dump, bool pool);

/* ---- two contracts: compare.c --------------------------------------------- */

/* A clause of either, or a group, that the other has not, or with another value. */
struct contract_change {
	const struct clause *clause[2];	/* of old and new; NULL: it has none */
	bool is_group;			/* it is the line that names a group */
};

struct contract_changes {
	int n, nclauses;		/* clauses of both that are the same, too */
	struct contract_change *change;	/* owned */
};

/* By group and clause; order of lines and of values, and spelling, do not count. */
KVT_MUST_CHECK enum kvt_status
contract_compare(struct contract_changes *out, const struct contract contracts[2],
		 struct kvt_error *err);

/* "g0: block_size from 16 to 32" */
struct sentence_of_change {
	char s[1200];
};
struct sentence_of_change contract_change_text(const struct contract contracts[2],
					       const struct contract_change *change);
/* "NHD to HND, block 16 to 32": what all else follows from; "": nothing of that. */
void contract_changes_words(char *out, size_t room,
			    const struct contract_changes *changes);
void contract_changes_json(struct json_out *out, const struct contract contracts[2],
			   const char *const names[2],
			   const struct contract_changes *changes);

/* ---- reports of expect check: report.c ----------------------------------- */

struct expect_results {
	const char *contract;		/* path */
	int nfiles;
	struct expect_result *file;
};

/* Formats of --report: "junit", "tap"; false: no such one. */
bool expect_report(FILE *stream, const char *format, const struct expect_results *r);
void expect_github(FILE *stream, const struct expect_results *r);
void expect_json(struct json_out *out, const struct expect_results *r);

/* ---- describe --expect: describe.c --------------------------------------------- */

/*
 * Complains, as that command, about every expectation that does not hold; KVT_USAGE if
 * one names no field.  'layout' may be NULL, 'json' is what describe_json() made.
 */
KVT_MUST_CHECK enum kvt_status
describe_expect(const struct command *command, const struct kvt_description *d,
		const char *layout, const struct opt_strings *clauses,
		const json_t *json, struct kvt_error *err);

#endif
