/* SPDX-License-Identifier: Apache-2.0 */
/* trace_rows.c - the requests of a trace while it is read: room for them, their order */
#include "formats/log/trace_impl.h"

#include <stdlib.h>

#include "lib/base/grow.h"

enum kvt_status trace_add(struct kvt_trace *t, const struct kvt_trace_row *row,
			  const struct trace_line *line, struct kvt_error *err)
{
	if (t->n == TRACE_MOST)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: more than %d requests",
				line->name, TRACE_MOST);
	if (!KVT_GROW(&t->row, t->n))
		return kvt_no_memory(err, NULL);
	t->row[t->n++] = *row;
	return KVT_OK;
}

void kvt_trace_free(struct kvt_trace *trace)
{
	free(trace->row);
	free(trace->hash);
	trace->row = NULL;
	trace->hash = NULL;
	trace->n = trace->nhashes = 0;
}

enum kvt_status trace_check_order(const struct kvt_trace *t,
				  const struct trace_line *line, int64_t arrival,
				  struct kvt_error *err)
{
	if (t->n && arrival < t->row[t->n - 1].arrival)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: %lld ms is before the request of the line above, %lld ms",
				line->name, LL(arrival / 1000000),
				LL(t->row[t->n - 1].arrival / 1000000));
	return KVT_OK;
}
