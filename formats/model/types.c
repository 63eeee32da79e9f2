/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.c - of which types caches and recurrent states are, where nobody says
 *
 * As vLLM's "auto" has it: a model runs in bfloat16 or float16, whatever its weights are,
 * and so do its caches and states, unless its class, or the file of who quantised it,
 * says otherwise.  Every case but the plain one leaves a note.
 *
 * Facts: as executed by vLLM 0.22.1, 0.26.0 and 0.32.0 on random configs with types and
 * schemes of quantisation (tests/engines).
 */
#include "formats/model/rules.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the type that a model runs in --------------------------------------- */

static enum kvt_status find_type(const struct kvt_dtype **out, struct config *c,
				 const struct kvt_json *outer)
{
	const struct kvt_json *in[] = { outer, &c->in };
	static const char *const keys[] = { "dtype", "torch_dtype" };
	const char *name = NULL;
	enum kvt_status status;

	for (int i = 0; i < 4 && !name; i++)
		if ((status = kvt_json_string(&name, in[i / 2], keys[i % 2])))
			return status;
	if (name && strcmp(name, "auto") && !(*out = kvt_dtype_find(name)))
		return kvt_json_bad(&c->in,
				    "torch_dtype is '%.40s', which is not an element type",
				    name);
	return KVT_OK;
}

void kvt_config_set_auto(struct kvt_model_config *out, const char *cache_dtype)
{
	snprintf(out->cache_dtype, sizeof(out->cache_dtype), "%s", cache_dtype);
}

const char *kvt_config_run_type(const struct kvt_dtype *dtype)
{
	return strcmp(dtype->name, "float16") ? "bfloat16" : dtype->name;
}

/* What auto is of a model whose file has no cache type of its own. */
static void take_plain(struct config *c)
{
	struct kvt_model_config *out = c->out;
	const struct config_family *family = c->family;

	if (family->auto_depends) {
		snprintf(out->no_auto, sizeof(out->no_auto), "auto of %s is %s",
			 c->type, family->auto_depends);
		return;
	}
	if (!out->dtype && !family->auto_type)
		return;
	kvt_config_set_auto(out, family->auto_type ? family->auto_type :
				 family->no_float16 ? "bfloat16" :
				 kvt_config_run_type(out->dtype));
	if (family->auto_type)
		kvt_config_note(c, "auto is %s, which vLLM takes for %s",
				out->cache_dtype, c->type);
	else if (strcmp(out->cache_dtype, out->dtype->name))
		kvt_config_note(c, "auto is %s, in which vLLM runs %s of %s",
				out->cache_dtype, c->type, out->dtype->name);
}

/* ---- what was quantised -------------------------------------------------- */

/* As Python sees it: an empty object or string is as good as none. */
static const json_t *said(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_object(value))
		return json_object_size(value) ? value : NULL;
	return json_is_string(value) && json_string_length(value) ? value : NULL;
}

/* "modelopt", in small letters; "": none. */
static void method_of(char out[static 32], const json_t *quantised)
{
	const char *name = json_string_value(said(quantised, "quant_method"));
	const json_t *producer = json_object_get(quantised, "producer");

	if (json_is_string(json_object_get(producer, "name")))
		name = json_string_value(json_object_get(producer, "name"));
	snprintf(out, 32, "%s", name ? name : "");
	for (; *out; out++)
		*out = *out == '_' ? '-' : (char)tolower((unsigned char)*out);
}

static bool is_float_of(const json_t *scheme, int bits)
{
	const char *type = json_string_value(json_object_get(scheme, "type"));

	return type && !strcmp(type, "float") &&
	       json_integer_value(json_object_get(scheme, "num_bits")) == bits;
}

/* A scheme, or a word for it; NULL: one that vLLM does not know, and sets aside. */
static const char *modelopt_type(const json_t *scheme)
{
	const char *word = json_string_value(scheme);

	if (word)
		return !strcasecmp(word, "fp8") ? "fp8_e4m3" :
		       !strcasecmp(word, "nvfp4") ? "nvfp4" : NULL;
	if (is_float_of(scheme, 8) && json_is_false(json_object_get(scheme, "dynamic")))
		return "fp8_e4m3";
	return is_float_of(scheme, 4) ? "nvfp4" : NULL;
}

static void take_modelopt(struct config *c, const json_t *quantised)
{
	static const char *const keys[] = { "kv_cache_scheme", "kv_cache_quant_algo" };
	const json_t *inner = json_object_get(quantised, "quantization");
	const json_t *in[] = { json_is_object(inner) ? inner : quantised, quantised };
	const json_t *scheme = NULL;
	const char *type;
	int i = 0;

	for (; i < 4 && !scheme; i++)
		scheme = said(in[i % 2], keys[i / 2]);
	if (!scheme)
		return;
	if (!(type = modelopt_type(scheme))) {
		kvt_config_note(c, "%s of ModelOpt is set aside: vLLM does not know it",
				keys[(i - 1) / 2]);
		return;
	}
	kvt_config_set_auto(c->out, type);
	kvt_config_note(c, "auto is %s, by %s of quantization_config (ModelOpt)", type,
			keys[(i - 1) / 2]);
}

