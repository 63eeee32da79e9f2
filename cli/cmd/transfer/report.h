/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - what transfer-sim report draws; for sim_page.c and sim_svg.c only */
#ifndef KVTOOL_SIM_PAGE_H
#define KVTOOL_SIM_PAGE_H

#include "lib/ops/transfer/pairs.h"

struct page {
	const struct sim *sim;
	enum kvt_scope scope;
	const struct kvt_link *link;
	struct sim_pairs pairs;
	int64_t trace_max;
};

/* One picture: block maps and sizes of each group, ranks by ranks, the timeline. */
KVT_MUST_CHECK enum kvt_status
put_svg(FILE *f, const struct page *page, struct kvt_error *err);

#endif
