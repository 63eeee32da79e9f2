/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - could this backend, or a connector, use these bytes? */
#include "cli/expect/expect.h"

#include <string.h>

#include "lib/kvt/connect.h"

static void add_reason(char *out, size_t room, const char *reason)
{
	size_t used = strlen(out);

	snprintf(out + used, room - used, "%s%s", used ? ", " : "", reason);
}

/* vLLM's name of a cache of this type; "auto" is the type of the model. */
static const char *cache_dtype(const struct kvt_dtype *dtype)
{
	static const char *const names[][2] = {
		{ "float8_e4m3fn", "fp8_e4m3" }, { "float8_e5m2", "fp8_e5m2" },
		{ "bfloat16", "auto" }, { "float16", "auto" }, { "float32", "auto" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i][0], dtype->name))
			return names[i][1];
	return dtype->name;
}

/* vLLM's word for packed rows; of nvfp4 it has a second one for the same rows. */
static const char *packed_dtype(const struct kvt_content_type *type)
{
	if (!type->vllm)
		return "uint8";
	return strchr(type->vllm, ' ') ? "nvfp4" : type->vllm;
}

/* Numbers of a head, where the bytes tell. */
static int64_t head_size(const struct kvt_group *group)
{
	struct kvt_packing packing;

	if (!group->content.type)
		return group->shape.n[KVT_AXIS_D];
	packing = kvt_group_packing(group);
	return packing.dim && kvt_packing_readable(&packing, NULL) != KVT_UNSUPPORTED ?
	       packing.dim : packing.row_values;
}

bool backend_applies(const struct kvt_group *group)
{
	return group->kind == KVT_FULL_ATTENTION || group->kind == KVT_SLIDING_WINDOW ||
	       group->kind == KVT_CHUNKED_LOCAL || group->kind == KVT_RSWA ||
	       group->kind == KVT_CROSS || group->kind == KVT_MLA;
}

struct kvt_backend_config backend_config(const struct kvt_group *group)
{
	const char *cache = group->content.type ? packed_dtype(group->content.type) :
						  cache_dtype(group->dtype);

	return (struct kvt_backend_config){
		.head_size = head_size(group),
		/* of a quantised cache the type of the model is not known */
		.dtype = strcmp(cache, "auto") ? NULL : group->dtype->name,
		.cache_dtype = cache,
		.block_size = group->block_size,
		.mla = group->kind == KVT_MLA,
		/* these rows are made for attention to some of them only */
		.sparse = strstr(cache, "_ds_mla") != NULL,
		.sliding_window = group->window > 0,
	};
}

void backend_reasons(char *out, size_t room, const struct clause_key *key,
		     const char *value, const struct kvt_group *group)
{
	struct kvt_backend_config config = backend_config(group);
	const struct kvt_backend *backend;
	unsigned eras, reasons;
	char why[256];

	*out = '\0';
	backend = clause_backend(&eras, value);
	if (!backend || !backend_applies(group)) {
		snprintf(out, room, "%s is not an attention cache",
			 kvt_kind_name(group->kind));
		return;
	}
	if (!strcmp(key->name, "supports_kv_connector")) {
		if (!kvt_backend_has_connector(backend))
			add_reason(out, room,
				   kvt_backend_reason_text(KVT_BACKEND_CONNECTOR));
		return;
	}
	config.any_release = true;
	reasons = kvt_backend_check(backend, &config);
	for (int i = 0; i < KVT_NBACKEND_REASONS; i++)
		if (reasons >> i & 1)
			add_reason(out, room, kvt_backend_reason_text(i));
	if (kvt_backend_wrote(backend, &group->layout, &group->shape) & eras)
		return;
	snprintf(why, sizeof(why), "it never used %s%s",
		 kvt_layout_string(&group->layout).s,
		 strchr(value, '@') ? " at that time" : "");
	add_reason(out, room, why);
}

void connector_reasons(char *out, size_t room, const char *value,
		       const struct kvt_group *group)
{
	static const struct {
		unsigned need;
		const char *text;
	} needs[] = {
		{ KVT_NEED_BLOCKS_FIRST, "a block is not one region of a layer" },
		{ KVT_NEED_K_WITH_V, "keys and values of a block are not contiguous" },
		{ KVT_NEED_HEADS_FIRST, "heads of a block are not contiguous" },
		{ KVT_NEED_BLOCK_SIZE, "block size is not a multiple of 16" },
	};
	unsigned unmet = kvt_connector_unmet(&group->layout, &group->shape,
					     !strcmp(value, "unequal_tp"));

	*out = '\0';
	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
		if (unmet & needs[i].need)
			add_reason(out, room, needs[i].text);
}
