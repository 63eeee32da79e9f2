/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heads.c - heads that stand where other heads should
 *
 *	swap-heads	a b c d		->	a c b d
 *	copy-head	a b c d		->	a b b d
 *	rank-map	0 1 | 2 3	->	0 2 | 1 3	dealt to ranks like cards
 */
#include "lib/fault/fault.h"

static bool has_heads(const struct fault_case *c)
{
	return c->heads > 1;
}

static struct kvt_range each_head(const struct fault_case *c, int arg)
{
	(void)arg;
	return (struct kvt_range){ 0, c->heads };
}

static bool a_before_b(const struct fault_case *c, const struct kvt_fault_args *args)
{
	(void)c;
	return args->n[0] < args->n[1];
}

static enum fault_source swap(const struct fault_element *e)
{
	if (e->at[KVT_AXIS_H] == e->n[0])
		e->from[KVT_AXIS_H] = e->n[1];
	else if (e->at[KVT_AXIS_H] == e->n[1])
		e->from[KVT_AXIS_H] = e->n[0];
	return FROM_ELEMENT;
}

static enum fault_source copy(const struct fault_element *e)
{
	if (e->at[KVT_AXIS_H] == e->n[0])
		e->from[KVT_AXIS_H] = e->n[1];
	return FROM_ELEMENT;
}

static struct kvt_range each_size(const struct fault_case *c, int arg)
{
	(void)arg;
	return (struct kvt_range){ 2, 8 * c->heads + 1 };
}

/* Ranks that share a head are a power of two; not all mix heads up. */
static bool size_fits(const struct fault_case *c, const struct kvt_fault_args *args)
{
	int64_t heads = c->heads, tp = args->n[0], each = tp / heads;

	if (tp < heads)
		return heads % tp == 0;
	return tp > heads && tp % heads == 0 && !(each & (each - 1)) && each % heads != 1;
}

/*
 * Rank r of tp holds its heads one after the other.  Who deals heads out like
 * cards thinks that they are r, r + tp, ...; with more ranks than heads, that
 * rank r has head r modulo the heads, and takes head h from the first rank that
 * truly holds it.
 */
static enum fault_source modulo(const struct fault_element *e)
{
	int64_t heads = e->c->heads, tp = e->n[0];
	int64_t h = e->at[KVT_AXIS_H], each = heads / tp;

	e->from[KVT_AXIS_H] = each ? h % each * tp + h / each : tp / heads * h % heads;
	return FROM_ELEMENT;
}

const struct fault kvt_head_faults[NHEADS] = {
	{ .says = {
		.name = "swap-heads",
		.summary = "two heads are exchanged",
		.arg = { { "a", 'H', "one head" },
			 { "b", 'H', "the other, a higher one" } } },
	  .needs = "two heads",
	  .part = PER_SLOT | PER_KV, .applies = has_heads, .range = each_head,
	  .valid = a_before_b, .predict = swap },
	{ .says = {
		.name = "copy-head",
		.summary = "a head has the content of another head",
		.arg = { { "to", 'H', "the head that is overwritten" },
			 { "from", 'H', "the head that is copied" } } },
	  .needs = "two heads",
	  .part = PER_SLOT | PER_KV, .applies = has_heads, .range = each_head,
	  .valid = kvt_two_places, .predict = copy },
	{ .says = {
		.name = "rank-map",
		.summary = "heads are assigned to ranks one by one, not in groups",
		.arg = { { "tp", 0, "tensor parallel ranks" } } },
	  .needs = "two heads",
	  .part = PER_SLOT | PER_KV, .applies = has_heads, .range = each_size,
	  .valid = size_fits, .predict = modulo },
};
