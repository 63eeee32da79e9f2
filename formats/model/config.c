/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - which rules a config.json is read by
 *
 * A family (model_type) has a rule for its layers, one for attention and one for
 * recurrent states, and the defaults of its class in transformers, which a config.json
 * may leave out.  A model_type without a row here is refused, not guessed.
 */
#include "formats/model/rules.h"
#include "formats/parse/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- families ----------------------------------------------------------- */

/* What most have: keys and values of grouped heads, in layers by this rule. */
#define GQA(rule) .layers = kvt_layers_ ## rule, .attention = kvt_caches_gqa

#define PLAIN(name) { .type = name, GQA(full) }
#define WINDOW(name) { .type = name, GQA(window), \
		       .defaults = { { "num_key_value_heads", 8 } } }
#define QWEN(name, ...) { .type = name, GQA(upper_window), .defaults = { __VA_ARGS__ } }
#define GEMMA2(name) { .type = name, GQA(alternate), .no_float16 = true, \
		       .defaults = { { "head_dim", 256 }, { "num_key_value_heads", 4 }, \
				     { "sliding_window", 4096 } } }
#define GEMMA3(name) { .type = name, GQA(pattern), .no_float16 = true, \
		       .defaults = { { "head_dim", 256 }, { "num_key_value_heads", 4 }, \
				     { "sliding_window_pattern", 6 }, \
				     { "sliding_window", 4096 } } }
#define GEMMA3N(name) { .type = name, GQA(pattern), \
		        .defaults = { { "head_dim", 256 }, { "num_key_value_heads", 2 }, \
				      { "sliding_window_pattern", 5 }, \
				      { "sliding_window", 512 }, \
				      { "num_kv_shared_layers", 15 } } }
#define PATTERN4(name) { .type = name, GQA(pattern), \
			 .defaults = { { "sliding_window_pattern", 4 }, \
				       { "sliding_window", 4096 } } }
#define LLAMA4(name) { .type = name, GQA(chunk), \
		       .defaults = { { "no_rope_layer_interval", 4 }, \
				     { "head_dim", 128 }, { "num_key_value_heads", 8 } } }
#define GEMMA4(name) { .type = name, .layers = kvt_layers_pattern, \
		       .attention = kvt_caches_gemma4, .choose = kvt_choose_last_full, \
		       .defaults = { { "head_dim", 256 }, { "num_key_value_heads", 4 }, \
				     { "global_head_dim", 512 }, \
				     { "sliding_window_pattern", 6 }, \
				     { "sliding_window", 512 } } }
#define MLA(name, rule) { .type = name, .layers = rule, .attention = kvt_caches_mla, \
			  .defaults = { { "kv_lora_rank", 512 }, \
					{ "qk_rope_head_dim", 64 }, \
					{ "index_head_dim", 128 } } }
#define SPARSE(name) { .type = name, .layers = kvt_layers_sparse, \
		       .attention = kvt_caches_mla, .choose = kvt_choose_indexers, \
		       .defaults = { { "kv_lora_rank", 512 }, \
				     { "qk_rope_head_dim", 64 }, \
				     { "index_head_dim", 128 } } }
#define KIMI(name) { .type = name, .layers = kvt_layers_kda, \
		     .attention = kvt_caches_mla, .state = kvt_states_kda, \
		     .state_type = "float32", \
		     .defaults = { { "kv_lora_rank", 512 }, { "qk_rope_head_dim", 64 } } }
#define GLM5(name) { .type = name, .layers = kvt_layers_glm5, \
		     .attention = kvt_caches_glm5, .state = kvt_states_glm5, \
		     .choose = kvt_choose_sparse, .layout = "BLHNC", \
		     .state_type = "float32", \
		     .defaults = { { "kv_lora_rank", 512 }, { "index_kpool", 16 }, \
				   { "index_head_dim", 128 }, \
				   { "linear_num_heads", 64 }, \
				   { "linear_head_dim", 128 }, \
				   { "linear_conv_kernel_dim", 4 } } }
