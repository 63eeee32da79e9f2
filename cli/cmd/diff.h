/* SPDX-License-Identifier: Apache-2.0 */
/* diff.h - what other commands have in common with kvtool diff */
#ifndef KVTOOL_CMD_DIFF_H
#define KVTOOL_CMD_DIFF_H

#include "lib/kvt/dump.h"
#include "lib/ops/diff/diff.h"

/*
 * --tolerance, --atol and --rtol, in this order; NULL where one was not given.  Only who
 * has 'attention' can judge by it: KVT_USAGE.
 */
KVT_MUST_CHECK enum kvt_status
diff_tolerances(struct diff_tolerance *out, const char *const text[3], bool attention,
		struct kvt_error *err);

/*
 * Sides and pairs of two open dumps, as kvtool diff has them by itself, for d->criteria;
 * d->options.run is set.  'file' has their names; diff_clear() in any case.
 */
struct diff;
KVT_MUST_CHECK enum kvt_status
diff_align_two(struct diff *d, struct rank_file file[NSIDES], struct kvt_error *err);
void diff_clear(struct diff *d);

/* What is said of the side counts before what is said of both, which it joins. */
KVT_MUST_CHECK enum kvt_status
diff_open(struct kvt_dump **out, const char *name, const struct kvt_hints *side,
	  struct kvt_hints *hints, struct kvt_error *err);

#endif
