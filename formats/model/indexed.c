/* SPDX-License-Identifier: Apache-2.0 */
/*
 * indexed.c - models in which an indexer chooses the tokens that a layer attends to
 *
 * In: the layers of each kind.  Out: their latents, or keys and values, and beside them
 * the keys of the indexers and the rings of what is not pooled yet.  A layer may share
 * the choice of one before it, and has no indexer then.
 */
#include "formats/model/rules.h"

#include <string.h>

/* ---- layers -------------------------------------------------------------- */

/* Words for full attention mean it with an indexer here. */
enum kvt_status kvt_choose_sparse(struct config *c)
{
	for (int64_t i = 0; i < c->nlayers; i++)
		if (c->kind[i] == LAYER_FULL)
			c->kind[i] = LAYER_SPARSE;
	return KVT_OK;
}

static enum kvt_status share_letters(struct config *c, const char *pattern)
{
	if ((int64_t)strlen(pattern) < c->nlayers ||
	    pattern[strspn(pattern, "FS")] != '\0')
		return kvt_json_bad(&c->in,
				    "index_topk_pattern is '%.20s', expected F or S for each of %lld layers",
				    pattern, LL(c->nlayers));
	for (int64_t i = 0; i < c->nlayers; i++)
		if (c->kind[i] == LAYER_SPARSE && pattern[i] == 'S')
			c->kind[i] = LAYER_SHARED;
	return KVT_OK;
}

/* index_topk_pattern, F and S; or every index_topk_freq-th from an offset on. */
enum kvt_status kvt_choose_indexers(struct config *c)
{
	const char *pattern = NULL;
	int64_t freq = 1, offset = 2;
	enum kvt_status status = kvt_choose_sparse(c);

	if (status ||
	    (status = kvt_json_string(&pattern, &c->in, "index_topk_pattern")) ||
	    (status = kvt_json_int(&freq, &c->in, "index_topk_freq", 1, 1 << 20)) ||
	    (status = kvt_json_int(&offset, &c->in, "index_skip_topk_offset", 0,
				   1 << 20)))
		return status;
	if (json_object_get(c->in.object, "indexer_types"))
		kvt_config_note(c,
			"indexer_types is set aside: vLLM reads index_topk_pattern and index_topk_freq of %s",
				c->type);
	if (pattern)
		return share_letters(c, pattern);
	for (int64_t i = 0; i < c->nlayers; i++)
		if (c->kind[i] == LAYER_SPARSE && i - offset + 1 > 0 &&
		    (i - offset + 1) % freq)
			c->kind[i] = LAYER_SHARED;
	return KVT_OK;
}

/* indexer_types: full or shared; else the first layer and every fourth after it. */
enum kvt_status kvt_choose_listed(struct config *c)
{
	const char key[] = "indexer_types", *word;
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, &c->in, key);

	if (!status && list && (int64_t)json_array_size(list) != c->nlayers)
		return kvt_json_bad(&c->in,
				    "%s has %zu layers, but num_hidden_layers is %lld",
				    key, json_array_size(list), LL(c->nlayers));
	for (int64_t i = 0; !status && i < c->nlayers; i++) {
		word = i == 0 || (i - 1) % 4 == 0 ? "full" : "shared";
		if (list && (status = kvt_json_string_at(&word, &c->in, key, list,
							 (size_t)i)))
			return status;
		if (strcmp(word, "full") && strcmp(word, "shared"))
			return kvt_json_bad(&c->in,
					    "%s: layer %lld is '%.40s', expected full or shared",
					    key, LL(i), word);
		if (c->kind[i] == LAYER_SPARSE && !strcmp(word, "shared"))
			c->kind[i] = LAYER_SHARED;
	}
	return status;
}

/* ---- GLM-5.3 -------------------------------------------------------------- */

static enum kvt_status check_no_rope(struct config *c)
{
	int64_t rope = 0;
	enum kvt_status status = kvt_json_int(&rope, &c->in, "qk_rope_head_dim", 0,
					      1 << 20);

	if (!status && rope)
		return kvt_json_bad(&c->in, "qk_rope_head_dim is %lld, expected 0",
				    LL(rope));
	return status;
}

/* A row for 'index_kpool' tokens; the pool that is not full yet is kept in a ring. */
enum kvt_status kvt_caches_glm5(struct config *c)
{
	struct kvt_spec_args latent = { .latent = 0 }, pooled = { .ratio = 0 };
	struct kvt_spec_args tail = { .heads = 2, .head_dim = 128, .elem = 2 };
	enum kvt_status status;

	if ((status = check_no_rope(c)) || (status = kvt_config_indexer(c)) ||
	    (status = kvt_config_need(&latent.latent, c, "kv_lora_rank")) ||
	    (status = kvt_config_need(&pooled.ratio, c, "index_kpool")))
		return status;
	tail.block_size = pooled.ratio;
	kvt_config_add(c, "mla", "mla", KIND(LAYER_SPARSE), &latent);
	kvt_config_add(c, "indexer", "kpool-indexer", KIND(LAYER_SPARSE), &pooled);
	kvt_config_add(c, "tail", "ring", KIND(LAYER_SPARSE), &tail);
	c->out->block_size = 128;
	return KVT_OK;
}

