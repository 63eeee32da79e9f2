/* SPDX-License-Identifier: Apache-2.0 */
/* fsck.h - printing what is wrong with a dump */
#ifndef KVTOOL_PRINT_FSCK_H
#define KVTOOL_PRINT_FSCK_H

#include "lib/ops/check/check.h"
#include "print/out/json_out.h"

/* With errors_only neither notes nor totals. */
void fsck_text(const struct kvt_findings *r, bool errors_only);
/* Into an object; of more findings the first 'most'. */
void fsck_json(struct json_out *out, json_t *object, const struct kvt_findings *r,
	       int most);

#endif
