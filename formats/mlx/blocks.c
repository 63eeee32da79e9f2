/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.c - what the metadata of files of mlx-vlm and oMLX say of their blocks
 *
 *	shard	hashes of its blocks in the order of its arrays, and of each its
 *		parent and tokens; a block need not follow the one before it there
 *	exact	one cache: hash and tokens
 *	oMLX	one block: its hash, and how many tokens it has; neither which they are
 *		nor what it follows
 *
 * A hash is a signed number of 64 bits, or hexadecimal digits.  Names of files follow
 * from hashes, so a file with other ones was changed or renamed.  Facts: mlx-vlm 0.7.10,
 * apc.py; oMLX of 2026-08, paged_ssd_cache.py.
 */
#include "formats/mlx/mlx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/parse/json.h"
#include "lib/hash/sha256.h"
#include "lib/base/little_endian.h"

enum { MOST_TOKENS = 1 << 30, MOST_SIZE = 1 << 24, MOST_LAYERS = 1 << 16,
       NAME_DIGITS = 32 };

struct source {
	const struct kvt_tensors *tensors;
	const char *path;
	struct kvt_error *err;
};

/* ---- kinds --------------------------------------------------------------- */

enum kvt_mlx_kind kvt_mlx_kind_of(const struct kvt_tensors *t)
{
	static const struct {
		const char *layout;
		enum kvt_mlx_kind kind;
	} layouts[] = {
		{ "layer_major_v1", KVT_MLX_SHARD }, { "layer_major_v2", KVT_MLX_SHARD },
		{ "token_major_v2", KVT_MLX_SHARD }, { "exact_cache_v1", KVT_MLX_EXACT },
	};
	const char *layout = kvt_tensors_note(t, "layout");

	for (size_t i = 0; layout && i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (!strcmp(layout, layouts[i].layout))
			return layouts[i].kind;
	return kvt_tensors_note(t, "block_hash") && kvt_tensors_note(t, "token_count") ?
	       KVT_MLX_BLOCK : KVT_MLX_NKINDS;
}

/* ---- texts and numbers --------------------------------------------------- */

static enum kvt_status take_number(int64_t *out, const struct source *s, const char *key,
				   int64_t min, int64_t max)
{
	const char *text = kvt_tensors_note(s->tensors, key);
	size_t n = text ? strspn(text, "0123456789") : 0;

	*out = n && n < 19 && !text[n] ? strtoll(text, NULL, 10) : -1;
	if (*out >= min && *out <= max)
		return KVT_OK;
	return kvt_fail(s->err, KVT_BAD_INPUT,
			"%s: %s in its metadata is %.40s, expected %lld to %lld", s->path,
			key, text ? text : "missing", LL(min), LL(max));
}

/* The number at *at, up to a comma or the end; moves behind it. */
static bool next_number(int64_t *out, const char **at)
{
	const char *digits = *at + (**at == '-');
	char *end;

	if (*digits < '0' || *digits > '9')
		return false;
	errno = 0;
	*out = strtoll(*at, &end, 10);
	if (errno || (*end && *end != ','))
		return false;
	*at = *end ? end + 1 : end;
	/* nothing follows a last comma */
	return !*end || *(end + 1);
}

static int64_t count_numbers(const char *list)
{
	int64_t n = list && *list;

	for (; list && *list; list++)
		n += *list == ',';
	return n;
}

static char *hash_text(int64_t hash)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", LL(hash));
	return strdup(text);
}

/* ---- names --------------------------------------------------------------- */

/* KIND_ and so many digits are the beginning of the digest of the hashes. */
static enum kvt_status check_name(const struct source *s, const char *kind,
				  const int64_t *hash, int64_t n)
{
	const char *name = kvt_path_base(s->path), *digits = name + strlen(kind);
	struct sha256_text text;
	struct sha256 sum;

	if (strncmp(name, kind, strlen(kind)) ||
	    strspn(digits, "0123456789abcdef") != NAME_DIGITS ||
	    strcmp(digits + NAME_DIGITS, ".safetensors"))
		return KVT_OK;
	kvt_sha256_start(&sum);
	for (int64_t i = 0; i < n; i++) {
		uint8_t bytes[8];

		kvt_put_le(bytes, (uint64_t)hash[i], 8);
		kvt_sha256_add(&sum, bytes, sizeof(bytes));
	}
	text = kvt_sha256_end(&sum);
	if (!strncmp(text.s, digits, NAME_DIGITS))
		return KVT_OK;
	return kvt_fail(s->err, KVT_BAD_INPUT,
			"%s: its hashes make the name %s%.32s: the file was changed or renamed",
			s->path, kind, text.s);
}

/* ---- shards -------------------------------------------------------------- */

