/* SPDX-License-Identifier: Apache-2.0 */
/* diff.h - what kvtool shrink and view take from their command line as diff does */
#ifndef KVTOOL_CMD_DIFF_H
#define KVTOOL_CMD_DIFF_H

#include "lib/kvt/dump.h"
#include "lib/ops/diff/diff.h"

/* --tolerance, --atol and --rtol, in this order; NULL where one was not given. */
KVT_MUST_CHECK enum kvt_status
diff_tolerances(struct diff_tolerance *out, const char *const text[3],
		struct kvt_error *err);

/* What is said of the side counts before what is said of both, which it joins. */
KVT_MUST_CHECK enum kvt_status
diff_open(struct kvt_dump **out, const char *name, const struct kvt_hints *side,
	  struct kvt_hints *hints, struct kvt_error *err);

#endif