#define QWEN4(name) { .type = name, .layers = kvt_layers_interval, \
		      .attention = kvt_caches_qwen4, .state = kvt_states_qwen4, \
		      .choose = kvt_choose_sparse, .layout = "BLNHC", \
		      STATES_OF_QWEN, \
		      .defaults = { { "head_dim", 256 }, { "num_key_value_heads", 2 }, \
				    { "full_attention_interval", 4 }, \
				    { "linear_num_key_heads", 16 }, \
				    { "linear_num_value_heads", 32 }, \
				    { "linear_key_head_dim", 128 }, \
				    { "linear_value_head_dim", 128 }, \
				    { "linear_conv_kernel_dim", 4 }, { "hc_count", 4 }, \
				    { "ple_conv_kernel_size", 4 }, \
				    { "ngram_size", 3 } } }
#define M3(name) { .type = name, .layers = kvt_layers_freq, \
		   .attention = kvt_caches_minimax_m3 }
#define INKLING(name) { .type = name, .layers = kvt_layers_inkling, \
			.attention = kvt_caches_inkling, \
			.defaults = { { "sconv_kernel_size", 4 } } }
#define SHORT_CONV(name) { .type = name, GQA(full_indices), \
			   .state = kvt_states_short_conv, \
			   .defaults = { { "num_key_value_heads", 8 }, \
					 { "conv_L_cache", 3 } } }
#define LIGHTNING(name) { .type = name, GQA(type_list), .state = kvt_states_lightning, \
			  .defaults = { { "num_key_value_heads", 8 } } }
#define GDN(name, heads, ...) { .type = name, GQA(interval), .state = kvt_states_gdn, \
		    __VA_ARGS__, \
		    .defaults = { { "head_dim", 256 }, \
				  { "num_key_value_heads", heads }, \
				  { "full_attention_interval", 4 } } }

/* vLLM takes the model's type without it; but no file was published so. */
#define STATES_OF_QWEN .state_key = "mamba_ssm_dtype", .state_type = "float32", \
	.state_why = "as published files have it; vLLM takes the model's type without it"

