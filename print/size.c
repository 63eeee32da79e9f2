/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size.c - the caches of a model for people, and as kvtool-json(5) has them
 *
 *	20 KiB a token; 277.8 MiB for a request of 8192 tokens, on each of 1 rank
 *	  window              sliding-window:layers=29,heads=4,head-dim=256,window=1024
 *	tp 1, bfloat16, on each rank:
 *	  CACHE               LAYERS TOKENS     PER PAGE    PER BLOCK    PER TOKEN
 *	in one pool of vLLM, LBNHC: 320 KiB a block id
 *	  TP  CACHE                BLOCK  PER TOKEN   ALL RANKS      UNIQUE        FIXED
 *
 *	{"config": .., "groups": [..], .., "sizes": [{"tp": 1, "cache_dtype": .., ..,
 *	   "token_bytes": 20480, .., "groups": [..], "pool": {.., "runs": [..]}}, ..]}
 *
 * The answer, its groups and its pool are those of the first row, and the last table has
 * a line for each row; JSON has groups and a pool for each that can be.  What is not
 * whole bytes is told to a thousandth.
 */
#include "print/size.h"
#include "print/out/say.h"
#include "print/out/json_out.h"
#include "print/out/screen.h"

#include <string.h>

/* ---- text --------------------------------------------------------------- */

/* Whole, or to a thousandth. */
static struct human number(double x)
{
	struct human out;

	snprintf(out.s, sizeof(out.s), "%.*f", x == (double)(int64_t)x ? 0 : 3, x);
	return out;
}

/* "24 KiB"; less than a byte more is said to a thousandth. */
static struct human size(double bytes)
{
	struct human out = number(bytes);

	if (bytes == (double)(int64_t)bytes)
		snprintf(out.s, sizeof(out.s), "%s", kvt_size_string((int64_t)bytes).s);
	else
		strcat(out.s, " B");
	return out;
}

/* What most ask for, in one line: of the first deployment. */
static void print_answer(const struct size_report *r)
{
	const struct size_row *row = &r->row[0];
	struct kvt_model_sums sums = kvt_model_sums(&row->size);
	int64_t fixed = sums.windows + sums.states;

	screen_fold_begin(2);
	screen_paint(SCREEN_NAME);
	plainf("%s a token", size(sums.token).s);
	screen_plain();
	if (r->tokens)
		plainf("; %s for a request of %lld tokens",
		       size((double)kvt_model_request(&row->size, r->tokens)).s,
		       LL(r->tokens));
	else if (fixed)
		plainf(
		       "; at most %s besides for windows and recurrent states of a request",
		       size((double)fixed).s);
	plainf(", on each of %lld rank%s\n", LL(row->tp), plural(row->tp));
	if (!r->summed)
		return;
	plainf("%lld request%s: %s on each of %lld rank%s, %s in all", LL(r->requests),
	       plural(r->requests), size((double)row->rank_bytes).s, LL(row->tp),
	       plural(row->tp), size((double)row->all_bytes).s);
	if (r->sample.path)
		plainf("; %s on disk, compressed as %s is (ratio %.2f)",
		       size((double)row->disk_bytes).s, r->sample.path, r->sample.ratio);
	putchar('\n');
}

static void print_caches(const struct size_report *r)
{
	const struct kvt_model *model = &r->config.model;

	if (r->path)
		plainf("%s: %s%s%lld layers, %s\n", r->path, r->config.family,
		       r->config.family[0] ? ", " : "", LL(r->config.layers),
		       r->config.dtype ? r->config.dtype->name : "no type given");
	for (int i = 0; i < r->config.nnotes; i++)
		plainf("  note: %s\n", r->config.note[i]);
	for (int i = 0; i < model->ngroups; i++)
		plainf("  %-19s %s\n", model->group[i].name,
		       kvt_model_group_text(&model->group[i]).s);
}

