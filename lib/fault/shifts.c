/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shifts.c - tokens, blocks and layers where others should be
 *
 * A token of a request is found by its table: slots before the first of a block are the
 * last of the block before it (window->prev), and so on; what is before a request's
 * first or after its last token came from elsewhere, and nothing can be predicted.
 */
#include <stdlib.h>

#include "lib/fault/fault.h"

/* ---- tokens early or late ------------------------------------------------ */

enum { MOST_TOKENS = 64 };

static bool has_slots(const struct fault_case *c)
{
	return kvt_fault_has_tokens(c->window);
}

static struct kvt_range by_and_from(const struct fault_case *c, int arg)
{
	const struct kvt_window *w = c->window;

	if (arg == 0)
		return (struct kvt_range){ -MOST_TOKENS, MOST_TOKENS + 1 };
	if (!w->entry)
		return (struct kvt_range){ 0, 1 };
	if (c->suspect)
		return (struct kvt_range){ c->token, c->token + MOST_TOKENS + 1 };
	return (struct kvt_range){ 0, w->ntables ? w->table[0].n * c->slots : 1 };
}

/*
 * From the first token that differs on; or what comes late left a gap before it, which
 * holds anything.
 */
static bool from_there(const struct fault_case *c, const struct kvt_fault_args *args)
{
	int64_t by = args->n[0], from = args->n[1];

	if (!by || llabs(by) > c->slots * c->window->shape.n[KVT_AXIS_B])
		return false;
	/* by whole blocks it is blocks that were shifted */
	if (by % c->slots == 0 && (c->suspect || c->slots > 1) &&
	    (from % c->slots == 0 || c->partial))
		return false;
	return !c->suspect || from == c->token || (by > 0 && from == c->token + by);
}

/* What is before the first token of a request, or after its last, is unknown. */
static enum fault_source shift_tokens(const struct fault_element *e)
{
	const struct kvt_window *w = e->c->window;
	int64_t slots = w->shape.n[KVT_AXIS_S], s = e->at[KVT_AXIS_S] - e->n[0];
	const int64_t *beside = s < 0 ? w->prev : w->next;
	int64_t b = e->at[KVT_AXIS_B], before = e->n[1];

	if (w->entry)
		before -= w->entry[b] * slots + e->at[KVT_AXIS_S];
	if (before > 0)
		return before > e->n[0] ? FROM_ELEMENT : FROM_OUTSIDE;
	for (; s < 0 || s >= slots; s += s < 0 ? slots : -slots) {
		if (!beside || beside[b] < 0)
			return FROM_OUTSIDE;
		b = beside[b];
	}
	if (!kvt_fault_is_live(w, b, s))
		return FROM_OUTSIDE;
	e->from[KVT_AXIS_B] = b;
	e->from[KVT_AXIS_S] = s;
	return FROM_ELEMENT;
}

/* Farther than a block, where the request has no block that far, or no table. */
static bool shift_misses(const struct fault_case *c, const struct kvt_fault_args *args,
			 int64_t block)
{
	const struct kvt_window *w = c->window;
	const int64_t *beside = args->n[0] > 0 ? w->prev : w->next;
	int64_t by = args->n[0] > 0 ? args->n[0] : -args->n[0];

	for (; by >= c->slots; by -= c->slots) {
		if (!beside || beside[block] < 0)
			return true;
		block = beside[block];
	}
	return false;
}

/* ---- blocks ------------------------------------------------------------- */

static bool has_blocks(const struct fault_case *c)
{
	return c->window->shape.n[KVT_AXIS_B] > 1;
}

static struct kvt_range one_and_where(const struct fault_case *c, int arg)
{
	(void)c;
	return arg == 0 ? (struct kvt_range){ -1, 2 } : (struct kvt_range){ 0, 2 };
}

static bool one_and_known(const struct fault_case *c, const struct kvt_fault_args *args)
{
	if (!args->n[0])
		return false;
	return args->n[1] ? c->window->prev && c->window->next : !!c->window->block_ids;
}

static enum fault_source shift_blocks(const struct fault_element *e)
{
	const struct kvt_window *w = e->c->window;
	int64_t b = e->at[KVT_AXIS_B], by = e->n[0];

	if (e->n[1])
		b = (by > 0 ? w->prev : w->next)[b];
	else
		b = kvt_fault_block(w, w->block_ids[b] - by, b - by);
	if (b < 0)
		return FROM_OUTSIDE;
	e->from[KVT_AXIS_B] = b;
	return FROM_ELEMENT;
}

