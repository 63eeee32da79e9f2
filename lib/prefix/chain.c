/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.c - the hash of one block after another
 *
 *	vLLM		H((parent, (tokens), None or extras)); before the first H(seed)
 *	LMCache		the same with (), shortened to a number of 8 bytes, which is the
 *			parent of the next; or Python's own hash of that tuple
 *	LMCache MP	BLAKE3(parent, tokens as u32 big-endian), BLAKE3(12 zeros) first
 *	SGLang		SHA-256(parent, tokens as u32 little-endian), nothing first
 *
 * Facts: as rule.c; the words of SGLang's seeds are from its mem_cache/utils.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash/blake3.h"
#include "lib/hash/python.h"
#include "lib/hash/sha256.h"
#include "lib/prefix/message.h"
#include "lib/tile/hash.h"
#include "lib/base/little_endian.h"

static bool is_cbor(enum kvt_prefix_hash hash)
{
	return hash == KVT_PREFIX_SHA256_CBOR || hash == KVT_PREFIX_XXHASH_CBOR;
}

static bool is_xxhash(enum kvt_prefix_hash hash)
{
	return hash == KVT_PREFIX_XXHASH || hash == KVT_PREFIX_XXHASH_CBOR;
}

static void put_big(uint8_t *out, uint64_t value, int n)
{
	for (int i = 0; i < n; i++)
		out[i] = (uint8_t)(value >> 8 * (n - 1 - i));
}

static uint64_t get_big(const uint8_t *p)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | p[i];
	return value;
}

static void take_digest(struct kvt_prefix *p, const void *bytes, size_t n)
{
	struct sha256 sha;

	if (is_xxhash(p->algorithm)) {
		struct kvt_digest h = kvt_digest_content(bytes, (int64_t)n);

		put_big(p->hash, h.hi, 8);
		put_big(p->hash + 8, h.lo, 8);
		p->nbytes = 16;
		return;
	}
	kvt_sha256_start(&sha);
	kvt_sha256_add(&sha, bytes, n);
	kvt_sha256_end_bytes(p->hash, &sha);
	p->nbytes = 32;
}

/* ---- vLLM, and LMCache with vLLM's functions ------------------------------ */

/* LMCache in the engine's process keeps no more of a digest. */
static void shorten(struct kvt_prefix *p)
{
	if (p->key->rule->form == KVT_PREFIX_LMCACHE)
		p->nbytes = 8;
}

static bool touches(const struct kvt_prefix_item *item, int64_t from, int64_t n)
{
	return item->begin < from + n && item->end > from;
}

static void put_lora(struct kvt_message *m, const struct kvt_prefix_key *key)
{
	bool tagged = key->rule->tagged;

	if (tagged) {
		kvt_message_tuple(m, 3);
		kvt_message_tag(m, KVT_TAG_LORA);
	}
	kvt_message_text(m, key->lora);
	if (tagged) {
		kvt_message_text(m, key->lora_path);
		kvt_message_tuple_end(m, 3);
	}
}

static void put_item(struct kvt_message *m, const struct kvt_prefix_key *key,
		     const struct kvt_prefix_item *item, int64_t from)
{
	size_t n = key->rule->tagged ? 3 : 2;

	kvt_message_tuple(m, n);
	if (key->rule->tagged)
		kvt_message_tag(m, KVT_TAG_MM);
	kvt_message_text(m, item->id);
	kvt_message_int(m, item->begin - from);
	kvt_message_tuple_end(m, n);
}

static void put_salt(struct kvt_message *m, const struct kvt_prefix_key *key)
{
	if (key->rule->tagged) {
		kvt_message_tuple(m, 2);
		kvt_message_tag(m, KVT_TAG_SALT);
	}
	kvt_message_text(m, key->salt);
	if (key->rule->tagged)
		kvt_message_tuple_end(m, 2);
}

/* None, or a tuple; the salt is in the first block alone, and "" is none. */
static void put_extras(struct kvt_message *m, const struct kvt_prefix *p, int64_t n)
{
	const struct kvt_prefix_key *key = p->key;
	bool salt = !p->tokens && key->salt && *key->salt;
	size_t count = (key->lora != NULL) + (size_t)salt;

	for (int i = 0; i < key->nitems; i++)
		count += touches(&key->item[i], p->tokens, n);
	if (!count) {
		kvt_message_none(m);
		return;
	}
	kvt_message_tuple(m, count);
	if (key->lora)
		put_lora(m, key);
	for (int i = 0; i < key->nitems; i++)
		if (touches(&key->item[i], p->tokens, n))
			put_item(m, key, &key->item[i], p->tokens);
	if (salt)
		put_salt(m, key);
	kvt_message_tuple_end(m, count);
}

