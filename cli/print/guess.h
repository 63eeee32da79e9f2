/* SPDX-License-Identifier: Apache-2.0 */
/* guess.h - printing what kvtool guess found out, and what to type next */
#ifndef KVTOOL_PRINT_GUESS_H
#define KVTOOL_PRINT_GUESS_H

#include "cli/expect/expect.h"
#include "cli/json_out.h"
#include "lib/ops/guess/guess.h"

/* 'of' is what was guessed from: its name, and the hints that were given. */
/* 'releases' are those of vLLM that are asked who could have written it, as bits. */
struct guess_writers {
	unsigned releases;
	struct expect_on on;
};
void guess_text(const struct kvt_guess_source *of, const struct kvt_guess *g,
		const struct guess_writers *who);
void guess_json(struct json_out *out, const struct kvt_guess_source *of,
		const struct kvt_guess *g, const struct guess_writers *who);

/* How to undo it: "kvtool mutate --fault=..."; what else it needs is the file's. */
struct kvt_text guess_undo(const struct kvt_guess_pages *p);
/* null where the pages are as the layout has them */
void guess_pages_json(struct json_out *out, json_t *o, const struct kvt_guess_pages *p);

#endif