/* Ids below 0 stand for no token of a vocabulary: then none is known. */
static enum kvt_status take_ids(struct kvt_mlx_block *out, const struct source *s,
				const struct kvt_json *meta)
{
	const json_t *list = NULL;
	enum kvt_status status;
	bool known = true;
	int64_t id;

	if ((status = kvt_json_array(&list, meta, "token_ids")) || !list)
		return status;
	if ((int64_t)json_array_size(list) != out->tokens)
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: %s has %zu token_ids, expected %lld", s->path,
				meta->name, json_array_size(list), LL(out->tokens));
	if (!(out->ids = calloc((size_t)out->tokens, sizeof(*out->ids))))
		return kvt_no_memory(s->err, s->path);
	for (size_t i = 0; i < json_array_size(list); i++) {
		id = 0;
		if ((status = kvt_json_int_at(&id, meta, "token_ids", list, i, INT32_MIN,
					      INT32_MAX)))
			return status;
		known &= id >= 0;
		out->ids[i] = (int32_t)id;
	}
	if (!known) {
		free(out->ids);
		out->ids = NULL;
	}
	return KVT_OK;
}

/* bN_meta: JSON with the hash again, that of the parent, and the tokens. */
static enum kvt_status take_meta(struct kvt_mlx_block *out, const struct source *s,
				 int64_t i, int64_t hash)
{
	int64_t here = 0, parent = 0;
	char key[32], name[512];
	enum kvt_status status;
	const char *text;
	json_t *json;

	snprintf(key, sizeof(key), "b%lld_meta", LL(i));
	snprintf(name, sizeof(name), "%.400s: %s", s->path, key);
	if (!(text = kvt_tensors_note(s->tensors, key)))
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: its metadata have no %s, so nothing says what block %lld follows",
				s->path, key, LL(i));
	if ((status = kvt_json_parse(&json, text, strlen(text), name, s->err)))
		return status;
	if (!json_object_get(json, "parent_hash")) {
		status = kvt_fail(s->err, KVT_BAD_INPUT, "%s has no parent_hash", name);
	} else {
		const struct kvt_json meta = { json, name, s->err, &status };

		here = hash;
		(void)((status = kvt_json_int(&here, &meta, "block_hash", INT64_MIN,
					      INT64_MAX)) ||
		       (status = kvt_json_int(&parent, &meta, "parent_hash", INT64_MIN,
					      INT64_MAX)) ||
		       (status = take_ids(out, s, &meta)));
	}
	json_decref(json);
	if (status)
		return status;
	if (here != hash)
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: block %lld is %lld in %s, but %lld in block_hashes",
				s->path, LL(i), LL(here), key, LL(hash));
	out->parent = parent ? hash_text(parent) : strdup("");
	return out->parent ? KVT_OK : kvt_no_memory(s->err, s->path);
}

static enum kvt_status take_shard_block(struct kvt_mlx_file *out, const struct source *s,
					const char **at, int64_t *hash, int64_t size)
{
	int64_t i = out->count;
	struct kvt_mlx_block *block = &out->block[i];

	if (!next_number(&hash[i], at))
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: block_hashes in its metadata are not numbers with commas between them: %.40s",
				s->path, *at);
	out->count++;
	block->tokens = size;
	if (__builtin_mul_overflow(i, size, &block->slot))
		return kvt_fail(s->err, KVT_BAD_INPUT, "%s: has more than 2^63 slots",
				s->path);
	if (!(block->id = hash_text(hash[i])))
		return kvt_no_memory(s->err, s->path);
	return take_meta(block, s, i, hash[i]);
}

static enum kvt_status take_shard(struct kvt_mlx_file *out, const struct source *s)
{
	const char *list = kvt_tensors_note(s->tensors, "block_hashes");
	int64_t n = count_numbers(list), size, *hash;
	enum kvt_status status;

	if ((status = take_number(&size, s, "block_size", 1, MOST_SIZE)))
		return status;
	if (!n)
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: its metadata name no block_hashes", s->path);
	hash = calloc((size_t)n, sizeof(*hash));
	out->block = calloc((size_t)n, sizeof(*out->block));
	if (!hash || !out->block)
		status = kvt_no_memory(s->err, s->path);
	while (!status && out->count < n)
		status = take_shard_block(out, s, &list, hash, size);
	if (!status)
		status = check_name(s, "shard_", hash, n);
	free(hash);
	return status;
}

/* ---- whole caches -------------------------------------------------------- */

/* As many as the cache has tokens, or none are taken. */
static enum kvt_status take_exact_ids(struct kvt_mlx_block *block, const struct source *s)
{
	const char *at = kvt_tensors_note(s->tensors, "token_ids");
	int64_t n = count_numbers(at), id;

