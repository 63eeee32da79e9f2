/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_prefix.c - names of blocks: vectors that the engines' own functions gave
 *
 * Two blocks of four tokens.  vLLM 0.32.0 (utils/hashing.py with cbor2 of PyPI), LMCache
 * 0.5.6 (TokenHasher, and hash() of CPython 3.11), SGLang 0.5.23.
 */
#include "lib/kvt/prefix.h"
#include "tests/unit/tests.h"

static const int64_t A[] = { 1, 2, 3, 4 }, B[] = { 5, 300, 70000, 0 };

struct vector {
	const char *rule;
	struct kvt_prefix_key key;
	const char *a, *b;
};

static const struct kvt_prefix_item picture = { "abc123", 2, 6 };

static const struct vector vectors[] = {
	{ "vllm", { .seed = NULL },
	  "52a7f141c60918f65779927090482b5a24adbe68c8613a211a1eb4e3edd9361a",
	  "41a007af33b445dd10ec3049ca2a7304028ee0a5e6d3dc4aca938209b3afaed1" },
	{ "vllm", { .seed = "0" },
	  "762b2e7e1520febd3a0aedb7358e8602facf3924440e18538fce057e23bae91d",
	  "06f9f0667cec406fd7c9c3bd573043d6017a080fd47191efe9af59e36d7b9d1b" },
	{ "vllm", { .hash = KVT_PREFIX_SHA256_CBOR },
	  "58d0879dff3800f65f8c5fd449d73048c0f7699dd238a03b84b146b151d55111",
	  "39a984bdc05e17f5abbc9c7d68a51aa8edb7773b38ef355064af8fe598741481" },
	{ "vllm", { .hash = KVT_PREFIX_SHA256_CBOR, .seed = "0" },
	  "c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb",
	  "4fc20387f12417cc1985d1a78c0c6d927da39705db5f211d85713ffb6ff4acfc" },
	{ "vllm", { .seed = "0", .salt = "s1" },
	  "a7e35e311104d2c478b3bf3aa5ee44a86ebac9eda9a1ec66787a6aad151115ab",
	  "c36b228b0640acf982a54aa00175216c8a03b13d4294af896598ab90b92fea41" },
	{ "vllm", { .seed = "0", .lora = "a", .lora_path = "/p/a" },
	  "06ec2e7a94f9871a23c33a7c4d18638b023e41a2279465a721749b4ab70464a4",
	  "b6ec360577edb323c4dc57f1a11656e92722fba3174e7532d50a07823b311b06" },
	{ "vllm", { .seed = "0", .nitems = 1, .item = &picture },
	  "1c455b2c512d6ef441e4200a41978d1905ac0c33b45b2f48a3296ae5cb469eca",
	  "4747ad25cd3746583ca3d26919fce9644d5cf3e069c853c995885d002856d6c2" },
	{ "vllm-0.30", { .seed = "0", .salt = "s1" },
	  "de73592a2bd9baf653a4998920440855b93469c73d62ec69ac9dd3a01f8f2427",
	  "a60845e531bb586b2e061cd5338aee220af33141ba63d6f6c5f4f56cac9dd5ff" },
	{ "vllm-0.28", { .seed = "0", .nitems = 1, .item = &picture },
	  "179ad9504195688a9e61c7bad7117f958c3628be9a11aadd04741e9b18f25c76",
	  "aeaad08d8304527f2753ece3a1d97f1d8f341cf8e6aab1f32202a8d427da5765" },
	{ "lmcache", { .without_vllm = true }, "44ea817d9387da2c", "78cf8e822f9a275b" },
	{ "lmcache-mp", { .seed = NULL },
	  "6309ed506b8721905753f5c73c070bb21c3aafbd9b474b1e231f41368b71123c",
	  "0b9604099a0a4e7b1a64bfa2768bec2dc1e83aa59a346caea18c8421311d7c1d" },
	{ "sglang", { .seed = NULL },
	  "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72",
	  "1dd622f8c37a4d7cbf588c11736202c2a59b7959c1cfebee674020e92fc549dd" },
	{ "sglang", { .salt = "s1" },
	  "669fbd8556430da4ecdf89a89f386093c34521fae2a44105e50171ae503793f3", NULL },
};

static void test_vectors(void)
{
	for (size_t i = 0; i < LENGTH(vectors); i++) {
		struct kvt_prefix_key key = vectors[i].key;
		char name[KVT_PREFIX_NAME];
		struct kvt_prefix chain;

		key.rule = kvt_prefix_rule_find(vectors[i].rule);
		ok(kvt_prefix_start(&chain, &key, &why));
		ok(kvt_prefix_next(&chain, A, 4, &why));
		kvt_prefix_name(name, &chain);
		assert_string_equal(name, vectors[i].a);
		ok(kvt_prefix_next(&chain, B, 4, &why));
		kvt_prefix_name(name, &chain);
		if (vectors[i].b)
			assert_string_equal(name, vectors[i].b);
	}
}

/* What cannot be known, and what an engine has not, is refused. */
static void test_refused(void)
{
	static const struct kvt_prefix_item twins[] = { { "x", 0, 2 }, { "x", 2, 4 } };
	static const struct {
		const char *rule;
		struct kvt_prefix_key key;
		enum kvt_status start, next;
	} rows[] = {
		{ "vllm", { .hash = KVT_PREFIX_XXHASH }, KVT_BAD_INPUT, KVT_OK },
		{ "vllm-0.28", { .seed = NULL }, KVT_BAD_INPUT, KVT_OK },
		{ "lmcache", { .seed = NULL }, KVT_BAD_INPUT, KVT_OK },
		{ "vllm", { .hash = KVT_PREFIX_BLAKE3 }, KVT_USAGE, KVT_OK },
		{ "sglang", { .seed = "0" }, KVT_USAGE, KVT_OK },
		{ "vllm", { .lora = "a" }, KVT_USAGE, KVT_OK },
		{ "flexkv", { .seed = NULL }, KVT_UNSUPPORTED, KVT_OK },
		{ "vllm", { .nitems = 2, .item = twins }, KVT_OK, KVT_BAD_INPUT },
		{ "vllm", { .hash = KVT_PREFIX_SHA256_CBOR, .nitems = 2, .item = twins },
		  KVT_OK, KVT_OK },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct kvt_prefix_key key = rows[i].key;
		struct kvt_prefix chain;

		key.rule = kvt_prefix_rule_find(rows[i].rule);
		assert_int_equal(kvt_prefix_start(&chain, &key, &why), rows[i].start);
		if (!rows[i].start)
			assert_int_equal(kvt_prefix_next(&chain, A, 4, &why),
					 rows[i].next);
	}
}

TESTS("prefix",
	TEST(test_vectors), TEST(test_refused))