/* ---- Qwen4 ----------------------------------------------------------------- */

/* Positions of three axes beside each key that waits to be pooled. */
static bool has_mrope(struct config *c)
{
	static const char *const keys[] = { "rope_parameters", "rope_scaling" };

	for (int i = 0; i < 2; i++)
		if (json_is_array(json_object_get(json_object_get(c->in.object, keys[i]),
						  "mrope_section")))
			return true;
	return false;
}

static enum kvt_status add_keys(struct config *c)
{
	struct kvt_spec_args ring = { .heads = 1, .elem = 2 }, key = { .latent = 0 };
	int64_t heads = 1;
	enum kvt_status status;

	if ((status = kvt_config_need(&key.latent, c, "indexer_head_dim")) ||
	    (status = kvt_config_need(&key.ratio, c, "indexer_compress_ratio")) ||
	    (status = kvt_config_get(&heads, c, "indexer_kv_heads")))
		return status;
	if (heads != 1)
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "indexer_kv_heads is %lld, expected 1", LL(heads));
	ring.head_dim = key.latent + (has_mrope(c) ? 12 : 0);
	ring.block_size = key.ratio;
	kvt_config_add(c, "raw-key", "ring", KIND(LAYER_SPARSE), &ring);
	kvt_config_add(c, "key", "index-key", KIND(LAYER_SPARSE), &key);
	return KVT_OK;
}

enum kvt_status kvt_caches_qwen4(struct config *c)
{
	struct kvt_spec_args args = { .heads = 0 };
	enum kvt_status status = kvt_config_heads(&args, c);

	if (status)
		return status;
	kvt_config_add(c, "full", "gqa", KIND(LAYER_SPARSE), &args);
	if (json_is_integer(json_object_get(c->in.object, "indexer_head_dim")))
		return add_keys(c);
	kvt_config_note(c,
		"indexer_head_dim is missing: full attention without an indexer");
	return KVT_OK;
}

/* ---- MiniMax M3 ------------------------------------------------------------ */

static const char m3_key[] = "sparse_attention_config";

/* sparse_attention_freq: 1 is a layer with an indexer. */
enum kvt_status kvt_layers_freq(struct config *c)
{
	const char key[] = "sparse_attention_freq";
	const json_t *list = NULL;
	struct kvt_json in;
	int64_t sparse;
	enum kvt_status status = kvt_config_need_layers(c);

	if (status || (status = kvt_json_object(&in, &c->in, m3_key)) ||
	    (status = kvt_json_array(&list, &in, key)))
		return status;
	if (!list || (int64_t)json_array_size(list) != c->nlayers)
		return kvt_json_bad(&c->in,
				    "%s.%s has %zu layers, expected %lld; without it transformers and vLLM have other defaults",
				    m3_key, key, list ? json_array_size(list) : 0,
				    LL(c->nlayers));
	for (int64_t i = 0; !status && i < c->nlayers; i++) {
		status = kvt_json_int_at(&sparse, &in, key, list, (size_t)i, 0, 1);
		if (!status)
			c->kind[i] = sparse ? LAYER_SPARSE : LAYER_FULL;
	}
	return status;
}

/* One key a token, whatever the number of the indexer's query heads. */
enum kvt_status kvt_caches_minimax_m3(struct config *c)
{
	struct kvt_spec_args args = { .heads = 0 }, key = { .latent = 128 };
	struct kvt_json in;
	enum kvt_status status = kvt_config_heads(&args, c);

	if (status || (status = kvt_json_object(&in, &c->in, m3_key)) ||
	    (status = kvt_json_int(&key.latent, &in, "sparse_index_dim", 1, 1 << 20)))
		return status;
	kvt_config_add(c, "full", "gqa", KIND(LAYER_FULL) | KIND(LAYER_SPARSE), &args);
	kvt_config_add(c, "index-key", "index-key", KIND(LAYER_SPARSE), &key);
	c->out->block_size = 128;
	return KVT_OK;
}

/* ---- dots3 ------------------------------------------------------------------ */

/* What a window's latents are, by keys of their own or by per_layer_config. */
static enum kvt_status window_latents(struct config *c)
{
	int64_t *rank = &c->rank[LAYER_WINDOW], *rope = &c->rope[LAYER_WINDOW];
	enum kvt_status status = kvt_config_enter_kind(c, LAYER_WINDOW);
	const char *keys[] = { "swa_kv_lora_rank", "swa_qk_rope_head_dim" };

	if (c->layer)
		keys[0] = "kv_lora_rank", keys[1] = "qk_rope_head_dim";
	if (status || (status = kvt_config_need(rank, c, keys[0])) ||
	    (status = kvt_config_need(rope, c, keys[1])))
		return status;
	kvt_config_leave_kind(c);
	return KVT_OK;
}

/* Rows of full attention are as wide as those of the window; the rest is padding. */
enum kvt_status kvt_caches_dots3(struct config *c)
{
	int64_t rank, rope, window = 0;
	struct kvt_spec_args args = { .latent = 0 }, none = { .latent = 0 };
	enum kvt_status status;

