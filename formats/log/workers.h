/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h - one line of a log of what workers report, see kvtool-workers(1) */
#ifndef KVT_WORKERS_LOG_H
#define KVT_WORKERS_LOG_H

#include <stddef.h>

#include "lib/kvt/connect.h"

enum kvt_log_kind {
	KVT_LOG_HEAD,			/* how many workers there are */
	KVT_LOG_WORKER,			/* what one reports in a step */
	KVT_LOG_NO_OUTPUT,		/* the step had no output */
	KVT_LOG_AGGREGATED,		/* what the engine made of the step */
};

enum { KVT_LOG_MAX_WORKERS = 65536 };

struct kvt_log_line {
	enum kvt_log_kind kind;
	int64_t step, worker;
	int64_t workers;		/* of a head */
	int64_t expected;		/* expected_finished_count; 0: not given */
	size_t nids[KVT_NDIRECTIONS], nblocks;
	const void *ids[KVT_NDIRECTIONS], *blocks;
	void *json;
};

/*
 * Parses exactly 'nbytes' of text.  Anything unknown is KVT_BAD_INPUT, as a
 * misspelt key would hide a report.
 */
KVT_MUST_CHECK enum kvt_status
kvt_log_parse(struct kvt_log_line *out, const char *text, size_t nbytes,
	      const char *name, struct kvt_error *err);
void kvt_log_free(struct kvt_log_line *line);

/* Valid until the line is freed; i is below nids, nblocks. */
const char *kvt_log_id(const struct kvt_log_line *line, enum kvt_direction direction,
		       size_t i);
int64_t kvt_log_block(const struct kvt_log_line *line, size_t i);

#endif
