/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - a config.json from its text to its caches
 *
 * Which model it is of several, by which rules it is read, then these, one after the
 * other: types, keys, layers, attention, states.
 */
#include "formats/model/rules.h"
#include "formats/parse/json.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the type -------------------------------------------------------------- */

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
		return kvt_json_bad(&c->in,
				    "model_type is missing; --as=FAMILY gives it");
	c->type = inner ? inner : type;
	if (!(c->family = kvt_config_family(c->type))) {
		if (c->hints->family)
			return kvt_json_refuse(&c->in, KVT_UNSUPPORTED,
					       "model_type '%.60s' is not known: give --as=FAMILY to use the rules of another, such as llama, or the caches with --spec",
					       c->type);
		kvt_config_infer(c);
	}
	snprintf(c->out->family, sizeof(c->out->family), "%s", c->type);
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
	enum kvt_status status = kvt_config_text(&c->in, outer);

	if (status || c->in.object == outer->object)
		return status;
	for (size_t i = 0; i < sizeof(twice) / sizeof(twice[0]); i++) {
		const json_t *a = json_object_get(outer->object, twice[i]);
		const json_t *b = json_object_get(c->in.object, twice[i]);

		if (json_is_integer(a) && json_is_integer(b) && !json_equal(a, b))
			return kvt_fail(outer->err, KVT_BAD_INPUT,
					"%s: %s is %lld, but %lld in text_config",
					outer->name, twice[i], LL(json_integer_value(a)),
					LL(json_integer_value(b)));
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
	enum kvt_status status = KVT_OK;
	struct kvt_json outer = { root, "--set", err, &status }, in;

	if (hints->nset)
		status = kvt_config_text(&in, &outer);
	for (int i = 0; !status && i < hints->nset; i++) {
		int n = (int)strcspn(hints->set[i], "=") + 1;

		for (int j = 0; j < i; j++)
			if (!strncmp(hints->set[i], hints->set[j], (size_t)n))
				return kvt_fail(err, KVT_USAGE,
						"--set: %.*s is given twice", n - 1,
						hints->set[i]);
		status = set_fact((json_t *)(uintptr_t)in.object, hints->set[i], err);
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
				  KIND(LAYER_CHUNK) | KIND(LAYER_BOTH) |
				  KIND(LAYER_BOTH_WINDOW) },
		{ kvt_caches_cca, KIND(LAYER_BOTH) | KIND(LAYER_BOTH_WINDOW) },
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
	unsigned kinds = KIND(LAYER_NONE) | KIND(LAYER_CROSS) |
			 (family->state ? KIND(LAYER_STATE) : 0);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].attention == family->attention)
			kinds |= rows[i].kinds;
	if (!family->state && family->attention != kvt_caches_cca)
		kinds &= ~(KIND(LAYER_BOTH) | KIND(LAYER_BOTH_WINDOW));
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
		[LAYER_SOURCE2] = "source", [LAYER_CROSS] = "cross",
		[LAYER_BOTH_WINDOW] = "mixed",
	};
	unsigned can = kinds_of(c->family);

	for (int k = 0; k < LAYER_KINDS; k++)
		if (c->count[k] && !(can & KIND(k)))
			return kvt_json_bad(&c->in, "%lld %s layers, which %s has not",
					    LL(c->count[k]), words[k], c->type);
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

/* What a file has of layers that draft is of no account unless somebody asks. */
static int64_t draft_layers(const struct kvt_json *in)
{
	static const char *const keys[] = {
		"num_nextn_predict_layers", "mtp_num_hidden_layers",
	};
	int64_t out = 0;

	for (int i = 0; i < 2; i++) {
		int64_t n = json_integer_value(json_object_get(in->object, keys[i]));

		if (n > 0)
			out = out && out != n ? -1 : n;
	}
	return out > CONFIG_LAYERS ? -1 : out;
}

/* A group of some layers of a kind, or of layers of its own, does not say which. */
static void number_layers(struct config *c)
{
	struct kvt_model *model = &c->out->model;

	for (int g = 0; g < model->ngroups; g++) {
		int64_t layers = 0;

		for (int64_t i = 0; i < c->nlayers; i++) {
			bool in = c->kinds[g] & KIND(c->kind[i]);

			layers += in;
			model->layer[i] |= (uint16_t)((unsigned)in << g);
		}
		if (layers != model->group[g].layers)
			return;
	}
	model->nlayers = c->nlayers;
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
	if (c->unknown)
		kvt_config_note_inferred(c);
	if (c->family->attention && (status = c->family->attention(c)))
		return status;
	if (c->family->state && c->count[LAYER_STATE] + c->count[LAYER_BOTH] +
	    c->count[LAYER_BOTH_WINDOW] &&
	    ((status = c->family->state(c)) || (status = take_chunk(c))))
		return status;
	c->out->model.layout = c->family->layout;
	c->out->draft_layers = draft_layers(&c->in);
	number_layers(c);
	if (!c->out->model.ngroups)
		return kvt_json_bad(&c->in, "no layer caches anything");
	return c->hints->held ? kvt_config_hold(c) : KVT_OK;
}

static enum kvt_status read_root(struct config *c, json_t *root, const char *name,
				 struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json outer = { root, name, err, &status };
	const json_t *groups = NULL;

	if (kvt_json_array(&groups, &outer, "groups"))
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
		return kvt_no_memory(err, NULL);
	c->hints = hints;
	c->out = &config;
	if (!(status = kvt_json_parse_python(&root, text, nbytes, name, err)))
		status = read_root(c, root, name, err);
	json_decref(c->layer);
	json_decref(root);
	free(c);
	if (!status)
		*out = config;
	return status;
}
