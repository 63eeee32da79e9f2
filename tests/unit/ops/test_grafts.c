/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_grafts.c - what a transfer makes of a destination, and what its plan copies
 *
 * Ranks of random models in memory, moved to a destination with another layout, TP
 * size and block size in two ways: the plan's regions, one strided copy after the
 * other, from the ranks of the source to arrays; and the derived dumps that exec
 * writes, read whole.  They share the list of slots that move, and nothing that turns
 * it into addresses.
 */
#include "tests/fewer.h"
#include "tests/unit/fixture.h"
#include "tests/unit/random.h"

#include "lib/kvt/kernels.h"
#include "sim/ops/exec.h"

enum { HEADS = 4, MOST_RANKS = 4, POOL = 12, FILL = 0x5a };

static const char *const layouts[] = {
	"LBSHKD", "LBHSKD", "BLSHKD", "BHLSKD", "LBKSHD", "KLBHSD", "LBHKDS",
};
enum { NLAYOUTS = LENGTH(layouts) };

/* ---- the source --------------------------------------------------------- */

/* What all ranks have alike. */
struct model {
	int64_t layers, slots, channels, ranks;
	int64_t tokens[2], shared;	/* blocks that both requests begin with */
	uint32_t block[POOL];
	bool recurrent;			/* a second group, of recurrent slots */
	const char *layout;
};

static struct model draw_model(void)
{
	struct model m = {
		.layers = 1 + below(3), .slots = 2 << below(3),
		.channels = 2 << below(2),
		.ranks = 1 << below(3), .shared = below(3), .recurrent = below(2),
		.layout = layouts[below(NLAYOUTS)],
	};

	for (int i = 0; i < POOL; i++)
		m.block[i] = (uint32_t)i;
	for (int i = POOL - 1; i > 0; i--) {
		int64_t j = below(i + 1);
		uint32_t block = m.block[i];

		m.block[i] = m.block[j];
		m.block[j] = block;
	}
	for (int i = 0; i < 2; i++)
		m.tokens[i] = m.shared * m.slots + 1 + below(3 * m.slots);
	return m;
}

static void add_requests(struct kvt_snapshot *s, const struct model *m)
{
	int64_t next = m->shared;

	for (int i = 0; i < 2; i++) {
		int64_t n = (m->tokens[i] + m->slots - 1) / m->slots;
		uint32_t table[POOL];

		for (int64_t b = 0; b < n; b++)
			table[b] = m->block[b < m->shared ? b : next++];
		assert_true(next <= POOL);
		add_request(s, i ? "b" : "a", m->tokens[i], (int)n, table);
		if (m->recurrent)
			add_table(s, 1, IDS(2 * (uint32_t)i + 1, 2 * (uint32_t)i));
	}
}

static struct made *make_rank(const struct model *m, int64_t rank)
{
	int64_t heads = HEADS / m->ranks;
	const int64_t n[] = { m->layers, POOL, m->slots, heads, 2, m->channels };
	const int64_t last[] = { 2, 5, 1, heads, 1, 8 };
	struct kvt_snapshot *s = new_snapshot();
	struct kvt_group *g;

	set_rank(s, m->ranks, rank);
	g = new_group(s, "attention", KVT_FULL_ATTENTION, m->layout, n);
	g->total_heads = HEADS;
	g->head_start = rank * heads;
	if (m->recurrent) {
		g = new_group(s, "ssm", KVT_MAMBA_SSM, "LBSHKD", last);
		g->total_heads = HEADS;
		g->head_start = rank * heads;
	}
	add_requests(s, m);
	return make_dump(s, placed, 0);
}

/* ---- both ways ---------------------------------------------------------- */

static int64_t group_bytes(const struct kvt_group *g)
{
	const struct kvt_box all = kvt_box_whole(&g->shape);

	return box_bytes(g, &all);
}

