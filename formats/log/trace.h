/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - reading a trace: requests over time, as several projects log them */
#ifndef KVT_FORMATS_TRACE_H
#define KVT_FORMATS_TRACE_H

#include <stddef.h>
#include <stdio.h>

#include "lib/transfer/trace.h"

/*
 * What a log of vLLM does not say: how many of its transfers are one request, and
 * how many bytes a token has in all of these.
 */
struct kvt_trace_unit {
	int64_t pairs, token_bytes;	/* 1 or more; 0: none that grow */
};

/*
 * Text that begins with '{' is JSON lines, by the first of them
 *
 *	Mooncake: {"timestamp": ms, "input_length": n, "output_length": n,
 *	    "hash_ids": [one a block of 512 tokens]}
 *	FlexKV: {"timestamp": "2026-11-21T10:00:00.5", "event_type": "request",
 *	    "data": {...}}, of which requests GET, and GET_MATCH once its task is
 *	    launched, load tokens: one for each of their slots
 *
 * Else it is CSV with the header "t,bytes,tokens", t in milliseconds, or a log of
 * vLLM: each line "KV Transfer metrics:" are transfers since the one before it.
 * What is wrong in a line is KVT_BAD_INPUT, and the sentence has its number.
 */
KVT_MUST_CHECK enum kvt_status
kvt_trace_parse(struct kvt_trace *out, const char *text, size_t nbytes,
		const struct kvt_trace_unit *unit, const char *name,
		struct kvt_error *err);

/* The same of an open file, which may be compressed by zstd. */
KVT_MUST_CHECK enum kvt_status
kvt_trace_read(struct kvt_trace *out, FILE *file, const char *name,
	       const struct kvt_trace_unit *unit, struct kvt_error *err);

/* The number of "name=number" in a line of vLLM's log; false: it has none. */
bool kvt_log_field(double *out, const char *line, const char *name);

/* n requests of conversations that go on; the same for a seed everywhere. */
KVT_MUST_CHECK enum kvt_status
kvt_trace_make(struct kvt_trace *out, uint64_t seed, int64_t n, struct kvt_error *err);

void kvt_trace_free(struct kvt_trace *trace);

#endif
