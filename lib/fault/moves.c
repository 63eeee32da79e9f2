/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moves.c - layers, heads and blocks that stand in each other's places
 *
 * A map of what lies where (join.c) has one name: the first of two requests exchanged,
 * entries of tables shifted, ranks exchanged or copied, all rotated, two exchanged, an
 * order, copies.  The name and its arguments follow from the map alone; a row predicts
 * from the arguments, but for an order or copies, which only the map has.
 */
#include <stdlib.h>

#include "lib/fault/search.h"

/* ---- what a map is ------------------------------------------------------ */

static bool is_moved(const struct fault_map *m, int64_t i)
{
	return m->from[i] >= 0 && m->from[i] != i;
}

/* Those that were moved; *bijective: each is where another one was that moved. */
static int64_t count_moved(const struct fault_map *m, int64_t n, int64_t *taken,
			   int64_t *first, bool *bijective)
{
	int64_t count = 0;

	*bijective = true;
	for (int64_t i = 0; i < n; i++)
		taken[i] = 0;
	for (int64_t i = n - 1; i >= 0; i--) {
		if (!is_moved(m, i))
			continue;
		count++;
		*first = i;
		*bijective &= m->from[m->from[i]] != m->from[i] &&
			      !taken[m->from[i]]++;
	}
	return count;
}

static bool is_round(const struct fault_map *m, int64_t n, int64_t first)
{
	int64_t by = (first - m->from[first] + n) % n;

	for (int64_t i = 0; i < n; i++)
		if (m->from[i] >= 0 && (i - m->from[i] + n) % n != by)
			return false;
	return true;
}

/* Is all that moved the share 'to' of 'each' heads, or that and its 'from'? */
static bool is_share(const struct fault_map *m, int64_t n, int64_t each, int64_t to,
		     int64_t from, bool exchanged)
{
	for (int64_t i = 0; i < n; i++) {
		int64_t share = i / each, want = i;

		if (share == to)
			want = from * each + i % each;
		else if (share == from && exchanged)
			want = to * each + i % each;
		if (m->from[i] >= 0 && m->from[i] != want)
			return false;
	}
	return true;
}

static bool name_ranks(struct fault_map *m, int64_t n, int64_t first)
{
	for (int64_t tp = 2; tp <= n / 2; tp++) {
		int64_t each = n / tp, to = first / each, from = m->from[first] / each;

		if (n % tp || to == from)
			continue;
		for (int exchanged = 0; exchanged < 2; exchanged++) {
			if (!is_share(m, n, each, to, from, exchanged))
				continue;
			m->moves = exchanged ? MOVES_RANKS : MOVES_RANK;
			m->args[0] = tp;
			m->args[1] = to;
			m->args[2] = from;
			return true;
		}
	}
	return false;
}

/* ---- tables of requests ------------------------------------------------- */

/* The block of an entry, as an index of the window; KVT_NOT_... */
static int64_t block_at(const struct kvt_window *w, int64_t table, int64_t entry)
{
	int64_t b;

	if (table < 0 || table >= w->ntables || entry < 0 || entry >= w->table[table].n)
		return KVT_NOT_THERE;
	b = w->table[table].block[entry] - w->first_block;
	return b >= 0 && b < w->shape.n[KVT_AXIS_B] ? b : KVT_NOT_HERE;
}

/* Entries of a and b have the blocks of the other's, as many as both have. */
static bool name_requests(const struct kvt_window *w, struct fault_map *m, int64_t first)
{
	int64_t a = w->request[first], b = w->request[m->from[first]], shared = 0;

	if (a < 0 || b < 0 || a == b)
		return false;
	for (int64_t i = 0; i < w->shape.n[KVT_AXIS_B]; i++) {
		int64_t other = w->request[i] == a ? b : a;
		int64_t there = block_at(w, other, w->entry[i]);
		bool is_theirs = w->request[i] == a || w->request[i] == b;

		if (is_moved(m, i) ? !is_theirs || m->from[i] != there :
				     is_theirs && m->from[i] == i && there >= 0)
			return false;
		shared += is_theirs && there >= 0;
	}
	m->moves = MOVES_REQUESTS;
	m->args[0] = a < b ? a : b;
	m->args[1] = a < b ? b : a;
	return shared > 0;
}

