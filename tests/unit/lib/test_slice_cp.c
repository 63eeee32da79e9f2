/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slice_cp.c - tokens between context parallel ranks
 *
 * Tokens are dealt out here like cards, turn by turn; the moves carry their
 * numbers from hand to hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "lib/kvt/spec.h"

enum { MAXRANKS = 6, MAXTOKENS = 64, MOST = 512 };

struct hand {
	int n, token[MAXTOKENS];
};

static void deal(struct hand *hand, int ranks, int turn, int ntokens)
{
	int rank = 0, given = 0;

	memset(hand, 0, MAXRANKS * sizeof(*hand));
	for (int t = 0; t < ntokens; t++) {
		hand[rank].token[hand[rank].n++] = t;
		if (++given == turn) {
			given = 0;
			rank = (rank + 1) % ranks;
		}
	}
}

static int all_moves(struct kvt_move *moves, const struct kvt_cp_transfer *t)
{
	struct kvt_cp_walk walk = { 0 };
	int n = 0;

	while (kvt_cp_move_next(&moves[n], &walk, t))
		assert_true(++n < MOST);
	return n;
}

static void carry(const struct kvt_cp_transfer *t)
{
	static struct kvt_move moves[MOST];
	struct hand src[MAXRANKS], dst[MAXRANKS], got[MAXRANKS] = { { 0 } };
	struct kvt_proof proof;
	struct kvt_error err;
	int n = all_moves(moves, t);

	deal(src, (int)t->src_ranks, (int)t->src_interleave, (int)t->ntokens);
	deal(dst, (int)t->dst_ranks, (int)t->dst_interleave, (int)t->ntokens);
	for (int i = 0; i < n; i++) {
		const struct kvt_move *m = &moves[i];
		struct hand *to = &got[m->dst_rank];

		assert_true(m->count > 0 && m->src + m->count <= src[m->src_rank].n);
		assert_int_equal(m->dst, to->n);	/* in order, so once each */
		for (int64_t k = 0; k < m->count; k++)
			to->token[to->n++] = src[m->src_rank].token[m->src + k];
	}
	assert_memory_equal(got, dst, sizeof(got));
	for (int r = 0; r < t->dst_ranks; r++) {
		struct kvt_cp cp = { t->dst_ranks, r, t->dst_interleave };

		assert_int_equal(kvt_cp_count(&cp, t->ntokens), dst[r].n);
	}
	if (kvt_cp_moves_prove(&proof, t, moves, n, &err))
		fail_msg("%s", err.text);
	assert_int_equal(proof.moved, t->ntokens * t->layers);
	assert_int_equal(proof.unique, proof.moved);
}

static void test_transfers(void **state)
{
	(void)state;
	for (int ns = 1; ns <= MAXRANKS; ns++)
	for (int nd = 1; nd <= MAXRANKS; nd++)
	for (int is = 1; is <= 8; is *= 2)
	for (int id = 1; id <= 8; id += id < 3 ? 1 : 5)
	for (int tokens = 0; tokens <= MAXTOKENS; tokens += 1 + tokens / 3) {
		struct kvt_cp_transfer t = { ns, is, nd, id, tokens, 3 };

		carry(&t);
	}
}

/* 12 tokens of 2 ranks by turns of 2, to 3 ranks by turns of 1. */
static const struct broken {
	const char *what;
	int move;
	struct kvt_move change;		/* added to it; dst_rank 99: drop it */
	bool again;
	enum kvt_flaw flaw;
	const char *says;
} broken[] = {
	{ "dropped", 1, { .dst_rank = 99 }, false, KVT_FLAW_HOLE,
	  "rank 0, layer 0, token 3 is never written" },
	{ "last one dropped", 11, { .dst_rank = 99 }, false, KVT_FLAW_HOLE,
	  "rank 2, layer 0, token 11 is never written" },
	{ "dropped in one layer", 5, { .layers = { 1, 0 } }, false, KVT_FLAW_HOLE,
	  "rank 1, layer 0, token 4 is never written" },
	{ "twice", 4, { 0 }, true, KVT_FLAW_DOUBLE,
	  "rank 1, layer 0, token 1 is written twice (from rank 0)" },
	{ "the next token of the source", 0, { .src = 1 }, false, KVT_FLAW_MISPLACED,
	  "rank 0, layer 0, token 0 is written from another place of the model "
	  "(from rank 0)" },
	{ "another source", 0, { .src_rank = 1 }, false, KVT_FLAW_MISPLACED,
	  "rank 0, layer 0, token 0 is written from another place of the model "
	  "(from rank 1)" },
	{ "behind what the source has", 11, { .src = 9 }, false, KVT_FLAW_FOREIGN,
	  "rank 2, layer 0, token 11 is read where the source holds nothing" },
	{ "no such source", 2, { .src_rank = 2 }, false, KVT_FLAW_FOREIGN,
	  "(from rank 3)" },
	{ "no such destination", 2, { .dst_rank = 3 }, false, KVT_FLAW_SPILL, "rank 3" },
	{ "behind what the destination has", 11, { .dst = 1 }, false, KVT_FLAW_SPILL,
	  "rank 2, layer 0, position 4 is beyond" },
	{ "one layer too many", 2, { .layers = { 0, 1 } }, false, KVT_FLAW_SPILL,
	  "layer 3" },
};