static void take_compressed(struct config *c, const json_t *quantised)
{
	const json_t *scheme = json_object_get(quantised, "kv_cache_scheme");

	if (!json_is_object(scheme))
		return;
	if (c->family->attention != kvt_caches_gqa &&
	    c->family->attention != kvt_caches_gemma4 &&
	    c->family->attention != kvt_caches_minimax_m3) {
		kvt_config_note(c, "kv_cache_scheme is set aside, as vLLM does with %s",
				c->type);
		return;
	}
	kvt_config_set_auto(c->out, is_float_of(scheme, 8) ? "fp8" : "");
	if (c->out->cache_dtype[0])
		kvt_config_note(c,
			"auto is fp8, by kv_cache_scheme of quantization_config (compressed-tensors)");
	else
		snprintf(c->out->no_auto, sizeof(c->out->no_auto),
			 "kv_cache_scheme is none of 8 bits and type float, and vLLM refuses it");
}

/*
 * ModelOpt's scheme is looked for in the outer file alone, that of compressed-tensors
 * under another name, too.
 */
static void take_quantised(struct config *c, const struct kvt_json *outer)
{
	static const char key[] = "quantization_config";
	const json_t *of_outer = json_object_get(outer->object, key);
	const json_t *quantised = of_outer;
	char method[32];

	if (!json_is_object(quantised))
		quantised = json_object_get(c->in.object, key);
	if (!json_is_object(quantised))
		quantised = json_object_get(outer->object, "compression_config");
	method_of(method, quantised);
	if (!strncmp(method, "modelopt", 8) && quantised == of_outer)
		take_modelopt(c, quantised);
	else if (!strcmp(method, "compressed-tensors"))
		take_compressed(c, quantised);
}

enum kvt_status kvt_config_types(struct config *c, const struct kvt_json *outer)
{
	enum kvt_status status = find_type(&c->out->dtype, c, outer);

	if (status || c->hints->held)
		return status;
	take_plain(c);
	if (!c->family->auto_type && !c->family->auto_depends)
		take_quantised(c, outer);
	return KVT_OK;
}

/* ---- recurrent states ---------------------------------------------------- */

static enum kvt_status elem_of(int64_t *out, struct config *c, const char *name,
			       const char *key)
{
	const struct kvt_dtype *dtype = kvt_dtype_find(name);

	if (!dtype && strcmp(name, "auto"))
		return kvt_json_bad(&c->in, "%s is '%.40s', which is not an element type",
				    key, name);
	*out = dtype ? dtype->elem : CONFIG_RUN_ELEM;
	return KVT_OK;
}

/* Words for their type that the class does not read must not seem to count. */
static void note_unread(struct config *c)
{
	static const char *const keys[] = { "mamba_ssm_dtype", "mamba_ssm_cache_dtype" };
	const char *reads = c->family->state_key;

	for (int i = 0; i < 2; i++)
		if (json_is_string(json_object_get(c->in.object, keys[i])) &&
		    (!reads || strcmp(reads, keys[i])))
			kvt_config_note(c,
				"%s is set aside: vLLM does not read it of %s; --ssm-dtype gives it", keys[i],
					c->type);
}

/* Kimi delta attention has no others, and float32 where the choice is left to it. */
static enum kvt_status told_elem(int64_t *out, struct config *c)
{
	const char *told = c->hints->ssm_dtype, *type = c->family->state_type;

	if (c->family->state_key || !type)
		return elem_of(out, c, told, "--ssm-dtype");
	if (strcmp(told, "auto") && strcmp(told, type) && strcmp(told, "bfloat16"))
		return kvt_json_bad(&c->in,
				    "--ssm-dtype is '%.40s', expected auto, float32 or bfloat16 for %s",
				    told, c->type);
	return elem_of(out, c, strcmp(told, "auto") ? told : type, "--ssm-dtype");
}

enum kvt_status kvt_config_state_elem(int64_t *out, struct config *c)
{
	const char *name = NULL, *key = c->family->state_key;
	enum kvt_status status;

	if (c->hints->held) {
		*out = CONFIG_RUN_ELEM;
		return KVT_OK;
	}
	if (c->hints->ssm_dtype)
		return told_elem(out, c);
	if (key && (status = kvt_json_string(&name, &c->in, key)))
		return status;
	note_unread(c);
	if (name)
		return elem_of(out, c, name, key);
	name = c->family->state_type ? c->family->state_type : "auto";
	if (key)
		kvt_config_note(c, "%s is missing: %s, %s", key, name,
				c->family->state_why);
	else if (!c->family->state_type)
		kvt_config_note(c,
			"recurrent states are of the model's type, as vLLM has them of %s; --ssm-dtype gives another",
				c->type);
	return elem_of(out, c, name, "the type of states");
}