	if (n != block->tokens || !n)
		return KVT_OK;
	if (!(block->ids = calloc((size_t)n, sizeof(*block->ids))))
		return kvt_no_memory(s->err, s->path);
	for (int64_t i = 0; i < n; i++) {
		if (!next_number(&id, &at) || id < INT32_MIN || id > INT32_MAX)
			return kvt_fail(s->err, KVT_BAD_INPUT,
					"%s: token_ids in its metadata are not numbers with commas between them: %.40s",
					s->path, at);
		if (id < 0) {
			free(block->ids);
			block->ids = NULL;
			return KVT_OK;
		}
		block->ids[i] = (int32_t)id;
	}
	return KVT_OK;
}

/* Is every entry a cache that has all tokens in order, and as many as the first? */
static bool is_plain(const struct source *s, int64_t entries)
{
	const char *first = kvt_tensors_note(s->tensors, "c0_offset");
	bool plain = first && strcmp(first, "0") != 0;
	char key[40];

	for (int64_t i = 0; plain && i < entries; i++) {
		const char *kind, *offset;

		snprintf(key, sizeof(key), "c%lld_kind", LL(i));
		kind = kvt_tensors_note(s->tensors, key);
		snprintf(key, sizeof(key), "c%lld_offset", LL(i));
		offset = kvt_tensors_note(s->tensors, key);
		plain = kind && !strcmp(kind, "kv") && offset && !strcmp(offset, first);
	}
	return plain;
}

/* Its name is that of the file: hashes of caches and of blocks are not one kind. */
static enum kvt_status take_exact(struct kvt_mlx_file *out, const struct source *s)
{
	const char *text = kvt_tensors_note(s->tensors, "cache_hash"), *at = text;
	const char *base = kvt_path_base(s->path), *end = strstr(base, ".safetensors");
	struct kvt_mlx_block *block;
	enum kvt_status status;
	int64_t hash, entries;

	if (!text || !next_number(&hash, &at) || *at)
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: cache_hash in its metadata is %.40s, expected a number",
				s->path, text ? text : "missing");
	if ((status = check_name(s, "exact_", &hash, 1)) ||
	    (status = take_number(&entries, s, "num_entries", 1, MOST_LAYERS)) ||
	    !is_plain(s, entries) ||
	    (status = take_number(&hash, s, "c0_offset", 1, MOST_TOKENS)))
		return status;
	if (!(block = out->block = calloc(1, sizeof(*block))))
		return kvt_no_memory(s->err, s->path);
	out->count = 1;
	block->tokens = hash;
	block->id = strndup(base, end ? (size_t)(end - base) : strlen(base));
	block->parent = strdup("");
	return block->id && block->parent ? take_exact_ids(block, s) :
	       kvt_no_memory(s->err, s->path);
}

/* ---- oMLX ---------------------------------------------------------------- */

static enum kvt_status take_block(struct kvt_mlx_file *out, const struct source *s)
{
	const char *hash = kvt_tensors_note(s->tensors, "block_hash");
	const char *base = kvt_path_base(s->path);
	size_t n = strlen(hash), digits = strspn(base, "0123456789abcdef");
	struct kvt_mlx_block *block;
	enum kvt_status status;

	if (!n || strspn(hash, "0123456789abcdef") != n)
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: block_hash in its metadata is %.80s, expected hexadecimal digits",
				s->path, hash);
	if (digits >= NAME_DIGITS && !strcmp(base + digits, ".safetensors") &&
	    (digits != n || strncmp(base, hash, n)))
		return kvt_fail(s->err, KVT_BAD_INPUT,
				"%s: block_hash in its metadata is %.80s: the file was changed or renamed",
				s->path, hash);
	if (!(block = out->block = calloc(1, sizeof(*block))))
		return kvt_no_memory(s->err, s->path);
	out->count = 1;
	if ((status = take_number(&block->tokens, s, "token_count", 1, MOST_SIZE)))
		return status;
	return (block->id = strdup(hash)) ? KVT_OK : kvt_no_memory(s->err, s->path);
}

/* ---- all kinds ----------------------------------------------------------- */

enum kvt_status kvt_mlx_blocks(struct kvt_mlx_file *out, const struct kvt_tensors *t,
			       const char *path, struct kvt_error *err)
{
	static enum kvt_status (*const take[])(struct kvt_mlx_file *,
					       const struct source *) = {
		[KVT_MLX_SHARD] = take_shard, [KVT_MLX_EXACT] = take_exact,
		[KVT_MLX_BLOCK] = take_block,
	};

	out->kind = kvt_mlx_kind_of(t);
	if (out->kind == KVT_MLX_NKINDS)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: its metadata are none of a block of mlx-vlm or oMLX: neither layout nor block_hash is what these write", path);
	return take[out->kind](out, &(struct source){ t, path, err });
}

void kvt_mlx_file_free(struct kvt_mlx_file *file)
{
	for (int64_t i = 0; i < file->count; i++) {
		free(file->block[i].id);
		free(file->block[i].parent);
		free(file->block[i].ids);
	}
	free(file->block);
	*file = (struct kvt_mlx_file){ 0 };
}
