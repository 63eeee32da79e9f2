/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variants.c - which layers have keys and values of heads, whatever the family
 *
 * A pattern of windows, layers that use the cache of another, layers that look at an
 * encoder: each is a key of its own, and no family's.
 */
#include "formats/model/rules.h"

#include <string.h>

/* hybrid_layer_pattern: 1 is a layer with a window. */
static enum kvt_status windows(struct config *c, bool listed)
{
	static const char key[] = "hybrid_layer_pattern";
	const json_t *list = NULL;
	int64_t window;
	enum kvt_status status = kvt_config_used_list(&list, c, key);

	for (int64_t i = 0; !status && list && i < c->nlayers; i++) {
		unsigned char kind;

		if ((status = kvt_json_int_at(&window, &c->in, key, list, (size_t)i, 0,
					      1)))
			return status;
		kind = window ? LAYER_WINDOW : LAYER_FULL;
		if (listed && c->kind[i] != kind)
			return kvt_json_bad(&c->in,
					    "layer_types and %s contradict each other at layer %lld",
					    key, LL(i));
		c->kind[i] = kind;
	}
	return status;
}

/* use_cla: of so many layers the first has a cache, which the others use. */
static enum kvt_status shared(struct config *c)
{
	bool used = false;
	int64_t factor;
	enum kvt_status status = kvt_config_flag(&used, c, "use_cla");

	if (status || !used || (status = kvt_config_need(&factor, c, "cla_share_factor")))
		return status;
	for (int64_t i = 0; i < c->nlayers; i++)
		if (i % factor)
			c->kind[i] = LAYER_NONE;
	kvt_config_note(c, "use_cla: one of %lld layers has a cache, for all of them",
			LL(factor));
	return KVT_OK;
}

/* Layers that look at the tokens of an encoder only. */
static enum kvt_status crossed(struct config *c)
{
	static const char key[] = "cross_attention_layers";
	const json_t *list = NULL;
	int64_t at;
	enum kvt_status status = kvt_json_array(&list, &c->in, key);

	for (size_t i = 0; !status && i < json_array_size(list); i++) {
		status = kvt_json_int_at(&at, &c->in, key, list, i, 0, c->nlayers - 1);
		if (!status)
			c->kind[at] = LAYER_CROSS;
	}
	if (!status && json_array_size(list))
		kvt_config_note(c,
			"%zu layers of cross attention are not counted: they keep the tokens of an encoder",
				json_array_size(list));
	return status;
}

/* attn_type_list of a family that does not read it: 0 is a layer that it has not. */
static enum kvt_status typed(struct config *c)
{
	static const char key[] = "attn_type_list";
	const json_t *list = NULL;
	int64_t full;
	enum kvt_status status = kvt_config_used_list(&list, c, key);

	for (int64_t i = 0; !status && list && i < c->nlayers; i++) {
		status = kvt_json_int_at(&full, &c->in, key, list, (size_t)i, 0, 1);
		if (!status && !full)
			c->kind[i] = LAYER_STATE;
	}
	return status;
}

enum kvt_status kvt_config_variants(struct config *c, bool listed)
{
	enum kvt_status status;

	if (c->family->attention != kvt_caches_gqa)
		return KVT_OK;
	if ((status = windows(c, listed)) || (status = shared(c)) ||
	    (status = crossed(c)) || c->family->state)
		return status;
	return typed(c);
}
