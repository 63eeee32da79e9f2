/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - a state file of llama.cpp on its way to a dump */
#ifndef KVT_LLAMA_OPEN_H
#define KVT_LLAMA_OPEN_H

#include "formats/file/tokens.h"
#include "formats/llama/state.h"

/* What a group is of: a cache, and its keys, its values, or both; or states. */
struct llama_part {
	int cache;			/* -1: states */
	int kv;				/* -1: both; which rows of states */
};

struct llama_opening {
	struct kvt_dump *reader;
	const struct kvt_hints *hints;
	struct kvt_llama_state state;
	struct llama_part part[KVT_MAX_GROUPS];
	int64_t window;			/* as the user says; 0: unknown */
	int file;
	struct kvt_error *err;
};

/* The sequences as requests, and where their tokens are; groups must be there. */
KVT_MUST_CHECK enum kvt_status
llama_requests(struct llama_opening *o);

/* ---- tokens of a group: llama_blocks.c ---------------------------------- */

/*
 * The cells of one sequence in a cache, by position.  Where positions repeat (those
 * of an image do) they do not tell tokens apart, and these are counted instead.
 */
struct llama_sequence {
	const struct kvt_llama_member *member;
	int64_t count;
	bool counted;
};

static inline int64_t llama_position(const struct llama_sequence *q, int64_t i)
{
	return q->counted ? i : q->member[i].position;
}

/* Blocks of a group, while tables of requests are made. */
struct llama_blocks {
	struct llama_opening *o;
	int g;
	int64_t n;			/* blocks so far */
	int64_t *first_cell;		/* [streams] as the file's cells are counted */
	int64_t *chain;			/* [cells] into shared[], -1: none; or NULL */
	struct llama_shared *shared;
	int64_t nshared;
};

/* Free with llama_blocks_free() in any case. */
KVT_MUST_CHECK enum kvt_status
llama_blocks_init(struct llama_blocks *b, struct llama_opening *o, int g);
void llama_blocks_free(struct llama_blocks *b);

/*
 * The table of a request, whose tokens are known, in the group: a block or the null
 * block for each entry, and a hole for each run of positions that 'q' lacks.
 */
KVT_MUST_CHECK enum kvt_status
llama_table(struct llama_blocks *b, struct kvt_request *request,
	    const struct llama_sequence *q);

#endif
