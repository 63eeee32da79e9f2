/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_trace.c - any text as a trace: it is refused with a sentence, or its
 * requests are in order and each has what its length needs
 */
#include <stdlib.h>
#include <string.h>

#include "formats/log/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct kvt_trace *t)
{
	int64_t hashes = 0;

	if (t->n < 1)
		abort();
	for (int64_t i = 0; i < t->n; i++) {
		const struct kvt_trace_row *r = &t->row[i];

		if (r->tokens < 1 || r->arrival < 0 || r->bytes < -1 ||
		    r->cached < -1 || r->cached > r->tokens ||
		    (i && r->arrival < r[-1].arrival))
			abort();
		if (r->bytes < 0 && r->cached < 0 &&
		    (r->hash != hashes ||
		     r->nhashes != (r->tokens + KVT_TRACE_BLOCK - 1) / KVT_TRACE_BLOCK))
			abort();
		hashes += r->nhashes;
	}
	if (hashes != t->nhashes)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	const struct kvt_trace_unit unit = { 3, 1000 };
	struct kvt_trace trace;

	if (kvt_trace_parse(&trace, size ? (const char *)data : "", size, &unit, "t",
			    &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	check(&trace);
	kvt_trace_free(&trace);
	return 0;
}
