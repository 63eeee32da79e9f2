/* SPDX-License-Identifier: Apache-2.0 */
/* chains.h - which chunks follow each other: what chunks.c and chains.c share */
#ifndef KVT_CHAINS_H
#define KVT_CHAINS_H

#include "formats/store/chunks.h"
#include "formats/store/prompt.h"

/* The chunks of a request. */
struct kvt_chain {
	const char *request;		/* borrowed */
	int64_t count;
	int64_t *run;			/* numbers of runs; owned by the order */
	int64_t first;			/* tokens of the request that come before */
};

/* All requests. */
struct kvt_chains {
	int64_t count;
	struct kvt_chain *chain;
	int64_t *runs;			/* of all chains */
	char *text;			/* of the user's list; or NULL */
	bool listed;			/* what follows what is known */
	struct kvt_named named;		/* where prompts say it; owned */
};

/* Room for as many requests, and runs in all of them. */
KVT_MUST_CHECK enum kvt_status
kvt_chains_reserve(struct kvt_chains *order, int64_t requests, int64_t runs,
		  const char *where, struct kvt_error *err);

/* Requests are the user's prompts, as far as their chunks follow each other. */
KVT_MUST_CHECK enum kvt_status
kvt_chains_of_prompts(struct kvt_chains *out, struct kvt_reader *reader,
		      const struct kvt_chunks *chunks, const struct kvt_hints *hints,
		      struct kvt_error *err);

/* Do chunks say which one they follow? */
bool kvt_chains_known(const struct kvt_chunks *chunks);

/*
 * Requests from the first chunk to one that none follows.  Chunks that follow one that
 * is not there are of no request, unless the user says how many tokens came before;
 * those that follow each other in a circle are KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chains_order(struct kvt_chains *out, struct kvt_chunks *chunks,
		 const struct kvt_hints *hints, struct kvt_error *err);

#endif