/* When there is a suspect, only its first differing block can be the one. */
static struct kvt_range one_block(const struct fault_case *c, int arg)
{
	int64_t b = c->seed[KVT_AXIS_B];

	if (arg == 0 && c->suspect)
		return (struct kvt_range){ b, b + 1 };
	return (struct kvt_range){ 0, c->window->shape.n[KVT_AXIS_B] };
}

/* Has the page, or what of it is in the window, nothing but zeros? */
static bool all_zero(const struct fault_case *c, int64_t layer, int64_t block)
{
	const struct kvt_window *w = c->window;
	int64_t at[KVT_NAXES] = { layer, block };

	do {
		const uint8_t *row = c->expected + kvt_fault_offset(w, at);

		for (int64_t i = 0; i < c->cell; i++)
			if (row[i])
				return false;
	} while (kvt_fault_next(at, &w->shape, KVT_AXIS_S, KVT_AXIS_K));
	return true;
}

/* Only a block that once held something can leave it behind. */
static bool can_be_stale(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return args->n[0] != args->n[1] &&
	       kvt_fault_is_live(c->window, args->n[0], 0) &&
	       !all_zero(c, c->suspect ? c->seed[KVT_AXIS_L] : 0, args->n[1]);
}

static enum fault_source take_block(const struct fault_element *e)
{
	if (e->at[KVT_AXIS_B] == e->n[0])
		e->from[KVT_AXIS_B] = e->n[1];
	return FROM_ELEMENT;
}

/* ---- layers ------------------------------------------------------------- */

static bool has_layers(const struct fault_case *c)
{
	return c->window->shape.n[KVT_AXIS_L] > 1;
}

static struct kvt_range one_layer(const struct fault_case *c, int arg)
{
	int64_t l = c->seed[KVT_AXIS_L];

	if (arg == 0 && c->suspect)
		return (struct kvt_range){ l, l + 1 };
	return (struct kvt_range){ 0, c->window->shape.n[KVT_AXIS_L] };
}

bool kvt_two_places(const struct fault_case *c, const struct kvt_fault_args *args)
{
	(void)c;
	return args->n[0] != args->n[1];
}

static enum fault_source take_layer(const struct fault_element *e)
{
	if (e->at[KVT_AXIS_L] == e->n[0])
		e->from[KVT_AXIS_L] = e->n[1];
	return FROM_ELEMENT;
}

/* ---- padding of pages --------------------------------------------------- */

static bool has_pages(const struct fault_case *c)
{
	return c->has_page && c->window->block_ids && kvt_fault_has_tokens(c->window);
}

/* What the engine's page says; if it says nothing, up to twice the size. */
static struct kvt_range paddings(const struct fault_case *c, int arg)
{
	int64_t pad = c->window->page_bytes - c->page_bytes;

	(void)arg;
	if (pad > 0)
		return (struct kvt_range){ pad, pad + 1 };
	return (struct kvt_range){ 1, c->page_bytes + 1 };
}

enum { ALIGNMENT = 32 };

/* Pages of engines are aligned to more than their elements. */
static bool padding_fits(const struct fault_case *c, const struct kvt_fault_args *args)
{
	int64_t padded = c->page_bytes + args->n[0];

	return padded == c->window->page_bytes ||
	       (padded % ALIGNMENT == 0 && args->n[0] % c->window->shape.elem == 0);
}

/*
 * Blocks are 'stride' bytes apart, but the reader takes them 'taken' bytes apart.  What
 * is behind a page's content may be anything; zeros are planted.
 */
static enum fault_source misread(const struct fault_element *e, int64_t stride,
				 int64_t taken)
{
	const struct fault_case *c = e->c;
	const struct kvt_window *w = c->window;
	const int64_t *at = e->at;
	/* the views are of one page, where any index of L and B is the same place */
	const int64_t inside[KVT_NAXES] = { 0, 0, at[2], at[3], at[4], at[5] };
	int64_t offset = kvt_views_at(&c->page, inside) +
			 w->block_ids[at[KVT_AXIS_B]] * taken;
	int64_t id = offset / stride;
	int64_t b = kvt_fault_block(w, id, id + at[KVT_AXIS_B] -
				       w->block_ids[at[KVT_AXIS_B]]);

	if (offset % stride >= c->page_bytes || b < 0 ||
	    !kvt_views_find(&c->page, offset % stride, e->from))
		return c->suspect ? FROM_OUTSIDE : FROM_ZERO;
	e->from[KVT_AXIS_L] = at[KVT_AXIS_L];
	e->from[KVT_AXIS_B] = b;
	return FROM_ELEMENT;
}