static const struct config_family families[] = {
	PLAIN("llama"), PLAIN("granite"), WINDOW("mistral"), WINDOW("mixtral"),
	QWEN("qwen2", { "num_key_value_heads", 32 }),
	QWEN("qwen2_moe", { "num_key_value_heads", 16 }),
	QWEN("qwen3", { "num_key_value_heads", 32 }, { "head_dim", 128 }),
	QWEN("qwen3_moe", { "num_key_value_heads", 4 }),
	{ .type = "glm4_moe", GQA(full), .defaults = { { "num_key_value_heads", 8 } } },
	GEMMA2("gemma2"), GEMMA3("gemma3"), GEMMA3("gemma3_text"),
	GEMMA3N("gemma3n"), GEMMA3N("gemma3n_text"), PATTERN4("cohere2"),
	PATTERN4("olmo3"), GEMMA4("gemma4"), GEMMA4("gemma4_text"),
	GEMMA4("gemma4_unified"), GEMMA4("gemma4_unified_text"),
	{ .type = "gpt_oss", GQA(alternate),
	  .defaults = { { "head_dim", 64 }, { "num_key_value_heads", 8 },
			{ "sliding_window", 128 } } },
	LLAMA4("llama4"), LLAMA4("llama4_text"),
	MLA("deepseek_v2", kvt_layers_full), MLA("deepseek_v3", kvt_layers_full),
	MLA("kimi_k2", kvt_layers_full), SPARSE("deepseek_v32"), SPARSE("glm_moe_dsa"),
	{ .type = "hy_v4", .layers = kvt_layers_full, .attention = kvt_caches_mla,
	  .choose = kvt_choose_listed,
	  .defaults = { { "kv_lora_rank", 512 }, { "qk_rope_head_dim", 64 },
			{ "index_head_dim", 128 } } },
	{ .type = "dots3_note", .layers = kvt_layers_full,
	  .attention = kvt_caches_dots3, .choose = kvt_choose_indexers,
	  .layout = "BLHNC", .defaults = { { "index_head_dim", 128 } } },
	GLM5("glm5_next"), GLM5("glm5_next_text"), QWEN4("qwen4_exp"),
	QWEN4("qwen4_exp_text"), M3("minimax_m3_vl"), M3("minimax_m3_vl_text"),
	M3("minimax_m3_text"), KIMI("kimi_linear"), KIMI("kimi_k3"),
	{ .type = "deepseek_v41", .layers = kvt_layers_dsv41,
	  .attention = kvt_caches_dsv41, .layout = "BLHNC",
	  .auto_depends = "nvfp4_ds_mla or fp8_ds_mla_528 on SM100, fp8_ds_mla_584 "
			  "elsewhere",
	  .defaults = { { "head_dim", 512 }, { "sliding_window", 128 },
			{ "index_head_dim", 128 } } },
	INKLING("inkling_mm_model"), INKLING("inkling_model"), INKLING("inkling_text"),
	{ .type = "deepseek_v4", .layers = kvt_layers_ratios, .attention = kvt_caches_v4,
	  .layout = "BLHNC", .auto_type = "fp8_ds_mla",
	  .defaults = { { "head_dim", 512 }, { "num_key_value_heads", 1 },
			{ "sliding_window", 128 }, { "index_head_dim", 128 } } },
	{ .type = "mamba", .layers = kvt_layers_state, .state = kvt_states_mamba1 },
	{ .type = "mamba2", .layers = kvt_layers_state, .state = kvt_states_mamba2 },
	{ .type = "jamba", GQA(period),
	  .state = kvt_states_mamba1, .types_key = "layers_block_type",
	  .chunk = 2048,
	  .defaults = { { "num_key_value_heads", 8 } } },
	{ .type = "nemotron_h", GQA(letters),
	  .state = kvt_states_nemotron, .types_key = "layers_block_type",
	  .state_key = "mamba_ssm_cache_dtype", .state_type = "float32",
	  .state_why = "vLLM's default for it", .list_rules = true,
	  .chunk = 256,
	  .defaults = { { "head_dim", 128 }, { "num_key_value_heads", 8 } } },
	{ .type = "bamba", GQA(indices), .state = kvt_states_bamba,
	  .defaults = { { "num_key_value_heads", 8 } } },
	{ .type = "granitemoehybrid", GQA(state), .state = kvt_states_bamba,
	  .chunk = 256 },
	{ .type = "falcon_h1", GQA(both), .state = kvt_states_falcon,
	  .chunk = 256,
	  .defaults = { { "num_key_value_heads", 8 } } },
	GDN("qwen3_next", 2, .state_key = NULL),
	GDN("qwen3_5", 4, STATES_OF_QWEN), GDN("qwen3_5_text", 4, STATES_OF_QWEN),
	GDN("qwen3_5_moe", 2, STATES_OF_QWEN), GDN("qwen3_5_moe_text", 2, STATES_OF_QWEN),
	SHORT_CONV("lfm2"), SHORT_CONV("lfm2_moe"),
	LIGHTNING("minimax"), LIGHTNING("minimax_text_01"),
};
enum { NFAMILIES = sizeof(families) / sizeof(families[0]) };

static const struct config_family *family_find(const char *type)
{
	for (int i = 0; i < NFAMILIES; i++)
		if (!strcmp(families[i].type, type))
			return &families[i];
	return NULL;
}

static enum kvt_status find_family(struct config *c, const struct kvt_json *outer)
{
	const char *inner = NULL, *type = NULL, *of_file;
	enum kvt_status status;

	if ((status = kvt_json_string(&inner, &c->in, "model_type")) ||
	    (status = kvt_json_string(&type, outer, "model_type")))
		return status;
	of_file = inner ? inner : type;
	if (c->hints->family)
		inner = c->hints->family;
	if (!inner && !type)
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: model_type is missing; --as=FAMILY gives it",
				c->in.name);
	if (!(c->family = family_find(inner ? inner : type)))
		return kvt_fail(c->in.err, KVT_UNSUPPORTED,
				"%s: model_type '%.60s' is not known: give --as=FAMILY to use the rules of another, such as llama, or the caches with --spec",
				c->in.name, inner ? inner : type);
	snprintf(c->out->family, sizeof(c->out->family), "%s", c->family->type);
	c->told = c->hints->family && (!of_file || strcmp(of_file, c->hints->family));
	c->foreign = c->told && of_file;
	return KVT_OK;
}

