/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload_config.c - config.json of an offload tree, its digest, names of files
 *
 *	{"model_name": .., "dtype": "bfloat16", "blocks_per_file": 1,
 *	 "tokens_per_hash": 16, "tp_size": 1, "pp_size": 1, "pcp_size": 1, "dcp_size": 1,
 *	 "kv_cache_groups": [{"tokens_per_block": 16, "layer_names": [..]}, ..],
 *	 "inference_engine": ..}
 *
 *	until 0.25, llm-d	gpu_blocks_per_file, hash_block_size, block_size instead
 *	since 0.27		"parallel_agnostic": false, if sizes are those of ranks
 *				"replicated_layout": true, if latents are kept once
 *	since 0.28		"canonical_format": "v1-nhd", ..
 *
 * The digest in the folder's name is the first 12 hex digits of the SHA-256 of the
 * config as JSON with sorted keys and no blanks.  A key that is not known here stays in
 * the config, and so in the digest, of what is written of such a dump.  Facts: as in
 * offload.c.
 */
#include "formats/vllm/offload.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "formats/parse/json.h"
#include "lib/hash/sha256.h"

enum { MAX_BLOCKS_PER_FILE = 1 << 20, MIN_HASH = 6 };

/* ---- the config --------------------------------------------------------- */

/* Keys changed their names; both at once contradict each other. */
static void take_either(int64_t *out, const struct kvt_json *in, const char *key,
			const char *other, int64_t max)
{
	int64_t a = -1, b = -1;

	kvt_json_int(&a, in, key, 1, max);
	kvt_json_int(&b, in, other, 1, max);
	if (a >= 0 && b >= 0 && a != b)
		kvt_json_bad(in, "%s is %lld, but %s is %lld", key, LL(a), other, LL(b));
	if (a >= 0 || b >= 0)
		*out = a >= 0 ? a : b;
}

static void take_group(struct kvt_offload_group *out, const json_t *entry,
		       const struct kvt_json *in)
{
	const struct kvt_json group = kvt_json_of(in, entry);
	const char *name;

	if (!json_is_object(entry))
		kvt_json_bad(in, "kv_cache_groups has an entry that is not an object");
	take_either(&out->block_size, &group, "block_size", "tokens_per_block", 1 << 24);
	kvt_json_array(&out->layers, &group, "layer_names");
	out->nlayers = (int64_t)json_array_size(out->layers);
	if (!out->block_size || !out->nlayers)
		kvt_json_bad(in, "a group has no %s",
			     out->block_size ? "layer_names" : "block_size");
	for (int64_t i = 0; i < out->nlayers; i++)
		kvt_json_string_at(&name, &group, "layer_names", out->layers, (size_t)i);
}

static void take_groups(struct kvt_offload_config *out, const struct kvt_json *in)
{
	const json_t *list = NULL;
	size_t n;

	kvt_json_array(&list, in, "kv_cache_groups");
	n = json_array_size(list);
	if (n > KVT_MAX_GROUPS)
		kvt_json_bad(in, "has %zu groups, at most %d are supported", n,
			     KVT_MAX_GROUPS);
	for (size_t i = 0; !*in->status && i < n; i++)
		take_group(&out->group[out->ngroups++], json_array_get(list, i), in);
}

/* true, false, or as it was without the key. */
static void take_bool(bool *out, bool *said, const struct kvt_json *in, const char *key)
{
	const json_t *value = json_object_get(in->object, key);

	*said = value != NULL;
	if (value && !json_is_boolean(value))
		kvt_json_bad(in, "%s is neither true nor false", key);
	else if (value)
		*out = json_is_true(value);
}

