/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spec_rows.c - each kind of cache that engines have, as one row
 *
 * The numbers are worked out by hand for a real model of each kind.  Whether a
 * number of ranks can share it follows here from a sentence for each rule, and
 * every transfer between numbers that can is proven.
 */
#include "lib/kvt/spec.h"
#include "tests/unit/tests.h"

/* ---- rows ---------------------------------------------------------------- */

enum rule {
	BY_HEAD,	/* shares, or replicas of neighbours */
	WHOLE,		/* every rank holds all of it */
	EVENLY,		/* shares only */
	PARTS,		/* channels, part by part */
};

struct row {
	const char *what, *preset;
	struct kvt_spec_args args;
	enum kvt_kind kind;
	int64_t heads;			/* of the model; 1 if headless */
	struct kvt_ratio tokens;	/* per slot */
	int64_t slots;
	int64_t content[2];		/* 0: one extent only */
	int64_t content_size;		/* bytes of a slot and head */
	int64_t page[2];		/* bytes, on 1 rank and on each of 4 */
	enum rule rule;
	int64_t unit[3];		/* of the parts */
};

#define GQA(n, d)  { .block_size = 16, .heads = n, .head_dim = d }
#define WINDOW(w)  { .block_size = 16, .heads = 8, .head_dim = 64, .window = w }
#define NEMOTRON   { .heads = 128, .head_dim = 64, .groups = 8, .state_size = 128, \
		     .kernel = 4 }
#define BAMBA      { .heads = 128, .head_dim = 64, .groups = 1, .state_size = 256, \
		     .kernel = 4 }
#define QWEN_NEXT  { .heads = 32, .head_dim = 128, .key_heads = 16, .key_dim = 128, \
		     .kernel = 4 }
#define JAMBA      { .inter = 8192, .state_size = 16, .kernel = 4 }
#define KIMI       { .heads = 32, .head_dim = 128, .kernel = 4 }
#define ALL        { -1, 1 }

static struct row rows[] = {
	/* the RFC's five */
	{ "GQA", "gqa", GQA(8, 128), KVT_FULL_ATTENTION, 8, { 1, 1 }, 16, { 2, 128 },
	  512, { 65536, 16384 }, BY_HEAD, { 0 } },
	{ "DeepSeek V4 of the RFC", "compressed",
	  { .block_size = 256, .heads = 8, .head_dim = 128, .ratio = 4 },
	  KVT_FULL_ATTENTION, 8, { 4, 1 }, 64, { 2, 128 }, 512, { 262144, 65536 },
	  BY_HEAD, { 0 } },
	{ "MLA", "mla", { .block_size = 64, .latent = 576 }, KVT_MLA, 1, { 1, 1 }, 64,
	  { 576 }, 1152, { 73728, 73728 }, WHOLE, { 0 } },
	{ "Mamba-2 conv", "mamba2-conv", NEMOTRON, KVT_MAMBA_CONV, 1, ALL, 1,
	  { 10240, 3 }, 61440, { 61440, 15360 }, PARTS, { 128, 8, 8 } },
	{ "Mamba-2 SSM", "mamba2-ssm", NEMOTRON, KVT_MAMBA_SSM, 128, ALL, 1,
	  { 64, 128 }, 32768, { 4194304, 1048576 }, EVENLY, { 0 } },

	/* attention of other shapes */
	{ "MQA", "gqa", GQA(1, 128), KVT_FULL_ATTENTION, 1, { 1, 1 }, 16, { 2, 128 },
	  512, { 8192, 8192 }, BY_HEAD, { 0 } },
	{ "GQA, K 192, V 128", "gqa",
	  { .block_size = 16, .heads = 4, .head_dim = 192, .head_dim_v = 128 },
	  KVT_FULL_ATTENTION, 4, { 1, 1 }, 16, { 320 }, 640, { 40960, 10240 },
	  BY_HEAD, { 0 } },
	{ "sliding window", "sliding-window", WINDOW(128), KVT_SLIDING_WINDOW, 8,
	  { 1, 1 }, 16, { 2, 64 }, 256, { 32768, 8192 }, BY_HEAD, { 0 } },
	{ "chunked local", "chunked-local", WINDOW(8192), KVT_CHUNKED_LOCAL, 8,
	  { 1, 1 }, 16, { 2, 64 }, 256, { 32768, 8192 }, BY_HEAD, { 0 } },
	{ "R-SWA", "rswa", WINDOW(1024), KVT_RSWA, 8, { 1, 1 }, 16, { 2, 64 }, 256,
	  { 32768, 8192 }, BY_HEAD, { 0 } },
	{ "cross attention, pooled", "cross",
	  { .block_size = 16, .heads = 4, .head_dim = 64, .ratio = 2 }, KVT_CROSS, 4,
	  { 1, 2 }, 32, { 2, 64 }, 256, { 32768, 8192 }, BY_HEAD, { 0 } },
	{ "fp8 and a scale a head", "fp8-per-token-head", GQA(8, 128),
	  KVT_FULL_ATTENTION, 8, { 1, 1 }, 16, { 264 }, 264, { 33792, 8448 },
	  BY_HEAD, { 0 } },
	{ "4 bits and a scale a head", "int4-per-token-head", GQA(8, 128),
	  KVT_FULL_ATTENTION, 8, { 1, 1 }, 16, { 136 }, 136, { 17408, 4352 },
	  BY_HEAD, { 0 } },