/* Of a token on a rank: the mean where ranks deal tokens out. */
static double token_bytes(const struct kvt_group_size *g)
{
	return (double)(g->page * g->group.layers) / (double)g->block_size /
	       (double)g->dealt;
}

/* What a group of a request takes: by the token, up to so much, or once. */
static void print_group(const struct kvt_group_size *g)
{
	int64_t block = g->page * g->group.layers;

	plainf("  %-19s %6lld %6s %12s %12s %12s", g->group.name, LL(g->group.layers),
	       g->block_size ? number((double)g->block_size).s : "-",
	       size((double)g->page).s, size((double)block).s,
	       g->block_size ? size(token_bytes(g)).s : "-");
	if (g->block_size && g->spec.replication > g->dealt)
		plainf("  on %lld ranks", LL(g->spec.replication / g->dealt));
	if (g->dealt > 1)
		plainf("  divided among %lld", LL(g->dealt));
	if (g->most_blocks)
		plainf("  %lld blocks at most", LL(g->most_blocks));
	if (!g->block_size && g->group.args.drafts)
		plainf("  %lld times", LL(1 + g->group.args.drafts));
	else if (!g->block_size)
		plainf("  once");
	if (g->page != g->unpadded)
		plainf("  %s padding", size((double)(g->page - g->unpadded)).s);
	putchar('\n');
}

static void print_groups(const struct size_report *r)
{
	const struct size_row *row = &r->row[0];

	plainf("\ntp %lld, %s, on each rank:\n", LL(row->tp), row->cache_dtype);
	plainf("  %-19s %6s %6s %12s %12s %12s\n", "CACHE", "LAYERS", "TOKENS",
	       "PER PAGE", "PER BLOCK", "PER TOKEN");
	for (int i = 0; i < row->size.ngroups; i++)
		print_group(&row->size.group[i]);
}

/* "main, indexer": the caches of a group, and the layers of each if they differ. */
static void print_parts(const struct size_row *row, const struct kvt_pack_group *g)
{
	for (int i = 0; i < g->nparts; i++) {
		const struct kvt_pack_part *part = &g->part[i];

		plainf("%s%lld %s", i ? ", " : " ", LL(part->layers),
		       row->size.group[part->cache].group.name);
		if (kvt_state_groups(&row->size, part->cache) == 2)
			plainf("+%s", row->size.group[part->cache + 1].group.name);
	}
}

static void print_pool(const struct size_report *r)
{
	const struct size_row *row = &r->row[0];
	struct size_pool pool;

	size_pool(&pool, r, row);
	if (pool.why_not[0]) {
		plainf("\nin one pool of vLLM: none: %s\n", pool.why_not);
		return;
	}
	plainf("\nin one pool of vLLM, %s: %s a block id\n", r->layout_name,
	       size((double)pool.pack.block_nbytes).s);
	plainf("  %6s %6s %12s %s\n", "GROUPS", "TOKENS", "PER BLOCK", " LAYERS OF EACH");
	for (int i = 0; i < pool.pack.nruns; i++) {
		const struct kvt_pack_group *g = &pool.pack.run[i];

		plainf("  %6lld %6lld %12s", LL(g->times), LL(g->part[0].block_size),
		       size((double)g->nbytes).s);
		print_parts(row, g);
		plainf("\n");
	}
	if (pool.block_ids)
		plainf("  %lld block ids in %s\n", LL(pool.block_ids),
		       kvt_size_string(r->memory).s);
	if (pool.request)
		plainf("  a request of %lld tokens needs at most %lld block ids\n",
		       LL(r->tokens), LL(pool.request));
	if (pool.too_long[0])
		plainf("  a request: %s\n", pool.too_long);
	plainf("  newly allocated blocks %s\n", pool.zeroing ? "are zeroed" :
	       "are not cleared");
}

