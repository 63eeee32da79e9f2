/* SPDX-License-Identifier: Apache-2.0 */
/* guess_pages.h - pages that lie in another order than the layout says, in words */
#ifndef KVT_PRINT_GUESS_PAGES_H
#define KVT_PRINT_GUESS_PAGES_H

#include "lib/ops/guess/guess.h"
#include "print/out/json_out.h"

/* How to undo it: "kvtool mutate --fault=..."; what else it needs is the file's. */
struct kvt_text guess_undo(const struct kvt_guess_pages *p);
/* null where the pages are as the layout has them */
void guess_pages_json(struct json_out *out, json_t *o, const struct kvt_guess_pages *p);

#endif
