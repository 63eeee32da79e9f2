/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.c - which blocks of a prompt a tree or store has files of, and why not the rest
 *
 * Nothing in a tree tells a file that was deleted from one that never was.  But names
 * that are there under another seed, salt, block size and so on are found, as each of
 * them is a hash of all that comes before.
 */
#include "cli/why/why.h"

#include <stdlib.h>
#include <string.h>

#include "formats/parse/json.h"
#include "formats/vllm/offload.h"
#include "print/out/text_file.h"

/* Blocks of a prompt in the files of one group, a file for each 'step' of them. */
struct look {
	struct why *w;
	int group;			/* -1: any */
	int64_t step;
};

struct run {
	int64_t begin, end;		/* blocks */
	bool there;
};

static bool has(const struct look *l, const struct kvt_prefix *prefix, int group)
{
	char name[KVT_PREFIX_NAME];

	kvt_prefix_name(name, prefix);
	return kvt_file_hashes_find(&l->w->files, name, group);
}

static bool has_any(void *context, const struct kvt_prefix *prefix)
{
	return has(context, prefix, -1);
}

/* The next run of files that are all there, or all missing; false: there are no more. */
static bool next_run(struct run *run, const struct look *l,
		     const struct kvt_why_chain *chain)
{
	int64_t i = run->end;

	if (i + l->step > chain->nblocks)
		return false;
	*run = (struct run){ i, i, has(l, &chain->block[i + l->step - 1], l->group) };
	while (run->end + l->step <= chain->nblocks &&
	       has(l, &chain->block[run->end + l->step - 1], l->group) == run->there)
		run->end += l->step;
	return true;
}

/* ---- vLLM's config.json ------------------------------------------------- */

/* What one that is alone says of names; 0: nothing. */
struct config {
	int64_t tokens, step;
};

static enum kvt_status read_config(struct config *out, struct why *w,
				   struct kvt_error *err)
{
	struct kvt_offload_config config;
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, w->files.config, err, &status };
	size_t nbytes;
	char *text;

	*out = (struct config){ 0 };
	if (w->files.nconfigs != 1)
		return KVT_OK;
	if ((status = text_file_read(&text, &nbytes, w->files.config, 1 << 20, err)))
		return status;
	status = kvt_offload_parse(&config, text, nbytes, w->files.config, err);
	free(text);
	if (status)
		return status;
	in.object = config.json;
	status = kvt_json_int(&out->tokens, &in, config.older_keys ? "hash_block_size" :
			      "tokens_per_hash", 1, INT32_MAX);
	if (!status && out->tokens && config.ngroups) {
		int64_t g = w->group > 0 && w->group < config.ngroups ? w->group : 0;

		out->step = config.group[g].block_size * config.blocks_per_file /
			    out->tokens;
	}
	kvt_offload_free(&config);
	return status;
}

static enum kvt_status take_config(struct look *l, struct kvt_error *err)
{
	struct why *w = l->w;
	struct config config;
	enum kvt_status status = read_config(&config, w, err);

	if (status)
		return status;
	if (!w->said.block_size && config.tokens)
		w->said.block_size = config.tokens;
	l->step = w->per_file ? w->per_file : config.step ? config.step : 1;
	if (config.tokens && config.tokens != w->said.block_size && !w->json)
		plainf("%s: tokens_per_hash is %lld, and --block-size %lld\n",
		       w->files.config, LL(config.tokens), LL(w->said.block_size));
	return KVT_OK;
}

/* A name is of a prefix, and of no group: which one is asked for must be known. */
static enum kvt_status check_groups(const struct look *l, struct kvt_error *err)
{
	const struct kvt_file_hashes *files = &l->w->files;

	for (int64_t i = 1; l->group < 0 && i < files->count; i++)
		if (files->name[i].group != files->name[0].group)
			return kvt_fail(err, KVT_USAGE,
					"%s has files of several groups, %d and %d among them: say which one with --group=%d",
					l->w->tree, files->name[0].group,
					files->name[i].group, files->name[0].group);
	return KVT_OK;
}

/* ---- what is said ------------------------------------------------------- */

void why_put_near(struct why *w, json_t *o, const struct kvt_why_near *near)
{
	json_t *list = json_put_array(&w->out, o, "near");

	for (int part = 0; part < KVT_WHY_NPARTS; part++)
		if (near->changed & 1u << part)
			json_append_text(&w->out, list, kvt_why_part_name(part));
	json_put_text(&w->out, o, "near_rule", near->changed ? near->text : NULL);
}

/* The group that has the file, where only another one has; -1. */
static int other_group(const struct look *l, const struct kvt_prefix *prefix)
{
	const struct kvt_file_hash *found;
	char name[KVT_PREFIX_NAME];

	if (l->group < 0)
		return -1;
	kvt_prefix_name(name, prefix);
	found = kvt_file_hashes_find(&l->w->files, name, -1);
	return found ? found->group : -1;
}