static enum kvt_status next_of_message(struct kvt_prefix *p, const int64_t *tokens,
				       int64_t n, struct kvt_error *err)
{
	bool number = p->key->rule->form == KVT_PREFIX_LMCACHE;
	struct kvt_message m;
	enum kvt_status status;

	kvt_message_start(&m, is_cbor(p->algorithm));
	kvt_message_tuple(&m, 3);
	if (number)
		kvt_message_unsigned(&m, get_big(p->hash));
	else
		kvt_message_bytes(&m, p->hash, (uint8_t)p->nbytes);
	kvt_message_tuple(&m, (size_t)n);
	for (int64_t i = 0; i < n; i++)
		kvt_message_int(&m, tokens[i]);
	kvt_message_tuple_end(&m, (size_t)n);
	if (number) {
		kvt_message_tuple(&m, 0);
		kvt_message_tuple_end(&m, 0);
	} else {
		put_extras(&m, p, n);
	}
	kvt_message_tuple_end(&m, 3);
	if ((status = kvt_message_end(&m, err)))
		return status;
	take_digest(p, m.bytes, m.n);
	shorten(p);
	return KVT_OK;
}

static void next_builtin(struct kvt_prefix *p, const int64_t *tokens, int64_t n)
{
	uint64_t all = KVT_PYTHON_TUPLE, inner = KVT_PYTHON_TUPLE;

	for (int64_t i = 0; i < n; i++)
		kvt_python_tuple_add(&inner, kvt_python_hash_int(tokens[i]));
	kvt_python_tuple_add(&all, kvt_python_hash_int((int64_t)get_big(p->hash)));
	kvt_python_tuple_add(&all, kvt_python_tuple_end(inner, (size_t)n));
	kvt_python_tuple_add(&all, kvt_python_tuple_end(KVT_PYTHON_TUPLE, 0));
	put_big(p->hash, (uint64_t)kvt_python_tuple_end(all, 3), 8);
}

/* ---- hashes of plain bytes ------------------------------------------------ */

static enum kvt_status no_token(int64_t token, const char *what, struct kvt_error *err)
{
	return kvt_fail(err, KVT_BAD_INPUT,
			"a token is %lld, but %s hashes whole numbers from 0 to 2^32-1",
			LL(token), what);
}

static enum kvt_status next_blake3(struct kvt_prefix *p, const int64_t *tokens,
				   int64_t n, struct kvt_error *err)
{
	uint8_t bytes[KVT_MESSAGE_BYTES];
	size_t used = (size_t)p->nbytes;

	if (n > (int64_t)(sizeof(bytes) - used) / 4)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"a block has %lld tokens, at most %zu are supported", LL(n),
				(sizeof(bytes) - used) / 4);
	memcpy(bytes, p->hash, used);
	for (int64_t i = 0; i < n; i++, used += 4) {
		if (tokens[i] < 0 || tokens[i] > UINT32_MAX)
			return no_token(tokens[i], p->key->rule->what, err);
		put_big(bytes + used, (uint64_t)tokens[i], 4);
	}
	kvt_blake3(p->hash, bytes, used);
	p->nbytes = BLAKE3_BYTES;
	return KVT_OK;
}

/* Of a page with a token that needs more than 4 bytes all have 8, and ff is first. */
static enum kvt_status next_sglang(struct kvt_prefix *p, const int64_t *tokens,
				   int64_t n, struct kvt_error *err)
{
	struct sha256 sha;
	bool wide = false;

	for (int64_t i = 0; i < n; i++) {
		if (tokens[i] < 0)
			return kvt_fail(err, KVT_BAD_INPUT,
					"a token is %lld, but %s hashes no negative numbers",
					LL(tokens[i]), p->key->rule->what);
		wide |= tokens[i] > UINT32_MAX;
	}
	kvt_sha256_start(&sha);
	kvt_sha256_add(&sha, p->hash, (size_t)p->nbytes);
	if (wide)
		kvt_sha256_add(&sha, "\xff", 1);
	for (int64_t i = 0; i < n; i++) {
		uint8_t le[8];

		kvt_put_le(le, (uint64_t)tokens[i], 8);
		kvt_sha256_add(&sha, le, wide ? 8 : 4);
	}
	kvt_sha256_end_bytes(p->hash, &sha);
	p->nbytes = 32;
	return KVT_OK;
}