/* Where the entry has its block from in its own table, which may be taken as a ring. */
static int64_t entry_before(const struct kvt_window *w, int64_t block, int64_t by,
			    bool ring)
{
	int64_t table = w->request[block], entry = w->entry[block] - by, n;

	if (table < 0 || !(n = w->table[table].n))
		return KVT_NOT_HERE;
	return block_at(w, table, ring ? ((entry % n) + n) % n : entry);
}

/* By how many entries; 0 if not all blocks come from their own table. */
static int64_t least_shift(const struct kvt_window *w, const struct fault_map *m)
{
	int64_t least = 0;

	for (int64_t i = 0; i < w->shape.n[KVT_AXIS_B]; i++) {
		int64_t by;

		if (!is_moved(m, i))
			continue;
		if (w->request[i] < 0 || w->request[i] != w->request[m->from[i]])
			return 0;
		by = w->entry[i] - w->entry[m->from[i]];
		if (!least || llabs(by) < llabs(least))
			least = by;
	}
	return least;
}

static bool is_shifted(const struct kvt_window *w, const struct fault_map *m,
		       int64_t table, int64_t by, bool *ring)
{
	int64_t moved = 0, still = 0;

	for (int64_t e = 0; e < w->table[table].n; e++) {
		int64_t b = block_at(w, table, e);

		if (b < 0 || w->request[b] < 0 || m->from[b] < 0)
			continue;
		if (m->from[b] == b) {
			still += entry_before(w, b, by, false) >= 0;
			continue;
		}
		moved++;
		if (entry_before(w, b, by, true) != m->from[b])
			return false;
		*ring |= entry_before(w, b, by, false) != m->from[b];
	}
	return !moved || !still;
}

static bool name_table(const struct kvt_window *w, struct fault_map *m)
{
	int64_t by = least_shift(w, m);
	bool ring = false;

	if (!by)
		return false;
	for (int64_t t = 0; t < w->ntables; t++)
		if (!is_shifted(w, m, t, by, &ring))
			return false;
	m->moves = MOVES_TABLE;
	m->args[0] = by;
	m->args[1] = ring;
	return true;
}

/* ---- names -------------------------------------------------------------- */

void kvt_fault_name_moves(struct fault_case *c, enum kvt_axis axis, int64_t *taken)
{
	const struct kvt_window *w = c->window;
	struct fault_map *m = &c->map[axis];
	int64_t n = w->shape.n[axis], first = 0;
	bool bijective;

	m->count = count_moved(m, n, taken, &first, &bijective);
	m->moves = MOVES_NOTHING;
	if (!m->count)
		return;
	m->args[0] = first;
	m->args[1] = m->from[first];
	if (m->count == 1) {
		m->moves = MOVES_ONE;
		return;
	}
	if (m->count == 2 && bijective) {
		m->moves = MOVES_PAIR;
		return;
	}
	if (axis == KVT_AXIS_H && name_ranks(m, n, first))
		return;
	if (axis == KVT_AXIS_B && w->ntables && w->request && w->entry &&
	    (name_requests(w, m, first) || name_table(w, m)))
		return;
	m->args[0] = m->count;
	m->moves = bijective ? MOVES_ORDER : MOVES_COPIES;
	if (axis != KVT_AXIS_B && is_round(m, n, first)) {
		m->moves = MOVES_ROUND;
		m->args[0] = (first - m->from[first] + n) % n;
		if (m->args[0] > n / 2)
			m->args[0] -= n;
	}
}

/* ---- arguments ---------------------------------------------------------- */

/* What the map says, if it is such a one; when planting, all that there is. */
static struct kvt_range told(const struct fault_case *c, enum kvt_axis axis,
			     enum fault_moves moves, int arg, int64_t begin, int64_t end)
{
	const struct fault_map *m = &c->map[axis];

	if (!c->suspect)
		return (struct kvt_range){ begin, end };
	if (m->moves != moves)
		return (struct kvt_range){ 0, 0 };
	return (struct kvt_range){ m->args[arg], m->args[arg] + 1 };
}

static struct kvt_range two_blocks(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_B, MOVES_PAIR, arg, 0, c->window->shape.n[KVT_AXIS_B]);
}

static struct kvt_range two_layers(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_L, MOVES_PAIR, arg, 0, c->window->shape.n[KVT_AXIS_L]);
}

