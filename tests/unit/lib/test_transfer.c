/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transfer.c - plans of transfers against a walk of every byte
 *
 * Thousands of small transfers of all kinds: what the library counts, walks and
 * cuts to regions must be what brute_transfer.h finds.
 */
#include "lib/kvt/transfer.h"
#include "tests/brute_transfer.h"
#include "tests/fewer.h"
#include "tests/unit/tests.h"

enum { MOST = 1 << 16, CASES = 6000 };

static struct brute_byte bytes[MOST];
static struct brute_run runs[MOST];
static uint64_t seed = 1;

static int draw(int n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (int)((seed >> 33) % (uint64_t)n);
}

/* ---- random cases ------------------------------------------------------- */

static const char *const layouts[] = {
	"L B S H C", "L B H S C", "B L S H C", "B H L S C", "L H B S C", "B L H S C",
	"L K B S H D", "L K B H S D", "L B K S H D", "L B K H S D", "B L K S H D",
	"L B H D S K", "S L B H C", "L S H B C", "H S B L C", "B S H L C",
	"K:L K B H D/2 S D%2 V:L K B H D S", "K:L B K H D/2 S D%2 V:L B K H S/2 D S%2",
	"L B S/2 H S%2 C", "L B H S D K", "K L B H S D", "L B S H K D/2 D%2",
};
enum { NLAYOUTS = LENGTH(layouts) };

static const char *const states[] = {	/* of one state a block */
	"L B H D", "B L H D", "B H L D", "L H B D",
};
static const char *const convs[] = { "L B D S", "B L D S", "L B S D", "B L S D" };

static void shuffled(uint32_t *ids, int n, int pool, int pattern)
{
	uint32_t all[64];
	int from = draw(pool - n + 1);

	for (int i = 0; i < pool; i++)
		all[i] = (uint32_t)i;
	for (int i = pool - 1; pattern == 0 && i > 0; i--) {
		int j = draw(i + 1);
		uint32_t x = all[i];

		all[i] = all[j];
		all[j] = x;
	}
	for (int i = 0; i < n; i++)
		ids[i] = pattern == 1 ? all[from + n - 1 - i] :
			 pattern == 2 ? all[(i + n / 2) % n] :
			 pattern == 3 && 2 * n <= pool ? all[2 * i] : all[from + i];
}

static int blocks_of(const struct brute_case *c, const struct brute_side *s, int tokens)
{
	int64_t n = c->state ? 1 : s->n[BS];

	return (int)((tokens + n - 1) / n);
}

/* One request, or a second that shares whole blocks of the first on both sides. */
static void deal_blocks(struct brute_case *c)
{
	int most = c->state ? 3 : 14, tokens = draw(most) + 1;
	int nsrc = blocks_of(c, &c->src, tokens), ndst = blocks_of(c, &c->dst, tokens);
	int spare = draw(3) ? draw(4) : 0;

	c->nrequests = 1;
	c->tokens[0] = tokens;
	c->src.n[BB] = nsrc + spare;
	c->dst.n[BB] = ndst + (spare ? draw(4) : 0);
	shuffled(c->ids[0][0], nsrc, (int)c->src.n[BB], draw(6));
	shuffled(c->ids[0][1], ndst, (int)c->dst.n[BB], draw(6));
	if (draw(4) || c->state)
		return;
	/* the second one is shorter: it ends inside of what is shared */
	c->nrequests = 2;
	c->tokens[1] = draw(tokens) + 1;
	memcpy(c->ids[1], c->ids[0], sizeof(c->ids[0]));
}

static void deal_side(struct brute_case *c, struct brute_side *s, const char *layout)
{
	int64_t heads = 0;

	s->layout = layout;
	for (int p = 0; p < c->nparts; p++)
		heads += brute_count(c->part[p].units, s->ranks) * c->part[p].rows;
	s->n[c->conv ? BD : BH] = heads;
	s->offset = draw(3) ? 0 : draw(9);
}

/*
 * Pages that hold more than this group: the slower of L and B steps over all
 * pages of the faster.
 */
