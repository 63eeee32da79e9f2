/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - requests over time: Mooncake's JSON lines, or CSV */
#ifndef KVT_TRACE_H
#define KVT_TRACE_H

#include <stddef.h>

#include "lib/kvt.h"

/* Tokens that one hash id of a trace stands for. */
enum { KVT_TRACE_BLOCK = 512 };

struct kvt_trace_row {
	int64_t arrival;		/* ns */
	int64_t tokens;			/* of the prompt */
	int64_t bytes;			/* to move; -1: as many as the tokens have */
	int64_t hash, nhashes;		/* of kvt_trace.hash: one each of its blocks */
};

struct kvt_trace {
	int64_t n, room;
	struct kvt_trace_row *row;	/* owned; by arrival */
	int64_t nhashes, hash_room;
	int64_t *hash;			/* owned */
};

/*
 * Text that begins with '{' is JSON lines: {"timestamp": ms, "input_length": n,
 * "output_length": n, "hash_ids": [one a block of 512 tokens]}; else it is CSV with
 * the header "t,bytes,tokens", t in milliseconds.  What is wrong in a line is
 * KVT_BAD_INPUT, and the sentence has its number.
 */
KVT_MUST_CHECK enum kvt_status
kvt_trace_parse(struct kvt_trace *out, const char *text, size_t nbytes,
		const char *name, struct kvt_error *err);

/* The same of a file, which may be compressed by zstd. */
KVT_MUST_CHECK enum kvt_status
kvt_trace_read(struct kvt_trace *out, const char *path, struct kvt_error *err);

/* n requests of conversations that go on; the same for a seed everywhere. */
KVT_MUST_CHECK enum kvt_status
kvt_trace_make(struct kvt_trace *out, uint64_t seed, int64_t n, struct kvt_error *err);

/*
 * Tokens at the front of each of the t->n requests that earlier ones had, in a
 * cache that keeps all: the leading blocks whose hash ids came before.
 */
KVT_MUST_CHECK enum kvt_status
kvt_trace_hits(int64_t *tokens, const struct kvt_trace *trace, struct kvt_error *err);

void kvt_trace_free(struct kvt_trace *trace);

#endif
