/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c - bytes of a page read in another order than they were written
 *
 * Each has two ways: what was written in the first order is read in the second (way 0),
 * or the reverse (way 1).  A fault is a permutation of a page: given where an element is
 * found, it says which element of the sound page is there.
 *
 *	swap-heads-slots	[S][H] and [H][S]
 *	swap-kv			K and V, the same both ways
 *	split-kv		k v k v .. and k k .. v v .., rows of a page or of a head
 *	rope-pairs		(i, i + n / 2) and (2 i, 2 i + 1), of n rotated elements
 *	x-packing		[S][D] and [D / x][S][x]
 *	conv-order		[taps][channels] and [channels][taps]
 *	ssm-order		[head dim][state] and [state][head dim]
 *	conv-parts		x B C of each rank in turn; x, then B, then C of all ranks
 */
#include "lib/fault/fault.h"

static struct kvt_range two_ways(const struct fault_case *c, int arg)
{
	(void)c, (void)arg;
	return (struct kvt_range){ 0, 2 };
}

/* ---- a transposed rectangle --------------------------------------------- */

struct pair {
	int64_t slow, fast;
};

/*
 * A rectangle stands in memory with 'fast' neighbours of 'nfast' together (way
 * 0), but is read with 'slow' neighbours of 'nslow' together.  What is found at
 * a place comes from the place that has its address.
 */
static struct pair turned(struct pair at, int64_t nslow, int64_t nfast, int64_t way)
{
	int64_t address = way ? at.slow * nfast + at.fast : at.fast * nslow + at.slow;

	if (way)
		return (struct pair){ address % nslow, address / nslow };
	return (struct pair){ address / nfast, address % nfast };
}

/* ---- heads and slots ---------------------------------------------------- */

static bool has_square(const struct fault_case *c)
{
	return kvt_fault_has_tokens(c->window) && c->slots > 1 && c->heads > 1;
}

static enum fault_source turn_heads(const struct fault_element *e)
{
	struct pair p = turned((struct pair){ e->at[KVT_AXIS_S], e->at[KVT_AXIS_H] },
			       e->c->slots, e->c->heads, e->n[0]);

	e->from[KVT_AXIS_S] = p.slow;
	e->from[KVT_AXIS_H] = p.fast;
	return FROM_ELEMENT;
}

/* ---- keys and values ---------------------------------------------------- */

static bool has_kv(const struct fault_case *c)
{
	return c->kv == 2;
}

static enum fault_source swap_kv(const struct fault_element *e)
{
	e->from[KVT_AXIS_K] = 1 - e->at[KVT_AXIS_K];
	return FROM_ELEMENT;
}

static bool has_kv_rows(const struct fault_case *c)
{
	return c->kv == 2 && c->slots * c->heads > 1;
}

static struct kvt_range ways_and_rows(const struct fault_case *c, int arg)
{
	(void)c;
	return (struct kvt_range){ 0, arg == 0 ? 2 : 3 };
}

/* Of one head, all heads of a slot, or all slots of a head: no two alike. */
static bool rows_differ(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return args->n[1] == 0 || (c->heads > 1 && c->slots > 1);
}

/* Which row of keys this is among 'rows' of them, and back. */
static int64_t row_of(const struct fault_case *c, const int64_t at[KVT_NAXES],
		      int64_t rows)
{
	if (rows == 2)
		return at[KVT_AXIS_S];
	return rows == 1 ? at[KVT_AXIS_H] * c->slots + at[KVT_AXIS_S] :
			   at[KVT_AXIS_S] * c->heads + at[KVT_AXIS_H];
}

static enum fault_source split_kv(const struct fault_element *e)
{
	const struct fault_case *c = e->c;
	int64_t rows = e->n[1], nrows = rows == 2 ? c->slots : c->slots * c->heads;
	struct pair p = turned((struct pair){ row_of(c, e->at, rows), e->at[KVT_AXIS_K] },
			       nrows, c->kv, e->n[0]);

	e->from[KVT_AXIS_K] = p.fast;
	if (rows == 2) {
		e->from[KVT_AXIS_S] = p.slow;
	} else if (rows == 1) {
		e->from[KVT_AXIS_H] = p.slow / c->slots;
		e->from[KVT_AXIS_S] = p.slow % c->slots;
	} else {
		e->from[KVT_AXIS_S] = p.slow / c->heads;
		e->from[KVT_AXIS_H] = p.slow % c->heads;
	}
	return FROM_ELEMENT;
}

/* ---- rotary pairs ------------------------------------------------------- */

/* Where the rotated elements begin; in a latent row they come last. */
static int64_t rotary_start(const struct fault_case *c, int64_t rotary)
{
	return c->window->kind == KVT_MLA ? c->dim - rotary : 0;
}

