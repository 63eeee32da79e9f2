/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - printing links, and what is posted on them */
#ifndef KVTOOL_PRINT_LINK_H
#define KVTOOL_PRINT_LINK_H

#include "cli/cli.h"
#include "cli/json_out.h"
#include "lib/ops/transfer/batches.h"

/* As the keys of a link file, into 'object'. */
void link_put(struct json_out *out, json_t *object, const struct kvt_link *link);

/* How a stack posts on a link: into an object of --json. */
void posting_put(struct json_out *out, json_t *object, const struct kvt_batch_how *how);

/* What --link=list prints. */
void link_print_presets(void);

#endif