	/* DeepSeek */
	{ "V3.2 main", "fp8-ds-mla", { 0 }, KVT_MLA, 1, { 1, 1 }, 64, { 656 }, 656,
	  { 41984, 41984 }, WHOLE, { 0 } },
	{ "V3.2 indexer", "indexer", { 0 }, KVT_OPAQUE, 1, { 1, 1 }, 64, { 132 }, 132,
	  { 8448, 8448 }, WHOLE, { 0 } },
	{ "V4 indexer", "dsv4-indexer", { 0 }, KVT_OPAQUE, 1, { 4, 1 }, 64, { 132 },
	  132, { 8640, 8640 }, WHOLE, { 0 } },
	{ "V4 C4A", "dsv4-c4a", { 0 }, KVT_MLA, 1, { 4, 1 }, 64, { 584 }, 584,
	  { 37440, 37440 }, WHOLE, { 0 } },
	{ "V4 C4A, bf16", "dsv4-c4a-bf16", { 0 }, KVT_MLA, 1, { 4, 1 }, 64, { 512 },
	  1024, { 65536, 65536 }, WHOLE, { 0 } },
	{ "V4 C128A", "dsv4-c128a", { 0 }, KVT_MLA, 1, { 128, 1 }, 2, { 584 }, 584,
	  { 1728, 1728 }, WHOLE, { 0 } },
	{ "V4 C128A, bf16", "dsv4-c128a-bf16", { 0 }, KVT_MLA, 1, { 128, 1 }, 2,
	  { 512 }, 1024, { 2048, 2048 }, WHOLE, { 0 } },
	{ "V4 sliding window", "dsv4-swa", { 0 }, KVT_MLA, 1, { 1, 1 }, 64, { 584 },
	  584, { 37440, 37440 }, WHOLE, { 0 } },
	{ "V4 sliding window, bf16", "dsv4-swa-bf16", { 0 }, KVT_MLA, 1, { 1, 1 }, 64,
	  { 512 }, 1024, { 65536, 65536 }, WHOLE, { 0 } },
	{ "V4 compressor C4", "dsv4-compressor-c4", { 0 }, KVT_OPAQUE, 1, { 1, 1 }, 4,
	  { 2048 }, 8192, { 32832, 32832 }, WHOLE, { 0 } },
	{ "V4 compressor C128", "dsv4-compressor-c128", { 0 }, KVT_OPAQUE, 1, { 1, 1 },
	  8, { 1024 }, 4096, { 32832, 32832 }, WHOLE, { 0 } },

	/* recurrent states */
	{ "Mamba-2 conv of one group", "mamba2-conv", BAMBA, KVT_MAMBA_CONV, 1, ALL, 1,
	  { 8704, 3 }, 52224, { 52224, 15360 }, PARTS, { 128, 1, 1 } },
	{ "Mamba-1 conv", "mamba1-conv", JAMBA, KVT_MAMBA_CONV, 1, ALL, 1, { 8192, 3 },
	  49152, { 49152, 12288 }, PARTS, { 8192 } },
	{ "Mamba-1 SSM", "mamba1-ssm", JAMBA, KVT_MAMBA_SSM, 8192, ALL, 1, { 16 }, 64,
	  { 524288, 131072 }, EVENLY, { 0 } },
	{ "GDN conv", "gdn-conv", QWEN_NEXT, KVT_MAMBA_CONV, 1, ALL, 1, { 8192, 3 },
	  49152, { 49152, 12288 }, PARTS, { 16, 16, 32 } },
	{ "GDN SSM", "gdn-ssm", QWEN_NEXT, KVT_MAMBA_SSM, 32, ALL, 1, { 128, 128 },
	  65536, { 2097152, 524288 }, EVENLY, { 0 } },
	{ "KDA conv", "kda-conv", KIMI, KVT_MAMBA_CONV, 1, ALL, 1, { 12288, 3 }, 73728,
	  { 73728, 18432 }, PARTS, { 32, 32, 32 } },
	{ "KDA state", "kda-ssm", KIMI, KVT_MAMBA_SSM, 32, ALL, 1, { 128, 128 }, 65536,
	  { 2097152, 524288 }, EVENLY, { 0 } },
	{ "short convolution", "short-conv", { .inter = 2048, .kernel = 3 },
	  KVT_MAMBA_CONV, 1, ALL, 1, { 2048, 2 }, 8192, { 8192, 2048 }, PARTS,
	  { 2048 } },
	{ "linear attention", "linear-attention", { .heads = 16, .head_dim = 64 },
	  KVT_MAMBA_SSM, 16, ALL, 1, { 64, 64 }, 16384, { 262144, 65536 }, EVENLY,
	  { 0 } },
};