static bool has_rotary(const struct fault_case *c)
{
	return kvt_fault_has_tokens(c->window) && c->dim >= 4;
}

static struct kvt_range rotary_sizes(const struct fault_case *c, int arg)
{
	const struct kvt_window *w = c->window;
	if (arg == 0)
		return two_ways(c, arg);
	if (w->kind == KVT_MLA && w->nparts > 1)
		return (struct kvt_range){ w->part[w->nparts - 1].length,
					   w->part[w->nparts - 1].length + 1 };
	return (struct kvt_range){ 4, c->dim + 1 };
}

static bool rotary_fits(const struct fault_case *c, const struct kvt_fault_args *args)
{
	int64_t rotary = args->n[1];

	if (rotary % 2 || rotary < 4 || (rotary == 4 && args->n[0]))
		return false;		/* of 4 both ways are the same */
	return c->window->kind == KVT_MLA || c->dim % rotary == 0;
}

static enum fault_source mix_pairs(const struct fault_element *e)
{
	int64_t rotary = e->n[1], start = rotary_start(e->c, rotary);
	int64_t d = e->at[KVT_AXIS_D] - start, half = rotary / 2;

	if (e->at[KVT_AXIS_K] || d < 0 || d >= rotary)
		return FROM_ELEMENT;
	e->from[KVT_AXIS_D] = start + (e->n[0] ? d % half * 2 + d / half :
						     d / 2 + d % 2 * half);
	return FROM_ELEMENT;
}

/* ---- packed keys -------------------------------------------------------- */

static bool has_packing(const struct fault_case *c)
{
	return c->kv == 2 && c->slots > 1 && c->dim > 1;
}

static struct kvt_range packings(const struct fault_case *c, int arg)
{
	if (arg == 0)
		return two_ways(c, arg);
	return arg == 1 ? (struct kvt_range){ 1, c->dim } : (struct kvt_range){ 0, 3 };
}

static bool packing_fits(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return c->dim % args->n[1] == 0;
}

static enum fault_source unpack(const struct fault_element *e)
{
	int64_t x = e->n[1], s = e->at[KVT_AXIS_S], d = e->at[KVT_AXIS_D];
	int64_t pack = (d / x * e->c->slots + s) * x + d % x, row = s * e->c->dim + d;
	int64_t address = e->n[0] ? pack : row;

	if (e->n[2] != 2 && e->n[2] != e->at[KVT_AXIS_K])
		return FROM_ELEMENT;
	e->from[KVT_AXIS_S] = e->n[0] ? address / e->c->dim : address / x % e->c->slots;
	e->from[KVT_AXIS_D] = e->n[0] ? address % e->c->dim :
					address / (e->c->slots * x) * x + address % x;
	return FROM_ELEMENT;
}

/* ---- conv states -------------------------------------------------------- */

static bool has_taps(const struct fault_case *c)
{
	return c->window->kind == KVT_MAMBA_CONV && c->slots > 1 && c->dim > 1;
}

static enum fault_source turn_taps(const struct fault_element *e)
{
	struct pair p = turned((struct pair){ e->at[KVT_AXIS_S], e->at[KVT_AXIS_D] },
			       e->c->slots, e->c->dim, e->n[0]);

	e->from[KVT_AXIS_S] = p.slow;
	e->from[KVT_AXIS_D] = p.fast;
	return FROM_ELEMENT;
}

static bool has_parts(const struct fault_case *c)
{
	return c->window->kind == KVT_MAMBA_CONV && c->window->nparts > 1;
}

static struct kvt_range ways_and_ranks(const struct fault_case *c, int arg)
{
	if (arg == 0)
		return two_ways(c, arg);
	return (struct kvt_range){ 2, (c->dim < 256 ? c->dim : 256) + 1 };
}

static bool parts_divide(const struct fault_case *c, const struct kvt_fault_args *args)
{
	for (int i = 0; i < c->window->nparts; i++)
		if (c->window->part[i].length % args->n[1])
			return false;
	return true;
}

/* Channel i of the ranks' shares, one rank after the other, in the whole. */
static int64_t channel_of_share(const struct kvt_window *w, int64_t tp, int64_t i)
{
	int64_t each = w->shape.n[KVT_AXIS_D] / tp, rank = i / each, rest = i % each;
	int p = 0;

	while (p + 1 < w->nparts && rest >= w->part[p].length / tp)
		rest -= w->part[p++].length / tp;
	return w->part[p].start + rank * (w->part[p].length / tp) + rest;
}

