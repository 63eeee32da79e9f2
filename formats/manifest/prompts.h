/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.h - the token ids of prompts, as a user gives them */
#ifndef KVT_PROMPTS_H
#define KVT_PROMPTS_H

#include "lib/kvt/dump.h"

struct kvt_prompt {
	char *name;
	int64_t ntokens;
	int64_t *token;
};

struct kvt_prompts {
	int64_t count;
	struct kvt_prompt *prompt;	/* owned */
};

/*
 * "[NAME=]1,2,3" or "[NAME=]FILE" each, as kvt_number_rows_read() takes files.  One of
 * several has names of its own, or numbers; a prompt without a name is called by its
 * number among all.  One without a token, and a name that comes twice, are KVT_BAD_INPUT.
 */
KVT_MUST_CHECK enum kvt_status
kvt_prompts_read(struct kvt_prompts *out, const struct kvt_facts *said,
		 struct kvt_error *err);
void kvt_prompts_free(struct kvt_prompts *prompts);

#endif
