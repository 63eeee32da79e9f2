/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heads.c - how many heads of keys and values a layer has, and how wide they are
 *
 * In: a config.json.  Out: heads and widths; what is missing and follows from something
 * else is noted.  Of these the first that says anything counts:
 *
 *	heads	new_decoder_architecture, of a cache that is held: one for each query head
 *		multi_query without it: 1, and num_key_value_heads may not say more
 *		num_key_value_heads and its other names
 *		attn_config: multiquery_attention is 1, or kv_n_heads
 *		one for each query head, noted
 *	width	head_dim and its other names, kv_channels
 *		hidden_size / query heads, noted
 *
 * Query heads are a multiple of heads: Attention of vLLM asserts it.
 *
 * Layers with a window have what swa_* says, in one family twice the heads, else the
 * same.  block_configs is a list with an entry a layer: query heads / n_heads_in_group,
 * or none where attention is a no_op or linear.  What else an entry says of attention
 * might change a cache, so it is refused.
 */
#include "formats/model/rules.h"

#include <stdint.h>
#include <string.h>

/* ---- how many heads ------------------------------------------------------- */

/*
 * Falcon and its like: all query heads have the same key and value, or groups of them,
 * of which transformers keeps a copy for each query head.
 */
static enum kvt_status one_head(bool *out, bool *copied, struct config *c)
{
	bool one = false, grouped = false;
	enum kvt_status status;

	if ((status = kvt_config_flag(&one, c, "multi_query")) ||
	    (status = kvt_config_flag(&grouped, c, "new_decoder_architecture")))
		return status;
	*out = one && !grouped;
	*copied = grouped && c->hints->held;
	return KVT_OK;
}

/* attn_config, as MPT and DBRX have it. */
static enum kvt_status config_heads(int64_t *out, struct config *c)
{
	const char *type = NULL;
	struct kvt_json in;
	enum kvt_status status = kvt_json_object(&in, &c->in, "attn_config");

	if (status || !in.object || (status = kvt_json_string(&type, &in, "attn_type")))
		return status;
	if (type && !strcmp(type, "multiquery_attention"))
		*out = 1;
	return kvt_json_int(out, &in, "kv_n_heads", 1, 1 << 20);
}

static enum kvt_status named_heads(int64_t *out, struct config *c)
{
	static const char all[] = "num_key_value_heads|num_kv_heads|n_head_kv|"
				  "num_attention_groups|num_query_groups|multi_query_group_num";
	static const char keys[] = "num_key_value_heads|num_kv_heads|n_head_kv|"
				   "num_attention_groups|num_query_groups";
	bool groups = true;
	enum kvt_status status = kvt_config_flag(&groups, c, "multi_query_attention");

	return status ? status : kvt_config_get(out, c, groups ? all : keys);
}

static enum kvt_status kv_heads(int64_t *out, struct config *c)
{
	bool one = false, copied = false;
	enum kvt_status status = one_head(&one, &copied, c);

	if (status || copied)
		return status ? status : kvt_config_queries(out, c);
	if (one && (status = kvt_config_get(out, c, "num_key_value_heads")))
		return status;
	if (one && *out > 1)
		return kvt_json_bad(&c->in,
				    "multi_query is true, but num_key_value_heads is %lld",
				    LL(*out));
	if (one)
		*out = 1;
	if (*out || (status = named_heads(out, c)) || *out ||
	    (status = config_heads(out, c)) || *out)
		return status;
	if ((status = kvt_config_queries(out, c)))
		return status;
	kvt_config_note(c,
			"num_key_value_heads is missing: %lld, one for each query head",
			LL(*out));
	return KVT_OK;
}

enum kvt_status kvt_config_queries(int64_t *out, struct config *c)
{
	int64_t heads = 0;
	enum kvt_status status = kvt_config_get(&heads, c, KEYS_DECODER_HEADS);

	if (!status && heads)
		*out = heads;
	return status || heads ? status : kvt_config_need(out, c, KEYS_HEADS);
}

enum kvt_status kvt_config_head_dim(int64_t *out, struct config *c)
{
	static const char keys[] = "head_dim|attention_head_dim|dim_head|d_kv";
	int64_t heads = 0, hidden = 0;
	enum kvt_status status;

	if ((status = kvt_config_get(out, c, keys)) || *out ||
	    (status = kvt_config_get(out, c, "kv_channels")) || *out)
		return status;
	if ((status = kvt_config_queries(&heads, c)) ||
	    (status = kvt_config_need(&hidden, c, KEYS_HIDDEN)))
		return status;
	if (hidden % heads && !(c->hints->held && hidden > heads))
		return kvt_json_bad(&c->in,
				    "head_dim is missing, and hidden_size %lld is not a multiple of num_attention_heads %lld",
				    LL(hidden), LL(heads));
	*out = hidden / heads;
	kvt_config_note(c, "head_dim is missing: %lld, hidden_size / num_attention_heads",
			LL(*out));
	return KVT_OK;
}