static void pad_pages(struct brute_side *s)
{
	const char *l = strchr(s->layout, 'L'), *b = strchr(s->layout, 'B');
	int64_t page = s->n[BS] * s->n[BH] * s->n[BK] * s->n[BD] + draw(7);

	if (strstr(s->layout, "V:") || l - s->layout > 2 || b - s->layout > 2)
		return;
	s->stride[l < b ? BB : BL] = page;
	s->stride[l < b ? BL : BB] = page * s->n[l < b ? BB : BL];
}

static bool divides(int a, int b)
{
	return a % b == 0 || b % a == 0;
}

static void deal_ranks(struct brute_case *c, int units)
{
	static const int sizes[] = { 1, 2, 3, 4, 6, 8 };

	do {
		c->src.ranks = sizes[draw(6)];
		c->dst.ranks = sizes[draw(6)];
	} while (!divides(units, c->src.ranks) || !divides(units, c->dst.ranks));
}

static void deal_attention(struct brute_case *c)
{
	static const int heads[] = { 1, 2, 4, 6 };
	int units = heads[draw(4)];
	int even = draw(3) + 1;

	c->nparts = 1;
	c->part[0] = (struct brute_part){ units, 1 };
	deal_ranks(c, units);
	c->src.modulo = c->dst.modulo = !draw(4);
	c->src.n[BK] = c->dst.n[BK] = 2;
	c->src.n[BD] = c->dst.n[BD] = 2 * (draw(2) + 1);
	c->src.n[BS] = draw(2) ? 2 * even : 2 * (draw(3) + 1);
	c->dst.n[BS] = draw(2) ? c->src.n[BS] : 2 * (draw(4) + 1);
	deal_side(c, &c->src, layouts[draw(NLAYOUTS)]);
	deal_side(c, &c->dst, draw(2) ? c->src.layout : layouts[draw(NLAYOUTS)]);
}

static void deal_state(struct brute_case *c)
{
	c->state = true;
	c->src.n[BK] = c->dst.n[BK] = 1;
	c->src.n[BS] = c->dst.n[BS] = 1;
	c->nparts = 1;
	c->part[0] = (struct brute_part){ 8, 1 };
	c->src.ranks = 1 << draw(4);
	c->dst.ranks = 1 << draw(4);
	c->src.n[BD] = c->dst.n[BD] = draw(4) + 1;
	deal_side(c, &c->src, states[draw(4)]);
	deal_side(c, &c->dst, states[draw(4)]);
}

static void deal_conv(struct brute_case *c)
{
	int groups = 1 << draw(4), rows = draw(2) + 1;

	deal_state(c);
	c->conv = true;
	c->nparts = draw(2) ? 3 : 1;
	c->part[0] = (struct brute_part){ 8, draw(2) + 1 };
	c->part[1] = c->part[2] = (struct brute_part){ groups, rows };
	c->src.n[BH] = c->dst.n[BH] = 1;
	c->src.n[BS] = c->dst.n[BS] = draw(3) + 1;
	deal_side(c, &c->src, convs[draw(4)]);
	deal_side(c, &c->dst, convs[draw(4)]);
	c->tap_slices = c->src.layout[4] == 'S' || c->dst.layout[4] == 'S';
}

static void deal(struct brute_case *c)
{
	memset(c, 0, sizeof(*c));
	c->src.n[BL] = c->dst.n[BL] = draw(3) + 1;
	if (!draw(4))
		deal_conv(c);
	else if (!draw(4))
		deal_state(c);
	else
		deal_attention(c);
	deal_blocks(c);
	if (!draw(4))
		pad_pages(&c->src);
	if (!draw(4))
		pad_pages(&c->dst);
}

/* ---- the library's view of a case --------------------------------------- */

static struct kvt_spec spec_of(const struct brute_case *c, const struct brute_side *s)
{
	static const char *const names[] = { "x", "B", "C" };
	struct kvt_spec spec = { .kind = KVT_FULL_ATTENTION, .block_size = s->n[BS],
				 .total_heads = c->part[0].units, .elem = 1,
				 .tokens_per_slot = { c->state ? -1 : 1, 1 },
				 .ncontent = 2, .content = { 2, s->n[BD] },
				 .content_size = 2 * s->n[BD] };