enum kvt_status kvt_prefix_next(struct kvt_prefix *p, const int64_t *tokens, int64_t n,
				struct kvt_error *err)
{
	enum kvt_prefix_form form = p->key->rule->form;
	enum kvt_status status = KVT_OK;

	if (form == KVT_PREFIX_SGLANG || form == KVT_PREFIX_SGLANG_EVENT)
		status = next_sglang(p, tokens, n, err);
	else if (p->algorithm == KVT_PREFIX_BLAKE3)
		status = next_blake3(p, tokens, n, err);
	else if (p->algorithm == KVT_PREFIX_BUILTIN)
		next_builtin(p, tokens, n);
	else
		status = next_of_message(p, tokens, n, err);
	if (!status)
		p->tokens += n;
	return status;
}

/* ---- the empty prefix ----------------------------------------------------- */

static enum kvt_status random_seed(const struct kvt_prefix *p, struct kvt_error *err)
{
	if (p->key->rule->form != KVT_PREFIX_VLLM && !is_xxhash(p->algorithm))
		return kvt_fail(err, KVT_BAD_INPUT,
				"LMCache's %s names begin with vLLM's seed, which is PYTHONHASHSEED; where that is not set, it is random until vLLM 0.28, so that they cannot be worked out, and vllm-none-hash since 0.29: give --seed",
				kvt_prefix_hash_name(p->algorithm));
	return kvt_fail(err, KVT_BAD_INPUT,
			"where PYTHONHASHSEED is not set, %s begins %s names with random bytes of each process, which nothing keeps: these names cannot be worked out; give --seed, the value that it was set to",
			p->key->rule->what, kvt_prefix_hash_name(p->algorithm));
}

/* hash() of the seed's text in a process that has it as PYTHONHASHSEED. */
static enum kvt_status start_builtin(struct kvt_prefix *p, struct kvt_error *err)
{
	const char *seed = p->key->seed;
	size_t digits = seed ? strspn(seed, "0123456789") : 0;
	unsigned long long value = 0;

	p->nbytes = 8;
	if (p->key->without_vllm)
		return KVT_OK;
	if (!seed || !strcmp(seed, "random"))
		return kvt_fail(err, KVT_BAD_INPUT,
				"LMCache's builtin names begin with 0 where vLLM cannot be imported, else with the hash of PYTHONHASHSEED, which is random where that was not set and then kept nowhere: give --seed=N or --without-vllm");
	if (digits && digits <= 10)
		value = strtoull(seed, NULL, 10);
	if (!digits || digits > 10 || seed[digits] || value > UINT32_MAX)
		return kvt_fail(err, KVT_USAGE,
				"PYTHONHASHSEED is '%.40s', but Python takes whole numbers from 0 to 4294967295",
				seed);
	put_big(p->hash, (uint64_t)kvt_python_hash_text(seed, (uint32_t)value), 8);
	return KVT_OK;
}

/* vLLM's NONE_HASH: the hash of the seed. */
static enum kvt_status start_seed(struct kvt_prefix *p, struct kvt_error *err)
{
	const char *seed = p->key->seed;
	struct kvt_message m;
	enum kvt_status status;

	if (!seed && (p->key->rule->random || is_xxhash(p->algorithm)))
		return random_seed(p, err);
	kvt_message_start(&m, is_cbor(p->algorithm));
	kvt_message_text(&m, seed ? seed : "vllm-none-hash");
	if ((status = kvt_message_end(&m, err)))
		return status;
	take_digest(p, m.bytes, m.n);
	shorten(p);
	return KVT_OK;
}

static void add_part(struct sha256 *sha, const char *part)
{
	uint8_t head[9] = { part != NULL };
	size_t n = part ? strlen(part) : 0;

	kvt_put_le(head + 1, n, 8);
	kvt_sha256_add(sha, head, part ? sizeof(head) : 1);
	if (part)
		kvt_sha256_add(sha, part, n);
}

