/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - printing links, and what is posted on them */
#ifndef KVTOOL_PRINT_LINK_H
#define KVTOOL_PRINT_LINK_H

#include "print/out/say.h"
#include "print/out/json_out.h"
#include "sim/ops/batches.h"

/* As the keys of a link file, into 'object'. */
void link_put(struct json_out *out, json_t *object, const struct kvt_link *link);

/* What nobody said, so that a default counts. */
struct assumed {
	bool emulate, link;
};
void assumed_put(struct json_out *out, json_t *object, struct assumed assumed);

/* " (default)" or nothing; of a link " (default for --emulate=nixl)". */
struct human assumed_stack(struct assumed assumed);
struct human assumed_link(struct assumed assumed, enum kvt_stack stack);

/* How a stack posts on a link: into an object of --json. */
void posting_put(struct json_out *out, json_t *object, const struct kvt_batch_how *how,
		 struct assumed assumed);

/* The link that was measured with a stack, which counts without --link; NULL is rfc. */
const char *stack_link(const char *emulate);

/* What --link=list prints. */
void link_print_presets(void);

/* What --emulate=list prints. */
void stack_print_all(void);

#endif