	if (c->state) {
		spec.kind = KVT_MAMBA_SSM;
		spec.ncontent = 1;
		spec.content[0] = spec.content_size = s->n[BD];
	}
	if (c->conv) {
		spec.kind = KVT_MAMBA_CONV;
		spec.ncontent = 2;
		spec.content[1] = s->n[BS];
		spec.nparts = c->nparts;
		for (int p = 0; p < c->nparts; p++)
			spec.part[p] = (struct kvt_spec_part){ names[p],
				c->part[p].units, c->part[p].rows, false };
	}
	return spec;
}

static enum kvt_status side_of(struct kvt_xfer_side *out, const struct brute_case *c,
			       const struct brute_side *s, struct kvt_error *err)
{
	struct kvt_spec spec = spec_of(c, s);
	struct kvt_layout layout;
	enum kvt_status status = kvt_layout_parse(&layout, s->layout, err);

	if (!status)
		status = kvt_xfer_side_init(out, &spec, s->ranks, &layout, s->n[BL],
					    s->n[BB], s->stride, s->offset, err);
	if (!status)
		out->replicas = s->modulo ? KVT_MODULO : KVT_GROUPED;
	return status;
}

static enum kvt_status plan(struct kvt_xfer *x, struct kvt_block_span *entry,
			    const struct brute_case *c, struct kvt_error *err)
{
	struct kvt_xfer_side src, dst;
	enum kvt_status status;
	int64_t n = 0;

	if ((status = side_of(&src, c, &c->src, err)) ||
	    (status = side_of(&dst, c, &c->dst, err)))
		return status;
	for (int q = 0; q < c->nrequests; q++) {
		struct kvt_block_table from = { c->ids[q][0],
			blocks_of(c, &c->src, c->tokens[q]),
			c->state ? 1 : c->src.n[BS], c->src.n[BB], 0 };
		struct kvt_block_table to = { c->ids[q][1],
			blocks_of(c, &c->dst, c->tokens[q]),
			c->state ? 1 : c->dst.n[BS], c->dst.n[BB], 0 };

		if ((status = kvt_xfer_entries(entry, &n, 128, &from, &to, 0,
					       c->tokens[q], err)))
			return status;
	}
	return kvt_xfer_init(x, &src, &dst, entry, n, err);
}

/* ---- comparing ---------------------------------------------------------- */

static const char *describe(const struct brute_case *c)
{
	static char text[256];

	snprintf(text, sizeof(text),
		 "'%s' (S %d, tp %d) to '%s' (S %d, tp %d), %d slots",
		 c->src.layout, (int)c->src.n[BS], c->src.ranks, c->dst.layout,
		 (int)c->dst.n[BS], c->dst.ranks, c->tokens[0]);
	return text;
}

static void same_walk(const struct brute_case *c, const struct kvt_nest *nest, int scope,
		      int64_t nruns)
{
	struct kvt_ops ops;
	struct kvt_op op;
	int64_t i = 0;

	kvt_ops_start(&ops, nest, scope);
	for (; kvt_op_next(&op, &ops); i++)
		if (i >= nruns || op.src != runs[i].src || op.dst != runs[i].dst ||
		    op.len != runs[i].len)
			fail_msg("%s, %s: op %d is %d %d %d", describe(c),
				 kvt_scope_name(scope), (int)i, (int)op.src, (int)op.dst,
				 (int)op.len);
	if (i != nruns)
		fail_msg("%s: %d ops, not %d", describe(c), (int)i, (int)nruns);
}

static void same_tally(const struct brute_case *c, const struct kvt_nest *nest, int scope,
		       int64_t nruns)
{
	static struct kvt_size_count bin[4096];
	struct kvt_sizes sizes = { bin, 0, 4096 };
	struct kvt_tally tally = { 0 };
	int64_t breaks = 0, count[4096] = { 0 };

	ok(kvt_pair_tally(&tally, &sizes, nest, scope, NULL));
	if (tally.ops != nruns)
		fail_msg("%s, %s: %d ops counted, not %d", describe(c),
			 kvt_scope_name(scope), (int)tally.ops, (int)nruns);
	for (int a = 0; a < KVT_NAXES; a++)
		for (int w = 0; w < KVT_NBREAKS; w++)
			breaks += tally.breaks[a][w];
	assert_int_equal(breaks, nruns - 1);
	for (int64_t i = 0; i < nruns; i++)
		count[runs[i].len]++;
	for (int i = 0; i < sizes.n; i++) {
		assert_int_equal(bin[i].count, count[bin[i].size]);
		count[bin[i].size] = 0;
	}
	for (int i = 0; i < 4096; i++)
		assert_int_equal(count[i], 0);
}

