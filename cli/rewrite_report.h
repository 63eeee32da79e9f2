/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite_report.h - what relayout and convert tell of their work */
#ifndef KVTOOL_REWRITE_REPORT_H
#define KVTOOL_REWRITE_REPORT_H

#include "cli/rewrite.h"
#include "lib/ops/write/plan.h"

/* --dry-run: what would be done, group by group. */
enum kvt_status report_plan(const struct rewrite *r, const struct transform *t,
			    struct kvt_error *err);

/* One line (or one JSON object) when all is done; nothing with --quiet. */
enum kvt_status report_done(const struct rewrite *r, const struct transform *t,
			    struct kvt_error *err);

#endif