static struct kvt_spec make(const struct row *row, struct kvt_rank rank)
{
	struct kvt_spec spec;

	if (kvt_spec_make(&spec, row->preset, &row->args, rank, &why))
		fail_msg("rank %d of %d: %s", (int)rank.index, (int)rank.size, why.text);
	return spec;
}

/* ---- what a row says ------------------------------------------------------ */

static void check_numbers(const struct row *row)
{
	struct kvt_spec spec = make(row, (struct kvt_rank){ 1, 0 });
	struct kvt_spec_size size;

	assert_int_equal(spec.kind, row->kind);
	assert_int_equal(spec.num_heads, row->heads);
	assert_int_equal(spec.total_heads, row->heads);
	assert_int_equal(spec.tokens_per_slot.num, row->tokens.num);
	assert_int_equal(spec.tokens_per_slot.den, row->tokens.den);
	assert_int_equal(spec.ncontent, row->content[1] ? 2 : 1);
	assert_int_equal(spec.content[0], row->content[0]);
	if (row->content[1])
		assert_int_equal(spec.content[1], row->content[1]);
	assert_int_equal(spec.content_size, row->content_size);
	assert_false(kvt_spec_size(&size, &spec, NULL));
	assert_int_equal(size.num_slots, row->slots);
	assert_int_equal(size.page, row->page[0]);
	for (int r = 0; r < 4; r++) {
		spec = make(row, (struct kvt_rank){ 4, r });
		assert_false(kvt_spec_size(&size, &spec, NULL));
		assert_int_equal(size.page, row->page[1]);
		if (row->rule == WHOLE) {
			assert_int_equal(spec.num_heads, 1);
			assert_int_equal(spec.replication, 4);
		}
	}
}

static bool can_share(const struct row *row, int ranks)
{
	if (row->rule == WHOLE)
		return true;
	if (row->rule == BY_HEAD)
		return row->heads % ranks == 0 || ranks % row->heads == 0;
	if (row->rule == EVENLY)
		return row->heads % ranks == 0;
	for (int p = 0; p < 3; p++) {
		bool twice = !strcmp(row->preset, "mamba2-conv") && p > 0;

		if (row->unit[p] && row->unit[p] % ranks &&
		    !(twice && ranks % row->unit[p] == 0))
			return false;
	}
	return true;
}

/* ---- every transfer -------------------------------------------------------- */

enum { MOST = 1 << 15 };

static void prove(const struct row *row, int ns, int nd, struct kvt_move *moves)
{
	struct kvt_spec whole = make(row, (struct kvt_rank){ 1, 0 });
	struct kvt_transfer t = { &whole, &whole, ns, nd, 3 };
	int64_t width = row->rule == PARTS ? row->content[0] : row->heads, n = 0;
	struct kvt_move_walk walk = { 0 };
	struct kvt_proof proof;

	if (!can_share(row, ns) || !can_share(row, nd)) {
		expect(kvt_transfer_check(&t, &why), KVT_BAD_INPUT, NULL);
		return;
	}
	if (kvt_transfer_check(&t, &why))
		fail_msg("%d to %d: %s", ns, nd, why.text);
	while (kvt_move_next(&moves[n], &walk, &t))
		assert_true(++n < MOST);
	if (kvt_moves_prove(&proof, &t, moves, n, &why))
		fail_msg("%d to %d: %s", ns, nd, why.text);
	assert_int_equal(proof.unique, width * 3);
	/* the ranks together hold what arrived */
	for (int d = 0; d < nd; d++) {
		struct kvt_spec spec = make(row, (struct kvt_rank){ nd, d });

		proof.moved -= 3 * (row->rule == PARTS ? spec.content[0] :
							 spec.num_heads);
	}
	assert_int_equal(proof.moved, 0);
	/* and no proof without the first of them */
	expect(kvt_moves_prove(&proof, &t, moves + 1, n - 1, &why), KVT_MISMATCH, NULL);
	assert_int_equal(proof.flaw, KVT_FLAW_HOLE);
}

static void test_row(void **state)
{
	static const int sizes[] = { 1, 2, 3, 4, 6, 8, 16, 32 };
	static struct kvt_move moves[MOST];
	const struct row *row = *state;

	check_numbers(row);
	for (int s = 0; s < 8; s++)
		for (int d = 0; d < 8; d++)
			prove(row, sizes[s], sizes[d], moves);
}

TESTS("spec rows",
	EACH(rows, test_row))