/* Engines share each head of keys and values among as many query heads. */
static enum kvt_status check_shares(int64_t heads, const struct config *c)
{
	int64_t queries = 0;
	enum kvt_status status = kvt_json_int(&queries, &c->in, "num_attention_heads", 0,
					      INT64_MAX);

	if (status || queries % heads == 0)
		return status;
	return kvt_json_bad(&c->in,
			    "num_attention_heads is %lld, no multiple of the %lld heads of keys and values, which each engine expects",
			    LL(queries), LL(heads));
}

enum kvt_status kvt_config_heads(struct kvt_spec_args *args, struct config *c)
{
	enum kvt_status status;

	if ((status = kv_heads(&args->heads, c)) ||
	    (status = check_shares(args->heads, c)) ||
	    (status = kvt_config_get(&args->head_dim_v, c, "v_head_dim")))
		return status;
	return kvt_config_head_dim(&args->head_dim, c);
}

/* Heads of layers with a window, where they have their own. */
enum kvt_status kvt_config_window_heads(struct kvt_spec_args *args, struct config *c)
{
	int64_t heads = 0, dim = 0, dim_v = 0;
	enum kvt_status status;

	if (c->family->twice_window)
		heads = 2 * args->heads;
	if ((status = kvt_config_get(&heads, c, "swa_num_key_value_heads")) ||
	    (status = kvt_config_get(&dim, c, "swa_head_dim")) ||
	    (status = kvt_config_get(&dim_v, c, "swa_v_head_dim")))
		return status;
	if (!heads && !dim && !dim_v)
		return KVT_OK;
	args->heads = heads ? heads : args->heads;
	args->head_dim = dim ? dim : args->head_dim;
	if (dim || dim_v)
		args->head_dim_v = dim_v;
	return KVT_OK;
}

/* ---- block_configs -------------------------------------------------------- */

/* Nothing in it may be left aside. */
static enum kvt_status check_block(const struct kvt_json *in, int64_t layer)
{
	static const char *const known[] = { "no_op", "replace_with_linear",
					     "n_heads_in_group", "num_key_value_heads",
					     "sparsify" };
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)in->object, key, value) {
		size_t i = 0;

		while (i < 5 && strcmp(key, known[i]))
			i++;
		if (i == 5 && !kvt_config_is_off(value))
			return kvt_json_refuse(in, KVT_UNSUPPORTED,
					       "block_configs: %.40s of layer %lld may concern its cache, and no rule knows it: give the caches with --spec",
					       key, LL(layer));
	}
	return KVT_OK;
}

/* 0: the layer has no attention. */
static enum kvt_status block_heads(int64_t *out, struct config *c, const json_t *list,
				   int64_t layer, int64_t queries)
{
	struct kvt_json block = kvt_json_of(&c->in, json_array_get(list, (size_t)layer));
	struct kvt_json in;
	int64_t group = 0;
	enum kvt_status status;

	*out = 0;
	if (!json_is_object(block.object))
		return kvt_json_bad(&c->in, "block_configs: layer %lld is not an object",
				    LL(layer));
	if ((status = kvt_json_object(&in, &block, "attention")) || !in.object ||
	    json_is_true(json_object_get(in.object, "no_op")) ||
	    json_is_true(json_object_get(in.object, "replace_with_linear")) ||
	    (status = check_block(&in, layer)) ||
	    (status = kvt_json_int(out, &in, "num_key_value_heads", 1, queries)) ||
	    (status = kvt_json_int(&group, &in, "n_heads_in_group", 1, queries)))
		return status;
	if (group && !(queries % group) && (!*out || *out == queries / group))
		*out = queries / group;
	else if (group || !*out)
		return kvt_json_bad(&c->in,
				    "block_configs: layer %lld has groups of %lld heads, of %lld query heads",
				    LL(layer), LL(group), LL(queries));
	return KVT_OK;
}

enum kvt_status kvt_config_block_heads(int64_t *heads, bool *found, struct config *c)
{
	const json_t *list = NULL;
	int64_t queries;
	enum kvt_status status = kvt_config_used_list(&list, c, "block_configs");

	*found = list != NULL;
	if (status || !list ||
	    (status = kvt_config_need(&queries, c, "num_attention_heads")))
		return status;
	for (int64_t i = 0; !status && i < c->nlayers; i++)
		status = block_heads(&heads[i], c, list, i, queries);
	return status;
}
