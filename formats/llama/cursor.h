/* SPDX-License-Identifier: Apache-2.0 */
/* cursor.h - reading the parts of a state file, one way or another */
#ifndef KVT_LLAMA_CURSOR_H
#define KVT_LLAMA_CURSOR_H

#include "formats/llama/state.h"

/* Bytes read at once; more streams or sequences than any build has. */
enum { KVT_LLAMA_WINDOW = 1 << 16, KVT_LLAMA_STREAMS = 4096, KVT_LLAMA_SEQUENCES = 4096 };

/* A place to read at, and the way the file is read there. */
struct llama_cursor {
	const struct kvt_file *file;
	int64_t at;
	uint8_t *window;		/* bytes around it */
	int64_t begin, end;
	enum kvt_status status;		/* the file could not be read */
	struct kvt_error *err;

	bool whole;			/* of all sequences: cells name theirs */
	bool streams;			/* there is a number of streams */
	int extra;			/* bytes a cell has besides */
};

/* The next 'n' bytes as a number; false: the file has no more, or failed. */
bool llama_take(uint64_t *out, struct llama_cursor *c, int n);
/* A number of 32 bits up to 'most'. */
bool llama_count(int64_t *out, struct llama_cursor *c, int64_t most);
bool llama_skip(struct llama_cursor *c, int64_t n, int64_t size);

/* In a file of one sequence cells need not say which that is. */
enum { KVT_LLAMA_OWN = -1 };

/* Where members go; NULL: they are only counted. */
struct llama_members {
	struct kvt_llama_member *member;
	int64_t count;
};

/* How many streams follow. */
bool llama_stream_count(int64_t *out, struct llama_cursor *c);
/*
 * These, and where what is.  Values that are not there leave no trace: 'values'
 * is a guess, and 'asked' says whether it made a difference.  'out' may be NULL.
 */
bool llama_streams(struct llama_cursor *c, int64_t n, bool values, bool *asked,
		       struct kvt_llama_stream *out, struct llama_members *members);

/* Over the outputs of the last batch. */
bool llama_outputs(struct llama_cursor *c);
/*
 * States, which end with the file.  How many layers have some is found out by a
 * first call, without layers in 'out'; rows and members are true after a second.
 */
bool llama_recurrent(struct llama_cursor *c, struct kvt_llama_states *out);

#endif
