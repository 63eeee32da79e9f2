/* SPDX-License-Identifier: Apache-2.0 */
/* trace_impl.h - what the readers of traces share; for trace*.c only */
#ifndef KVT_TRACE_IMPL_H
#define KVT_TRACE_IMPL_H

#include "formats/log/trace.h"
#include "formats/parse/json.h"

enum { TRACE_MOST = 10000000 };		/* requests */

struct trace_line {
	const char *text;
	size_t nbytes;
	char name[256];			/* of the file, and the number of the line */
};

KVT_MUST_CHECK enum kvt_status
trace_add(struct kvt_trace *trace, const struct kvt_trace_row *row,
	  const struct trace_line *line, struct kvt_error *err);

/* Refuses an arrival before that of the last row. */
KVT_MUST_CHECK enum kvt_status
trace_check_order(const struct kvt_trace *trace, const struct trace_line *line,
		  int64_t arrival, struct kvt_error *err);

/* FlexKV: tasks that were matched and may be launched; zeroed to begin with. */
struct trace_tasks {
	int64_t n, room;		/* room: a power of two, or 0 */
	struct trace_task {
		int64_t id, tokens;	/* tokens 0: a free bucket; -1: it stores */
	} *task;			/* owned */
	int64_t begin;			/* ns; of the first request */
};
KVT_MUST_CHECK enum kvt_status
trace_take_flexkv(struct kvt_trace *trace, struct trace_tasks *tasks,
		  const struct kvt_json *event, const struct trace_line *line,
		  struct kvt_error *err);

/* vLLM: the time of the last line, and of the last one of another time; ns. */
struct trace_log {
	bool any;
	int64_t at, before, begin;
	int64_t left;			/* transfers of a request that has begun */
};
KVT_MUST_CHECK enum kvt_status
trace_take_vllm(struct kvt_trace *trace, struct trace_log *log,
		const struct kvt_trace_unit *unit, const struct trace_line *line,
		struct kvt_error *err);
bool trace_is_vllm(const char *text, size_t nbytes);

#endif
