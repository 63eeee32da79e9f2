/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measured.h - measured batches, out of what benchmarks print
 *
 *	CSV with the columns bytes and us, and n for the operations of a batch
 *	nixlbench, tebench	a row for each block size and batch size
 *	ib_write_bw, ib_write_lat and their like; ucx_perftest
 *	vLLM			lines "KV Transfer metrics: ..."
 *
 * Everything else in the text is passed over, as logs are full of it.  A test of
 * bandwidth is one batch of all its iterations.
 */
#ifndef KVTOOL_MEASURED_H
#define KVTOOL_MEASURED_H

#include <stddef.h>

#include "lib/transfer/link_fit.h"

enum { MEASURED_MOST = 4096 };

struct measured {
	int n;
	const char *format;		/* of the last row: "nixlbench" */
	struct kvt_measured row[MEASURED_MOST];
};

/*
 * 'threads' is how many post at once, where a row speaks of one of them.
 * KVT_BAD_INPUT with the line if a row of a known table cannot be read, if there
 * are too many, or none.
 */
KVT_MUST_CHECK enum kvt_status
measured_parse(struct measured *out, const char *text, size_t nbytes, int64_t threads,
	       const char *path, struct kvt_error *err);

#endif
