/* SPDX-License-Identifier: Apache-2.0 */
/* fsck.h - printing what is wrong with a dump */
#ifndef KVTOOL_PRINT_FSCK_H
#define KVTOOL_PRINT_FSCK_H

#include "cli/json_out.h"
#include "lib/ops/check/check.h"

/* With errors_only neither notes nor totals. */
void fsck_text(const struct kvt_findings *r, bool errors_only);
/* Appends an object to 'list'. */
void fsck_json(struct json_out *out, json_t *list, const struct kvt_findings *r);

#endif