static struct kvt_range two_requests(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_B, MOVES_REQUESTS, arg, 0, c->window->ntables);
}

static struct kvt_range entries(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_B, MOVES_TABLE, arg, arg ? 0 : -2, arg ? 2 : 3);
}

static struct kvt_range round_layers(const struct fault_case *c, int arg)
{
	int64_t n = c->window->shape.n[KVT_AXIS_L];

	return told(c, KVT_AXIS_L, MOVES_ROUND, arg, -((n - 1) / 2), n / 2 + 1);
}

static struct kvt_range round_heads(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_H, MOVES_ROUND, arg, -((c->heads - 1) / 2),
		    (c->heads - 1) / 2 + 1);
}

static struct kvt_range ranks_swapped(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_H, MOVES_RANKS, arg, arg ? 0 : 2,
		    arg ? c->heads / 2 : c->heads / 2 + 1);
}

static struct kvt_range rank_copied(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_H, MOVES_RANK, arg, arg ? 0 : 2,
		    arg ? c->heads / 2 : c->heads / 2 + 1);
}

static struct kvt_range order_of_layers(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_L, MOVES_ORDER, arg, 4,
		    c->window->shape.n[KVT_AXIS_L] + 1);
}

static struct kvt_range order_of_heads(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_H, MOVES_ORDER, arg, 4, c->heads + 1);
}

static struct kvt_range order_of_blocks(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_B, MOVES_ORDER, arg, 4, c->window->shape.n[KVT_AXIS_B]);
}

static struct kvt_range copied_blocks(const struct fault_case *c, int arg)
{
	return told(c, KVT_AXIS_B, MOVES_COPIES, arg, 2,
		    (c->window->shape.n[KVT_AXIS_B] + 1) / 2);
}

/* The reverse order of an even number leaves none in its place. */
static bool all_move(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return c->suspect || args->n[0] % 2 == 0;
}

static bool in_order(const struct fault_case *c, const struct kvt_fault_args *args)
{
	(void)c;
	return args->n[0] < args->n[1];
}

static bool by_some(const struct fault_case *c, const struct kvt_fault_args *args)
{
	(void)c;
	return args->n[0] != 0;
}

/* By one entry, with nothing that comes in at the other end, it is shift-blocks. */
static bool table_shifts(const struct fault_case *c, const struct kvt_fault_args *args)
{
	(void)c;
	return args->n[0] && (args->n[1] || llabs(args->n[0]) > 1);
}

static bool two_ranks(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return c->heads % args->n[0] == 0 && args->n[1] < args->n[0] &&
	       args->n[2] < args->n[0] && args->n[1] != args->n[2];
}

static bool ranks_in_order(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return two_ranks(c, args) && args->n[1] < args->n[2];
}

/* ---- where an element comes from ---------------------------------------- */

static void exchange(int64_t *from, int64_t at, int64_t a, int64_t b)
{
	if (at == a)
		*from = b;
	else if (at == b)
		*from = a;
}

static enum fault_source swap_blocks(const struct fault_element *e)
{
	exchange(&e->from[KVT_AXIS_B], e->at[KVT_AXIS_B], e->n[0], e->n[1]);
	return FROM_ELEMENT;
}

static enum fault_source swap_layers(const struct fault_element *e)
{
	exchange(&e->from[KVT_AXIS_L], e->at[KVT_AXIS_L], e->n[0], e->n[1]);
	return FROM_ELEMENT;
}

static enum fault_source from_block(int64_t block, int64_t from[KVT_NAXES])
{
	if (block < 0)
		return FROM_OUTSIDE;
	from[KVT_AXIS_B] = block;
	return FROM_ELEMENT;
}

static enum fault_source swap_requests(const struct fault_element *e)
{
	const struct kvt_window *w = e->c->window;
	int64_t r = w->request[e->at[KVT_AXIS_B]], other = r;

	exchange(&other, r, e->n[0], e->n[1]);
	if (r < 0 || other == r)
		return FROM_ELEMENT;
	return from_block(block_at(w, other, w->entry[e->at[KVT_AXIS_B]]), e->from);
}

static enum fault_source shift_table(const struct fault_element *e)
{
	return from_block(entry_before(e->c->window, e->at[KVT_AXIS_B], e->n[0],
				       e->n[1]), e->from);
}

static int64_t around(int64_t at, int64_t by, int64_t n)
{
	return (at - by % n + n) % n;
}

