/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.c - kvtool why: a prompt is in no cache, and for what reason
 *
 * What there is to look into decides what is asked: two prompts alone are compared name
 * by name; a tree, or what an engine published, is searched for the names of each.
 */
#include "cli/why/why.h"

#include <stdlib.h>
#include <string.h>

#include "formats/events/cache_events.h"
#include "formats/file/tree.h"
#include "print/out/text_file.h"

#define MOST_EVENTS ((size_t)8 << 30)

/* A folder is a tree; anything else is a recording. */
static enum kvt_status take_operand(struct why *w, char *path, struct kvt_error *err)
{
	bool folder = kvt_is_folder(path);

	if (folder ? w->tree != NULL : w->events != NULL)
		return kvt_fail(err, KVT_USAGE, "two %s, %s and %s: expected one",
				folder ? "trees" : "recordings",
				folder ? w->tree : w->events, path);
	if (folder) {
		w->tree = path;
		return kvt_file_hashes_read(&w->files, path, err);
	}
	w->events = text_file_name(path);
	return text_file_read(&w->bytes, &w->nbytes, path, MOST_EVENTS, err);
}

static enum kvt_status check_options(const struct why *w, struct kvt_error *err)
{
	bool alone = !w->events && !w->tree;

	if (alone && w->prompts.count != 2 && !(w->prompts.count == 1 && w->other.n))
		return kvt_fail(err, KVT_USAGE,
				"expected two prompts, one with --other, or a recording of events or a tree to look into; such as kvtool why --engine=sglang --block-size=2 --prompt=1,2,3,4 --prompt=1,2,5,4");
	if (!alone && w->other.n)
		return kvt_fail(err, KVT_USAGE,
				"--other is of the second of two prompts: it does not go with %s",
				w->events ? w->events : w->tree);
	if (w->tree && !w->events && !w->prompts.count)
		return kvt_fail(err, KVT_USAGE,
				"%s: which prompt?  Give its tokens, --prompt=1,2,3 or a file of them",
				w->tree);
	if (w->medium && !(w->events && w->tree))
		return kvt_fail(err, KVT_USAGE,
				"--medium says which medium of a recording a tree is: give both");
	return KVT_OK;
}

static enum kvt_status do_it(struct why *w, int n, char **argv, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;

	if (w->said.prompts.n)
		status = naming_prompts(&w->prompts, &w->said, err);
	for (int i = 0; !status && i < n; i++)
		status = take_operand(w, argv[i], err);
	if (!status)
		status = check_options(w, err);
	if (!status && w->json)
		json_start(&w->out);
	if (status)
		return status;
	if (w->events)
		return why_events(w, err);
	if (w->tree)
		return why_tree(w, err);
	status = why_rules(w, err);
	return status ? status : why_pair(w, err);
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct why w = { .group = -1 };
	const struct opt opts[] = {
		NAMING_OPTS(&w.said),
		{ "other", 0, OPT_FACTS, &w.other, "KEY=VALUE",
		  "the same of the second prompt, such as salt=s1 or no-salt" },
		{ "group", 0, OPT_INT, &w.group, "N", "group of layers, of a tree" },
		{ "blocks-per-file", 0, OPT_COUNT, &w.per_file, "N",
		  "blocks in a file; default: 1, or as config.json says" },
		{ "medium", 0, OPT_STRING, &w.medium, "NAME",
		  "the medium of EVENTS that TREE is" },
		{ "all", 0, OPT_FLAG, &w.all, NULL,
		  "list all problems, not 10 of a kind" },
		{ "show-tokens", 0, OPT_FLAG, &w.tokens, NULL, "print token ids" },
		OPT_JSON(&w.json),
		{ 0 }
	};
	int n = opt_parse(&cmd_why, opts, argc, argv, err);
	enum kvt_status status;

	if (n < 0)
		return opt_status(n);
	if (n > 2)
		return kvt_fail(err, KVT_USAGE, "expected EVENTS, TREE, or both, got %d",
				n);
	status = naming_list(&w.said) ? KVT_OK : do_it(&w, n, argv, err);
	json_free(&w.out);
	kvt_prompts_free(&w.prompts);
	naming_free(&w.said);
	kvt_file_hashes_free(&w.files);
	free(w.prompt);
	free(w.bytes);
	return status;
}

const struct command cmd_why = {
	.name    = "why",
	.args    = "[EVENTS] [TREE]",
	.summary = "say why a prefix cache has a prompt, or has not",
	.run     = run,
	.examples =
		"  kvtool why --engine=vllm --block-size=16 --prompt=a.json --prompt=b.json\n"
		"  kvtool why --engine=vllm --seed=0 --prompt=a.json tree/\n"
		"  kvtool why --engine=vllm --block-size=16 --prompt=a.json events.msgpack\n"
		"  kvtool why events.msgpack tree/\n",
};
