/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_prompts.c - any bytes as a file of prompts, and what they are called by each rule
 *
 * The first byte says how many tokens a block has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/manifest/prompts.h"
#include "lib/kvt/prefix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void name_all(const struct kvt_prompt *prompt, int64_t each)
{
	static const struct kvt_prefix_item item = { "picture", 1, 9 };
	const struct kvt_prefix_rule *rule;

	for (int i = 0; (rule = kvt_prefix_rule_at(i)); i++) {
		struct kvt_prefix_key key = { .rule = rule };
		struct kvt_error err = { "" };
		struct kvt_prefix chain;
		char name[KVT_PREFIX_NAME];

		key.seed = rule->parts & KVT_PREFIX_SEED ? "0" : NULL;
		key.item = &item;
		key.nitems = rule->parts & KVT_PREFIX_ITEMS ? 1 : 0;
		if (kvt_prefix_start(&chain, &key, &err)) {
			if (!err.text[0])
				abort();
			continue;
		}
		for (int64_t at = 0; at < prompt->ntokens; at += each) {
			int64_t left = prompt->ntokens - at;

			if (kvt_prefix_next(&chain, prompt->token + at,
					    left < each ? left : each, &err)) {
				if (!err.text[0])
					abort();
				break;
			}
			kvt_prefix_name(name, &chain);
			if (!name[0] || strlen(name) > 2 * KVT_PREFIX_BYTES)
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[] = "/tmp/kvt-fuzz-XXXXXX";
	struct kvt_facts said = { .n = 1, .s = { path } };
	struct kvt_prompts prompts;
	struct kvt_error err = { "" };
	int fd;

	if (size < 1 || size > 1 << 16 || (fd = mkstemp(path)) < 0)
		return 0;
	if (write(fd, data + 1, size - 1) == (ssize_t)size - 1) {
		if (!kvt_prompts_read(&prompts, &said, &err)) {
			for (int64_t i = 0; i < prompts.count; i++)
				name_all(&prompts.prompt[i], data[0] + 1);
			kvt_prompts_free(&prompts);
		} else if (!err.text[0]) {
			abort();
		}
	}
	close(fd);
	unlink(path);
	return 0;
}
