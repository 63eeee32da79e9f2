/* SPDX-License-Identifier: Apache-2.0 */
/*
 * params.c - params.json, in which Mistral publishes models, by the keys of a config.json
 *
 *	{"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128, ..}
 *
 * The same facts have other names there, and which model it is stands nowhere: one with
 * latents is read as DeepSeek V3, any other one as Mistral.  What comes out is the text
 * of a config.json, read by the same rules.  A key that keys[] does not have is refused.
 */
#include "formats/model/beside.h"
#include "formats/parse/json.h"

#include <string.h>

static const struct {
	const char *here, *there;	/* there NULL: of no effect on a cache */
} keys[] = {
	{ "dim", "hidden_size" }, { "n_layers", "num_hidden_layers" },
	{ "n_heads", "num_attention_heads" }, { "n_kv_heads", "num_key_value_heads" },
	{ "head_dim", "head_dim" }, { "sliding_window", "sliding_window" },
	{ "kv_lora_rank", "kv_lora_rank" }, { "q_lora_rank", "q_lora_rank" },
	{ "qk_rope_head_dim", "qk_rope_head_dim" }, { "v_head_dim", "v_head_dim" },
	{ "qk_nope_head_dim", "qk_nope_head_dim" }, { "hidden_dim", "intermediate_size" },
	{ "vocab_size", "vocab_size" }, { "dtype", "torch_dtype" },
	{ "max_position_embeddings", "max_position_embeddings" },
	{ "max_seq_len", "max_position_embeddings" },
	{ "norm_eps", NULL }, { "rope_theta", NULL }, { "tied_embeddings", NULL },
	{ "yarn", NULL }, { "moe", NULL }, { "vision_encoder", NULL }, { "causal", NULL },
	{ "use_biases", NULL }, { "llama_4_scaling", NULL },
	{ "model_parallel", NULL },
	{ "rope_scaling", NULL }, { "quantization", NULL },
	{ "model_type", "model_type" },
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]) };

static bool is_params(const json_t *root)
{
	return json_is_integer(json_object_get(root, "dim")) &&
	       json_is_integer(json_object_get(root, "n_layers")) &&
	       !json_object_get(root, "num_hidden_layers");
}

static enum kvt_status translate(json_t *out, const json_t *root, const char *name,
				 struct kvt_error *err)
{
	const char *key;
	json_t *value;
	int i;

	json_object_set_new(out, "model_type",
			    json_string(json_object_get(root, "kv_lora_rank") ?
					"deepseek_v3" : "mistral"));
	json_object_foreach((json_t *)root, key, value) {
		for (i = 0; i < NKEYS && strcmp(keys[i].here, key); i++)
			;
		if (i == NKEYS && !json_is_null(value))
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: %.60s may concern the cache, and is not known in a params.json: give the model's config.json",
					name, key);
		if (i < NKEYS && keys[i].there && strcmp(key, "model_type"))
			json_object_set(out, keys[i].there, value);
	}
	if (!json_object_get(out, "num_key_value_heads"))
		json_object_set(out, "num_key_value_heads",
				json_object_get(out, "num_attention_heads"));
	return KVT_OK;
}

enum kvt_status kvt_params_text(char **out, const char *text, size_t nbytes,
				const char *name, struct kvt_error *err)
{
	json_t *root = NULL, *config = json_object();
	enum kvt_status status = kvt_json_parse(&root, text, nbytes, name, err);

	*out = NULL;
	if (!status && json_is_object(root) && is_params(root) &&
	    !(status = translate(config, root, name, err)) &&
	    !(*out = kvt_json_dump(config, 0)))
		status = kvt_no_memory(err, NULL);
	json_decref(root);
	json_decref(config);
	return status;
}