static void say_missing(const struct look *l, const struct kvt_why_chain *chain,
			int64_t block, const struct kvt_why_near *near)
{
	int other = other_group(l, &chain->block[block + l->step - 1]);
	char name[KVT_PREFIX_NAME];

	kvt_prefix_name(name, &chain->block[block + l->step - 1]);
	if (other >= 0)
		plainf("%s: not in group %d; group %d has it\n",
		       why_blocks(block, block + l->step).s, l->group, other);
	else if (near->changed)
		plainf("%s: there by another rule: %s, by which block %lld is\n",
		       why_blocks(block, block + l->step).s, near->text, LL(near->block));
	else
		plainf("%s: no file %s: evicted or never written, which no tree tells\n",
		       why_blocks(block, block + l->step).s, name);
	if (other < 0 && near->tried && !near->changed)
		plainf("nor by any of %lld other seeds, hashes, sizes and so on\n",
		       LL(near->tried));
}

struct verdict {
	int64_t first, there, reachable;	/* first: block; -1: none is missing */
	struct kvt_why_near near;
};

static void print_prompt(const struct look *l, const struct kvt_why_prompt *p,
			 const struct kvt_why_chain *chain, const struct verdict *v)
{
	struct run run = { 0, 0, false };

	plainf("%s: %lld of %lld block%s of %lld there", p->name, LL(v->there),
	       LL(chain->nblocks / l->step * l->step), plural(chain->nblocks),
	       LL(p->rule.block));
	while (next_run(&run, l, chain))
		plainf("; %s %s", why_blocks(run.begin, run.end).s,
		       !run.there ? "missing" : v->first < 0 || run.begin < v->first ?
		       "there" : "there, not reachable");
	plainf("\n");
	if (v->first >= 0)
		say_missing(l, chain, v->first, &v->near);
	else if (p->ntokens % (l->step * p->rule.block))
		plainf("the last %lld token%s no full %s\n",
		       LL(p->ntokens % (l->step * p->rule.block)),
		       p->ntokens % (l->step * p->rule.block) == 1 ? " is" : "s are",
		       l->step > 1 ? "file" : "block");
}

static void put_prompt(const struct look *l, json_t *list, const struct kvt_why_prompt *p,
		       const struct kvt_why_chain *chain, const struct verdict *v)
{
	struct json_out *out = &l->w->out;
	json_t *o = json_append_object(out, list), *runs, *r;
	struct run run = { 0, 0, false };
	int other = v->first < 0 ? -1 :
		    other_group(l, &chain->block[v->first + l->step - 1]);

	json_put_text(out, o, "prompt", p->name);
	json_put_int(out, o, "blocks", chain->nblocks);
	json_put_int(out, o, "blocks_per_file", l->step);
	json_put_int(out, o, "there", v->there);
	json_put_int(out, o, "reachable", v->reachable);
	json_put_known(out, o, "missing", v->first, v->first >= 0);
	json_put_text(out, o, "why", v->first < 0 ? "all-there" : other >= 0 ?
		      "other-group" : v->near.changed ? "other-rule" : "missing");
	json_put_known(out, o, "other_group", other, other >= 0);
	why_put_near(l->w, o, &v->near);
	runs = json_put_array(out, o, "runs");
	while (next_run(&run, l, chain)) {
		r = json_append_object(out, runs);
		json_put_int(out, r, "begin", run.begin);
		json_put_int(out, r, "end", run.end);
		json_put_bool(out, r, "there", run.there);
	}
}

static enum kvt_status look_at(struct look *l, const struct kvt_why_prompt *p,
			       json_t *list, bool *missing, struct kvt_error *err)
{
	const struct kvt_why_seen none = { 0 };
	struct verdict v = { .first = -1 };
	struct run run = { 0, 0, false };
	struct kvt_why_chain chain;
	enum kvt_status status = kvt_why_chain(&chain, p, 0, err);

	if (status)
		return status;
	while (next_run(&run, l, &chain)) {
		v.there += run.there ? run.end - run.begin : 0;
		if (!run.there && v.first < 0)
			v.first = run.begin;
	}
	v.reachable = v.first < 0 ? v.there : v.first;
	if (!v.there && v.first >= 0)
		kvt_why_near(&v.near, p, &none, has_any, l);
	*missing |= v.first >= 0;
	if (l->w->json)
		put_prompt(l, list, p, &chain, &v);
	else
		print_prompt(l, p, &chain, &v);
	kvt_why_chain_free(&chain);
	return KVT_OK;
}

enum kvt_status why_tree(struct why *w, struct kvt_error *err)
{
	struct look l = { w, (int)w->group, 1 };
	json_t *list = NULL;
	enum kvt_status status = take_config(&l, err);
	bool missing = false;

	if (!status && !w->files.count)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "%s: none of %lld files is named by a hash of its tokens",
				  w->tree, LL(w->files.files));
	if (!status)
		status = check_groups(&l, err);
	if (!status)
		status = why_rules(w, err);
	if (status)
		return status;
	if (w->json) {
		json_put_text(&w->out, w->out.root, "tree", w->tree);
		json_put_int(&w->out, w->out.root, "files", w->files.files);
		json_put_int(&w->out, w->out.root, "hashes", w->files.count);
		list = json_put_array(&w->out, w->out.root, "prompts");
	}
	for (int64_t i = 0; !status && i < w->prompts.count; i++)
		status = look_at(&l, &w->prompt[i], list, &missing, err);
	if (!status && w->json)
		status = json_print(&w->out, false, err);
	return status ? status : missing ? KVT_MISMATCH : KVT_OK;
}