static int64_t share_of_channel(const struct kvt_window *w, int64_t tp, int64_t i)
{
	int64_t before = 0, each;
	int p = 0;

	while (p + 1 < w->nparts && i >= w->part[p + 1].start)
		before += w->part[p++].length / tp;
	each = w->part[p].length / tp;
	i -= w->part[p].start;
	return i / each * (w->shape.n[KVT_AXIS_D] / tp) + before + i % each;
}

static enum fault_source straddle(const struct fault_element *e)
{
	e->from[KVT_AXIS_D] = (e->n[0] ? share_of_channel : channel_of_share)
			      (e->c->window, e->n[1], e->at[KVT_AXIS_D]);
	return FROM_ELEMENT;
}

/* ---- ssm states --------------------------------------------------------- */

static bool has_state(const struct fault_case *c)
{
	return c->window->kind == KVT_MAMBA_SSM && c->dim > 3;
}

static struct kvt_range rows_of_state(const struct fault_case *c, int arg)
{
	(void)arg;
	return (struct kvt_range){ 2, c->dim / 2 + 1 };
}

static bool rows_divide(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return c->dim % args->n[0] == 0;
}

static enum fault_source turn_state(const struct fault_element *e)
{
	int64_t rows = e->n[0], d = e->at[KVT_AXIS_D];

	e->from[KVT_AXIS_D] = d % rows * (e->c->dim / rows) + d / rows;
	return FROM_ELEMENT;
}

const struct fault kvt_page_faults[NPAGES] = {
	{ .says = {
		.name = "swap-heads-slots",
		.summary = "pages of [S,H] rows read as [H,S], or the reverse",
		.arg = { { "way", 0, "0: [S,H] read as [H,S]; 1: the reverse" } } },
	  .needs = "tokens, two heads and two slots a block",
	  .part = PER_KV, .applies = has_square, .range = two_ways,
	  .predict = turn_heads },
	{ .says = {
		.name = "swap-kv",
		.summary = "keys and values are exchanged" },
	  .needs = "keys and values",
	  .part = PER_SLOT | PER_HEAD, .applies = has_kv, .predict = swap_kv },
	{ .says = {
		.name = "split-kv",
		.summary = "alternating rows of keys and values read as halves, or the "
			   "reverse",
		.arg = { { "way", 0, "0: alternating read as halves; 1: the reverse" },
			 { "rows", 0, "0: [S,H]; 1: [H,S]; 2: those of a head" } } },
	  .needs = "keys and values",
	  .applies = has_kv_rows, .range = ways_and_rows, .valid = rows_differ,
	  .predict = split_kv },
	{ .says = {
		.name = "rope-pairs",
		.summary = "rotary pairs in two halves read as neighbours, or the "
			   "reverse",
		.arg = { { "way", 0, "0: halves read as neighbours; 1: the reverse" },
			 { "rotary", 0, "elements that are rotated" } } },
	  .needs = "tokens with rotated keys",
	  .part = PER_SLOT | PER_HEAD | PER_KV, .applies = has_rotary,
	  .range = rotary_sizes, .valid = rotary_fits, .predict = mix_pairs },
	{ .says = {
		.name = "x-packing",
		.summary = "keys in packs of x elements read as rows, or the reverse",
		.arg = { { "way", 0, "0: packs read as rows; 1: the reverse" },
			 { "x", 0, "elements of a pack" },
			 { "kv", 0, "0: keys; 1: values; 2: both" } } },
	  .needs = "keys and values",
	  .part = PER_HEAD | PER_KV, .applies = has_packing, .range = packings,
	  .valid = packing_fits, .predict = unpack },
	{ .says = {
		.name = "conv-order",
		.summary = "conv states of [taps,channels] read as [channels,taps], or "
			   "the reverse",
		.arg = { { "way", 0, "0: [taps,channels] read wrong; 1: reverse" } } },
	  .needs = "a conv state",
	  .applies = has_taps, .range = two_ways, .predict = turn_taps },
	{ .says = {
		.name = "ssm-order",
		.summary = "ssm states of [head dim,state] read as [state,head dim], or "
			   "the reverse",
		.arg = { { "rows", 0, "of the matrix as it was written" } } },
	  .needs = "an ssm state",
	  .part = PER_HEAD, .applies = has_state, .range = rows_of_state,
	  .valid = rows_divide, .predict = turn_state },
	{ .says = {
		.name = "conv-parts",
		.summary = "shares of ranks are cut across the borders of x, B and C",
		.arg = { { "way", 0, "0: x, B, C of a rank side by side; 1: all channels "
				     "cut evenly" },
			 { "tp", 0, "tensor parallel ranks" } } },
	  .needs = "a conv state of several parts",
	  .part = PER_SLOT, .applies = has_parts, .range = ways_and_ranks,
	  .valid = parts_divide, .predict = straddle },
};