static enum fault_source rotate_layers(const struct fault_element *e)
{
	e->from[KVT_AXIS_L] = around(e->at[KVT_AXIS_L], e->n[0],
				     e->c->window->shape.n[KVT_AXIS_L]);
	return FROM_ELEMENT;
}

static enum fault_source rotate_heads(const struct fault_element *e)
{
	e->from[KVT_AXIS_H] = around(e->at[KVT_AXIS_H], e->n[0], e->c->heads);
	return FROM_ELEMENT;
}

static enum fault_source swap_ranks(const struct fault_element *e)
{
	int64_t each = e->c->heads / e->n[0], share = e->at[KVT_AXIS_H] / each;

	exchange(&share, share, e->n[1], e->n[2]);
	e->from[KVT_AXIS_H] = share * each + e->at[KVT_AXIS_H] % each;
	return FROM_ELEMENT;
}

static enum fault_source copy_rank(const struct fault_element *e)
{
	int64_t each = e->c->heads / e->n[0];

	if (e->at[KVT_AXIS_H] / each == e->n[1])
		e->from[KVT_AXIS_H] = e->n[2] * each + e->at[KVT_AXIS_H] % each;
	return FROM_ELEMENT;
}

/* As the map has it; what is planted is the reverse order of the first ones. */
static enum fault_source by_map(const struct fault_element *e, enum kvt_axis axis)
{
	const struct fault_map *map = &e->c->map[axis];
	int64_t i = e->at[axis];

	if (!e->c->suspect)
		i = i < e->n[0] ? e->n[0] - 1 - i : i;
	else if (map->from[i] >= 0)
		i = map->from[i];
	e->from[axis] = i;
	return FROM_ELEMENT;
}

static enum fault_source permute_layers(const struct fault_element *e)
{
	return by_map(e, KVT_AXIS_L);
}

static enum fault_source permute_heads(const struct fault_element *e)
{
	return by_map(e, KVT_AXIS_H);
}

/* Block 0 is the null block of most engines: it is none of those that are planted. */
static enum fault_source permute_blocks(const struct fault_element *e)
{
	int64_t b = e->at[KVT_AXIS_B];

	if (e->c->suspect)
		return by_map(e, KVT_AXIS_B);
	return b < 1 || b > e->n[0] ? FROM_ELEMENT : from_block(e->n[0] + 1 - b, e->from);
}

static enum fault_source stale_blocks(const struct fault_element *e)
{
	int64_t b = e->at[KVT_AXIS_B];

	if (e->c->suspect)
		return by_map(e, KVT_AXIS_B);
	return b < 1 || b > e->n[0] ? FROM_ELEMENT : from_block(b + e->n[0], e->from);
}

/* ---- to whom a row applies ---------------------------------------------- */

static bool has_blocks(const struct fault_case *c)
{
	return c->window->shape.n[KVT_AXIS_B] > 1;
}

static bool has_tables(const struct fault_case *c)
{
	const struct kvt_window *w = c->window;

	return has_blocks(c) && w->ntables > 0 && w->request && w->entry;
}

static bool has_two_tables(const struct fault_case *c)
{
	return has_tables(c) && c->window->ntables > 1;
}

static bool has_two_layers(const struct fault_case *c)
{
	return c->window->shape.n[KVT_AXIS_L] > 1;
}

static bool has_layers(const struct fault_case *c)
{
	return c->window->shape.n[KVT_AXIS_L] > 2;
}

static bool has_heads(const struct fault_case *c)
{
	return c->heads > 2;
}

static bool has_ranks(const struct fault_case *c)
{
	return c->heads > 3;
}

