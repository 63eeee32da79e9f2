/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefix.c - kvtool prefix: what an engine's prefix cache calls the blocks of a prompt
 *
 * The rules are lib/kvt/prefix.h's; here are options, prompts, and a line for each block.
 * Token ids are what somebody wrote: they are printed only where that is asked for.
 */
#include "cli/naming.h"
#include "lib/base/number.h"
#include "print/out/json_out.h"

enum { MAX_FILE = 1024 };

struct naming {
	struct kvt_prefix_key key;
	struct kvt_prefix_place place;
	int64_t block_size, blocks_per_file;
	bool json, tokens;
	struct json_out out;
	json_t *list;			/* where blocks go */
};

/* ---- printing ------------------------------------------------------------- */

static void print_tokens(const int64_t *tokens, int64_t n)
{
	putchar(' ');
	for (int64_t i = 0; i < n; i++)
		plainf("%s%lld", i ? "," : " ", LL(tokens[i]));
}

static void put_block(struct naming *n, const struct kvt_prefix *chain,
		      const struct kvt_range *at, const int64_t *tokens)
{
	char name[KVT_PREFIX_NAME], file[MAX_FILE];
	bool has_file = kvt_prefix_file(file, sizeof(file), chain, &n->place);
	json_t *row, *ids;

	kvt_prefix_name(name, chain);
	if (!n->json) {
		plainf("%lld:%lld  %s%s%s", LL(at->begin), LL(at->end),
		       name, has_file ? "  " : "", has_file ? file : "");
		if (n->tokens)
			print_tokens(tokens, at->end - at->begin);
		putchar('\n');
		return;
	}
	row = json_append_object(&n->out, n->list);
	json_put_int(&n->out, row, "begin", at->begin);
	json_put_int(&n->out, row, "end", at->end);
	json_put_text(&n->out, row, "hash", name);
	json_put_text(&n->out, row, "file", has_file ? file : NULL);
	ids = n->tokens ? json_put_array(&n->out, row, "token_ids") : NULL;
	for (int64_t i = at->begin; ids && i < at->end; i++)
		json_append_int(&n->out, ids, tokens[i - at->begin]);
}

static void start_prompt(struct naming *n, const struct kvt_prompt *prompt, bool several)
{
	json_t *row;

	if (!n->json) {
		if (several)
			plainf("prompt %s, %lld tokens\n", prompt->name,
			       LL(prompt->ntokens));
		return;
	}
	row = json_append_object(&n->out, json_object_get(n->out.root, "prompts"));
	json_put_text(&n->out, row, "name", prompt->name);
	json_put_int(&n->out, row, "tokens", prompt->ntokens);
	json_put_int(&n->out, row, "unnamed_tokens", n->key.rule->partial ? 0 :
		     prompt->ntokens % (n->block_size * n->blocks_per_file));
	n->list = json_put_array(&n->out, row, "blocks");
}

/* Tokens after the last full file, which no name covers. */
static void end_prompt(const struct naming *n, const struct kvt_prompt *prompt)
{
	int64_t each = n->block_size * n->blocks_per_file, rest = prompt->ntokens % each;

	if (rest && !n->json && !n->key.rule->partial)
		plainf("%lld:%lld  no name: not a full %s\n",
		       LL(prompt->ntokens - rest), LL(prompt->ntokens),
		       n->blocks_per_file > 1 ? "file" : "block");
}

/* ---- names ---------------------------------------------------------------- */

static enum kvt_status name_prompt(struct naming *n, const struct kvt_prompt *prompt,
				   struct kvt_error *err)
{
	int64_t size = n->block_size, before = 0;
	struct kvt_prefix chain;
	enum kvt_status status = kvt_prefix_start(&chain, &n->key, err);

	for (int64_t at = 0, i = 0; !status && at < prompt->ntokens; at += size, i++) {
		int64_t left = prompt->ntokens - at, some = left < size ? left : size;

		if (some < size && !n->key.rule->partial)
			break;
		if ((status = kvt_prefix_next(&chain, prompt->token + at, some, err)))
			break;
		if ((i + 1) % n->blocks_per_file)
			continue;
		put_block(n, &chain, &(struct kvt_range){ before, at + some },
			  prompt->token + before);
		before = at + some;
	}
	return status;
}

static void start_json(struct naming *n, const struct kvt_prefix *chain)
{
	json_start(&n->out);
	json_put_text(&n->out, n->out.root, "engine", n->key.rule->name);
	json_put_text(&n->out, n->out.root, "rule", n->key.rule->what);
	json_put_text(&n->out, n->out.root, "algorithm",
		      kvt_prefix_hash_name(chain->algorithm));
	json_put_int(&n->out, n->out.root, "block_size", n->block_size);
	json_put_int(&n->out, n->out.root, "blocks_per_file", n->blocks_per_file);
	json_put_array(&n->out, n->out.root, "prompts");
}

