/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - lists of KEY=VALUE, each with a table of its keys
 *
 * All of them behave alike: what is unknown, given twice, empty or no value of its type
 * is KVT_USAGE, in a sentence that begins with what the list is of; a word that is near
 * is offered.  '_' and '-' of a key are one.  Nothing is allocated; texts are borrowed.
 */
#ifndef KVT_KEYS_H
#define KVT_KEYS_H

#include <stddef.h>

#include "lib/kvt/base.h"

enum kvt_key_type {
	KVT_KEY_COUNT,		/* int64_t, 1 or more, as number.h has it */
	KVT_KEY_NUMBER,		/* int64_t, 0 or more */
	KVT_KEY_INTEGER,	/* int64_t, which may have a '-' */
	KVT_KEY_REAL,		/* double */
	KVT_KEY_TEXT,		/* const char * */
	KVT_KEY_FLAG,		/* bool: a key without a value makes it true */
	KVT_KEY_SPAN,		/* int64_t [2], 0 or more each: "0:16" */
};

struct kvt_key {
	const char *name;	/* NULL ends a table, of 64 at most */
	enum kvt_key_type type;
	size_t field;		/* where it is in what is filled */
	const char *old;	/* what it was called before, or NULL */
};

struct kvt_keys {
	const char *what;	/* "--local" */
	const struct kvt_key *key;
	void *to;
	uint64_t seen;		/* those given so far, bit by bit in the table's order */
};

/* One of them, its key in key[0..n); 'value' is NULL if there was no '='. */
KVT_MUST_CHECK enum kvt_status
kvt_keys_put(struct kvt_keys *keys, const char *key, size_t n, const char *value,
	     struct kvt_error *err);
/* "KEY=VALUE,..."; commas in 'text' become ends of what is filled. */
KVT_MUST_CHECK enum kvt_status
kvt_keys_parse(struct kvt_keys *keys, char *text, struct kvt_error *err);
/* The same of a text that must stay as it is, and of a table without texts. */
KVT_MUST_CHECK enum kvt_status
kvt_keys_copy(struct kvt_keys *keys, const char *text, struct kvt_error *err);

#endif