static void print_row(const struct size_report *r, const struct size_row *row)
{
	struct kvt_model_sums sums = kvt_model_sums(&row->size);

	plainf("%4lld  %-19s", LL(row->tp), row->cache_dtype);
	if (row->why_not[0]) {
		plainf(" %s\n", row->why_not);
		return;
	}
	plainf(" %6lld %10s %11s %11s %12s", LL(row->size.block_size),
	       size(sums.token).s, size(sums.all_ranks).s, size(sums.unique).s,
	       size((double)(sums.windows + sums.states)).s);
	if (r->tokens)
		plainf(" %14s", size((double)kvt_model_request(&row->size, r->tokens)).s);
	if (r->summed)
		plainf(" %12s", size((double)row->all_bytes).s);
	if (r->sample.path)
		plainf(" %11s", row->disk_bytes < 0 ? "-" :
				size((double)row->disk_bytes).s);
	if (r->memory) {
		int64_t fit = kvt_model_fit(&row->size, r->memory, r->requests);

		plainf(" %11s", fit < 0 ? "none" : fit == KVT_ANY_TOKENS ? "any" :
				number((double)fit).s);
	}
	putchar('\n');
}

void size_text(const struct size_report *r)
{
	print_answer(r);
	screen_fold_end();
	/* rows go on below what they are of */
	screen_fold_begin(8);
	print_caches(r);
	print_groups(r);
	print_pool(r);
	plainf("\n%4s  %-19s %6s %10s %11s %11s %12s", "TP", "CACHE", "BLOCK",
	       "PER TOKEN", "ALL RANKS", "UNIQUE", "FIXED");
	if (r->tokens)
		plainf(" %14s", "PER REQUEST");
	if (r->summed)
		plainf(" %12s", "ALL REQUESTS");
	if (r->sample.path)
		plainf(" %11s", "ON DISK");
	if (r->memory)
		plainf(" %11s", "FIT");
	putchar('\n');
	for (int i = 0; i < r->nrows; i++)
		print_row(r, &r->row[i]);
	screen_fold_end();
	screen_fold_begin(2);
	plainf("\nBLOCK: tokens in a block, by vLLM %s.\n", kvt_release_name(r->release));
	puts("PER TOKEN: bytes per additional token on one rank.\n"
	     "ALL RANKS: the sum over the ranks.\n"
	     "UNIQUE: the same without duplicate heads, of ranks that share some.\n"
	     "FIXED: the most that windows and recurrent states of a request take on a rank.");
	if (r->tokens)
		plainf("PER REQUEST: of %lld tokens, on one rank.\n", LL(r->tokens));
	if (r->summed)
		plainf("ALL REQUESTS: %lld of them, on all ranks.\n", LL(r->requests));
	if (r->sample.path)
		plainf("ON DISK: snapshots of these; %s tells of no other type.\n",
		       r->sample.dtype->name);
	if (r->memory)
		plainf("FIT: tokens of each of %lld request%s in %s on each rank.\n",
		       LL(r->requests), plural(r->requests),
		       kvt_size_string(r->memory).s);
	puts("Exact bytes: --json.");
	screen_fold_end();
}

/* ---- JSON --------------------------------------------------------------- */

/* Whole numbers stay whole. */
static void put_number(struct json_out *out, json_t *object, const char *key, double x)
{
	if (x == (double)(int64_t)x)
		json_put_int(out, object, key, (int64_t)x);
	else
		json_put_real(out, object, key, x);
}

