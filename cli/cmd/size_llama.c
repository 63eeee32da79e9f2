/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size_llama.c - kvtool size of a GGUF: what llama.cpp would allocate
 *
 * In: the model of the GGUF, and options of llama.cpp, or its defaults: f16, batches of
 * 512 tokens, the model's context or else 4096.  Out: the bytes of a context of so many
 * tokens; with --memory also the most tokens whose cells take no more, by bisection, as
 * more of them take no less.  Options of vLLM for a GGUF, and of llama.cpp for anything
 * else, are KVT_USAGE.
 */
#include "cli/cmd/size_llama.h"

enum kvt_status size_llama_check(const struct size_llama_args *a, bool is_gguf,
				 const char *other, struct kvt_error *err)
{
	const char *own = a->type_k ? "cache-type-k" : a->type_v ? "cache-type-v" :
			  a->unified ? "unified" : a->swa_full ? "swa-full" :
			  a->ubatch ? "ubatch" : a->no_flash ? "no-flash-attn" : NULL;

	if (is_gguf && other)
		return kvt_fail(err, KVT_USAGE,
				"--%s is of vLLM, and of a GGUF this prints what llama.cpp allocates: leave it out, or give the model's config.json",
				other);
	if (!is_gguf && own)
		return kvt_fail(err, KVT_USAGE,
				"--%s is of llama.cpp, whose models are GGUFs: leave it out, or give model.gguf",
				own);
	return KVT_OK;
}

/* The longest context whose cells take no more; 0: none. */
static int64_t fit(const struct size_report *r, const struct size_llama *l)
{
	struct kvt_llama_context c = l->context;
	int64_t low = 0, high = KVT_ANY_TOKENS;
	struct kvt_llama_size size;

	while (low < high) {
		c.tokens = (low + high + 1) / 2;
		if (!kvt_llama_size(&size, &r->config.llama, &c, NULL) &&
		    size.total <= r->memory)
			low = c.tokens;
		else
			high = c.tokens - 1;
	}
	return low;
}

enum kvt_status size_llama(struct size_report *r, const struct size_llama_args *a,
			   bool json, struct kvt_error *err)
{
	const int64_t context = r->config.llama.context;
	struct size_llama l = { .context = {
		.type_k = a->type_k ? a->type_k : "f16",
		.type_v = a->type_v ? a->type_v : "f16",
		.tokens = r->tokens ? r->tokens : context ? context : 4096,
		.sequences = r->requests, .ubatch = a->ubatch ? a->ubatch : 512,
		.unified = a->unified, .whole_windows = a->swa_full,
		.no_flash = a->no_flash,
	} };
	enum kvt_status status = kvt_llama_size(&l.size, &r->config.llama, &l.context,
						err);

	if (status)
		return status;
	if (r->memory)
		l.fit = fit(r, &l);
	r->llama = &l;
	if (json)
		return size_json(r, err);
	size_llama_text(r);
	return KVT_OK;
}
