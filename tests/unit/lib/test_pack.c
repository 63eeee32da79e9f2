/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pack.c - which caches share a group, as vLLM 0.32 answered for pairs of specs
 *
 * Random models are held against the engine itself in tests/engines/vllm_specs.py.
 */
#include "lib/kvt/model.h"
#include "tests/unit/tests.h"

static void size_of(struct kvt_model_size *out, const char *const caches[3])
{
	const struct kvt_deployment d = { .tp = 1, .block_size = 16,
					  .cache_dtype = "bfloat16", .apart = true,
					  .release = KVT_NEWEST_RELEASE };
	struct kvt_model model = { .ngroups = 0 };

	for (int i = 0; i < 3 && caches[i]; i++)
		if (kvt_model_group_parse(&model.group[model.ngroups++], caches[i], &why))
			fail_msg("%s: %s", caches[i], why.text);
	ok(kvt_model_size(out, &model, &d, &why));
}

#define FULL8 "gqa:layers=2,heads=8,head-dim=128"
#define FULL4 "gqa:layers=2,heads=4,head-dim=128"
#define MLA "mla:layers=2,latent=576"
#define RSWA "rswa:layers=2,heads=8,head-dim=128,window=64"
#define WINDOW(w) "sliding-window:layers=2,heads=8,head-dim=128,window=" w
#define WINDOW_MLA(w) "mla:layers=2,latent=576,window=" w
#define CHUNK(w) "chunked-local:layers=2,heads=8,head-dim=128,window=" w
#define RING(d) "ring:layers=2,heads=1,block-size=16,head-dim=" d
#define SINK "sink:layers=2,heads=8,head-dim=128"
#define STATE(n) "mamba1-ssm:layers=2,inter=1024,state-size=" n

/* B outermost, where pages need not be equal: groups of the two. */
static const struct {
	const char *cache[3];
	int64_t groups;
} pairs[] = {
	{ { FULL8, FULL8 }, 1 },	{ { FULL8, FULL8 ",window=128" }, 1 },
	{ { FULL8, FULL4 }, 1 },	{ { FULL8, MLA }, 1 },
	{ { FULL8, RSWA }, 1 },		{ { FULL8, SINK }, 1 },
	{ { MLA, MLA ",leader=1" }, 1 },
	{ { FULL8, FULL8 ",block-size=32" }, 2 },
	{ { FULL8, WINDOW("128") }, 2 },	{ { FULL8, CHUNK("64") }, 2 },
	{ { WINDOW("128"), WINDOW("128") }, 1 },
	{ { WINDOW("128"), WINDOW("256") }, 2 },
	{ { CHUNK("64"), CHUNK("128") }, 2 },
	{ { WINDOW("128"), CHUNK("128") }, 2 },
	/* whichever comes first says which are of its type; a block is the widest page */
	{ { WINDOW("128"), WINDOW_MLA("128") }, 1 },
	{ { WINDOW_MLA("128"), WINDOW("128") }, 3 },
	{ { WINDOW_MLA("128"), WINDOW_MLA("128") ",replay=1" }, 2 },
	{ { RING("128"), RING("64") }, 1 },
	{ { STATE("16"), STATE("16") }, 1 },
	{ { STATE("16"), STATE("32") }, 3 },	/* one, and one layer of the other */
	{ { STATE("16"), "conv-whole:layers=2,inter=1024,kernel=4" }, 3 },
};

static void pack(struct kvt_pack *out, struct kvt_model_size *size,
		 const char *const caches[3], const char *name)
{
	struct kvt_layout layout;

	size_of(size, caches);
	ok(kvt_layout_parse(&layout, name, NULL));
	if (kvt_model_pack(out, size, &layout, &why))
		fail_msg("%s, %s: %s", caches[0], caches[1], why.text);
}

static void test_pairs(void)
{
	for (size_t i = 0; i < LENGTH(pairs); i++) {
		struct kvt_model_size size;
		struct kvt_pack p;

		pack(&p, &size, pairs[i].cache, "BLHNC");
		if (p.ngroups != pairs[i].groups)
			fail_msg("%s, %s: %d groups, expected %d", pairs[i].cache[0],
				 pairs[i].cache[1], (int)p.ngroups, (int)pairs[i].groups);
	}
}

/* All groups begin at byte 0, and a block has room for the largest. */
static void test_overlay(void)
{
	static const char *const caches[3] = { FULL8, MLA, WINDOW("128") };
	const struct kvt_demand demand = { .tokens = 1000, .in_flight = 100 };
	struct kvt_model_size size;
	struct kvt_pack p;
	int64_t n;

	pack(&p, &size, caches, "BLHNC");
	assert_int_equal(p.ngroups, 2);
	assert_int_equal(p.run[0].nparts, 2);
	assert_int_equal(p.run[0].part[0].offset, 0);
	assert_int_equal(p.run[0].part[1].offset, 2 * 65536);
	assert_int_equal(p.run[1].part[0].offset, 0);
	assert_int_equal(p.run[0].nbytes, 2 * 65536 + 2 * 18432);
	assert_int_equal(p.run[1].nbytes, 2 * 65536);
	assert_int_equal(p.block_nbytes, p.run[0].nbytes);
	/* 63 blocks of 1000 tokens; a window of 127 and 100 tokens, and one more */
	ok(kvt_pack_request(&n, &size, &p, &demand, NULL));
	assert_int_equal(n, 63 + 16);
	/* one after the other in pages of the layers, where L is outermost */
	pack(&p, &size, (const char *const[3]){ FULL8, MLA }, "LBNHC");
	assert_int_equal(p.run[0].part[1].offset, -1);
}

/* A smaller page takes more tokens; a state, padding. */
static void test_equal(void)
{
	static const char *const caches[3] = { "gqa:layers=2,heads=8,head-dim=256",
					       WINDOW("128"), STATE("16") };
	struct kvt_model_size size;
	struct kvt_pack p;

	pack(&p, &size, caches, "LBNHC");
	assert_int_equal(p.ngroups, 3);
	for (int r = 0; r < 3; r++)
		assert_int_equal(p.run[r].part[0].page, 131072);
	assert_int_equal(p.run[0].part[0].block_size, 16);
	assert_int_equal(p.run[1].part[0].block_size, 32);
	assert_int_equal(p.block_nbytes, 2 * 131072);
}

/* Strides are kept: of the whole block where B is outermost, else of each page. */
static void test_strides(void)
{
	static const char *const caches[3] = {
		"indexer:layers=3,block-size=64,stride=512"
	};
	struct kvt_model_size size;
	struct kvt_pack p;

	pack(&p, &size, caches, "BLHNC");
	assert_int_equal(p.block_nbytes, (3 * 8448 + 511) / 512 * 512);
	pack(&p, &size, caches, "LBNHC");
	assert_int_equal(p.block_nbytes, 3 * ((8448 + 511) / 512 * 512));
}

TESTS("pools",
	TEST(test_pairs), TEST(test_overlay), TEST(test_equal), TEST(test_strides))
