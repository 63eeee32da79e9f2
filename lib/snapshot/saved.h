/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saved.h - what an engine needs to take a state file of its own back
 *
 * A dump says what tokens there are.  A file that an engine saved for itself, to restore
 * it later, holds besides what the context must be like that can take it.
 */
#ifndef KVT_SAVED_H
#define KVT_SAVED_H

#include "lib/kvt/base.h"

enum { KVT_SAVED_CACHES = 2 };

struct kvt_saved {
	const char *engine, *kind;	/* "llama.cpp", "ggsq" */
	int version;			/* of that kind; 0: it has none */
	bool whole;			/* of all sequences of a context */
	bool partial;			/* known to be of some layers alone */
	/* the list of tokens that was stored beside: those of the request, or 'id' */
	int64_t nids;
	bool is_tokens;
	int32_t *id;			/* owned; NULL: they are the request's, or none */
	int ncaches;
	struct {
		int64_t cells;		/* in the fullest stream */
		bool windowed;
	} cache[KVT_SAVED_CACHES];
	int64_t streams;		/* that share no cells; 0: not in the file */
	int64_t sequences;		/* there must be so many, at least */
	const char *type[2];		/* of keys, of values; NULL: there are none */
	bool transposed;		/* values, as without flash attention */
	int64_t nstates;		/* recurrent states, and where each stands */
	struct kvt_saved_state {
		int32_t sequence, position;
	} *state;			/* owned */
};

struct kvt_dump;
/* Of a dump that is one file; NULL: it is no state of an engine. */
const struct kvt_saved *kvt_dump_saved(const struct kvt_dump *dump);
void kvt_saved_free(struct kvt_saved *saved);	/* NULL is allowed */

#endif
