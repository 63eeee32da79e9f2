/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - requests over time
 *
 * formats/log reads a trace, sim/ops replays it.
 */
#ifndef KVT_TRACE_H
#define KVT_TRACE_H

#include "lib/kvt/kvt.h"

/* Tokens of one hash id. */
enum { KVT_TRACE_BLOCK = 512 };

struct kvt_trace_row {
	int64_t arrival;		/* ns */
	int64_t tokens;			/* of the prompt */
	int64_t bytes;			/* to move; -1: as many as the tokens have */
	int64_t cached;			/* tokens that are there; -1: by its hash ids */
	int64_t hash, nhashes;		/* of kvt_trace.hash: one each of its blocks */
};

struct kvt_trace {
	int64_t n;
	struct kvt_trace_row *row;	/* owned; by arrival */
	int64_t nhashes;
	int64_t *hash;			/* owned */
};

#endif
