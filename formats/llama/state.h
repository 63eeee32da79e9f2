/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - what is where in a state file of llama.cpp
 *
 * Such a file does not say which of several ways it was written in: builds
 * differ under one version, and a cell has more fields for some models.  All are
 * tried, and just one must end where the file does.
 */
#ifndef KVT_LLAMA_STATE_H
#define KVT_LLAMA_STATE_H

#include "formats/format.h"

/* Where rows of keys or values are: one after each layer's, all alike. */
struct kvt_llama_rows {
	int type;			/* of ggml */
	int64_t nbytes;			/* of a cell in a layer */
	int64_t at;			/* of the first layer's data */
	int64_t step;			/* from one layer to the next */
	int64_t elem;			/* transposed only: bytes of an element */
	bool uneven;			/* layers differ, and 'step' means nothing */
};

/* Cells that are stored together; engines have one stream, or one a sequence. */
struct kvt_llama_stream {
	int64_t ncells, nlayers;
	bool transposed, has_values;
	struct kvt_llama_rows k, v;
};

/* A sequence holds this cell of a stream. */
struct kvt_llama_member {
	int32_t sequence, position;
	uint32_t stream, cell;
};

/* One cache: all layers, or those with a window, or those without. */
struct kvt_llama_cache {
	int64_t nstreams, nmembers;
	struct kvt_llama_stream *stream;	/* owned */
	struct kvt_llama_member *member;	/* owned; by sequence, position, cell */
};

/*
 * Recurrent layers: a cell has two rows in each, of all tokens of a sequence so far.
 * The first of these are convolution states where there are any.
 */
struct kvt_llama_states {
	int64_t ncells, nlayers, nmembers;	/* no cells: nothing is in them */
	struct kvt_llama_member *member;	/* owned; as above */
	struct kvt_llama_rows row[2];
};

enum { KVT_LLAMA_CACHES = 2 };

struct kvt_llama_state {
	const char *kind;		/* "ggsn", "ggsq", "sequence" */
	int version;			/* 0: has none */
	int64_t ntokens, tokens_at;	/* what the program stored with it */
	char arch[64];			/* of the model; "" if unknown */
	int extra;			/* bytes that a cell has besides */
	bool whole;			/* of all sequences, not of one */
	int ncaches;
	struct kvt_llama_cache cache[KVT_LLAMA_CACHES];
	struct kvt_llama_states states;
};

/* What a model keeps: rows of tokens, states of recurrent layers, or both. */
enum kvt_llama_memory {
	KVT_LLAMA_ATTENTION, KVT_LLAMA_RECURRENT, KVT_LLAMA_HYBRID, KVT_LLAMA_UNKNOWN,
	KVT_LLAMA_MEMORIES = KVT_LLAMA_UNKNOWN
};
extern const char *const kvt_llama_memory_names[];	/* the first three */

/*
 * What of it the file is to be, where the user says; and a file that begins with
 * the memory itself, as older programs got it for a sequence, is read if 'bare'.
 */
struct kvt_llama_asked {
	enum kvt_llama_memory memory;
	bool bare;
};

/*
 * KVT_BAD_INPUT if no reading ends with the file or several do; KVT_UNSUPPORTED
 * for a version that is not known.  Memory is in proportion to the cells that are
 * there.
 */
KVT_MUST_CHECK enum kvt_status
kvt_llama_parse(struct kvt_llama_state *out, const struct kvt_file *file,
		const struct kvt_llama_asked *asked, struct kvt_error *err);
void kvt_llama_free(struct kvt_llama_state *state);

/* Do the first bytes of a file look like one? */
bool kvt_llama_probe(const uint8_t *head, int64_t nhead);

/* Element types of ggml.  Those with several elements a block are quantised. */
struct kvt_ggml_type {
	int id;
	const char *name;
	int elems, nbytes;		/* of a block */
	const char *dtype;		/* NULL: quantised */
};
const struct kvt_ggml_type *kvt_ggml_type(int id);	/* NULL: not known */

#endif