/* Events know the salt alone, and hash it in another way. */
static void start_sglang(struct kvt_prefix *p)
{
	static const char space[] = "sglang-cache-namespace-v1";
	static const char old[] = "sglang-cache-salt-v1";
	const struct kvt_prefix_key *key = p->key;
	bool event = key->rule->form == KVT_PREFIX_SGLANG_EVENT;
	struct sha256 sha;

	if (!key->salt && (event || !key->extra_key))
		return;
	kvt_sha256_start(&sha);
	if (event) {
		kvt_sha256_add(&sha, old, sizeof(old));		/* its NUL, too */
		kvt_sha256_add(&sha, key->salt, strlen(key->salt));
	} else {
		kvt_sha256_add(&sha, space, sizeof(space) - 1);
		add_part(&sha, key->extra_key);
		add_part(&sha, key->salt);
	}
	kvt_sha256_end_bytes(p->hash, &sha);
	p->nbytes = 32;
}

static enum kvt_status check_parts(const struct kvt_prefix_key *key,
				   enum kvt_prefix_hash hash, struct kvt_error *err)
{
	const struct {
		enum kvt_prefix_part part;
		bool said;
		const char *what;
	} said[] = {
		{ KVT_PREFIX_SEED, key->seed != NULL, "seed" },
		{ KVT_PREFIX_SALT, key->salt != NULL, "salt" },
		{ KVT_PREFIX_LORA, key->lora != NULL, "LoRA" },
		{ KVT_PREFIX_LORA_PATH, key->lora_path != NULL, "path of a LoRA" },
		{ KVT_PREFIX_ITEMS, key->nitems > 0, "pictures" },
		{ KVT_PREFIX_EXTRA_KEY, key->extra_key != NULL, "extra key" },
		{ KVT_PREFIX_WITHOUT_VLLM, key->without_vllm, "vLLM beside it" },
	};

	if (key->rule->why_not)
		return kvt_fail(err, KVT_UNSUPPORTED,
				"names of %s are not worked out: %s", key->rule->what,
				key->rule->why_not);
	if (!(key->rule->hashes & 1u << hash))
		return kvt_fail(err, KVT_USAGE, "%s has no names by %s", key->rule->what,
				kvt_prefix_hash_name(hash));
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		if (said[i].said && !(key->rule->parts & said[i].part))
			return kvt_fail(err, KVT_USAGE, "names of %s depend on no %s",
					key->rule->what, said[i].what);
	if (key->rule->tagged && !key->lora != !key->lora_path)
		return kvt_fail(err, KVT_USAGE,
				"%s hashes the name of a LoRA and its path: give both",
				key->rule->what);
	return KVT_OK;
}

enum kvt_status kvt_prefix_start(struct kvt_prefix *out, const struct kvt_prefix_key *key,
				 struct kvt_error *err)
{
	enum kvt_prefix_hash hash = key->hash ? key->hash : key->rule->usual;
	enum kvt_prefix_form form = key->rule->form;
	enum kvt_status status;

	*out = (struct kvt_prefix){ .key = key, .algorithm = hash };
	if ((status = check_parts(key, hash, err)))
		return status;
	if (key->without_vllm && (key->seed || hash != KVT_PREFIX_BUILTIN))
		return kvt_fail(err, KVT_USAGE,
				"without vLLM LMCache has builtin names, and no seed");
	if (form == KVT_PREFIX_SGLANG || form == KVT_PREFIX_SGLANG_EVENT) {
		start_sglang(out);
	} else if (hash == KVT_PREFIX_BLAKE3) {
		int64_t zero = 0;

		out->nbytes = 8;
		status = next_blake3(out, &zero, 1, err);
	} else if (hash == KVT_PREFIX_BUILTIN) {
		status = start_builtin(out, err);
	} else {
		status = start_seed(out, err);
	}
	return status;
}

/* ---- as text -------------------------------------------------------------- */

void kvt_prefix_name(char out[KVT_PREFIX_NAME], const struct kvt_prefix *p)
{
	enum kvt_prefix_form form = p->key->rule->form;
	uint64_t value = get_big(p->hash);

	if (form == KVT_PREFIX_SGLANG_EVENT) {
		snprintf(out, KVT_PREFIX_NAME, "%lld", LL(value));
		return;
	}
	if (form == KVT_PREFIX_LMCACHE) {
		bool negative = p->algorithm == KVT_PREFIX_BUILTIN && value >> 63;

		snprintf(out, KVT_PREFIX_NAME, "%s%llx", negative ? "-" : "",
			 (unsigned long long)(negative ? -value : value));
		return;
	}
	for (int i = 0; i < p->nbytes; i++)
		snprintf(out + 2 * i, 3, "%02x", p->hash[i]);
	out[2 * p->nbytes] = '\0';
}
