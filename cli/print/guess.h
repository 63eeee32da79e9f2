/* SPDX-License-Identifier: Apache-2.0 */
/* guess.h - printing what kvtool guess found out, and what to type next */
#ifndef KVTOOL_PRINT_GUESS_H
#define KVTOOL_PRINT_GUESS_H

#include "cli/json_out.h"
#include "lib/ops/guess/guess.h"

/* 'of' is what was guessed from: its name, and the hints that were given. */
void guess_text(const struct kvt_guess_source *of, const struct kvt_guess *g);
void guess_json(struct json_out *out, const struct kvt_guess_source *of,
		const struct kvt_guess *g);

#endif