/* ---- the file ----------------------------------------------------------- */

/* The text model of several; numbers of it outside must be the same. */
static enum kvt_status enter_text(struct config *c, const struct kvt_json *outer)
{
	static const char *const twice[] = { "num_hidden_layers", "num_key_value_heads",
					     "head_dim", "sliding_window" };
	enum kvt_status status = kvt_json_object(&c->in, outer, "text_config");

	if (status || !c->in.object) {
		c->in = *outer;
		return status;
	}
	for (size_t i = 0; i < sizeof(twice) / sizeof(twice[0]); i++) {
		const json_t *a = json_object_get(outer->object, twice[i]);
		const json_t *b = json_object_get(c->in.object, twice[i]);

		if (json_is_integer(a) && json_is_integer(b) && !json_equal(a, b))
			return kvt_fail(outer->err, KVT_BAD_INPUT,
					"%s: %s is %lld, but %lld in text_config",
					outer->name, twice[i],
					(long long)json_integer_value(a),
					(long long)json_integer_value(b));
	}
	return KVT_OK;
}

/* "KEY=VALUE" into the text model. */
static enum kvt_status set_fact(json_t *object, const char *text, struct kvt_error *err)
{
	const char *at = strchr(text, '=');
	char key[64];
	json_t *value;

	if (!at || at == text || at - text >= (int)sizeof(key))
		return kvt_fail(err, KVT_USAGE, "--set: '%.*s', expected KEY=VALUE",
				(int)strcspn(text, "="), text);
	if (!at[1])
		return kvt_fail(err, KVT_USAGE, "--set: %.*s is '', expected a value",
				(int)(at - text), text);
	snprintf(key, sizeof(key), "%.*s", (int)(at - text), text);
	value = kvt_json_load(at + 1, strlen(at + 1), JSON_DECODE_ANY, NULL);
	if (!value)
		value = json_string(at + 1);
	if (!value || json_object_set_new(object, key, value))
		return kvt_fail(err, KVT_USAGE, "--set: the value of %s is not text",
				key);
	return KVT_OK;
}

static enum kvt_status set_facts(json_t *root, const struct kvt_config_hints *hints,
				 struct kvt_error *err)
{
	json_t *text = json_object_get(root, "text_config");
	enum kvt_status status = KVT_OK;

	for (int i = 0; !status && i < hints->nset; i++) {
		int n = (int)strcspn(hints->set[i], "=") + 1;

		for (int j = 0; j < i; j++)
			if (!strncmp(hints->set[i], hints->set[j], (size_t)n))
				return kvt_fail(err, KVT_USAGE,
						"--set: %.*s is given twice", n - 1,
						hints->set[i]);
		status = set_fact(json_is_object(text) ? text : root, hints->set[i], err);
	}
	return status;
}

/* What layers a family's attention has a cache for. */
static unsigned kinds_of(const struct config_family *family)
{
	static const struct {
		config_step *attention;
		unsigned kinds;
	} rows[] = {
		{ kvt_caches_gqa, KIND(LAYER_FULL) | KIND(LAYER_WINDOW) |
				  KIND(LAYER_CHUNK) | KIND(LAYER_BOTH) },
		{ kvt_caches_mla, KIND(LAYER_FULL) | KIND(LAYER_SPARSE) |
				  KIND(LAYER_SHARED) },
		{ kvt_caches_v4, KIND(LAYER_WINDOW) | KIND(LAYER_C4) | KIND(LAYER_C128) },
		{ kvt_caches_gemma4, KIND(LAYER_FULL) | KIND(LAYER_WINDOW) },
		{ kvt_caches_inkling, KIND(LAYER_FULL) | KIND(LAYER_WINDOW) },
		{ kvt_caches_glm5, KIND(LAYER_SPARSE) },
		{ kvt_caches_qwen4, KIND(LAYER_SPARSE) },
		{ kvt_caches_minimax_m3, KIND(LAYER_FULL) | KIND(LAYER_SPARSE) },
		{ kvt_caches_dots3, KIND(LAYER_SPARSE) | KIND(LAYER_SHARED) |
				    KIND(LAYER_WINDOW) },
		{ kvt_caches_dsv41, KIND(LAYER_WINDOW) | KIND(LAYER_SOURCE1) |
				    KIND(LAYER_SOURCE2) },
	};
	unsigned kinds = KIND(LAYER_NONE) | (family->state ? KIND(LAYER_STATE) : 0);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].attention == family->attention)
			kinds |= rows[i].kinds;
	return kinds;
}

