/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hashes.c - are the hashes of events those of their tokens?
 *
 * An event has a part of a hash, its tokens and that part of the one before; all of that
 * one, which the next one needs, is worked out from the first block on.  Where it is not
 * known, or something that is hashed is not told, nothing is said.
 */
#include "lib/ops/why/hashes.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/grow.h"

void kvt_why_hashes_free(struct kvt_why_hashes *h)
{
	free(h->prefix);
	free(h->differs);
	*h = (struct kvt_why_hashes){ 0 };
}

static enum kvt_status put(struct kvt_why_hashes *h, const struct kvt_cache_block *block,
			   const struct kvt_prefix *prefix, struct kvt_error *err)
{
	if (block->index >= h->room) {
		size_t room = 2 * block->index + 256;
		struct kvt_prefix *more = realloc(h->prefix, room * sizeof(*more));

		if (!more)
			return kvt_no_memory(err, NULL);
		memset(more + h->room, 0, (room - h->room) * sizeof(*more));
		h->prefix = more;
		h->room = room;
	}
	h->prefix[block->index] = *prefix;
	return KVT_OK;
}

static enum kvt_status differs(struct kvt_why_hashes *h,
			       const struct kvt_cache_event *event,
			       const struct kvt_block_id *id, struct kvt_error *err)
{
	if (!KVT_GROW(&h->differs, h->ndiffers))
		return kvt_no_memory(err, NULL);
	h->differs[h->ndiffers++] = (struct kvt_why_differs){
		event->number, event->batch, event->sequence, *id };
	return KVT_OK;
}

/* What is before the event's first block; false: that is not known. */
static bool start(struct kvt_prefix *out, const struct kvt_why_hashes *h,
		  const struct kvt_prefix_key *key, const struct kvt_cache_event *event)
{
	struct kvt_error why = { "" };
	const struct kvt_cache_block *parent;

	if (!event->has_parent)
		return !kvt_prefix_start(out, key, &why);
	parent = kvt_cache_replay_find(h->replay, kvt_cache_replay_now(h->replay),
				       &event->parent);
	if (!parent || parent->index >= h->room || !h->prefix[parent->index].nbytes)
		return false;
	*out = h->prefix[parent->index];
	out->key = key;
	return true;
}

/* Is all told that is hashed?  Beside tokens, a salt and the name of a LoRA. */
static bool is_told(const struct kvt_prefix_key *key, const struct kvt_cache_event *event)
{
	return (!*event->lora || (key->rule->parts & KVT_PREFIX_LORA &&
				  !(key->rule->parts & KVT_PREFIX_LORA_PATH))) &&
	       (!event->has_extra || *event->salt || *event->lora);
}

enum kvt_status kvt_why_hashes_take(struct kvt_why_hashes *h,
				    const struct kvt_cache_event *event,
				    struct kvt_error *err)
{
	struct kvt_prefix_key key = *h->key;
	int64_t n = event->block_size;
	enum kvt_status status = KVT_OK;
	struct kvt_error why = { "" };
	struct kvt_prefix prefix;

	if (event->kind != KVT_CACHE_STORED || !event->has_tokens ||
	    kvt_cache_replay_now(h->replay) < 0 ||
	    (int64_t)event->ntokens != (int64_t)event->nblocks * n)
		return KVT_OK;
	key.salt = *event->salt ? event->salt : NULL;
	key.lora = *event->lora ? event->lora : NULL;
	key.lora_path = NULL;
	if (!is_told(&key, event) || !start(&prefix, h, &key, event)) {
		h->unknown += (int64_t)event->nblocks;
		return KVT_OK;
	}
	for (size_t i = 0; !status && i < event->nblocks; i++) {
		const struct kvt_block_id *id = &event->block[i];

		if (kvt_prefix_next(&prefix, event->token + (int64_t)i * n, n, &why)) {
			h->unknown += (int64_t)(event->nblocks - i);
			break;
		}
		if (kvt_block_id_is(id, prefix.hash, (size_t)prefix.nbytes))
			h->same++;
		else
			status = differs(h, event, id, err);
		if (!status)
			status = put(h, kvt_cache_replay_find(h->replay,
				     kvt_cache_replay_now(h->replay), id), &prefix, err);
	}
	return status;
}