static void take_config(struct kvt_offload_config *out, const struct kvt_json *in)
{
	const int64_t most = KVT_OFFLOAD_MOST_RANKS;
	bool said;

	out->older_keys = json_object_get(in->object, "gpu_blocks_per_file") != NULL;
	kvt_json_string(&out->model, in, "model_name");
	kvt_json_string(&out->dtype, in, "dtype");
	kvt_json_string(&out->canonical, in, "canonical_format");
	take_either(&out->blocks_per_file, in, "gpu_blocks_per_file", "blocks_per_file",
		    MAX_BLOCKS_PER_FILE);
	kvt_json_int(&out->tokens_per_hash, in, "hash_block_size", 1, INT32_MAX);
	kvt_json_int(&out->tokens_per_hash, in, "tokens_per_hash", 1, INT32_MAX);
	kvt_json_int(&out->tp_size, in, "tp_size", 1, most);
	kvt_json_int(&out->pp_size, in, "pp_size", 1, most);
	kvt_json_int(&out->pcp_size, in, "pcp_size", 1, most);
	kvt_json_int(&out->dcp_size, in, "dcp_size", 1, most);
	take_bool(&out->agnostic, &out->says_agnostic, in, "parallel_agnostic");
	take_bool(&out->replicated, &said, in, "replicated_layout");
	take_groups(out, in);
	if (!out->model || !out->blocks_per_file)
		kvt_json_bad(in, "is not the config of an offload tree: %s is missing",
			     out->model ? "blocks_per_file" : "model_name");
	if (out->pcp_size > 1)
		kvt_json_refuse(in, KVT_UNSUPPORTED,
				"pcp_size is %lld; it is not known how its ranks share a block",
				LL(out->pcp_size));
}

enum kvt_status kvt_offload_parse(struct kvt_offload_config *out, const char *text,
				  size_t nbytes, const char *name, struct kvt_error *err)
{
	enum kvt_status status = KVT_OK;
	struct kvt_json in = { NULL, name, err, &status };

	*out = (struct kvt_offload_config){ .tp_size = 1, .pp_size = 1, .pcp_size = 1,
					    .dcp_size = 1 };
	if ((status = kvt_json_parse(&out->json, text, nbytes, name, err)))
		return status;
	in.object = out->json;
	take_config(out, &in);
	if (status)
		kvt_offload_free(out);
	return status;
}

void kvt_offload_free(struct kvt_offload_config *config)
{
	json_decref(config->json);
	config->json = NULL;
}

/* ---- the digest --------------------------------------------------------- */

char *kvt_offload_text(const json_t *config, size_t flags)
{
	char *text = kvt_json_dump(config, flags | JSON_ENSURE_ASCII);

	for (char *c = text; c && *c; c++) {
		if (*c != '\\')
			continue;
		c++;
		for (int i = 0; *c == 'u' && i < 4 && c[i + 1]; i++)
			c[i + 1] = (char)tolower((unsigned char)c[i + 1]);
	}
	return text;
}

bool kvt_offload_digest(char out[13], const json_t *config)
{
	char *text = kvt_offload_text(config, JSON_SORT_KEYS | JSON_COMPACT);
	struct sha256_text hash;
	struct sha256 sum;

	if (!text)
		return false;
	kvt_sha256_start(&sum);
	kvt_sha256_add(&sum, text, strlen(text));
	hash = kvt_sha256_end(&sum);
	free(text);
	memcpy(out, hash.s, 12);
	out[12] = '\0';
	return true;
}

/* ---- names -------------------------------------------------------------- */

bool kvt_offload_name(struct kvt_name_part *hash, int *group, const char *name)
{
	const char *file, *p;
	size_t n;

	/* the lengths of all parts but the hash and the group are known */
	if (strlen(name) < 10 || name[3] != '/' || strncmp(name + 6, "_g", 2))
		return false;
	p = name + 8;
	*group = 0;
	while (isdigit((unsigned char)*p) && p - name < 10)
		*group = *group * 10 + (*p++ - '0');
	if (p == name + 8 || (name[8] == '0' && p > name + 9) || *p != '/')
		return false;
	file = p + 1;
	n = strspn(file, "0123456789abcdef");
	*hash = (struct kvt_name_part){ file, n };
	return n >= MIN_HASH && !strcmp(file + n, ".bin") && !strncmp(name, file, 3) &&
	       !strncmp(name + 4, file + 3, 2);
}