/* All regions of the plan that write to a group; 'to' are its ranks. */
static void run_regions(uint8_t *const *to, const struct kvt_sides *sides, int group,
			struct made *const *from)
{
	for (int p = 0; p < sides->transfer.ngroups; p++) {
		const struct kvt_transfer_group *part = &sides->transfer.group[p];
		struct kvt_pair_walk walk = { 0, 0 };
		struct kvt_pair pair;

		while (part->dst_group == group &&
		       kvt_pair_next(&pair, &walk, &part->xfer)) {
			struct kvt_xfer_regions regions;
			struct kvt_xfer_region region;
			struct kvt_nest nest;

			ok(kvt_nest_init(&nest, &part->xfer, &pair, &why));
			kvt_xfer_regions_start(&regions, &nest);
			while (kvt_xfer_region_next(&region, &regions))
				kvt_cpu_copy(to[pair.dst_rank],
					     from[pair.src_rank]->bytes[part->src_group],
					     &region.plan);
		}
	}
}

/* True: something of the group moved, and something did not. */
static bool check_group(const struct kvt_sides *sides, struct kvt_dump *const *dumps,
			int group, struct made *const *from)
{
	uint8_t *moved[MOST_RANKS] = { NULL };
	bool mixed = true;

	for (int r = 0; r < sides->dst.n; r++) {
		const struct kvt_group *g = &sides->dst.made[r].group[group];
		int64_t nbytes = group_bytes(g);

		moved[r] = room((size_t)nbytes);
		memset(moved[r], FILL, (size_t)nbytes);
	}
	run_regions(moved, sides, group, from);
	for (int r = 0; r < sides->dst.n; r++) {
		const struct kvt_group *g = kvt_dump_group(dumps[r], group);
		const struct kvt_box all = kvt_box_whole(&g->shape);
		int64_t nbytes = group_bytes(g), filled = 0;
		uint8_t *is = room((size_t)nbytes);

		ok(kvt_dump_read(dumps[r], group, &all, NULL, is, &why));
		assert_memory_equal(is, moved[r], (size_t)nbytes);
		for (int64_t i = 0; i < nbytes; i++)
			filled += is[i] == FILL;
		mixed &= filled > 0 && filled < nbytes;
	}
	return mixed;
}

static bool check_transfer(const struct model *m, const struct kvt_new_side *side,
			   const struct kvt_transfer_how *how)
{
	static const char *const names[] = { "rank 0", "rank 1", "rank 2", "rank 3" };
	struct kvt_sides sides = { .fill = FILL, .src.n = (int)m->ranks };
	struct made *from[MOST_RANKS] = { NULL };
	struct kvt_dump **dumps;
	bool mixed;

	sides.src.file = calloc(MOST_RANKS, sizeof(*sides.src.file));
	assert_non_null(sides.src.file);
	for (int r = 0; r < m->ranks; r++) {
		from[r] = make_rank(m, r);
		sides.src.file[r] = (struct rank_file){ names[r], from[r]->dump };
	}
	ok(kvt_ranks_check(&sides.src, &why));
	ok(kvt_sides_make_dst(&sides, side, &why));
	ok(kvt_sides_join(&sides, "from", "to", how, &why));
	ok(kvt_sides_dumps(&dumps, &sides, &why));
	mixed = check_group(&sides, dumps, 0, from);
	if (m->recurrent)
		check_group(&sides, dumps, 1, from);
	kvt_sides_close(dumps, sides.dst.n);
	kvt_sides_free(&sides);		/* and the dumps of the source */
	for (int r = 0; r < m->ranks; r++)
		from[r]->dump = NULL;
	let_go();
	return mixed;
}

static void test_random(void)
{
	int mixed = 0;

	for (int round = 0; round < fewer(500); round++) {
		const struct model m = draw_model();
		const char *const ids[] = { "contig", "reverse", "random:7", "half" };
		struct kvt_new_side side = {
			.pool = { .ranks = 1 << below(3), .block_size = 2 << below(4),
				  .ids = { .words = ids[below(4)] } },
		};
		const struct kvt_transfer_how how = {
			.request = below(3) ? NULL : "b", .cached = below(2) * below(5),
			.whole = below(2), .all_states = below(2),
		};

		ok(kvt_layout_parse(&side.pool.layout, layouts[below(NLAYOUTS)], NULL));
		mixed += check_transfer(&m, &side, &how);
	}
	assert_true(mixed > fewer(250));
}

TESTS("grafts",
	NAMED(test_random, "random transfers, by regions and as dumps"))
