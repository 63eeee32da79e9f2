/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_size.c - what llama.cpp allocates for the layers of a model
 *
 * A context is made for so many tokens of all sequences together.  Its cells are filled
 * up to a multiple of 256, and each sequence has its share of them unless they are
 * unified.  Layers with a window have cells for a window, of each sequence, and a batch.
 *
 * Facts: llama.cpp's src/llama-context.cpp, llama-kv-cache-iswa.cpp and
 * llama-memory-recurrent.cpp of 2026-10.
 */
#include "formats/model/gguf.h"
#include "formats/parse/ggml_type.h"

#include <string.h>

/* A context has no more sequences; and no one has a context as long as the other. */
enum { MOST_SEQUENCES = 256, MOST_TOKENS = 1 << 28, CELLS = 256, STATE_ELEM = 4 };

static int64_t fill_up(int64_t n)
{
	return (n + CELLS - 1) / CELLS * CELLS;
}

static enum kvt_status find_type(const struct kvt_ggml_type **out, const char *name,
				 const char *option, struct kvt_error *err)
{
	if ((*out = kvt_ggml_type_called(name)))
		return KVT_OK;
	return kvt_fail(err, KVT_USAGE,
			"--%s is '%.40s', expected f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1",
			option, name);
}

/* llama.cpp takes blocks of a type that would lie in two heads for an error. */
static enum kvt_status check_heads(const struct kvt_ggml_type *type, const char *option,
				   int64_t head_dim, struct kvt_error *err)
{
	if (head_dim % type->elems == 0)
		return KVT_OK;
	return kvt_fail(err, KVT_BAD_INPUT,
			"--%s is %s, of blocks of %d elements, but heads have %lld: llama.cpp refuses it",
			option, type->name, type->elems, LL(head_dim));
}

/* Cells of a sequence, and how many times so many there are. */
struct cells {
	int64_t full, window, streams;
};

static struct cells count_cells(const struct kvt_llama_model *m,
				const struct kvt_llama_context *c)
{
	int64_t all = c->tokens * c->sequences, batch, window;
	struct cells n = { .streams = c->unified ? 1 : c->sequences };

	n.full = fill_up(all);
	if (!c->unified)
		n.full = fill_up(n.full / c->sequences);
	batch = c->ubatch < all ? c->ubatch : all;
	window = m->window * (c->unified ? c->sequences : 1) + batch;
	n.window = fill_up(window < n.full ? window : n.full);
	if (c->whole_windows)
		n.window = n.full;
	return n;
}

static enum kvt_status check_kind(const struct kvt_llama_kind *k,
				  const struct kvt_llama_context *c,
				  const struct kvt_ggml_type *type_k,
				  const struct kvt_ggml_type *type_v,
				  struct kvt_error *err)
{
	enum kvt_status status;

	if (!k->heads)
		return KVT_OK;
	status = check_heads(type_k, "cache-type-k", k->head_dim, err);
	if (!status && k->indexer)
		status = check_heads(type_k, "cache-type-k", k->indexer, err);
	if (!status && k->head_dim_v)
		status = check_heads(type_v, "cache-type-v", k->head_dim_v, err);
	if (!status && !k->head_dim_v && type_k != type_v)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "--cache-type-k is %s and --cache-type-v %s, and of latents llama.cpp wants both alike",
				  type_k->name, type_v->name);
	if (!status && k->head_dim_v && type_v->elems > 1 && c->no_flash)
		status = kvt_fail(err, KVT_BAD_INPUT,
				  "--cache-type-v is %s, which llama.cpp has with flash attention only: leave out --no-flash-attn",
				  type_v->name);
	return status;
}

enum kvt_status kvt_llama_size(struct kvt_llama_size *out,
			       const struct kvt_llama_model *m,
			       const struct kvt_llama_context *c, struct kvt_error *err)
{
	const struct kvt_ggml_type *type_k, *type_v;
	struct cells cells;
	enum kvt_status status;

	*out = (struct kvt_llama_size){ .total = 0 };
	if ((status = find_type(&type_k, c->type_k, "cache-type-k", err)) ||
	    (status = find_type(&type_v, c->type_v, "cache-type-v", err)))
		return status;
	/* 2^9 layers of 3 * 2^20 elements of 4 bytes, the most, then fit */
	if (c->sequences > MOST_SEQUENCES || c->tokens > MOST_TOKENS / c->sequences)
		return kvt_fail(err, KVT_BAD_INPUT,
				"%lld sequences of %lld tokens, expected at most %d, and %d tokens in all",
				LL(c->sequences), LL(c->tokens), MOST_SEQUENCES,
				MOST_TOKENS);
	cells = count_cells(m, c);
	for (int i = 0; i < m->nkinds; i++) {
		const struct kvt_llama_kind *k = &m->kind[i];
		struct kvt_llama_bytes *b = &out->kind[i];
		int64_t v = k->heads * k->head_dim_v, token;

		if ((status = check_kind(k, c, type_k, type_v, err)))
			return status;
		/* rows that stand on end are all as long as the longest */
		if (v && c->no_flash)
			v = m->widest_v;
		b->cells = k->heads ? (k->windowed ? cells.window : cells.full) *
				      cells.streams : 0;
		b->k = k->layers * kvt_ggml_row(type_k, k->heads * k->head_dim);
		b->v = k->layers * kvt_ggml_row(type_v, v);
		b->indexer = k->layers * kvt_ggml_row(type_k, k->indexer);
		token = b->k + b->v + b->indexer;
		if (!k->windowed)
			out->token += token;
		b->k *= b->cells;
		b->v *= b->cells;
		b->indexer *= b->cells;
		b->states = k->layers * (k->conv + k->state) * STATE_ELEM * c->sequences;
		out->total += b->k + b->v + b->indexer + b->states;
	}
	return KVT_OK;
}
