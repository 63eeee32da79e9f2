/* SPDX-License-Identifier: Apache-2.0 */
/* guess.h - printing what kvtool guess found out, and what to type next */
#ifndef KVTOOL_PRINT_GUESS_H
#define KVTOOL_PRINT_GUESS_H

#include "cli/expect/expect.h"
#include "lib/ops/guess/guess.h"
#include "print/guess_pages.h"

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

#endif
