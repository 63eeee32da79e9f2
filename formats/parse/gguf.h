/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf.h - the keys in the header of a GGUF, the file that llama.cpp has models in
 *
 * A header is a magic number, a version, how many tensors and how many keys there are,
 * and the keys, each with a type and a value.  Tensors follow, which nothing here looks
 * at.  All numbers are of one byte order, either one, which the version tells.
 */
#ifndef KVT_GGUF_H
#define KVT_GGUF_H

#include <stddef.h>

#include "lib/kvt/base.h"

/* A string and an array are no numbers; ids are those of GGML's gguf.h. */
enum kvt_gguf_type {
	KVT_GGUF_U8, KVT_GGUF_I8, KVT_GGUF_U16, KVT_GGUF_I16, KVT_GGUF_U32, KVT_GGUF_I32,
	KVT_GGUF_F32, KVT_GGUF_BOOL, KVT_GGUF_STRING, KVT_GGUF_ARRAY, KVT_GGUF_U64,
	KVT_GGUF_I64, KVT_GGUF_F64, KVT_GGUF_TYPES
};

struct kvt_gguf_key {
	const char *name;		/* in the header: ends after 'length' bytes */
	int64_t length;
	enum kvt_gguf_type type;	/* of its elements where it is an array */
	bool is_array;
	int64_t n;			/* of them; else 1 */
	const uint8_t *value;		/* of which all is in the header */
};

struct kvt_gguf {
	int version;
	bool swapped;			/* its numbers are big endian */
	int64_t nkeys;
	struct kvt_gguf_key *key;	/* by name; owned */
	const char *path;		/* for messages */
};

/*
 * 'head' is the first 'nhead' bytes of a file of 'nbytes'.  *more: the header goes on
 * behind them, and nothing else is said.  KVT_UNSUPPORTED: a version other than 2 and 3;
 * KVT_BAD_INPUT: damaged, or a key is there twice.  'head' must outlive what comes out.
 */
KVT_MUST_CHECK enum kvt_status
kvt_gguf_parse(struct kvt_gguf *out, bool *more, const uint8_t *head, int64_t nhead,
	       int64_t nbytes, const char *path, struct kvt_error *err);
void kvt_gguf_free(struct kvt_gguf *gguf);

/* NULL: there is no such key. */
const struct kvt_gguf_key *kvt_gguf_find(const struct kvt_gguf *gguf, const char *name);

/* Element i as a number; false: it is a string, a fraction or larger than int64_t. */
bool kvt_gguf_int(int64_t *out, const struct kvt_gguf *gguf,
		  const struct kvt_gguf_key *key, int64_t i);
/* A string where it stands in the header, not ended by a NUL. */
const char *kvt_gguf_text(int64_t *length, const struct kvt_gguf *gguf,
			  const uint8_t *at);
/* Of a string alone; false: it is none, has a NUL, or is too long. */
bool kvt_gguf_string(char *out, size_t room, const struct kvt_gguf *gguf,
		     const struct kvt_gguf_key *key);

#endif
