/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab.c - tokens of a byte-level BPE (gpt2) or of sentencepiece (llama) as bytes
 *
 * In a vocabulary of bytes each character of a token stands for a byte: those that can
 * be printed for themselves, and the others, in their order, from U+0100 on.  In one of
 * sentencepiece U+2581 is a space, and a token of kind 'byte' is named "<0x0A>".
 *
 * Facts: llama.cpp's src/llama-vocab.cpp, token_to_piece(), of 2026-10.
 */
#include "formats/model/vocab.h"
#include "formats/format.h"
#include "formats/model/gguf.h"

#include <stdlib.h>
#include <string.h>

/* tokenizer.ggml.token_type; 0 and what is not here: no text */
enum { LONGEST = 1 << 30 };
enum kind { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* ---- the vocabulary ----------------------------------------------------- */

/* Byte-level ones that have U+2581 for a space all the same, by the name in 'pre'. */
static bool has_spaces(const struct kvt_gguf *g)
{
	static const char *const names[] = { "gemma4", "sarvam-moe",
					     "granite-embed-multi-311m" };
	const struct kvt_gguf_key *key = kvt_gguf_find(g, "tokenizer.ggml.pre");
	char pre[64] = "";
	bool found = false;

	if (key)
		(void)kvt_gguf_string(pre, sizeof(pre), g, key);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		found |= !strcmp(pre, names[i]);
	return found;
}

static enum kvt_status take_model(struct kvt_vocab *v, struct kvt_error *err)
{
	const struct kvt_gguf_key *key = kvt_gguf_find(v->gguf, "tokenizer.ggml.model");
	char model[64] = "";

	if (key)
		(void)kvt_gguf_string(model, sizeof(model), v->gguf, key);
	v->letters = strcmp(model, "llama") && !has_spaces(v->gguf);
	if (!strcmp(model, "llama") || !strcmp(model, "gpt2") || !strcmp(model, "gemma4"))
		return KVT_OK;
	return kvt_fail(err, KVT_UNSUPPORTED,
			"%s: its vocabulary is of tokenizer '%.40s', and kvtool knows texts of llama and gpt2",
			v->gguf->path, model[0] ? model : "none");
}

enum kvt_status kvt_vocab_init(struct kvt_vocab *v, const struct kvt_gguf *g,
			       struct kvt_error *err)
{
	const struct kvt_gguf_key *tokens = kvt_gguf_find(g, "tokenizer.ggml.tokens");
	const uint8_t *at;
	enum kvt_status status;

	*v = (struct kvt_vocab){ .gguf = g };
	if ((status = take_model(v, err)))
		return status;
	v->kinds = kvt_gguf_find(g, "tokenizer.ggml.token_type");
	if (!tokens || !tokens->is_array || tokens->type != KVT_GGUF_STRING ||
	    tokens->n > INT32_MAX ||
	    (v->kinds && (!v->kinds->is_array || v->kinds->n != tokens->n)))
		return kvt_fail(err, KVT_BAD_INPUT,
				"%s: tokenizer.ggml.tokens is missing or no list of texts, or token_type is of another length",
				g->path);
	v->token = calloc((size_t)tokens->n + 1, sizeof(*v->token));
	if (!v->token)
		return kvt_no_memory(err, NULL);
	at = tokens->value;
	for (v->n = 0; v->n < tokens->n; v->n++) {
		int64_t length;

		v->token[v->n] = at;
		at = (const uint8_t *)kvt_gguf_text(&length, g, at) + length;
	}
	return KVT_OK;
}

void kvt_vocab_free(struct kvt_vocab *v)
{
	free(v->token);
	v->token = NULL;
	v->n = 0;
}

/* ---- one token ---------------------------------------------------------- */

/* Does the byte stand for itself? */
static bool is_printed(unsigned code)
{
	return (code > 0x20 && code < 0x7f) || (code > 0xa0 && code < 0x100 &&
						code != 0xad);
}

/* The byte that a character of two bytes in UTF-8 stands for; -1: none. */
static int byte_of(unsigned code)
{
	unsigned next = 0x100;

	if (code < 0x100)
		return is_printed(code) ? (int)code : -1;
	for (unsigned byte = 0; byte < 0x100; byte++)
		if (!is_printed(byte) && next++ == code)
			return (int)byte;
	return -1;
}

static int64_t take_letters(char *out, const char *text, int64_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	int64_t length = 0;

	for (int64_t i = 0; i < n; i++) {
		bool two = (p[i] & 0xe0) == 0xc0 && i + 1 < n &&
			   (p[i + 1] & 0xc0) == 0x80;
		int byte = two ? byte_of((p[i] & 0x1fu) << 6 | (p[i + 1] & 0x3fu)) : -1;

		out[length++] = byte < 0 ? text[i] : (char)byte;
		i += byte >= 0;
	}
	return length;
}

static int64_t take_spaces(char *out, const char *text, int64_t n)
{
	static const char space[3] = { '\xe2', '\x96', '\x81' };
	int64_t length = 0;

	for (int64_t i = 0; i < n; i++) {
		bool is = n - i >= 3 && !memcmp(text + i, space, sizeof(space));

		out[length++] = is ? ' ' : text[i];
		i += is ? 2 : 0;
	}
	return length;
}

static int digit(char c)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)((at - digits) % 16) : -1;
}

