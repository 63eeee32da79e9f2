/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.h - what a repository demands of a dump, as a text file
 * (kvtool-contract(5))
 *
 * A contract is a list of clauses "KEY OP VALUE | VALUE", each on a line of its
 * own, for the dump or for a group of it.  The options of describe are clauses
 * too.  Nothing here knows a dump.
 */
#ifndef KVTOOL_CONTRACT_H
#define KVTOOL_CONTRACT_H

#include <stddef.h>

#include "lib/kvt/kvt.h"

/* How the values of a clause are written, and what they are compared with. */
enum clause_type {
	CLAUSE_TEXT,
	CLAUSE_INT,		/* or null */
	CLAUSE_BOOL,
	CLAUSE_PARALLEL,	/* a number of ranks, or of this one */
	CLAUSE_GROUPS,		/* ids in order */
	CLAUSE_KIND,
	CLAUSE_DTYPE,
	CLAUSE_LAYOUT,		/* equal if each byte is in the same place */
	CLAUSE_STRIDES,		/* "L:98304 B:2048": those that are named */
	CLAUSE_NAMES,		/* of layers; * stands for any letters */
	CLAUSE_RANGES,		/* "0:5,7" */
	CLAUSE_PARTS,		/* "x:0+128 B:128+32@256" */
	CLAUSE_BACKEND,		/* of vLLM, perhaps of a release: "FLASH_ATTN@0.26" */
	CLAUSE_CONNECTOR,
	CLAUSE_RELEASE,		/* what is said of vLLM is of: says nothing of a dump */
	CLAUSE_DIGEST,
	CLAUSE_NTYPES
};

struct clause_key {
	const char *name;
	enum clause_type type;
	bool of_group;
	const char *field;		/* of describe --json; NULL: computed */
};
const struct clause_key *clause_key_at(int i);		/* NULL past the last */
const struct clause_key *clause_key_find(const char *name);

enum clause_op { CLAUSE_IS, CLAUSE_IS_NOT, CLAUSE_AT_LEAST, CLAUSE_AT_MOST };

enum { CLAUSE_MAX_VALUES = 32 };

struct clause {
	int line;
	int section;			/* of the contract; -1: the whole dump */
	const char *name;
	const struct clause_key *key;	/* NULL: any field of describe --json */
	enum clause_op op;
	int nvalues;			/* any of them will do */
	const char *value[CLAUSE_MAX_VALUES];
};

/* "group ID", as a clause that demands this group; "*": any. */
struct contract_section {
	struct clause clause;
};

struct contract {
	char *text;			/* what everything here points into */
	int nsections, nclauses;
	struct contract_section *section;
	struct clause *clause;
};

/*
 * 'name' is that of the file, for messages, which also say the line.  Refuses
 * (KVT_BAD_INPUT) what is no contract, and an unknown clause; a newer
 * version is KVT_UNSUPPORTED.  Free it either way.
 */
KVT_MUST_CHECK enum kvt_status
contract_parse(struct contract *out, const char *text, size_t nbytes,
	       const char *name, struct kvt_error *err);
void contract_free(struct contract *contract);

/*
 * One clause without its line, in place: the text is cut into words.  False if
 * it is none.  The key is looked up, but need not be known.
 */
KVT_MUST_CHECK enum kvt_status
clause_parse(struct clause *out, char *text, struct kvt_error *err);
/* Are these values of the key's type? */
KVT_MUST_CHECK enum kvt_status
clause_check(const struct clause *clause, struct kvt_error *err);

/* ---- values with parts, for who checks them and who compares them -------- */

/* Takes the next of "0:5,7" as a range; false at the end or where it is none. */
bool clause_next_range(const char **text, int64_t *begin, int64_t *end);

struct clause_word {
	char name[64];
	int64_t n;
};
/* Takes the next of "L:98304 B:2048". */
bool clause_next_stride(const char **text, struct clause_word *out);

struct kvt_backend;
/* "FLASH_ATTN@packed": the backend and the releases that are meant; NULL: unknown. */
const struct kvt_backend *clause_backend(unsigned *releases, const char *value);

/* The releases that a contract says it is of, as bits; 0: it does not say it. */
unsigned contract_releases(const struct contract *contract);

/* The value, quoted if it would be read as something else; 'room' >= 2 * length. */
void clause_quote(char *out, size_t room, const char *value);

#endif