static enum kvt_status name_all(struct naming *n, const struct kvt_prompts *prompts,
				struct kvt_error *err)
{
	struct kvt_prefix chain;
	enum kvt_status status = kvt_prefix_start(&chain, &n->key, err);

	if (status)
		return status;
	if (n->json)
		start_json(n, &chain);
	for (int64_t i = 0; !status && i < prompts->count; i++) {
		start_prompt(n, &prompts->prompt[i], prompts->count > 1);
		status = name_prompt(n, &prompts->prompt[i], err);
		if (!status)
			end_prompt(n, &prompts->prompt[i]);
	}
	if (!status && n->json)
		status = json_print(&n->out, false, err);
	json_free(&n->out);
	return status;
}

/* ---- options -------------------------------------------------------------- */

/* "R/N" */
static enum kvt_status take_rank(struct naming *n, const char *said,
				 struct kvt_error *err)
{
	struct kvt_rank *rank = &n->place.rank;
	const char *at = said;

	if (at && (!kvt_number_take(&rank->index, &at) || *at++ != '/' ||
		   !kvt_number_take(&rank->size, &at) || *at ||
		   rank->index >= rank->size || rank->size > 255))
		return kvt_fail(err, KVT_USAGE, "--rank is '%.40s', expected RANK/SIZE",
				said);
	return KVT_OK;
}

/* In LMCache's second level the salt is part of the key and not of the hash. */
static void place_salt(struct naming *n)
{
	if (n->key.rule->form == KVT_PREFIX_LMCACHE_MP) {
		n->place.salt = n->key.salt;
		n->key.salt = NULL;
	}
}

static enum kvt_status name_said(struct naming *n, struct naming_said *said,
				 const char *rank, struct kvt_error *err)
{
	struct kvt_prompts prompts = { 0 };
	enum kvt_status status;

	if (!(status = opt_need(&cmd_prefix, (struct opt_need[]){
			{ said->prompts.n, "--prompt=FILE, its token ids" },
			{ said->engine, "--engine=NAME (or list)" },
			{ 0 } }, err)) &&
	    !(status = naming_take(&n->key, &n->block_size, said, err)) &&
	    !(status = take_rank(n, rank, err)) &&
	    !(status = naming_prompts(&prompts, said, err))) {
		place_salt(n);
		status = name_all(n, &prompts, err);
	}
	kvt_prompts_free(&prompts);
	naming_free(said);
	return status;
}

static enum kvt_status run(int argc, char **argv, struct kvt_error *err)
{
	struct naming n = { .blocks_per_file = 1 };
	struct naming_said said = { .engine = NULL };
	const char *rank = NULL;
	const struct opt opts[] = {
		NAMING_OPTS(&said),
		{ "blocks-per-file", 0, OPT_COUNT, &n.blocks_per_file, "N",
		  "name only the last block of each N: vLLM's offload files" },
		{ "model-name", 0, OPT_STRING, &n.place.model, "NAME",
		  "model in the names of files and keys" },
		{ "dtype", 0, OPT_STRING, &n.place.dtype, "DTYPE",
		  "element type in keys of LMCache" },
		{ "rank", 0, OPT_STRING, &rank, "R/N", "rank R of N in keys" },
		{ "group", 0, OPT_INT, &n.place.group, "N", "group in names and keys" },
		{ "show-tokens", 0, OPT_FLAG, &n.tokens, NULL,
		  "print the token ids, too" },
		OPT_JSON(&n.json),
		{ 0 }
	};
	int operands = opt_parse(&cmd_prefix, opts, argc, argv, err);

	if (operands < 0)
		return opt_status(operands);
	if (operands)
		return kvt_fail(err, KVT_USAGE,
				"expected no operand, got '%.100s'; a prompt is --prompt=%.100s",
				argv[0], argv[0]);
	return naming_list(&said) ? KVT_OK : name_said(&n, &said, rank, err);
}

const struct command cmd_prefix = {
	.name    = "prefix",
	.args    = "--engine=NAME --prompt=FILE",
	.summary = "name the blocks of a prompt as an engine's prefix cache does",
	.run     = run,
	.streams = STREAM_OWN,
	.examples =
		"  kvtool prefix --engine=vllm --block-size=4 --seed=0 --prompt=1,2,3,4,5,300,7,0\n"
		"  kvtool prefix --engine=sglang --block-size=16 --prompt=prompt.json\n"
		"  kvtool prefix --engine=lmcache --seed=0 --prompt=- <tokens.txt\n"
		"  kvtool prefix --engine=list\n",
};
