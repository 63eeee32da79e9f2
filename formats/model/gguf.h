/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.h - what llama.cpp keeps for a model, out of the header of its GGUF
 *
 * llama.cpp has cells, not blocks: a row of keys and one of values in each layer, made
 * for a whole context at its start; of layers with a window as many cells as a window
 * and a batch need; and of recurrent layers one state a sequence, in float32.
 */
#ifndef KVT_MODEL_GGUF_H
#define KVT_MODEL_GGUF_H

#include "lib/kvt/model.h"

struct kvt_gguf;
struct kvt_model_config;

enum { KVT_LLAMA_KINDS = KVT_MODEL_GROUPS, KVT_LLAMA_LAYERS = 512 };

/* Layers that are alike: of a token, and of a sequence, in elements. */
struct kvt_llama_kind {
	int64_t layers;
	int64_t heads, head_dim;	/* of keys; heads 0: it keeps no tokens */
	int64_t head_dim_v;		/* 0: a latent, whose values are in its keys */
	int64_t indexer;		/* a key of an indexer; 0: has none */
	bool windowed;
	int64_t conv, state;		/* float32 */
};

struct kvt_llama_model {
	int nkinds;			/* 0: it is of no GGUF */
	struct kvt_llama_kind kind[KVT_LLAMA_KINDS];
	int64_t window;			/* tokens; 0: none */
	bool chunked;			/* windows begin at its multiples */
	int64_t context;		/* that the model was made for; 0: not said */
	int64_t widest_v;		/* of all layers, also of those that have none */
	/* where it puts them in a state: see formats/llama/made.c */
	int64_t nlayers, listed;	/* all; those that draft no tokens */
	unsigned char of[KVT_LLAMA_LAYERS];	/* 1 + its kind; 0: keeps nothing */
	bool recurrent;			/* there are no caches of tokens at all */
	bool gaps;			/* a layer has rows in them, of no elements */
	bool positions;			/* a token has several (M-RoPE) */
	bool assumed;			/* the architecture is not known */
};

/* What a context of llama.cpp is started with. */
struct kvt_llama_context {
	const char *type_k, *type_v;	/* "f16", of ggml */
	int64_t tokens, sequences;	/* of each, and how many */
	int64_t ubatch;
	bool unified, whole_windows, no_flash;
};

/* Bytes that are allocated for a kind, and of how many cells. */
struct kvt_llama_bytes {
	int64_t cells;			/* of all sequences together */
	int64_t k, v, indexer, states;
};

struct kvt_llama_size {
	struct kvt_llama_bytes kind[KVT_LLAMA_KINDS];
	int64_t token;			/* a further token, in layers without a window */
	int64_t total;
};

/*
 * KVT_USAGE: no such type; KVT_BAD_INPUT: llama.cpp refuses a head of this type, or no
 * memory is that large.
 */
KVT_MUST_CHECK enum kvt_status
kvt_llama_size(struct kvt_llama_size *out, const struct kvt_llama_model *model,
	       const struct kvt_llama_context *context, struct kvt_error *err);

/*
 * Fills out->llama and the groups of layers that other engines would have.
 * KVT_UNSUPPORTED: an architecture, or a key of an unknown one, that is not understood.
 */
KVT_MUST_CHECK enum kvt_status
kvt_gguf_model(struct kvt_model_config *out, const struct kvt_gguf *gguf,
	       struct kvt_error *err);

/* Does the file begin as a GGUF? */
bool kvt_gguf_is(const char *path);
struct kvt_file;
/* All keys of an open file, of which at most 64 MiB are read; free both in any case. */
KVT_MUST_CHECK enum kvt_status
kvt_gguf_header(uint8_t **head, struct kvt_gguf *out, const struct kvt_file *file,
		struct kvt_error *err);
/* kvt_gguf_model() of them. */
KVT_MUST_CHECK enum kvt_status
kvt_gguf_read(struct kvt_model_config *out, const struct kvt_file *file,
	      struct kvt_error *err);

#endif