/* No more bytes than the token has. */
static int64_t take_token(char *out, const struct kvt_vocab *v, int64_t id)
{
	int64_t n, kind = NORMAL;
	const char *text = kvt_gguf_text(&n, v->gguf, v->token[id]);

	if (v->kinds && !kvt_gguf_int(&kind, v->gguf, v->kinds, id))
		kind = 0;
	switch (kind) {
	case NORMAL:
		return v->letters ? take_letters(out, text, n) :
				    take_spaces(out, text, n);
	case UNKNOWN:
	case CONTROL:
	case USER_DEFINED:
		memcpy(out, text, (size_t)n);
		return n;
	case BYTE:
		if (n != 6 || digit(text[3]) < 0 || digit(text[4]) < 0)
			return 0;
		*out = (char)(digit(text[3]) * 16 + digit(text[4]));
		return 1;
	}
	return 0;
}

/* ---- several ------------------------------------------------------------ */

enum kvt_status kvt_vocab_text(char **out, int64_t *nbytes, const struct kvt_vocab *v,
			       const int32_t *ids, int64_t n, struct kvt_error *err)
{
	int64_t length, room = 0;

	*out = NULL;
	*nbytes = 0;
	for (int64_t i = 0; i < n; i++) {
		if (ids[i] < 0 || ids[i] >= v->n)
			return kvt_fail(err, KVT_BAD_INPUT,
					"%s: has %lld tokens, and token %lld of the dump has id %ld: it is of another model",
					v->gguf->path, LL(v->n), LL(i), (long)ids[i]);
		(void)kvt_gguf_text(&length, v->gguf, v->token[ids[i]]);
		if ((room += length) > LONGEST)
			return kvt_fail(err, KVT_UNSUPPORTED,
					"%s: %lld tokens have texts of more than %d MiB",
					v->gguf->path, LL(n), LONGEST >> 20);
	}
	if (!(*out = malloc((size_t)room + 1)))
		return kvt_no_memory(err, NULL);
	for (int64_t i = 0; i < n; i++)
		*nbytes += take_token(*out + *nbytes, v, ids[i]);
	(*out)[*nbytes] = '\0';
	return KVT_OK;
}

static enum kvt_status take_texts(struct kvt_ids *lists, int64_t nlists,
				  const struct kvt_gguf *gguf, struct kvt_error *err)
{
	struct kvt_vocab v;
	enum kvt_status status = kvt_vocab_init(&v, gguf, err);

	for (int64_t i = 0; !status && i < nlists; i++)
		status = kvt_vocab_text(&lists[i].text, &lists[i].nbytes, &v, lists[i].id,
					lists[i].n, err);
	kvt_vocab_free(&v);
	return status;
}

enum kvt_status kvt_gguf_texts(struct kvt_ids *lists, int64_t nlists, const char *path,
			       struct kvt_error *err)
{
	struct kvt_files files = { .count = 0 };
	struct kvt_gguf gguf = { .nkeys = 0 };
	uint8_t *head = NULL;
	enum kvt_status status;
	int file;

	if (!(status = kvt_files_open(&files, &file, path, err)) &&
	    !(status = kvt_gguf_header(&head, &gguf, &files.file[file], err)))
		status = take_texts(lists, nlists, &gguf, err);
	kvt_gguf_free(&gguf);
	free(head);
	kvt_files_close(&files);
	return status;
}
