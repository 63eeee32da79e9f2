/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_class.c - the classes of specs that vLLM 0.32 has, and what each of them does
 *
 * A row of rules[] is a class of its kv_cache_interface.py: its name there and in events,
 * which tokens it lets go of (single_type_kv_cache_manager.py), and what a transfer must
 * move of it.  How many blocks a request takes at most, and how long its table is, are as
 * vLLM counts them for memory.
 */
#include "lib/kvt/spec.h"

#include <stddef.h>

#define NOTHING "none"
#define BLOCKS "blocks of live tokens, by head"
#define ROWS "blocks of live tokens, whole: all ranks hold the same"

static const struct kvt_class_rule rules[KVT_NCLASSES] = {
	[KVT_CLASS_FULL] = { "FullAttentionSpec", "full_attention", KVT_CLASS_FULL,
			     true, true, true, NOTHING, BLOCKS },
	[KVT_CLASS_MLA] = { "MLAAttentionSpec", "mla_attention", KVT_CLASS_FULL, true,
			    true, true, NOTHING, ROWS },
	[KVT_CLASS_RSWA] = { "RSWASpec", "full_attention", KVT_CLASS_FULL, true, true,
			     true, "from the end of the prompt to the last window",
			     BLOCKS },
	[KVT_CLASS_SINK] = { "SinkFullAttentionSpec", "sink_full_attention",
			     KVT_CLASS_FULL, true, true, true, NOTHING,
			     "blocks of live tokens, by head; sinks are the engine's" },
	[KVT_CLASS_HIDDEN] = { "HiddenStateCacheSpec", "mla_attention", KVT_CLASS_FULL,
			       true, true, true, NOTHING, "not moved: it is the result" },
	[KVT_CLASS_WINDOW] = { "SlidingWindowSpec", "sliding_window", KVT_CLASS_WINDOW,
			       true, true, true, "all but the last window - 1",
			       BLOCKS },
	[KVT_CLASS_WINDOW_MLA] = { "SlidingWindowMLASpec", "sliding_window_mla",
				   KVT_CLASS_WINDOW_MLA, true, true, true,
				   "all but the last window - 1", ROWS },
	[KVT_CLASS_CHUNK] = { "ChunkedLocalAttentionSpec", "chunked_local_attention",
			      KVT_CLASS_CHUNK, true, true, true,
			      "all up to the last end of a chunk", BLOCKS },
	[KVT_CLASS_CROSS] = { "CrossAttentionSpec", "cross_attention", KVT_CLASS_CROSS,
			      true, true, true, NOTHING,
			      "blocks of the encoder's tokens, by head" },
	[KVT_CLASS_ENCODER] = { "EncoderOnlyAttentionSpec", "encoder_only_attention",
				KVT_CLASS_ENCODER, true, true, true, "all",
				"nothing" },
	[KVT_CLASS_STATE] = { "MambaSpec", "mamba", KVT_CLASS_STATE, true, true, false,
			      "all but the newest",
			      "the newest state, by head and channel" },
	[KVT_CLASS_RING] = { "CircularBufferSpec", "unknown", KVT_CLASS_RING, false,
			     false, true, NOTHING, "its one block, whole" },
	[KVT_CLASS_HOT] = { "HiSparseHotSpec", "unknown", KVT_CLASS_HOT, false, false,
			    false, "all", "nothing: copies of rows on the host" },
	[KVT_CLASS_RESIDENT] = { "HiSparseResidentSpec", "unknown", KVT_CLASS_RESIDENT,
				 false, true, false, "all",
				 "nothing: copies of rows on the host" },
};

const struct kvt_class_rule *kvt_class_rule(enum kvt_spec_class which)
{
	return &rules[which];
}

bool kvt_spec_cached(const char *preset, const struct kvt_spec_args *args)
{
	enum kvt_spec_class c = kvt_spec_class_of(preset, args);

	return rules[c].cached && !(c == KVT_CLASS_WINDOW_MLA && args->replay);
}

/* ---- blocks of a request ------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t states(const struct kvt_demand *d)
{
	return (d->align ? 2 + d->checkpoints : 1) + d->drafts;
}

static int64_t most_blocks(enum kvt_spec_class c, const struct kvt_spec_args *a,
			   const struct kvt_demand *d, int64_t dcp)
{
	int64_t b = a->block_size;

	switch (c) {
	case KVT_CLASS_WINDOW:
	case KVT_CLASS_WINDOW_MLA:
		/* it need not begin with a block */
		return kvt_ceil_div(least(a->window - 1 + a->retained + d->in_flight,
					  d->tokens), b) + 1;
	case KVT_CLASS_CHUNK:
		return kvt_ceil_div(least(a->window + d->in_flight, d->tokens), b);
	case KVT_CLASS_CROSS:
		return kvt_ceil_div(d->encoder, b);
	case KVT_CLASS_ENCODER:
		return 0;
	case KVT_CLASS_STATE:
		return states(d);
	case KVT_CLASS_RING:
		return 1;
	case KVT_CLASS_HOT:
		return a->blocks;
	case KVT_CLASS_RESIDENT:
		return kvt_ceil_div(least(d->in_flight, d->tokens), b);
	default:
		return kvt_ceil_div(kvt_ceil_div(d->tokens, dcp), b);
	}
}

static int64_t table_width(enum kvt_spec_class c, const struct kvt_spec_args *a,
			   const struct kvt_demand *d, int64_t dcp)
{
	if (c == KVT_CLASS_HOT)
		return a->blocks;
	if (c == KVT_CLASS_RING || (c == KVT_CLASS_STATE && !d->align))
		return c == KVT_CLASS_RING ? 1 : states(d);
	if (c == KVT_CLASS_STATE)
		return kvt_ceil_div(d->tokens, a->block_size) + d->drafts;
	return kvt_ceil_div(d->tokens, a->block_size * (rules[c].sharded ? dcp : 1));
}

enum kvt_status kvt_spec_blocks(int64_t *most, int64_t *table, const char *preset,
				const struct kvt_spec_args *args,
				const struct kvt_demand *d, struct kvt_error *err)
{
	enum kvt_spec_class c = kvt_spec_class_of(preset, args);
	const int64_t numbers[] = { d->tokens, d->in_flight, d->dcp, d->encoder,
				    d->drafts, d->checkpoints };
	int64_t dcp = d->dcp ? d->dcp : 1;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (numbers[i] < 0 || numbers[i] > 1 << 30)
			return kvt_fail(err, KVT_BAD_INPUT,
					"a request asks for %lld, expected 0 to %d",
					LL(numbers[i]), 1 << 30);
	if (args->block_size < 1)
		return kvt_fail(err, KVT_BAD_INPUT, "%s: block size is %lld tokens",
				preset, LL(args->block_size));
	if (dcp > 1 && (c == KVT_CLASS_WINDOW || c == KVT_CLASS_WINDOW_MLA))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: a window, which %lld context parallel ranks cannot share", preset, LL(dcp));
	*most = most_blocks(c, args, d, dcp);
	*table = table_width(c, args, d, dcp);
	return KVT_OK;
}
