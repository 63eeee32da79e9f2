/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gguf.c - any bytes as the header of a GGUF: refused with a sentence, or layers
 * whose memory can be worked out or refused
 *
 * The bytes are a block of their own, so that a sanitizer sees what is read past them.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/model/config.h"
#include "formats/model/vocab.h"
#include "formats/parse/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* More tokens never take less, and a whole window never less than a part. */
static void check_sizes(const struct kvt_llama_model *model)
{
	static const char *const types[] = { "f16", "q4_0" };

	for (int i = 0; i < 16; i++) {
		struct kvt_llama_context c = {
			.type_k = types[i & 1], .type_v = types[i & 1], .tokens = 1000,
			.sequences = i & 2 ? 256 : 1, .ubatch = 512, .unified = i & 4,
			.no_flash = i & 8,
		};
		struct kvt_llama_size less, more;
		struct kvt_error err = { "" };

		if (kvt_llama_size(&less, model, &c, &err)) {
			if (!err.text[0])
				abort();
			continue;
		}
		c.whole_windows = true;
		c.tokens = 1 << 20;
		if (kvt_llama_size(&more, model, &c, &err) || less.total < 0 ||
		    more.total < less.total || more.token != less.token)
			abort();
	}
}

static void check_model(const struct kvt_gguf *gguf)
{
	struct kvt_model_config config;
	struct kvt_error err = { "" };
	int64_t layers = 0;

	if (kvt_gguf_model(&config, gguf, &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	for (int i = 0; i < config.llama.nkinds; i++)
		layers += config.llama.kind[i].layers;
	if (config.model.ngroups < 1 || layers < 1 || layers > KVT_LLAMA_LAYERS)
		abort();
	check_sizes(&config.llama);
}

/* Every token by itself is a part of all of them together. */
static void check_vocab(const struct kvt_gguf *gguf)
{
	struct kvt_error err = { "" };
	struct kvt_vocab v;
	int64_t all = 0, nbytes;
	char *text;

	if (kvt_vocab_init(&v, gguf, &err) && !err.text[0])
		abort();
	for (int32_t i = 0; i <= v.n; i++) {
		if (kvt_vocab_text(&text, &nbytes, &v, &i, 1, &err) != KVT_OK) {
			if (i < v.n || text)
				abort();
			continue;
		}
		if (i == v.n || nbytes < 0 || text[nbytes])
			abort();
		all += nbytes;
		free(text);
	}
	if (v.n > 1) {
		const int32_t two[2] = { 0, (int32_t)v.n - 1 };

		if (kvt_vocab_text(&text, &nbytes, &v, two, 2, &err) ||
		    nbytes > all + all)
			abort();
		free(text);
	}
	kvt_vocab_free(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *head = malloc(size ? size : 1);
	struct kvt_error err = { "" };
	struct kvt_gguf gguf;
	bool more;

	if (!head)
		return 0;
	if (size)
		memcpy(head, data, size);
	/* the file may be longer than what was read of it */
	for (int64_t longer = 0; longer < 2; longer++)
		if (!kvt_gguf_parse(&gguf, &more, head, (int64_t)size,
				    (int64_t)size + (longer << 40), "fuzz", &err)) {
			check_model(&gguf);
			check_vocab(&gguf);
			kvt_gguf_free(&gguf);
		} else if (!err.text[0] || (more && !longer))
			abort();
	free(head);
	return 0;
}