enum { MOST_LOOKED_UP = 512 };

/* Is none of what it takes for a block in this part of the pool? */
static bool misses(const struct fault_case *c, int64_t stride, int64_t taken,
		   int64_t block)
{
	const struct kvt_window *w = c->window;
	int64_t first = w->block_ids[block] * taken, last = first + c->page_bytes - 1;
	int64_t likely = first / stride + block - w->block_ids[block];

	return w->shape.n[KVT_AXIS_B] <= MOST_LOOKED_UP &&
	       kvt_fault_block(w, first / stride, likely) < 0 &&
	       kvt_fault_block(w, last / stride, likely + 1) < 0;
}

/* The engine leaves 'pad' bytes after each page. */
static enum fault_source leak(const struct fault_element *e)
{
	return misread(e, e->c->page_bytes + e->n[0], e->c->page_bytes);
}

static bool leak_misses(const struct fault_case *c, const struct kvt_fault_args *args,
			int64_t block)
{
	return misses(c, c->page_bytes + args->n[0], c->page_bytes, block);
}

/* ---- blocks of a kernel ------------------------------------------------- */

static bool has_dense_pages(const struct fault_case *c)
{
	return has_pages(c) && c->slots > 1 && c->window->shape.n[KVT_AXIS_B] > 1 &&
	       c->window->page_bytes <= c->page_bytes;
}

static struct kvt_range ratios(const struct fault_case *c, int arg)
{
	(void)arg;
	return (struct kvt_range){ 2, c->slots + 1 };
}

static bool divides_slots(const struct fault_case *c, const struct kvt_fault_args *args)
{
	return c->slots % args->n[0] == 0;
}

/* What stride(0) of the kernel's view says, for numbers of the manager's blocks. */
static enum fault_source step_short(const struct fault_element *e)
{
	return misread(e, e->c->page_bytes, e->c->page_bytes / e->n[0]);
}

const struct fault kvt_place_faults[NPLACES] = {
	{ .says = {
		.name = "shift-tokens",
		.summary = "tokens of a request are stored at the position of a "
			   "neighbour",
		.arg = { { "by", 0, "positions: 1 is one too late, -1 one too "
				    "early" },
			 { "from", 0, "the first token that moved" } } },
	  .needs = "tokens",
	  .part = PER_SLOT | PER_KV, .applies = has_slots, .range = by_and_from,
	  .valid = from_there, .predict = shift_tokens, .misses = shift_misses,
	  .usual = 1U << 1 },
	{ .says = {
		.name = "shift-blocks",
		.summary = "blocks are stored where a neighbour should be",
		.arg = { { "by", 0, "1: one too late; -1: one too early" },
			 { "of", 0, "0: neighbours in the pool; 1: in the request" } } },
	  .needs = "two blocks",
	  .part = PER_KV, .applies = has_blocks, .range = one_and_where,
	  .valid = one_and_known, .predict = shift_blocks },
	{ .says = {
		.name = "stale-block",
		.summary = "a block has the content of another block, which may be stale",
		.arg = { { "block", 'B', "the block that is overwritten" },
			 { "from", 'B', "the block that is copied" } } },
	  .needs = "two blocks",
	  .part = PER_KV, .applies = has_blocks, .range = one_block,
	  .valid = can_be_stale, .predict = take_block },
	{ .says = {
		.name = "wrong-layer",
		.summary = "a layer has the content of another layer",
		.arg = { { "layer", 'L', "the layer that is overwritten" },
			 { "from", 'L', "the layer that is copied" } } },
	  .needs = "two layers",
	  .part = PER_KV, .applies = has_layers, .range = one_layer,
	  .valid = kvt_two_places, .predict = take_layer },
	{ .says = {
		.name = "padding",
		.summary = "pages with padding read as if there were no padding",
		.arg = { { "pad", 0, "bytes after each page" } } },
	  .needs = "tokens, and pages that follow each other in memory",
	  .applies = has_pages, .range = paddings, .valid = padding_fits,
	  .predict = leak, .misses = leak_misses },
	{ .says = {
		.name = "kernel-stride",
		.summary = "blocks read a smaller block of the kernel's apart",
		.arg = { { "ratio", 0, "blocks of the kernel in a block" } } },
	  .needs = "tokens, and two pages that follow each other in memory",
	  .applies = has_dense_pages, .range = ratios, .valid = divides_slots,
	  .predict = step_short },
};
