/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slice_proof.c - what the proof accepts, and what it says of broken moves
 *
 * The slicer that was sketched in the layout RFC (vLLM #42082) is here to be
 * caught: it loses heads in most transfers between unequal numbers of ranks.
 */
#include "lib/kvt/spec.h"
#include "tests/unit/tests.h"

enum { MAX = 4096, LAYERS = 3 };

static struct kvt_spec heads_spec(int64_t heads)
{
	return (struct kvt_spec){
		.kind = KVT_FULL_ATTENTION, .block_size = 16, .num_heads = heads,
		.total_heads = heads, .replication = 1, .tokens_per_slot = { 1, 1 },
		.content_size = 512,
	};
}

static struct kvt_spec conv_spec(int64_t heads, int64_t groups)
{
	return (struct kvt_spec){
		.kind = KVT_MAMBA_CONV, .block_size = 16, .num_heads = 1,
		.total_heads = 1, .replication = 1, .tokens_per_slot = { -1, 1 },
		.content_size = (heads * 2 + groups * 6) * 3 * 2, .ncontent = 2,
		.content = { heads * 2 + groups * 6, 3 }, .elem = 2, .nparts = 3,
		.part = { { "x", heads, 2, true }, { "B", groups, 3, false },
			  { "C", groups, 3, false } },
	};
}

static int64_t all_moves(struct kvt_move *moves, const struct kvt_transfer *t)
{
	struct kvt_move_walk walk = { 0 };
	int64_t n = 0;

	while (kvt_move_next(&moves[n], &walk, t))
		assert_true(++n < MAX);
	return n;
}

static bool can_deal(int heads, int ranks)
{
	return heads % ranks == 0 || ranks % heads == 0;
}

/* ---- moves that are right ------------------------------------------------ */

static void test_proves(void)
{
	static const int heads[] = { 1, 2, 3, 4, 6, 8, 16 };
	static struct kvt_move moves[MAX];
	struct kvt_proof proof;

	for (int i = 0; i < 7; i++)
	for (int ns = 1; ns <= 32; ns++)
	for (int nd = 1; nd <= 32; nd++) {
		struct kvt_spec spec = heads_spec(heads[i]);
		struct kvt_transfer t = { &spec, &spec, ns, nd, LAYERS };

		if (!can_deal(heads[i], ns) || !can_deal(heads[i], nd))
			continue;
		if (kvt_moves_prove(&proof, &t, moves, all_moves(moves, &t), &why))
			fail_msg("%d heads, %d to %d: %s", heads[i], ns, nd, why.text);
		assert_int_equal(proof.flaw, KVT_FLAW_NONE);
		assert_int_equal(proof.unique, heads[i] * LAYERS);
		assert_int_equal(proof.moved,
				 (nd > heads[i] ? nd : heads[i]) * LAYERS);
	}
}

static void test_proves_conv(void)
{
	static struct kvt_move moves[MAX];

	for (int groups = 1; groups <= 8; groups *= 2)
	for (int ns = 1; ns <= 32; ns *= 2)
	for (int nd = 1; nd <= 32; nd *= 2) {
		struct kvt_spec spec = conv_spec(32, groups);
		struct kvt_transfer t = { &spec, &spec, ns, nd, LAYERS };
		struct kvt_proof proof;
		int held = groups > nd ? groups : nd;

		if (kvt_moves_prove(&proof, &t, moves, all_moves(moves, &t), &why))
			fail_msg("%d groups, %d to %d: %s", groups, ns, nd, why.text);
		assert_int_equal(proof.unique, (64 + groups * 6) * LAYERS);
		assert_int_equal(proof.moved, (64 + held * 6) * LAYERS);
	}
}

/* ---- moves that are wrong ------------------------------------------------ */

struct broken {
	const char *what;
	int move;			/* of 8 heads from 4 to 2 ranks, or conv */
	struct kvt_move change;		/* added to it; dst_rank 99: drop it */
	bool again;			/* as well as it */
	enum kvt_flaw flaw;
	const char *says;
};

/* Moves, in order: 0->0 0,1; 1->0 2,3; 2->1 4,5; 3->1 6,7. */
static const struct broken heads_broken[] = {
	{ "dropped", 1, { .dst_rank = 99 }, false, KVT_FLAW_HOLE,
	  "rank 0, layer 0, head 2 is never written" },
	{ "last one dropped", 3, { .dst_rank = 99 }, false, KVT_FLAW_HOLE,
	  "rank 1, layer 0, head 6 is never written" },
	{ "twice", 2, { 0 }, true, KVT_FLAW_DOUBLE,
	  "rank 1, layer 0, head 4 is written twice (from rank 2)" },
	{ "one layer missing", 2, { .layers = { 0, -1 } }, false, KVT_FLAW_HOLE,
	  "rank 1, layer 2, head 4 is never written" },
	{ "first layer missing", 1, { .layers = { 1, 0 } }, false, KVT_FLAW_HOLE,
	  "rank 0, layer 0, head 2 is never written" },
	{ "a layer too many", 1, { .layers = { 0, 1 } }, false, KVT_FLAW_SPILL,
	  "rank 0, layer 3, head 2 is outside the destination" },
	{ "a layer twice", 3, { .layers = { 2, 0 } }, true, KVT_FLAW_DOUBLE,
	  "rank 1, layer 2, head 6 is written twice" },
	{ "short", 0, { .count = -1 }, false, KVT_FLAW_HOLE,
	  "rank 0, layer 0, head 1 is never written" },
	{ "long", 0, { .count = 1 }, false, KVT_FLAW_FOREIGN,
	  "rank 0, layer 0, head 2 is read where the source has no data" },
	{ "empty", 0, { .count = -2 }, false, KVT_FLAW_SPILL, "rank 0, layer 0" },
	{ "read one later", 0, { .src = 1, .count = -1 }, false, KVT_FLAW_MISPLACED,
	  "rank 0, layer 0, head 0 is written from another head or channel of the "
	  "model" },
	{ "read before the first", 0, { .src = -1 }, false, KVT_FLAW_FOREIGN,
	  "rank 0, layer 0, head 0 is read where" },
	{ "written one later", 0, { .dst = 1 }, false, KVT_FLAW_MISPLACED,
	  "rank 0, layer 0, head 1 is written from another head or channel" },
	{ "written beyond the rank", 3, { .dst = 1 }, false, KVT_FLAW_SPILL,
	  "rank 1, layer 0, position 4 is outside the destination" },
	{ "written before the rank", 3, { .dst = -3 }, false, KVT_FLAW_SPILL,
	  "rank 1, layer 0, position -1 is outside the destination" },
	{ "to the wrong rank", 0, { .dst_rank = 1 }, false, KVT_FLAW_MISPLACED,
	  "rank 1, layer 0, head 4 is written from another head or channel of the model "
	  "(from rank 0)" },
	{ "to no rank", 3, { .dst_rank = 1 }, false, KVT_FLAW_SPILL, "rank 2, layer 0" },
	{ "from no rank", 3, { .src_rank = 1 }, false, KVT_FLAW_FOREIGN,
	  "(from rank 4)" },
	{ "from the neighbour", 3, { .src_rank = -1 }, false, KVT_FLAW_MISPLACED,
	  "rank 1, layer 0, head 6 is written from another head or channel of the model "
	  "(from rank 2)" },
	{ "far beyond 2^63", 1, { .src = INT64_MAX - 2 }, false, KVT_FLAW_FOREIGN,
	  "rank 0, layer 0, head 2 is read where the source has no data" },
	{ "written far beyond 2^63", 1, { .dst = INT64_MAX - 2 }, false,
	  KVT_FLAW_SPILL, "" },
};

/* 32 heads, 1 group, 1 to 2 ranks.  Moves: rank 0 x, B, C; rank 1 x, B, C. */
static const struct broken conv_broken[] = {
	{ "C dropped", 5, { .dst_rank = 99 }, false, KVT_FLAW_HOLE,
	  "rank 1, layer 0, C 0 is never written" },
	{ "B halved, as if it were dealt out", 1, { .count = -1 }, false,
	  KVT_FLAW_HOLE, "rank 0, layer 0, B 2 is never written" },
	{ "x straddles B", 0, { .count = 1 }, false, KVT_FLAW_MISPLACED,
	  "rank 0, layer 0, B 0 is written from another head or channel" },
	{ "C read where B is", 2, { .src = -3 }, false, KVT_FLAW_MISPLACED,
	  "rank 0, layer 0, C 0 is written from another head or channel" },
	{ "C read behind the state", 2, { .src = 1 }, false, KVT_FLAW_FOREIGN,
	  "rank 0, layer 0, C 2 is read where the source has no data" },
};

static void caught(const struct kvt_transfer *t, const struct broken *b)
{
	struct kvt_move moves[16];
	int64_t n = all_moves(moves, t);
	struct kvt_move *m = &moves[b->again ? n : b->move];
	struct kvt_proof proof;

	if (b->again)
		moves[n++] = moves[b->move];
	m->src_rank += b->change.src_rank;
	m->dst_rank += b->change.dst_rank;
	m->layers.begin += b->change.layers.begin;
	m->layers.end += b->change.layers.end;
	m->src += b->change.src;
	m->dst += b->change.dst;
	m->count += b->change.count;
	if (b->change.dst_rank == 99)
		*m = moves[--n];
	assert_int_equal(kvt_moves_prove(&proof, t, moves, n, &why), KVT_MISMATCH);
	if (!strstr(why.text, b->says) || proof.flaw != b->flaw)
		fail_msg("%s: \"%s\" (%d), expected \"%s\" (%d)", b->what, why.text,
			 proof.flaw, b->says, b->flaw);
}

static void test_broken(void)
{
	struct kvt_spec eight = heads_spec(8), conv = conv_spec(32, 1);
	struct kvt_transfer halve = { &eight, &eight, 4, 2, LAYERS };
	struct kvt_transfer split = { &conv, &conv, 1, 2, LAYERS };

	for (size_t i = 0; i < LENGTH(heads_broken); i++)
		caught(&halve, &heads_broken[i]);
	for (size_t i = 0; i < LENGTH(conv_broken); i++)
		caught(&split, &conv_broken[i]);
}

/* In every transfer, any move left out or made twice shows, and where. */
static void test_any_move(void)
{
	static const int heads[] = { 1, 2, 3, 4, 6, 8, 16 };
	static struct kvt_move moves[MAX], copy[MAX];
	int64_t tried = 0;

	for (int i = 0; i < 7; i++)
	for (int ns = 1; ns <= 12; ns++)
	for (int nd = 1; nd <= 12; nd++) {
		struct kvt_spec spec = heads_spec(heads[i]);
		struct kvt_transfer t = { &spec, &spec, ns, nd, LAYERS };
		struct kvt_proof p;
		int64_t n;

		if (!can_deal(heads[i], ns) || !can_deal(heads[i], nd))
			continue;
		n = all_moves(moves, &t);
		for (int64_t m = 0; m < n; m++, tried++) {
			memcpy(copy, moves, (size_t)n * sizeof(*copy));
			copy[m] = copy[n - 1];
			assert_int_equal(kvt_moves_prove(&p, &t, copy, n - 1, NULL),
					 KVT_MISMATCH);
			assert_int_equal(p.flaw, KVT_FLAW_HOLE);
			assert_int_equal(p.dst_rank, moves[m].dst_rank);
			assert_int_equal(p.position, moves[m].dst);
			memcpy(copy, moves, (size_t)n * sizeof(*copy));
			copy[n] = moves[m];
			assert_int_equal(kvt_moves_prove(&p, &t, copy, n + 1, NULL),
					 KVT_MISMATCH);
			assert_int_equal(p.flaw, KVT_FLAW_DOUBLE);
			assert_int_equal(p.dst_rank, moves[m].dst_rank);
			assert_int_equal(p.position, moves[m].dst);
		}
	}
	assert_true(tried > 1000);
}

/* ---- the RFC's sample, as written ---------------------------------------- */

/* Local range on the caller's side; -1: an empty list. */
static int sample(int *begin, int my_heads, int my_ranks, int my_rank,
		  int other_heads, int other_ranks, int other_rank)
{
	int lo, hi;

	if (other_ranks * other_heads > my_ranks * my_heads)
		other_rank %= my_ranks;
	else if (my_rank >= other_ranks)
		return -1;
	lo = my_rank * my_heads;
	if (other_rank * other_heads > lo)
		lo = other_rank * other_heads;
	hi = (my_rank + 1) * my_heads;
	if ((other_rank + 1) * other_heads < hi)
		hi = (other_rank + 1) * other_heads;
	if (lo > hi)		/* should be >=: ranges that touch pass */
		return -1;
	*begin = lo - my_rank * my_heads;
	return hi - lo;
}

static int heads_each(int heads, int ranks)
{
	return heads > ranks ? heads / ranks : 1;
}

struct sampled {
	int64_t n;
	int empty;			/* slices of no head */
	struct kvt_move moves[MAX];
};

/* Both sides are asked and zipped, as the RFC's own loop does. */
static void sample_zipped(struct sampled *out, int heads, int64_t ns, int64_t nd)
{
	int hs = heads_each(heads, ns), hd = heads_each(heads, nd);

	out->n = out->empty = 0;
	for (int d = 0; d < nd; d++)
		for (int s = 0; s < ns; s++) {
			int from = 0, to = 0, n = sample(&from, hs, ns, s, hd, nd, d);
			int m = sample(&to, hd, nd, d, hs, ns, s);

			if (n == 0)
				out->empty++;
			if (n > 0 && m > 0)
				out->moves[out->n++] = (struct kvt_move){ s, d,
					{ 0, LAYERS }, from, to, n };
		}
}

/* Only the source is asked; the destination takes heads where they belong. */
static void sample_source(struct sampled *out, int heads, int64_t ns, int64_t nd)
{
	int hs = heads_each(heads, ns), hd = heads_each(heads, nd);

	out->n = out->empty = 0;
	for (int d = 0; d < nd; d++) {
		int filled = 0;

		for (int s = 0; s < ns; s++) {
			int from = 0, n = sample(&from, hs, ns, s, hd, nd, d);

			if (n == 0)
				out->empty++;
			if (n < 1)
				continue;
			out->moves[out->n++] = (struct kvt_move){ s, d,
				{ 0, LAYERS }, from, filled, n };
			filled += n;
		}
	}
}

static void test_sample(void)
{
	static struct sampled s;
	int zipped = 0, source = 0, empty = 0, grow1 = 0, unequal = 0, tried = 0;

	for (int heads = 1; heads <= 16; heads *= 2)
	for (int ns = 1; ns <= 32; ns *= 2)
	for (int nd = 1; nd <= 32; nd *= 2) {
		struct kvt_spec spec = heads_spec(heads);
		struct kvt_transfer t = { &spec, &spec, ns, nd, LAYERS };
		enum kvt_status status;

		tried++;
		sample_zipped(&s, heads, ns, nd);
		status = kvt_moves_prove(NULL, &t, s.moves, s.n, NULL);
		zipped += status == KVT_MISMATCH;
		grow1 += status == KVT_MISMATCH && heads == 1 && ns < nd;
		unequal += status == KVT_MISMATCH && heads > 1 && ns != nd;
		if (ns == nd)
			ok(status);
		sample_source(&s, heads, ns, nd);
		empty += s.empty;
		source += kvt_moves_prove(NULL, &t, s.moves, s.n, NULL) == KVT_MISMATCH;
	}
	assert_int_equal(tried, 180);
	assert_int_equal(zipped, 135);
	assert_int_equal(unequal, 120);
	assert_int_equal(grow1, 15);
	assert_int_equal(source, 100);
	assert_int_equal(empty, 2088);
}

/* The smallest counterexamples, and how the proof puts them. */
static void test_sample_examples(void)
{
	static const struct {
		int heads, ns, nd;
		bool zipped;
		const char *says;
	} examples[] = {
		{ 2, 2, 1, false, "rank 0, layer 0, head 1 is never written" },
		{ 8, 4, 2, false, "rank 1, layer 0, head 4 is never written" },
		{ 2, 2, 4, false, "rank 1, layer 0, head 0 is written from another "
				  "head or channel of the model (from rank 1)" },
		{ 4, 4, 8, false, "rank 1, layer 0, head 0 is written from another "
				  "head or channel of the model (from rank 1)" },
		{ 2, 4, 2, false, "rank 1, layer 0, head 1 is written from another "
				  "head or channel of the model (from rank 1)" },
		{ 8, 1, 2, true, "rank 1, layer 0, head 4 is never written" },
	};
	static struct sampled s;

	for (size_t i = 0; i < LENGTH(examples); i++) {
		struct kvt_spec spec = heads_spec(examples[i].heads);
		struct kvt_transfer t = { &spec, &spec, examples[i].ns,
					  examples[i].nd, LAYERS };

		if (examples[i].zipped)
			sample_zipped(&s, examples[i].heads, t.src_ranks, t.dst_ranks);
		else
			sample_source(&s, examples[i].heads, t.src_ranks, t.dst_ranks);
		expect(kvt_moves_prove(NULL, &t, s.moves, s.n, &why), KVT_MISMATCH,
		       examples[i].says);
	}
	sample_zipped(&s, 4, 4, 4);	/* ranges (0,1) and (1,2) only touch */
	assert_int_equal(s.empty, 6);
}

TESTS("slice proof",
	NAMED(test_proves, "all heads, TP 1 to 32, both ways"),
	NAMED(test_proves_conv, "x, B and C, TP 1 to 32, both ways"),
	NAMED(test_broken, "moves broken by hand are named"),
	NAMED(test_any_move, "any move dropped or doubled is named"),
	NAMED(test_sample, "the RFC's sample fails where it should"),
	NAMED(test_sample_examples, "the RFC's counterexamples are named"))
