/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - a model's caches where a file lists them, as kvtool size --json does
 *
 *	{"groups": [{"name": "full", "spec": "gqa:layers=80,heads=8,head-dim=128"}, ..],
 *	 "layers": 80, "layout": "LBNHC", "block_size": 16, "state_chunk": ..,
 *	 "family": "llama", "dtype": "bfloat16", "cache_dtype": "fp8_e4m3", "notes": [..]}
 *
 * All but "groups" may be missing.  Without "layers" the model has as many as the groups
 * have together; a group with more than the model has is refused.
 */
#include "formats/model/rules.h"

#include <stdio.h>
#include <string.h>

#include "lib/kvt/choice.h"

static enum kvt_status take_group(struct kvt_model_group *out, const struct kvt_json *in,
				  size_t i)
{
	const char *name = NULL, *spec = NULL;
	struct kvt_model_group g;
	struct kvt_error why = { "" };
	enum kvt_status status;

	if ((status = kvt_json_string(&name, in, "name")) ||
	    (status = kvt_json_string(&spec, in, "spec")))
		return status;
	if (!name || !*name || strlen(name) >= sizeof(g.name) || !spec)
		return kvt_json_bad(in,
				    "groups[%zu] needs a name of at most %zu characters and a spec",
				    i, sizeof(g.name) - 1);
	if (kvt_model_group_parse(&g, spec, &why))
		return kvt_json_bad(in, "groups[%zu]: %.200s", i, why.text);
	if (g.layers < 1 || g.layers > CONFIG_LAYERS)
		return kvt_json_bad(in, "groups[%zu] has %lld layers, expected 1 to %d",
				    i, LL(g.layers), CONFIG_LAYERS);
	snprintf(g.name, sizeof(g.name), "%s", name);
	*out = g;
	return KVT_OK;
}

static enum kvt_status take_groups(struct kvt_model_config *out,
				   const struct kvt_json *in, const json_t *groups)
{
	size_t n = json_array_size(groups);
	enum kvt_status status = KVT_OK;

	if (n < 1 || n > KVT_MODEL_GROUPS)
		return kvt_json_bad(in, "groups has %zu caches, expected 1 to %d", n,
				    KVT_MODEL_GROUPS);
	for (size_t i = 0; !status && i < n; i++) {
		struct kvt_json object = kvt_json_of(in, json_array_get(groups, i));

		if (!json_is_object(object.object))
			return kvt_json_bad(in, "groups[%zu] is not an object", i);
		status = take_group(&out->model.group[i], &object, i);
		out->layers += status ? 0 : out->model.group[i].layers;
	}
	out->model.ngroups = (int)n;
	return status;
}

/* A layer may have several caches, a cache no layers that there are not. */
static enum kvt_status check_layers(const struct kvt_model_config *c,
				    const struct kvt_json *in)
{
	for (int i = 0; i < c->model.ngroups; i++)
		if (c->model.group[i].layers > c->layers)
			return kvt_json_bad(in,
					    "groups[%d] has %lld layers, the model has %lld",
					    i, LL(c->model.group[i].layers),
					    LL(c->layers));
	return KVT_OK;
}

/* The order of a pool, by vLLM's name for it. */
static enum kvt_status take_layout(struct kvt_model_config *out,
				   const struct kvt_json *in)
{
	const char *name = NULL;
	enum kvt_kv_layout layout;
	enum kvt_status status = kvt_json_string(&name, in, "layout");
	struct kvt_error why;

	if (status || !name)
		return status;
	if (kvt_kv_layout_parse(&layout, name, &why))
		return kvt_json_bad(in, "layout: %.200s", why.text);
	out->model.layout = kvt_kv_layout_name(layout);
	return KVT_OK;
}

/* What is to be known of it, as it was noted once. */
static enum kvt_status take_notes(struct kvt_model_config *out, const struct kvt_json *in)
{
	const char key[] = "notes", *text;
	const json_t *list = NULL;
	enum kvt_status status = kvt_json_array(&list, in, key);

	for (size_t i = 0; !status && i < json_array_size(list); i++)
		if (!(status = kvt_json_string_at(&text, in, key, list, i)) &&
		    out->nnotes < KVT_CONFIG_NOTES)
			snprintf(out->note[out->nnotes++], sizeof(out->note[0]), "%s",
				 text);
	return status;
}

enum kvt_status kvt_config_list(struct kvt_model_config *out, const struct kvt_json *in,
				const json_t *groups,
				const struct kvt_config_hints *hints)
{
	const char *dtype = NULL, *family = NULL, *cached = NULL;
	enum kvt_status status;

	if (hints->held)
		return kvt_json_refuse(in, KVT_UNSUPPORTED,
				       "is a list of caches of vLLM; --engine=transformers needs the model's config.json");
	if (hints->family || hints->nset || hints->ssm_dtype)
		return kvt_json_refuse(in, KVT_USAGE,
				       "is a list of caches, not a config.json; leave out --as, --set and --ssm-dtype");
	if ((status = take_groups(out, in, groups)) ||
	    (status = kvt_json_int(&out->layers, in, "layers", 1, CONFIG_LAYERS)) ||
	    (status = check_layers(out, in)) || (status = take_layout(out, in)) ||
	    (status = take_notes(out, in)) ||
	    (status = kvt_json_int(&out->block_size, in, "block_size", 1, 1 << 20)) ||
	    (status = kvt_json_int(&out->model.state_chunk, in, "state_chunk", 1,
				   1 << 20)) ||
	    (status = kvt_json_string(&family, in, "family")) ||
	    (status = kvt_json_string(&cached, in, "cache_dtype")) ||
	    (status = kvt_json_string(&dtype, in, "dtype")))
		return status;
	if (dtype && !(out->dtype = kvt_dtype_find(dtype)))
		return kvt_json_bad(in, "dtype is '%.40s', which is not an element type",
				    dtype);
	if (cached && strlen(cached) >= sizeof(out->cache_dtype))
		return kvt_json_bad(in,
				    "cache_dtype is '%.40s', which is not a cache type",
				    cached);
	if (cached || out->dtype)
		kvt_config_set_auto(out, cached ? cached :
				    kvt_config_run_type(out->dtype));
	snprintf(out->family, sizeof(out->family), "%.60s", family ? family : "");
	return KVT_OK;
}