static void put_caches(struct json_out *out, const struct size_report *r)
{
	const struct kvt_model *model = &r->config.model;
	json_t *array;

	json_put_text(out, out->root, "config", r->path);
	json_put_text(out, out->root, "family",
		      r->config.family[0] ? r->config.family : NULL);
	json_put_int(out, out->root, "layers", r->config.layers);
	json_put_text(out, out->root, "dtype",
		      r->config.dtype ? r->config.dtype->name : NULL);
	json_put_text(out, out->root, "cache_dtype",
		      r->config.cache_dtype[0] ? r->config.cache_dtype : NULL);
	json_put_int(out, out->root, "block_size", r->config.block_size);
	json_put_text(out, out->root, "layout", r->config.model.layout);
	json_put_known(out, out->root, "state_chunk", r->config.model.state_chunk,
		       r->config.model.state_chunk);
	json_put_text(out, out->root, "release", kvt_release_name(r->release));
	json_put_known(out, out->root, "draft_tokens", r->demand.drafts,
		       r->demand.drafts > 0);
	array = json_put_array(out, out->root, "notes");
	for (int i = 0; i < r->config.nnotes; i++)
		json_append_text(out, array, r->config.note[i]);
	array = json_put_array(out, out->root, "groups");
	for (int i = 0; i < model->ngroups; i++) {
		json_t *group = json_append_object(out, array);

		json_put_text(out, group, "name", model->group[i].name);
		json_put_text(out, group, "spec",
			      kvt_model_group_text(&model->group[i]).s);
		json_put_int(out, group, "layers", model->group[i].layers);
	}
}

/* Of a request, in vLLM. */
static void put_blocks(struct json_out *out, json_t *group, const struct size_report *r,
		       const struct kvt_group_size *g)
{
	struct kvt_spec_args args = g->group.args;
	int64_t most = 0, width = 0;
	bool known;

	args.block_size = g->spec.block_size ? g->spec.block_size : 1;
	known = r->tokens && !kvt_spec_blocks(&most, &width, g->keeps, &args, &r->demand,
					      NULL);
	json_put_known(out, group, "request_blocks", most, known);
	json_put_known(out, group, "table_blocks", width, known);
}

static void put_group(struct json_out *out, json_t *array, const struct size_report *r,
		      const struct kvt_group_size *g)
{
	const struct kvt_class_rule *rule =
		kvt_class_rule(kvt_spec_class_of(g->keeps, &g->group.args));
	json_t *group = json_append_object(out, array);
	int64_t block = g->page * g->group.layers;

	json_put_text(out, group, "name", g->group.name);
	json_put_text(out, group, "spec", kvt_model_group_text(&g->group).s);
	json_put_known(out, group, "block_size", g->block_size, g->block_size);
	json_put_int(out, group, "unpadded_bytes", g->unpadded);
	json_put_int(out, group, "page_bytes", g->page);
	json_put_int(out, group, "block_bytes", block);
	if (g->block_size)
		put_number(out, group, "token_bytes", token_bytes(g));
	else
		json_put(out, group, "token_bytes", json_null());
	json_put_known(out, group, "replication", g->spec.replication, g->block_size);
	json_put_known(out, group, "most_blocks", g->most_blocks, g->most_blocks);
	json_put_text(out, group, "spec_class", rule->name);
	json_put_text(out, group, "spec_kind", rule->word);
	json_put_bool(out, group, "prefix_cached",
		      kvt_spec_cached(g->keeps, &g->group.args));
	json_put_bool(out, group, "slot_mapping", rule->mapped);
	put_blocks(out, group, r, g);
}

static void put_run(struct json_out *out, json_t *array, const struct size_report *r,
		    const struct size_row *row, const struct kvt_pack_group *g)
{
	json_t *object = json_append_object(out, array), *parts;
	int64_t blocks = 0;
	bool known = r->tokens && !kvt_pack_blocks(&blocks, &row->size, g, &r->demand,
						   NULL);

	json_put_int(out, object, "groups", g->times);
	json_put_int(out, object, "block_bytes", g->nbytes);
	json_put_known(out, object, "request_blocks", blocks, known);
	parts = json_put_array(out, object, "parts");
	for (int i = 0; i < g->nparts; i++) {
		const struct kvt_pack_part *part = &g->part[i];
		json_t *p = json_append_object(out, parts);

		json_put_text(out, p, "name", row->size.group[part->cache].group.name);
		json_put_int(out, p, "layers", part->layers);
		json_put_int(out, p, "block_size", part->block_size);
		json_put_int(out, p, "page_bytes", part->page);
		json_put_known(out, p, "offset", part->offset, part->offset >= 0);
	}
}