static void test_broken(void **state)
{
	static const struct kvt_cp_transfer t = { 2, 2, 3, 1, 12, 3 };

	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		const struct broken *b = &broken[i];
		struct kvt_move moves[MOST], *m = &moves[b->move];
		int n = all_moves(moves, &t);
		struct kvt_proof proof;
		struct kvt_error err = { "" };

		assert_int_equal(n, 12);
		if (b->change.dst_rank == 99)
			memmove(m, m + 1, (size_t)(--n - b->move) * sizeof(*m));
		else if (b->again)
			moves[n++] = *m;
		m->src_rank += b->change.dst_rank == 99 ? 0 : b->change.src_rank;
		if (b->change.dst_rank != 99) {
			m->dst_rank += b->change.dst_rank;
			m->layers.begin += b->change.layers.begin;
			m->layers.end += b->change.layers.end;
			m->src += b->change.src;
			m->dst += b->change.dst;
		}
		assert_int_equal(kvt_cp_moves_prove(&proof, &t, moves, n, &err),
				 KVT_MISMATCH);
		if (proof.flaw != b->flaw || !strstr(err.text, b->says))
			fail_msg("%s: %s", b->what, err.text);
	}
}

static void test_any_move(void **state)
{
	static const struct kvt_cp_transfer t = { 3, 4, 4, 2, 61, 2 };
	struct kvt_move all[MOST], moves[MOST];
	int n = all_moves(all, &t);
	struct kvt_proof proof;

	(void)state;
	for (int i = 0; i < n; i++) {
		memcpy(moves, all, sizeof(all));
		moves[i] = moves[n - 1];
		assert_int_equal(kvt_cp_moves_prove(&proof, &t, moves, n - 1, NULL),
				 KVT_MISMATCH);
		assert_int_equal(proof.flaw, KVT_FLAW_HOLE);
		assert_int_equal(proof.dst_rank, all[i].dst_rank);
		assert_int_equal(proof.position, all[i].dst);
		memcpy(moves, all, sizeof(all));
		moves[n] = moves[i];
		assert_int_equal(kvt_cp_moves_prove(&proof, &t, moves, n + 1, NULL),
				 KVT_MISMATCH);
		assert_int_equal(proof.flaw, KVT_FLAW_DOUBLE);
		assert_int_equal(proof.position, all[i].dst);
	}
}

static void test_refused(void **state)
{
	static const struct kvt_cp_transfer bad[] = {
		{ 0, 1, 1, 1, 1, 1 }, { 1, 0, 1, 1, 1, 1 }, { 1, 1, -1, 1, 1, 1 },
		{ 1, 1, 1, 0, 1, 1 }, { 1, 1, 1, 1, -1, 1 }, { 1, 1, 1, 1, 1, -1 },
		{ 1, INT64_MAX, 1, 1, 1, 1 }, { 1, 1, 1, 1, INT64_C(1) << 31, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(kvt_cp_transfer_check(&bad[i], NULL), KVT_BAD_INPUT);
		assert_int_equal(kvt_cp_moves_prove(NULL, &bad[i], NULL, 0, NULL),
				 KVT_BAD_INPUT);
	}
}

#define TEST(f, sentence) { sentence, f, NULL, NULL, NULL }

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_transfers, "any ranks and turns, tokens dealt by hand"),
		TEST(test_broken, "moves broken by hand are named"),
		TEST(test_any_move, "any move dropped or doubled is named"),
		TEST(test_refused, "numbers that make no sense are refused"),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("slice cp", tests, NULL, NULL);
}
