/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_order.h - which chunks are a request, and in what order */
#ifndef KVT_CHUNK_ORDER_H
#define KVT_CHUNK_ORDER_H

#include "formats/store/chunks.h"

struct kvt_chunk_list {
	const char *request;		/* borrowed */
	int64_t count;
	int64_t *run;			/* numbers of runs; owned by the order */
};

struct kvt_chunk_order {
	int64_t count;
	struct kvt_chunk_list *list;
	int64_t *runs;			/* of all lists */
	char *text;			/* of the user's list; or NULL */
};

/*
 * From the file that the user named, or each run by itself.  Lines are
 * REQUEST CHUNK..., blank ones and those that begin with # count nothing.  A
 * chunk that is not there, and a request that comes twice, are KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_chunk_order_load(struct kvt_chunk_order *out, struct kvt_dump *reader,
		     const struct kvt_chunks *chunks, const struct kvt_hints *hints,
		     struct kvt_error *err);
void kvt_chunk_order_free(struct kvt_chunk_order *order);

#endif
