/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab.h - the text that ids of tokens stand for, by the vocabulary in a GGUF's header
 *
 * Of a token there is a text, and of most GGUFs a kind of it.  A text is bytes: several
 * tokens may have to come together for one character.  Nothing is encoded here.
 */
#ifndef KVT_MODEL_VOCAB_H
#define KVT_MODEL_VOCAB_H

#include "formats/parse/gguf.h"

struct kvt_vocab {
	const struct kvt_gguf *gguf;
	int64_t n;			/* tokens */
	const uint8_t **token;		/* owned; each begins with its length */
	const struct kvt_gguf_key *kinds;	/* NULL: not said */
	bool letters;			/* characters stand for bytes, as of gpt2 */
};

/*
 * 'gguf' must outlive it.  KVT_UNSUPPORTED: the vocabulary is of a tokenizer that is not
 * known here, or there is none; KVT_BAD_INPUT: it is damaged.
 */
KVT_MUST_CHECK enum kvt_status
kvt_vocab_init(struct kvt_vocab *out, const struct kvt_gguf *gguf, struct kvt_error *err);
void kvt_vocab_free(struct kvt_vocab *vocab);

/*
 * What 'n' ids stand for, one behind the other, *nbytes of them and a NUL; free() it.
 * Control tokens are their names.  KVT_BAD_INPUT: an id that the vocabulary has not.
 */
KVT_MUST_CHECK enum kvt_status
kvt_vocab_text(char **out, int64_t *nbytes, const struct kvt_vocab *vocab,
	       const int32_t *ids, int64_t n, struct kvt_error *err);

/* The same with the vocabulary of the GGUF at 'path', of which the header is read. */
struct kvt_ids {
	const int32_t *id;
	int64_t n;
	char *text;			/* out; owned */
	int64_t nbytes;			/* out */
};
KVT_MUST_CHECK enum kvt_status
kvt_gguf_texts(struct kvt_ids *lists, int64_t nlists, const char *path,
	       struct kvt_error *err);

#endif
