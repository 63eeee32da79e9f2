/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.h - tables of registered regions, which describe, fsck and diff take, too
 *
 * See kvtool-regions(5).  A table is known by its content; what says how a dump is to
 * be read means nothing for one.
 */
#ifndef KVTOOL_REGIONS_H
#define KVTOOL_REGIONS_H

#include "cli/cli.h"
#include "lib/ops/check/check.h"
#include "print/out/json_out.h"

/* Is the file a table?  False also for what cannot be read. */
bool is_regions(const char *path);

KVT_MUST_CHECK enum kvt_status
regions_describe(const char *path, bool json, bool stream, bool quiet,
		 struct kvt_error *err);

/* Into 'r'; KVT_MISMATCH is the caller's to make of it. */
KVT_MUST_CHECK enum kvt_status
regions_check(struct kvt_findings *r, const char *path, struct kvt_error *err);

/* Prints what both tables have, and what would arrive: KVT_MISMATCH if not all would. */
KVT_MUST_CHECK enum kvt_status
regions_diff(const char *from, const char *to, bool json, bool quiet,
	     struct kvt_error *err);

#endif