/* All regions together are the same bytes, each once. */
static void same_regions(const struct brute_case *c, const struct kvt_nest *nest,
			 int64_t nbytes)
{
	static bool met[MOST];
	struct kvt_xfer_regions regions;
	struct kvt_xfer_region r;
	struct kvt_plan_walk w;
	int64_t n = 0;

	memset(met, 0, sizeof(met));
	kvt_xfer_regions_start(&regions, nest);
	while (kvt_xfer_region_next(&r, &regions)) {
		for (int i = 1; i < r.plan.nloops; i++)
			assert_true(llabs(r.plan.dst_stride[i - 1]) >=
				    llabs(r.plan.dst_stride[i]));
		for (kvt_plan_walk_start(&w, &r.plan); !w.done; kvt_plan_walk_next(&w))
			for (int64_t i = 0; i < r.plan.run; i++, n++) {
				struct brute_byte key = { w.src + i, w.dst + i, 0, 0, 0 };
				struct brute_byte *b = bsearch(&key, bytes,
					(size_t)nbytes, sizeof(key), brute_order);

				if (!b || met[b - bytes])
					fail_msg("%s: a region has %d to %d", describe(c),
						 (int)key.src, (int)key.dst);
				met[b - bytes] = true;
			}
	}
	if (n != nbytes)
		fail_msg("%s: regions of %d bytes, not %d", describe(c), (int)n,
			 (int)nbytes);
}

static int64_t check_pair(const struct brute_case *c, const struct kvt_xfer *x,
			  const struct kvt_pair *pair)
{
	struct kvt_nest nest;
	int64_t nbytes = 0;

	if (kvt_nest_init(&nest, x, pair, &why))
		fail_msg("%s: %s", describe(c), why.text);
	for (int scope = 0; scope < KVT_NSCOPES; scope++) {
		int64_t nruns;

		nbytes = brute_bytes(bytes, c, (int)pair->src_rank, (int)pair->dst_rank);
		assert_in_range(nbytes, 1, MOST);
		nruns = brute_runs(runs, bytes, &nbytes, scope);
		same_walk(c, &nest, scope, nruns);
		same_tally(c, &nest, scope, nruns);
	}
	same_regions(c, &nest, nbytes);
	return nbytes;
}

/* Pairs are the ranks between which something moves, and no others. */
static void check_case(const struct brute_case *c, const struct kvt_xfer *x)
{
	struct kvt_pair_walk walk = { 0, 0 };
	struct kvt_pair pair;
	struct kvt_move moves[1024];
	struct kvt_proof proof;
	int64_t total = 0, all, unique;
	bool more = kvt_pair_next(&pair, &walk, x);

	for (int d = 0; d < c->dst.ranks; d++)
		for (int s = 0; s < c->src.ranks; s++) {
			if (!brute_bytes(bytes, c, s, d))
				continue;
			assert_true(more && pair.src_rank == s && pair.dst_rank == d);
			total += check_pair(c, x, &pair);
			more = kvt_pair_next(&pair, &walk, x);
		}
	assert_false(more);
	ok(kvt_xfer_nbytes(&all, &unique, x, &why));
	assert_int_equal(all, total);
	assert_in_range(kvt_xfer_nmoves(x), 1, 1023);
	if (kvt_xfer_prove(&proof, x, moves, &why))
		fail_msg("%s: %s", describe(c), why.text);
}

static void random_cases(void)
{
	int done = 0, refused = 0, cases = fewer(CASES);

	while (done < cases) {
		struct kvt_block_span entry[128];
		struct brute_case c;
		struct kvt_xfer x;
		enum kvt_status status;

		deal(&c);
		status = plan(&x, entry, &c, &why);
		if (status == KVT_UNSUPPORTED) {
			refused++;
			continue;
		}
		if (status)
			fail_msg("%s: %s", describe(&c), why.text);
		check_case(&c, &x);
		done++;
	}
	assert_in_range(refused, 0, cases / 4);
}

TESTS("transfer",
	TEST(random_cases))
