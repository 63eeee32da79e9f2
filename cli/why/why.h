/* SPDX-License-Identifier: Apache-2.0 */
/* why.h - what the files of kvtool why share */
#ifndef KVTOOL_WHY_H
#define KVTOOL_WHY_H

#include "cli/naming.h"
#include "formats/events/file_hashes.h"
#include "lib/ops/why/watch.h"
#include "print/out/json_out.h"

struct why {
	struct naming_said said;
	struct kvt_facts other;		/* the same of a second prompt, KEY=VALUE */
	char other_lora[NAMING_LORA];
	struct kvt_prompts prompts;
	struct kvt_why_prompt *prompt;	/* one for each, with the rule that was told */
	struct kvt_why_rule rule;
	const char *events, *tree;	/* NULL: none */
	const char *medium;
	int64_t group, per_file;	/* -1, 0: not said */
	bool all, tokens, json;
	struct json_out out;		/* if json */
	char *bytes;			/* of the events */
	size_t nbytes;
	struct kvt_file_hashes files;	/* of the tree */
};

/* Is there anything said that names depend on? */
bool why_has_rule(const struct why *w);
/* Fills 'rule', and the prompts; asks for what cannot be known. */
KVT_MUST_CHECK enum kvt_status why_rules(struct why *w, struct kvt_error *err);
/* That of the second prompt: with what --other says. */
KVT_MUST_CHECK enum kvt_status
why_other_rule(struct kvt_why_rule *out, struct why *w, struct kvt_error *err);

/* KVT_MISMATCH: something is found, or is missing. */
KVT_MUST_CHECK enum kvt_status why_pair(struct why *w, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status why_tree(struct why *w, struct kvt_error *err);
KVT_MUST_CHECK enum kvt_status why_events(struct why *w, struct kvt_error *err);

/* "blocks 0 to 11", "block 3" */
struct human why_blocks(int64_t begin, int64_t end);
/* What is changed of the rule that was told, as options. */
void why_put_near(struct why *w, json_t *o, const struct kvt_why_near *near);

#endif
