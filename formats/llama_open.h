/* SPDX-License-Identifier: Apache-2.0 */
/* llama_open.h - a state file of llama.cpp on its way to a dump */
#ifndef KVT_LLAMA_OPEN_H
#define KVT_LLAMA_OPEN_H

#include "formats/llama_state.h"
#include "formats/token_runs.h"

/* What a group is of: a cache, and its keys, its values, or both; or states. */
struct llama_part {
	int cache;			/* -1: states */
	int kv;				/* -1: both; which rows of states */
};

struct llama_opening {
	struct kvt_reader *reader;
	const struct kvt_hints *hints;
	struct kvt_llama_state state;
	struct llama_part part[KVT_MAX_GROUPS];
	int file;
	int64_t nmembers;		/* of the second cache that requests have */
	struct kvt_error *err;
};

/* The sequences as requests, and where their tokens are; groups must be there. */
KVT_MUST_CHECK enum kvt_status
llama_requests(struct llama_opening *o);

#endif