static void put_pool(struct json_out *out, json_t *object, const struct size_report *r,
		     const struct size_row *row)
{
	json_t *o = json_put_object(out, object, "pool"), *runs;
	struct size_pool pool;

	size_pool(&pool, r, row);
	json_put_text(out, o, "layout", r->layout_name);
	json_put_text(out, o, "error", pool.why_not[0] ? pool.why_not : NULL);
	if (pool.why_not[0])
		return;
	json_put_int(out, o, "block_id_bytes", pool.pack.block_nbytes);
	json_put_int(out, o, "groups", pool.pack.ngroups);
	json_put_int(out, o, "tp_replicas", pool.copies);
	json_put_bool(out, o, "zeroing", pool.zeroing);
	json_put_known(out, o, "block_ids", pool.block_ids, r->memory);
	json_put_known(out, o, "request_block_ids", pool.request,
		       r->tokens && !pool.too_long[0]);
	runs = json_put_array(out, o, "runs");
	for (int i = 0; i < pool.pack.nruns; i++)
		put_run(out, runs, r, row, &pool.pack.run[i]);
}

static void put_sums(struct json_out *out, json_t *object, const struct size_report *r,
		     const struct size_row *row)
{
	struct kvt_model_sums sums = kvt_model_sums(&row->size);
	int64_t fit;

	json_put_int(out, object, "block_size", row->size.block_size);
	put_number(out, object, "token_bytes", sums.token);
	put_number(out, object, "window_token_bytes", sums.window);
	put_number(out, object, "all_ranks_token_bytes", sums.all_ranks);
	put_number(out, object, "unique_token_bytes", sums.unique);
	json_put_int(out, object, "window_bytes", sums.windows);
	json_put_int(out, object, "state_bytes", sums.states);
	json_put_int(out, object, "state_page_bytes", row->size.state_padded);
	json_put_known(out, object, "request_bytes",
		       kvt_model_request(&row->size, r->tokens), r->tokens);
	json_put_known(out, object, "requests_bytes", row->rank_bytes, r->summed);
	json_put_known(out, object, "all_ranks_requests_bytes", row->all_bytes,
		       r->summed);
	json_put_known(out, object, "on_disk_bytes", row->disk_bytes,
		       r->sample.path && row->disk_bytes >= 0);
	fit = r->memory ? kvt_model_fit(&row->size, r->memory, r->requests) : -1;
	json_put_known(out, object, "tokens", fit, fit >= 0 && fit < KVT_ANY_TOKENS);
	json_put_bool(out, object, "fits", r->memory && fit >= 0);
}

enum kvt_status size_json(const struct size_report *r, struct kvt_error *err)
{
	struct json_out out;
	json_t *array;

	json_start(&out);
	put_caches(&out, r);
	json_put_known(&out, out.root, "memory", r->memory, r->memory);
	json_put_int(&out, out.root, "requests", r->requests);
	if (r->sample.path)
		json_put_real(&out, out.root, "compression_ratio", r->sample.ratio);
	array = json_put_array(&out, out.root, "sizes");
	for (int i = 0; i < r->nrows; i++) {
		const struct size_row *row = &r->row[i];
		json_t *object = json_append_object(&out, array), *groups;

		json_put_int(&out, object, "tp", row->tp);
		json_put_text(&out, object, "cache_dtype", row->cache_dtype);
		json_put_text(&out, object, "error",
			      row->why_not[0] ? row->why_not : NULL);
		if (row->why_not[0])
			continue;
		put_sums(&out, object, r, row);
		groups = json_put_array(&out, object, "groups");
		for (int g = 0; g < row->size.ngroups; g++)
			put_group(&out, groups, r, &row->size.group[g]);
		put_pool(&out, object, r, row);
	}
	if (r->llama)
		size_llama_json(&out, r);
	return json_print(&out, false, err);
}