/* A kind of layer that this family has no cache for must not vanish. */
static enum kvt_status check_kinds(struct config *c)
{
	static const char *const words[LAYER_KINDS] = {
		[LAYER_NONE] = "other", [LAYER_FULL] = "full", [LAYER_WINDOW] = "sliding",
		[LAYER_CHUNK] = "chunked", [LAYER_STATE] = "recurrent",
		[LAYER_BOTH] = "mixed", [LAYER_SPARSE] = "sparse",
		[LAYER_C4] = "compressed", [LAYER_C128] = "heavily compressed",
		[LAYER_SHARED] = "sparse", [LAYER_SOURCE1] = "source",
		[LAYER_SOURCE2] = "source",
	};
	unsigned can = kinds_of(c->family);

	for (int k = 0; k < LAYER_KINDS; k++)
		if (c->count[k] && !(can & KIND(k)))
			return kvt_fail(c->in.err, KVT_BAD_INPUT,
					"%s: %lld %s layers, which %s has not",
					c->in.name, (long long)c->count[k], words[k],
					c->family->type);
	return KVT_OK;
}

/* Tokens of a chunk of the scan, whose ends vLLM may keep; the longer name counts. */
static enum kvt_status take_chunk(struct config *c)
{
	int64_t *chunk = &c->out->model.state_chunk;
	enum kvt_status status;

	if (!c->family->chunk)
		return KVT_OK;
	*chunk = c->family->chunk;
	if ((status = kvt_json_int(chunk, &c->in, "chunk_size", 1, 1 << 20)))
		return status;
	return kvt_json_int(chunk, &c->in, "mamba_chunk_size", 1, 1 << 20);
}

static enum kvt_status read_config(struct config *c, const struct kvt_json *outer)
{
	enum kvt_status status;

	if ((status = enter_text(c, outer)) || (status = find_family(c, outer)) ||
	    (status = kvt_config_types(c, outer)) ||
	    (status = kvt_config_check_keys(c, outer)) ||
	    (status = kvt_config_layers(c)) ||
	    (status = check_kinds(c)))
		return status;
	if (c->family->attention && (status = c->family->attention(c)))
		return status;
	if (c->count[LAYER_STATE] + c->count[LAYER_BOTH] &&
	    ((status = c->family->state(c)) || (status = take_chunk(c))))
		return status;
	c->out->model.layout = c->family->layout;
	if (!c->out->model.ngroups)
		return kvt_fail(c->in.err, KVT_BAD_INPUT, "%s: no layer caches anything",
				c->in.name);
	return KVT_OK;
}

static enum kvt_status read_root(struct config *c, json_t *root, const char *name,
				 struct kvt_error *err)
{
	struct kvt_json outer = { root, name, err };
	const json_t *groups = NULL;
	enum kvt_status status = kvt_json_array(&groups, &outer, "groups");

	if (status)
		return status;
	if (groups && !json_object_get(root, "model_type"))
		return kvt_config_list(c->out, &outer, groups, c->hints);
	if ((status = set_facts(root, c->hints, err)))
		return status;
	return read_config(c, &outer);
}

enum kvt_status kvt_model_config_parse(struct kvt_model_config *out, const char *text,
				       size_t nbytes, const char *name,
				       const struct kvt_config_hints *hints,
				       struct kvt_error *err)
{
	struct kvt_model_config config = { .block_size = 16 };
	struct config *c = calloc(1, sizeof(*c));
	json_t *root = NULL;
	enum kvt_status status;

	if (!c)
		return kvt_fail(err, KVT_SYSTEM, "out of memory");
	c->hints = hints;
	c->out = &config;
	if (!(status = kvt_json_parse_python(&root, text, nbytes, name, err)))
		status = read_root(c, root, name, err);
	json_decref(root);
	free(c);
	if (!status)
		*out = config;
	return status;
}