	if ((status = kvt_config_need(&rank, c, "kv_lora_rank")) ||
	    (status = kvt_config_need(&rope, c, "qk_rope_head_dim")) ||
	    (status = window_latents(c)) ||
	    (status = kvt_config_need(&window, c,
				      "sliding_window_size|sliding_window")) ||
	    (status = kvt_config_indexer(c)))
		return status;
	c->rank[LAYER_SPARSE] = c->rank[LAYER_SHARED] = rank;
	c->rope[LAYER_SPARSE] = c->rope[LAYER_SHARED] = rope;
	args.latent = c->rank[LAYER_WINDOW] + c->rope[LAYER_WINDOW];
	if (rank + rope > args.latent)
		return kvt_json_bad(&c->in,
				    "latents of %lld, expected at most the %lld of the window",
				    LL(rank + rope), LL(args.latent));
	args.leader = c->count[LAYER_SHARED] > 0;
	kvt_config_add(c, "mla", "mla", KIND(LAYER_SPARSE), &args);
	kvt_config_add(c, "indexer", "indexer", KIND(LAYER_SPARSE), &none);
	args.leader = 0;
	kvt_config_add(c, "mla-shared", "mla", KIND(LAYER_SHARED), &args);
	args.window = window;
	kvt_config_add(c, "window", "mla", KIND(LAYER_WINDOW), &args);
	kvt_config_note(c, "rows of full attention hold %lld of %lld elements",
			LL(rank + rope), LL(args.latent));
	c->out->block_size = 64;
	return KVT_OK;
}

/* ---- DeepSeek V4.1 ----------------------------------------------------------- */

static enum kvt_status mark_sources(struct config *c, const json_t *ratios)
{
	const char key[] = "kv_source_layer_ids";
	const json_t *list = NULL;
	int64_t at, ratio;
	enum kvt_status status = kvt_json_array(&list, &c->in, key);

	for (size_t i = 0; !status && i < json_array_size(list); i++) {
		if ((status = kvt_json_int_at(&at, &c->in, key, list, i, 0,
					      c->nlayers - 1)) ||
		    (status = kvt_json_int_at(&ratio, &c->in, "compress_ratios", ratios,
					      (size_t)at, 1, 2)))
			return status;
		c->kind[at] = ratio == 1 ? LAYER_SOURCE1 : LAYER_SOURCE2;
	}
	return status;
}

/* Each layer has a window; others read what the sources compress. */
enum kvt_status kvt_layers_dsv41(struct config *c)
{
	const char key[] = "compress_ratios";
	const json_t *list = NULL;
	int64_t ratio, before = 0;
	enum kvt_status status = kvt_config_need_layers(c);

	if (status || (status = kvt_json_array(&list, &c->in, key)))
		return status;
	if (!list || (int64_t)json_array_size(list) < c->nlayers)
		return kvt_json_bad(&c->in,
				    "%s has %zu layers, but num_hidden_layers is %lld",
				    key, list ? json_array_size(list) : 0,
				    LL(c->nlayers));
	memset(c->kind, LAYER_WINDOW, (size_t)c->nlayers);
	if ((status = mark_sources(c, list)))
		return status;
	for (int64_t i = 0; !status && i < c->nlayers; i++) {
		status = kvt_json_int_at(&ratio, &c->in, key, list, (size_t)i, 0, 2);
		before |= c->kind[i] != LAYER_WINDOW;
		if (!status && ratio && !before)
			return kvt_json_bad(&c->in,
					    "layer %lld has %s of %lld, and kv_source_layer_ids has no layer before it",
					    LL(i), key, LL(ratio));
	}
	return status;
}

enum kvt_status kvt_caches_dsv41(struct config *c)
{
	const unsigned one = KIND(LAYER_SOURCE1), two = KIND(LAYER_SOURCE2);
	struct kvt_spec_args window = { .block_size = 32 }, ring = { .block_size = 8 };
	struct kvt_spec_args pair = { .ratio = 2 }, single = { .ratio = 1 };
	int64_t dim;
	enum kvt_status status;

	if ((status = kvt_config_need(&window.window, c, "sliding_window")) ||
	    (status = kvt_config_need(&dim, c, "head_dim")) ||
	    (status = kvt_config_indexer(c)))
		return status;
	if (dim != 512)
		return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
				       "head_dim is %lld, expected 512", LL(dim));
	ring.heads = 2;
	ring.head_dim = 512;
	ring.elem = 4;
	kvt_config_add(c, "swa", "dsv41-swa", KIND(LAYER_WINDOW) | one | two, &window);
	kvt_config_add(c, "main-2", "dsv41-main", two, &pair);
	kvt_config_add(c, "indexer-2", "dsv41-indexer", two, &pair);
	kvt_config_add(c, "ring", "ring", two, &ring);
	kvt_config_add(c, "main-1", "dsv41-main", one, &single);
	kvt_config_add(c, "indexer-1", "dsv41-indexer", one, &single);
	c->out->block_size = 128;
	return KVT_OK;
}
