/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_store.c - names and descriptions in folders of engines' stores
 *
 * The first byte says which reader gets the rest.  What is taken must lie inside
 * the text, and names must be made of their parts again.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/kvbm/kvbm.h"
#include "formats/sglang/hicache.h"
#include "formats/vllm/offload.h"

static void inside(const struct kvt_name_part *part, const char *text, size_t n)
{
	assert(part->s >= text && part->n <= n);
	assert((size_t)(part->s - text) <= n - part->n);
}

static void hicache(const char *text)
{
	struct kvt_hicache_name name;
	size_t n = strlen(text), sum;

	if (!kvt_hicache_find(&name, text))
		return;
	inside(&name.hash, text, n);
	inside(&name.model, text, n);
	inside(&name.rank, text, n);
	assert(name.pool.n > 0 && name.half < 2);
	assert(name.tp_rank < name.tp_size && name.pp_rank < name.pp_size &&
	       name.cp_rank < name.cp_size && name.dcp_rank < name.dcp_size);
	assert(name.dcp_size > 1 ? name.page > 0 && name.page % name.dcp_size == 0 :
				   !name.page);
	if (name.store != KVT_HICACHE_FILE)
		return;
	sum = name.hash.n + 1 + name.model.n + strlen(".bin");
	if (name.rank.n)
		sum += 1 + name.rank.n;
	if (text[name.hash.n] == '.')
		sum += 1 + name.pool.n;
	assert(sum == n);
}

static void offload_file(const char *text)
{
	struct kvt_name_part hash;
	size_t n = strlen(text);
	int group;

	if (!kvt_offload_name(&hash, &group, text))
		return;
	inside(&hash, text, n);
	assert(hash.n >= 6 && group >= 0 && group < 100);
	assert(!strncmp(text, hash.s, 3) && !strncmp(text + 4, hash.s + 3, 2));
}

static void offload_config(const char *text, size_t n)
{
	struct kvt_offload_config config, again;
	char digest[13], other[13], *copy;

	if (kvt_offload_parse(&config, text, n, "fuzz", NULL))
		return;
	assert(config.model && config.blocks_per_file > 0 && config.tp_size > 0);
	for (int g = 0; g < config.ngroups; g++)
		assert(config.group[g].block_size > 0 && config.group[g].nlayers > 0);
	/* what it writes reads as the same */
	assert(kvt_offload_digest(digest, config.json));
	copy = kvt_offload_text(config.json, JSON_INDENT(2));
	assert(copy && !kvt_offload_parse(&again, copy, strlen(copy), "again", NULL));
	assert(kvt_offload_digest(other, again.json) && !strcmp(digest, other));
	kvt_offload_free(&again);
	kvt_offload_free(&config);
	free(copy);
}

static void descriptor(const char *text, size_t n)
{
	struct kvt_layout layout;
	struct kvt_kvbm kvbm;

	if (kvt_kvbm_parse(&kvbm, text, n, "fuzz", NULL))
		return;
	assert(kvbm.blocks > 0 && kvbm.layers > 0 && kvbm.inner > 0);
	assert(kvbm.alignment > 0);
	assert(!kvbm.axes[0] || !kvt_layout_parse(&layout, kvbm.axes, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size || !(text = malloc(size)))
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0]) {
	case 'h':
		hicache(text);
		break;
	case 'f':
		offload_file(text);
		break;
	case 'c':
		offload_config(text, size - 1);
		break;
	case 'd':
		descriptor(text, size - 1);
		break;
	}
	free(text);
	return 0;
}
