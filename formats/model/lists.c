/* SPDX-License-Identifier: Apache-2.0 */
/* lists.c - lists of numbers in a config.json that say what layers are */
#include "formats/model/rules.h"

#include <string.h>

#define LL(x) ((long long)(x))

/* As many numbers as there are layers; more only for layers that draft tokens. */
static enum kvt_status check_length(struct config *c, const char *key, size_t n)
{
	int64_t drafts = 1, more = (int64_t)n - c->nlayers;
	enum kvt_status status = kvt_json_int(&drafts, &c->in, "num_nextn_predict_layers",
					      0, CONFIG_LAYERS);

	if (status)
		return status;
	if (n < 1 || n > CONFIG_LAYERS || (c->nlayers && (more < 0 || more > drafts)))
		return kvt_fail(c->in.err, KVT_BAD_INPUT,
				"%s: %s has %zu layers, but num_hidden_layers is %lld",
				c->in.name, key, n, LL(c->nlayers));
	if (!c->nlayers)
		c->nlayers = (int64_t)n;
	return KVT_OK;
}

/* The list, or NULL where it is absent. */
static enum kvt_status take_list(const json_t **out, struct config *c, const char *key)
{
	enum kvt_status status = kvt_json_array(out, &c->in, key);

	return status || !*out ? status : check_length(c, key, json_array_size(*out));
}

/* ---- DeepSeek V4 -------------------------------------------------------- */

static const char v4_key[] = "compress_ratios";

/* The class's own order: two heavily compressed ones, then both in turn. */
static enum kvt_status v4_default(struct config *c)
{
	enum kvt_status status = kvt_config_need_layers(c);

	for (int64_t i = 0; !status && i < c->nlayers; i++)
		c->kind[i] = i < 2 || i % 2 == 0 ? LAYER_C128 : LAYER_C4;
	if (!status)
		kvt_config_note(c,
				"layer_types is missing: two of ratio 128, then 128 and 4 "
				"in turn, as %s has it by default", c->family->type);
	return status;
}

/* compress_ratios: 0 is a layer with nothing but a window. */
enum kvt_status kvt_layers_ratios(struct config *c)
{
	const json_t *list = NULL;
	enum kvt_status status = take_list(&list, c, v4_key);
	int64_t ratio;

	if (status || !list)
		return status ? status : v4_default(c);
	for (int64_t i = 0; !status && i < c->nlayers; i++) {
		if ((status = kvt_json_int_at(&ratio, &c->in, v4_key, list, (size_t)i, 0,
					      128)))
			return status;
		if (ratio && ratio != 4 && ratio != 128)
			return kvt_fail(c->in.err, KVT_UNSUPPORTED,
					"%s: %s: layer %lld has %lld, expected 0, 4 or "
					"128", c->in.name, v4_key, LL(i), LL(ratio));
		c->kind[i] = !ratio ? LAYER_WINDOW : ratio == 4 ? LAYER_C4 : LAYER_C128;
	}
	return status;
}

/* ---- MiniMax ------------------------------------------------------------ */

/* attn_type_list: 1 is a layer of full attention; else they alternate. */
enum kvt_status kvt_layers_type_list(struct config *c)
{
	const char key[] = "attn_type_list";
	const json_t *list = NULL;
	enum kvt_status status = take_list(&list, c, key);
	int64_t full;

	if (status || (status = kvt_config_need_layers(c)))
		return status;
	for (int64_t i = 0; i < c->nlayers; i++) {
		full = i % 2 == 0;
		if (list && (status = kvt_json_int_at(&full, &c->in, key, list, (size_t)i,
						      0, 1)))
			return status;
		c->kind[i] = full ? LAYER_FULL : LAYER_STATE;
	}
	if (!list)
		kvt_config_note(c,
				"layer_types is missing: full and linear in turn, as %s "
				"has it by default", c->family->type);
	return KVT_OK;
}

/* ---- lists of some layers ----------------------------------------------- */

/* Marks the layers of a list, whose first is 'base'; a layer is listed once. */
static enum kvt_status mark(struct config *c, const struct kvt_json *in, const char *key,
			    int64_t base, enum layer_kind kind, bool *found)
{
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, in, key);
	int64_t at;

	*found = list != NULL;
	for (size_t i = 0; !status && i < json_array_size(list); i++) {
		if ((status = kvt_json_int_at(&at, in, key, list, i, base,
					      c->nlayers - 1 + base)))
			return status;
		if (c->kind[at - base] != LAYER_KINDS)
			return kvt_fail(in->err, KVT_BAD_INPUT,
					"%s: %s: layer %lld is listed twice", in->name, key,
					LL(at));
		c->kind[at - base] = (unsigned char)kind;
	}
	return status;
}

/* What no list has. */
static void mark_rest(struct config *c, enum layer_kind kind)
{
	for (int64_t i = 0; i < c->nlayers; i++)
		if (c->kind[i] == LAYER_KINDS)
			c->kind[i] = (unsigned char)kind;
}

/* full_attn_idxs; without it every layer is full. */
enum kvt_status kvt_layers_full_indices(struct config *c)
{
	const char key[] = "full_attn_idxs";
	enum kvt_status status = kvt_config_need_layers(c);
	bool listed;

	memset(c->kind, LAYER_KINDS, (size_t)c->nlayers);
	if (status || (status = mark(c, &c->in, key, 0, LAYER_FULL, &listed)))
		return status;
	mark_rest(c, listed ? LAYER_STATE : LAYER_FULL);
	return KVT_OK;
}

/* linear_attn_config: two lists, which count layers from 1. */
enum kvt_status kvt_layers_kda(struct config *c)
{
	const char key[] = "linear_attn_config";
	enum kvt_status status = kvt_config_need_layers(c);
	struct kvt_json in;
	bool full, kda;

	if (status || (status = kvt_json_object(&in, &c->in, key)))
		return status;
	memset(c->kind, LAYER_KINDS, (size_t)c->nlayers);
	if ((status = mark(c, &in, "full_attn_layers", 1, LAYER_FULL, &full)) ||
	    (status = mark(c, &in, "kda_layers", 1, LAYER_STATE, &kda)))
		return status;
	for (int64_t i = 0; i < c->nlayers; i++)
		if (c->kind[i] == LAYER_KINDS && full == kda)
			return kvt_fail(in.err, KVT_BAD_INPUT,
					"%s: %s: layer %lld is in neither kda_layers nor "
					"full_attn_layers", in.name, key, LL(i + 1));
	mark_rest(c, full ? LAYER_STATE : LAYER_FULL);
	return KVT_OK;
}