const struct fault kvt_move_faults[NMOVES] = {
	{ .says = {
		.name = "swap-blocks", .moves = 'B',
		.summary = "two blocks are exchanged, as two entries of a block table "
			   "would be",
		.arg = { { "a", 'B', "one block" },
			 { "b", 'B', "the other, a higher one" } } },
	  .needs = "two blocks",
	  .part = PER_KV, .applies = has_blocks, .range = two_blocks,
	  .valid = in_order, .predict = swap_blocks },
	{ .says = {
		.name = "permute-blocks", .moves = 'B',
		.summary = "blocks stand in another order, as a permuted block table "
			   "would have them",
		.arg = { { "count", 0, "blocks that moved" } } },
	  .needs = "five blocks",
	  .part = PER_KV, .applies = has_blocks, .range = order_of_blocks,
	  .valid = all_move, .predict = permute_blocks, .yields = true },
	{ .says = {
		.name = "shift-table", .moves = 'B',
		.summary = "entries of block tables have the block of an entry further "
			   "on",
		.arg = { { "by", 0, "entries: 1 is one too late, -1 one too early" },
			 { "ring", 0, "1: what is pushed out at one end comes in at the "
				      "other" } } },
	  .needs = "block tables",
	  .part = PER_KV, .applies = has_tables, .range = entries,
	  .valid = table_shifts, .predict = shift_table },
	{ .says = {
		.name = "swap-requests", .moves = 'B',
		.summary = "the blocks of two requests are exchanged, entry by entry",
		.arg = { { "a", 'R', "one request, by its number" },
			 { "b", 'R', "the other, a higher one" } } },
	  .needs = "two requests",
	  .part = PER_KV, .applies = has_two_tables, .range = two_requests,
	  .valid = in_order, .predict = swap_requests },
	{ .says = {
		.name = "stale-blocks", .moves = 'B',
		.summary = "several blocks have the content of other blocks, which may "
			   "be stale",
		.arg = { { "count", 0, "blocks that are overwritten" } } },
	  .needs = "five blocks",
	  .part = PER_KV, .applies = has_blocks, .range = copied_blocks,
	  .predict = stale_blocks, .yields = true },
	{ .says = {
		.name = "swap-layers", .moves = 'L',
		.summary = "two layers are exchanged",
		.arg = { { "a", 'L', "one layer" },
			 { "b", 'L', "the other, a later one" } } },
	  .needs = "two layers",
	  .part = PER_KV, .applies = has_two_layers, .range = two_layers,
	  .valid = in_order, .predict = swap_layers },
	{ .says = {
		.name = "rotate-layers", .moves = 'L',
		.summary = "all layers are some layers too late (by > 0) or too early, "
			   "around the end",
		.arg = { { "by", 0, "layers" } } },
	  .needs = "three layers",
	  .part = PER_KV, .applies = has_layers, .range = round_layers,
	  .valid = by_some, .predict = rotate_layers },
	{ .says = {
		.name = "permute-layers", .moves = 'L',
		.summary = "layers stand in another order",
		.arg = { { "count", 0, "layers that moved" } } },
	  .needs = "four layers",
	  .part = PER_KV, .applies = has_layers, .range = order_of_layers,
	  .valid = all_move, .predict = permute_layers, .yields = true },
	{ .says = {
		.name = "rotate-heads", .moves = 'H',
		.summary = "all heads are some heads too late (by > 0) or too early, "
			   "around the end",
		.arg = { { "by", 0, "heads" } } },
	  .needs = "three heads",
	  .part = PER_SLOT | PER_KV, .applies = has_heads, .range = round_heads,
	  .valid = by_some, .predict = rotate_heads },
	{ .says = {
		.name = "permute-heads", .moves = 'H',
		.summary = "heads stand in another order",
		.arg = { { "count", 0, "heads that moved" } } },
	  .needs = "four heads",
	  .part = PER_SLOT | PER_KV, .applies = has_heads, .range = order_of_heads,
	  .valid = all_move, .predict = permute_heads, .yields = true },
	{ .says = {
		.name = "swap-ranks", .moves = 'H',
		.summary = "the heads of two ranks are exchanged",
		.arg = { { "tp", 0, "ranks that share the heads" },
			 { "a", 0, "one rank" },
			 { "b", 0, "the other, a higher one" } } },
	  .needs = "four heads",
	  .part = PER_SLOT | PER_KV, .applies = has_ranks, .range = ranks_swapped,
	  .valid = ranks_in_order, .predict = swap_ranks },
	{ .says = {
		.name = "copy-rank", .moves = 'H',
		.summary = "the heads of a rank are those of another rank",
		.arg = { { "tp", 0, "ranks that share the heads" },
			 { "to", 0, "the rank that is overwritten" },
			 { "from", 0, "the rank that is there twice" } } },
	  .needs = "four heads",
	  .part = PER_SLOT | PER_KV, .applies = has_ranks, .range = rank_copied,
	  .valid = two_ranks, .predict = copy_rank },
};
